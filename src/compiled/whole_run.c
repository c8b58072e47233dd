/* Reading a log as it is stored: runs of whole batches, which a fetch passes on without looking at their records.

   What is checked of each batch is what read_run in lookup.c checks, and what the code in partition/reading checks
   batch by batch: its checksum and structure, and that its offsets lie above those of the batch before it and below
   those of the next one. Compressed, transactional and control batches are taken like all others.
*/

#include "batch.h"
#include "run.h"

typedef struct {
    const uint8_t *begin; /* of the buffer */
    const uint8_t *end;
    const uint8_t *at;
    int64_t previous_last;
    int64_t next_segment;
    int64_t start;
    int64_t stop;
    int64_t limit_bytes; /* what may be taken */
    int is_first;        /* nothing was taken yet: a batch beyond the limit is odd */
    const uint8_t *first; /* batch that was taken, or NULL */
} Whole;

/* Whether a batch of this size is more than what may be taken. */
static int
is_beyond_limit(const Whole *run, int64_t size_bytes)
{
    int64_t taken_bytes = run->first == NULL ? 0 : run->at - run->first;
    return size_bytes > run->limit_bytes - taken_bytes;
}

/* Takes batches and moves past them. Needs no GIL. */
static RunEnd
take_whole(Whole *run)
{
    for (;;) {
        const uint8_t *at = run->at;
        if (run->end - at < HEADER_BYTES)
            return RUN_CUT;
        int64_t size_bytes = (int64_t)read_int32(at + BATCH_LENGTH_AT) + LENGTH_OVERHEAD_BYTES;
        if ((int8_t)at[MAGIC_AT] != 2 || size_bytes < HEADER_BYTES || !has_possible_header(at, size_bytes))
            return RUN_ODD;
        int64_t base_offset = read_int64(at + BASE_OFFSET_AT);
        int64_t last_offset = base_offset + read_int32(at + LAST_OFFSET_DELTA_AT);
        int is_taken = last_offset >= run->start;
        if (is_taken && is_beyond_limit(run, size_bytes))
            return run->is_first && run->first == NULL ? RUN_ODD : RUN_FULL;
        if (size_bytes > run->end - at)
            return RUN_CUT;
        int64_t next_base = base_behind(at + size_bytes, run->end, run->next_segment);
        if (next_base == -1)
            return RUN_CUT;
        if (base_offset <= run->previous_last || last_offset >= next_base || last_offset >= run->stop)
            return RUN_ODD;
        if (next_base > run->start && !has_right_checksum(at, size_bytes))
            return RUN_ODD;
        if (is_taken && run->first == NULL)
            run->first = at;
        run->previous_last = last_offset;
        run->at = at + size_bytes;
        if (last_offset == run->stop - 1)
            return RUN_DONE;
    }
}

static RunEnd
take_in_turn(Whole *run)
{
    if (run->end - run->at < MIN_BYTES_WITHOUT_GIL)
        return take_whole(run);
    RunEnd why;
    Py_BEGIN_ALLOW_THREADS
    why = take_whole(run);
    Py_END_ALLOW_THREADS
    return why;
}

PyDoc_STRVAR(whole_run_doc, "whole_run(buffer, position, previous_last, next_segment, start, stop, limit_bytes, "
                            "is_first) -> (first, position, previous_last, why)");

static PyObject *
whole_run(PyObject *module, PyObject *const *arguments, Py_ssize_t count)
{
    (void)module;
    int64_t numbers[7];
    if (count != 8) {
        PyErr_SetString(PyExc_TypeError, "whole_run takes eight arguments");
        return NULL;
    }
    for (int number = 0; number < 7; number++) {
        numbers[number] = PyLong_AsLongLong(arguments[number + 1]);
        if (numbers[number] == -1 && PyErr_Occurred())
            return NULL;
    }
    Py_buffer buffer;
    if (PyObject_GetBuffer(arguments[0], &buffer, PyBUF_SIMPLE) < 0)
        return NULL;
    Whole run = {.begin = buffer.buf,
                 .end = (const uint8_t *)buffer.buf + buffer.len,
                 .previous_last = numbers[1],
                 .next_segment = numbers[2],
                 .start = numbers[3],
                 .stop = numbers[4],
                 .limit_bytes = numbers[5],
                 .is_first = numbers[6] != 0};
    run.at = run.begin + (numbers[0] < 0 || numbers[0] > buffer.len ? buffer.len : numbers[0]);
    RunEnd why = buffer.len < HEADER_BYTES ? RUN_CUT : take_in_turn(&run);
    PyObject *result =
        Py_BuildValue("(nnLi)", run.first == NULL ? (Py_ssize_t)-1 : (Py_ssize_t)(run.first - run.begin),
                      (Py_ssize_t)(run.at - run.begin), (long long)run.previous_last, (int)why);
    PyBuffer_Release(&buffer);
    return result;
}

static PyMethodDef functions[] = {
    {"whole_run", (PyCFunction)(void (*)(void))whole_run, METH_FASTCALL, whole_run_doc},
    {NULL, NULL, 0, NULL},
};

int
add_whole_run(PyObject *module)
{
    return PyModule_AddFunctions(module, functions);
}
