/* The record type, and its twin that creates key, value and headers on demand.

   In Python a record behaves like logstore.model.PlainRecord: it is equal to the tuple of its five fields, and is
   hashed, compared and shown like it. It also has a source, where it was read, which is not part of the tuple.
   That class handles everything that is rare or may go wrong (arguments of other types, the text of a record), so
   that both cannot differ.
*/

#include "record.h"

#include <stddef.h>
#include <structmember.h>

enum { FIELD_COUNT = 5, ARGUMENT_COUNT = 9 };

/* The fields, and the attributes that are not fields. */
static const char *const argument_names[ARGUMENT_COUNT + 1] = {
    "offset", "timestamp_ms", "key", "value", "headers", "topic", "partition", "timestamp_type", "leader_epoch", NULL};

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

/* Sources ------------------------------------------------------------------------------------------------- */

static RecordSource *
new_source(ModuleState *state, PyObject *topic, PyObject *partition, int32_t leader_epoch, int32_t timestamp_type)
{
    RecordSource *source = PyMem_Malloc(sizeof(RecordSource));
    if (source == NULL)
        return (RecordSource *)PyErr_NoMemory();
    source->reference_count = 1;
    source->state = state;
    source->topic = Py_XNewRef(topic);
    source->partition = Py_XNewRef(partition);
    source->leader_epoch = leader_epoch;
    source->timestamp_type = timestamp_type;
    return source;
}

void
drop_source(RecordSource *source)
{
    Py_XDECREF(source->topic);
    Py_XDECREF(source->partition);
    PyMem_Free(source);
}

RecordSource *
renew_source(ModuleState *state, PyObject *partition, int32_t leader_epoch, int timestamp_type)
{
    PyObject *topic = NULL, *number = NULL;
    if (partition != Py_None) {
        if (!PyTuple_Check(partition) || PyTuple_Size(partition) != 2) {
            PyErr_SetString(PyExc_TypeError, "a partition is a pair of topic and number, or None");
            return NULL;
        }
        topic = PyTuple_GetItem(partition, 0);
        number = PyTuple_GetItem(partition, 1);
    }
    leader_epoch = leader_epoch < 0 ? NO_LEADER_EPOCH : leader_epoch;
    RecordSource *source = new_source(state, topic, number, leader_epoch, timestamp_type), *last = state->last_source;
    if (source == NULL)
        return NULL;
    PyObject *last_partition = state->last_partition;
    state->last_source = source;
    state->last_partition = Py_NewRef(partition);
    release_source(last);
    Py_XDECREF(last_partition);
    return source;
}

static PyObject *
object_or_none(PyObject *object)
{
    return Py_NewRef(object == NULL ? Py_None : object);
}

static PyObject *
read_topic(PyObject *self, void *unused)
{
    (void)unused;
    const RecordSource *source = ((Record *)self)->source;
    return object_or_none(source == NULL ? NULL : source->topic);
}

static PyObject *
read_partition(PyObject *self, void *unused)
{
    (void)unused;
    const RecordSource *source = ((Record *)self)->source;
    return object_or_none(source == NULL ? NULL : source->partition);
}

static PyObject *
read_leader_epoch(PyObject *self, void *unused)
{
    (void)unused;
    const RecordSource *source = ((Record *)self)->source;
    if (source == NULL || source->leader_epoch == NO_LEADER_EPOCH)
        Py_RETURN_NONE;
    return PyLong_FromLong(source->leader_epoch);
}

static int32_t
timestamp_type_of(const Record *record)
{
    return record->source == NULL ? NO_TIMESTAMP_TYPE : record->source->timestamp_type;
}

/* The cached member of TimestampType: finding it takes ten times as long. */
static PyObject *
read_timestamp_type(PyObject *self, void *unused)
{
    (void)unused;
    const RecordSource *source = ((Record *)self)->source;
    int32_t number = timestamp_type_of((Record *)self);
    PyObject **known = source == NULL || source->state == NULL
                           ? NULL
                           : &source->state->timestamp_types[number - NO_TIMESTAMP_TYPE];
    if (known != NULL && *known != NULL)
        return Py_NewRef(*known);
    PyObject *type = model_attribute("TimestampType"), *value = type == NULL ? NULL : PyLong_FromLong(number);
    PyObject *member = value == NULL ? NULL : PyObject_CallFunctionObjArgs(type, value, NULL);
    Py_XDECREF(value);
    Py_XDECREF(type);
    if (known != NULL && *known == NULL && member != NULL)
        *known = Py_NewRef(member);
    return member;
}

/* Reads the keyword-only arguments, each of which may be NULL or None; the references are borrowed. 0 without an
   exception if one is unusual. */
static int
read_source_arguments(PyObject *const *arguments, RecordSource *source)
{
    int64_t number;
    *source = (RecordSource){.leader_epoch = NO_LEADER_EPOCH, .timestamp_type = NO_TIMESTAMP_TYPE};
    if (arguments[0] != NULL && arguments[0] != Py_None) {
        if (!PyUnicode_CheckExact(arguments[0]))
            return 0;
        source->topic = arguments[0];
    }
    if (arguments[1] != NULL && arguments[1] != Py_None) {
        if (read_exact_int(arguments[1], &number) < 0 || number < 0 || number > INT32_MAX)
            return 0;
        source->partition = arguments[1];
    }
    if (arguments[2] != NULL) {
        int overflow;
        if (!PyLong_Check(arguments[2]))
            return 0;
        number = PyLong_AsLongLongAndOverflow(arguments[2], &overflow);
        if (overflow || number < NO_TIMESTAMP_TYPE || number > 1)
            return 0;
        source->timestamp_type = (int32_t)number;
    }
    if (arguments[3] != NULL && arguments[3] != Py_None) {
        if (read_exact_int(arguments[3], &number) < 0 || number < 0 || number > INT32_MAX)
            return 0;
        source->leader_epoch = (int32_t)number;
    }
    return 1;
}

/* Gives a new record its own source, if it has any value. -1 with the exception. */
static int
set_source(Record *record, const RecordSource *wanted)
{
    if (wanted->topic == NULL && wanted->partition == NULL && wanted->leader_epoch == NO_LEADER_EPOCH &&
        wanted->timestamp_type == NO_TIMESTAMP_TYPE)
        return 0;
    record->source =
        new_source(NULL, wanted->topic, wanted->partition, wanted->leader_epoch, wanted->timestamp_type);
    return record->source == NULL ? -1 : 0;
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

/* Where the fields of an on-demand record are. They were found when it was made, and its bytes do not change. */
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

/* Creates the wanted fields that are missing: none, unless the record is an on-demand one. */
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

/* A record of a type from its arguments; those that are not fields may be NULL. NULL without an exception if one is
   unusual. */
static PyObject *
record_of_arguments(PyTypeObject *type, PyObject *const fields[ARGUMENT_COUNT])
{
    int64_t offset, timestamp_ms;
    RecordSource source;
    if (read_exact_int(fields[0], &offset) < 0 || read_exact_int(fields[1], &timestamp_ms) < 0 ||
        !is_payload(fields[2]) || !is_payload(fields[3]) || !PyTuple_Check(fields[4]) ||
        !read_source_arguments(fields + FIELD_COUNT, &source))
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
    if (set_source(record, &source) < 0)
        Py_CLEAR(record);
    return (PyObject *)record;
}

/* The record that the plain class makes of the arguments, or its error. */
static PyObject *
record_of_plain(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *plain_type = model_attribute("PlainRecord");
    PyObject *plain = plain_type == NULL ? NULL : PyObject_Call(plain_type, args, kwargs);
    Py_XDECREF(plain_type);
    if (plain == NULL)
        return NULL;
    PyObject *fields[ARGUMENT_COUNT] = {NULL}, *record = NULL;
    int found = 0;
    while (found < ARGUMENT_COUNT && (fields[found] = PyObject_GetAttrString(plain, argument_names[found])) != NULL)
        found++;
    if (found == ARGUMENT_COUNT)
        record = record_of_arguments(type, fields);
    while (found > 0)
        Py_DECREF(fields[--found]);
    Py_DECREF(plain);
    if (record == NULL && !PyErr_Occurred())
        PyErr_SetString(PyExc_SystemError, "logstore.model.PlainRecord made a record that is none");
    return record;
}

static PyObject *
new_from_python(PyTypeObject *type, PyObject *args, PyObject *kwargs)
{
    PyObject *fields[ARGUMENT_COUNT] = {NULL};
    if (PyArg_ParseTupleAndKeywords(args, kwargs, "OOOO|O$OOOO", (char **)argument_names, &fields[0], &fields[1],
                                    &fields[2], &fields[3], &fields[4], &fields[5], &fields[6], &fields[7],
                                    &fields[8])) {
        PyObject *no_headers = fields[4] == NULL ? PyTuple_New(0) : NULL;
        if (fields[4] == NULL && (fields[4] = no_headers) == NULL)
            return NULL;
        PyObject *record = record_of_arguments(type, fields);
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
    ModuleState *state = record->source == NULL ? NULL : record->source->state; /* lives as long as its type */
    release_source(record->source);
    if (state != NULL && type == state->record_type && state->spare_record_count < MAX_SPARE_RECORDS) {
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
    release_source(state->last_source);
    state->last_source = NULL;
}

static void
deallocate_on_demand(PyObject *self)
{
    Py_XDECREF(((OnDemandRecord *)self)->section);
    deallocate(self);
}

/* Like the tuple of its fields ---------------------------------------------------------------------------- */

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

/* Like a named tuple -------------------------------------------------------------------------------------- */

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
        if (field == NULL || PyDict_SetItemString(dict, argument_names[i], field) < 0)
            Py_CLEAR(dict);
    }
    Py_XDECREF(fields);
    return dict;
}

/* Adds the attributes that are not fields to the arguments of a new record. -1 with the exception. */
static int
add_source(PyObject *self, PyObject *arguments)
{
    if (((Record *)self)->source == NULL)
        return 0;
    for (int i = FIELD_COUNT; i < ARGUMENT_COUNT; i++) {
        PyObject *value = PyObject_GetAttrString(self, argument_names[i]);
        int failed = value == NULL ? -1 : PyDict_SetItemString(arguments, argument_names[i], value);
        Py_XDECREF(value);
        if (failed < 0)
            return -1;
    }
    return 0;
}

static PyObject *
replace(PyObject *self, PyObject *args, PyObject *kwargs)
{
    PyObject *fields = as_dict(self, NULL), *record = NULL;
    if (fields != NULL && add_source(self, fields) == 0 && (kwargs == NULL || PyDict_Update(fields, kwargs) == 0))
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

/* The fields, followed by the other attributes. */
static PyObject *
as_arguments(PyObject *self)
{
    Record *record = (Record *)self;
    const RecordSource *source = record->source;
    PyObject *epoch = make_fields(record, MAKE_ALL) < 0 ? NULL : read_leader_epoch(self, NULL);
    if (epoch == NULL)
        return NULL;
    return Py_BuildValue("(LLOOOOOiN)", (long long)record->offset, (long long)record->timestamp_ms, record->key,
                         record->value, record->headers, source->topic == NULL ? Py_None : source->topic,
                         source->partition == NULL ? Py_None : source->partition, (int)source->timestamp_type, epoch);
}

/* A pickle names logstore.model.Record, or restore_record beside it: whatever these are where it is loaded. */
static PyObject *
reduce(PyObject *self, PyObject *unused)
{
    (void)unused;
    int is_by_hand = ((Record *)self)->source == NULL;
    PyObject *fields = is_by_hand ? as_tuple(self) : as_arguments(self);
    PyObject *type = fields == NULL ? NULL : model_attribute(is_by_hand ? "Record" : "restore_record");
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

static PyGetSetDef source_attributes[] = {
    {"topic", read_topic, NULL, NULL, NULL},
    {"partition", read_partition, NULL, NULL, NULL},
    {"timestamp_type", read_timestamp_type, NULL, NULL, NULL},
    {"leader_epoch", read_leader_epoch, NULL, NULL, NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

/* logstore.model adds docstring, _fields and the like from the plain class; this one is the signature. */
static PyType_Slot record_slots[] = {
    {Py_tp_doc, "Record(offset, timestamp_ms, key, value, headers=(), *, topic=None, partition=None, "
                "timestamp_type=-1, leader_epoch=None)\n--\n\n"},
    {Py_tp_new, new_from_python},
    {Py_tp_dealloc, deallocate},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, source_attributes},
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

/* Records that were read --------------------------------------------------------------------------------------- */

/* Replaces records in a list that were made by hand by records with a source. -1 with the exception. */
static int
place_all(const ModuleState *state, RecordSource *source, PyObject *records)
{
    for (Py_ssize_t number = 0; number < PyList_Size(records); number++) {
        const Record *record = (Record *)PyList_GetItem(records, number);
        if (Py_TYPE((PyObject *)record) != state->record_type) {
            PyErr_SetString(PyExc_TypeError, "a list of records is wanted");
            return -1;
        }
        PyObject *made = make_record(source, record->offset, record->timestamp_ms, Py_NewRef(record->key),
                                     Py_NewRef(record->value), Py_NewRef(record->headers));
        if (made == NULL || PyList_SetItem(records, number, made) < 0)
            return -1;
    }
    return 0;
}

static PyObject *
place_records(PyObject *module, PyObject *args)
{
    ModuleState *state = module_state(module);
    PyObject *records, *partition;
    int timestamp_type, leader_epoch;
    if (!PyArg_ParseTuple(args, "O!Oii", &PyList_Type, &records, &partition, &timestamp_type, &leader_epoch))
        return NULL;
    if (timestamp_type < NO_TIMESTAMP_TYPE || timestamp_type > 1) {
        PyErr_SetString(PyExc_ValueError, "no timestamp type");
        return NULL;
    }
    RecordSource *source = find_source(state, partition, leader_epoch, timestamp_type);
    int failed = source == NULL ? -1 : place_all(state, source, records);
    release_source(source);
    return failed < 0 ? NULL : Py_NewRef(records);
}

static PyMethodDef functions[] = {
    {"place_records", place_records, METH_VARARGS,
     "place_records(records, partition, timestamp_type, leader_epoch)\n--\n\nThe list, its records with a source."},
    {NULL, NULL, 0, NULL},
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
    if (PyModule_AddObjectRef(module, "Record", (PyObject *)state->record_type) < 0)
        return -1;
    return PyModule_AddFunctions(module, functions);
}
