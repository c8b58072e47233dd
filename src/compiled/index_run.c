/* Checks and indexes a run of batches for recovery: at the speed of the checksum, without an object per batch.

   It handles only ordinary batches, and decides like Tail._accept (tail.py) and IndexBuilder.add (indexes.py); a
   test runs both over the same logs. The run ends before the first batch for which they would do more than move
   on: damage, another magic, an offset that does not follow, a newer leader epoch, an offset that does not fit the
   index, an index entry that is refused.
*/

#include "batch.h"
#include "writer.h"

#define MAX_RELATIVE_OFFSET INT64_C(0x7FFFFFFF)
#define MAX_POSITION INT64_C(0x7FFFFFFF)

enum { OFFSET_ENTRY_BYTES = 8, TIME_ENTRY_BYTES = 12 };

/* The values that do not change during a run: RunRules in run.py, in its order. */
typedef struct {
    int64_t base_offset; /* of the segment */
    int64_t dense_from;  /* from this offset on a gap means loss; -1 if it never does */
    int64_t latest_epoch;
    int64_t interval_bytes;
} Rules;

/* The values that change: RunPlace and IndexProgress in run.py, in their order. */
typedef struct {
    int64_t end_offset;
    int64_t gap_position; /* the place and end offset before the last batch, if there is a gap before it */
    int64_t gap_offset;   /* -1 if there is none */
    int64_t producer_position; /* of the first batch that has one; -1 if none has so far */
    int64_t bytes_since_entry;
    int64_t largest_ms; /* the largest timestamp, and the last offset of its batch */
    int64_t largest_offset;
    int64_t least_offset; /* the lowest offset that an offset index entry may have */
    int64_t offset_room;  /* entries that still fit */
    int64_t time_room;
    int64_t last_time_ms; /* the last time index entry; -1 and the base offset if there is none */
    int64_t last_time_offset;
} Progress;

/* The new entries, as in the files. */
typedef struct {
    uint8_t *offset_entries;
    uint8_t *time_entries;
    int64_t offset_count;
    int64_t time_count;
} Entries;

/* The header fields that matter here. */
typedef struct {
    int64_t base_offset;
    int64_t last_offset;
    int64_t max_ms;
    int64_t size_bytes;
} Batch;

static int
follows(const Rules *rules, const Progress *progress, const Batch *batch, const uint8_t *at)
{
    if (batch->base_offset < progress->end_offset || batch->last_offset == INT64_MAX)
        return 0;
    if (rules->dense_from >= 0 && batch->last_offset >= rules->dense_from &&
        batch->base_offset != progress->end_offset)
        return 0;
    return batch->last_offset >= rules->base_offset &&
           batch->last_offset - rules->base_offset <= MAX_RELATIVE_OFFSET &&
           read_int32(at + LEADER_EPOCH_AT) <= rules->latest_epoch;
}

static int
is_entry_due(const Rules *rules, const Progress *progress, const Batch *batch)
{
    return progress->bytes_since_entry > rules->interval_bytes && batch->last_offset >= progress->least_offset &&
           progress->offset_room > 0 && progress->time_room > 0;
}

static int
add_time_entry(const Rules *rules, Progress *progress, Entries *entries)
{
    int64_t relative = progress->largest_offset - rules->base_offset;
    if (progress->largest_ms < progress->last_time_ms || progress->largest_offset < progress->last_time_offset)
        return -1;
    if (progress->largest_ms == progress->last_time_ms)
        return 0;
    if (relative < 0 || relative > MAX_RELATIVE_OFFSET)
        return -1;
    uint8_t *entry = entries->time_entries + TIME_ENTRY_BYTES * entries->time_count++;
    write_int64(entry, progress->largest_ms);
    write_int32(entry + 8, (int32_t)relative);
    progress->time_room--;
    progress->last_time_ms = progress->largest_ms;
    progress->last_time_offset = progress->largest_offset;
    return 0;
}

static int
add_entries(const Rules *rules, Progress *progress, Entries *entries, const Batch *batch, int64_t position)
{
    if (position > MAX_POSITION || add_time_entry(rules, progress, entries) < 0)
        return -1;
    uint8_t *entry = entries->offset_entries + OFFSET_ENTRY_BYTES * entries->offset_count++;
    write_int32(entry, (int32_t)(batch->last_offset - rules->base_offset));
    write_int32(entry + 4, (int32_t)position);
    progress->offset_room--;
    progress->least_offset = batch->last_offset + 1;
    progress->bytes_since_entry = 0;
    return 0;
}

/* Add the batch at this position of the file to progress and entries; -1 if it is unusual, and then only values
   that the caller discards have changed. */
static int
take(const Rules *rules, Progress *progress, Entries *entries, const uint8_t *at, int64_t size_bytes,
     int64_t position)
{
    int64_t base_offset = read_int64(at + BASE_OFFSET_AT);
    Batch batch = {base_offset, base_offset + read_int32(at + LAST_OFFSET_DELTA_AT),
                   read_int64(at + MAX_TIMESTAMP_AT), size_bytes};
    if (!follows(rules, progress, &batch, at))
        return -1;
    Progress next = *progress;
    if (batch.max_ms > next.largest_ms && read_int32(at + RECORD_COUNT_AT) != 0) {
        next.largest_ms = batch.max_ms;
        next.largest_offset = batch.last_offset;
    }
    if (is_entry_due(rules, &next, &batch) && add_entries(rules, &next, entries, &batch, position) < 0)
        return -1;
    next.bytes_since_entry += size_bytes;
    next.gap_position = position;
    next.gap_offset = base_offset > next.end_offset ? next.end_offset : -1;
    next.end_offset = batch.last_offset + 1;
    if (next.producer_position < 0 && read_int64(at + PRODUCER_ID_AT) >= 0)
        next.producer_position = position;
    *progress = next;
    return 0;
}

/* The end of the run. Needs no GIL. */
static const uint8_t *
run(const Rules *rules, Progress *progress, Entries *entries, const uint8_t *at, const uint8_t *end,
    int64_t position)
{
    int64_t size_bytes;
    while ((size_bytes = whole_batch_bytes(at, end)) > 0 && is_sound_batch(at, size_bytes) &&
           take(rules, progress, entries, at, size_bytes, position) == 0) {
        at += size_bytes;
        position += size_bytes;
    }
    return at;
}

/* The ints of a tuple that must have so many. */
static int
read_ints(PyObject *tuple, int64_t *numbers, Py_ssize_t count)
{
    if (!PyTuple_Check(tuple) || PyTuple_Size(tuple) != count) {
        PyErr_Format(PyExc_TypeError, "a tuple of %zd ints is wanted", count);
        return -1;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
        if (numbers[i] == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

static int
read_rules(PyObject *tuple, Rules *rules)
{
    int64_t numbers[sizeof(Rules) / sizeof(int64_t)];
    if (read_ints(tuple, numbers, sizeof(numbers) / sizeof(*numbers)) < 0)
        return -1;
    memcpy(rules, numbers, sizeof(numbers));
    return 0;
}

static int
read_progress(PyObject *tuple, Progress *progress)
{
    int64_t numbers[sizeof(Progress) / sizeof(int64_t)];
    if (read_ints(tuple, numbers, sizeof(numbers) / sizeof(*numbers)) < 0)
        return -1;
    memcpy(progress, numbers, sizeof(numbers));
    return 0;
}

/* Whether the arithmetic of a run stays inside 64 bits. */
static int
are_possible(const Rules *rules, const Progress *progress)
{
    return rules->base_offset >= 0 && rules->interval_bytes >= 0 && rules->interval_bytes <= INT32_MAX &&
           progress->bytes_since_entry >= 0 && progress->bytes_since_entry <= INT64_MAX / 2 &&
           progress->largest_offset >= 0;
}

/* The most offset index entries that so many bytes can give; the same number limits time index entries. */
static int64_t
most_entries(const Rules *rules, const Progress *progress, int64_t size_bytes)
{
    int64_t most = size_bytes / HEADER_BYTES;
    int64_t by_interval = (size_bytes + progress->bytes_since_entry) / (rules->interval_bytes + 1) + 1;
    most = by_interval < most ? by_interval : most;
    most = progress->offset_room < most ? progress->offset_room : most;
    return most > 0 ? most : 0;
}

static PyObject *
result_of_run(Py_ssize_t stop, const Progress *p, const Entries *entries)
{
    return Py_BuildValue("(n(LLLLLLLLLLLL)y#y#)", stop, (long long)p->end_offset, (long long)p->gap_position,
                         (long long)p->gap_offset, (long long)p->producer_position, (long long)p->bytes_since_entry,
                         (long long)p->largest_ms,
                         (long long)p->largest_offset, (long long)p->least_offset, (long long)p->offset_room,
                         (long long)p->time_room, (long long)p->last_time_ms, (long long)p->last_time_offset,
                         (char *)entries->offset_entries, (Py_ssize_t)(OFFSET_ENTRY_BYTES * entries->offset_count),
                         (char *)entries->time_entries, (Py_ssize_t)(TIME_ENTRY_BYTES * entries->time_count));
}

static PyObject *
index_view(const Py_buffer *view, Py_ssize_t position, Py_ssize_t end, int64_t file_position,
           const Rules *rules, Progress *progress)
{
    size_t most = (size_t)most_entries(rules, progress, end - position) + 1; /* never 0, to avoid an allocation of 0 bytes */
    uint8_t *memory = PyMem_Malloc(most * (OFFSET_ENTRY_BYTES + TIME_ENTRY_BYTES));
    if (memory == NULL)
        return PyErr_NoMemory();
    Entries entries = {memory, memory + most * OFFSET_ENTRY_BYTES, 0, 0};
    const uint8_t *start = view->buf, *stop;
    Py_BEGIN_ALLOW_THREADS
    stop = run(rules, progress, &entries, start + position, start + end, file_position);
    Py_END_ALLOW_THREADS
    PyObject *result = result_of_run(stop - start, progress, &entries);
    PyMem_Free(memory);
    return result;
}

/* index_run(buffer, position, end, file_position, rules, progress, /) -> (stop, progress, offset entries, time
   entries), or None for numbers that no caller has. file_position is the place of position in the file. */
static PyObject *
python_index_run(PyObject *module, PyObject *const *args, Py_ssize_t nargs)
{
    (void)module;
    if (nargs != 6) {
        PyErr_SetString(PyExc_TypeError, "index_run takes six arguments");
        return NULL;
    }
    int64_t places[3];
    for (int i = 0; i < 3; i++) {
        places[i] = PyLong_AsLongLong(args[i + 1]);
        if (places[i] == -1 && PyErr_Occurred())
            return NULL;
    }
    Rules rules;
    Progress progress;
    Py_buffer view;
    if (read_rules(args[4], &rules) < 0 || read_progress(args[5], &progress) < 0 ||
        PyObject_GetBuffer(args[0], &view, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *result;
    if (places[0] < 0 || places[0] > places[1] || places[1] > view.len || places[2] < 0 ||
        places[2] > INT64_MAX - view.len || !are_possible(&rules, &progress))
        result = Py_NewRef(Py_None);
    else
        result = index_view(&view, (Py_ssize_t)places[0], (Py_ssize_t)places[1], places[2], &rules, &progress);
    PyBuffer_Release(&view);
    return result;
}

static PyMethodDef functions[] = {
    {"index_run", (PyCFunction)(void (*)(void))python_index_run, METH_FASTCALL,
     "index_run(buffer, position, end, file_position, rules, progress, /)\n--\n\n"
     "Check and index the ordinary batches from a position on."},
    {NULL, NULL, 0, NULL},
};

int
add_index_run(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
