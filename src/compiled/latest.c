/* Runs of ordinary batches with offset maps: the two passes of a table view, at the speed of reading.

   latest.py handles the batches that a run leaves out one by one, with the same map's put_section and
   classify_section.
*/

#include "offset_map.h"
#include "record.h"
#include "run.h"

/* The sections of a walked run; free them with PyMem_Free. NULL with the exception. */
static Section *
sections_of(const Run *run)
{
    Section *sections = PyMem_Malloc(sizeof(Section) * (size_t)(run->batch_count + 1));
    if (sections == NULL) {
        PyErr_NoMemory();
        return NULL;
    }
    for (int number = 0; number < run->batch_count; number++) {
        const Batch *batch = &run->batches[number];
        Section section = {batch->at + HEADER_BYTES, batch->stop, batch->record_count, batch->base_offset,
                           (int32_t)(batch->last_offset - batch->base_offset), 0};
        sections[number] = section;
    }
    return sections;
}

/* The next run of batches of which all records are wanted. */
static Run *
walk_whole(PyObject *const *arguments, Py_ssize_t argument_count, Py_buffer *buffer, RunEnd *why)
{
    if (argument_count < 9 || argument_count > 10) {
        PyErr_SetString(PyExc_TypeError, "9 or 10 arguments are wanted");
        return NULL;
    }
    Run *run = begin_run(arguments, buffer);
    if (run != NULL) {
        run->is_whole_only = 1;
        run->partition = argument_count > 9 ? arguments[9] : Py_None;
        *why = walk_run(run);
    }
    return run;
}

static void
finish(Run *run, Py_buffer *buffer)
{
    PyMem_Free(run);
    PyBuffer_Release(buffer);
}

/* First pass ---------------------------------------------------------------------------------------------- */

static PyObject *
put_run(PyObject *module, PyObject *const *arguments, Py_ssize_t argument_count)
{
    Py_buffer buffer;
    RunEnd why;
    Run *run = walk_whole(arguments, argument_count, &buffer, &why);
    if (run == NULL)
        return NULL;
    PyObject *result = NULL;
    OffsetMap *map = offset_map_of(module_state(module), arguments[8]);
    Section *sections = map == NULL ? NULL : sections_of(run);
    int done = sections == NULL ? -1 : put_sections(map, sections, run->batch_count);
    if (done >= 0) {
        if (done < run->batch_count) {
            end_run_before(run, done);
            why = RUN_ODD;
        }
        result = run_result(run, Py_NewRef(Py_None), why);
    }
    PyMem_Free(sections);
    finish(run, &buffer);
    return result;
}

/* Second pass --------------------------------------------------------------------------------------------- */

/* The standings of a walked run's records in maps of consecutive parts of the log: for each the least of its
   standings, so superseded if one map has a later record. Ends the run before a damaged batch. -1 with the
   exception. */
static int
classify_run(const ModuleState *state, Run *run, const Section *sections, PyObject *maps, char *standings,
             Py_ssize_t record_count)
{
    int before = run->batch_count;
    for (Py_ssize_t number = 0; number < PyList_Size(maps); number++) {
        OffsetMap *map = offset_map_of(state, PyList_GetItem(maps, number));
        char *found = number == 0 ? standings : standings + record_count;
        int done = map == NULL ? -1 : classify_sections(map, sections, run->batch_count, found);
        if (done < 0)
            return -1;
        if (done < run->batch_count)
            end_run_before(run, done);
        for (Py_ssize_t i = 0; number > 0 && i < record_count; i++)
            if (found[i] < standings[i])
                standings[i] = found[i];
    }
    return before != run->batch_count;
}

/* Appends the batch's latest records. -1, perhaps with an exception, if one is damaged. */
static int
decode_latest(HeaderCache *cache, RecordSource *source, const Batch *batch, const char *standings, PyObject *list)
{
    const uint8_t *at = batch->at + HEADER_BYTES;
    Base base = base_of(batch);
    for (int32_t number = 0; number < batch->record_count; number++) {
        RawRecord raw;
        if (read_record(&at, batch->stop, &raw) < 0)
            return -1;
        if (standings[number] != LATEST)
            continue;
        int64_t offset = base.base_offset + raw.offset_delta;
        PyObject *record = record_of_raw(cache, source, &raw, offset, timestamp_of(&base, &raw));
        int failed = record == NULL ? -1 : PyList_Append(list, record);
        Py_XDECREF(record);
        if (failed < 0)
            return -1;
    }
    return 0;
}

/* The latest records of a classified run, which ends before a batch with a damaged record. */
static PyObject *
decode_run(ModuleState *state, Run *run, const char *standings, RunEnd *why)
{
    PyObject *list = PyList_New(0);
    HeaderCache cache;
    begin_header_cache(&cache, state);
    for (int number = 0; list != NULL && number < run->batch_count; number++) {
        const Batch *batch = &run->batches[number];
        Py_ssize_t before = PyList_Size(list);
        int failed = 0;
        if (memchr(standings, LATEST, (size_t)batch->record_count) != NULL) {
            RecordSource *source = find_batch_source(state, run->partition, batch->at);
            failed = source == NULL ? -1 : decode_latest(&cache, source, batch, standings, list);
            release_source(source);
        }
        if (failed < 0) {
            if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_MemoryError))
                PyErr_Clear();
            if (PyErr_Occurred() || PyList_SetSlice(list, before, PyList_Size(list), NULL) < 0)
                Py_CLEAR(list);
            *why = RUN_ODD;
            end_run_before(run, number);
            break;
        }
        standings += batch->record_count;
    }
    clear_header_cache(&cache);
    return list;
}

static PyObject *
classify_and_decode(ModuleState *state, Run *run, PyObject *maps, RunEnd *why)
{
    Py_ssize_t record_count = 0;
    for (int number = 0; number < run->batch_count; number++)
        record_count += run->batches[number].record_count;
    PyObject *list = NULL;
    Section *sections = sections_of(run);
    char *standings = sections == NULL ? NULL : PyMem_Calloc((size_t)record_count * 2 + 1, 1);
    if (standings != NULL) {
        int ends_early = classify_run(state, run, sections, maps, standings, record_count);
        if (ends_early > 0)
            *why = RUN_ODD;
        if (ends_early >= 0)
            list = decode_run(state, run, standings, why);
    } else if (sections != NULL) {
        PyErr_NoMemory();
    }
    PyMem_Free(standings);
    PyMem_Free(sections);
    return list;
}

static PyObject *
latest_run(PyObject *module, PyObject *const *arguments, Py_ssize_t argument_count)
{
    Py_buffer buffer;
    RunEnd why;
    Run *run = walk_whole(arguments, argument_count, &buffer, &why);
    if (run == NULL)
        return NULL;
    PyObject *result = NULL, *maps = arguments[8];
    if (!PyList_Check(maps) || PyList_Size(maps) < 1) {
        PyErr_SetString(PyExc_TypeError, "a list of offset maps is wanted");
    } else {
        PyObject *list = classify_and_decode(module_state(module), run, maps, &why);
        result = list == NULL ? NULL : run_result(run, list, why);
    }
    finish(run, &buffer);
    return result;
}

static PyMethodDef functions[] = {
    {"put_run", (PyCFunction)(void (*)(void))put_run, METH_FASTCALL,
     "put_run(buffer, position, previous_last, next_segment, start, stop, limit_bytes, is_filtering, offset_map)\n"
     "--\n\n(None, position, previous_last, why), after the keys of a run were put into the map."},
    {"latest_run", (PyCFunction)(void (*)(void))latest_run, METH_FASTCALL,
     "latest_run(buffer, position, previous_last, next_segment, start, stop, limit_bytes, is_filtering, maps, "
     "partition=None)\n--\n\n(records, position, previous_last, why): those of a run that no map knows a later one of."},
    {NULL, NULL, 0, NULL},
};

int
add_latest(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
