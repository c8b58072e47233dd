/* Columns: see columns_decode.c (batches to Arrow's buffers) and columns_encode.c (Arrow's buffers to batches). */

#include "columns.h"

int
add_columns(PyObject *module)
{
    return add_columns_decode(module) < 0 || add_columns_encode(module) < 0 ? -1 : 0;
}
