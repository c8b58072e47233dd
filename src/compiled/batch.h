/* A batch of magic 2 as a whole: whether a batch of unknown origin is whole and sound, and the header of a new one.

   The C twin of decode_header and check_batch in header.py. It answers only no for everything unusual; the Python
   functions then say what is wrong.
*/

#ifndef LOGSTORE_BATCH_H
#define LOGSTORE_BATCH_H

#include "compiled.h"
#include "reader.h"
#include "writer.h"

enum { PREFIX_BYTES = MAGIC_AT + 1, MIN_BATCH_LENGTH = HEADER_BYTES - LENGTH_OVERHEAD_BYTES, HIGHEST_CODEC = 4 };

/* The size of the batch of magic 2 that begins here; 0 if there is none that ends at or before the end. */
static inline int64_t
whole_batch_bytes(const uint8_t *at, const uint8_t *end)
{
    if (end - at < HEADER_BYTES || at[MAGIC_AT] != 2)
        return 0;
    int64_t length = read_int32(at + BATCH_LENGTH_AT);
    if (length < MIN_BATCH_LENGTH || length > end - at - LENGTH_OVERHEAD_BYTES)
        return 0;
    return LENGTH_OVERHEAD_BYTES + length;
}

/* Whether the record count is possible: the twin of _count_fault in header.py. */
static inline int
has_possible_count(const uint8_t *at, int64_t size_bytes)
{
    int attributes = read_int16(at + ATTRIBUTES_AT), is_compressed = (attributes & CODEC_MASK) != 0;
    int64_t count = read_int32(at + RECORD_COUNT_AT), records_bytes = size_bytes - HEADER_BYTES;
    if (count < 0 || count > (int64_t)read_int32(at + LAST_OFFSET_DELTA_AT) + 1)
        return 0;
    if (attributes & CONTROL_BIT && (is_compressed || count > 1))
        return 0;
    if (is_compressed)
        return 1;
    return count == 0 ? records_bytes == 0 : count * MIN_RECORD_BYTES <= records_bytes;
}

/* Whether the header's fields are possible: the twin of structure_fault in header.py. */
static inline int
has_possible_header(const uint8_t *at, int64_t size_bytes)
{
    int64_t base_offset = read_int64(at + BASE_OFFSET_AT), last_delta = read_int32(at + LAST_OFFSET_DELTA_AT);
    if (base_offset < 0 || last_delta < 0 || base_offset > INT64_MAX - last_delta)
        return 0;
    if ((read_int16(at + ATTRIBUTES_AT) & CODEC_MASK) > HIGHEST_CODEC)
        return 0;
    return has_possible_count(at, size_bytes);
}

/* Needs no GIL. */
static inline int
has_right_checksum(const uint8_t *at, int64_t size_bytes)
{
    return crc32c(0, at + ATTRIBUTES_AT, (size_t)(size_bytes - ATTRIBUTES_AT)) == read_uint32(at + CRC_AT);
}

/* Whether checksum and header of the batch hold. Needs no GIL. */
static inline int
is_sound_batch(const uint8_t *at, int64_t size_bytes)
{
    return has_right_checksum(at, size_bytes) && has_possible_header(at, size_bytes);
}

/* The fields of a new batch's header; its records have consecutive offsets. */
typedef struct {
    int64_t base_offset;
    int64_t base_timestamp_ms;
    int64_t max_timestamp_ms;
    int64_t producer_id;
    int32_t leader_epoch;
    int32_t base_sequence;
    int32_t record_count;
    int16_t attributes;
    int16_t producer_epoch;
} HeaderFields;

/* Writes everything except the checksum. */
static inline void
write_batch_header(uint8_t *at, int64_t size_bytes, const HeaderFields *fields)
{
    write_int64(at + BASE_OFFSET_AT, fields->base_offset);
    write_int32(at + BATCH_LENGTH_AT, (int32_t)(size_bytes - LENGTH_OVERHEAD_BYTES));
    write_int32(at + LEADER_EPOCH_AT, fields->leader_epoch);
    at[MAGIC_AT] = 2;
    write_int16(at + ATTRIBUTES_AT, fields->attributes);
    write_int32(at + LAST_OFFSET_DELTA_AT, fields->record_count - 1);
    write_int64(at + BASE_TIMESTAMP_AT, fields->base_timestamp_ms);
    write_int64(at + MAX_TIMESTAMP_AT, fields->max_timestamp_ms);
    write_int64(at + PRODUCER_ID_AT, fields->producer_id);
    write_int16(at + PRODUCER_EPOCH_AT, fields->producer_epoch);
    write_int32(at + BASE_SEQUENCE_AT, fields->base_sequence);
    write_int32(at + RECORD_COUNT_AT, fields->record_count);
}

/* Writes the checksum. Needs no GIL. */
static inline void
seal_batch(uint8_t *at, int64_t size_bytes)
{
    write_int32(at + CRC_AT, (int32_t)crc32c(0, at + ATTRIBUTES_AT, (size_t)(size_bytes - ATTRIBUTES_AT)));
}

#endif
