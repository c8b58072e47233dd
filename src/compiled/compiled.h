/* The declarations that the files of the compiled module share.

   The module is built once for every Python from 3.11 on (the limited API, PEP 384). It holds the hot loops of
   the format layer and nothing else: bytes in, values out, no I/O (except that pages.c loads mapped pages), no
   clock (except that GatheredRows asks the machine's on request), no Python callbacks.

   Rules for every file:
   - A function that meets anything unusual (damaged bytes, an argument of another type) returns None, or stops
     before it. The plain Python code then decides, and raises the error if there is one. So no error text is
     written twice. This module raises a Python exception only for a lack of memory, and for arguments that no
     caller inside logstore can pass.
   - Bytes of unknown origin are read only through the bounds-checked functions of reader.h.
   - The GIL is released if no Python object is touched and the work may take more than some microseconds.
*/

#ifndef LOGSTORE_COMPILED_H
#define LOGSTORE_COMPILED_H

#ifndef Py_GIL_DISABLED
#define Py_LIMITED_API 0x030B0000
#endif
#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdint.h>
#include <string.h>

/* The state of one module object: each interpreter has its own. */
typedef struct {
    PyTypeObject *record_type;
    PyTypeObject *on_demand_record_type;
    PyObject *empty_tuple;
    PyTypeObject *buffer_type;
    PyTypeObject *region_type;
    PyTypeObject *offset_map_type;
    uint8_t *spare_region; /* from malloc, for the next call of encode_columns */
    int64_t spare_region_bytes;
    struct Record *spare_records; /* memory of dead records, each with the next as its key: see record.h */
    int spare_record_count;
    struct RecordSource *last_source; /* the source of the newest records, which were read from last_partition */
    PyObject *last_partition;
    PyObject *timestamp_types[3];     /* the members of TimestampType from -1 on, or NULL: see record.c */
    struct ColumnSet *spare_columns; /* memory for the next Columns, or NULL */
} ModuleState;

static inline ModuleState *
module_state(PyObject *module)
{
    return (ModuleState *)PyModule_GetState(module);
}

/* Each file adds its own functions and types. */
int add_record(PyObject *module);
int add_rows(PyObject *module);
int add_encode(PyObject *module);
int add_append(PyObject *module);
int add_columns(PyObject *module);
int add_checksum(PyObject *module);
int add_scan(PyObject *module);
int add_index_run(PyObject *module);
int add_pages(PyObject *module);
int add_memory(PyObject *module);
int add_lookup(PyObject *module);
int add_latest(PyObject *module);
int add_offset_map(PyObject *module);
int add_keep(PyObject *module);
int add_whole_run(PyObject *module);

void free_spare_columns(ModuleState *state);

/* Releasing the GIL costs 50 ns, but taking it back up to 5 ms if other threads run Python code. Work of this size,
   some microseconds, is worth it. */
enum { MIN_BYTES_WITHOUT_GIL = 32 * 1024 };

/* CRC-32C (Castagnoli), continuing from the checksum of the bytes before it. Needs no GIL. */
uint32_t crc32c(uint32_t crc, const uint8_t *bytes, size_t size);

/* The name of the kernel that crc32c uses on this processor. */
const char *crc32c_kernel(void);

/* The answer for something unusual: None, or NULL with the exception if memory is short. */
static inline PyObject *
refuse(void)
{
    if (PyErr_Occurred()) {
        if (PyErr_ExceptionMatches(PyExc_MemoryError))
            return NULL;
        PyErr_Clear();
    }
    Py_RETURN_NONE;
}

/* An exact int (not of a subclass) as 64 bits; -1 without an exception for anything else. */
static inline int
read_exact_int(PyObject *object, int64_t *number)
{
    if (Py_TYPE(object) != &PyLong_Type)
        return -1;
    int overflow; /* the call without it takes three times as long */
    *number = PyLong_AsLongLongAndOverflow(object, &overflow);
    return overflow ? -1 : 0;
}

/* Free the memory that is kept for new records. */
void free_spare_records(ModuleState *state);

#endif
