/* Columns that grow: memory in Apache Arrow's layout. Nothing here touches a Python object. */

#ifndef LOGSTORE_COLUMN_SET_H
#define LOGSTORE_COLUMN_SET_H

#include "compiled.h" /* first: the system's headers depend on it */
#include <stdlib.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

/* Memory from malloc, which needs no GIL. Reserved memory that is never written takes no page.

   New pages cost more than everything else: the kernel clears each. So blocks that were handed out come back as
   spares when their reader is done with them, and large blocks ask for large pages. Spares are only touched with
   the GIL held. */
enum { SPARE_COUNT = 2, LARGE_BYTES = 4 << 20 };

typedef struct {
    uint8_t *bytes;
    int64_t capacity;
    int64_t asked; /* the most that was reserved since the columns began */
    int64_t usual; /* a little more than the last time: the least to begin with */
    uint8_t *spares[SPARE_COUNT];
    int64_t spare_capacities[SPARE_COUNT];
} Memory;

/* Payloads one after another. Row i is data[ends[i]:ends[i + 1]], and null if its bit in validity is 0. */
typedef struct {
    Memory ends; /* int32, one more than rows */
    Memory data;
    Memory validity; /* none as long as no row is null */
    int64_t null_count;
} BinaryColumn;

/* The wanted fields. column_buffers.py has the same numbers; a test compares. */
enum { WANTS_OFFSET = 1, WANTS_TIMESTAMP = 2, WANTS_KEY = 4, WANTS_VALUE = 8, WANTS_HEADERS = 16, WANTS_TIMESTAMP_TYPE = 32 };

typedef struct ColumnSet {
    int wanted; /* what is not wanted has no memory */
    int64_t row_count;
    Memory offset;    /* int64 */
    Memory timestamp; /* int64 */
    Memory timestamp_type; /* int32 */
    BinaryColumn key;
    BinaryColumn value;
    Memory header_ends; /* int32, one more than rows: row i has headers header_ends[i] to [i + 1] */
    int64_t header_count;
    BinaryColumn header_key;
    BinaryColumn header_value;
} ColumnSet;

enum { SLACK_BYTES = 64 }; /* behind the data of a column, for copies in chunks */

static inline void
ask_for_large_pages(uint8_t *bytes, int64_t capacity)
{
#ifdef MADV_HUGEPAGE
    uintptr_t page = 4096, from = ((uintptr_t)bytes + page - 1) / page * page;
    uintptr_t to = ((uintptr_t)bytes + (uintptr_t)capacity) / page * page;
    madvise((void *)from, to - from, MADV_HUGEPAGE); /* an error does no harm: only speed depends on it */
#else
    (void)bytes, (void)capacity;
#endif
}

static inline int
reserve(Memory *memory, int64_t size)
{
    if (size > memory->asked)
        memory->asked = size;
    if (size <= memory->capacity)
        return 0;
    int64_t capacity = size <= memory->usual ? memory->usual : memory->capacity * 4; /* what is not used is free */
    if (capacity < size)
        capacity = size;
    uint8_t *bytes = realloc(memory->bytes, (size_t)capacity);
    if (bytes == NULL)
        return -1;
    memory->bytes = bytes;
    memory->capacity = capacity;
    if (capacity >= LARGE_BYTES)
        ask_for_large_pages(bytes, capacity);
    return 0;
}

/* Prefetch the lines that will be written soon. Memory that another owner had is in no near cache: with this,
   batches to columns takes 0.8 of the time. */
static inline void
prefetch_behind(const uint8_t *at)
{
    uintptr_t ahead = (uintptr_t)at + 1024;
    __builtin_prefetch((const void *)ahead, 1);
    __builtin_prefetch((const void *)(ahead + 64), 1);
}

/* Start with a spare, if there is one. */
static inline void
take_spare(Memory *memory)
{
    for (int i = 0; i < SPARE_COUNT && memory->bytes == NULL; i++) {
        memory->bytes = memory->spares[i];
        memory->capacity = memory->spare_capacities[i];
        memory->spares[i] = NULL;
        memory->spare_capacities[i] = 0;
    }
}

/* Keep a block as a spare, or free it. */
static inline void
take_back(Memory *memory, uint8_t *bytes, int64_t capacity)
{
    for (int i = 0; i < SPARE_COUNT && bytes != NULL; i++)
        if (memory->spares[i] == NULL) {
            memory->spares[i] = bytes;
            memory->spare_capacities[i] = capacity;
            return;
        }
    free(bytes);
}

static inline int32_t
ends_at(const BinaryColumn *column, int64_t rows)
{
    return rows == 0 || column->ends.bytes == NULL ? 0 : ((const int32_t *)column->ends.bytes)[rows];
}

/* Room for more rows, and for more bytes in them. */
static inline int
reserve_payloads(BinaryColumn *column, int64_t rows, int64_t more_rows, int64_t more_bytes)
{
    if (reserve(&column->ends, (rows + more_rows + 1) * 4) < 0)
        return -1;
    ((int32_t *)column->ends.bytes)[0] = 0;
    return reserve(&column->data, ends_at(column, rows) + more_bytes + SLACK_BYTES);
}

/* Make room for rows with so many payload bytes in all; for headers only in the column of ends. */
static inline int
reserve_rows(ColumnSet *set, int64_t more_rows, int64_t more_bytes)
{
    int64_t rows = set->row_count;
    int wanted = set->wanted;
    if ((wanted & WANTS_OFFSET && reserve(&set->offset, (rows + more_rows) * 8) < 0) ||
        (wanted & WANTS_TIMESTAMP && reserve(&set->timestamp, (rows + more_rows) * 8) < 0) ||
        (wanted & WANTS_TIMESTAMP_TYPE && reserve(&set->timestamp_type, (rows + more_rows) * 4) < 0) ||
        (wanted & WANTS_KEY && reserve_payloads(&set->key, rows, more_rows, more_bytes) < 0) ||
        (wanted & WANTS_VALUE && reserve_payloads(&set->value, rows, more_rows, more_bytes) < 0))
        return -1;
    if (wanted & WANTS_HEADERS) {
        if (reserve(&set->header_ends, (rows + more_rows + 1) * 4) < 0)
            return -1;
        ((int32_t *)set->header_ends.bytes)[0] = 0;
    }
    return 0;
}

static inline int
reserve_headers(ColumnSet *set, int64_t more_headers, int64_t more_bytes)
{
    return reserve_payloads(&set->header_key, set->header_count, more_headers, more_bytes) < 0 ||
                   reserve_payloads(&set->header_value, set->header_count, more_headers, more_bytes) < 0
               ? -1
               : 0;
}

/* Make bits for so many rows. A bit is 1 until its row is found to be null. */
static inline int
reserve_validity(BinaryColumn *column, int64_t rows)
{
    int64_t known = column->validity.capacity;
    if (reserve(&column->validity, rows / 8 + 1) < 0)
        return -1;
    memset(column->validity.bytes + known, 0xFF, (size_t)(column->validity.capacity - known));
    return 0;
}

static inline int
note_null(BinaryColumn *column, int64_t row)
{
    if (row / 8 >= column->validity.capacity && reserve_validity(column, row) < 0)
        return -1;
    column->validity.bytes[row / 8] &= (uint8_t)~(1u << (row % 8));
    column->null_count++;
    return 0;
}

/* Write a row into reserved room; size -1 is null. */
static inline int
append_payload(BinaryColumn *column, int64_t row, const uint8_t *bytes, int32_t size)
{
    int32_t *ends = (int32_t *)column->ends.bytes;
    int32_t end = ends[row];
    if (size > 0) {
        memcpy(column->data.bytes + end, bytes, (size_t)size);
        end += size;
    }
    ends[row + 1] = end;
    return size < 0 ? note_null(column, row) : 0;
}

/* Arrow bytes that the columns take so far. */
static inline int64_t
used_bytes(const ColumnSet *set)
{
    int64_t rows = set->row_count, headers = set->header_count;
    int64_t used = ends_at(&set->header_key, headers) + ends_at(&set->header_value, headers) + headers * 8;
    used += set->wanted & WANTS_OFFSET ? rows * 8 : 0;
    used += set->wanted & WANTS_TIMESTAMP ? rows * 8 : 0;
    used += set->wanted & WANTS_TIMESTAMP_TYPE ? rows * 4 : 0;
    used += set->wanted & WANTS_KEY ? rows * 4 + ends_at(&set->key, rows) : 0;
    used += set->wanted & WANTS_VALUE ? rows * 4 + ends_at(&set->value, rows) : 0;
    used += set->wanted & WANTS_HEADERS ? rows * 4 : 0;
    return used;
}

/* Make the bits of rows from a number on 1 again. */
static inline void
forget_payloads(BinaryColumn *column, int64_t rows, int64_t written)
{
    for (int64_t row = rows; row < rows + written && row / 8 < column->validity.capacity; row++) {
        uint8_t bit = (uint8_t)(1u << (row % 8));
        column->null_count -= !(column->validity.bytes[row / 8] & bit);
        column->validity.bytes[row / 8] |= bit;
    }
}

/* Forget the rows from a number on, at most so many of which were written. */
static inline void
forget_rows(ColumnSet *set, int64_t rows, int64_t written)
{
    int64_t headers = rows && set->header_ends.bytes ? ((const int32_t *)set->header_ends.bytes)[rows] : 0;
    forget_payloads(&set->key, rows, written);
    forget_payloads(&set->value, rows, written);
    forget_payloads(&set->header_key, headers, set->header_count - headers);
    forget_payloads(&set->header_value, headers, set->header_count - headers);
    set->row_count = rows;
    set->header_count = headers;
}

#endif
