/* Columns of keys, values, timestamps and headers to records, and to whole batches. None for anything unusual: the
   plain Python code then encodes it, or raises the error.

   From the first look at a column to the last, no Python code runs and the GIL is kept. So borrowed references
   stay valid, and lists do not change.
*/

#include "compiled.h"
#include "batch.h"

enum {
    FIRST_ROOM_BYTES = 64 * 1024,
    MOST_GROWTH = 15,
    LONG_CRC_BYTES = 128 * 1024, /* some microseconds */
    NO_TIMESTAMP_MS = -1
};

/* Columns of records -------------------------------------------------------------------------------------- */

/* A list or a tuple. */
typedef struct {
    PyObject *items;
    int is_list;
} Column;

typedef struct {
    const uint8_t *bytes;
    Py_ssize_t size; /* -1 is null */
} Payload;

typedef struct {
    PyObject *text; /* of the name */
    Payload name;
    Payload value;
} Header;

typedef struct {
    Column keys, values;
    Column timestamps, headers, offset_deltas; /* these may have no items */
    Py_ssize_t count;

    int64_t base_timestamp_ms;
    int64_t timestamp_ms;     /* of the last record read; of all records if there is only one timestamp */
    PyObject *last_timestamp; /* the object it came from */
    int64_t max_timestamp_ms;
    int64_t least_offset_delta;

    PyObject *last_headers; /* of the last record read; they are collected in header_rows */
    Header *header_rows;
    Py_ssize_t header_room, header_count;
    int64_t headers_size;

    PyObject *encoded;
    uint8_t *start, *at, *end; /* of its bytes */
} Encoder;

static inline int
is_list_or_tuple(PyObject *object)
{
    return Py_TYPE(object) == &PyList_Type || Py_TYPE(object) == &PyTuple_Type;
}

/* A column of so many items, or -1. */
static int
open_column(Column *column, PyObject *object, Py_ssize_t count)
{
    if (!is_list_or_tuple(object) || Py_SIZE(object) != count)
        return -1;
    column->items = object;
    column->is_list = Py_TYPE(object) == &PyList_Type;
    return 0;
}

/* A borrowed reference. */
static inline PyObject *
item_of(const Column *column, Py_ssize_t number)
{
    return column->is_list ? PyList_GetItem(column->items, number) : PyTuple_GetItem(column->items, number);
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
    payload->size = Py_SIZE(object);
    payload->bytes = (const uint8_t *)PyBytes_AsString(object);
    return payload->size > INT32_MAX ? -1 : 0;
}

/* Reads the timestamp of a record: -1 or later. */
static inline int
look_at_timestamp(Encoder *encoder, PyObject *object)
{
    if (object == encoder->last_timestamp)
        return 0;
    if (object == NULL || read_exact_int(object, &encoder->timestamp_ms) < 0 ||
        encoder->timestamp_ms < NO_TIMESTAMP_MS)
        return -1;
    encoder->last_timestamp = object;
    if (encoder->timestamp_ms > encoder->max_timestamp_ms)
        encoder->max_timestamp_ms = encoder->timestamp_ms;
    return 0;
}

/* The offset delta of a record; -1 if it does not rise. */
static inline int64_t
offset_delta_of(Encoder *encoder, Py_ssize_t number)
{
    if (encoder->offset_deltas.items == NULL)
        return number;
    PyObject *object = item_of(&encoder->offset_deltas, number);
    int64_t delta;
    if (object == NULL || read_exact_int(object, &delta) < 0 || delta < encoder->least_offset_delta ||
        delta > INT32_MAX)
        return -1;
    encoder->least_offset_delta = delta + 1;
    return delta;
}

/* Headers ------------------------------------------------------------------------------------------------- */

static int
take_header_room(Encoder *encoder, Py_ssize_t count)
{
    if (count <= encoder->header_room)
        return 0;
    Header *rows = PyMem_Realloc(encoder->header_rows, (size_t)count * sizeof(Header));
    if (rows == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    memset(rows + encoder->header_room, 0, (size_t)(count - encoder->header_room) * sizeof(Header));
    encoder->header_rows = rows;
    encoder->header_room = count;
    return 0;
}

/* Reads a header into the place of the record before's: its name is usually the same object. */
static int
look_at_header(PyObject *object, Header *header)
{
    Column pair;
    if (object == NULL || open_column(&pair, object, 2) < 0)
        return -1;
    PyObject *text = item_of(&pair, 0);
    if (text != header->text) {
        if (text == NULL || Py_TYPE(text) != &PyUnicode_Type)
            return -1;
        header->name.bytes = (const uint8_t *)PyUnicode_AsUTF8AndSize(text, &header->name.size);
        if (header->name.bytes == NULL || header->name.size > INT32_MAX)
            return -1;
        header->text = text;
    }
    return read_payload(item_of(&pair, 1), &header->value);
}

/* Reads a record's headers, and computes the size of them and their count. */
static int
look_at_headers(Encoder *encoder, PyObject *object)
{
    if (object == encoder->last_headers)
        return 0;
    encoder->last_headers = NULL;
    encoder->header_count = 0;
    encoder->headers_size = 1;
    if (object == Py_None)
        return 0;
    if (object == NULL || !is_list_or_tuple(object))
        return -1;
    Py_ssize_t count = Py_SIZE(object);
    if (count == 0)
        return 0;
    Column headers;
    if (count > INT32_MAX || open_column(&headers, object, count) < 0 || take_header_room(encoder, count) < 0)
        return -1;
    encoder->headers_size = varint_size(count);
    for (Py_ssize_t i = 0; i < count; i++) {
        Header *header = &encoder->header_rows[i];
        if (look_at_header(item_of(&headers, i), header) < 0)
            return -1;
        encoder->headers_size += span_size(header->name.size) + span_size(header->value.size);
    }
    encoder->header_count = count;
    encoder->last_headers = object;
    return 0;
}

static uint8_t *
write_headers(const Encoder *encoder, uint8_t *at)
{
    at = write_varint(at, encoder->header_count);
    for (Py_ssize_t i = 0; i < encoder->header_count; i++) {
        const Header *header = &encoder->header_rows[i];
        at = write_span(at, header->name.bytes, header->name.size);
        at = write_span(at, header->value.bytes, header->value.size);
    }
    return at;
}

/* Records ------------------------------------------------------------------------------------------------- */

static int
resize(Encoder *encoder, int64_t room)
{
    Py_ssize_t used = encoder->at - encoder->start;
    if (PyByteArray_Resize(encoder->encoded, (Py_ssize_t)room) < 0)
        return -1;
    encoder->start = (uint8_t *)PyByteArray_AsString(encoder->encoded);
    encoder->at = encoder->start + used;
    encoder->end = encoder->start + room;
    return 0;
}

/* Makes room for the size bytes of record number, and for later records if they are like the earlier ones; but
   never more than a multiple of the present size, because they may not be. */
static int
take_room(Encoder *encoder, Py_ssize_t number, int64_t size)
{
    int64_t used = encoder->at - encoder->start;
    if (used + size > INT32_MAX)
        return -1;
    int64_t most = FIRST_ROOM_BYTES > MOST_GROWTH * used ? FIRST_ROOM_BYTES : MOST_GROWTH * used;
    int64_t each = (number == 0 ? size : used / number) + 4;
    int64_t left = encoder->count - number - 1;
    int64_t guess = left > most / each ? most : left * each;
    return resize(encoder, used + size + guess);
}

static int
encode_row(Encoder *encoder, Py_ssize_t number)
{
    Payload key, value;
    if (read_payload(item_of(&encoder->keys, number), &key) < 0 ||
        read_payload(item_of(&encoder->values, number), &value) < 0)
        return -1;
    if (encoder->timestamps.items != NULL && look_at_timestamp(encoder, item_of(&encoder->timestamps, number)) < 0)
        return -1;
    if (encoder->headers.items != NULL && look_at_headers(encoder, item_of(&encoder->headers, number)) < 0)
        return -1;
    int64_t offset_delta = offset_delta_of(encoder, number);
    if (offset_delta < 0)
        return -1;
    int64_t timestamp_delta = subtract_wrapping(encoder->timestamp_ms, encoder->base_timestamp_ms);
    int64_t size = 1 + varint_size(timestamp_delta) + varint_size(offset_delta) + span_size(key.size) +
                   span_size(value.size) + encoder->headers_size;
    if (varint_size(size) + size > encoder->end - encoder->at &&
        take_room(encoder, number, varint_size(size) + size) < 0)
        return -1;
    uint8_t *at = write_varint(encoder->at, size);
    *at++ = 0; /* attributes */
    at = write_varint(at, timestamp_delta);
    at = write_varint(at, offset_delta);
    at = write_span(at, key.bytes, key.size);
    at = write_span(at, value.bytes, value.size);
    if (encoder->header_count == 0)
        *at++ = 0;
    else
        at = write_headers(encoder, at);
    encoder->at = at;
    return 0;
}

/* The records after so many zero bytes. */
static int
encode_rows(Encoder *encoder, Py_ssize_t reserve_bytes)
{
    encoder->encoded = PyByteArray_FromStringAndSize(NULL, 0);
    if (encoder->encoded == NULL || resize(encoder, reserve_bytes) < 0)
        return -1;
    memset(encoder->start, 0, (size_t)reserve_bytes);
    encoder->at += reserve_bytes;
    encoder->headers_size = 1;
    for (Py_ssize_t number = 0; number < encoder->count; number++)
        if (encode_row(encoder, number) < 0)
            return -1;
    return resize(encoder, encoder->at - encoder->start);
}

static int
open_columns(Encoder *encoder, PyObject *keys, PyObject *values, PyObject *timestamps, PyObject *headers)
{
    memset(encoder, 0, sizeof *encoder);
    encoder->max_timestamp_ms = NO_TIMESTAMP_MS;
    if (!is_list_or_tuple(values))
        return -1;
    encoder->count = Py_SIZE(values);
    if (encoder->count > INT32_MAX || open_column(&encoder->values, values, encoder->count) < 0 ||
        open_column(&encoder->keys, keys, encoder->count) < 0)
        return -1;
    if (headers != Py_None && open_column(&encoder->headers, headers, encoder->count) < 0)
        return -1;
    if (Py_TYPE(timestamps) == &PyLong_Type)
        return look_at_timestamp(encoder, timestamps);
    return open_column(&encoder->timestamps, timestamps, encoder->count);
}

/* The encoded bytes, or the answer for something unusual. */
static PyObject *
close_columns(Encoder *encoder, int failed)
{
    PyMem_Free(encoder->header_rows);
    if (!failed)
        return encoder->encoded;
    Py_XDECREF(encoder->encoded);
    return refuse();
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
    int64_t reserve_bytes;
    int failed =
        open_columns(&encoder, args[0], args[1], args[2], args[3]) < 0 ||
        read_exact_int(args[4], &encoder.base_timestamp_ms) < 0 ||
        (args[5] != Py_None && open_column(&encoder.offset_deltas, args[5], encoder.count) < 0) ||
        read_exact_int(args[6], &reserve_bytes) < 0 || reserve_bytes < 0 || reserve_bytes > INT32_MAX ||
        encode_rows(&encoder, (Py_ssize_t)reserve_bytes) < 0;
    return close_columns(&encoder, failed);
}

/* Batches ------------------------------------------------------------------------------------------------- */

/* The fields of a batch header that do not follow from the records. */
typedef struct {
    int64_t base_offset, leader_epoch, attributes, append_time_ms, producer_id, producer_epoch, base_sequence;
    int has_append_time;
} Fields;

static int
fits(int64_t number, int bytes)
{
    int64_t limit = (int64_t)1 << (8 * bytes - 1);
    return -limit <= number && number < limit;
}

static int
read_fields(Fields *fields, PyObject *const *args)
{
    fields->has_append_time = args[3] != Py_None;
    if (read_exact_int(args[0], &fields->base_offset) < 0 || read_exact_int(args[1], &fields->leader_epoch) < 0 ||
        read_exact_int(args[2], &fields->attributes) < 0 ||
        (fields->has_append_time && read_exact_int(args[3], &fields->append_time_ms) < 0) ||
        read_exact_int(args[4], &fields->producer_id) < 0 || read_exact_int(args[5], &fields->producer_epoch) < 0 ||
        read_exact_int(args[6], &fields->base_sequence) < 0)
        return -1;
    return fits(fields->leader_epoch, 4) && fits(fields->attributes, 2) && fits(fields->producer_epoch, 2) &&
                   fits(fields->base_sequence, 4)
               ? 0
               : -1;
}

/* The first timestamp, unchecked: it is checked with the others. */
static int
find_base_timestamp(Encoder *encoder)
{
    encoder->base_timestamp_ms = encoder->timestamp_ms;
    if (encoder->timestamps.items == NULL)
        return 0;
    PyObject *first = item_of(&encoder->timestamps, 0);
    return first == NULL ? -1 : read_exact_int(first, &encoder->base_timestamp_ms);
}

static void
write_header(uint8_t *at, int64_t size, const Encoder *encoder, const Fields *fields)
{
    HeaderFields header = {
        .base_offset = fields->base_offset,
        .leader_epoch = (int32_t)fields->leader_epoch,
        .base_timestamp_ms = encoder->base_timestamp_ms,
        .max_timestamp_ms = fields->has_append_time ? fields->append_time_ms : encoder->max_timestamp_ms,
        .producer_id = fields->producer_id,
        .producer_epoch = (int16_t)fields->producer_epoch,
        .base_sequence = (int32_t)fields->base_sequence,
        .record_count = (int32_t)encoder->count,
        .attributes = (int16_t)fields->attributes,
    };
    write_batch_header(at, size, &header);
}

/* The checksum of a long batch, without the GIL: no other thread knows the batch yet. */
static void
seal(uint8_t *at, int64_t size)
{
    if (size < LONG_CRC_BYTES) {
        seal_batch(at, size);
        return;
    }
    Py_BEGIN_ALLOW_THREADS
    seal_batch(at, size);
    Py_END_ALLOW_THREADS
}

static PyObject *
encode_batch(PyObject *module, PyObject *const *args, Py_ssize_t arg_count)
{
    (void)module;
    if (arg_count != 11) {
        PyErr_SetString(PyExc_TypeError, "encode_batch takes 11 arguments");
        return NULL;
    }
    Encoder encoder;
    Fields fields = {0};
    int failed = open_columns(&encoder, args[0], args[1], args[2], args[3]) < 0 || encoder.count == 0 ||
                 read_fields(&fields, args + 4) < 0 || find_base_timestamp(&encoder) < 0 ||
                 encode_rows(&encoder, HEADER_BYTES) < 0;
    if (!failed) {
        write_header(encoder.start, encoder.at - encoder.start, &encoder, &fields);
        seal(encoder.start, encoder.at - encoder.start);
    }
    return close_columns(&encoder, failed);
}

static PyMethodDef functions[] = {
    {"encode_records", (PyCFunction)(void (*)(void))encode_records, METH_FASTCALL,
     "encode_records(keys, values, timestamps, headers, base_timestamp_ms, offset_deltas, reserve_bytes)\n--\n\n"
     "The section of the records behind so many zero bytes, or None."},
    {"encode_batch", (PyCFunction)(void (*)(void))encode_batch, METH_FASTCALL,
     "encode_batch(keys, values, timestamps, headers, base_offset, partition_leader_epoch, attributes, append_time_ms, "
     "producer_id, producer_epoch, base_sequence)\n--\n\nThe uncompressed batch of the records, or None."},
    {NULL, NULL, 0, NULL},
};

int
add_encode(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
