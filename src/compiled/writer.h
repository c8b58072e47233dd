/* Writes records: first computes sizes, then writes bytes into memory of that size. */

#ifndef LOGSTORE_WRITER_H
#define LOGSTORE_WRITER_H

#include <stdint.h>
#include <string.h>

static inline uint64_t
zigzag(int64_t number)
{
    return ((uint64_t)number << 1) ^ (uint64_t)(number >> 63);
}

/* The delta of a timestamp: 64-bit arithmetic that wraps; adding it back gives the right timestamp. */
static inline int64_t
subtract_wrapping(int64_t number, int64_t base)
{
    return (int64_t)((uint64_t)number - (uint64_t)base);
}

/* Bytes of a varint, 1 to 10. */
static inline int
varint_size(int64_t number)
{
    uint64_t raw = zigzag(number);
    if (raw < 0x80)
        return 1;
    if (raw < 1 << 14)
        return 2;
    int bits = 64 - __builtin_clzll(raw);
    return (bits + 6) / 7;
}

static inline uint8_t *
write_varint(uint8_t *at, int64_t number)
{
    uint64_t raw = zigzag(number);
    if (raw < 0x80) {
        *at++ = (uint8_t)raw;
        return at;
    }
    if (raw < 1 << 14) {
        *at++ = (uint8_t)(raw | 0x80);
        *at++ = (uint8_t)(raw >> 7);
        return at;
    }
    while (raw >= 0x80) {
        *at++ = (uint8_t)(raw | 0x80);
        raw >>= 7;
    }
    *at++ = (uint8_t)raw;
    return at;
}

/* memcpy without the call, for the few bytes of keys and header names: two pieces that may overlap. */
static inline void
copy_bytes(uint8_t *to, const uint8_t *from, size_t size)
{
    if (size > 32) {
        memcpy(to, from, size);
    } else if (size >= 16) {
        memcpy(to, from, 16);
        memcpy(to + size - 16, from + size - 16, 16);
    } else if (size >= 8) {
        memcpy(to, from, 8);
        memcpy(to + size - 8, from + size - 8, 8);
    } else if (size >= 4) {
        memcpy(to, from, 4);
        memcpy(to + size - 4, from + size - 4, 4);
    } else {
        for (size_t i = 0; i < size; i++)
            to[i] = from[i];
    }
}

/* A length and the bytes; size -1 is null. */
static inline uint8_t *
write_span(uint8_t *at, const void *bytes, int64_t size)
{
    at = write_varint(at, size);
    if (size > 0) {
        copy_bytes(at, bytes, (size_t)size);
        at += size;
    }
    return at;
}

static inline int64_t
span_size(int64_t size)
{
    return varint_size(size) + (size > 0 ? size : 0);
}

static inline void
write_int16(uint8_t *at, int16_t number)
{
    at[0] = (uint8_t)((uint16_t)number >> 8);
    at[1] = (uint8_t)number;
}

static inline void
write_int32(uint8_t *at, int32_t number)
{
    for (int i = 0; i < 4; i++)
        at[i] = (uint8_t)((uint32_t)number >> (24 - 8 * i));
}

static inline void
write_int64(uint8_t *at, int64_t number)
{
    for (int i = 0; i < 8; i++)
        at[i] = (uint8_t)((uint64_t)number >> (56 - 8 * i));
}

#endif
