/* The offset map as runs of batches use it (latest.c). */

#ifndef LOGSTORE_OFFSET_MAP_H
#define LOGSTORE_OFFSET_MAP_H

#include "compiled.h"

typedef struct OffsetMap OffsetMap;

/* What a section holds, seen against the map. Held against offset_map.py by its tests. */
enum { SUPERSEDED = 0, LATEST = 1, TOMBSTONE = 2, KEYLESS = 3, BEYOND = 4 };

/* An uncompressed records section. Records below start_offset are passed over by what puts. */
typedef struct {
    const uint8_t *at, *end;
    int64_t count;
    int64_t base_offset;
    int32_t last_offset_delta;
    int64_t start_offset;
} Section;

/* The object, if it is one; NULL with a TypeError. */
OffsetMap *offset_map_of(const ModuleState *state, PyObject *object);

/* How many of the sections were put, in front of the first that has no room or is not right (of that one, some keys
   may be in the map); -1 with an exception. Let other threads run. */
int put_sections(OffsetMap *map, const Section *sections, int count);

/* How many of the sections are right, in front of the first that is not; their records' standings. The same. */
int classify_sections(OffsetMap *map, const Section *sections, int count, char *standings);

#endif
