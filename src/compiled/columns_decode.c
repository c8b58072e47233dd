/* Batches to columns: appends records to memory in Apache Arrow's layout.

   One call takes all batches of a buffer as long as they are ordinary: magic 2, not compressed, in their place,
   checksum and structure right. It stops before the first that is not, with the columns as they were before that
   batch. Keys, values and headers are copied once, from the buffer into the column. Ends of payloads are 32-bit
   numbers, so columns stay below 2 GiB: to read more, take the finished columns and start again.

   A Columns object passes its memory to Buffer objects, which export it by the buffer protocol.
*/

#include "batch.h"
#include "column_set.h"
#include "columns.h"
#include "record.h"

/* How take_batches ended. column_buffers.py has the same numbers; a test compares. */
enum {
    ENDED = 0,     /* the buffer holds no further whole batch */
    IS_FULL = 1,   /* the next batch may pass a limit */
    IS_DONE = 2,   /* no further batch can have rows below stop */
    IS_ODD = 3,    /* the next batch is unusual */
    IS_FINE = 4,
    NO_MEMORY = -1
};

typedef struct {
    PyObject_HEAD
    ColumnSet set;
    int is_busy; /* a thread works on it without the GIL */
} Columns;

/* One section of records, not compressed, with the values of its batch's header. */
typedef struct {
    const uint8_t *at;
    const uint8_t *end;
    int64_t base_offset;
    int64_t base_timestamp;
    int64_t append_time; /* every record's timestamp, if has_append_time */
    int64_t start;       /* rows below this are left out, */
    int64_t stop;        /* and rows from here on */
    int32_t last_offset_delta;
    int32_t count;
    int has_append_time;
    int32_t timestamp_type;
} Section;

/* Where the next payload of a column is written. */
typedef struct {
    int32_t *ends; /* of the first row to write; NULL if the column is not wanted */
    uint8_t *data;
    int32_t end;
} Place;

static inline Place
place_of(BinaryColumn *column, int64_t rows, int is_wanted)
{
    Place place = {NULL, NULL, 0};
    if (is_wanted) {
        place.ends = (int32_t *)column->ends.bytes + rows + 1;
        place.data = column->data.bytes;
        place.end = ends_at(column, rows);
    }
    return place;
}

enum { MOST_SHORT_BYTES = 16 }; /* of the numbers of a record, and of what may be read after one */

enum { CHUNK_BYTES = 32, MOST_CHUNKED_BYTES = 256 };

/* Write payload number i; returns whether it is null. Small ones are copied in chunks. The last chunk may reach
   past the payload on both sides, up to read_end and into SLACK_BYTES: a call of memcpy costs twice as much. */
static inline int
put(Place *place, int32_t i, Span payload, const uint8_t *read_end)
{
    if (payload.size > 0) {
        uint8_t *to = place->data + place->end;
        prefetch_behind(to);
        if (payload.size <= MOST_CHUNKED_BYTES && read_end - payload.bytes >= payload.size + CHUNK_BYTES)
            for (int32_t done = 0; done < payload.size; done += CHUNK_BYTES)
                memcpy(to + done, payload.bytes + done, CHUNK_BYTES);
        else
            memcpy(to, payload.bytes, (size_t)payload.size);
        place->end += payload.size;
    }
    place->ends[i] = place->end;
    return payload.size < 0;
}

/* Sections --------------------------------------------------------------------------------------------------- */

static int
take_headers(ColumnSet *set, const RawRecord *record, int is_wanted)
{
    const uint8_t *at = record->headers;
    if (is_wanted && reserve_headers(set, record->header_count, record->stop - at) < 0)
        return NO_MEMORY;
    for (int32_t i = 0; i < record->header_count; i++) {
        Span key, value;
        if (read_header(&at, record->stop, &key, &value) < 0 || check_utf8(key.bytes, key.bytes + key.size) < 0)
            return IS_ODD;
        if (!is_wanted)
            continue;
        append_payload(&set->header_key, set->header_count, key.bytes, key.size);
        if (append_payload(&set->header_value, set->header_count++, value.bytes, value.size) < 0)
            return NO_MEMORY;
    }
    return at == record->stop ? IS_FINE : IS_ODD;
}

/* Append one record into reserved room; makes room for its headers. */
static inline int
take_row(ColumnSet *set, const Section *section, const RawRecord *record, int64_t offset)
{
    int64_t row = set->row_count;
    if (set->wanted & WANTS_OFFSET)
        ((int64_t *)set->offset.bytes)[row] = offset;
    if (set->wanted & WANTS_TIMESTAMP)
        ((int64_t *)set->timestamp.bytes)[row] = section->has_append_time
                                                     ? section->append_time
                                                     : add_wrapping(section->base_timestamp, record->timestamp_delta);
    if (set->wanted & WANTS_TIMESTAMP_TYPE)
        ((int32_t *)set->timestamp_type.bytes)[row] = section->timestamp_type;
    if (set->wanted & WANTS_KEY && append_payload(&set->key, row, record->key.bytes, record->key.size) < 0)
        return NO_MEMORY;
    if (set->wanted & WANTS_VALUE && append_payload(&set->value, row, record->value.bytes, record->value.size) < 0)
        return NO_MEMORY;
    if (record->header_count > 0) {
        int status = take_headers(set, record, set->wanted & WANTS_HEADERS);
        if (status != IS_FINE)
            return status;
    }
    if (set->wanted & WANTS_HEADERS)
        ((int32_t *)set->header_ends.bytes)[row + 1] = (int32_t)set->header_count;
    set->row_count = row + 1;
    return IS_FINE;
}

static int
make_room(ColumnSet *set, int64_t rows, int64_t bytes)
{
    if (ends_at(&set->key, set->row_count) > INT32_MAX - bytes ||
        ends_at(&set->value, set->row_count) > INT32_MAX - bytes ||
        ends_at(&set->header_key, set->header_count) > INT32_MAX - bytes ||
        ends_at(&set->header_value, set->header_count) > INT32_MAX - bytes)
        return IS_ODD;
    return reserve_rows(set, rows, bytes) < 0 ? NO_MEMORY : IS_FINE;
}

/* A number of one or two bytes, as most are, before zig-zag; 0 if it has more. Two bytes can be read. */
static inline int
read_short(const uint8_t **at, uint32_t *raw)
{
    uint32_t first = (*at)[0], second = (*at)[1];
    if (first < 0x80) {
        *raw = first;
        *at += 1;
        return 1;
    }
    *raw = (first & 0x7F) | second << 7;
    *at += 2;
    return second < 0x80;
}

/* Like read_record, for a record with short numbers and without headers or nulls; 0 for any other, even a right
   one. Measured: 0.6 of the time. */
static inline int
read_short_record(const uint8_t **at, const uint8_t *end, RawRecord *record)
{
    const uint8_t *p = *at;
    uint32_t size, stamp, offset, key, value;
    if (end - p < MOST_SHORT_BYTES || !read_short(&p, &size) || size & 1 || (int64_t)(size >> 1) > end - p)
        return 0;
    const uint8_t *stop = p + (size >> 1);
    p++; /* attributes */
    if (!read_short(&p, &stamp) || !read_short(&p, &offset) || !read_short(&p, &key) || key & 1 || offset & 1)
        return 0;
    record->key.bytes = p;
    record->key.size = (int32_t)(key >> 1);
    if (stop - p < record->key.size + 3) /* a value's size and no headers; one byte more can be read */
        return 0;
    p += record->key.size;
    if (!read_short(&p, &value) || value & 1 || stop - p != (int64_t)(value >> 1) + 1 || stop[-1] != 0)
        return 0;
    record->value.bytes = p;
    record->value.size = (int32_t)(value >> 1);
    record->timestamp_delta = (int32_t)(stamp >> 1) ^ -(int32_t)(stamp & 1);
    record->offset_delta = (int32_t)(offset >> 1);
    record->header_count = 0;
    *at = stop;
    return 1;
}

/* The end of the record, of any kind, that begins here; NULL if there is none. */
static __attribute__((noinline)) const uint8_t *
read_any_record(const uint8_t *at, const uint8_t *end, RawRecord *record)
{
    return read_record(&at, end, record) < 0 ? NULL : at;
}

/* Reads a record whose offset delta is at least least_delta; IS_ODD for any other. A record whose address is not
   taken stays in registers: 0.93 of the time. */
static inline int
read_next(const uint8_t **at, const Section *section, int64_t *least_delta, RawRecord *record)
{
    const uint8_t *next = *at;
    if (!read_short_record(&next, section->end, record)) {
        RawRecord any;
        next = read_any_record(*at, section->end, &any);
        if (next == NULL)
            return IS_ODD;
        *record = any;
    }
    *at = next;
    if (record->offset_delta < *least_delta || record->offset_delta > section->last_offset_delta)
        return IS_ODD;
    *least_delta = (int64_t)record->offset_delta + 1;
    return IS_FINE;
}

/* Any rows of a section: some of them, or with headers. */
static int
take_some_rows(ColumnSet *set, const Section *section)
{
    const uint8_t *at = section->at;
    int64_t least_delta = 0;
    int status = IS_FINE;
    for (int32_t i = 0; i < section->count && status == IS_FINE; i++) {
        RawRecord record;
        status = read_next(&at, section, &least_delta, &record);
        if (status != IS_FINE)
            break;
        int64_t offset = section->base_offset + record.offset_delta;
        if (section->start <= offset && offset < section->stop)
            status = take_row(set, section, &record, offset);
        else if (record.header_count > 0)
            status = take_headers(set, &record, 0);
    }
    return status == IS_FINE && at != section->end ? IS_ODD : status;
}

/* All rows of a section without headers; IS_ODD also if a record has some. Write positions are in local variables:
   through the set, the compiler must assume that each write changes each pointer, and a row took 1.5 times as
   long. */
static int
take_all_rows(ColumnSet *set, const Section *section)
{
    const uint8_t *at = section->at;
    int64_t rows = set->row_count, least_delta = 0;
    int64_t *offsets = set->wanted & WANTS_OFFSET ? (int64_t *)set->offset.bytes + rows : NULL;
    int64_t *timestamps = set->wanted & WANTS_TIMESTAMP ? (int64_t *)set->timestamp.bytes + rows : NULL;
    int32_t *header_ends = set->wanted & WANTS_HEADERS ? (int32_t *)set->header_ends.bytes + rows + 1 : NULL;
    int32_t header_end = (int32_t)set->header_count;
    Place key = place_of(&set->key, rows, set->wanted & WANTS_KEY);
    Place value = place_of(&set->value, rows, set->wanted & WANTS_VALUE);
    for (int32_t i = 0; i < section->count; i++) {
        RawRecord record;
        if (read_next(&at, section, &least_delta, &record) != IS_FINE || record.header_count > 0)
            return IS_ODD;
        if (offsets != NULL)
            offsets[i] = section->base_offset + record.offset_delta;
        if (timestamps != NULL)
            timestamps[i] = section->has_append_time ? section->append_time
                                                     : add_wrapping(section->base_timestamp, record.timestamp_delta);
        if (key.ends != NULL && put(&key, i, record.key, section->end) && note_null(&set->key, rows + i) < 0)
            return NO_MEMORY;
        if (value.ends != NULL && put(&value, i, record.value, section->end) && note_null(&set->value, rows + i) < 0)
            return NO_MEMORY;
        if (header_ends != NULL)
            header_ends[i] = header_end;
    }
    if (set->wanted & WANTS_TIMESTAMP_TYPE)
        for (int32_t i = 0; i < section->count; i++)
            ((int32_t *)set->timestamp_type.bytes)[rows + i] = section->timestamp_type;
    set->row_count = rows + section->count;
    return at == section->end ? IS_FINE : IS_ODD;
}

/* Append the rows of a section. Unless IS_FINE the columns are as they were before. */
static int
take_section(ColumnSet *set, const Section *section)
{
    int64_t rows = set->row_count;
    if (section->count > (section->end - section->at) / MIN_RECORD_BYTES)
        return IS_ODD;
    int status = make_room(set, section->count, section->end - section->at);
    if (status != IS_FINE)
        return status;
    status = IS_ODD;
    if (section->start <= section->base_offset && section->base_offset + section->last_offset_delta < section->stop)
        status = take_all_rows(set, section);
    if (status == IS_ODD) {
        forget_rows(set, rows, section->count);
        status = take_some_rows(set, section);
    }
    if (status != IS_FINE)
        forget_rows(set, rows, section->count);
    return status;
}

/* Batches ---------------------------------------------------------------------------------------------------- */

/* A pass over the batches of a buffer. */
typedef struct {
    const uint8_t *bytes;
    int64_t position;      /* of the next batch */
    int64_t end;           /* of the bytes in the buffer */
    int64_t segment_end;   /* of the segment, as a position in the buffer or after it */
    int64_t next_segment;  /* the first offset after the segment */
    int64_t previous_last; /* the last offset of the batch before */
    int64_t start;
    int64_t stop;
    int64_t row_limit;
    int64_t byte_limit;
    int avoids_transactions; /* a transactional batch is unusual */
} Pass;

/* The fields of a header, and where the next batch begins. */
typedef struct {
    const uint8_t *at;
    int64_t size;
    int64_t base_offset;
    int64_t last_offset;
    int64_t next_base;
    int32_t last_offset_delta;
    int32_t count;
    int16_t attributes;
} Header;

static int
read_batch_header(const Pass *pass, Header *header)
{
    const uint8_t *at = pass->bytes + pass->position;
    int64_t left = pass->end - pass->position;
    if (left < HEADER_BYTES)
        return ENDED;
    int64_t length = read_int32(at + BATCH_LENGTH_AT);
    if (at[MAGIC_AT] != 2 || length < HEADER_BYTES - LENGTH_OVERHEAD_BYTES)
        return IS_ODD;
    header->at = at;
    header->size = length + LENGTH_OVERHEAD_BYTES;
    header->base_offset = read_int64(at + BASE_OFFSET_AT);
    header->last_offset_delta = read_int32(at + LAST_OFFSET_DELTA_AT);
    header->attributes = read_int16(at + ATTRIBUTES_AT);
    header->count = read_int32(at + RECORD_COUNT_AT);
    if (header->base_offset < 0 || header->last_offset_delta < 0 ||
        header->base_offset >= INT64_MAX - header->last_offset_delta)
        return IS_ODD;
    header->last_offset = header->base_offset + header->last_offset_delta;
    if (header->size > left)
        return ENDED;
    if (pass->segment_end - pass->position - header->size <= MAGIC_AT) /* too little for another batch */
        header->next_base = pass->next_segment;
    else if (left - header->size < 8)
        return ENDED;
    else
        header->next_base = read_int64(at + header->size + BASE_OFFSET_AT);
    return IS_FINE;
}

/* The checksum does not cover the offsets, so they are checked against the neighbours. */
static inline int
is_in_place(const Pass *pass, const Header *header)
{
    return pass->previous_last < header->base_offset && header->last_offset < header->next_base;
}

static int
take_records(ColumnSet *set, const Pass *pass, const Header *header)
{
    Section section = {
        .at = header->at + HEADER_BYTES,
        .end = header->at + header->size,
        .base_offset = header->base_offset,
        .base_timestamp = read_int64(header->at + BASE_TIMESTAMP_AT),
        .append_time = read_int64(header->at + MAX_TIMESTAMP_AT),
        .start = pass->start,
        .stop = pass->stop,
        .last_offset_delta = header->last_offset_delta,
        .count = header->count,
        .has_append_time = header->attributes & TIMESTAMP_TYPE_BIT,
        .timestamp_type = header->attributes & TIMESTAMP_TYPE_BIT ? 1 : 0,
    };
    return take_section(set, &section);
}

/* Whether the rows of a batch may pass a limit. At least one batch is taken. */
static inline int
is_too_much(const ColumnSet *set, const Pass *pass, int64_t rows, int64_t bytes)
{
    return set->row_count > 0 &&
           (set->row_count + rows > pass->row_limit || used_bytes(set) + bytes > pass->byte_limit);
}

/* Process the batch at the pass's position; IS_FINE if the pass may continue after it. */
static int
take_batch(ColumnSet *set, const Pass *pass, const Header *header)
{
    if (header->base_offset >= pass->stop)
        return IS_DONE;
    if (header->next_base <= pass->start)
        return IS_FINE; /* none of its rows are wanted, so nothing more is checked */
    if (header->attributes & CODEC_MASK || !has_possible_count(header->at, header->size))
        return IS_ODD;
    if (header->attributes & TRANSACTIONAL_BIT && pass->avoids_transactions)
        return IS_ODD;
    int has_rows = header->last_offset >= pass->start && !(header->attributes & CONTROL_BIT) && header->count > 0;
    if (has_rows && is_too_much(set, pass, header->count, header->size))
        return IS_FULL;
    if (!has_right_checksum(header->at, header->size))
        return IS_ODD;
    return has_rows ? take_records(set, pass, header) : IS_FINE;
}

static int
take_batches(ColumnSet *set, Pass *pass)
{
    for (;;) {
        Header header;
        int status = read_batch_header(pass, &header);
        if (status == IS_FINE)
            status = is_in_place(pass, &header) ? take_batch(set, pass, &header) : IS_ODD;
        if (status != IS_FINE)
            return status;
        pass->position += header.size;
        pass->previous_last = header.last_offset;
        if (header.last_offset >= pass->stop - 1)
            return IS_DONE;
    }
}

enum { MOST_UNUSED_BYTES = 32 << 10 };

/* Buffers: memory that Python objects export ----------------------------------------------------------------- */

typedef struct {
    PyObject_HEAD
    uint8_t *bytes;
    Py_ssize_t size;
    int64_t capacity;
    Columns *columns; /* which created it, */
    Memory *home;     /* and the memory in there that the bytes go back to */
} Buffer;

static void
buffer_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    Buffer *buffer = (Buffer *)self;
    if (buffer->home != NULL)
        take_back(buffer->home, buffer->bytes, buffer->capacity);
    Py_XDECREF((PyObject *)buffer->columns);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static int
buffer_getbuffer(PyObject *self, Py_buffer *view, int flags)
{
    Buffer *buffer = (Buffer *)self;
    return PyBuffer_FillInfo(view, self, buffer->bytes, buffer->size, 1, flags);
}

static PyType_Slot buffer_slots[] = {
    {Py_tp_dealloc, buffer_dealloc},
    {Py_bf_getbuffer, buffer_getbuffer},
    {Py_tp_doc, "Memory of a column, read-only."},
    {0, NULL},
};

static PyType_Spec buffer_spec = {
    .name = "logstore._compiled.Buffer",
    .basicsize = sizeof(Buffer),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = buffer_slots,
};

static void
shrink(Memory *memory, int64_t capacity)
{
    if (memory->capacity - capacity < MOST_UNUSED_BYTES)
        return;
    uint8_t *bytes = realloc(memory->bytes, (size_t)capacity);
    if (bytes == NULL)
        return;
    memory->bytes = bytes;
    memory->capacity = capacity;
}

/* A new Buffer that takes over the first size bytes of a memory of these columns. */
static PyObject *
hand_over(ModuleState *state, Columns *columns, Memory *memory, int64_t size)
{
    allocfunc allocate = (allocfunc)PyType_GetSlot(state->buffer_type, Py_tp_alloc);
    Buffer *buffer = (Buffer *)allocate(state->buffer_type, 0); /* all zero */
    if (buffer == NULL)
        return NULL;
    memory->usual = memory->asked + memory->asked / 16;
    shrink(memory, size > memory->asked / 2 ? memory->usual : size + 1);
    buffer->bytes = memory->bytes;
    buffer->size = (Py_ssize_t)size;
    buffer->capacity = memory->capacity;
    buffer->columns = (Columns *)Py_NewRef((PyObject *)columns);
    buffer->home = memory;
    memory->bytes = NULL;
    memory->capacity = 0;
    memory->asked = 0;
    return (PyObject *)buffer;
}

/* (null count, validity or None, ends, data) of a column. */
static PyObject *
hand_over_binary(ModuleState *state, Columns *columns, BinaryColumn *column, int64_t rows)
{
    PyObject *validity = NULL, *ends = NULL, *data = NULL, *result = NULL;
    int64_t data_size = ends_at(column, rows);
    if (column->null_count == 0)
        validity = Py_NewRef(Py_None);
    else if (reserve_validity(column, rows) < 0)
        return PyErr_NoMemory();
    else
        validity = hand_over(state, columns, &column->validity, (rows + 7) / 8);
    if (validity != NULL)
        ends = hand_over(state, columns, &column->ends, (rows + 1) * 4);
    if (ends != NULL)
        data = hand_over(state, columns, &column->data, data_size);
    if (data != NULL)
        result = Py_BuildValue("(LOOO)", (long long)column->null_count, validity, ends, data);
    Py_XDECREF(validity);
    Py_XDECREF(ends);
    Py_XDECREF(data);
    return result;
}

/* Columns: the object ---------------------------------------------------------------------------------------- */

static int64_t
spare_bytes(const Memory *memory)
{
    int64_t size = 0;
    for (int i = 0; i < SPARE_COUNT; i++)
        size += memory->spare_capacities[i];
    return size;
}

static int64_t
spare_bytes_of_binary(const BinaryColumn *column)
{
    return spare_bytes(&column->ends) + spare_bytes(&column->data) + spare_bytes(&column->validity);
}

typedef void (*EachMemory)(Memory *);

static void
for_each_of_binary(BinaryColumn *column, EachMemory action)
{
    action(&column->ends);
    action(&column->data);
    action(&column->validity);
}

static void
for_each_memory(ColumnSet *set, EachMemory action)
{
    action(&set->offset);
    action(&set->timestamp);
    action(&set->timestamp_type);
    action(&set->header_ends);
    for_each_of_binary(&set->key, action);
    for_each_of_binary(&set->value, action);
    for_each_of_binary(&set->header_key, action);
    for_each_of_binary(&set->header_value, action);
}

static void
free_bytes(Memory *memory)
{
    free(memory->bytes);
    memory->bytes = NULL;
    memory->capacity = 0;
}

/* Keep the memory that was not handed over as a spare. */
static void
let_go(Memory *memory)
{
    take_back(memory, memory->bytes, memory->capacity);
    memory->bytes = NULL;
    memory->capacity = 0;
}

static void
free_spares(Memory *memory)
{
    for (int i = 0; i < SPARE_COUNT; i++)
        free(memory->spares[i]);
}

/* Old bits would make new rows null. */
static void
set_all_bits(Memory *memory)
{
    if (memory->bytes != NULL)
        memset(memory->bytes, 0xFF, (size_t)memory->capacity);
}

/* Forget every row; frees the memory that was not handed over. */
static void
start_over(ColumnSet *set)
{
    for_each_memory(set, free_bytes);
    set->key.null_count = set->value.null_count = set->header_key.null_count = set->header_value.null_count = 0;
    set->row_count = set->header_count = 0;
    for_each_memory(set, take_spare);
    set_all_bits(&set->key.validity);
    set_all_bits(&set->value.validity);
    set_all_bits(&set->header_key.validity);
    set_all_bits(&set->header_value.validity);
}

/* For columns without rows, whose memory was freed. */
static int64_t
all_spare_bytes(const ColumnSet *set)
{
    return spare_bytes(&set->offset) + spare_bytes(&set->timestamp) + spare_bytes(&set->timestamp_type) +
           spare_bytes(&set->header_ends) + spare_bytes_of_binary(&set->key) + spare_bytes_of_binary(&set->value) +
           spare_bytes_of_binary(&set->header_key) + spare_bytes_of_binary(&set->header_value);
}

/* Freed columns leave their spares, up to this size, to the next ones with the same fields: a read of 250,000
   records took 1.4 times as long with new pages. */
enum { MOST_KEPT_BYTES = 16 << 20 };

void
free_spare_columns(ModuleState *state)
{
    if (state->spare_columns != NULL)
        for_each_memory(state->spare_columns, free_spares);
    free(state->spare_columns);
    state->spare_columns = NULL;
}

/* Takes the spares, if there are any. */
static int
keep_spares(ModuleState *state, const ColumnSet *set)
{
    int64_t size = all_spare_bytes(set);
    if (state == NULL || size == 0 || size > MOST_KEPT_BYTES)
        return 0;
    free_spare_columns(state);
    state->spare_columns = malloc(sizeof(ColumnSet));
    if (state->spare_columns == NULL)
        return 0;
    *state->spare_columns = *set;
    return 1;
}

static void
take_spares(ModuleState *state, ColumnSet *set)
{
    if (state == NULL || state->spare_columns == NULL || state->spare_columns->wanted != set->wanted)
        return;
    *set = *state->spare_columns;
    free(state->spare_columns);
    state->spare_columns = NULL;
    start_over(set);
}

static PyObject *
columns_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    int wanted;
    (void)keywords;
    if (!PyArg_ParseTuple(args, "i", &wanted))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Columns *columns = (Columns *)allocate(type, 0); /* all zero */
    if (columns == NULL)
        return NULL;
    columns->set.wanted = wanted;
    take_spares(PyType_GetModuleState(type), &columns->set);
    return (PyObject *)columns;
}

static void
columns_dealloc(PyObject *self)
{
    PyTypeObject *type = Py_TYPE(self);
    ColumnSet *set = &((Columns *)self)->set;
    for_each_memory(set, let_go);
    if (!keep_spares(PyType_GetModuleState(type), set))
        for_each_memory(set, free_spares);
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static int
begin(Columns *columns)
{
    if (columns->is_busy) {
        PyErr_SetString(PyExc_RuntimeError, "another thread is filling these columns");
        return -1;
    }
    return 0;
}

static int
is_inside(const Py_buffer *view, int64_t position, int64_t end)
{
    return position >= 0 && position <= end && end <= view->len;
}

static PyObject *
columns_take_batches(PyObject *self, PyObject *args)
{
    Columns *columns = (Columns *)self;
    Py_buffer view;
    long long position, end, segment_end, next_segment, previous_last, start, stop, row_limit, byte_limit;
    int avoids_transactions, status;
    if (begin(columns) < 0 ||
        !PyArg_ParseTuple(args, "y*LLLLLLLLLp", &view, &position, &end, &segment_end, &next_segment,
                          &previous_last, &start, &stop, &row_limit, &byte_limit, &avoids_transactions))
        return NULL;
    if (!is_inside(&view, position, end)) {
        PyBuffer_Release(&view);
        PyErr_SetString(PyExc_ValueError, "a range outside of the buffer");
        return NULL;
    }
    Pass pass = {view.buf, position, end,        segment_end, next_segment,        previous_last,
                 start,    stop,     row_limit,  byte_limit,  avoids_transactions};
    columns->is_busy = 1;
    if (end - position < MIN_BYTES_WITHOUT_GIL)
        status = take_batches(&columns->set, &pass);
    else {
        Py_BEGIN_ALLOW_THREADS
        status = take_batches(&columns->set, &pass);
        Py_END_ALLOW_THREADS
    }
    columns->is_busy = 0;
    PyBuffer_Release(&view);
    if (status == NO_MEMORY)
        return PyErr_NoMemory();
    return Py_BuildValue("(iLL)", status, (long long)pass.position, (long long)pass.previous_last);
}

static PyObject *
columns_take_section(PyObject *self, PyObject *args)
{
    Columns *columns = (Columns *)self;
    Py_buffer view;
    long long position, end, base_offset, base_timestamp, append_time, start, stop;
    int count, last_offset_delta, has_append_time, status;
    if (begin(columns) < 0 ||
        !PyArg_ParseTuple(args, "y*LLiLLpLiLL", &view, &position, &end, &count, &base_offset, &base_timestamp,
                          &has_append_time, &append_time, &last_offset_delta, &start, &stop))
        return NULL;
    status = IS_ODD;
    if (is_inside(&view, position, end) && base_offset >= 0 && count >= 0 && last_offset_delta >= 0 &&
        base_offset < INT64_MAX - last_offset_delta) {
        Section section = {(const uint8_t *)view.buf + position,
                           (const uint8_t *)view.buf + end,
                           base_offset,
                           base_timestamp,
                           append_time,
                           start,
                           stop,
                           last_offset_delta,
                           count,
                           has_append_time,
                           has_append_time};
        columns->is_busy = 1;
        if (end - position < MIN_BYTES_WITHOUT_GIL)
            status = take_section(&columns->set, &section);
        else {
            Py_BEGIN_ALLOW_THREADS
            status = take_section(&columns->set, &section);
            Py_END_ALLOW_THREADS
        }
        columns->is_busy = 0;
    }
    PyBuffer_Release(&view);
    return status == NO_MEMORY ? PyErr_NoMemory() : PyBool_FromLong(status == IS_FINE);
}

/* The bytes of a payload, which is bytes or None. */
static int
payload_of(PyObject *object, Span *span)
{
    char *bytes = NULL;
    Py_ssize_t size = -1;
    if (object != Py_None && PyBytes_AsStringAndSize(object, &bytes, &size) < 0)
        return -1;
    if (size > INT32_MAX) {
        PyErr_SetString(PyExc_OverflowError, "a payload of more than 2 GiB");
        return -1;
    }
    span->bytes = (const uint8_t *)bytes;
    span->size = (int32_t)size;
    return 0;
}

static int
append_header(ColumnSet *set, PyObject *header)
{
    PyObject *key, *value;
    Span span;
    Py_ssize_t key_size;
    if (!PyArg_ParseTuple(header, "UO", &key, &value) || payload_of(value, &span) < 0)
        return -1;
    const char *text = PyUnicode_AsUTF8AndSize(key, &key_size);
    if (text == NULL)
        return -1;
    int64_t room = (int64_t)key_size + (span.size > 0 ? span.size : 0);
    if (make_room(set, 0, room) != IS_FINE || reserve_headers(set, 1, room) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    append_payload(&set->header_key, set->header_count, (const uint8_t *)text, (int32_t)key_size);
    if (append_payload(&set->header_value, set->header_count++, span.bytes, span.size) < 0) {
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

/* Appends one record; with an exception, nothing. */
static int
append_fields(ColumnSet *set, int64_t offset, int64_t timestamp, PyObject *key, PyObject *value, PyObject *headers,
              int32_t timestamp_type)
{
    RawRecord record = {0};
    if (payload_of(key, &record.key) < 0 || payload_of(value, &record.value) < 0)
        return -1;
    int64_t rows = set->row_count;
    Py_ssize_t count = set->wanted & WANTS_HEADERS ? PyTuple_Size(headers) : 0;
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *header = PyTuple_GetItem(headers, i);
        if (header == NULL || append_header(set, header) < 0) {
            forget_rows(set, rows, 1);
            return -1;
        }
    }
    Section section = {.append_time = timestamp, .has_append_time = 1, .timestamp_type = timestamp_type};
    int64_t room = (int64_t)(key == Py_None ? 0 : record.key.size) + (value == Py_None ? 0 : record.value.size);
    if (make_room(set, 1, room) != IS_FINE || take_row(set, &section, &record, offset) != IS_FINE) {
        forget_rows(set, rows, 1);
        PyErr_NoMemory();
        return -1;
    }
    return 0;
}

static PyObject *
columns_append_row(PyObject *self, PyObject *args)
{
    long long offset, timestamp;
    int timestamp_type = 0;
    PyObject *key, *value, *headers;
    if (begin((Columns *)self) < 0 ||
        !PyArg_ParseTuple(args, "LLOOO!|i", &offset, &timestamp, &key, &value, &PyTuple_Type, &headers,
                          &timestamp_type) ||
        append_fields(&((Columns *)self)->set, offset, timestamp, key, value, headers, timestamp_type) < 0)
        return NULL;
    Py_RETURN_NONE;
}

/* Appends a list of records that are not on demand. If one raises, those before it stay. */
static PyObject *
columns_append_records(PyObject *self, PyObject *records)
{
    const ModuleState *state = PyType_GetModuleState(Py_TYPE(self));
    if (begin((Columns *)self) < 0)
        return NULL;
    if (!PyList_Check(records)) {
        PyErr_SetString(PyExc_TypeError, "a list of records is wanted");
        return NULL;
    }
    for (Py_ssize_t number = 0; number < PyList_Size(records); number++) {
        PyObject *object = PyList_GetItem(records, number);
        if (object == NULL || Py_TYPE(object) != state->record_type) {
            PyErr_SetString(PyExc_TypeError, "a list of records is wanted");
            return NULL;
        }
        const Record *record = (const Record *)object;
        if (append_fields(&((Columns *)self)->set, record->offset, record->timestamp_ms, record->key, record->value,
                          record->headers, 0) < 0)
            return NULL;
    }
    Py_RETURN_NONE;
}

static PyObject *
hand_over_numbers(ModuleState *state, Columns *columns, int field, Memory *memory, int64_t size)
{
    return columns->set.wanted & field ? hand_over(state, columns, memory, size) : Py_NewRef(Py_None);
}

static PyObject *
hand_over_payloads(ModuleState *state, Columns *columns, int field, BinaryColumn *column, int64_t rows)
{
    return columns->set.wanted & field ? hand_over_binary(state, columns, column, rows) : Py_NewRef(Py_None);
}

static PyObject *
columns_finish(PyObject *self, PyObject *args)
{
    Columns *columns = (Columns *)self;
    ColumnSet *set = &columns->set;
    ModuleState *state = PyType_GetModuleState(Py_TYPE(self));
    (void)args;
    if (state == NULL || begin(columns) < 0)
        return NULL;
    int64_t rows = set->row_count, headers = set->header_count;
    if (reserve_rows(set, 0, 0) < 0 || (set->wanted & WANTS_HEADERS && reserve_headers(set, 0, 0) < 0))
        return PyErr_NoMemory();
    PyObject *result = Py_BuildValue(
        "(LNNNNLNNNN)", (long long)rows, hand_over_numbers(state, columns, WANTS_OFFSET, &set->offset, rows * 8),
        hand_over_numbers(state, columns, WANTS_TIMESTAMP, &set->timestamp, rows * 8),
        hand_over_payloads(state, columns, WANTS_KEY, &set->key, rows),
        hand_over_payloads(state, columns, WANTS_VALUE, &set->value, rows), (long long)headers,
        hand_over_numbers(state, columns, WANTS_HEADERS, &set->header_ends, (rows + 1) * 4),
        hand_over_payloads(state, columns, WANTS_HEADERS, &set->header_key, headers),
        hand_over_payloads(state, columns, WANTS_HEADERS, &set->header_value, headers),
        hand_over_numbers(state, columns, WANTS_TIMESTAMP_TYPE, &set->timestamp_type, rows * 4));
    start_over(set);
    return result;
}

static PyObject *
columns_row_count(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLongLong(((Columns *)self)->set.row_count);
}

static PyObject *
columns_used_bytes(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLongLong(used_bytes(&((Columns *)self)->set));
}

static PyGetSetDef columns_properties[] = {
    {"row_count", columns_row_count, NULL, "Rows so far.", NULL},
    {"used_bytes", columns_used_bytes, NULL, "Bytes of the columns so far.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyMethodDef columns_methods[] = {
    {"take_batches", columns_take_batches, METH_VARARGS, "See column_buffers.PlainColumns."},
    {"take_section", columns_take_section, METH_VARARGS, "See column_buffers.PlainColumns."},
    {"append_row", columns_append_row, METH_VARARGS, "See column_buffers.PlainColumns."},
    {"append_records", columns_append_records, METH_O, "See column_buffers.PlainColumns."},
    {"finish", columns_finish, METH_NOARGS, "See column_buffers.FinishedBuffers."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot columns_slots[] = {
    {Py_tp_new, columns_new},
    {Py_tp_dealloc, columns_dealloc},
    {Py_tp_methods, columns_methods},
    {Py_tp_getset, columns_properties},
    {Py_tp_doc, "Columns of records that grow. See column_buffers.PlainColumns."},
    {0, NULL},
};

static PyType_Spec columns_spec = {
    .name = "logstore._compiled.Columns",
    .basicsize = sizeof(Columns),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = columns_slots,
};

int
add_columns_decode(PyObject *module)
{
    ModuleState *state = module_state(module);
    state->buffer_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &buffer_spec, NULL);
    if (state->buffer_type == NULL)
        return -1;
    PyObject *columns_type = PyType_FromModuleAndSpec(module, &columns_spec, NULL);
    if (columns_type == NULL)
        return -1;
    int failed = PyModule_AddObjectRef(module, "Columns", columns_type);
    Py_DECREF(columns_type);
    return failed;
}
