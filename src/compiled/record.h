/* The record types: what record.c makes and rows.c fills. */

#ifndef LOGSTORE_RECORD_H
#define LOGSTORE_RECORD_H

#include "compiled.h"
#include "reader.h"

/* Immutable, 56 bytes, without collector tracking. Of an on-demand record key, value and headers are NULL until
   they are asked for. */
typedef struct {
    PyObject_HEAD
    int64_t offset;
    int64_t timestamp_ms;
    PyObject *key;
    PyObject *value;
    PyObject *headers;
} Record;

/* What key, value and headers are made of: bytes inside of section, which the record holds. */
typedef struct {
    Record record;
    PyObject *section;
    const uint8_t *key_at;
    const uint8_t *stop;
} OnDemandRecord;

/* Bytes as a Python object, None for null. */
static inline PyObject *
span_object(Span span)
{
    if (span.size < 0)
        return Py_NewRef(Py_None);
    return PyBytes_FromStringAndSize((const char *)span.bytes, span.size);
}

/* As new_record of compiled.h, which is this in a function of its own. */
static inline PyObject *
make_record(ModuleState *state, int64_t offset, int64_t timestamp_ms, PyObject *key, PyObject *value,
            PyObject *headers)
{
    Record *record = PyObject_Malloc(sizeof(Record));
    if (record == NULL) {
        Py_DECREF(key);
        Py_DECREF(value);
        Py_DECREF(headers);
        return PyErr_NoMemory();
    }
    record->offset = offset;
    record->timestamp_ms = timestamp_ms;
    record->key = key;
    record->value = value;
    record->headers = headers;
    return PyObject_Init((PyObject *)record, state->record_type);
}

/* A record whose key begins (with its size) at key_at and whose headers end at stop, both inside of section, a
   bytes object; all three were found right before. */
static inline PyObject *
make_on_demand_record(ModuleState *state, int64_t offset, int64_t timestamp_ms, PyObject *section,
                      const uint8_t *key_at, const uint8_t *stop)
{
    OnDemandRecord *record = PyObject_Malloc(sizeof(OnDemandRecord));
    if (record == NULL)
        return PyErr_NoMemory();
    record->record.offset = offset;
    record->record.timestamp_ms = timestamp_ms;
    record->record.key = record->record.value = record->record.headers = NULL;
    record->section = Py_NewRef(section);
    record->key_at = key_at;
    record->stop = stop;
    return PyObject_Init((PyObject *)record, state->on_demand_record_type);
}

/* The headers between at and stop: a new tuple of (str, bytes or None); NULL without an exception where the
   bytes are not right, with one where memory is short. */
PyObject *decode_headers(const uint8_t *at, const uint8_t *stop, int32_t count);

#endif
