/* Runs of ordinary batches, which lookup.c walks; it also says what ordinary means. */

#ifndef LOGSTORE_RUN_H
#define LOGSTORE_RUN_H

#include "batch.h"
#include "compiled.h"
#include "reader.h"

enum {
    MAX_BATCHES = 512,          /* of one run */
    LONG_WORK_BYTES = 16 * 1024 /* from here on a checksum takes more than some microseconds */
};

typedef struct {
    const uint8_t *at;
    const uint8_t *stop;
    int64_t base_offset;
    int64_t last_offset;
    int64_t previous_last; /* of the batch before it */
    int32_t attributes;
    int32_t record_count;
} Batch;

/* The base offset of what follows a batch that ends at stop: that of the next one; or next_segment if no batch can
   follow, because the buffer is the last of its segment. -1 if the buffer does not show it. */
static inline int64_t
base_behind(const uint8_t *stop, const uint8_t *end, int64_t next_segment)
{
    if (end - stop >= PREFIX_BYTES)
        return read_int64(stop);
    return stop == end ? next_segment : -1;
}

/* How the records of a batch get their offset and timestamp. */
typedef struct {
    int64_t base_offset;
    int64_t base_timestamp_ms;
    int64_t append_time_ms;
    int is_append_time;
} Base;

static inline Base
base_of(const Batch *batch)
{
    Base base = {batch->base_offset, read_int64(batch->at + BASE_TIMESTAMP_AT),
                 read_int64(batch->at + MAX_TIMESTAMP_AT), (batch->attributes & TIMESTAMP_TYPE_BIT) != 0};
    return base;
}

static inline int64_t
timestamp_of(const Base *base, const RawRecord *raw)
{
    return base->is_append_time ? base->append_time_ms
                                : add_wrapping(base->base_timestamp_ms, raw->timestamp_delta);
}

/* Why a run ends. A test compares these with the names in loops. */
typedef enum {
    RUN_FULL = 0, /* as many bytes as asked for */
    RUN_CUT = 1,  /* the buffer ends before the next batch does, or does not show what follows it */
    RUN_ODD = 2,  /* something unusual follows */
    RUN_DONE = 3  /* nothing after it is below stop */
} RunEnd;

typedef struct {
    const uint8_t *begin; /* of the buffer */
    const uint8_t *end;
    int64_t next_segment;
    int64_t previous_last;
    int64_t start;
    int64_t stop;
    Py_ssize_t limit_bytes;
    int is_filtering;
    int is_whole_only; /* a batch that reaches beyond start or stop is odd */
    PyObject *section;   /* of records that are made on demand, else NULL */
    PyObject *partition; /* where they are read: a TopicPartition or None */
    const uint8_t *at;
    int batch_count;
    Batch batches[MAX_BATCHES];
} Run;

/* The arguments buffer, position, previous_last, next_segment, start, stop, limit_bytes, is_filtering. NULL with the
   exception; otherwise free it with PyMem_Free, and release the buffer. */
Run *begin_run(PyObject *const *arguments, Py_buffer *buffer);

/* Takes ordinary batches and moves past them; lets other threads run meanwhile. */
RunEnd walk_run(Run *run);

/* Ends the run before the batch with this number, with RUN_ODD. */
void end_run_before(Run *run, int number);

/* (found, position, previous_last, why), which takes the reference to found. */
PyObject *run_result(const Run *run, PyObject *found, RunEnd why);

#endif
