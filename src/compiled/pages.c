/* Loads the pages of a mapped file, so that a disk error is a return value and not a signal.

   In C because Python's own mmap.madvise holds the GIL while the disk is read.
*/

#define _GNU_SOURCE

#include "compiled.h"

#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>

enum { POPULATE_READ = 22 }; /* MADV_POPULATE_READ, Linux 5.14; older headers lack it */

static int
load(const uint8_t *bytes, size_t size)
{
    size_t page_bytes = (size_t)sysconf(_SC_PAGESIZE);
    size_t before = (uintptr_t)bytes % page_bytes;
    /* The system changes nothing there, but its signature has no const. */
    return madvise((void *)(uintptr_t)(bytes - before), size + before, POPULATE_READ) == 0;
}
#else
static int
load(const uint8_t *bytes, size_t size)
{
    (void)bytes;
    (void)size;
    return 0;
}
#endif

/* load_pages(mapped, position, end, /) -> whether the system says that they are in memory */
static PyObject *
python_load_pages(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 3) {
        PyErr_SetString(PyExc_TypeError, "load_pages takes a mapped file, a position and an end");
        return NULL;
    }
    Py_ssize_t position = PyLong_AsSsize_t(args[1]);
    if (position == -1 && PyErr_Occurred())
        return NULL;
    Py_ssize_t end = PyLong_AsSsize_t(args[2]);
    if (end == -1 && PyErr_Occurred())
        return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    int is_loaded = 0;
    if (position >= 0 && position <= end && end <= view.len) {
        Py_BEGIN_ALLOW_THREADS
        is_loaded = load((const uint8_t *)view.buf + position, (size_t)(end - position));
        Py_END_ALLOW_THREADS
    }
    PyBuffer_Release(&view);
    return PyBool_FromLong(is_loaded);
}

static PyMethodDef functions[] = {
    {"load_pages", (PyCFunction)(void (*)(void))python_load_pages, METH_FASTCALL,
     "load_pages(mapped, position, end, /)\n--\n\nWhether that part of a mapped file could be loaded into memory."},
    {NULL, NULL, 0, NULL},
};

int
add_pages(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
