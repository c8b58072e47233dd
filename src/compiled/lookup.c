/* Reading a log: runs of ordinary batches to records, and one record out of a batch.

   A batch is ordinary if it has magic 2, is neither compressed nor a control batch, is whole, has a right checksum
   and structure, and is in its place: its offsets lie above those of the batch before it and below those of the
   next one. The code in partition/reading checks the same of every batch, and decides about all others.
*/

#include "batch.h"
#include "record.h"
#include "run.h"

enum { INDEX_ENTRY_BYTES = 8 };

/* Batches ------------------------------------------------------------------------------------------------- */

typedef enum { IS_READ, IS_CUT, IS_ODD } Found;

/* The batch of magic 2 at a place. Checks that its size and offsets are possible, and that it is whole. */
static Found
read_batch(const uint8_t *at, const uint8_t *end, Batch *batch)
{
    if (end - at < HEADER_BYTES)
        return IS_CUT;
    int64_t size = (int64_t)read_int32(at + BATCH_LENGTH_AT) + LENGTH_OVERHEAD_BYTES;
    if ((int8_t)at[MAGIC_AT] != 2 || size < HEADER_BYTES)
        return IS_ODD;
    if (size > end - at)
        return IS_CUT;
    int32_t last_delta = read_int32(at + LAST_OFFSET_DELTA_AT);
    batch->at = at;
    batch->stop = at + size;
    batch->base_offset = read_int64(at);
    if (batch->base_offset < 0 || last_delta < 0 || batch->base_offset > INT64_MAX - last_delta)
        return IS_ODD;
    batch->last_offset = batch->base_offset + last_delta;
    batch->attributes = read_int16(at + ATTRIBUTES_AT);
    batch->record_count = read_int32(at + RECORD_COUNT_AT);
    return IS_READ;
}

static int
is_dense(const Batch *batch)
{
    return batch->record_count - 1 == batch->last_offset - batch->base_offset;
}

/* Whether checksum and structure are right: check_batch in header.py. */
static int
is_right(const Batch *batch)
{
    return is_sound_batch(batch->at, batch->stop - batch->at);
}

/* Records ------------------------------------------------------------------------------------------------- */

/* The offset delta of the record at *at; moves past the record without reading more of it. */
static int
read_delta(const uint8_t **at, const uint8_t *end, int32_t *delta)
{
    int32_t size;
    int64_t timestamp_delta;
    if (read_record_size(at, end, &size) < 0)
        return -1;
    const uint8_t *p = *at + 1, *stop = *at + size;
    if (read_varlong(&p, stop, &timestamp_delta) < 0 || read_varint(&p, stop, delta) < 0)
        return -1;
    *at = stop;
    return 0;
}

/* Skips so many records by their sizes. */
static int
skip(const uint8_t **at, const uint8_t *end, int64_t count)
{
    int32_t size;
    while (count-- > 0) {
        if (read_record_size(at, end, &size) < 0)
            return -1;
        *at += size;
    }
    return 0;
}

/* A run of batches ---------------------------------------------------------------------------------------- */

/* Whether other code must judge the next batch, or read it. */
static int
is_out_of_the_ordinary(const Run *run, const Batch *batch)
{
    if (batch->attributes & CODEC_MASK)
        return 1;
    if (batch->attributes & TRANSACTIONAL_BIT && run->is_filtering)
        return 1;
    if (!is_right(batch))
        return 1;
    int is_whole = batch->base_offset >= run->start && batch->last_offset < run->stop;
    return !is_whole && (run->is_whole_only || !is_dense(batch)) && batch->last_offset >= run->start;
}

static RunEnd
walk_batches(Run *run)
{
    Py_ssize_t taken_bytes = 0;
    while (run->batch_count < MAX_BATCHES && taken_bytes < run->limit_bytes) {
        Batch *batch = &run->batches[run->batch_count];
        Found found = read_batch(run->at, run->end, batch);
        if (found != IS_READ)
            return found == IS_CUT ? RUN_CUT : RUN_ODD;
        int64_t next_base = base_behind(batch->stop, run->end, run->next_segment);
        if (next_base == -1)
            return RUN_CUT;
        if (batch->base_offset <= run->previous_last || batch->last_offset >= next_base)
            return RUN_ODD;
        if (batch->base_offset >= run->stop)
            return RUN_DONE;
        batch->previous_last = run->previous_last;
        if (next_base > run->start) {
            if (is_out_of_the_ordinary(run, batch))
                return RUN_ODD;
            taken_bytes += batch->stop - batch->at;
            if (batch->last_offset >= run->start && !(batch->attributes & CONTROL_BIT))
                run->batch_count++;
        }
        int is_last = batch->last_offset >= run->stop - 1;
        run->previous_last = batch->last_offset;
        run->at = batch->stop;
        if (is_last)
            return RUN_DONE;
    }
    return RUN_FULL;
}

RunEnd
walk_run(Run *run)
{
    if (run->end - run->at < LONG_WORK_BYTES)
        return walk_batches(run);
    RunEnd why;
    Py_BEGIN_ALLOW_THREADS
    why = walk_batches(run);
    Py_END_ALLOW_THREADS
    return why;
}

/* Which records of a batch are wanted: how many to skip, and how many follow. */
static void
wanted_records(const Run *run, const Batch *batch, int32_t *first, int32_t *count)
{
    *first = run->start > batch->base_offset ? (int32_t)(run->start - batch->base_offset) : 0;
    *count = batch->last_offset < run->stop ? batch->record_count - *first
                                            : (int32_t)(run->stop - batch->base_offset) - *first;
    if (*count < 0) /* start is after stop */
        *count = 0;
}

/* Fills list from index on with a batch's records. Returns -1, perhaps with an exception, if one is damaged. */
static int
decode_wanted(HeaderCache *cache, RecordSource *source, const Run *run, const Batch *batch, PyObject *list,
              Py_ssize_t index)
{
    const uint8_t *at = batch->at + HEADER_BYTES;
    Base base = base_of(batch);
    RawRecord raw;
    int32_t first, count;
    wanted_records(run, batch, &first, &count);
    if (skip(&at, batch->stop, first) < 0)
        return -1;
    int is_part = count != batch->record_count; /* of a dense batch, see is_out_of_the_ordinary */
    int64_t least_delta = first;
    int64_t most_delta = is_part ? (int64_t)first + count - 1 : batch->last_offset - batch->base_offset;
    for (int32_t number = 0; number < count; number++) {
        if (read_record(&at, batch->stop, &raw) < 0 || raw.offset_delta < least_delta ||
            raw.offset_delta > most_delta)
            return -1;
        least_delta = (int64_t)raw.offset_delta + 1;
        int64_t offset = base.base_offset + raw.offset_delta, timestamp_ms = timestamp_of(&base, &raw);
        PyObject *record = run->section == NULL
                               ? record_of_raw(cache, source, &raw, offset, timestamp_ms)
                               : on_demand_record_of_raw(source, &raw, offset, timestamp_ms, run->section);
        if (record == NULL || PyList_SetItem(list, index + number, record) < 0)
            return -1;
    }
    return first + count == batch->record_count && at != batch->stop ? -1 : 0;
}

static Py_ssize_t
count_wanted(const Run *run)
{
    Py_ssize_t total = 0;
    for (int number = 0; number < run->batch_count; number++) {
        int32_t first, count;
        wanted_records(run, &run->batches[number], &first, &count);
        total += count;
    }
    return total;
}

/* The records of a walked run, which ends before a batch with a damaged record. */
static PyObject *
decode_run(HeaderCache *cache, Run *run, RunEnd *why)
{
    Py_ssize_t total = count_wanted(run), index = 0;
    PyObject *list = PyList_New(total);
    if (list == NULL)
        return NULL;
    for (int number = 0; number < run->batch_count; number++) {
        const Batch *batch = &run->batches[number];
        int32_t first, count;
        wanted_records(run, batch, &first, &count);
        RecordSource *source = find_batch_source(cache->state, run->partition, batch->at);
        int failed = source == NULL ? -1 : decode_wanted(cache, source, run, batch, list, index);
        release_source(source);
        if (failed == 0) {
            index += count;
            continue;
        }
        if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_MemoryError))
            PyErr_Clear();
        if (PyErr_Occurred() || PyList_SetSlice(list, index, total, NULL) < 0) {
            Py_DECREF(list);
            return NULL;
        }
        *why = RUN_ODD;
        end_run_before(run, number);
        break;
    }
    return list;
}

static const uint8_t *
bytes_of(const Py_buffer *buffer)
{
    static const uint8_t none[1];
    return buffer->buf == NULL ? none : buffer->buf;
}

/* Arguments that only logstore itself passes: anything but an int raises. */
static int
read_ints(PyObject *const *arguments, Py_ssize_t count, int64_t *numbers)
{
    for (Py_ssize_t number = 0; number < count; number++) {
        numbers[number] = PyLong_AsLongLong(arguments[number]);
        if (numbers[number] == -1 && PyErr_Occurred())
            return -1;
    }
    return 0;
}

static int
has_count_between(Py_ssize_t count, Py_ssize_t least, Py_ssize_t most)
{
    if (count >= least && count <= most)
        return 1;
    PyErr_Format(PyExc_TypeError, "%zd arguments where %zd to %zd are wanted", count, least, most);
    return 0;
}

static int
has_count(Py_ssize_t count, Py_ssize_t wanted)
{
    return has_count_between(count, wanted, wanted);
}

static PyObject *
optional_argument(PyObject *const *arguments, Py_ssize_t count, Py_ssize_t number)
{
    return number < count ? arguments[number] : Py_None;
}

Run *
begin_run(PyObject *const *arguments, Py_buffer *buffer)
{
    int64_t numbers[7];
    if (read_ints(arguments + 1, 7, numbers) < 0)
        return NULL;
    Run *run = PyMem_Malloc(sizeof(Run));
    if (run == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    if (PyObject_GetBuffer(arguments[0], buffer, PyBUF_SIMPLE) < 0) {
        PyMem_Free(run);
        return NULL;
    }
    run->begin = bytes_of(buffer);
    run->end = run->begin + buffer->len;
    run->at = run->begin + (numbers[0] < 0 || numbers[0] > buffer->len ? buffer->len : numbers[0]);
    run->previous_last = numbers[1];
    run->next_segment = numbers[2];
    run->start = numbers[3];
    run->stop = numbers[4];
    run->limit_bytes = (Py_ssize_t)numbers[5];
    run->is_filtering = numbers[6] != 0;
    run->is_whole_only = 0;
    run->section = NULL;
    run->partition = Py_None;
    run->batch_count = 0;
    return run;
}

void
end_run_before(Run *run, int number)
{
    run->at = run->batches[number].at;
    run->previous_last = run->batches[number].previous_last;
    run->batch_count = number;
}

PyObject *
run_result(const Run *run, PyObject *found, RunEnd why)
{
    return Py_BuildValue("(NnLi)", found, (Py_ssize_t)(run->at - run->begin), (long long)run->previous_last, (int)why);
}

PyDoc_STRVAR(read_run_doc, "read_run(buffer, position, previous_last, next_segment, start, stop, limit_bytes, "
                           "is_filtering, on_demand, partition=None) -> (records, position, previous_last, why)");

static PyObject *
read_run(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    Py_buffer buffer;
    if (!has_count_between(count, 9, 10))
        return NULL;
    int on_demand = PyObject_IsTrue(arguments[8]);
    Run *run = on_demand < 0 ? NULL : begin_run(arguments, &buffer);
    if (run == NULL)
        return NULL;
    run->section = on_demand && PyBytes_Check(arguments[0]) ? arguments[0] : NULL;
    run->partition = optional_argument(arguments, count, 9);
    RunEnd why = walk_run(run);
    HeaderCache cache;
    begin_header_cache(&cache, module_state(module));
    PyObject *list = decode_run(&cache, run, &why);
    clear_header_cache(&cache);
    PyObject *result = list == NULL ? NULL : run_result(run, list, why);
    PyMem_Free(run);
    PyBuffer_Release(&buffer);
    return result;
}

/* One record of a batch ----------------------------------------------------------------------------------- */

/* Finds the record with an offset delta, starting at a record whose number is known; in a dense batch by the sizes
   alone. Returns 1 if there is no such record. */
static int
find_delta(const uint8_t **at, const uint8_t *end, int64_t number, int64_t count, int dense, int64_t delta,
           RawRecord *raw)
{
    if (dense) {
        if (skip(at, end, delta - number) < 0)
            return -1;
        return read_record(at, end, raw) < 0 || raw->offset_delta != delta ? -1 : 0;
    }
    int64_t previous = -1;
    for (; number < count; number++) {
        const uint8_t *start = *at;
        int32_t found;
        if (read_delta(at, end, &found) < 0 || found <= previous)
            return -1;
        if (found >= delta)
            return found > delta ? 1 : read_record(&start, end, raw);
        previous = found;
    }
    return *at == end ? 1 : -1;
}

/* The record at an offset in a batch's section; False if there is none, None if something is wrong. */
static PyObject *
record_at_delta(ModuleState *state, const Base *base, const uint8_t *at, const uint8_t *end, int64_t number,
                int64_t count, int dense, int64_t delta, PyObject *partition, int32_t leader_epoch)
{
    RawRecord raw;
    int missed = find_delta(&at, end, number, count, dense, delta, &raw);
    if (missed < 0)
        Py_RETURN_NONE;
    if (missed)
        return Py_NewRef(Py_False);
    RecordSource *source = find_source(state, partition, leader_epoch, base->is_append_time);
    if (source == NULL)
        return NULL;
    HeaderCache cache;
    begin_header_cache(&cache, state);
    int64_t offset = add_wrapping(base->base_offset, raw.offset_delta);
    PyObject *record = record_of_raw(&cache, source, &raw, offset, timestamp_of(base, &raw));
    clear_header_cache(&cache);
    release_source(source);
    if (record != NULL || (PyErr_Occurred() && PyErr_ExceptionMatches(PyExc_MemoryError)))
        return record;
    PyErr_Clear();
    Py_RETURN_NONE;
}

PyDoc_STRVAR(find_in_section_doc,
             "find_in_section(section, position, number, record_count, is_dense, base_offset, base_timestamp_ms, "
             "append_time_ms, is_append_time, offset, leader_epoch=-1, partition=None) -> Record, False if there is "
             "none, or None");

static PyObject *
find_in_section(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int64_t numbers[10] = {[9] = NO_LEADER_EPOCH};
    Py_buffer buffer;
    if (!has_count_between(count, 10, 12) || read_ints(arguments + 1, count > 10 ? 10 : 9, numbers) < 0 ||
        PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    Base base = {numbers[4], numbers[5], numbers[6], numbers[7] != 0};
    const uint8_t *bytes = bytes_of(&buffer);
    int64_t delta = (int64_t)((uint64_t)numbers[8] - (uint64_t)base.base_offset);
    PyObject *record;
    if (numbers[0] < 0 || numbers[0] > buffer.len || numbers[1] < 0 || delta < numbers[1] || delta > INT32_MAX ||
        numbers[9] < INT32_MIN || numbers[9] > INT32_MAX)
        record = Py_NewRef(Py_None);
    else
        record = record_at_delta(module_state(module), &base, bytes + numbers[0], bytes + buffer.len, numbers[1],
                                 numbers[2], numbers[3] != 0, delta, optional_argument(arguments, count, 11),
                                 (int32_t)numbers[9]);
    PyBuffer_Release(&buffer);
    return record;
}

PyDoc_STRVAR(mark_records_doc,
             "mark_records(section, position, record_count, step) -> (deltas, positions) of every step-th record, "
             "or None");

/* Adds one number to a list. */
static int
append_number(PyObject *list, int64_t number)
{
    PyObject *object = PyLong_FromLongLong(number);
    int failed = object == NULL || PyList_Append(list, object) < 0;
    Py_XDECREF(object);
    return failed ? -1 : 0;
}

/* Returns 1 if something is wrong, -1 with an exception. */
static int
mark(const uint8_t *bytes, const uint8_t *at, const uint8_t *end, int64_t count, int64_t step, PyObject *deltas,
     PyObject *positions)
{
    int64_t previous = -1;
    for (int64_t number = 0; number < count; number++) {
        const uint8_t *start = at;
        int32_t delta;
        if (read_delta(&at, end, &delta) < 0 || delta <= previous)
            return 1;
        previous = delta;
        if (number % step == 0 &&
            (append_number(deltas, delta) < 0 || append_number(positions, start - bytes) < 0))
            return -1;
    }
    return at != end;
}

static PyObject *
mark_records(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    int64_t numbers[3];
    Py_buffer buffer;
    if (!has_count(count, 4) || read_ints(arguments + 1, 3, numbers) < 0 ||
        PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    PyObject *deltas = PyList_New(0), *positions = PyList_New(0), *result = NULL;
    const uint8_t *bytes = bytes_of(&buffer);
    int failed = deltas == NULL || positions == NULL ? -1 : 1;
    if (failed > 0 && numbers[0] >= 0 && numbers[0] <= buffer.len && numbers[2] > 0)
        failed = mark(bytes, bytes + numbers[0], bytes + buffer.len, numbers[1], numbers[2], deltas, positions);
    if (failed == 0)
        result = PyTuple_Pack(2, deltas, positions);
    else if (failed > 0)
        result = Py_NewRef(Py_None);
    Py_XDECREF(deltas);
    Py_XDECREF(positions);
    PyBuffer_Release(&buffer);
    return result;
}

/* One record of a file range ------------------------------------------------------------------------------ */

typedef struct {
    const uint8_t *end;
    int64_t next_segment;
    int64_t previous_last;
    int64_t indexed_last; /* the last offset of the first batch according to the index, or -1 */
    int64_t offset;
    int is_exact; /* the batch must begin right after previous_last, and end right before the next */
} Search;

typedef enum { FOUND_BATCH, FOUND_GAP, FOUND_NOTHING } SearchEnd;

/* Whether a batch may be the one with this last offset in the index. */
static int
is_as_indexed(const Search *search, const Batch *batch)
{
    return search->indexed_last < 0 || batch->last_offset <= search->indexed_last;
}

/* The batch that holds the offset, checked as a walk over the whole segment would. FOUND_GAP: the offset lies between
   two batches that each have another neighbour. Otherwise one of them might be the batch, with a wrong base
   offset. */
static SearchEnd
search_batch(Search *search, const uint8_t *at, Batch *batch)
{
    for (int walked_count = 0;; walked_count++) {
        if (read_batch(at, search->end, batch) != IS_READ || !is_as_indexed(search, batch))
            return FOUND_NOTHING;
        int64_t next_base = base_behind(batch->stop, search->end, search->next_segment);
        if (next_base == -1 || batch->base_offset <= search->previous_last || batch->last_offset >= next_base)
            return FOUND_NOTHING;
        if (search->is_exact && (batch->base_offset - 1 != search->previous_last ||
                                 next_base - 1 != batch->last_offset || batch->last_offset < search->offset))
            return FOUND_NOTHING;
        if (batch->base_offset > search->offset)
            return walked_count >= 2 ? FOUND_GAP : FOUND_NOTHING;
        if (next_base > search->offset) {
            if (!is_right(batch))
                return FOUND_NOTHING;
            if (batch->last_offset >= search->offset)
                return FOUND_BATCH;
            if (batch->stop == search->end)
                return walked_count >= 1 ? FOUND_GAP : FOUND_NOTHING;
        }
        search->previous_last = batch->last_offset;
        search->indexed_last = -1;
        at = batch->stop;
    }
}

PyDoc_STRVAR(find_record_doc,
             "find_record(buffer, is_exact, previous_last, indexed_last, next_segment, offset, is_filtering, "
             "whole_bytes, partition=None) -> Record, False, the position of the batch, or None");

static PyObject *
answer(ModuleState *state, const Search *search, const Batch *batch, const uint8_t *bytes, int is_filtering,
       int64_t whole_bytes, PyObject *partition)
{
    if (batch->attributes & CONTROL_BIT)
        Py_RETURN_FALSE;
    if (batch->attributes & CODEC_MASK || (batch->attributes & TRANSACTIONAL_BIT && is_filtering) ||
        batch->stop - batch->at >= whole_bytes)
        return PyLong_FromSsize_t(batch->at - bytes);
    Base base = base_of(batch);
    return record_at_delta(state, &base, batch->at + HEADER_BYTES, batch->stop, 0, batch->record_count,
                           is_dense(batch), search->offset - batch->base_offset, partition,
                           read_int32(batch->at + LEADER_EPOCH_AT));
}

static PyObject *
find_record(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    int64_t numbers[7];
    Py_buffer buffer;
    if (!has_count_between(count, 8, 9) || read_ints(arguments + 1, 7, numbers) < 0 ||
        PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *bytes = bytes_of(&buffer);
    Search search = {.end = bytes + buffer.len,
                     .is_exact = numbers[0] != 0,
                     .previous_last = numbers[1],
                     .indexed_last = numbers[2],
                     .next_segment = numbers[3],
                     .offset = numbers[4]};
    Batch batch;
    SearchEnd found;
    if (buffer.len < LONG_WORK_BYTES)
        found = search_batch(&search, bytes, &batch);
    else {
        Py_BEGIN_ALLOW_THREADS
        found = search_batch(&search, bytes, &batch);
        Py_END_ALLOW_THREADS
    }
    PyObject *result;
    if (found == FOUND_BATCH)
        result = answer(module_state(module), &search, &batch, bytes, numbers[5] != 0, numbers[6],
                        optional_argument(arguments, count, 8));
    else
        result = Py_NewRef(found == FOUND_GAP ? Py_False : Py_None);
    PyBuffer_Release(&buffer);
    return result;
}

/* The offset index ---------------------------------------------------------------------------------------- */

PyDoc_STRVAR(find_interval_doc,
             "find_interval(entries, relative_offset) -> (relative_offset, position) of the last entry at or below "
             "it, the same of the next entry, and the position of the one after; -1 where there is no such entry");

static int64_t
index_field(const uint8_t *entries, Py_ssize_t count, Py_ssize_t number, int field_at)
{
    return number < 0 || number >= count ? -1 : read_int32(entries + number * INDEX_ENTRY_BYTES + field_at);
}

/* Py_BuildValue takes four times as long. */
static PyObject *
five_numbers(int64_t first, int64_t second, int64_t third, int64_t fourth, int64_t fifth)
{
    int64_t numbers[5] = {first, second, third, fourth, fifth};
    PyObject *tuple = PyTuple_New(5);
    for (Py_ssize_t number = 0; tuple != NULL && number < 5; number++) {
        PyObject *object = PyLong_FromLongLong(numbers[number]);
        if (object == NULL || PyTuple_SetItem(tuple, number, object) < 0)
            Py_CLEAR(tuple);
    }
    return tuple;
}

static PyObject *
find_interval(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    int64_t wanted;
    Py_buffer buffer;
    if (!has_count(count, 2) || read_ints(arguments + 1, 1, &wanted) < 0 ||
        PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    const uint8_t *entries = bytes_of(&buffer);
    Py_ssize_t entry_count = buffer.len / INDEX_ENTRY_BYTES, low = 0, high = entry_count;
    while (low < high) {
        Py_ssize_t middle = low + (high - low) / 2;
        if (read_int32(entries + middle * INDEX_ENTRY_BYTES) <= wanted)
            low = middle + 1;
        else
            high = middle;
    }
    int64_t relative = index_field(entries, entry_count, low - 1, 0);
    int64_t position = index_field(entries, entry_count, low - 1, 4);
    int64_t next_relative = index_field(entries, entry_count, low, 0);
    int64_t next = index_field(entries, entry_count, low, 4);
    int64_t after_next = index_field(entries, entry_count, low + 1, 4);
    PyBuffer_Release(&buffer);
    return five_numbers(relative, position, next_relative, next, after_next);
}

/* --------------------------------------------------------------------------------------------------------- */

static PyMethodDef functions[] = {
    {"read_run", (PyCFunction)(void (*)(void))read_run, METH_FASTCALL, read_run_doc},
    {"find_in_section", (PyCFunction)(void (*)(void))find_in_section, METH_FASTCALL, find_in_section_doc},
    {"mark_records", (PyCFunction)(void (*)(void))mark_records, METH_FASTCALL, mark_records_doc},
    {"find_record", (PyCFunction)(void (*)(void))find_record, METH_FASTCALL, find_record_doc},
    {"find_interval", (PyCFunction)(void (*)(void))find_interval, METH_FASTCALL, find_interval_doc},
    {NULL, NULL, 0, NULL},
};

int
add_lookup(PyObject *module)
{
    if (PyModule_AddIntConstant(module, "RUN_FULL", RUN_FULL) < 0 ||
        PyModule_AddIntConstant(module, "RUN_CUT", RUN_CUT) < 0 ||
        PyModule_AddIntConstant(module, "RUN_ODD", RUN_ODD) < 0 ||
        PyModule_AddIntConstant(module, "RUN_DONE", RUN_DONE) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
