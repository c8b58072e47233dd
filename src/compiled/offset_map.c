#include "compiled.h"

int
add_offset_map(PyObject *module)
{
    (void)module;
    return 0;
}
