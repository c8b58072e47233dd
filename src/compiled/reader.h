/* Reads bytes of unknown origin. Every length check of the module is in this file.

   Each function takes the place to read at and the end that it must not pass. It returns 0, or -1 for anything
   unusual: bytes that end too early, a varint that is too long, a negative length. After -1 the place is undefined.
*/

#ifndef LOGSTORE_READER_H
#define LOGSTORE_READER_H

#include <stdint.h>
#include <string.h>

/* The positions of the fields in a header of magic 2. A test compares them with layout.py. */
enum {
    BASE_OFFSET_AT = 0,
    BATCH_LENGTH_AT = 8,
    LEADER_EPOCH_AT = 12,
    MAGIC_AT = 16,
    CRC_AT = 17,
    ATTRIBUTES_AT = 21,
    LAST_OFFSET_DELTA_AT = 23,
    BASE_TIMESTAMP_AT = 27,
    MAX_TIMESTAMP_AT = 35,
    PRODUCER_ID_AT = 43,
    PRODUCER_EPOCH_AT = 51,
    BASE_SEQUENCE_AT = 53,
    RECORD_COUNT_AT = 57,
    HEADER_BYTES = 61,
    LENGTH_OVERHEAD_BYTES = 12,
    MIN_RECORD_BYTES = 7,
    MIN_HEADER_BYTES = 2
};

enum {
    CODEC_MASK = 0x07,
    TIMESTAMP_TYPE_BIT = 0x08,
    TRANSACTIONAL_BIT = 0x10,
    CONTROL_BIT = 0x20,
    DELETE_HORIZON_BIT = 0x40
};

static inline int16_t
read_int16(const uint8_t *at)
{
    return (int16_t)((uint16_t)at[0] << 8 | at[1]);
}

static inline uint32_t
read_uint32(const uint8_t *at)
{
    return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

static inline int32_t
read_int32(const uint8_t *at)
{
    return (int32_t)read_uint32(at);
}

static inline int64_t
read_int64(const uint8_t *at)
{
    return (int64_t)((uint64_t)read_uint32(at) << 32 | read_uint32(at + 4));
}

/* A zig-zag varint of at most max_bytes bytes. Bits beyond 64 are dropped. */
static inline int
read_raw_varint(const uint8_t **at, const uint8_t *end, int max_bytes, uint64_t *raw)
{
    const uint8_t *p = *at;
    uint64_t value = 0;
    for (int shift = 0; shift < 7 * max_bytes; shift += 7) {
        if (p >= end)
            return -1;
        uint8_t byte = *p++;
        value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80) {
            *at = p;
            *raw = value;
            return 0;
        }
    }
    return -1;
}

/* A 32-bit number; bits beyond the 32nd are dropped, as Kafka's reader does. */
static inline int
read_varint(const uint8_t **at, const uint8_t *end, int32_t *number)
{
    uint64_t raw;
    if (*at < end && **at < 0x80)
        raw = *(*at)++;
    else if (end - *at >= 2 && (*at)[1] < 0x80) { /* sizes of some hundred bytes */
        raw = (uint64_t)((*at)[0] & 0x7F) | (uint64_t)(*at)[1] << 7;
        *at += 2;
    } else if (read_raw_varint(at, end, 5, &raw) < 0)
        return -1;
    uint32_t low = (uint32_t)raw;
    *number = (int32_t)((low >> 1) ^ (0u - (low & 1)));
    return 0;
}

static inline int
read_varlong(const uint8_t **at, const uint8_t *end, int64_t *number)
{
    uint64_t raw;
    if (*at < end && **at < 0x80)
        raw = *(*at)++;
    else if (read_raw_varint(at, end, 10, &raw) < 0)
        return -1;
    *number = (int64_t)((raw >> 1) ^ (0u - (raw & 1)));
    return 0;
}

/* Bytes in the buffer; size -1 is null. */
typedef struct {
    const uint8_t *bytes;
    int32_t size;
} Span;

/* A length and so many bytes; -1 is null, any other negative length is refused. */
static inline int
read_span(const uint8_t **at, const uint8_t *end, Span *span)
{
    if (read_varint(at, end, &span->size) < 0 || span->size < -1)
        return -1;
    span->bytes = *at;
    if (span->size > 0) {
        if (span->size > end - *at)
            return -1;
        *at += span->size;
    }
    return 0;
}

/* One record whose headers are not read yet. In a right record they fill the rest up to stop exactly; the code that
   walks them checks that with ends_headers. */
typedef struct {
    int64_t timestamp_delta;
    int32_t offset_delta;
    int32_t header_count;
    const uint8_t *key_at; /* where the key's size begins */
    Span key;
    Span value;
    const uint8_t *headers;
    const uint8_t *stop;
} RawRecord;

/* The size of a record at *at; moves to its first byte after the size. */
static inline int
read_record_size(const uint8_t **at, const uint8_t *end, int32_t *size)
{
    if (read_varint(at, end, size) < 0)
        return -1;
    return *size < MIN_RECORD_BYTES - 1 || *size > end - *at ? -1 : 0;
}

/* The record at *at; moves past it. A record without headers is checked completely. */
static inline int
read_record(const uint8_t **at, const uint8_t *end, RawRecord *record)
{
    int32_t size;
    if (read_record_size(at, end, &size) < 0)
        return -1;
    const uint8_t *p = *at, *stop = p + size;
    p++; /* attributes, which have no meaning */
    if (read_varlong(&p, stop, &record->timestamp_delta) < 0 || read_varint(&p, stop, &record->offset_delta) < 0)
        return -1;
    record->key_at = p;
    if (read_span(&p, stop, &record->key) < 0 || read_span(&p, stop, &record->value) < 0 ||
        read_varint(&p, stop, &record->header_count) < 0)
        return -1;
    if (record->header_count < 0 || record->header_count > (stop - p) / MIN_HEADER_BYTES)
        return -1;
    if (record->header_count == 0 && p != stop)
        return -1;
    record->headers = p;
    record->stop = stop;
    *at = stop;
    return 0;
}

/* One header: a key, which is never null (and may be no UTF-8), and a value. */
static inline int
read_header(const uint8_t **at, const uint8_t *stop, Span *key, Span *value)
{
    return read_span(at, stop, key) < 0 || key->size < 0 || read_span(at, stop, value) < 0 ? -1 : 0;
}

/* Strict UTF-8 (RFC 3629): no surrogates, no longer form than needed, nothing above U+10FFFF. */
static inline int
check_utf8(const uint8_t *at, const uint8_t *end)
{
    while (at < end) {
        uint8_t lead = *at++;
        if (lead < 0x80)
            continue;
        int more = lead >= 0xF0 ? 3 : lead >= 0xE0 ? 2 : 1;
        if (lead < 0xC2 || lead > 0xF4 || end - at < more)
            return -1;
        uint8_t least = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : 0x80;
        uint8_t most = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : 0xBF;
        if (*at < least || *at > most)
            return -1;
        for (int i = 1; i < more; i++)
            if ((at[i] & 0xC0) != 0x80)
                return -1;
        at += more;
    }
    return 0;
}

/* Walks the headers of a record without keeping them, only to check the record. */
static inline int
check_headers(const RawRecord *record)
{
    const uint8_t *at = record->headers;
    for (int32_t i = 0; i < record->header_count; i++) {
        Span key, value;
        if (read_header(&at, record->stop, &key, &value) < 0)
            return -1;
    }
    return at == record->stop ? 0 : -1;
}

/* The timestamp of a record: 64-bit arithmetic that wraps, like Kafka's. */
static inline int64_t
add_wrapping(int64_t base, int64_t delta)
{
    return (int64_t)((uint64_t)base + (uint64_t)delta);
}

#endif
