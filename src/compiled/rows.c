/* Turns a batch, or the section of one, into records. None for anything unusual: the careful reader in Python then
   decodes it, or raises the error.
*/

#include "batch.h"
#include "record.h"

typedef struct {
    const uint8_t *at;
    const uint8_t *end;
    int64_t base_offset;
    int64_t base_timestamp_ms;
    int64_t append_time_ms;
    int64_t last_offset_delta;
    int64_t leader_epoch;
    int has_append_time;
    PyObject *partition; /* a TopicPartition or None */
    PyObject *section; /* of records that are made on demand, else NULL */
    HeaderCache *cache;
    RecordSource *source;
} Decoder;

/* Exactly so many records that fill the section; otherwise NULL, perhaps with an exception. */
static PyObject *
decode_section(Decoder *decoder, Py_ssize_t count)
{
    PyObject *records = PyList_New(count);
    if (records == NULL)
        return NULL;
    int64_t least_delta = 0, most_delta = decoder->last_offset_delta;
    if (decoder->base_offset > 0 && most_delta > INT64_MAX - decoder->base_offset)
        most_delta = INT64_MAX - decoder->base_offset;
    for (Py_ssize_t number = 0; number < count; number++) {
        RawRecord raw;
        PyObject *record = NULL;
        if (read_record(&decoder->at, decoder->end, &raw) == 0 && raw.offset_delta >= least_delta &&
            raw.offset_delta <= most_delta) {
            int64_t timestamp_ms = decoder->has_append_time
                                       ? decoder->append_time_ms
                                       : add_wrapping(decoder->base_timestamp_ms, raw.timestamp_delta);
            int64_t offset = decoder->base_offset + raw.offset_delta;
            record = decoder->section == NULL ? record_of_raw(decoder->cache, decoder->source, &raw, offset, timestamp_ms)
                                              : on_demand_record_of_raw(decoder->source, &raw, offset, timestamp_ms,
                                                                        decoder->section);
        }
        if (record == NULL || PyList_SetItem(records, number, record) < 0) {
            Py_DECREF(records);
            return NULL;
        }
        least_delta = (int64_t)raw.offset_delta + 1;
    }
    if (decoder->at == decoder->end)
        return records;
    Py_DECREF(records);
    return NULL;
}

/* The decoder reads the section in place; records on demand need a bytes object, so other buffers are copied. */
static int
place_section(Decoder *decoder, PyObject *buffer, const Py_buffer *view, Py_ssize_t position, Py_ssize_t end,
              int on_demand)
{
    decoder->at = (const uint8_t *)view->buf + position;
    if (on_demand) {
        if (Py_TYPE(buffer) == &PyBytes_Type) {
            decoder->section = Py_NewRef(buffer);
        } else {
            decoder->section = PyBytes_FromStringAndSize((const char *)decoder->at, end - position);
            if (decoder->section == NULL)
                return -1;
            decoder->at = (const uint8_t *)PyBytes_AsString(decoder->section);
        }
    }
    decoder->end = decoder->at + (end - position);
    return 0;
}

/* The records of the section from position to end, of so many bytes; NULL, perhaps with an exception, for anything
   unusual. */
static PyObject *
decode_view(ModuleState *state, Decoder *decoder, PyObject *buffer, const Py_buffer *view, int64_t position,
            int64_t end, int64_t count, int on_demand)
{
    if (position < 0 || position > end || end > view->len)
        return NULL;
    if (count < 0 || count > (end - position) / MIN_RECORD_BYTES)
        return NULL;
    if (decoder->leader_epoch < INT32_MIN || decoder->leader_epoch > INT32_MAX)
        return NULL;
    if (place_section(decoder, buffer, view, (Py_ssize_t)position, (Py_ssize_t)end, on_demand) < 0)
        return NULL;
    PyObject *records = NULL;
    decoder->source =
        find_source(state, decoder->partition, (int32_t)decoder->leader_epoch, decoder->has_append_time);
    if (decoder->source != NULL) {
        HeaderCache cache;
        begin_header_cache(&cache, state);
        decoder->cache = &cache;
        records = decode_section(decoder, (Py_ssize_t)count);
        clear_header_cache(&cache);
        release_source(decoder->source);
    }
    Py_XDECREF(decoder->section);
    return records;
}

/* Release it afterwards. Bytes are read directly, in a third of the time that the buffer protocol takes. */
static int
open_buffer(PyObject *buffer, Py_buffer *view)
{
    if (Py_TYPE(buffer) == &PyBytes_Type) {
        view->buf = PyBytes_AsString(buffer);
        view->len = Py_SIZE(buffer);
        view->obj = NULL;
        return 0;
    }
    if (PyObject_GetBuffer(buffer, view, PyBUF_ND) < 0)
        return -1;
    if (view->ndim == 1 && view->itemsize == 1)
        return 0;
    PyBuffer_Release(view);
    return -1;
}

static PyObject *
decode_records(PyObject *module, PyObject *const *args, Py_ssize_t arg_count)
{
    if (arg_count != 11) {
        PyErr_SetString(PyExc_TypeError, "decode_records takes 11 arguments");
        return NULL;
    }
    Decoder decoder = {.has_append_time = args[6] != Py_None, .partition = args[10]};
    int64_t position, end, count;
    if (read_exact_int(args[1], &position) < 0 || read_exact_int(args[2], &end) < 0 ||
        read_exact_int(args[3], &count) < 0 || read_exact_int(args[4], &decoder.base_offset) < 0 ||
        read_exact_int(args[5], &decoder.base_timestamp_ms) < 0 ||
        (decoder.has_append_time && read_exact_int(args[6], &decoder.append_time_ms) < 0) ||
        read_exact_int(args[7], &decoder.last_offset_delta) < 0 ||
        read_exact_int(args[9], &decoder.leader_epoch) < 0)
        return refuse();
    int on_demand = PyObject_IsTrue(args[8]);
    if (on_demand < 0)
        return NULL;
    Py_buffer view;
    if (open_buffer(args[0], &view) < 0)
        return refuse();
    PyObject *records =
        decode_view(module_state(module), &decoder, args[0], &view, position, end, count, on_demand);
    PyBuffer_Release(&view);
    return records != NULL ? records : refuse();
}

/* The batch at position, if it is of magic 2, whole, and not compressed; as decode_view. */
static PyObject *
decode_whole_batch(ModuleState *state, PyObject *buffer, const Py_buffer *view, int64_t position, int on_demand,
                   PyObject *partition)
{
    if (position < 0 || position > view->len)
        return NULL;
    const uint8_t *at = (const uint8_t *)view->buf + position;
    int64_t size_bytes = whole_batch_bytes(at, (const uint8_t *)view->buf + view->len);
    if (size_bytes == 0)
        return NULL;
    int attributes = read_int16(at + ATTRIBUTES_AT);
    if (attributes & CODEC_MASK)
        return NULL;
    Decoder decoder = {
        .base_offset = read_int64(at + BASE_OFFSET_AT),
        .base_timestamp_ms = read_int64(at + BASE_TIMESTAMP_AT),
        .append_time_ms = read_int64(at + MAX_TIMESTAMP_AT),
        .last_offset_delta = read_int32(at + LAST_OFFSET_DELTA_AT),
        .leader_epoch = read_int32(at + LEADER_EPOCH_AT),
        .has_append_time = (attributes & TIMESTAMP_TYPE_BIT) != 0,
        .partition = partition,
    };
    return decode_view(state, &decoder, buffer, view, position + HEADER_BYTES, position + size_bytes,
                       read_int32(at + RECORD_COUNT_AT), on_demand);
}

static PyObject *
decode_batch(PyObject *module, PyObject *const *args, Py_ssize_t arg_count)
{
    if (arg_count != 4) {
        PyErr_SetString(PyExc_TypeError, "decode_batch takes 4 arguments");
        return NULL;
    }
    int64_t position;
    if (read_exact_int(args[1], &position) < 0)
        return refuse();
    int on_demand = PyObject_IsTrue(args[2]);
    if (on_demand < 0)
        return NULL;
    Py_buffer view;
    if (open_buffer(args[0], &view) < 0)
        return refuse();
    PyObject *records = decode_whole_batch(module_state(module), args[0], &view, position, on_demand, args[3]);
    PyBuffer_Release(&view);
    return records != NULL ? records : refuse();
}

static PyMethodDef functions[] = {
    {"decode_records", (PyCFunction)(void (*)(void))decode_records, METH_FASTCALL,
     "decode_records(buffer, position, end, count, base_offset, base_timestamp_ms, append_time_ms, last_offset_delta, "
     "on_demand, leader_epoch, partition)\n--\n\nThe records of a section, or None."},
    {"decode_batch", (PyCFunction)(void (*)(void))decode_batch, METH_FASTCALL,
     "decode_batch(buffer, position, on_demand, partition)\n--\n\nThe records of an uncompressed batch, or None."},
    {NULL, NULL, 0, NULL},
};

int
add_rows(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
