/* Grows a bytearray without clearing what is added, which bytearray itself does.

   In C because Python has no such call: to clear a megabyte that a socket fills at once costs as much as to copy
   it, and touches pages for which no byte may ever come.
*/

#include "compiled.h"

/* grow(memory, size_bytes, /) -> None. What is added has any contents. */
static PyObject *
python_grow(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 2 || !PyObject_TypeCheck(args[0], &PyByteArray_Type)) {
        PyErr_SetString(PyExc_TypeError, "grow takes a bytearray and a size");
        return NULL;
    }
    Py_ssize_t size = PyLong_AsSsize_t(args[1]);
    if (size == -1 && PyErr_Occurred())
        return NULL;
    if (size < PyByteArray_Size(args[0])) {
        PyErr_SetString(PyExc_ValueError, "grow makes nothing smaller");
        return NULL;
    }
    if (PyByteArray_Resize(args[0], size) < 0)
        return NULL;
    Py_RETURN_NONE;
}

static PyMethodDef functions[] = {
    {"grow", (PyCFunction)(void (*)(void))python_grow, METH_FASTCALL,
     "grow(memory, size_bytes, /)\n--\n\nMake a bytearray larger; what is added has any contents."},
    {NULL, NULL, 0, NULL},
};

int
add_memory(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
