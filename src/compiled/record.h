/* The record types: record.c creates records, rows.c fills them. */

#ifndef LOGSTORE_RECORD_H
#define LOGSTORE_RECORD_H

#include "compiled.h"
#include "reader.h"

/* What the records of a batch share: where they were read, and the header's values for each. Reference-counted like
   Python's objects, under the GIL, but not one of them: it holds only a str and an int, so it cannot be in a cycle. */
typedef struct RecordSource {
    Py_ssize_t reference_count;
    ModuleState *state;     /* of a source that find_source made, else NULL */
    PyObject *topic;        /* str, or NULL */
    PyObject *partition;    /* int, or NULL */
    int32_t leader_epoch;   /* -1: none */
    int32_t timestamp_type; /* a TimestampType */
} RecordSource;

enum { NO_LEADER_EPOCH = -1, NO_TIMESTAMP_TYPE = -1 };

/* Immutable, 64 bytes, not tracked by the collector. In an on-demand record key, value and headers are NULL until
   their first use. */
typedef struct Record {
    PyObject_HEAD
    int64_t offset;
    int64_t timestamp_ms;
    PyObject *key;
    PyObject *value;
    PyObject *headers;
    RecordSource *source; /* NULL for a record made by hand without one */
} Record;

/* Memory of dead records that is kept for new ones: the size of one list as Log.read passes it on (64 KiB of the
   log). Saves the allocator's work, 7 % of the time of reading. The GIL guards it. None under a sanitizer, which
   could not see the use of a dead record. */
#if defined(__SANITIZE_ADDRESS__)
enum { MAX_SPARE_RECORDS = 0 };
#else
enum { MAX_SPARE_RECORDS = 2048 };
#endif

/* The source of key, value and headers: bytes in section, which the record holds. */
typedef struct {
    Record record;
    PyObject *section;
    const uint8_t *key_at;
    const uint8_t *stop;
} OnDemandRecord;

/* Bytes as a Python object, None for null. */
static inline PyObject *
span_object(Span span)
{
    if (span.size < 0)
        return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)span.bytes, span.size);
}

/* Memory with the type of a record in it, a new reference: a dead record's, or new. NULL with the exception. */
static inline Record *
place_for_record(ModuleState *state)
{
    Record *record = state->spare_records;
    if (record == NULL) {
        record = PyObject_Malloc(sizeof(Record));
        return record == NULL ? (Record *)PyErr_NoMemory()
                              : (Record *)PyObject_Init((PyObject *)record, state->record_type);
    }
    state->spare_records = (Record *)record->key;
    state->spare_record_count--;
    Py_SET_REFCNT((PyObject *)record, 1);
    Py_INCREF((PyObject *)state->record_type);
    return record;
}

/* A borrowed reference to a new source, which replaces the last one. NULL with the exception. */
RecordSource *renew_source(ModuleState *state, PyObject *partition, int32_t leader_epoch, int timestamp_type);

void drop_source(RecordSource *source);

/* A new reference to the source of records that are read from a partition, a TopicPartition or None: usually the one
   of the batch before. NULL with the exception. */
static inline RecordSource *
find_source(ModuleState *state, PyObject *partition, int32_t leader_epoch, int timestamp_type)
{
    RecordSource *source = state->last_source;
    if (source == NULL || state->last_partition != partition || source->leader_epoch != leader_epoch ||
        source->timestamp_type != timestamp_type)
        source = renew_source(state, partition, leader_epoch, timestamp_type);
    if (source != NULL)
        source->reference_count++;
    return source;
}

static inline void
release_source(RecordSource *source)
{
    if (source != NULL && --source->reference_count == 0)
        drop_source(source);
}

/* Like find_source, for the batch of magic 2 whose header is at a place. */
static inline RecordSource *
find_batch_source(ModuleState *state, PyObject *partition, const uint8_t *at)
{
    return find_source(state, partition, read_int32(at + LEADER_EPOCH_AT),
                       (read_int16(at + ATTRIBUTES_AT) & TIMESTAMP_TYPE_BIT) != 0);
}

/* A new reference to a record with its fields. Steals key, value and headers (none of them NULL), even if it fails.
   The source comes from find_source. */
static inline PyObject *
make_record(RecordSource *source, int64_t offset, int64_t timestamp_ms, PyObject *key, PyObject *value,
            PyObject *headers)
{
    Record *record = place_for_record(source->state);
    if (record == NULL) {
        Py_DECREF(key);
        Py_DECREF(value);
        Py_DECREF(headers);
        return NULL;
    }
    record->offset = offset;
    record->timestamp_ms = timestamp_ms;
    record->key = key;
    record->value = value;
    record->headers = headers;
    record->source = source;
    source->reference_count++;
    return (PyObject *)record;
}

/* A record whose key begins (with its size) at key_at and whose headers end at stop, both inside of section, a
   bytes object; all three were found right before. */
static inline PyObject *
make_on_demand_record(RecordSource *source, int64_t offset, int64_t timestamp_ms, PyObject *section,
                      const uint8_t *key_at, const uint8_t *stop)
{
    OnDemandRecord *record = PyObject_Malloc(sizeof(OnDemandRecord));
    if (record == NULL)
        return PyErr_NoMemory();
    record->record.offset = offset;
    record->record.timestamp_ms = timestamp_ms;
    record->record.key = record->record.value = record->record.headers = NULL;
    record->record.source = source;
    source->reference_count++;
    record->section = Py_NewRef(section);
    record->key_at = key_at;
    record->stop = stop;
    return PyObject_Init((PyObject *)record, source->state->on_demand_record_type);
}

/* Headers repeat from record to record: names nearly always, values often, all of them together sometimes. Objects
   made for one record of a call are used again for the next. */

enum { KNOWN_HEADERS = 16 };

typedef struct {
    Span name;
    Span value; /* of the last header of that name */
    PyObject *text;
    PyObject *pair;
} KnownHeader;

/* Started when a call begins; cleared when it ends. Bytes passed to it must stay valid. */
typedef struct {
    ModuleState *state;
    PyObject *last_headers;
    Span last_bytes;
    int known_count;
    KnownHeader known[KNOWN_HEADERS]; /* so many of them */
} HeaderCache;

static inline void
begin_header_cache(HeaderCache *cache, ModuleState *state)
{
    cache->state = state;
    cache->last_headers = NULL;
    cache->known_count = 0;
}

/* The headers of a record that has some: a tuple of (str, bytes or None). NULL, perhaps with an exception, if they
   are damaged. */
PyObject *find_headers(HeaderCache *cache, const RawRecord *raw);
void clear_header_cache(HeaderCache *cache);

/* The record that was read; NULL, perhaps with an exception, if its headers are damaged. */
static inline PyObject *
record_of_raw(HeaderCache *cache, RecordSource *source, const RawRecord *raw, int64_t offset, int64_t timestamp_ms)
{
    PyObject *headers =
        raw->header_count == 0 ? Py_NewRef(cache->state->empty_tuple) : find_headers(cache, raw);
    if (headers == NULL)
        return NULL;
    PyObject *key = span_object(raw->key);
    PyObject *value = key == NULL ? NULL : span_object(raw->value);
    if (value == NULL) {
        Py_XDECREF(key);
        Py_DECREF(headers);
        return NULL;
    }
    return make_record(source, offset, timestamp_ms, key, value, headers);
}

/* The same on demand, but completely checked now; the record was read from section, a bytes object. */
static inline PyObject *
on_demand_record_of_raw(RecordSource *source, const RawRecord *raw, int64_t offset, int64_t timestamp_ms,
                        PyObject *section)
{
    if (raw->header_count > 0 && check_headers(raw) < 0)
        return NULL;
    return make_on_demand_record(source, offset, timestamp_ms, section, raw->key_at, raw->stop);
}

#endif
