/* Which timestamps a topic takes: -1, and those around the present. */

#ifndef LOGSTORE_BOUNDS_H
#define LOGSTORE_BOUNDS_H

#include <stdint.h>

enum { NO_TIMESTAMP_MS = -1 };

typedef struct {
    int64_t now_ms; /* also the timestamp of a row that has none */
    int64_t oldest_ms;
    int64_t newest_ms;
} Bounds;

static inline Bounds
bounds_around(int64_t now_ms, int64_t before_max_ms, int64_t after_max_ms)
{
    Bounds bounds = {now_ms, 0, INT64_MAX};
    int64_t edge_ms;
    if (!__builtin_sub_overflow(now_ms, before_max_ms, &edge_ms) && edge_ms > 0)
        bounds.oldest_ms = edge_ms;
    if (!__builtin_add_overflow(now_ms, after_max_ms, &edge_ms))
        bounds.newest_ms = edge_ms;
    return bounds;
}

static inline int
is_within(const Bounds *bounds, int64_t timestamp_ms)
{
    return (timestamp_ms >= bounds->oldest_ms && timestamp_ms <= bounds->newest_ms) || timestamp_ms == NO_TIMESTAMP_MS;
}

#endif
