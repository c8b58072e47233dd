/* Records to bytes and bytes to records, a batch's section at a time.

   Both stop with None at whatever is out of the ordinary: the plain Python code then decodes or encodes, or makes
   the error.
*/

#include "reader.h"
#include "record.h"
#include "writer.h"

#include <stddef.h>

static PyObject *
not_ordinary(void)
{
    PyErr_Clear();
    Py_RETURN_NONE;
}

/* None, or NULL where memory is short. */
static PyObject *
refuse(void)
{
    if (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_MemoryError))
        return NULL;
    return not_ordinary();
}

static int
read_int64_argument(PyObject *object, int64_t *number)
{
    int overflow;
    *number = PyLong_AsLongLongAndOverflow(object, &overflow);
    return overflow || (*number == -1 && PyErr_Occurred()) ? -1 : 0;
}

/* Decoding ------------------------------------------------------------------------------------------------ */

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
    if (read_int64_argument(args[1], &position) < 0 || read_int64_argument(args[2], &end) < 0 ||
        read_int64_argument(args[3], &count) < 0 || read_int64_argument(args[4], &decoder.base_offset) < 0 ||
        read_int64_argument(args[5], &decoder.base_timestamp_ms) < 0 ||
        (decoder.has_append_time && read_int64_argument(args[6], &decoder.append_time_ms) < 0) ||
        read_int64_argument(args[7], &decoder.last_offset_delta) < 0)
        return not_ordinary();
    int on_demand = PyObject_IsTrue(args[8]);
    if (on_demand < 0)
        return NULL;
    Py_buffer view;
    if (PyObject_GetBuffer(args[0], &view, PyBUF_ND) < 0)
        return not_ordinary();
    PyObject *records = decode_view(&decoder, args[0], &view, position, end, count, on_demand);
    PyBuffer_Release(&view);
    return records != NULL ? records : refuse();
}

/* Encoding ------------------------------------------------------------------------------------------------ */

enum { ROWS_AT_ONCE = 256 };

/* A list or tuple, looked at item by item. No Python code runs and the GIL is kept between the first look and the
   last, so borrowed references stay good. */
typedef struct {
    PyObject *items;
    int is_list;
} Column;

typedef struct {
    const char *bytes;
    Py_ssize_t size; /* -1 is null */
} Payload;

typedef struct {
    Payload name;
    Payload value;
} HeaderRow;

typedef struct {
    Payload key;
    Payload value;
    int64_t timestamp_delta;
    int64_t body_size;
    int32_t offset_delta;
    Py_ssize_t first_header;
    Py_ssize_t header_count;
} Row;

typedef struct {
    Column keys, values, timestamps, headers, offset_deltas; /* the last three may have no items */
    int64_t timestamp_ms;                                    /* of all records, without timestamps */
    int64_t base_timestamp_ms;
    int64_t least_offset_delta;
    Py_ssize_t count;
    PyObject *encoded;
    Py_ssize_t used;
    HeaderRow *header_rows;
    Py_ssize_t header_rows_used, header_rows_room;
    PyObject *last_headers;
    Row last_headers_row;
    int64_t last_headers_size;
    Row rows[ROWS_AT_ONCE];
} Encoder;

static inline int
is_list_or_tuple(PyObject *object)
{
    return Py_TYPE(object) == &PyList_Type || Py_TYPE(object) == &PyTuple_Type;
}

/* Exactly count items, or -1. */
static int
open_column(Column *column, PyObject *object, Py_ssize_t count)
{
    if (!is_list_or_tuple(object) || Py_SIZE(object) != count)
        return -1;
    column->items = object;
    column->is_list = Py_TYPE(object) == &PyList_Type;
    return 0;
}

static inline PyObject *
borrow_item(PyObject *items, int is_list, Py_ssize_t number)
{
    return is_list ? PyList_GetItem(items, number) : PyTuple_GetItem(items, number);
}

static inline int
read_payload(PyObject *object, Payload *payload)
{
    if (object == Py_None) {
        payload->bytes = NULL;
        payload->size = -1;
        return 0;
    }
    if (object == NULL || Py_TYPE(object) != &PyBytes_Type)
        return -1;
    return PyBytes_AsStringAndSize(object, (char **)&payload->bytes, &payload->size);
}

static inline int
read_text(PyObject *object, Payload *payload)
{
    if (object == NULL || Py_TYPE(object) != &PyUnicode_Type)
        return -1;
    payload->bytes = PyUnicode_AsUTF8AndSize(object, &payload->size);
    return payload->bytes == NULL ? -1 : 0;
}

/* A timestamp as records may have it: -1 or later. */
static inline int
read_timestamp(PyObject *object, int64_t *timestamp_ms)
{
    if (object == NULL || Py_TYPE(object) != &PyLong_Type)
        return -1;
    *timestamp_ms = PyLong_AsLongLong(object);
    if (*timestamp_ms >= 0)
        return 0;
    return *timestamp_ms == -1 && !PyErr_Occurred() ? 0 : -1;
}

static int
take_header_room(Encoder *encoder, Py_ssize_t count)
{
    Py_ssize_t needed = encoder->header_rows_used + count;
    if (needed <= encoder->header_rows_room)
        return 0;
    Py_ssize_t room = needed + needed / 2 + ROWS_AT_ONCE;
    HeaderRow *rows = PyMem_Realloc(encoder->header_rows, (size_t)room * sizeof(HeaderRow));
    if (rows == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    encoder->header_rows = rows;
    encoder->header_rows_room = room;
    return 0;
}

static int
read_header_row(PyObject *pair, HeaderRow *header)
{
    if (pair == NULL || !is_list_or_tuple(pair) || Py_SIZE(pair) != 2)
        return -1;
    int is_list = Py_TYPE(pair) == &PyList_Type;
    if (read_text(borrow_item(pair, is_list, 0), &header->name) < 0)
        return -1;
    return read_payload(borrow_item(pair, is_list, 1), &header->value);
}

/* Collects a record's headers, and adds the size of them and their count. */
static int
collect_headers(Encoder *encoder, PyObject *headers, Row *row)
{
    row->header_count = 0;
    if (headers == Py_None) {
        row->body_size += 1;
        return 0;
    }
    if (headers == NULL || !is_list_or_tuple(headers))
        return -1;
    Py_ssize_t count = Py_SIZE(headers);
    if (count == 0) {
        row->body_size += 1;
        return 0;
    }
    row->header_count = count;
    if (headers == encoder->last_headers) {
        row->first_header = encoder->last_headers_row.first_header;
        row->body_size += encoder->last_headers_size;
        return 0;
    }
    if (count > INT32_MAX || take_header_room(encoder, count) < 0)
        return -1;
    row->first_header = encoder->header_rows_used;
    int is_list = Py_TYPE(headers) == &PyList_Type;
    int64_t size = varint_size(count);
    HeaderRow *header = encoder->header_rows + encoder->header_rows_used;
    for (Py_ssize_t number = 0; number < count; number++, header++) {
        if (read_header_row(borrow_item(headers, is_list, number), header) < 0)
            return -1;
        size += span_size(header->name.size) + span_size(header->value.size);
    }
    encoder->header_rows_used += count;
    encoder->last_headers = headers;
    encoder->last_headers_row = *row;
    encoder->last_headers_size = size;
    row->body_size += size;
    return 0;
}

static int
read_offset_delta(Encoder *encoder, Py_ssize_t number, int32_t *delta)
{
    if (encoder->offset_deltas.items == NULL) {
        if (number > INT32_MAX)
            return -1;
        *delta = (int32_t)number;
        return 0;
    }
    PyObject *object = borrow_item(encoder->offset_deltas.items, encoder->offset_deltas.is_list, number);
    int64_t wide;
    if (object == NULL || Py_TYPE(object) != &PyLong_Type || read_int64_argument(object, &wide) < 0 ||
        wide < encoder->least_offset_delta || wide > INT32_MAX)
        return -1;
    encoder->least_offset_delta = wide + 1;
    *delta = (int32_t)wide;
    return 0;
}

static int
collect_row(Encoder *encoder, Py_ssize_t number, Row *row)
{
    int64_t timestamp_ms = encoder->timestamp_ms;
    if (read_payload(borrow_item(encoder->keys.items, encoder->keys.is_list, number), &row->key) < 0 ||
        read_payload(borrow_item(encoder->values.items, encoder->values.is_list, number), &row->value) < 0 ||
        read_offset_delta(encoder, number, &row->offset_delta) < 0)
        return -1;
    if (encoder->timestamps.items != NULL &&
        read_timestamp(borrow_item(encoder->timestamps.items, encoder->timestamps.is_list, number), &timestamp_ms) < 0)
        return -1;
    row->timestamp_delta = subtract_wrapping(timestamp_ms, encoder->base_timestamp_ms);
    row->body_size = 1 + varint_size(row->timestamp_delta) + varint_size(row->offset_delta) +
                     span_size(row->key.size) + span_size(row->value.size);
    if (encoder->headers.items == NULL) {
        row->header_count = 0;
        row->body_size += 1;
    } else if (collect_headers(encoder, borrow_item(encoder->headers.items, encoder->headers.is_list, number), row) < 0)
        return -1;
    return row->body_size <= INT32_MAX ? 0 : -1;
}

static uint8_t *
write_row(const Encoder *encoder, const Row *row, uint8_t *at)
{
    at = write_varint(at, row->body_size);
    *at++ = 0; /* attributes */
    at = write_varint(at, row->timestamp_delta);
    at = write_varint(at, row->offset_delta);
    at = write_span(at, row->key.bytes, row->key.size);
    at = write_span(at, row->value.bytes, row->value.size);
    at = write_varint(at, row->header_count);
    const HeaderRow *header = encoder->header_rows + row->first_header;
    for (Py_ssize_t i = 0; i < row->header_count; i++, header++) {
        at = write_span(at, header->name.bytes, header->name.size);
        at = write_span(at, header->value.bytes, header->value.size);
    }
    return at;
}

/* Room for size more bytes; after the first rows also for as many as the rest will need, going by these. */
static int
take_room(Encoder *encoder, Py_ssize_t size, Py_ssize_t rows, Py_ssize_t rows_left)
{
    Py_ssize_t needed = encoder->used + size;
    if (encoder->encoded == NULL) {
        Py_ssize_t room = needed;
        if (rows_left > 0)
            room += (Py_ssize_t)((double)size / (double)rows * 1.03 * (double)rows_left);
        encoder->encoded = PyByteArray_FromStringAndSize(NULL, room);
        return encoder->encoded == NULL ? -1 : 0;
    }
    if (needed <= Py_SIZE(encoder->encoded))
        return 0;
    Py_ssize_t room = needed + (rows_left > 0 ? needed / 4 : 0);
    return PyByteArray_Resize(encoder->encoded, room);
}

/* Records number first to first + count - 1: looked at, then written. -1, perhaps with an exception, at what is
   out of the ordinary. */
static int
encode_rows(Encoder *encoder, Py_ssize_t first, Py_ssize_t count)
{
    int64_t size = 0;
    encoder->header_rows_used = 0;
    encoder->last_headers = NULL;
    for (Py_ssize_t i = 0; i < count; i++) {
        Row *row = &encoder->rows[i];
        row->first_header = 0;
        if (collect_row(encoder, first + i, row) < 0)
            return -1;
        size += varint_size(row->body_size) + row->body_size;
    }
    if (take_room(encoder, (Py_ssize_t)size, count, encoder->count - first - count) < 0)
        return -1;
    uint8_t *at = (uint8_t *)PyByteArray_AsString(encoder->encoded) + encoder->used;
    for (Py_ssize_t i = 0; i < count; i++)
        at = write_row(encoder, &encoder->rows[i], at);
    encoder->used += (Py_ssize_t)size;
    return 0;
}

static int
encode_all(Encoder *encoder)
{
    Py_ssize_t reserve_bytes = encoder->used;
    for (Py_ssize_t first = 0; first < encoder->count; first += ROWS_AT_ONCE) {
        Py_ssize_t left = encoder->count - first;
        if (encode_rows(encoder, first, left < ROWS_AT_ONCE ? left : ROWS_AT_ONCE) < 0)
            return -1;
    }
    if (encoder->encoded == NULL && take_room(encoder, 0, 0, 0) < 0)
        return -1;
    if (PyByteArray_Resize(encoder->encoded, encoder->used) < 0)
        return -1;
    memset(PyByteArray_AsString(encoder->encoded), 0, (size_t)reserve_bytes);
    return 0;
}

/* The columns of the arguments of encode_records; -1, perhaps with an exception, if one is out of the ordinary. */
static int
open_columns(Encoder *encoder, PyObject *const *args)
{
    if (!is_list_or_tuple(args[1]))
        return -1;
    encoder->count = Py_SIZE(args[1]);
    if (open_column(&encoder->keys, args[0], encoder->count) < 0 ||
        open_column(&encoder->values, args[1], encoder->count) < 0)
        return -1;
    if (Py_TYPE(args[2]) == &PyLong_Type ? read_timestamp(args[2], &encoder->timestamp_ms) < 0
                                         : open_column(&encoder->timestamps, args[2], encoder->count) < 0)
        return -1;
    if (args[3] != Py_None && open_column(&encoder->headers, args[3], encoder->count) < 0)
        return -1;
    if (Py_TYPE(args[4]) != &PyLong_Type || read_int64_argument(args[4], &encoder->base_timestamp_ms) < 0)
        return -1;
    if (args[5] != Py_None && open_column(&encoder->offset_deltas, args[5], encoder->count) < 0)
        return -1;
    int64_t reserve_bytes;
    if (Py_TYPE(args[6]) != &PyLong_Type || read_int64_argument(args[6], &reserve_bytes) < 0 || reserve_bytes < 0 ||
        reserve_bytes > INT32_MAX)
        return -1;
    encoder->used = (Py_ssize_t)reserve_bytes;
    return 0;
}

static PyObject *
encode_records(PyObject *module, PyObject *const *args, Py_ssize_t arg_count)
{
    (void)module;
    if (arg_count != 7) {
        PyErr_SetString(PyExc_TypeError, "encode_records takes 7 arguments");
        return NULL;
    }
    Encoder encoder;
    memset(&encoder, 0, offsetof(Encoder, rows));
    int failed = open_columns(&encoder, args) < 0 || encode_all(&encoder) < 0;
    PyMem_Free(encoder.header_rows);
    if (!failed)
        return encoder.encoded;
    Py_XDECREF(encoder.encoded);
    return refuse();
}

static PyMethodDef functions[] = {
    {"decode_records", (PyCFunction)(void (*)(void))decode_records, METH_FASTCALL,
     "decode_records(buffer, position, end, count, base_offset, base_timestamp_ms, append_time_ms, last_offset_delta, "
     "on_demand)\n--\n\nThe records of a section, or None."},
    {"encode_records", (PyCFunction)(void (*)(void))encode_records, METH_FASTCALL,
     "encode_records(keys, values, timestamps, headers, base_timestamp_ms, offset_deltas, reserve_bytes)\n--\n\n"
     "The section of the records behind so many zero bytes, or None."},
    {NULL, NULL, 0, NULL},
};

int
add_rows(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
