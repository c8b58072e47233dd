/* The compiled module: its state, and the list of its parts. */

#include "compiled.h"
#include "reader.h"
#include <stdlib.h>

static int
add_positions(PyObject *module)
{
    /* The positions of a batch header's fields in this module; a test compares them. */
    PyObject *positions = Py_BuildValue(
        "{s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i}", "base_offset", BASE_OFFSET_AT, "batch_length",
        BATCH_LENGTH_AT, "partition_leader_epoch", LEADER_EPOCH_AT, "magic", MAGIC_AT, "crc", CRC_AT, "attributes",
        ATTRIBUTES_AT, "last_offset_delta", LAST_OFFSET_DELTA_AT, "base_timestamp", BASE_TIMESTAMP_AT,
        "max_timestamp", MAX_TIMESTAMP_AT, "producer_id", PRODUCER_ID_AT, "producer_epoch", PRODUCER_EPOCH_AT,
        "base_sequence", BASE_SEQUENCE_AT, "record_count", RECORD_COUNT_AT);
    if (positions == NULL)
        return -1;
    int failed = PyModule_AddObjectRef(module, "HEADER_POSITIONS", positions);
    Py_DECREF(positions);
    return failed;
}

static int
execute(PyObject *module)
{
    ModuleState *state = module_state(module);
    state->empty_tuple = PyTuple_New(0);
    if (state->empty_tuple == NULL)
        return -1;
    if (add_positions(module) < 0 || add_record(module) < 0 || add_rows(module) < 0 || add_encode(module) < 0 ||
        add_append(module) < 0 || add_lookup(module) < 0 || add_columns(module) < 0 || add_checksum(module) < 0 ||
        add_scan(module) < 0 || add_index_run(module) < 0 || add_pages(module) < 0 || add_offset_map(module) < 0 ||
        add_latest(module) < 0 || add_keep(module) < 0 || add_whole_run(module) < 0 || add_memory(module) < 0)
        return -1;
    return 0;
}

static int
traverse(PyObject *module, visitproc visit, void *arg)
{
    ModuleState *state = module_state(module);
    Py_VISIT(state->record_type);
    Py_VISIT(state->on_demand_record_type);
    Py_VISIT(state->empty_tuple);
    Py_VISIT(state->buffer_type);
    Py_VISIT(state->region_type);
    Py_VISIT(state->offset_map_type);
    Py_VISIT(state->last_partition);
    for (int i = 0; i < 3; i++)
        Py_VISIT(state->timestamp_types[i]);
    return 0;
}

static int
clear(PyObject *module)
{
    ModuleState *state = module_state(module);
    Py_CLEAR(state->record_type);
    Py_CLEAR(state->on_demand_record_type);
    Py_CLEAR(state->empty_tuple);
    Py_CLEAR(state->buffer_type);
    Py_CLEAR(state->region_type);
    Py_CLEAR(state->offset_map_type);
    Py_CLEAR(state->last_partition);
    for (int i = 0; i < 3; i++)
        Py_CLEAR(state->timestamp_types[i]);
    free(state->spare_region);
    state->spare_region = NULL;
    state->spare_region_bytes = 0;
    free_spare_records(state);
    free_spare_columns(state);
    return 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, execute}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    .m_name = "logstore._compiled",
    .m_doc = "The hot loops of the format layer, compiled. Imported through logstore.build, never directly.",
    .m_size = sizeof(ModuleState),
    .m_slots = slots,
    .m_traverse = traverse,
    .m_clear = clear,
};

PyMODINIT_FUNC
PyInit__compiled(void)
{
    return PyModuleDef_Init(&definition);
}
