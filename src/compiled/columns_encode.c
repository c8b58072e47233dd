#include "columns.h"

int
add_columns_encode(PyObject *module)
{
    (void)module;
    return 0;
}
