/* The offset map, for runs of batches (latest.c). */

#ifndef LOGSTORE_OFFSET_MAP_H
#define LOGSTORE_OFFSET_MAP_H

#include "compiled.h"

typedef struct OffsetMap OffsetMap;

/* The standing of a record in the map. The same as in offset_map.py; its tests compare. */
enum { SUPERSEDED = 0, LATEST = 1, TOMBSTONE = 2, KEYLESS = 3, BEYOND = 4 };

/* An uncompressed records section. Putting skips records below start_offset. */
typedef struct {
    const uint8_t *at, *end;
    int64_t count;
    int64_t base_offset;
    int32_t last_offset_delta;
    int64_t start_offset;
} Section;

/* The object as an OffsetMap; NULL with a TypeError if it is none. */
OffsetMap *offset_map_of(const ModuleState *state, PyObject *object);

/* How many of the sections were put, before the first one without room or with damage (some of its keys may be in the
   map); -1 with an exception. Lets other threads run. */
int put_sections(OffsetMap *map, const Section *sections, int count);

/* How many of the sections are right, before the first that is not; writes their records' standings. Otherwise the
   same. */
int classify_sections(OffsetMap *map, const Section *sections, int count, char *standings);

#endif
