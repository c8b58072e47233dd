#include "compiled.h"

int
add_scan(PyObject *module)
{
    return PyModule_AddStringConstant(module, "CRC32C_KERNEL", crc32c_kernel());
}
