/* Turns the rows that users append into batches.

   Rows are measured first and written second, into memory of exactly the size that they need. In between no
   Python code can run: only objects of exact built-in types (and of NewRecord itself) are touched, nothing that
   the collector tracks is allocated, and the GIL is kept. So the bytes that were measured are those that are
   written, whatever other threads do to a list of rows.

   The most bytes of a record, and so the end of a batch, are computed as in gathered.py: both ways of encoding
   must cut the same rows into the same batches.
*/

#include "batch.h"
#include "bounds.h"

#include <structmember.h>
#include <time.h>

enum {
    MAX_RECORD_OVERHEAD_BYTES = 36,
    MAX_HEADER_OVERHEAD_BYTES = 10,
    MAX_UTF8_BYTES = 4, /* per character */
    FIRST_ROWS = 64,
    FIRST_HEADERS = 64,
    SEEN_HEADERS = 4,
    PREFETCH_ROWS = 8, /* older rows are not in the cache: saves 8 % of a whole encoding */
    PREFETCH_BYTES = 256,
    MAX_PARTITIONS = 65536 /* the most partitions to divide rows among: each takes a list */
};

/* The plain code takes larger keys, values and batches: below this no sum of sizes overflows. */
#define MAX_PAYLOAD_BYTES ((int64_t)1 << 30)

/* The result of a step that may find something unusual. */
typedef enum { FAILED = -1, ORDINARY = 0, UNUSUAL = 1 } Outcome;

/* One measured record. Everything is borrowed from its row. */
typedef struct {
    Span key;
    Span value;
    int64_t timestamp_ms;
    int32_t record_bytes; /* without the varint before it that gives this size */
    int32_t header_count;
} MeasuredRow;

/* One measured header; borrowed too. */
typedef struct {
    const uint8_t *key;
    const uint8_t *value;
    int32_t key_size;
    int32_t value_size; /* -1 is null */
} MeasuredHeader;

/* The header last seen at this place in a row: the next row usually has the same one there, or at least the same
   key. Borrowed, and valid as long as no Python code runs. */
typedef struct {
    PyObject *pair;
    PyObject *text; /* of the key */
    MeasuredHeader measured;
    int64_t key_most_bytes;
} SeenHeader;

/* The headers of all rows of a section, in their order. */
typedef struct {
    MeasuredHeader *items;
    Py_ssize_t count;
    Py_ssize_t room;
    SeenHeader seen[SEEN_HEADERS];
    MeasuredHeader first_items[FIRST_HEADERS];
} HeaderList;

/* The records of the batch that is being built. */
typedef struct {
    MeasuredRow *rows;
    Py_ssize_t count;
    Py_ssize_t room;
    int64_t section_bytes; /* the exact size of the records */
    int64_t most_bytes;    /* the sum of the most bytes of each record */
    int64_t largest_ms;
    MeasuredRow first_rows[FIRST_ROWS];
    HeaderList headers;
} Section;

/* The topic's rules, and the attributes of its batches. */
typedef struct {
    Bounds bounds;
    int64_t limit_bytes; /* the most bytes that a batch's records take together; a single record may take more */
    int64_t producer_id;
    int32_t base_sequence;
    int16_t producer_epoch;
    int16_t attributes; /* with the bit for log append time every record's timestamp is now_ms */
    int needs_keys;
} Rules;

/* Rows to measured rows -------------------------------------------------------------------------------------*/

static inline Outcome
measure_payload(PyObject *payload, Span *span)
{
    if (payload == Py_None) {
        span->bytes = NULL;
        span->size = -1;
        return ORDINARY;
    }
    if (!PyBytes_CheckExact(payload))
        return UNUSUAL;
    Py_ssize_t size = Py_SIZE(payload);
    if (size > MAX_PAYLOAD_BYTES)
        return UNUSUAL;
    span->bytes = (const uint8_t *)PyBytes_AsString(payload);
    span->size = (int32_t)size;
    for (Py_ssize_t at = 32; at < size && at < PREFETCH_BYTES; at += 64)
        __builtin_prefetch(span->bytes + at);
    return ORDINARY;
}

/* A header's key as UTF-8. The str object owns the bytes. */
static Outcome
measure_header_key(PyObject *text, SeenHeader *seen)
{
    Py_ssize_t size;
    if (!PyUnicode_CheckExact(text))
        return UNUSUAL;
    const char *utf8 = PyUnicode_AsUTF8AndSize(text, &size);
    if (utf8 == NULL) {
        if (PyErr_ExceptionMatches(PyExc_MemoryError))
            return FAILED;
        PyErr_Clear(); /* a lone surrogate */
        return UNUSUAL;
    }
    if (size > MAX_PAYLOAD_BYTES)
        return UNUSUAL;
    seen->text = text;
    seen->measured.key = (const uint8_t *)utf8;
    seen->measured.key_size = (int32_t)size;
    seen->key_most_bytes = MAX_UTF8_BYTES * (int64_t)PyUnicode_GetLength(text);
    return ORDINARY;
}

/* Unless the result is ORDINARY, what was seen is undefined. */
static inline Outcome
measure_header(PyObject *pair, SeenHeader *seen)
{
    if (pair == seen->pair)
        return ORDINARY;
    if (!PyTuple_CheckExact(pair) || Py_SIZE(pair) != 2)
        return UNUSUAL;
    Span value;
    if (measure_payload(PyTuple_GetItem(pair, 1), &value) != ORDINARY)
        return UNUSUAL;
    PyObject *text = PyTuple_GetItem(pair, 0);
    Outcome outcome = text == seen->text ? ORDINARY : measure_header_key(text, seen);
    seen->pair = pair;
    seen->measured.value = value.bytes;
    seen->measured.value_size = value.size;
    return outcome;
}

static void
init_header_list(HeaderList *list)
{
    list->items = list->first_items;
    list->room = FIRST_HEADERS;
    list->count = 0;
    memset(list->seen, 0, sizeof list->seen);
}

static void
free_header_list(HeaderList *list)
{
    if (list->items != list->first_items)
        PyMem_Free(list->items);
}

/* Makes room for so many more. */
static int
take_header_room(HeaderList *list, Py_ssize_t count)
{
    if (count <= list->room - list->count)
        return 0;
    if (count > PY_SSIZE_T_MAX / (Py_ssize_t)(4 * sizeof(MeasuredHeader)) - list->room)
        return -1;
    Py_ssize_t room = 2 * list->room + count;
    int is_first = list->items == list->first_items;
    MeasuredHeader *items = PyMem_Realloc(is_first ? NULL : list->items, (size_t)room * sizeof(MeasuredHeader));
    if (items == NULL)
        return -1;
    if (is_first)
        memcpy(items, list->first_items, sizeof list->first_items);
    list->items = items;
    list->room = room;
    return 0;
}

/* Adds the headers, a tuple that is not empty, to the list, and sums up their exact and their most bytes. */
static Outcome
measure_headers(PyObject *headers, HeaderList *list, int64_t *exact_bytes, int64_t *most_bytes)
{
    Py_ssize_t count = Py_SIZE(headers);
    if (count > INT32_MAX)
        return UNUSUAL;
    if (take_header_room(list, count) < 0) {
        PyErr_NoMemory();
        return FAILED;
    }
    *exact_bytes += varint_size(count);
    for (Py_ssize_t i = 0; i < count; i++) {
        SeenHeader *seen = &list->seen[i % SEEN_HEADERS];
        Outcome outcome = measure_header(PyTuple_GetItem(headers, i), seen);
        if (outcome != ORDINARY)
            return outcome;
        MeasuredHeader measured = list->items[list->count++] = seen->measured;
        *exact_bytes += span_size(measured.key_size) + span_size(measured.value_size);
        *most_bytes +=
            seen->key_most_bytes + (measured.value_size > 0 ? measured.value_size : 0) + MAX_HEADER_OVERHEAD_BYTES;
        if (*most_bytes > MAX_PAYLOAD_BYTES)
            return UNUSUAL;
    }
    return ORDINARY;
}

/* The same without a list, for their sizes only. */
static Outcome
measure_headers_alone(PyObject *headers, int64_t *exact_bytes, int64_t *most_bytes)
{
    HeaderList list;
    init_header_list(&list);
    Outcome outcome = measure_headers(headers, &list, exact_bytes, most_bytes);
    free_header_list(&list);
    return outcome;
}

static inline Outcome
measure_timestamp(PyObject *timestamp, const Bounds *bounds, int64_t *timestamp_ms)
{
    *timestamp_ms = bounds->now_ms;
    if (timestamp == NULL || timestamp == Py_None)
        return ORDINARY;
    if (!PyLong_CheckExact(timestamp))
        return UNUSUAL;
    int overflow;
    int64_t given_ms = PyLong_AsLongLongAndOverflow(timestamp, &overflow);
    if (overflow || !is_within(bounds, given_ms))
        return UNUSUAL;
    *timestamp_ms = given_ms;
    return ORDINARY;
}

/* The fields of a row, still as objects. */
typedef struct {
    PyObject *key;
    PyObject *value;
    PyObject *timestamp; /* or NULL */
    PyObject *headers;   /* or NULL */
} Fields;

static inline Outcome
split_row(PyObject *row, const PyTypeObject *new_record_type, Fields *fields)
{
    const PyTypeObject *type = Py_TYPE(row);
    if (type == &PyTuple_Type) {
        Py_ssize_t width = Py_SIZE(row);
        if (width < 2 || width > 4)
            return UNUSUAL;
        fields->key = PyTuple_GetItem(row, 0);
        fields->value = PyTuple_GetItem(row, 1);
        fields->timestamp = width > 2 ? PyTuple_GetItem(row, 2) : NULL;
        fields->headers = width > 3 ? PyTuple_GetItem(row, 3) : NULL;
        return ORDINARY;
    }
    if (type == new_record_type) {
        if (Py_SIZE(row) != 4)
            return UNUSUAL;
        fields->value = PyTuple_GetItem(row, 0);
        fields->key = PyTuple_GetItem(row, 1);
        fields->headers = PyTuple_GetItem(row, 2);
        fields->timestamp = PyTuple_GetItem(row, 3);
        return ORDINARY;
    }
    if (type != &PyBytes_Type)
        return UNUSUAL;
    fields->key = Py_None;
    fields->value = row;
    fields->timestamp = fields->headers = NULL;
    return ORDINARY;
}

/* Measures everything except what depends on the place in the batch. Adds to *exact_bytes and *most_bytes, and
   the headers to their list, which may be NULL. */
static inline Outcome
measure_fields(PyObject *key, PyObject *value, PyObject *headers, int needs_keys, MeasuredRow *row, HeaderList *list,
               int64_t *exact_bytes, int64_t *most_bytes)
{
    if (measure_payload(key, &row->key) != ORDINARY || measure_payload(value, &row->value) != ORDINARY)
        return UNUSUAL;
    if (row->key.size < 0 && needs_keys)
        return UNUSUAL;
    *exact_bytes += span_size(row->key.size) + span_size(row->value.size);
    *most_bytes += (row->key.size > 0 ? row->key.size : 0) + (row->value.size > 0 ? row->value.size : 0) +
                   MAX_RECORD_OVERHEAD_BYTES;
    row->header_count = 0;
    int has_none = headers == NULL || headers == Py_None;
    if (!has_none && !PyTuple_CheckExact(headers))
        return UNUSUAL;
    if (has_none || Py_SIZE(headers) == 0) {
        *exact_bytes += 1;
        return ORDINARY;
    }
    row->header_count = (int32_t)Py_SIZE(headers); /* larger numbers are refused */
    return list != NULL ? measure_headers(headers, list, exact_bytes, most_bytes)
                        : measure_headers_alone(headers, exact_bytes, most_bytes);
}

/* Sections --------------------------------------------------------------------------------------------------*/

static void
begin_section(Section *section)
{
    section->count = section->headers.count = 0;
    section->section_bytes = section->most_bytes = 0;
    section->largest_ms = INT64_MIN;
}

static void
init_section(Section *section)
{
    section->rows = section->first_rows;
    section->room = FIRST_ROWS;
    init_header_list(&section->headers);
    begin_section(section);
}

static void
free_section(Section *section)
{
    if (section->rows != section->first_rows)
        PyMem_Free(section->rows);
    free_header_list(&section->headers);
}

static int
grow_section(Section *section)
{
    if (section->room > PY_SSIZE_T_MAX / (Py_ssize_t)(4 * sizeof(MeasuredRow)))
        return -1;
    size_t size = (size_t)section->room * 2 * sizeof(MeasuredRow);
    int is_first = section->rows == section->first_rows;
    MeasuredRow *rows = PyMem_Realloc(is_first ? NULL : section->rows, size);
    if (rows == NULL)
        return -1;
    if (is_first)
        memcpy(rows, section->first_rows, sizeof section->first_rows);
    section->rows = rows;
    section->room *= 2;
    return 0;
}

/* Adds one row. Sets *fits to 0 and adds nothing if the section has rows and this one must begin the next.
   After FAILED an exception is set. */
static inline Outcome
add_row(Section *section, PyObject *key, PyObject *value, PyObject *headers, int64_t timestamp_ms, const Rules *rules,
        int *fits)
{
    if (section->count == section->room && grow_section(section) < 0) {
        PyErr_NoMemory();
        return FAILED;
    }
    MeasuredRow *row = &section->rows[section->count];
    int64_t exact_bytes = 1, most_bytes = 0;
    Outcome outcome = measure_fields(key, value, headers, rules->needs_keys, row, &section->headers, &exact_bytes,
                                     &most_bytes);
    if (outcome != ORDINARY)
        return outcome;
    if (most_bytes > MAX_PAYLOAD_BYTES)
        return UNUSUAL;
    *fits = section->count == 0 || section->most_bytes + most_bytes <= rules->limit_bytes;
    if (!*fits) {
        section->headers.count -= row->header_count;
        return ORDINARY;
    }
    row->timestamp_ms = rules->attributes & TIMESTAMP_TYPE_BIT ? rules->bounds.now_ms : timestamp_ms;
    int64_t delta_ms;
    if (__builtin_sub_overflow(row->timestamp_ms, section->rows[0].timestamp_ms, &delta_ms))
        return UNUSUAL;
    exact_bytes += varint_size(delta_ms) + varint_size(section->count);
    row->record_bytes = (int32_t)exact_bytes;
    section->section_bytes += varint_size(exact_bytes) + exact_bytes;
    section->most_bytes += most_bytes;
    if (row->timestamp_ms > section->largest_ms)
        section->largest_ms = row->timestamp_ms;
    section->count++;
    /* The limits of the header's fields: the plain code refuses a larger batch with an error message. */
    return section->section_bytes > INT32_MAX - HEADER_BYTES || section->count > INT32_MAX ? UNUSUAL : ORDINARY;
}

/* Measured rows to bytes ------------------------------------------------------------------------------------*/

static inline uint8_t *
write_headers(uint8_t *at, const MeasuredHeader *headers, int32_t count)
{
    at = write_varint(at, count);
    for (int32_t i = 0; i < count; i++) {
        at = write_span(at, headers[i].key, headers[i].key_size);
        at = write_span(at, headers[i].value, headers[i].value_size);
    }
    return at;
}

static uint8_t *
write_records(uint8_t *at, const Section *section)
{
    int64_t base_ms = section->rows[0].timestamp_ms;
    const MeasuredHeader *headers = section->headers.items;
    for (Py_ssize_t i = 0; i < section->count; i++) {
        const MeasuredRow *row = &section->rows[i];
        at = write_varint(at, row->record_bytes);
        *at++ = 0; /* attributes */
        at = write_varint(at, row->timestamp_ms - base_ms);
        at = write_varint(at, i);
        at = write_span(at, row->key.bytes, row->key.size);
        at = write_span(at, row->value.bytes, row->value.size);
        at = write_headers(at, headers, row->header_count);
        headers += row->header_count;
    }
    return at;
}

static void
write_header(uint8_t *batch, int64_t size, const Section *section, const Rules *rules)
{
    HeaderFields fields = {
        .leader_epoch = -1,
        .base_timestamp_ms = section->rows[0].timestamp_ms,
        .max_timestamp_ms = section->largest_ms,
        .producer_id = rules->producer_id,
        .producer_epoch = rules->producer_epoch,
        .base_sequence = rules->base_sequence,
        .record_count = (int32_t)section->count,
        .attributes = rules->attributes,
    };
    write_batch_header(batch, size, &fields);
    seal_batch(batch, size);
}

/* A new bytearray: the batch of the section's rows, at base offset 0, its checksum in place. */
static PyObject *
encode_section(const Section *section, const Rules *rules)
{
    int64_t size = HEADER_BYTES + section->section_bytes;
    PyObject *batch = PyByteArray_FromStringAndSize(NULL, (Py_ssize_t)size);
    if (batch == NULL)
        return NULL;
    uint8_t *bytes = (uint8_t *)PyByteArray_AsString(batch);
    if (write_records(bytes + HEADER_BYTES, section) != bytes + size) {
        Py_DECREF(batch);
        PyErr_SetString(PyExc_SystemError, "records changed their size while they were encoded");
        return NULL;
    }
    write_header(bytes, size, section, rules);
    return batch;
}

/* encode_rows -----------------------------------------------------------------------------------------------*/

static inline PyObject *
row_at(PyObject *rows, int is_list, Py_ssize_t i)
{
    return is_list ? PyList_GetItem(rows, i) : PyTuple_GetItem(rows, i);
}

static int
append_batch(PyObject *batches, const Section *section, const Rules *rules)
{
    PyObject *batch = encode_section(section, rules);
    if (batch == NULL)
        return -1;
    int failed = PyList_Append(batches, batch);
    Py_DECREF(batch);
    return failed;
}

/* Encodes all rows, appending to batches. */
static Outcome
encode_all(PyObject *rows, const PyTypeObject *new_record_type, const Rules *rules, Section *section,
           PyObject *batches)
{
    int is_list = PyList_CheckExact(rows), fits;
    Py_ssize_t count = is_list ? PyList_Size(rows) : PyTuple_Size(rows);
    for (Py_ssize_t i = 0; i < count; i += fits) {
        Fields fields;
        int64_t timestamp_ms;
        if (i + PREFETCH_ROWS < count)
            __builtin_prefetch(row_at(rows, is_list, i + PREFETCH_ROWS));
        if (split_row(row_at(rows, is_list, i), new_record_type, &fields) != ORDINARY ||
            measure_timestamp(fields.timestamp, &rules->bounds, &timestamp_ms) != ORDINARY)
            return UNUSUAL;
        Outcome outcome = add_row(section, fields.key, fields.value, fields.headers, timestamp_ms, rules, &fits);
        if (outcome != ORDINARY)
            return outcome;
        if (!fits) {
            if (append_batch(batches, section, rules) < 0)
                return FAILED;
            begin_section(section);
        }
    }
    return section->count > 0 && append_batch(batches, section, rules) < 0 ? FAILED : ORDINARY;
}

static PyObject *
encode_rows(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *rows, *new_record_type;
    Rules rules;
    long long now_ms, before_max_ms, after_max_ms, limit_bytes, producer_id;
    int checks_unit;
    if (!PyArg_ParseTuple(args, "OOL(hpLLLp)(Lhi)", &rows, &new_record_type, &now_ms, &rules.attributes,
                          &rules.needs_keys, &before_max_ms, &after_max_ms, &limit_bytes, &checks_unit, &producer_id,
                          &rules.producer_epoch, &rules.base_sequence))
        return NULL;
    if ((!PyList_CheckExact(rows) && !PyTuple_CheckExact(rows)) || now_ms < NO_TIMESTAMP_MS)
        Py_RETURN_NONE;
    rules.bounds = bounds_around(now_ms, before_max_ms, after_max_ms, checks_unit);
    rules.limit_bytes = limit_bytes;
    rules.producer_id = producer_id;
    PyObject *batches = PyList_New(0); /* before any row is read: it may start the collector */
    if (batches == NULL)
        return NULL;
    Section section;
    init_section(&section);
    Outcome outcome = encode_all(rows, (const PyTypeObject *)new_record_type, &rules, &section, batches);
    free_section(&section);
    if (outcome == ORDINARY)
        return batches;
    Py_DECREF(batches);
    if (outcome == FAILED)
        return NULL;
    Py_RETURN_NONE;
}

/* GatheredRows ----------------------------------------------------------------------------------------------*/

/* One row, with references of its own. */
typedef struct {
    PyObject *key;
    PyObject *value;
    PyObject *headers;
    int64_t timestamp_ms;
    int64_t size_bytes; /* what it takes at most */
} GatheredRow;

/* The rows of the next batch. They cannot contain a cycle (add takes exact bytes, and tuples of these; rows for
   put were checked), so the collector need not know about them. */
typedef struct {
    PyObject ob_base;
    GatheredRow *rows;
    Py_ssize_t row_count;
    Py_ssize_t room;
    long long size_bytes; /* the sum of what the rows take at most */
    long long limit_bytes;
    long long max_record_bytes;
    long long before_max_ms;
    long long after_max_ms;
    long long base_offset; /* the offset of the first row, while the gate is open */
    long long until_ms;    /* the gate is closed from then on, because the rows must be written by then */
    int needs_keys;
    int checks_unit;
    short attributes;
    unsigned long owner; /* the only thread that may gather, if has_owner */
    char has_failed;
    char is_gate_open;
    char has_owner;
} GatheredRows;

static PyObject *
use_rules(GatheredRows *self, PyObject *args)
{
    if (!PyArg_ParseTuple(args, "(hpLLLp)L", &self->attributes, &self->needs_keys, &self->before_max_ms,
                          &self->after_max_ms, &self->limit_bytes, &self->checks_unit, &self->max_record_bytes))
        return NULL;
    Py_RETURN_NONE;
}

static int
init_gathered(GatheredRows *self, PyObject *args, PyObject *Py_UNUSED(keywords))
{
    PyObject *nothing = use_rules(self, args);
    Py_XDECREF(nothing);
    return nothing == NULL ? -1 : 0;
}

static int
must_drain(const GatheredRows *self, int64_t size_bytes)
{
    int64_t sum;
    return self->has_failed || (self->row_count > 0 && (__builtin_add_overflow(self->size_bytes, size_bytes, &sum) ||
                                                        sum > self->limit_bytes));
}

static PyObject *
must_drain_before(GatheredRows *self, PyObject *size_bytes)
{
    long long size = PyLong_AsLongLong(size_bytes);
    if (size == -1 && PyErr_Occurred())
        return NULL;
    return PyBool_FromLong(must_drain(self, size));
}

static int
keep_row(GatheredRows *self, PyObject *key, PyObject *value, PyObject *headers, int64_t timestamp_ms,
         int64_t size_bytes)
{
    int64_t sum;
    if (size_bytes < 0 || __builtin_add_overflow(self->size_bytes, size_bytes, &sum)) {
        PyErr_SetString(PyExc_ValueError, "the size of a row");
        return -1;
    }
    if (self->row_count == self->room) {
        Py_ssize_t room = self->room > 0 ? self->room * 2 : FIRST_ROWS;
        GatheredRow *rows = NULL;
        if (room <= PY_SSIZE_T_MAX / (Py_ssize_t)sizeof(GatheredRow))
            rows = PyMem_Realloc(self->rows, (size_t)room * sizeof(GatheredRow));
        if (rows == NULL) {
            PyErr_NoMemory();
            return -1;
        }
        self->rows = rows;
        self->room = room;
    }
    Py_INCREF(key);
    Py_INCREF(value);
    Py_INCREF(headers);
    self->rows[self->row_count++] = (GatheredRow){key, value, headers, timestamp_ms, size_bytes};
    self->size_bytes = sum;
    return 0;
}

static inline void
forget_row(GatheredRow row)
{
    Py_DECREF(row.key);
    Py_DECREF(row.value);
    Py_DECREF(row.headers);
}

/* Adds the row if everything about it is ordinary. In one step: no Python code runs here, and the GIL is kept. */
static Outcome
take_row(GatheredRows *self, PyObject *const *fields, int64_t now_ms)
{
    PyObject *value = fields[0], *key = fields[1], *headers = fields[2];
    MeasuredRow row;
    int64_t exact_bytes = 0, most_bytes = 0, timestamp_ms;
    Outcome outcome = measure_fields(key, value, headers, self->needs_keys, &row, NULL, &exact_bytes, &most_bytes);
    if (outcome != ORDINARY)
        return outcome;
    Bounds bounds = bounds_around(now_ms, self->before_max_ms, self->after_max_ms, self->checks_unit);
    if (now_ms < NO_TIMESTAMP_MS || measure_timestamp(fields[3], &bounds, &timestamp_ms) != ORDINARY ||
        most_bytes > self->max_record_bytes || must_drain(self, most_bytes))
        return UNUSUAL;
    PyObject *kept = headers == Py_None ? PyTuple_New(0) : Py_NewRef(headers);
    int failed = kept == NULL || keep_row(self, key, value, kept, timestamp_ms, most_bytes) < 0;
    Py_XDECREF(kept);
    return failed ? FAILED : ORDINARY;
}

/* add(value, key, headers, timestamp_ms, now_ms) -> number of the row, or -1 */
static PyObject *
add_gathered(GatheredRows *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "add takes five arguments");
        return NULL;
    }
    long long now_ms = PyLong_AsLongLong(args[4]);
    if (now_ms == -1 && PyErr_Occurred())
        return NULL;
    Outcome outcome = take_row(self, args, now_ms);
    if (outcome == FAILED)
        return NULL;
    return PyLong_FromSsize_t(outcome == ORDINARY ? self->row_count - 1 : -1);
}

/* The machine's clock, like SystemClock. */
static int64_t
machine_now_ms(void)
{
    struct timespec now;
    if (timespec_get(&now, TIME_UTC) != TIME_UTC)
        return INT64_MIN;
    return (int64_t)now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

/* gather(value, key, headers, timestamp_ms, now_ms or None) -> offset of the row, or None.

   Whether the row may be taken depends only on this object, and is checked in the same step that takes it: the
   GIL is the only lock needed. */
static PyObject *
gather(GatheredRows *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 5) {
        PyErr_SetString(PyExc_TypeError, "gather takes five arguments");
        return NULL;
    }
    int64_t now_ms, offset;
    if (args[4] == Py_None)
        now_ms = machine_now_ms();
    else if (read_exact_int(args[4], &now_ms) < 0)
        Py_RETURN_NONE;
    if (!self->is_gate_open || now_ms >= self->until_ms ||
        (self->has_owner && PyThread_get_thread_ident() != self->owner) ||
        __builtin_add_overflow(self->base_offset, self->row_count, &offset))
        Py_RETURN_NONE;
    PyObject *answer = PyLong_FromLongLong(offset); /* first: after the row is taken nothing may fail */
    Outcome outcome = answer == NULL ? FAILED : take_row(self, args, now_ms);
    if (outcome == ORDINARY)
        return answer;
    Py_XDECREF(answer);
    if (outcome == FAILED)
        return NULL;
    Py_RETURN_NONE;
}

/* open_gate(base_offset, until_ms, for_this_thread=False) */
static PyObject *
open_gate(GatheredRows *self, PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 && count != 3) {
        PyErr_SetString(PyExc_TypeError, "open_gate takes two or three arguments");
        return NULL;
    }
#ifdef Py_GIL_DISABLED
    (void)self, (void)args; /* it stays closed */
#else
    int64_t offset, until_ms;
    self->is_gate_open = read_exact_int(args[0], &offset) == 0 && read_exact_int(args[1], &until_ms) == 0;
    if (self->is_gate_open) {
        self->base_offset = offset;
        self->until_ms = until_ms;
        self->has_owner = count == 3 && args[2] != Py_False;
        self->owner = PyThread_get_thread_ident();
    }
#endif
    Py_RETURN_NONE;
}

static PyObject *
close_gate(GatheredRows *self, PyObject *Py_UNUSED(unused))
{
    self->is_gate_open = 0;
    Py_RETURN_NONE;
}

static PyObject *
put_gathered(GatheredRows *self, PyObject *args)
{
    PyObject *key, *value, *headers;
    long long timestamp_ms, size_bytes;
    if (!PyArg_ParseTuple(args, "(OOLO!)L", &key, &value, &timestamp_ms, &PyTuple_Type, &headers, &size_bytes) ||
        keep_row(self, key, value, headers, timestamp_ms, size_bytes) < 0)
        return NULL;
    return PyLong_FromSsize_t(self->row_count - 1);
}

static PyObject *
remove_last(GatheredRows *self, PyObject *Py_UNUSED(unused))
{
    if (self->row_count > 0) {
        GatheredRow row = self->rows[--self->row_count];
        self->size_bytes -= row.size_bytes;
        forget_row(row);
    }
    Py_RETURN_NONE;
}

static PyObject *
clear_gathered(GatheredRows *self, PyObject *Py_UNUSED(unused))
{
    GatheredRow *rows = self->rows;
    Py_ssize_t count = self->row_count, room = self->room;
    self->rows = NULL;
    self->row_count = self->room = 0;
    self->size_bytes = 0;
    self->has_failed = 0;
    for (Py_ssize_t i = 0; i < count; i++)
        forget_row(rows[i]); /* may run a finalizer, which may add rows */
    if (self->rows == NULL) {
        self->rows = rows;
        self->room = room;
    } else {
        PyMem_Free(rows);
    }
    Py_RETURN_NONE;
}

static PyObject *
encode_gathered(GatheredRows *self, PyObject *now)
{
    Rules rules = {.attributes = self->attributes,
                   .limit_bytes = INT64_MAX,
                   .producer_id = -1,
                   .producer_epoch = -1,
                   .base_sequence = -1};
    long long now_ms = PyLong_AsLongLong(now);
    if (now_ms == -1 && PyErr_Occurred())
        return NULL;
    rules.bounds.now_ms = now_ms;
    Section section;
    init_section(&section);
    Outcome outcome = now_ms < NO_TIMESTAMP_MS ? UNUSUAL : ORDINARY;
    int fits;
    for (Py_ssize_t i = 0; i < self->row_count && outcome == ORDINARY; i++) {
        const GatheredRow *row = &self->rows[i];
        outcome = add_row(&section, row->key, row->value, row->headers, row->timestamp_ms, &rules, &fits);
    }
    PyObject *batch = NULL;
    if (outcome == ORDINARY && section.count > 0)
        batch = encode_section(&section, &rules);
    else if (outcome != FAILED) {
        Py_INCREF(Py_None);
        batch = Py_None;
    }
    free_section(&section);
    return batch;
}

static PyObject *
rows_of_gathered(GatheredRows *self, void *Py_UNUSED(closure))
{
    PyObject *list = PyList_New(0);
    for (Py_ssize_t i = 0; list != NULL && i < self->row_count; i++) {
        /* A new tuple may start the collector, and a finalizer may then change the rows: so keep a reference to each. */
        GatheredRow row = self->rows[i];
        PyObject *tuple = Py_BuildValue("(NNLN)", Py_NewRef(row.key), Py_NewRef(row.value), (long long)row.timestamp_ms,
                                        Py_NewRef(row.headers));
        if (tuple == NULL || PyList_Append(list, tuple) < 0)
            Py_CLEAR(list);
        Py_XDECREF(tuple);
    }
    return list;
}

static void
free_gathered(GatheredRows *self)
{
    PyTypeObject *type = Py_TYPE((PyObject *)self);
    PyObject *nothing = clear_gathered(self, NULL);
    Py_XDECREF(nothing);
    PyMem_Free(self->rows);
    freefunc free_object = (freefunc)PyType_GetSlot(type, Py_tp_free);
    free_object(self);
    Py_DECREF((PyObject *)type);
}

#define METHOD(function) ((PyCFunction)(void (*)(void))(function))

static PyMethodDef gathered_methods[] = {
    {"use_rules", METHOD(use_rules), METH_VARARGS, "See the plain class."},
    {"add", METHOD(add_gathered), METH_FASTCALL, "See the plain class."},
    {"gather", METHOD(gather), METH_FASTCALL, "See the plain class."},
    {"open_gate", METHOD(open_gate), METH_FASTCALL, "See the plain class."},
    {"close_gate", METHOD(close_gate), METH_NOARGS, "See the plain class."},
    {"must_drain_before", METHOD(must_drain_before), METH_O, "See the plain class."},
    {"put", METHOD(put_gathered), METH_VARARGS, "See the plain class."},
    {"remove_last", METHOD(remove_last), METH_NOARGS, "See the plain class."},
    {"clear", METHOD(clear_gathered), METH_NOARGS, "See the plain class."},
    {"encode", METHOD(encode_gathered), METH_O, "See the plain class."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef gathered_members[] = {
    {"row_count", T_PYSSIZET, offsetof(GatheredRows, row_count), READONLY, "How many."},
    {"size_bytes", T_LONGLONG, offsetof(GatheredRows, size_bytes), READONLY, "The sum of what they take at most."},
    {"max_record_bytes", T_LONGLONG, offsetof(GatheredRows, max_record_bytes), READONLY, "See the plain class."},
    {"has_failed", T_BOOL, offsetof(GatheredRows, has_failed), 0, "See the plain class."},
    {"is_gate_open", T_BOOL, offsetof(GatheredRows, is_gate_open), READONLY, "Whether gather may add rows."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef gathered_getters[] = {
    {"rows", (getter)(void (*)(void))rows_of_gathered, NULL, "A new list of the rows.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot gathered_slots[] = {
    {Py_tp_doc, "The rows of the next batch. See the plain class, logstore.format.gathered.GatheredRows."},
    {Py_tp_methods, gathered_methods},
    {Py_tp_members, gathered_members},
    {Py_tp_getset, gathered_getters},
    {Py_tp_init, init_gathered},
    {Py_tp_dealloc, free_gathered},
    {0, NULL},
};

static PyType_Spec gathered_spec = {
    .name = "logstore._compiled.GatheredRows",
    .basicsize = sizeof(GatheredRows),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = gathered_slots,
};

/* Partitions ------------------------------------------------------------------------------------------------*/

/* Kafka's variant of murmur2, as in partitioner.py. */
static uint32_t
murmur2(const uint8_t *bytes, size_t size)
{
    const uint32_t multiplier = 0x5BD1E995u;
    uint32_t hash = 0x9747B28Cu ^ (uint32_t)size;
    for (; size >= 4; size -= 4, bytes += 4) {
        uint32_t word = (uint32_t)bytes[0] | (uint32_t)bytes[1] << 8 | (uint32_t)bytes[2] << 16 |
                        (uint32_t)bytes[3] << 24;
        word *= multiplier;
        word ^= word >> 24;
        hash = hash * multiplier ^ word * multiplier;
    }
    if (size > 0) {
        for (size_t i = size; i-- > 0;)
            hash ^= (uint32_t)bytes[i] << (8 * i);
        hash *= multiplier;
    }
    hash ^= hash >> 13;
    hash *= multiplier;
    return hash ^ hash >> 15;
}

/* partition_for_key(key, partition_count) -> partition, or None if the key is not bytes or the count is not
   possible. */
static PyObject *
partition_for_key(PyObject *Py_UNUSED(module), PyObject *const *args, Py_ssize_t count)
{
    if (count != 2 || !PyBytes_CheckExact(args[0]) || !PyLong_CheckExact(args[1]))
        Py_RETURN_NONE;
    int overflow;
    long long partition_count = PyLong_AsLongLongAndOverflow(args[1], &overflow);
    if (overflow || partition_count < 1 || partition_count > INT32_MAX)
        Py_RETURN_NONE;
    uint32_t hash = murmur2((const uint8_t *)PyBytes_AsString(args[0]), (size_t)Py_SIZE(args[0]));
    return PyLong_FromLong((long)((hash & 0x7FFFFFFFu) % (uint32_t)partition_count));
}

/* Puts each row into the list of its key's partition. */
static Outcome
divide_all(PyObject *rows, const PyTypeObject *new_record_type, PyObject *divided)
{
    const Bounds any_time = {.newest_ms = INT64_MAX, .plain_to_ms = INT64_MAX};
    uint32_t partition_count = (uint32_t)PyList_Size(divided);
    int is_list = PyList_CheckExact(rows);
    Py_ssize_t count = is_list ? PyList_Size(rows) : PyTuple_Size(rows);
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *row = row_at(rows, is_list, i);
        Fields fields;
        MeasuredRow measured;
        int64_t exact_bytes = 0, most_bytes = 0;
        if (split_row(row, new_record_type, &fields) != ORDINARY ||
            measure_timestamp(fields.timestamp, &any_time, &measured.timestamp_ms) != ORDINARY)
            return UNUSUAL;
        Outcome outcome =
            measure_fields(fields.key, fields.value, fields.headers, 1, &measured, NULL, &exact_bytes, &most_bytes);
        if (outcome != ORDINARY)
            return outcome;
        uint32_t hash = murmur2(measured.key.bytes, (size_t)measured.key.size);
        if (PyList_Append(PyList_GetItem(divided, (hash & 0x7FFFFFFFu) % partition_count), row) < 0)
            return FAILED;
    }
    return ORDINARY;
}

/* divide_rows(rows, NewRecord, partition_count) -> one list of rows for each partition, or None */
static PyObject *
divide_rows(PyObject *Py_UNUSED(module), PyObject *args)
{
    PyObject *rows, *new_record_type;
    int partition_count;
    if (!PyArg_ParseTuple(args, "OOi", &rows, &new_record_type, &partition_count))
        return NULL;
    if ((!PyList_CheckExact(rows) && !PyTuple_CheckExact(rows)) || partition_count < 1 ||
        partition_count > MAX_PARTITIONS)
        Py_RETURN_NONE;
    PyObject *divided = PyList_New(0); /* before any row is read: lists may start the collector */
    for (int i = 0; divided != NULL && i < partition_count; i++) {
        PyObject *list = PyList_New(0);
        if (list == NULL || PyList_Append(divided, list) < 0)
            Py_CLEAR(divided);
        Py_XDECREF(list);
    }
    if (divided == NULL)
        return NULL;
    Outcome outcome = divide_all(rows, (const PyTypeObject *)new_record_type, divided);
    if (outcome == ORDINARY)
        return divided;
    Py_DECREF(divided);
    if (outcome == FAILED)
        return NULL;
    Py_RETURN_NONE;
}

/* A column of keys in Arrow's layout. */
typedef struct {
    const uint8_t *ends, *data;
    int64_t data_size;
    int is_large; /* ends have 64 bits */
} KeyColumn;

static int64_t
key_end(const KeyColumn *keys, int64_t number)
{
    int64_t end;
    int32_t small_end;
    if (keys->is_large) {
        memcpy(&end, keys->ends + number * 8, 8);
        return end;
    }
    memcpy(&small_end, keys->ends + number * 4, 4);
    return small_end;
}

/* The partitions of row_count keys, as int32 of this machine; -1 if the ends lead out of the data. */
static int
hash_keys(const KeyColumn *keys, int64_t offset, int64_t row_count, uint32_t partition_count, char *partitions)
{
    int64_t start = key_end(keys, offset);
    for (int64_t row = 0; row < row_count; row++) {
        int64_t end = key_end(keys, offset + row + 1);
        if (start < 0 || end < start || end > keys->data_size)
            return -1;
        uint32_t hash = murmur2(keys->data + start, (size_t)(end - start));
        int32_t partition = (int32_t)((hash & 0x7FFFFFFFu) % partition_count);
        memcpy(partitions + row * 4, &partition, 4);
        start = end;
    }
    return 0;
}

/* partitions_for_keys(is_large, offset, row_count, ends, data, partition_count) -> bytes, or None if the column
   contradicts itself. */
static PyObject *
partitions_for_keys(PyObject *Py_UNUSED(module), PyObject *args)
{
    int is_large;
    long long offset, row_count, partition_count;
    Py_buffer ends, data;
    if (!PyArg_ParseTuple(args, "pLLy*y*L", &is_large, &offset, &row_count, &ends, &data, &partition_count))
        return NULL;
    PyObject *partitions = NULL;
    int failed = -1;
    int64_t end_count = ends.len / (is_large ? 8 : 4);
    if (offset >= 0 && row_count >= 0 && row_count < end_count && offset < end_count - row_count &&
        partition_count >= 1 && partition_count <= INT32_MAX) {
        partitions = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)row_count * 4);
        if (partitions != NULL) {
            KeyColumn keys = {ends.buf, data.buf, data.len, is_large};
            char *to = PyBytes_AsString(partitions);
            Py_BEGIN_ALLOW_THREADS
            failed = hash_keys(&keys, offset, row_count, (uint32_t)partition_count, to);
            Py_END_ALLOW_THREADS
        }
    }
    PyBuffer_Release(&ends);
    PyBuffer_Release(&data);
    if (PyErr_Occurred())
        return NULL;
    if (failed) {
        Py_XDECREF(partitions);
        Py_RETURN_NONE;
    }
    return partitions;
}

static PyMethodDef functions[] = {
    {"encode_rows", encode_rows, METH_VARARGS,
     "The rows as sealed batches at base offset 0, or None if the plain code has to look at them."},
    {"partition_for_key", METHOD(partition_for_key), METH_FASTCALL, "The partition of a key, or None."},
    {"partitions_for_keys", partitions_for_keys, METH_VARARGS,
     "The partitions of a column of keys as int32, or None if its ends lead out of its data."},
    {"divide_rows", divide_rows, METH_VARARGS,
     "The rows by partition, or None if one has no key or the plain code has to look at it."},
    {NULL, NULL, 0, NULL},
};

int
add_append(PyObject *module)
{
    if (PyModule_AddFunctions(module, functions) < 0)
        return -1;
    PyObject *type = PyType_FromModuleAndSpec(module, &gathered_spec, NULL);
    if (type == NULL)
        return -1;
    int failed = PyModule_AddObjectRef(module, "GatheredRows", type);
    Py_DECREF(type);
    return failed;
}
