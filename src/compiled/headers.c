/* The headers of records; repeated ones are made once.

   Their tuples are untracked at once. The collector would do that itself when it first visits tuples of text and
   bytes, but so large batches with headers decode in four fifths of the time.
*/

#include "record.h"

static inline uint64_t
load64(const uint8_t *at)
{
    uint64_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

static inline uint32_t
load32(const uint8_t *at)
{
    uint32_t word;
    memcpy(&word, at, sizeof word);
    return word;
}

/* Whether both are equal. Makes no call for the few bytes that names and most values have. */
static inline int
is_same(Span one, Span other)
{
    if (one.size != other.size)
        return 0;
    const uint8_t *a = one.bytes, *b = other.bytes;
    int32_t size = one.size;
    if (size >= 8) {
        if (load64(a) != load64(b) || load64(a + size - 8) != load64(b + size - 8))
            return 0;
        return size <= 16 || memcmp(a, b, (size_t)size) == 0;
    }
    if (size >= 4)
        return load32(a) == load32(b) && load32(a + size - 4) == load32(b + size - 4);
    for (int32_t i = 0; i < size; i++)
        if (a[i] != b[i])
            return 0;
    return 1;
}

static void
keep(PyObject **place, PyObject *object)
{
    PyObject *before = *place;
    *place = Py_NewRef(object);
    Py_XDECREF(before);
}

/* The known header of this name, which is the number-th of its record: headers usually come in the same order. What
   is no UTF-8 in its name is replaced. */
static KnownHeader *
known_header(HeaderCache *cache, int32_t number, Span name)
{
    int first = number % KNOWN_HEADERS;
    if (first < cache->known_count && is_same(cache->known[first].name, name))
        return &cache->known[first];
    for (int i = 0; i < cache->known_count; i++)
        if (is_same(cache->known[i].name, name))
            return &cache->known[i];
    PyObject *text = PyUnicode_DecodeUTF8((const char *)name.bytes, name.size, "replace");
    if (text == NULL)
        return NULL;
    KnownHeader *known = &cache->known[first];
    if (cache->known_count < KNOWN_HEADERS) {
        known = &cache->known[cache->known_count++];
    } else {
        Py_XDECREF(known->pair);
        Py_DECREF(known->text);
    }
    known->pair = NULL;
    known->text = text;
    known->name = name;
    return known;
}

static PyObject *
find_pair(HeaderCache *cache, int32_t number, Span name, Span value)
{
    KnownHeader *known = known_header(cache, number, name);
    if (known == NULL)
        return NULL;
    if (known->pair != NULL && is_same(known->value, value))
        return Py_NewRef(known->pair);
    PyObject *bytes = span_object(value);
    PyObject *pair = bytes == NULL ? NULL : PyTuple_Pack(2, known->text, bytes);
    Py_XDECREF(bytes);
    if (pair == NULL)
        return NULL;
    PyObject_GC_UnTrack(pair);
    keep(&known->pair, pair);
    known->value = value;
    return pair;
}

PyObject *
find_headers(HeaderCache *cache, const RawRecord *raw)
{
    Span bytes = {raw->headers, (int32_t)(raw->stop - raw->headers)};
    if (cache->last_headers != NULL && Py_SIZE(cache->last_headers) == raw->header_count &&
        is_same(bytes, cache->last_bytes))
        return Py_NewRef(cache->last_headers);
    PyObject *headers = PyTuple_New(raw->header_count);
    if (headers == NULL)
        return NULL;
    const uint8_t *at = raw->headers;
    for (int32_t number = 0; number < raw->header_count; number++) {
        Span name, value;
        PyObject *pair = NULL;
        if (read_header(&at, raw->stop, &name, &value) == 0)
            pair = find_pair(cache, number, name, value);
        if (pair == NULL || PyTuple_SetItem(headers, number, pair) < 0) {
            Py_DECREF(headers);
            return NULL;
        }
    }
    if (at != raw->stop) {
        Py_DECREF(headers);
        return NULL;
    }
    PyObject_GC_UnTrack(headers);
    keep(&cache->last_headers, headers);
    cache->last_bytes = bytes;
    return headers;
}

void
clear_header_cache(HeaderCache *cache)
{
    for (int i = 0; i < cache->known_count; i++) {
        Py_CLEAR(cache->known[i].text);
        Py_CLEAR(cache->known[i].pair);
    }
    cache->known_count = 0;
    Py_CLEAR(cache->last_headers);
}
