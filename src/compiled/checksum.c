/* The checksum functions, for Python. */

#include "compiled.h"
#include "crc32c.h"

/* The arguments (buffer, crc=0) of a checksum function. */
static int
checksum_arguments(PyObject *const *args, Py_ssize_t nargs, Py_buffer *view, uint32_t *crc)
{
    if (nargs < 1 || nargs > 2) {
        PyErr_SetString(PyExc_TypeError, "crc32c takes a buffer and a checksum to continue from");
        return -1;
    }
    *crc = 0;
    if (nargs == 2) {
        unsigned long number = PyLong_AsUnsignedLongMask(args[1]);
        if (number == (unsigned long)-1 && PyErr_Occurred())
            return -1;
        *crc = (uint32_t)number;
    }
    return PyObject_GetBuffer(args[0], view, PyBUF_SIMPLE);
}

/* crc32c(buffer, crc=0, /) -> int */
static PyObject *
python_crc32c(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    Py_buffer view;
    uint32_t crc;
    if (checksum_arguments(args, nargs, &view, &crc) < 0)
        return NULL;
    if (view.len < MIN_BYTES_WITHOUT_GIL) {
        crc = crc32c(crc, view.buf, (size_t)view.len);
    } else {
        Py_BEGIN_ALLOW_THREADS
        crc = crc32c(crc, view.buf, (size_t)view.len);
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    return PyLong_FromUnsignedLong(crc);
}

/* crc32c_with(kernel, buffer, crc=0, /) -> int, or None if this processor has no such kernel: for tests. */
static PyObject *
python_crc32c_with(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    Py_buffer view;
    uint32_t crc;
    if (checksum_arguments(args + 1, nargs - 1, &view, &crc) < 0)
        return NULL;
    PyObject *result = NULL;
    for (const Crc32cKernel *kernel = crc32c_kernels; kernel->name != NULL && result == NULL; kernel++)
        if (PyUnicode_Check(args[0]) && PyUnicode_CompareWithASCIIString(args[0], kernel->name) == 0 &&
            kernel->is_usable())
            result = PyLong_FromUnsignedLong(~kernel->function(~crc, view.buf, (size_t)view.len));
    PyBuffer_Release(&view);
    return result == NULL && !PyErr_Occurred() ? Py_NewRef(Py_None) : result;
}

/* CRC32C_KERNELS: the names of those that this processor has, the one in use first. */
static int
add_kernel_names(PyObject *module)
{
    PyObject *names = PyList_New(0);
    if (names == NULL)
        return -1;
    int failed = 0;
    for (const Crc32cKernel *kernel = crc32c_kernels; kernel->name != NULL && !failed; kernel++) {
        if (!kernel->is_usable())
            continue;
        PyObject *name = PyUnicode_FromString(kernel->name);
        failed = name == NULL || PyList_Append(names, name) < 0;
        Py_XDECREF(name);
    }
    PyObject *fixed = failed ? NULL : PyList_AsTuple(names);
    Py_DECREF(names);
    if (fixed == NULL)
        return -1;
    failed = PyModule_AddObjectRef(module, "CRC32C_KERNELS", fixed);
    Py_DECREF(fixed);
    return failed;
}

static PyMethodDef functions[] = {
    {"crc32c", (PyCFunction)(void (*)(void))python_crc32c, METH_FASTCALL,
     "crc32c(buffer, crc=0, /)\n--\n\nThe CRC-32C of the buffer, continuing from the checksum of the bytes before."},
    {"crc32c_with", (PyCFunction)(void (*)(void))python_crc32c_with, METH_FASTCALL,
     "crc32c_with(kernel, buffer, crc=0, /)\n--\n\nThe same by the kernel of that name; None if there is none."},
    {NULL, NULL, 0, NULL},
};

int
add_checksum(PyObject *module)
{
    if (PyModule_AddFunctions(module, functions) < 0 || add_kernel_names(module) < 0)
        return -1;
    return PyModule_AddStringConstant(module, "CRC32C_KERNEL", crc32c_kernel());
}
