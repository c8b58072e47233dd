/* Walks the batches of a buffer, and the records of a batch without making objects. */

#include "batch.h"
#include "bounds.h"

enum { FIELD_COUNT = 13 };

/* The end of the ordinary batches that begin at a place. Needs no GIL. */
static const uint8_t *
end_of_sound(const uint8_t *at, const uint8_t *end)
{
    int64_t size_bytes;
    while ((size_bytes = whole_batch_bytes(at, end)) > 0 && is_sound_batch(at, size_bytes))
        at += size_bytes;
    return at;
}

/* Whether the rest is only the beginning of a batch or legacy entry that continues after the end. */
static int
is_cut(const uint8_t *at, const uint8_t *end)
{
    static const int min_lengths[] = {14, 22, MIN_BATCH_LENGTH};
    if (end - at < PREFIX_BYTES)
        return 1;
    int64_t length = read_int32(at + BATCH_LENGTH_AT);
    return at[MAGIC_AT] <= 2 && length >= min_lengths[at[MAGIC_AT]] &&
           length > end - at - LENGTH_OVERHEAD_BYTES;
}

/* Give the tuple its next item; steals the reference. */
static int
set_item(PyObject *tuple, Py_ssize_t number, PyObject *item)
{
    return item == NULL ? -1 : PyTuple_SetItem(tuple, number, item);
}

/* The batch's fields in an instance of the header type, a NamedTuple; created without calling the type, which takes
   half the time. */
static PyObject *
new_header(PyTypeObject *header_type, const uint8_t *at)
{
    PyObject *header = PyType_GenericAlloc(header_type, FIELD_COUNT);
    if (header == NULL)
        return NULL;
    if (set_item(header, 0, PyLong_FromLongLong(read_int64(at + BASE_OFFSET_AT))) < 0 ||
        set_item(header, 1, PyLong_FromLong(read_int32(at + BATCH_LENGTH_AT))) < 0 ||
        set_item(header, 2, PyLong_FromLong(read_int32(at + LEADER_EPOCH_AT))) < 0 ||
        set_item(header, 3, PyLong_FromLong((int8_t)at[MAGIC_AT])) < 0 ||
        set_item(header, 4, PyLong_FromUnsignedLong(read_uint32(at + CRC_AT))) < 0 ||
        set_item(header, 5, PyLong_FromLong(read_int16(at + ATTRIBUTES_AT))) < 0 ||
        set_item(header, 6, PyLong_FromLong(read_int32(at + LAST_OFFSET_DELTA_AT))) < 0 ||
        set_item(header, 7, PyLong_FromLongLong(read_int64(at + BASE_TIMESTAMP_AT))) < 0 ||
        set_item(header, 8, PyLong_FromLongLong(read_int64(at + MAX_TIMESTAMP_AT))) < 0 ||
        set_item(header, 9, PyLong_FromLongLong(read_int64(at + PRODUCER_ID_AT))) < 0 ||
        set_item(header, 10, PyLong_FromLong(read_int16(at + PRODUCER_EPOCH_AT))) < 0 ||
        set_item(header, 11, PyLong_FromLong(read_int32(at + BASE_SEQUENCE_AT))) < 0 ||
        set_item(header, 12, PyLong_FromLong(read_int32(at + RECORD_COUNT_AT))) < 0) {
        Py_DECREF(header);
        return NULL;
    }
    return header;
}

static int
append_batch(PyObject *found, PyTypeObject *header_type, const uint8_t *at, Py_ssize_t position)
{
    PyObject *header = new_header(header_type, at), *pair = header != NULL ? PyTuple_New(2) : NULL;
    if (pair == NULL) {
        Py_XDECREF(header);
        return -1;
    }
    int failed = PyTuple_SetItem(pair, 1, header) < 0 || set_item(pair, 0, PyLong_FromSsize_t(position)) < 0 ||
                 PyList_Append(found, pair) < 0;
    Py_DECREF(pair);
    return failed ? -1 : 0;
}

/* (position, header) of each whole batch from at on, and the end of the last one. If they were checked, they are
   known to be sound up to the end. */
static PyObject *
list_batches(PyTypeObject *header_type, const Py_buffer *view, const uint8_t **at, const uint8_t *end)
{
    PyObject *found = PyList_New(0);
    int64_t size_bytes;
    while (found != NULL && (size_bytes = whole_batch_bytes(*at, end)) > 0) {
        if (append_batch(found, header_type, *at, *at - (const uint8_t *)view->buf) < 0)
            Py_CLEAR(found);
        *at += size_bytes;
    }
    return found;
}

static PyObject *
scan_view(PyTypeObject *header_type, const Py_buffer *view, Py_ssize_t position, Py_ssize_t end, int check)
{
    const uint8_t *at = (const uint8_t *)view->buf + position, *stop = (const uint8_t *)view->buf + end;
    const uint8_t *sound = stop;
    if (check && end - position < MIN_BYTES_WITHOUT_GIL) {
        sound = end_of_sound(at, stop);
    } else if (check) {
        Py_BEGIN_ALLOW_THREADS
        sound = end_of_sound(at, stop);
        Py_END_ALLOW_THREADS
    }
    PyObject *found = list_batches(header_type, view, &at, sound);
    if (found == NULL)
        return NULL;
    return Py_BuildValue("(NnO)", found, (Py_ssize_t)(at - (const uint8_t *)view->buf),
                         is_cut(at, stop) ? Py_True : Py_False);
}

/* scan_batches(header_type, buffer, position, end, check, /) -> (batches, stop, whether that is all)

   Only the ordinary batches: if these are not all, something else, or damage, begins at stop. */
static PyObject *
python_scan_batches(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 5 || !PyType_Check(args[0]) || !PyType_IsSubtype((PyTypeObject *)args[0], &PyTuple_Type)) {
        PyErr_SetString(PyExc_TypeError, "scan_batches takes a tuple type, a buffer, a position, an end, a flag");
        return NULL;
    }
    Py_ssize_t position = PyLong_AsSsize_t(args[2]);
    if (position == -1 && PyErr_Occurred())
        return NULL;
    Py_ssize_t end = PyLong_AsSsize_t(args[3]);
    if (end == -1 && PyErr_Occurred())
        return NULL;
    int check = PyObject_IsTrue(args[4]);
    Py_buffer view;
    if (check < 0 || PyObject_GetBuffer(args[1], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *result;
    if (position < 0 || position > end || end > view.len)
        result = Py_BuildValue("([]nO)", position, Py_False);
    else
        result = scan_view((PyTypeObject *)args[0], &view, position, end, check);
    PyBuffer_Release(&view);
    return result;
}

/* Facts about all records of a section: RecordFacts in plain.py. */
typedef struct {
    int64_t oldest_ms; /* of the records that have one */
    int64_t newest_ms;
    int has_all_keys;
} Facts;

/* The facts of so many records, if they fill the section exactly, and their offsets rise up to last_delta; else -1.
   Needs no GIL. */
static int
inspect(const uint8_t *at, const uint8_t *end, int64_t count, int64_t last_delta, int64_t base_ms, Facts *facts)
{
    int64_t least_delta = 0, oldest_ms = INT64_MAX, newest_ms = count == 0 ? NO_TIMESTAMP_MS : INT64_MIN;
    int has_all_keys = 1;
    RawRecord record;
    for (int64_t number = 0; number < count; number++) {
        if (read_record(&at, end, &record) < 0 || check_headers(&record) < 0)
            return -1;
        if (record.offset_delta < least_delta || record.offset_delta > last_delta)
            return -1;
        least_delta = (int64_t)record.offset_delta + 1;
        int64_t timestamp_ms = add_wrapping(base_ms, record.timestamp_delta);
        if (timestamp_ms > newest_ms)
            newest_ms = timestamp_ms;
        if (timestamp_ms < oldest_ms && timestamp_ms != NO_TIMESTAMP_MS)
            oldest_ms = timestamp_ms;
        has_all_keys &= record.key.size >= 0;
    }
    Facts found = {oldest_ms, newest_ms, has_all_keys};
    *facts = found;
    return at == end ? 0 : -1;
}

static PyObject *
inspect_view(const Py_buffer *view, const int64_t numbers[5])
{
    int64_t position = numbers[0], end = numbers[1];
    if (position < 0 || position > end || end > view->len || numbers[2] < 0)
        Py_RETURN_NONE;
    const uint8_t *bytes = view->buf;
    Facts facts;
    int failed;
    if (end - position < MIN_BYTES_WITHOUT_GIL) {
        failed = inspect(bytes + position, bytes + end, numbers[2], numbers[3], numbers[4], &facts);
    } else {
        Py_BEGIN_ALLOW_THREADS
        failed = inspect(bytes + position, bytes + end, numbers[2], numbers[3], numbers[4], &facts);
        Py_END_ALLOW_THREADS
    }
    if (failed)
        Py_RETURN_NONE;
    return Py_BuildValue("(LLO)", (long long)facts.oldest_ms, (long long)facts.newest_ms,
                         facts.has_all_keys ? Py_True : Py_False);
}

/* inspect_records(buffer, position, end, count, last_offset_delta, base_timestamp, /) -> (oldest timestamp, newest
   timestamp, whether all have keys), or None if anything is unusual. */
static PyObject *
python_inspect_records(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    int64_t numbers[5];
    if (nargs != 6) {
        PyErr_SetString(PyExc_TypeError, "inspect_records takes six arguments");
        return NULL;
    }
    for (int i = 0; i < 5; i++)
        if (read_exact_int(args[i + 1], &numbers[i]) < 0)
            return refuse();
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return refuse();
    PyObject *result = inspect_view(&view, numbers);
    PyBuffer_Release(&view);
    return result;
}

static PyMethodDef functions[] = {
    {"inspect_records", (PyCFunction)(void (*)(void))python_inspect_records, METH_FASTCALL,
     "inspect_records(buffer, position, end, count, last_offset_delta, base_timestamp, /)\n--\n\n"
     "Check the records of a section, without making any; what they say together."},
    {"scan_batches", (PyCFunction)(void (*)(void))python_scan_batches, METH_FASTCALL,
     "scan_batches(header_type, buffer, position, end, check, /)\n--\n\nThe ordinary batches from a position on."},
    {NULL, NULL, 0, NULL},
};

int
add_scan(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
