/* The latest offset of each key, in a fixed amount of memory: for log compaction.

   Open addressing in groups of 16 slots, with at most nine slots of ten in use. A key is stored as its 128-bit
   digest; two keys with the same digest would be confused, so the digest is keyed with a secret seed. Eight bits of
   it are the slot's tag, in an array of all tags; the slot has the other 120, and its offset relative to the table's
   base: 21 bytes per slot, 23.4 per key. So at least 127 bits are compared (a tag of 0 means an empty slot; digests
   that have it use 1). A digest's home group is found by multiplication, not by a mask, so the table has as many
   groups as the memory allows. A full group continues in the next one.

   Keys are looked up in blocks, in three steps: hash all and prefetch the lines of their tags; search the tags, eight
   at a time, and prefetch the lines of the slots; then read the slots. Nearly always that is one line of tags, which
   the processor's last cache has, and one or two lines of a slot, which it does not have.
   Measured with sections of 10 million keys of 16 bytes: see benchmarks/maps.py.
*/

#include "offset_map.h"
#include "reader.h"
#include "siphash.h"

#include <stdlib.h>
#ifdef __linux__
#include <sys/mman.h>
#endif

enum {
    GROUP_SLOTS = 16,
    SLOT_BYTES = 20, /* 8 bytes of the digest, 7 more of it, 5 of the offset */
    GROUP_BYTES = GROUP_SLOTS * (1 + SLOT_BYTES),
    BLOCK_COUNT = 64,            /* keys that are looked up together: enough cache misses at the same time */
    READ_AHEAD_BYTES = 1024,     /* measured: saves a fifth of the time for records that come from memory */
    PIECE_COUNT = 1000,          /* records read at once: 24 kB of stack */
    KEEP_GIL_BELOW_BYTES = 8192, /* some microseconds */
};

/* The offsets around the first one that fit five bytes: from this many below it to one less above it. */
static const uint64_t WINDOW = UINT64_C(1) << 39;

static const Digest NO_DIGEST = {0, 0}; /* for a record without a key: looked up like any other, then skipped */

static const uint64_t MAX_GROUPS = UINT32_MAX; /* 1.4 TB: a home is made of 32 bits of the digest */

typedef struct {
    uint8_t *tags;  /* of all slots, at the beginning of the memory; those of a group fill up in order */
    uint8_t *slots; /* after the tags; valid if the tag is not 0 */
    uint64_t group_count;
    uint64_t capacity;
    uint64_t count;
    uint64_t base; /* what offsets are relative to; valid if count is not 0 */
    int64_t latest_offset;
    Digest seed;
    uint64_t remainder, divisor; /* the class of the digests that it takes */
} Table;

struct OffsetMap {
    PyObject_HEAD
    Table table;
    int in_use; /* a thread is using the slots, perhaps without the GIL */
};

static inline size_t
size_of(const Table *table)
{
    return (size_t)table->group_count * GROUP_BYTES;
}

/* Whether the key is of the map's class. Uses other bits than the home and the tag do. */
static inline int
is_of_class(const Table *table, Digest digest)
{
    return table->divisor == 1 || digest.high % table->divisor == table->remainder;
}

/* Slots: the number of a slot is also the place of its tag. */

static inline uint64_t
home(const Table *table, Digest digest)
{
    return (digest.low >> 32) * table->group_count >> 32;
}

static inline uint8_t
tag_of(Digest digest)
{
    uint8_t tag = (uint8_t)digest.low;
    return tag == 0 ? 1 : tag;
}

static inline uint8_t *
slot_at(const Table *table, uint64_t number)
{
    return table->slots + number * SLOT_BYTES;
}

/* Words of a slot, in the machine's byte order: they never leave its memory. */
static inline uint64_t
read_word(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

static inline int
has_digest(const uint8_t *slot, Digest digest)
{
    return read_word(slot) == digest.high && (read_word(slot + 8) ^ digest.low >> 8) << 8 == 0;
}

static inline uint64_t
relative_offset(const uint8_t *slot)
{
    uint32_t high;
    memcpy(&high, slot + 16, sizeof high);
    return (uint64_t)high << 8 | read_word(slot + 8) >> 56;
}

static inline void
write_slot(uint8_t *slot, Digest digest, uint64_t relative)
{
    uint64_t low = digest.low >> 8 | relative << 56;
    uint32_t high = (uint32_t)(relative >> 8);
    memcpy(slot, &digest.high, 8);
    memcpy(slot + 8, &low, 8);
    memcpy(slot + 16, &high, 4);
}

/* The highest bit of each byte that is 0. */
static inline uint64_t
zero_bytes(uint64_t word)
{
    const uint64_t low_bits = UINT64_C(0x7F7F7F7F7F7F7F7F);
    return ~(((word & low_bits) + low_bits) | word | low_bits);
}

static inline unsigned
lowest_byte(uint64_t bits)
{
    return (unsigned)__builtin_ctzll(bits) >> 3;
}

static inline uint64_t
next_group(const Table *table, uint64_t group)
{
    return group + 1 == table->group_count ? 0 : group + 1;
}

/* The slot where the digest probably is or belongs: the first on its way that has its tag or is empty. The search
   ends, because one slot of ten is always empty. Nearly always the group is the home; its half is chosen without a
   branch. */
static inline uint64_t
likely_slot(const Table *table, Digest digest)
{
    const uint64_t wanted = tag_of(digest) * UINT64_C(0x0101010101010101);
    for (uint64_t group = home(table, digest);; group = next_group(table, group)) {
        const uint8_t *tags = table->tags + group * GROUP_SLOTS;
        uint64_t low = read_little_endian64(tags), high = read_little_endian64(tags + 8);
        uint64_t in_low = zero_bytes(low ^ wanted) | zero_bytes(low);
        uint64_t in_high = zero_bytes(high ^ wanted) | zero_bytes(high);
        uint64_t found = in_low != 0 ? in_low : in_high;
        if (found != 0)
            return group * GROUP_SLOTS + (in_low != 0 ? 0 : 8) + lowest_byte(found);
    }
}

/* The slot of the digest, or the empty one where it belongs. Slots are only emptied all together: so no digest is
   after an empty slot on its way. */
static uint64_t
find_among_equal_tags(const Table *table, Digest digest)
{
    const uint8_t tag = tag_of(digest);
    for (uint64_t group = home(table, digest);; group = next_group(table, group))
        for (uint64_t number = group * GROUP_SLOTS; number < (group + 1) * GROUP_SLOTS; number++)
            if (table->tags[number] == 0 ||
                (table->tags[number] == tag && has_digest(slot_at(table, number), digest)))
                return number;
}

/* The same, starting at ``likely``, its likely slot, which may have been found before other keys were put: if it is
   still empty, nothing before it has changed. */
static inline uint64_t
find(const Table *table, Digest digest, uint64_t likely)
{
    uint8_t tag = table->tags[likely];
    if (tag == 0 || (tag == tag_of(digest) && has_digest(slot_at(table, likely), digest)))
        return likely;
    return find_among_equal_tags(table, digest);
}

/* The latest offset, -1 if the slot is empty. */
static inline int64_t
offset_at(const Table *table, uint64_t number)
{
    return table->tags[number] == 0 ? -1 : (int64_t)(table->base + relative_offset(slot_at(table, number)));
}

/* Keeps the larger of offset and the stored one. False if there is no room: the key is new and the map full, or the
   offset is too far from the first. */
static inline int
put(Table *table, Digest digest, int64_t offset, uint64_t likely)
{
    if (!is_of_class(table, digest))
        return 1;
    if (table->count == 0)
        table->base = (uint64_t)offset > WINDOW ? (uint64_t)offset - WINDOW : 0;
    uint64_t relative = (uint64_t)offset - table->base;
    if (relative >= 2 * WINDOW)
        return 0;
    uint64_t number = find(table, digest, likely);
    uint8_t *slot = slot_at(table, number);
    if (table->tags[number] == 0) {
        if (table->count == table->capacity)
            return 0;
        table->tags[number] = tag_of(digest);
        table->count++;
    } else if (relative <= relative_offset(slot)) {
        return 1;
    }
    write_slot(slot, digest, relative);
    return 1;
}

static inline void
advance(Table *table, int64_t offset)
{
    if (offset > table->latest_offset)
        table->latest_offset = offset;
}

/* Keys in three steps */

/* The parts of a record that the map needs. */
typedef struct {
    const uint8_t *key;
    int64_t offset;
    int32_t key_size; /* -1: no key */
    int32_t has_value;
} Entry;

typedef struct {
    int count;
    Entry entries[PIECE_COUNT];
} Piece;

/* Some of a piece's entries in progress: hashed, and then with the slots found by tag. */
typedef struct {
    int count;
    const Entry *entries;
    Digest digests[BLOCK_COUNT];
    uint64_t likely[BLOCK_COUNT];
} Block;

/* The first step. Prefetches are in loops that do nothing else: a line whose page the processor must look up first
   delays what follows, but not the next such line. */
static void
hash_block(const Table *table, const Piece *piece, int first, Block *block)
{
    int left = piece->count - first;
    block->count = left < BLOCK_COUNT ? left : BLOCK_COUNT;
    block->entries = piece->entries + first;
    for (int i = 0; i < block->count; i++) {
        const Entry *entry = &block->entries[i];
        if (entry->key_size >= 0)
            block->digests[i] = siphash(entry->key, (size_t)entry->key_size, table->seed);
        else
            block->digests[i] = NO_DIGEST;
    }
    for (int i = 0; i < block->count; i++)
        __builtin_prefetch(table->tags + home(table, block->digests[i]) * GROUP_SLOTS, 1);
}

/* The second step. */
static void
find_block(const Table *table, Block *block)
{
    for (int i = 0; i < block->count; i++)
        block->likely[i] = likely_slot(table, block->digests[i]);
    for (int i = 0; i < block->count; i++) {
        const uint8_t *slot = slot_at(table, block->likely[i]);
        __builtin_prefetch(slot, 1);
        __builtin_prefetch(slot + SLOT_BYTES - 1, 1);
    }
}

/* The caller does the third step. The first step of the next block comes before it, and the second one after it: so
   while one block waits for memory, another is hashed. */

/* How many of the block's entries were taken. */
static int
put_block(Table *table, const Block *block, int64_t start_offset)
{
    for (int i = 0; i < block->count; i++) {
        const Entry *entry = &block->entries[i];
        if (entry->offset < start_offset)
            continue;
        if (entry->key_size >= 0 && !put(table, block->digests[i], entry->offset, block->likely[i]))
            return i;
        advance(table, entry->offset);
    }
    return block->count;
}

static inline char
standing_of(const Table *table, const Entry *entry, Digest digest, uint64_t likely)
{
    if (entry->offset > table->latest_offset)
        return BEYOND;
    if (entry->key_size < 0)
        return KEYLESS;
    if (!is_of_class(table, digest) || offset_at(table, find(table, digest, likely)) > entry->offset)
        return SUPERSEDED;
    return entry->has_value ? LATEST : TOMBSTONE;
}

/* How many of the piece's entries were taken. */
static int
put_piece(Table *table, const Piece *piece, int64_t start_offset)
{
    Block blocks[2];
    hash_block(table, piece, 0, &blocks[0]);
    find_block(table, &blocks[0]);
    for (int first = 0, turn = 0; first < piece->count; first += BLOCK_COUNT, turn = !turn) {
        Block *block = &blocks[turn], *next = &blocks[!turn];
        hash_block(table, piece, first + block->count, next);
        int taken = put_block(table, block, start_offset);
        if (taken < block->count)
            return first + taken;
        find_block(table, next);
    }
    return piece->count;
}

static void
classify_piece(const Table *table, const Piece *piece, char *standings)
{
    Block blocks[2];
    hash_block(table, piece, 0, &blocks[0]);
    find_block(table, &blocks[0]);
    for (int first = 0, turn = 0; first < piece->count; first += BLOCK_COUNT, turn = !turn) {
        Block *block = &blocks[turn], *next = &blocks[!turn];
        hash_block(table, piece, first + block->count, next);
        for (int i = 0; i < block->count; i++)
            *standings++ = standing_of(table, &block->entries[i], block->digests[i], block->likely[i]);
        find_block(table, next);
    }
}

/* Sections of records */

/* The next records, checked like the careful reader does. */
static int
read_piece(Section *section, int32_t *last_delta, Piece *piece)
{
    piece->count = section->count < PIECE_COUNT ? (int)section->count : PIECE_COUNT;
    for (int i = 0; i < piece->count; i++) {
        RawRecord record;
        __builtin_prefetch(section->at + READ_AHEAD_BYTES);
        if (read_record(&section->at, section->end, &record) < 0 || record.offset_delta <= *last_delta ||
            record.offset_delta > section->last_offset_delta)
            return -1;
        if (record.header_count > 0 && check_headers(&record) < 0)
            return -1;
        *last_delta = record.offset_delta;
        Entry entry = {record.key.bytes, section->base_offset + record.offset_delta, record.key.size,
                       record.value.size >= 0};
        piece->entries[i] = entry;
    }
    section->count -= piece->count;
    return section->count > 0 || section->at == section->end ? 0 : -1;
}

/* The first records. 0 if the careful reader would accept the whole section: most sections are one piece and are read
   once; longer ones are checked first. */
static int
begin_section(Section *section, int32_t *last_delta, Piece *piece)
{
    if (section->count > PIECE_COUNT) {
        Section whole = *section;
        for (*last_delta = -1; whole.count > 0;)
            if (read_piece(&whole, last_delta, piece) < 0)
                return -1;
    }
    *last_delta = -1;
    return read_piece(section, last_delta, piece);
}

/* How many records were taken; -1 if anything is unusual: then none was (unless another thread changes the bytes of a
   long section meanwhile). */
static int64_t
put_records(Table *table, Section section)
{
    Piece piece;
    int32_t last_delta;
    if (begin_section(&section, &last_delta, &piece) < 0)
        return -1;
    for (int64_t taken = 0;;) {
        int done = put_piece(table, &piece, section.start_offset);
        taken += done;
        if (done < piece.count)
            return taken;
        if (section.count == 0) {
            if (section.base_offset + section.last_offset_delta >= section.start_offset)
                advance(table, section.base_offset + section.last_offset_delta);
            return taken;
        }
        if (read_piece(&section, &last_delta, &piece) < 0)
            return -1;
    }
}

static int
classify_records(const Table *table, Section section, char *standings)
{
    Piece piece;
    int32_t last_delta;
    if (begin_section(&section, &last_delta, &piece) < 0)
        return -1;
    for (;;) {
        classify_piece(table, &piece, standings);
        standings += piece.count;
        if (section.count == 0)
            return 0;
        if (read_piece(&section, &last_delta, &piece) < 0)
            return -1;
    }
}

/* Arguments */

OffsetMap *
offset_map_of(const ModuleState *state, PyObject *object)
{
    if (PyObject_TypeCheck(object, state->offset_map_type))
        return (OffsetMap *)object;
    PyErr_SetString(PyExc_TypeError, "an OffsetMap is wanted");
    return NULL;
}

static int
int64_argument(PyObject *argument, int64_t *number)
{
    *number = PyLong_AsLongLong(argument);
    return *number == -1 && PyErr_Occurred() ? -1 : 0;
}

static int
offset_argument(PyObject *argument, int64_t *offset)
{
    int overflow;
    *offset = PyLong_AsLongLongAndOverflow(argument, &overflow);
    if (*offset == -1 && PyErr_Occurred())
        return -1;
    if (overflow == 0 && *offset >= 0)
        return 0;
    PyErr_SetString(PyExc_ValueError, "an offset is 0 to 2**63 - 1");
    return -1;
}

static int
key_argument(PyObject *argument, const uint8_t **bytes, size_t *size)
{
    char *start;
    Py_ssize_t length;
    if (PyBytes_AsStringAndSize(argument, &start, &length) < 0)
        return -1;
    *bytes = (const uint8_t *)start;
    *size = (size_t)length;
    return 0;
}

static int
seed_argument(PyObject *argument, Digest *seed)
{
    const uint8_t *bytes;
    size_t size;
    if (key_argument(argument, &bytes, &size) < 0)
        return -1;
    if (size != 16) {
        PyErr_SetString(PyExc_ValueError, "a seed has 16 bytes");
        return -1;
    }
    seed->low = read_little_endian64(bytes);
    seed->high = read_little_endian64(bytes + 8);
    return 0;
}

static int
check_argument_count(Py_ssize_t count, Py_ssize_t wanted)
{
    if (count == wanted)
        return 0;
    PyErr_Format(PyExc_TypeError, "%zd arguments where %zd are wanted", count, wanted);
    return -1;
}

/* buffer, position, end, count, base_offset, last_offset_delta [, start_offset]: 1 if the section may be read, 0 if it
   is unusual, -1 with an exception. Release the view unless -1. */
static int
section_arguments(PyObject *const *arguments, Py_buffer *view, Section *section)
{
    int64_t position, end, last_offset_delta;
    if (int64_argument(arguments[1], &position) < 0 || int64_argument(arguments[2], &end) < 0 ||
        int64_argument(arguments[3], &section->count) < 0 || int64_argument(arguments[4], &section->base_offset) < 0 ||
        int64_argument(arguments[5], &last_offset_delta) < 0)
        return -1;
    if (PyObject_GetBuffer(arguments[0], view, PyBUF_SIMPLE) < 0)
        return -1;
    if (position < 0 || end < position || end > view->len)
        return 0;
    if (section->count < 0 || section->count > (end - position) / MIN_RECORD_BYTES)
        return 0;
    if (last_offset_delta < 0 || last_offset_delta > INT32_MAX || section->base_offset < 0 ||
        section->base_offset > INT64_MAX - last_offset_delta)
        return 0;
    section->at = (const uint8_t *)view->buf + position;
    section->end = (const uint8_t *)view->buf + end;
    section->last_offset_delta = (int32_t)last_offset_delta;
    return 1;
}

/* One thread at a time, while the slots are used. */
static int
enter(OffsetMap *map)
{
    if (__atomic_exchange_n(&map->in_use, 1, __ATOMIC_ACQUIRE) == 0)
        return 0;
    PyErr_SetString(PyExc_RuntimeError, "another thread is using the offset map");
    return -1;
}

static void
leave(OffsetMap *map)
{
    __atomic_store_n(&map->in_use, 0, __ATOMIC_RELEASE);
}

/* Sections of a run of batches */

int
put_sections(OffsetMap *map, const Section *sections, int count)
{
    if (enter(map) < 0)
        return -1;
    /* The numbers that other threads may read change under the GIL only. */
    Table table = map->table;
    int done = 0;
    Py_BEGIN_ALLOW_THREADS
    while (done < count && put_records(&table, sections[done]) == sections[done].count)
        done++;
    Py_END_ALLOW_THREADS
    map->table = table;
    leave(map);
    return done;
}

int
classify_sections(OffsetMap *map, const Section *sections, int count, char *standings)
{
    if (enter(map) < 0)
        return -1;
    int done = 0;
    Py_BEGIN_ALLOW_THREADS
    while (done < count && classify_records(&map->table, sections[done], standings) == 0)
        standings += sections[done++].count;
    Py_END_ALLOW_THREADS
    leave(map);
    return done;
}

/* Memory */

/* Where the table has pages of its own, not memory that a sanitizer watches. */
#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__)
#define HAS_PAGES 1
#endif

/* Zeroed memory, in huge pages if the system has them: a lookup is a cache miss, and should not be one of the page
   tables too (measured: half the time of small pages, and a third of the time for first taking them). Pages are taken
   when they are first written. */
static uint8_t *
take_memory(size_t size)
{
#ifdef HAS_PAGES
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, size, MADV_HUGEPAGE);
    return memory;
#else
    return calloc(1, size);
#endif
}

static void
give_back_memory(uint8_t *memory, size_t size)
{
#ifdef HAS_PAGES
    if (memory != NULL)
        munmap(memory, size);
#else
    (void)size;
    free(memory);
#endif
}

/* The type */

static PyObject *
map_put(PyObject *self, PyObject *const *arguments, Py_ssize_t argument_count)
{
    OffsetMap *map = (OffsetMap *)self;
    const uint8_t *key;
    size_t size;
    int64_t offset;
    if (check_argument_count(argument_count, 2) < 0 || key_argument(arguments[0], &key, &size) < 0 ||
        offset_argument(arguments[1], &offset) < 0 || enter(map) < 0)
        return NULL;
    Digest digest = siphash(key, size, map->table.seed);
    int taken = put(&map->table, digest, offset, likely_slot(&map->table, digest));
    if (taken)
        advance(&map->table, offset);
    leave(map);
    return PyBool_FromLong(taken);
}

static PyObject *
map_get(PyObject *self, PyObject *key_object)
{
    OffsetMap *map = (OffsetMap *)self;
    const uint8_t *key;
    size_t size;
    if (key_argument(key_object, &key, &size) < 0 || enter(map) < 0)
        return NULL;
    Digest digest = siphash(key, size, map->table.seed);
    int64_t offset = offset_at(&map->table, find_among_equal_tags(&map->table, digest));
    leave(map);
    return PyLong_FromLongLong(offset);
}

static PyObject *
map_holds(PyObject *self, PyObject *key_object)
{
    const Table *table = &((OffsetMap *)self)->table;
    const uint8_t *key;
    size_t size;
    if (key_argument(key_object, &key, &size) < 0)
        return NULL;
    return PyBool_FromLong(is_of_class(table, siphash(key, size, table->seed)));
}

/* A list of keys, and a list of as many offsets; or if that is NULL, the first of consecutive offsets. */
typedef struct {
    PyObject *keys, *offsets;
    int64_t first_offset;
} Keys;

static int
offset_of(const Keys *keys, Py_ssize_t index, int64_t *offset)
{
    if (keys->offsets == NULL) {
        *offset = keys->first_offset + index;
        return 0;
    }
    PyObject *object = PyList_GetItem(keys->offsets, index);
    return object == NULL ? -1 : offset_argument(object, offset);
}

/* The keys and offsets from the first on, as many as there is room for. A key of None is skipped. Python code may run
   for an offset, but not between reading the keys and using them. */
static int
read_keys(const Keys *keys, Py_ssize_t first, Piece *piece)
{
    Py_ssize_t left = PyList_Size(keys->keys) - first;
    piece->count = left < PIECE_COUNT ? (int)left : PIECE_COUNT;
    for (int i = 0; i < piece->count; i++)
        if (offset_of(keys, first + i, &piece->entries[i].offset) < 0)
            return -1;
    for (int i = 0; i < piece->count; i++) {
        Entry *entry = &piece->entries[i];
        PyObject *key_object = PyList_GetItem(keys->keys, first + i);
        size_t size;
        if (key_object == NULL)
            return -1;
        entry->key_size = -1;
        if (key_object == Py_None)
            continue;
        if (key_argument(key_object, &entry->key, &size) < 0)
            return -1;
        if (size > INT32_MAX) {
            PyErr_SetString(PyExc_ValueError, "a key has at most 2**31 - 1 bytes");
            return -1;
        }
        entry->key_size = (int32_t)size;
    }
    return 0;
}

/* How many of the keys were taken; -1 with an exception. */
static Py_ssize_t
put_keys(Table *table, const Keys *keys)
{
    Py_ssize_t taken = 0, count = PyList_Size(keys->keys);
    while (taken < count) {
        Piece piece;
        if (read_keys(keys, taken, &piece) < 0)
            return -1;
        int done = put_piece(table, &piece, 0);
        taken += done;
        if (done < piece.count)
            break;
    }
    return taken;
}

static int
keys_arguments(PyObject *const *arguments, Keys *keys)
{
    keys->keys = arguments[0];
    keys->offsets = NULL;
    Py_ssize_t count = PyList_Check(arguments[0]) ? PyList_Size(arguments[0]) : -1;
    if (count >= 0 && PyLong_Check(arguments[1])) {
        if (offset_argument(arguments[1], &keys->first_offset) < 0)
            return -1;
        if (keys->first_offset <= INT64_MAX - count)
            return 0;
        PyErr_SetString(PyExc_ValueError, "an offset is 0 to 2**63 - 1");
        return -1;
    }
    keys->offsets = arguments[1];
    if (count >= 0 && PyList_Check(arguments[1]) && PyList_Size(arguments[1]) == count)
        return 0;
    PyErr_SetString(PyExc_TypeError, "keys is a list, offsets one of the same length or an int");
    return -1;
}

/* keys, offsets or the first offset: how many were taken. */
static PyObject *
map_put_keys(PyObject *self, PyObject *const *arguments, Py_ssize_t argument_count)
{
    OffsetMap *map = (OffsetMap *)self;
    Keys keys;
    if (check_argument_count(argument_count, 2) < 0 || keys_arguments(arguments, &keys) < 0 || enter(map) < 0)
        return NULL;
    Py_ssize_t taken = put_keys(&map->table, &keys);
    leave(map);
    return taken < 0 ? NULL : PyLong_FromSsize_t(taken);
}

/* Arguments of a section and start_offset: how many records were taken, or None. */
static PyObject *
map_put_section(PyObject *self, PyObject *const *arguments, Py_ssize_t argument_count)
{
    OffsetMap *map = (OffsetMap *)self;
    Py_buffer view;
    Section section;
    if (check_argument_count(argument_count, 7) < 0 || int64_argument(arguments[6], &section.start_offset) < 0)
        return NULL;
    int is_ordinary = section_arguments(arguments, &view, &section);
    if (is_ordinary < 0)
        return NULL;
    int64_t taken = -1;
    if (enter(map) < 0) {
        PyBuffer_Release(&view);
        return NULL;
    }
    if (is_ordinary) {
        /* The numbers that other threads may read change under the GIL only. */
        Table table = map->table;
        PyThreadState *saved = section.end - section.at < KEEP_GIL_BELOW_BYTES ? NULL : PyEval_SaveThread();
        taken = put_records(&table, section);
        if (saved != NULL)
            PyEval_RestoreThread(saved);
        map->table = table;
    }
    leave(map);
    PyBuffer_Release(&view);
    if (taken < 0)
        Py_RETURN_NONE;
    return PyLong_FromLongLong(taken);
}

/* Arguments of a section: one byte per record, or None. */
static PyObject *
map_classify_section(PyObject *self, PyObject *const *arguments, Py_ssize_t argument_count)
{
    OffsetMap *map = (OffsetMap *)self;
    Py_buffer view;
    Section section;
    if (check_argument_count(argument_count, 6) < 0)
        return NULL;
    int is_ordinary = section_arguments(arguments, &view, &section);
    if (is_ordinary < 0)
        return NULL;
    PyObject *standings = NULL;
    if (!is_ordinary) {
        PyBuffer_Release(&view);
        Py_RETURN_NONE;
    }
    standings = PyBytes_FromStringAndSize(NULL, (Py_ssize_t)section.count);
    if (standings == NULL || enter(map) < 0) {
        Py_XDECREF(standings);
        PyBuffer_Release(&view);
        return NULL;
    }
    char *out = PyBytes_AsString(standings);
    PyThreadState *saved = section.end - section.at < KEEP_GIL_BELOW_BYTES ? NULL : PyEval_SaveThread();
    int failed = classify_records(&map->table, section, out);
    if (saved != NULL)
        PyEval_RestoreThread(saved);
    leave(map);
    PyBuffer_Release(&view);
    if (failed == 0)
        return standings;
    Py_DECREF(standings);
    Py_RETURN_NONE;
}

static PyObject *
map_advance_to(PyObject *self, PyObject *offset_object)
{
    OffsetMap *map = (OffsetMap *)self;
    int64_t offset;
    if (offset_argument(offset_object, &offset) < 0 || enter(map) < 0)
        return NULL;
    advance(&map->table, offset);
    leave(map);
    Py_RETURN_NONE;
}

static PyObject *
map_clear(PyObject *self, PyObject *nothing)
{
    (void)nothing;
    OffsetMap *map = (OffsetMap *)self;
    if (enter(map) < 0)
        return NULL;
    /* Clears only the tags: the next round need not take the slots' memory again. */
    if (map->table.count > 0) {
        Py_BEGIN_ALLOW_THREADS
        memset(map->table.tags, 0, (size_t)map->table.group_count * GROUP_SLOTS);
        Py_END_ALLOW_THREADS
    }
    map->table.count = 0;
    map->table.latest_offset = -1;
    leave(map);
    Py_RETURN_NONE;
}

/* OffsetMap(memory_bytes, seed, remainder, divisor) */
static PyObject *
map_new(PyTypeObject *type, PyObject *arguments, PyObject *keywords)
{
    Py_ssize_t memory_bytes;
    PyObject *seed_object;
    Table table = {.latest_offset = -1};
    if (keywords != NULL && PyDict_Size(keywords) > 0) {
        PyErr_SetString(PyExc_TypeError, "OffsetMap takes no keyword arguments");
        return NULL;
    }
    long long remainder = 0, divisor = 1;
    if (!PyArg_ParseTuple(arguments, "nO|LL", &memory_bytes, &seed_object, &remainder, &divisor) ||
        seed_argument(seed_object, &table.seed) < 0)
        return NULL;
    if (remainder < 0 || divisor <= remainder) {
        PyErr_SetString(PyExc_ValueError, "a class of keys is a remainder and a larger divisor");
        return NULL;
    }
    table.remainder = (uint64_t)remainder;
    table.divisor = (uint64_t)divisor;
    table.group_count = memory_bytes < 0 ? 0 : (uint64_t)memory_bytes / GROUP_BYTES;
    if (table.group_count > MAX_GROUPS)
        table.group_count = MAX_GROUPS;
    table.capacity = table.group_count * GROUP_SLOTS * 9 / 10;
    if (table.capacity == 0) {
        PyErr_SetString(PyExc_ValueError, "memory for no key");
        return NULL;
    }
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    OffsetMap *map = (OffsetMap *)allocate(type, 0);
    if (map == NULL)
        return NULL;
    table.tags = take_memory(size_of(&table));
    if (table.tags == NULL) {
        Py_DECREF(map);
        return PyErr_NoMemory();
    }
    table.slots = table.tags + table.group_count * GROUP_SLOTS;
    map->table = table;
    return (PyObject *)map;
}

static void
map_dealloc(PyObject *self)
{
    OffsetMap *map = (OffsetMap *)self;
    PyTypeObject *type = Py_TYPE(self);
    give_back_memory(map->table.tags, size_of(&map->table));
    freefunc release = (freefunc)PyType_GetSlot(type, Py_tp_free);
    release(self);
    Py_DECREF(type);
}

static PyObject *
map_count(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLongLong(((OffsetMap *)self)->table.count);
}

static PyObject *
map_capacity(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromUnsignedLongLong(((OffsetMap *)self)->table.capacity);
}

static PyObject *
map_latest_offset(PyObject *self, void *closure)
{
    (void)closure;
    return PyLong_FromLongLong(((OffsetMap *)self)->table.latest_offset);
}

static PyMethodDef map_methods[] = {
    {"put", (PyCFunction)(void (*)(void))map_put, METH_FASTCALL, NULL},
    {"get", map_get, METH_O, NULL},
    {"holds", map_holds, METH_O, NULL},
    {"put_keys", (PyCFunction)(void (*)(void))map_put_keys, METH_FASTCALL, NULL},
    {"put_section", (PyCFunction)(void (*)(void))map_put_section, METH_FASTCALL, NULL},
    {"classify_section", (PyCFunction)(void (*)(void))map_classify_section, METH_FASTCALL, NULL},
    {"advance_to", map_advance_to, METH_O, NULL},
    {"clear", map_clear, METH_NOARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef map_attributes[] = {
    {"count", map_count, NULL, NULL, NULL},
    {"capacity", map_capacity, NULL, NULL, NULL},
    {"latest_offset", map_latest_offset, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot map_slots[] = {
    {Py_tp_doc, "The latest offset of each key; see logstore.format.offset_map, which explains it all."},
    {Py_tp_new, map_new},
    {Py_tp_dealloc, map_dealloc},
    {Py_tp_methods, map_methods},
    {Py_tp_getset, map_attributes},
    {0, NULL},
};

static PyType_Spec map_spec = {
    .name = "logstore._compiled.OffsetMap",
    .basicsize = sizeof(OffsetMap),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_IMMUTABLETYPE,
    .slots = map_slots,
};

/* key, seed: the digest under which the map stores the key. For its test. */
static PyObject *
hash_key(PyObject *module, PyObject *const *arguments, Py_ssize_t argument_count)
{
    (void)module;
    const uint8_t *key;
    size_t size;
    Digest seed;
    if (check_argument_count(argument_count, 2) < 0 || key_argument(arguments[0], &key, &size) < 0 ||
        seed_argument(arguments[1], &seed) < 0)
        return NULL;
    Digest digest = siphash(key, size, seed);
    uint8_t bytes[16];
    write_little_endian64(bytes, digest.low);
    write_little_endian64(bytes + 8, digest.high);
    return PyBytes_FromStringAndSize((char *)bytes, sizeof bytes);
}

static PyMethodDef functions[] = {
    {"hash_key", (PyCFunction)(void (*)(void))hash_key, METH_FASTCALL, NULL},
    {NULL, NULL, 0, NULL},
};

int
add_offset_map(PyObject *module)
{
    PyObject *type = PyType_FromModuleAndSpec(module, &map_spec, NULL);
    if (type == NULL)
        return -1;
    module_state(module)->offset_map_type = (PyTypeObject *)type;
    int failed = PyModule_AddType(module, (PyTypeObject *)type);
    return failed < 0 || PyModule_AddFunctions(module, functions) < 0 ? -1 : 0;
}
