#include "compiled.h"

int
add_append(PyObject *module)
{
    (void)module;
    return 0;
}
