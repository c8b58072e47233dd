/* Copies some of the records of a section, byte by byte: what compaction keeps of a batch. */

#include "compiled.h"
#include "reader.h"

/* A section, and a 1 or 0 for each of its records: whether it stays. */
typedef struct {
    const uint8_t *at, *end;
    const uint8_t *stays;
    int64_t count;
    int64_t base_ms;
} Selection;

/* The size of a record including its length field, and its timestamp. */
static inline int
read_extent(const uint8_t **at, const uint8_t *end, int64_t *timestamp_delta)
{
    int32_t size;
    if (read_record_size(at, end, &size) < 0)
        return -1;
    const uint8_t *p = *at + 1, *stop = *at + size;
    if (read_varlong(&p, stop, timestamp_delta) < 0)
        return -1;
    *at = stop;
    return 0;
}

/* Copies the records that stay; returns their size, or -1 if the section is not as described. A run of records that
   stay is copied at once. Needs no GIL. */
static int64_t
keep(Selection selection, uint8_t *to, int64_t *newest_ms)
{
    const uint8_t *at = selection.at, *row = at;
    int64_t kept = 0;
    for (int64_t i = 0; i < selection.count; i++) {
        const uint8_t *record = at;
        int64_t delta_ms;
        if (read_extent(&at, selection.end, &delta_ms) < 0)
            return -1;
        if (selection.stays[i]) {
            int64_t timestamp_ms = add_wrapping(selection.base_ms, delta_ms);
            if (timestamp_ms > *newest_ms)
                *newest_ms = timestamp_ms;
            continue;
        }
        memcpy(to + kept, row, (size_t)(record - row));
        kept += record - row;
        row = at;
    }
    memcpy(to + kept, row, (size_t)(at - row));
    return at == selection.end ? kept + (at - row) : -1;
}

static PyObject *
keep_in_view(const Py_buffer *view, const Py_buffer *stays, const int64_t numbers[4])
{
    int64_t position = numbers[0], end = numbers[1], reserve_bytes = numbers[3], newest_ms = -1;
    if (position < 0 || position > end || end > view->len || reserve_bytes < 0 || reserve_bytes > HEADER_BYTES)
        Py_RETURN_NONE;
    const uint8_t *bytes = view->buf;
    Selection selection = {bytes + position, bytes + end, stays->buf, stays->len, numbers[2]};
    /* The result is at most as large as the section; cutting the rest off costs nothing. */
    PyObject *batch = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)(reserve_bytes + end - position));
    if (batch == NULL)
        return NULL;
    uint8_t *to = (uint8_t *)PyByteArray_AsString(batch);
    memset(to, 0, (size_t)reserve_bytes);
    int64_t kept;
    if (end - position < MIN_BYTES_WITHOUT_GIL) {
        kept = keep(selection, to + reserve_bytes, &newest_ms);
    } else {
        Py_BEGIN_ALLOW_THREADS
        kept = keep(selection, to + reserve_bytes, &newest_ms);
        Py_END_ALLOW_THREADS
    }
    if (kept < 0) {
        Py_DECREF(batch);
        Py_RETURN_NONE;
    }
    if (PyByteArray_Resize(batch, (Py_ssize_t)(reserve_bytes + kept)) < 0) {
        Py_DECREF(batch);
        return NULL;
    }
    return Py_BuildValue("(NL)", batch, (long long)newest_ms);
}

/* keep_records(section, position, end, stays, base_timestamp, reserve_bytes, /) -> (batch, newest timestamp), or
   None if anything is unusual. */
static PyObject *
python_keep_records(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    int64_t numbers[4];
    if (nargs != 6) {
        PyErr_SetString(PyExc_TypeError, "keep_records takes six arguments");
        return NULL;
    }
    if (read_exact_int(args[1], &numbers[0]) < 0 || read_exact_int(args[2], &numbers[1]) < 0 ||
        read_exact_int(args[4], &numbers[2]) < 0 || read_exact_int(args[5], &numbers[3]) < 0)
        return refuse();
    Py_buffer view, stays;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return refuse();
    if (PyObject_GetBuffer(args[3], &stays, PyBUF_SIMPLE) < 0) {
        PyBuffer_Release(&view);
        return refuse();
    }
    PyObject *result = keep_in_view(&view, &stays, numbers);
    PyBuffer_Release(&stays);
    PyBuffer_Release(&view);
    return result;
}

static PyMethodDef functions[] = {
    {"keep_records", (PyCFunction)(void (*)(void))python_keep_records, METH_FASTCALL,
     "keep_records(section, position, end, stays, base_timestamp, reserve_bytes, /)\n--\n\n"
     "Those records of a section for which stays has a 1, and the largest of their timestamps."},
    {NULL, NULL, 0, NULL},
};

int
add_keep(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
