/* The section of a batch to records. None for whatever is out of the ordinary: the careful reader in Python then
   decodes it, or says what is wrong.
*/

#include "record.h"

enum { KNOWN_HEADERS = 16 };

/* A header seen before in this call: its name, and the last pair of it. */
typedef struct {
    Span name;
    Span value;
    PyObject *text;
    PyObject *pair;
} KnownHeader;

typedef struct {
    ModuleState *state;
    const uint8_t *at;
    const uint8_t *end;
    int64_t base_offset;
    int64_t base_timestamp_ms;
    int64_t append_time_ms;
    int64_t last_offset_delta;
    int has_append_time;
    int known_count;
    PyObject *section; /* of records that are made on demand, else NULL */
    PyObject *last_headers;
    const uint8_t *last_headers_at;
    int64_t last_headers_bytes;
    KnownHeader known[KNOWN_HEADERS];
} Decoder;

static int
is_same(Span one, Span other)
{
    return one.size == other.size && (one.size <= 0 || memcmp(one.bytes, other.bytes, (size_t)one.size) == 0);
}

static void
keep(PyObject **place, PyObject *object)
{
    Py_XDECREF(*place);
    *place = Py_NewRef(object);
}

/* The header of this name, the number-th of its record: headers mostly come in the same order. NULL with an
   exception if the name is not UTF-8. */
static KnownHeader *
known_header(Decoder *decoder, int32_t number, Span name)
{
    int first = number % KNOWN_HEADERS;
    for (int i = 0; i < decoder->known_count; i++) {
        KnownHeader *known = &decoder->known[(first + i) % decoder->known_count];
        if (is_same(known->name, name))
            return known;
    }
    PyObject *text = PyUnicode_DecodeUTF8((const char *)name.bytes, name.size, NULL);
    if (text == NULL)
        return NULL;
    KnownHeader *known =
        &decoder->known[decoder->known_count < KNOWN_HEADERS ? decoder->known_count++ : first];
    Py_CLEAR(known->pair);
    Py_XDECREF(known->text);
    known->text = text;
    known->name = name;
    return known;
}

static PyObject *
header_pair(Decoder *decoder, int32_t number, Span name, Span value)
{
    KnownHeader *known = known_header(decoder, number, name);
    if (known == NULL)
        return NULL;
    if (known->pair != NULL && is_same(known->value, value))
        return Py_NewRef(known->pair);
    PyObject *bytes = span_object(value);
    PyObject *pair = bytes == NULL ? NULL : PyTuple_Pack(2, known->text, bytes);
    Py_XDECREF(bytes);
    if (pair == NULL)
        return NULL;
    keep(&known->pair, pair);
    known->value = value;
    return pair;
}

/* The tuple of a record's headers; that of the record before if the bytes are the same. NULL, perhaps with an
   exception, if they are not right. */
static PyObject *
record_headers(Decoder *decoder, const RawRecord *raw)
{
    if (raw->header_count == 0)
        return Py_NewRef(decoder->state->empty_tuple);
    int64_t bytes = raw->stop - raw->headers;
    if (bytes == decoder->last_headers_bytes && memcmp(raw->headers, decoder->last_headers_at, (size_t)bytes) == 0)
        return Py_NewRef(decoder->last_headers);
    PyObject *headers = PyTuple_New(raw->header_count);
    if (headers == NULL)
        return NULL;
    const uint8_t *at = raw->headers;
    for (int32_t number = 0; number < raw->header_count; number++) {
        Span name, value;
        PyObject *pair = NULL;
        if (read_header(&at, raw->stop, &name, &value) == 0)
            pair = header_pair(decoder, number, name, value);
        if (pair == NULL || PyTuple_SetItem(headers, number, pair) < 0) {
            Py_DECREF(headers);
            return NULL;
        }
    }
    if (at != raw->stop) {
        Py_DECREF(headers);
        return NULL;
    }
    keep(&decoder->last_headers, headers);
    decoder->last_headers_at = raw->headers;
    decoder->last_headers_bytes = bytes;
    return headers;
}

/* Whether the headers of a record can be made later. */
static int
check_names(Decoder *decoder, const RawRecord *raw)
{
    const uint8_t *at = raw->headers;
    for (int32_t number = 0; number < raw->header_count; number++) {
        Span name, value;
        if (read_header(&at, raw->stop, &name, &value) < 0 || known_header(decoder, number, name) == NULL)
            return -1;
    }
    return at == raw->stop ? 0 : -1;
}

static PyObject *
object_of(Decoder *decoder, const RawRecord *raw, int64_t offset, int64_t timestamp_ms)
{
    if (decoder->section != NULL) {
        if (check_names(decoder, raw) < 0)
            return NULL;
        return make_on_demand_record(decoder->state, offset, timestamp_ms, decoder->section, raw->key_at, raw->stop);
    }
    PyObject *key = span_object(raw->key);
    if (key == NULL)
        return NULL;
    PyObject *value = span_object(raw->value);
    if (value == NULL) {
        Py_DECREF(key);
        return NULL;
    }
    PyObject *headers = record_headers(decoder, raw);
    if (headers == NULL) {
        Py_DECREF(key);
        Py_DECREF(value);
        return NULL;
    }
    return make_record(decoder->state, offset, timestamp_ms, key, value, headers);
}

/* Exactly so many records that fill the section; NULL, perhaps with an exception, otherwise. */
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
            record = object_of(decoder, &raw, decoder->base_offset + raw.offset_delta, timestamp_ms);
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

static void
forget_headers(Decoder *decoder)
{
    for (int i = 0; i < decoder->known_count; i++) {
        Py_XDECREF(decoder->known[i].text);
        Py_XDECREF(decoder->known[i].pair);
    }
    Py_XDECREF(decoder->last_headers);
}

/* The decoder reads the section where it lies; made on demand, records need it to be, or be copied to, bytes. */
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

static PyObject *
decode_view(Decoder *decoder, PyObject *buffer, const Py_buffer *view, int64_t position, int64_t end, int64_t count,
            int on_demand)
{
    if (view->ndim != 1 || view->itemsize != 1 || position < 0 || position > end || end > view->len)
        return NULL;
    if (count < 0 || count > (end - position) / MIN_RECORD_BYTES)
        return NULL;
    if (place_section(decoder, buffer, view, (Py_ssize_t)position, (Py_ssize_t)end, on_demand) < 0)
        return NULL;
    PyObject *records = decode_section(decoder, (Py_ssize_t)count);
    forget_headers(decoder);
    Py_XDECREF(decoder->section);
    return records;
}

static PyObject *
decode_records(PyObject *module, PyObject *const *args, Py_ssize_t arg_count)
{
    if (arg_count != 9) {
        PyErr_SetString(PyExc_TypeError, "decode_records takes 9 arguments");
        return NULL;
    }
    Decoder decoder;
    memset(&decoder, 0, sizeof decoder);
    decoder.state = module_state(module);
    decoder.has_append_time = args[6] != Py_None;
    int64_t position, end, count;
    if (read_exact_int(args[1], &position) < 0 || read_exact_int(args[2], &end) < 0 ||
        read_exact_int(args[3], &count) < 0 || read_exact_int(args[4], &decoder.base_offset) < 0 ||
        read_exact_int(args[5], &decoder.base_timestamp_ms) < 0 ||
        (decoder.has_append_time && read_exact_int(args[6], &decoder.append_time_ms) < 0) ||
        read_exact_int(args[7], &decoder.last_offset_delta) < 0)
        return refuse();
    int on_demand = PyObject_IsTrue(args[8]);
    if (on_demand < 0)
        return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_ND) < 0)
        return refuse();
    PyObject *records = decode_view(&decoder, args[0], &view, position, end, count, on_demand);
    PyBuffer_Release(&view);
    return records != NULL ? records : refuse();
}

static PyMethodDef functions[] = {
    {"decode_records", (PyCFunction)(void (*)(void))decode_records, METH_FASTCALL,
     "decode_records(buffer, position, end, count, base_offset, base_timestamp_ms, append_time_ms, last_offset_delta, "
     "on_demand)\n--\n\nThe records of a section, or None."},
    {NULL, NULL, 0, NULL},
};

int
add_rows(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
