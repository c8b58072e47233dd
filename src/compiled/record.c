/* The record type, and its twin that makes key, value and headers when they are asked for.

   A record is to Python what logstore.model.PlainRecord is: equal to the tuple of its five fields, hashed,
   compared and shown like it. Whatever is rare or may go wrong (arguments of other types, the text of a
   record) is left to that class, so that both cannot differ.
*/

#include "record.h"

#include <stddef.h>
#include <structmember.h>

enum { FIELD_COUNT = 5 };

static const char *const field_names[FIELD_COUNT + 1] = {"offset", "timestamp_ms", "key", "value", "headers", NULL};

PyObject *
new_record(ModuleState *state, int64_t offset, int64_t timestamp_ms, PyObject *key, PyObject *value,
           PyObject *headers)
{
    return make_record(state, offset, timestamp_ms, key, value, headers);
}

/* A new reference to an attribute of logstore.model, which imports this module and so is looked up late. */
static PyObject *
model_attribute(const char *name)
{
    PyObject *model = PyImport_ImportModule("logstore.model");
    if (model == NULL)
        return NULL;
    PyObject *attribute = PyObject_GetAttrString(model, name);
    Py_DECREF(model);
    return attribute;
}

/* Key, value and headers of an on-demand record ----------------------------------------------------------- */

static PyObject *
decode_headers(const uint8_t *at, const uint8_t *stop, int32_t count)
{
    if (count == 0)
        return PyTuple_New(0);
    HeaderCache cache = {.known_count = 0};
    RawRecord raw = {.header_count = count, .headers = at, .stop = stop};
    PyObject *headers = find_headers(&cache, &raw);
    clear_header_cache(&cache);
    if (headers == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_SystemError, "the bytes behind a record have changed");
    return headers;
}

/* Where the fields of an on-demand record lie. They were found when it was made, and its bytes do not change. */
static int
find_fields(const OnDemandRecord *record, Span *key, Span *value, const uint8_t **headers, int32_t *count)
{
    *headers = record->key_at;
    if (read_span(headers, record->stop, key) == 0 && read_span(headers, record->stop, value) == 0 &&
        read_varint(headers, record->stop, count) == 0 && *count >= 0)
        return 0;
    PyErr_SetString(PyExc_SystemError, "the bytes behind a record have changed");
    return -1;
}

enum { MAKE_KEY = 1, MAKE_VALUE = 2, MAKE_HEADERS = 4, MAKE_ALL = 7 };

/* Makes those of the wanted fields that are missing: none, unless the record is an on-demand one. */
static int
make_fields(Record *record, int wanted)
{
    int is_missing = (record->key == NULL ? MAKE_KEY : 0) | (record->value == NULL ? MAKE_VALUE : 0) |
                     (record->headers == NULL ? MAKE_HEADERS : 0);
    if ((wanted &= is_missing) == 0)
        return 0;
    const OnDemandRecord *source = (const OnDemandRecord *)record;
    Span key, value;
    const uint8_t *headers;
    int32_t count;
    if (find_fields(source, &key, &value, &headers, &count) < 0)
        return -1;
    if (wanted & MAKE_KEY && (record->key = span_object(key)) == NULL)
        return -1;
    if (wanted & MAKE_VALUE && (record->value = span_object(value)) == NULL)
        return -1;
    if (wanted & MAKE_HEADERS)
        record->headers = decode_headers(headers, source->stop, count);
    return record->headers == NULL && wanted & MAKE_HEADERS ? -1 : 0;
}

static PyObject *
read_key(PyObject *self, void *unused)
{
    (void)unused;
    Record *record = (Record *)self;
    return make_fields(record, MAKE_KEY) < 0 ? NULL : Py_NewRef(record->key);
}

static PyObject *
read_value(PyObject *self, void *unused)
{
    (void)unused;
    Record *record = (Record *)self;
    return make_fields(record, MAKE_VALUE) < 0 ? NULL : Py_NewRef(record->value);
}

static PyObject *
read_headers(PyObject *self, void *unused)
{
    (void)unused;
    Record *record = (Record *)self;
    return make_fields(record, MAKE_HEADERS) < 0 ? NULL : Py_NewRef(record->headers);
}

/* Making records from Python ------------------------------------------------------------------------------ */

static int
is_payload(PyObject *object)
{
    return object == Py_None || PyBytes_Check(object);
}

/* A record of a type from the five fields; NULL without an exception if one is out of the ordinary. */
static PyObject *
record_of_fields(PyTypeObject *type, PyObject *const fields[FIELD_COUNT])
{
    int64_t offset, timestamp_ms;
    if (read_exact_int(fields[0], &offset) < 0 || read_exact_int(fields[1], &timestamp_ms) < 0 ||
        !is_payload(fields[2]) || !is_payload(fields[3]) || !PyTuple_Check(fields[4]))
        return NULL;
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Record *record = (Record *)allocate(type, 0);
    if (record == NULL)
        return NULL;
    record->offset = offset;
    record->timestamp_ms = timestamp_ms;
    record->key = Py_NewRef(fields[2]);
    record->value = Py_NewRef(fields[3]);
    record->headers = Py_NewRef(fields[4]);
    return (PyObject *)record;
}

/* A record of whatever the plain class makes of the arguments, or its error. */
static PyObject *
record_of_plain(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *plain_type = model_attribute("PlainRecord");
    PyObject *plain = plain_type == NULL ? NULL : PyObject_Call(plain_type, args, kwargs);
    Py_XDECREF(plain_type);
    if (plain == NULL)
        return NULL;
    PyObject *fields[FIELD_COUNT];
    for (int i = 0; i < FIELD_COUNT; i++) {
        fields[i] = PyTuple_GetItem(plain, i);
        if (fields[i] == NULL) {
            Py_DECREF(plain);
            return NULL;
        }
    }
    PyObject *record = record_of_fields(type, fields);
    Py_DECREF(plain);
    if (record == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_SystemError, "logstore.model.PlainRecord made a record that is none");
    return record;
}

static PyObject *
new_from_python(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *fields[FIELD_COUNT] = {NULL};
    if (PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO|O", (char **)field_names, &fields[0], &fields[1], &fields[2],
                                    &fields[3], &fields[4])) {
        PyObject *no_headers = fields[4] == NULL ? PyTuple_New(0) : NULL;
        if (fields[4] == NULL && (fields[4] = no_headers) == NULL)
            return NULL;
        PyObject *record = record_of_fields(type, fields);
        Py_XDECREF(no_headers);
        if (record != NULL || PyErr_Occurred())
            return record;
    }
    PyErr_Clear();
    return record_of_plain(type, args, kwargs);
}

static void
deallocate(PyObject *self)
{
    Record *record = (Record *)self;
    PyTypeObject *type = Py_TYPE(self);
    Py_XDECREF(record->key);
    Py_XDECREF(record->value);
    Py_XDECREF(record->headers);
    ModuleState *state = record->state; /* lives as long as its type */
    if (state != NULL && state->spare_record_count < MAX_SPARE_RECORDS) {
        record->key = (PyObject *)state->spare_records;
        state->spare_records = record;
        state->spare_record_count++;
    } else if (PyType_GetFlags(type) & Py_TPFLAGS_HAVE_GC) /* a class derived in Python */
        PyObject_GC_Del(self);
    else
        PyObject_Free(self);
    Py_DECREF(type);
}

void
free_spare_records(ModuleState *state)
{
    while (state->spare_records != NULL) {
        Record *record = state->spare_records;
        state->spare_records = (Record *)record->key;
        PyObject_Free(record);
    }
    state->spare_record_count = 0;
}

static void
deallocate_on_demand(PyObject *self)
{
    Py_XDECREF(((OnDemandRecord *)self)->section);
    deallocate(self);
}

/* What a record shares with the tuple of its fields ------------------------------------------------------- */

static PyObject *
as_tuple(PyObject *self)
{
    Record *record = (Record *)self;
    if (make_fields(record, MAKE_ALL) < 0)
        return NULL;
    return Py_BuildValue("(LLOOO)", (long long)record->offset, (long long)record->timestamp_ms, record->key,
                         record->value, record->headers);
}

static Py_ssize_t
length(PyObject *self)
{
    (void)self;
    return FIELD_COUNT;
}

static Py_hash_t
hash(PyObject *self)
{
    PyObject *fields = as_tuple(self);
    if (fields == NULL)
        return -1;
    Py_hash_t result = PyObject_Hash(fields);
    Py_DECREF(fields);
    return result;
}

static int
is_record(PyObject *object)
{
    return PyType_GetSlot(Py_TYPE(object), Py_sq_length) == (void *)length;
}

static PyObject *
compare(PyObject *self, PyObject *other, int operation)
{
    if (!PyTuple_Check(other) && !is_record(other))
        Py_RETURN_NOTIMPLEMENTED;
    PyObject *left = as_tuple(self);
    PyObject *right = left == NULL ? NULL : PyTuple_Check(other) ? Py_NewRef(other) : as_tuple(other);
    PyObject *result = right == NULL ? NULL : PyObject_RichCompare(left, right, operation);
    Py_XDECREF(left);
    Py_XDECREF(right);
    return result;
}

static PyObject *
iterate(PyObject *self)
{
    PyObject *fields = as_tuple(self);
    PyObject *iterator = fields == NULL ? NULL : PyObject_GetIter(fields);
    Py_XDECREF(fields);
    return iterator;
}

/* By number or slice. */
static PyObject *
subscript(PyObject *self, PyObject *key)
{
    PyObject *fields = as_tuple(self);
    PyObject *item = fields == NULL ? NULL : PyObject_GetItem(fields, key);
    Py_XDECREF(fields);
    return item;
}

static PyObject *
item_at(PyObject *self, Py_ssize_t number)
{
    PyObject *fields = as_tuple(self);
    PyObject *item = fields == NULL ? NULL : PySequence_GetItem(fields, number);
    Py_XDECREF(fields);
    return item;
}

static int
contains(PyObject *self, PyObject *object)
{
    PyObject *fields = as_tuple(self);
    int result = fields == NULL ? -1 : PySequence_Contains(fields, object);
    Py_XDECREF(fields);
    return result;
}

static PyObject *
concatenate(PyObject *self, PyObject *other)
{
    PyObject *fields = as_tuple(self);
    PyObject *result = fields == NULL ? NULL : PySequence_Concat(fields, other);
    Py_XDECREF(fields);
    return result;
}

/* The tuple's method of a name, called with these arguments. */
static PyObject *
call_of_tuple(PyObject *self, const char *name, PyObject *args)
{
    PyObject *fields = as_tuple(self);
    PyObject *method = fields == NULL ? NULL : PyObject_GetAttrString(fields, name);
    PyObject *result = method == NULL ? NULL : PyObject_CallObject(method, args);
    Py_XDECREF(method);
    Py_XDECREF(fields);
    return result;
}

static PyObject *
index_of(PyObject *self, PyObject *args)
{
    return call_of_tuple(self, "index", args);
}

static PyObject *
count_of(PyObject *self, PyObject *args)
{
    return call_of_tuple(self, "count", args);
}

/* What it shares with a named tuple ----------------------------------------------------------------------- */

/* The text of the plain class: its __repr__ takes any record. */
static PyObject *
represent(PyObject *self)
{
    PyObject *plain_type = model_attribute("PlainRecord");
    PyObject *method = plain_type == NULL ? NULL : PyObject_GetAttrString(plain_type, "__repr__");
    PyObject *text = method == NULL ? NULL : PyObject_CallFunctionObjArgs(method, self, NULL);
    Py_XDECREF(method);
    Py_XDECREF(plain_type);
    return text;
}

static PyObject *
as_dict(PyObject *self, PyObject *unused)
{
    (void)unused;
    PyObject *fields = as_tuple(self), *dict = fields == NULL ? NULL : PyDict_New();
    for (int i = 0; dict != NULL && i < FIELD_COUNT; i++) {
        PyObject *field = PyTuple_GetItem(fields, i);
        if (field == NULL || PyDict_SetItemString(dict, field_names[i], field) < 0)
            Py_CLEAR(dict);
    }
    Py_XDECREF(fields);
    return dict;
}

static PyObject *
replace(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *fields = as_dict(self, NULL), *record = NULL;
    if (fields != NULL && (kwargs == NULL || PyDict_Update(fields, kwargs) == 0))
        record = new_from_python(Py_TYPE(self), args, fields);
    Py_XDECREF(fields);
    return record;
}

static PyObject *
make(PyObject *type, PyObject *fields)
{
    PyObject *args = PySequence_Tuple(fields);
    PyObject *record = args == NULL ? NULL : PyObject_CallObject(type, args);
    Py_XDECREF(args);
    return record;
}

/* A pickle names logstore.model.Record, whichever class that is where it is read. */
static PyObject *
reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    PyObject *fields = as_tuple(self);
    PyObject *type = fields == NULL ? NULL : model_attribute("Record");
    PyObject *result = type == NULL ? NULL : PyTuple_Pack(2, type, fields);
    Py_XDECREF(type);
    Py_XDECREF(fields);
    return result;
}

static PyMethodDef methods[] = {
    {"_asdict", as_dict, METH_NOARGS, "The fields by name."},
    {"_replace", (PyCFunction)(void (*)(void))replace, METH_VARARGS | METH_KEYWORDS, "The record with other fields."},
    {"__replace__", (PyCFunction)(void (*)(void))replace, METH_VARARGS | METH_KEYWORDS, "For copy.replace."},
    {"_make", make, METH_O | METH_CLASS, "The record of an iterable of its fields."},
    {"index", index_of, METH_VARARGS, "The number of the first field that equals the value."},
    {"count", count_of, METH_VARARGS, "How many fields equal the value."},
    {"__reduce__", reduce, METH_NOARGS, "For pickle and copy."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"offset", T_LONGLONG, offsetof(Record, offset), READONLY, NULL},
    {"timestamp_ms", T_LONGLONG, offsetof(Record, timestamp_ms), READONLY, NULL},
    {"key", T_OBJECT_EX, offsetof(Record, key), READONLY, NULL},
    {"value", T_OBJECT_EX, offsetof(Record, value), READONLY, NULL},
    {"headers", T_OBJECT_EX, offsetof(Record, headers), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

/* logstore.model adds docstring, _fields and the like from the plain class; this one is the signature. */
static PyType_Slot record_slots[] = {
    {Py_tp_doc, "Record(offset, timestamp_ms, key, value, headers=())\n--\n\n"},
    {Py_tp_new, new_from_python},
    {Py_tp_dealloc, deallocate},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_repr, represent},
    {Py_tp_hash, hash},
    {Py_tp_richcompare, compare},
    {Py_tp_iter, iterate},
    {Py_sq_length, length},
    {Py_sq_item, item_at},
    {Py_sq_contains, contains},
    {Py_sq_concat, concatenate},
    {Py_mp_length, length},
    {Py_mp_subscript, subscript},
    {0, NULL},
};

static PyType_Spec record_spec = {
    .name = "logstore.model.Record",
    .basicsize = sizeof(Record),
    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE,
    .slots = record_slots,
};

static PyGetSetDef made_on_demand[] = {
    {"key", read_key, NULL, NULL, NULL},
    {"value", read_value, NULL, NULL, NULL},
    {"headers", read_headers, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot on_demand_slots[] = {
    {Py_tp_dealloc, deallocate_on_demand},
    {Py_tp_getset, made_on_demand},
    {0, NULL},
};

static PyType_Spec on_demand_spec = {
    .name = "logstore.model.Record",
    .basicsize = sizeof(OnDemandRecord),
    .flags = Py_TPFLAGS_DEFAULT,
    .slots = on_demand_slots,
};

int
add_record(PyObject *module)
{
    ModuleState *state = module_state(module);
    state->record_type = (PyTypeObject *)PyType_FromModuleAndSpec(module, &record_spec, NULL);
    if (state->record_type == NULL)
        return -1;
    state->on_demand_record_type =
        (PyTypeObject *)PyType_FromModuleAndSpec(module, &on_demand_spec, (PyObject *)state->record_type);
    if (state->on_demand_record_type == NULL)
        return -1;
    if (PyModule_AddObjectRef(module, "OnDemandRecord", (PyObject *)state->on_demand_record_type) < 0)
        return -1;
    return PyModule_AddObjectRef(module, "Record", (PyObject *)state->record_type);
}
