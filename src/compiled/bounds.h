/* The timestamps that a topic takes: -1, and those around the current time that look like milliseconds. */

#ifndef LOGSTORE_BOUNDS_H
#define LOGSTORE_BOUNDS_H

#include <stdint.h>

enum { NO_TIMESTAMP_MS = -1 };

/* The first seconds of the years 2000 and 2100: format/units.py has the same numbers. */
#define YEAR_2000 INT64_C(946684800)
#define YEAR_2100 INT64_C(4102444800)
#define PLAUSIBLE_FROM_MS (YEAR_2100 + 1)
#define PLAUSIBLE_TO_MS (YEAR_2000 * 1000000 - 1)

typedef struct {
    int64_t now_ms; /* also the timestamp of a row that has none */
    int64_t oldest_ms;
    int64_t newest_ms;
    int64_t plain_from_ms; /* between these two no further check is needed */
    int64_t plain_to_ms;
    int checks_unit;
} Bounds;

static inline Bounds
bounds_around(int64_t now_ms, int64_t before_max_ms, int64_t after_max_ms, int checks_unit)
{
    Bounds bounds = {.now_ms = now_ms, .newest_ms = INT64_MAX};
    int64_t edge_ms;
    if (!__builtin_sub_overflow(now_ms, before_max_ms, &edge_ms) && edge_ms > 0)
        bounds.oldest_ms = edge_ms;
    if (!__builtin_add_overflow(now_ms, after_max_ms, &edge_ms))
        bounds.newest_ms = edge_ms;
    bounds.plain_from_ms = bounds.oldest_ms;
    bounds.plain_to_ms = bounds.newest_ms;
    bounds.checks_unit = checks_unit && now_ms >= PLAUSIBLE_FROM_MS && now_ms <= PLAUSIBLE_TO_MS;
    if (bounds.checks_unit && bounds.plain_from_ms < PLAUSIBLE_FROM_MS)
        bounds.plain_from_ms = PLAUSIBLE_FROM_MS;
    if (bounds.checks_unit && bounds.plain_to_ms > PLAUSIBLE_TO_MS)
        bounds.plain_to_ms = PLAUSIBLE_TO_MS;
    return bounds;
}

static inline int
looks_like_another_unit(int64_t timestamp_ms)
{
    return (timestamp_ms >= YEAR_2000 && timestamp_ms <= YEAR_2100) ||
           (timestamp_ms >= YEAR_2000 * 1000000 && timestamp_ms <= YEAR_2100 * 1000000) ||
           (timestamp_ms >= YEAR_2000 * 1000000000 && timestamp_ms <= YEAR_2100 * 1000000000);
}

static inline int
is_within(const Bounds *bounds, int64_t timestamp_ms)
{
    if (timestamp_ms >= bounds->plain_from_ms && timestamp_ms <= bounds->plain_to_ms)
        return 1;
    if (timestamp_ms == NO_TIMESTAMP_MS)
        return 1;
    return timestamp_ms >= bounds->oldest_ms && timestamp_ms <= bounds->newest_ms &&
           !(bounds->checks_unit && looks_like_another_unit(timestamp_ms));
}

#endif
