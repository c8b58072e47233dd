/* Columns to batches: rows of Apache Arrow's buffers become sealed batches, as encode_rows makes them from objects.

   The rows come in Arrow's chunks; a batch may take rows of several. First all rows are cut into batches by their
   most bytes, then written into one block of memory, both without the GIL. The buffers belong to the caller: every
   end of a payload is checked against the size of its data. If a buffer changes meanwhile, the batch is refused; it
   is never written outside of its memory.

   The most bytes of a record, and so the end of a batch, are computed as in gathered.py: all ways of encoding
   must cut the same rows into the same batches.
*/

#include "batch.h"
#include "bounds.h"
#include "column_set.h"
#include "columns.h"

enum {
    MAX_RECORD_OVERHEAD_BYTES = 36,
    MAX_HEADER_OVERHEAD_BYTES = 10,
    MAX_UTF8_BYTES = 4, /* per character */
    VIEW_COUNT = 16,
    CHUNK_COPY_BYTES = 32,
    MOST_CHUNKED_BYTES = 256
};

enum { UNUSUAL = 1, NO_MEMORY = -1 };

/* The plain code takes larger payloads: below this no sum of sizes overflows. */
#define MAX_PAYLOAD_BYTES ((int64_t)1 << 30)

/* A column of payloads. Row i lies between two ends, and is null if its bit is 0. */
typedef struct {
    const uint8_t *validity; /* NULL if no row is null */
    const uint8_t *ends;
    const uint8_t *data;
    int64_t data_size;
    int64_t offset; /* of the first row in all three */
    int64_t row_count;
    int is_large; /* ends have 64 bits */
} PayloadColumn;

typedef struct {
    int64_t row_count;
    PayloadColumn key; /* without ends if there is no such column */
    PayloadColumn value;
    PayloadColumn header_key;
    PayloadColumn header_value;
    PayloadColumn headers;     /* whose ends count headers; without data */
    const uint8_t *timestamps; /* int64, or NULL: now */
    Py_buffer views[VIEW_COUNT];
    int view_count;
} Chunk;

typedef struct {
    Chunk *chunks;
    Py_ssize_t chunk_count;
    Bounds bounds;
    int64_t limit_bytes;
    int appends_time;
    int16_t attributes;
} Input;

/* Where the next row lies. */
typedef struct {
    Py_ssize_t chunk;
    int64_t row;
} Cursor;

/* One batch: its rows, and its place in the memory of the call. */
typedef struct {
    Cursor start;
    int64_t count;
    int64_t position;
    int64_t room; /* the most bytes that it takes */
    int64_t size; /* its size, once it is written */
} Plan;

/* Rows ------------------------------------------------------------------------------------------------------- */

static inline int64_t
end_at(const PayloadColumn *column, int64_t row)
{
    if (column->is_large) {
        int64_t end;
        memcpy(&end, column->ends + (column->offset + row) * 8, 8);
        return end;
    }
    int32_t end;
    memcpy(&end, column->ends + (column->offset + row) * 4, 4);
    return end;
}

static inline int
is_null(const PayloadColumn *column, int64_t row)
{
    if (column->validity == NULL)
        return 0;
    int64_t bit = column->offset + row;
    return !(column->validity[bit / 8] >> (bit % 8) & 1);
}

/* The payload of a row; -1 if its ends are not possible. */
static inline int
payload_at(const PayloadColumn *column, int64_t row, Span *payload)
{
    payload->bytes = NULL;
    payload->size = -1;
    if (column->ends == NULL || is_null(column, row))
        return 0;
    int64_t start = end_at(column, row), end = end_at(column, row + 1);
    if (start < 0 || end < start || end > column->data_size || end - start > MAX_PAYLOAD_BYTES)
        return -1;
    payload->bytes = column->data + start;
    payload->size = (int32_t)(end - start);
    return 0;
}

/* The timestamp for a row's record; -1 if the row's own is out of bounds. */
static inline int
timestamp_at(const Input *input, const Chunk *chunk, int64_t row, int64_t *timestamp_ms)
{
    *timestamp_ms = input->bounds.now_ms;
    if (chunk->timestamps == NULL)
        return 0;
    int64_t given_ms;
    memcpy(&given_ms, chunk->timestamps + row * 8, 8);
    if (!is_within(&input->bounds, given_ms))
        return -1;
    if (!input->appends_time)
        *timestamp_ms = given_ms;
    return 0;
}

/* Which headers a row has: [first, stop) of the columns of headers. */
static inline int
headers_at(const Chunk *chunk, int64_t row, int64_t *first, int64_t *stop)
{
    const PayloadColumn *headers = &chunk->headers;
    *first = *stop = 0;
    if (headers->ends == NULL || is_null(headers, row))
        return 0;
    *first = end_at(headers, row);
    *stop = end_at(headers, row + 1);
    return *first < 0 || *stop < *first || *stop > chunk->header_key.row_count || *stop - *first > INT32_MAX ? -1 : 0;
}

static inline int
header_at(const Chunk *chunk, int64_t number, Span *key, Span *value)
{
    return payload_at(&chunk->header_key, number, key) < 0 || key->size < 0 ||
                   payload_at(&chunk->header_value, number, value) < 0
               ? -1
               : 0;
}

/* Characters of UTF-8 text. */
static int64_t
character_count(const Span *text)
{
    int64_t count = 0;
    for (int32_t i = 0; i < text->size; i++)
        count += (text->bytes[i] & 0xC0) != 0x80;
    return count;
}

/* Cutting rows into batches ---------------------------------------------------------------------------------- */

/* The most bytes that the headers of a row take; -1 if they are unusual. */
static int64_t
most_bytes_of_headers(const Chunk *chunk, int64_t row)
{
    int64_t first, stop, most_bytes = 0;
    if (headers_at(chunk, row, &first, &stop) < 0)
        return -1;
    for (int64_t i = first; i < stop; i++) {
        Span key, value;
        if (header_at(chunk, i, &key, &value) < 0 || check_utf8(key.bytes, key.bytes + key.size) < 0)
            return -1;
        most_bytes += MAX_UTF8_BYTES * character_count(&key) + (value.size > 0 ? value.size : 0) +
                      MAX_HEADER_OVERHEAD_BYTES;
        if (most_bytes > MAX_PAYLOAD_BYTES)
            return -1;
    }
    return most_bytes;
}

/* The most bytes that a row takes; -1 if it is unusual. */
static inline int64_t
most_bytes_of(const Chunk *chunk, int64_t row)
{
    Span key, value;
    if (payload_at(&chunk->key, row, &key) < 0 || payload_at(&chunk->value, row, &value) < 0)
        return -1;
    int64_t most_bytes = MAX_RECORD_OVERHEAD_BYTES;
    most_bytes += key.size > 0 ? key.size : 0;
    most_bytes += value.size > 0 ? value.size : 0;
    if (chunk->headers.ends != NULL) {
        int64_t headers_bytes = most_bytes_of_headers(chunk, row);
        if (headers_bytes < 0)
            return -1;
        most_bytes += headers_bytes;
    }
    return most_bytes > MAX_PAYLOAD_BYTES ? -1 : most_bytes;
}

/* The rows of the next batch, from the cursor on, which moves past them; -1 if one is unusual. */
static int
plan_batch(const Input *input, Cursor *cursor, Plan *plan)
{
    int64_t all_most_bytes = 0;
    plan->start = *cursor;
    for (plan->count = 0; cursor->chunk < input->chunk_count; cursor->chunk++, cursor->row = 0) {
        const Chunk *chunk = &input->chunks[cursor->chunk];
        for (; cursor->row < chunk->row_count; cursor->row++, plan->count++) {
            int64_t most_bytes = most_bytes_of(chunk, cursor->row);
            if (most_bytes < 0 || plan->count > INT32_MAX)
                return -1;
            if (plan->count > 0 && all_most_bytes + most_bytes > input->limit_bytes)
                goto done;
            all_most_bytes += most_bytes;
        }
    }
done:
    plan->room = HEADER_BYTES + all_most_bytes;
    return plan->room > INT32_MAX ? -1 : 0;
}

/* Writing ---------------------------------------------------------------------------------------------------- */

/* varint_size and write_varint for numbers that usually take one or two bytes. */
static inline int
short_size(int64_t number)
{
    uint64_t raw = zigzag(number);
    return raw < 0x80 ? 1 : raw < 0x4000 ? 2 : varint_size(number);
}

static inline uint8_t *
write_short(uint8_t *at, int64_t number)
{
    uint64_t raw = zigzag(number);
    if (raw < 0x80) {
        *at = (uint8_t)raw;
        return at + 1;
    }
    if (raw < 0x4000) {
        at[0] = (uint8_t)(raw | 0x80);
        at[1] = (uint8_t)(raw >> 7);
        return at + 2;
    }
    return write_varint(at, number);
}

/* Writes a size and a payload into existing room. Small payloads are copied in chunks. The last chunk may reach
   past the payload on both sides: a call of memcpy costs twice as much. */
static inline uint8_t *
write_payload(uint8_t *at, const uint8_t *end, const PayloadColumn *column, const Span *payload)
{
    at = write_short(at, payload->size);
    if (payload->size <= 0)
        return at;
    int64_t slack = column->data + column->data_size - payload->bytes - payload->size;
    if (payload->size <= MOST_CHUNKED_BYTES && slack >= CHUNK_COPY_BYTES &&
        end - at >= payload->size + CHUNK_COPY_BYTES)
        for (int32_t done = 0; done < payload->size; done += CHUNK_COPY_BYTES)
            memcpy(at + done, payload->bytes + done, CHUNK_COPY_BYTES);
    else
        memcpy(at, payload->bytes, (size_t)payload->size);
    return at + payload->size;
}

/* The size of headers, without their count; -1 if they are not the planned ones. */
static int64_t
headers_size(const Chunk *chunk, int64_t first, int64_t stop)
{
    int64_t size = 0;
    for (int64_t i = first; i < stop; i++) {
        Span key, value;
        if (header_at(chunk, i, &key, &value) < 0)
            return -1;
        size += span_size(key.size) + span_size(value.size);
    }
    return size;
}

/* NULL if the headers have changed since headers_size. */
static uint8_t *
write_headers(uint8_t *at, const uint8_t *end, const Chunk *chunk, int64_t first, int64_t stop)
{
    for (int64_t i = first; i < stop; i++) {
        Span key, value;
        if (header_at(chunk, i, &key, &value) < 0 || end - at < span_size(key.size) + span_size(value.size))
            return NULL;
        at = write_payload(at, end, &chunk->header_key, &key);
        at = write_payload(at, end, &chunk->header_value, &value);
    }
    return at;
}

/* Writes a row as the record of a given number; NULL if there is no room, which means that the row has changed. */
static inline uint8_t *
write_row(uint8_t *at, const uint8_t *end, const Chunk *chunk, int64_t row, int64_t number, int64_t delta_ms)
{
    Span key, value;
    int64_t first = 0, stop = 0, headers_bytes = 0;
    if (payload_at(&chunk->key, row, &key) < 0 || payload_at(&chunk->value, row, &value) < 0)
        return NULL;
    if (chunk->headers.ends != NULL) {
        if (headers_at(chunk, row, &first, &stop) < 0)
            return NULL;
        headers_bytes = headers_size(chunk, first, stop);
        if (headers_bytes < 0)
            return NULL;
    }
    int64_t size = 1 + short_size(delta_ms) + short_size(number) + short_size(key.size) + short_size(value.size) +
                   (key.size > 0 ? key.size : 0) + (int64_t)(value.size > 0 ? value.size : 0) +
                   short_size(stop - first) + headers_bytes;
    if (end - at < short_size(size) + size)
        return NULL;
    prefetch_behind(at);
    at = write_short(at, size);
    *at++ = 0; /* attributes */
    at = write_short(at, delta_ms);
    at = write_short(at, number);
    at = write_payload(at, end, &chunk->key, &key);
    at = write_payload(at, end, &chunk->value, &value);
    at = write_short(at, stop - first);
    return stop > first ? write_headers(at, end, chunk, first, stop) : at;
}

static void
write_header(uint8_t *batch, const Input *input, const Plan *plan, int64_t base_ms, int64_t largest_ms)
{
    HeaderFields fields = {
        .leader_epoch = -1,
        .base_timestamp_ms = base_ms,
        .max_timestamp_ms = largest_ms,
        .producer_id = -1,
        .producer_epoch = -1,
        .base_sequence = -1,
        .record_count = (int32_t)plan->count,
        .attributes = input->attributes,
    };
    write_batch_header(batch, plan->size, &fields);
    seal_batch(batch, plan->size);
}

/* Write a batch and find its size; -1 if a row is unusual. */
static int
write_batch(uint8_t *batch, const Input *input, Plan *plan)
{
    uint8_t *at = batch + HEADER_BYTES, *end = batch + plan->room;
    Cursor cursor = plan->start;
    int64_t base_ms = 0, largest_ms = INT64_MIN, number = 0;
    for (; number < plan->count; cursor.chunk++, cursor.row = 0) {
        const Chunk *chunk = &input->chunks[cursor.chunk];
        for (; number < plan->count && cursor.row < chunk->row_count; cursor.row++, number++) {
            int64_t delta_ms, timestamp_ms;
            if (timestamp_at(input, chunk, cursor.row, &timestamp_ms) < 0)
                return -1;
            if (number == 0)
                base_ms = timestamp_ms;
            if (timestamp_ms > largest_ms)
                largest_ms = timestamp_ms;
            if (__builtin_sub_overflow(timestamp_ms, base_ms, &delta_ms))
                return -1;
            at = write_row(at, end, chunk, cursor.row, number, delta_ms);
            if (at == NULL)
                return -1;
        }
    }
    plan->size = at - batch;
    write_header(batch, input, plan, base_ms, largest_ms);
    return 0;
}

/* Arguments -------------------------------------------------------------------------------------------------- */

/* The bytes of an object with the buffer protocol, held until the chunk is released; NULL for None. */
static int
bytes_of(Chunk *chunk, PyObject *object, const uint8_t **bytes, int64_t *size)
{
    *bytes = NULL;
    *size = 0;
    if (object == Py_None)
        return 0;
    Py_buffer *view = &chunk->views[chunk->view_count];
    if (PyObject_GetBuffer(object, view, PyBUF_SIMPLE) < 0)
        return -1;
    chunk->view_count++;
    *bytes = view->buf;
    *size = view->len;
    return 0;
}

static int
fail(const char *what)
{
    PyErr_SetString(PyExc_ValueError, what);
    return -1;
}

/* (is large, first row, rows, validity, ends, data); data is None for the column of headers' counts. */
static int
payload_column_of(Chunk *chunk, PyObject *object, PayloadColumn *column)
{
    PyObject *validity, *ends, *data;
    long long offset, row_count;
    int64_t validity_size, ends_size;
    if (object == Py_None)
        return 0;
    if (!PyTuple_Check(object) ||
        !PyArg_ParseTuple(object, "pLLOOO", &column->is_large, &offset, &row_count, &validity, &ends, &data) ||
        bytes_of(chunk, validity, &column->validity, &validity_size) < 0 ||
        bytes_of(chunk, ends, &column->ends, &ends_size) < 0 ||
        bytes_of(chunk, data, &column->data, &column->data_size) < 0)
        return PyErr_Occurred() ? -1 : fail("a column is a tuple");
    column->offset = offset;
    column->row_count = row_count;
    if (column->data == NULL)
        column->data = (const uint8_t *)"";
    if (row_count == 0)
        return 0;
    if (column->ends == NULL || offset < 0 || row_count < 0 || offset > INT64_MAX / 16 - row_count ||
        (offset + row_count + 1) * (column->is_large ? 8 : 4) > ends_size ||
        (column->validity != NULL && (offset + row_count + 7) / 8 > validity_size))
        return fail("a column is shorter than it says");
    return 0;
}

static int
timestamps_of(Chunk *chunk, PyObject *object)
{
    PyObject *data;
    long long offset;
    int64_t size;
    if (object == Py_None)
        return 0;
    if (!PyTuple_Check(object) || !PyArg_ParseTuple(object, "LO", &offset, &data) ||
        bytes_of(chunk, data, &chunk->timestamps, &size) < 0)
        return PyErr_Occurred() ? -1 : fail("timestamps are a tuple");
    if (offset < 0 || offset > INT64_MAX / 16 - chunk->row_count || (offset + chunk->row_count) * 8 > size)
        return fail("timestamps are shorter than they say");
    chunk->timestamps += offset * 8;
    return 0;
}

/* (rows, key, value, timestamps, headers, header key, header value) */
static int
chunk_of(PyObject *object, Chunk *chunk)
{
    PyObject *key, *value, *timestamps, *headers, *header_key, *header_value;
    long long row_count;
    if (!PyTuple_Check(object) || !PyArg_ParseTuple(object, "LOOOOOO", &row_count, &key, &value, &timestamps,
                                                    &headers, &header_key, &header_value))
        return PyErr_Occurred() ? -1 : fail("a chunk is a tuple");
    if (row_count < 0 || row_count > INT64_MAX / 32)
        return fail("a chunk of impossible length");
    chunk->row_count = row_count;
    if (payload_column_of(chunk, key, &chunk->key) < 0 || payload_column_of(chunk, value, &chunk->value) < 0 ||
        payload_column_of(chunk, headers, &chunk->headers) < 0 ||
        payload_column_of(chunk, header_key, &chunk->header_key) < 0 ||
        payload_column_of(chunk, header_value, &chunk->header_value) < 0 || timestamps_of(chunk, timestamps) < 0)
        return -1;
    if ((key != Py_None && chunk->key.row_count != row_count) ||
        (value != Py_None && chunk->value.row_count != row_count) ||
        (headers != Py_None && chunk->headers.row_count != row_count) ||
        chunk->header_key.row_count != chunk->header_value.row_count)
        return fail("columns of different lengths");
    return 0;
}

static void
let_go(Input *input)
{
    if (input->chunks == NULL)
        return;
    for (Py_ssize_t i = 0; i < input->chunk_count; i++)
        for (int view = 0; view < input->chunks[i].view_count; view++)
            PyBuffer_Release(&input->chunks[i].views[view]);
    PyMem_Free(input->chunks);
}

static int
chunks_of(PyObject *chunks, Input *input)
{
    Py_ssize_t count = PyList_Size(chunks);
    input->chunk_count = 0;
    input->chunks = PyMem_Calloc(count > 0 ? (size_t)count : 1, sizeof(Chunk));
    if (input->chunks == NULL) {
        PyErr_NoMemory();
        return -1;
    }
    for (Py_ssize_t i = 0; i < count && i < PyList_Size(chunks); i++) {
        input->chunk_count++;
        if (chunk_of(PyList_GetItem(chunks, i), &input->chunks[i]) < 0)
            return -1;
    }
    return 0;
}

/* Regions: memory for the batches of one call ---------------------------------------------------------------- */

/* New pages cost more than encoding into them: the kernel clears each. So the module keeps the memory of one call
   for the next, up to this size. */
enum { LARGEST_SPARE_BYTES = 16 << 20 };

typedef struct {
    PyObject_HEAD
    uint8_t *bytes;
    int64_t capacity;
    Py_ssize_t size;
} Region;

static void
region_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Region *region = (Region *)self;
    ModuleState *state = PyType_GetModuleState(type);
    uint8_t *unneeded = region->bytes;
    if (state != NULL && region->capacity <= LARGEST_SPARE_BYTES && region->capacity > state->spare_region_bytes) {
        unneeded = state->spare_region;
        state->spare_region = region->bytes;
        state->spare_region_bytes = region->capacity;
    }
    free(unneeded);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static int
region_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    Region *region = (Region *)self;
    return PyBuffer_FillInfo(view, self, region->bytes, region->size, 0, flags);
}

static PyType_Slot region_slots[] = {
    {Py_tp_dealloc, region_dealloc},
    {Py_bf_getbuffer, region_getbuffer},
    {Py_tp_doc, "Memory of batches that were encoded together."},
    {0, NULL},
};

static PyType_Spec region_spec = {
    .name = "logstore._compiled.Region",
    .basicsize = sizeof(Region),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = region_slots,
};

static Region *
new_region(ModuleState *state, int64_t size)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(state->region_type, Py_tp_alloc);
    Region *region = (Region *)allocate(state->region_type, 0); /* all zero */
    if (region == NULL)
        return NULL;
    if (state->spare_region_bytes >= size) {
        region->bytes = state->spare_region;
        region->capacity = state->spare_region_bytes;
        state->spare_region = NULL;
        state->spare_region_bytes = 0;
    }
    else {
        region->bytes = malloc(size > 0 ? (size_t)size : 1);
        if (region->bytes == NULL) {
            Py_DECREF((PyObject *)region);
            PyErr_NoMemory();
            return NULL;
        }
        region->capacity = size;
        if (size >= LARGE_BYTES)
            ask_for_large_pages(region->bytes, size);
    }
    region->size = (Py_ssize_t)size;
    return region;
}

/* encode_columns --------------------------------------------------------------------------------------------- */

typedef struct {
    Plan *plans;
    int64_t count;
    int64_t room;
    int64_t most_bytes; /* of all batches */
} Plans;

/* Cuts all rows into batches; 0, UNUSUAL or NO_MEMORY. */
static int
plan_batches(const Input *input, Plans *plans)
{
    Cursor cursor = {0, 0};
    for (;;) {
        Plan plan = {.position = plans->most_bytes};
        if (plan_batch(input, &cursor, &plan) < 0)
            return UNUSUAL;
        if (plan.count == 0)
            return 0;
        if (plans->count == plans->room) {
            int64_t room = plans->room ? plans->room * 2 : 16;
            Plan *grown = realloc(plans->plans, (size_t)room * sizeof(Plan));
            if (grown == NULL)
                return NO_MEMORY;
            plans->plans = grown;
            plans->room = room;
        }
        plans->plans[plans->count++] = plan;
        plans->most_bytes += plan.room;
    }
}

static int
write_batches(uint8_t *bytes, const Input *input, Plans *plans)
{
    for (int64_t i = 0; i < plans->count; i++)
        if (write_batch(bytes + plans->plans[i].position, input, &plans->plans[i]) < 0)
            return UNUSUAL;
    return 0;
}

/* A list with a memoryview of each batch. */
static PyObject *
views_of(PyObject *region, const Plans *plans)
{
    PyObject *views = PyList_New((Py_ssize_t)plans->count);
    PyObject *whole = PyMemoryView_FromObject(region);
    for (int64_t i = 0; views != NULL && whole != NULL && i < plans->count; i++) {
        const Plan *plan = &plans->plans[i];
        PyObject *view =
            PySequence_GetSlice(whole, (Py_ssize_t)plan->position, (Py_ssize_t)(plan->position + plan->size));
        if (view == NULL || PyList_SetItem(views, (Py_ssize_t)i, view) < 0)
            Py_CLEAR(views);
    }
    if (whole == NULL)
        Py_CLEAR(views);
    Py_XDECREF(whole);
    return views;
}

/* The batches as a list, None if anything is unusual, or NULL with an exception. */
static PyObject *
encode_input(ModuleState *state, const Input *input, Plans *plans)
{
    int status;
    Py_BEGIN_ALLOW_THREADS
    status = plan_batches(input, plans);
    Py_END_ALLOW_THREADS
    if (status == NO_MEMORY)
        return PyErr_NoMemory();
    if (status == UNUSUAL)
        Py_RETURN_NONE;
    Region *region = new_region(state, plans->most_bytes);
    if (region == NULL)
        return NULL;
    uint8_t *bytes = region->bytes;
    Py_BEGIN_ALLOW_THREADS
    status = write_batches(bytes, input, plans);
    Py_END_ALLOW_THREADS
    PyObject *views = status == UNUSUAL ? Py_NewRef(Py_None) : views_of((PyObject *)region, plans);
    Py_DECREF((PyObject *)region);
    return views;
}

static PyObject *
encode_columns(PyObject *module, PyObject *args)
{
    PyObject *chunks, *batches = NULL;
    Input input = {0};
    Plans plans = {0};
    long long now_ms, before_max_ms, after_max_ms, limit_bytes;
    int needs_keys, checks_unit; /* the caller checks the keys */
    if (!PyArg_ParseTuple(args, "O!L(hpLLLp)", &PyList_Type, &chunks, &now_ms, &input.attributes, &needs_keys,
                          &before_max_ms, &after_max_ms, &limit_bytes, &checks_unit))
        return NULL;
    input.bounds = bounds_around(now_ms, before_max_ms, after_max_ms, checks_unit);
    input.limit_bytes = limit_bytes;
    input.appends_time = input.attributes & TIMESTAMP_TYPE_BIT;
    if (chunks_of(chunks, &input) == 0)
        batches = encode_input(module_state(module), &input, &plans);
    else if (!PyErr_ExceptionMatches(PyExc_MemoryError)) { /* the plain code raises the error */
        PyErr_Clear();
        batches = Py_NewRef(Py_None);
    }
    free(plans.plans);
    let_go(&input);
    return batches;
}

static PyMethodDef functions[] = {
    {"encode_columns", encode_columns, METH_VARARGS, "See logstore.format.compiled.encode_columns."},
    {NULL, NULL, 0, NULL},
};

int
add_columns_encode(PyObject *module)
{
    ModuleState *state = module_state(module);
    state->region_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &region_spec, NULL);
    return state->region_type == NULL ? -1 : PyModule_AddFunctions(module, functions);
}
