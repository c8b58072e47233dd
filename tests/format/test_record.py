"""The record: what it equals, what it refuses, how it is shown; the compiled class as the plain one."""

import copy
import operator
import pickle
import sys
from collections.abc import Sequence

import pytest

from logstore.build import compiled
from logstore.model import PlainRecord, Record
from tests.logdir.helpers import run_python

CLASSES = [PlainRecord] if compiled is None else [PlainRecord, compiled.Record]
FIELDS = (3, 1000, b"k", b"v", (("h", b"x"), ("n", None)))
INT64_MAX = 2**63 - 1

both = pytest.mark.parametrize("kind", CLASSES, ids=["plain", "compiled"][: len(CLASSES)])
needs_compiled = pytest.mark.skipif(compiled is None, reason="there is no compiled module")


@both
def test_fields_by_name(kind):
    record = kind(*FIELDS)
    assert (record.offset, record.timestamp_ms, record.key, record.value, record.headers) == FIELDS
    assert kind(value=None, key=None, timestamp_ms=-1, offset=0) == (0, -1, None, None, ())
    assert kind._fields == kind.__match_args__ == ("offset", "timestamp_ms", "key", "value", "headers")


@both
@pytest.mark.parametrize("number", [0, -1, INT64_MAX, -INT64_MAX - 1, True])
def test_numbers_of_64_bits(kind, number):
    record = kind(number, number, None, None)
    assert record == (number, number, None, None, ())
    assert (type(record.offset), type(record.timestamp_ms)) == (int, int)


WRONG = {
    "offset is str": (TypeError, {"offset": "3"}),
    "offset is float": (TypeError, {"offset": 3.0}),
    f"offset {2**63} does not fit": (OverflowError, {"offset": 2**63}),
    "timestamp_ms is NoneType": (TypeError, {"timestamp_ms": None}),
    f"timestamp_ms {-(2**63) - 1} does not fit": (OverflowError, {"timestamp_ms": -(2**63) - 1}),
    "key is str": (TypeError, {"key": "k"}),
    "value is bytearray": (TypeError, {"value": bytearray(b"v")}),
    "headers is list": (TypeError, {"headers": []}),
    "headers is NoneType": (TypeError, {"headers": None}),
    "unexpected keyword argument 'colour'": (TypeError, {"colour": 1}),
}


@both
@pytest.mark.parametrize("message", WRONG)
def test_a_wrong_field_is_named(kind, message):
    error, changes = WRONG[message]
    arguments = dict(zip(PlainRecord._fields, FIELDS, strict=True)) | changes
    with pytest.raises(error, match=message):
        kind(**arguments)
    with pytest.raises(error, match=message):
        kind(*FIELDS)._replace(**changes)


@both
def test_missing_fields_are_named(kind):
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'value'"):
        kind(1, 2, b"k")


@both
@pytest.mark.parametrize("name", [*PlainRecord._fields, "colour"])
def test_it_is_immutable(kind, name):
    with pytest.raises(AttributeError):
        setattr(kind(*FIELDS), name, 0)


@both
@pytest.mark.parametrize("other", CLASSES)
def test_equal_and_hashed_as_the_tuple_of_its_fields(kind, other):
    record = kind(*FIELDS)
    assert record == FIELDS
    assert FIELDS == record  # noqa: SIM300  # the tuple's own comparison
    assert record == other(*FIELDS)
    assert (record != other(*FIELDS)) is False
    assert hash(record) == hash(FIELDS)
    assert {record: 1}[FIELDS] == 1
    assert record != FIELDS[:4]
    assert record != list(FIELDS)
    for number in range(5):
        assert record != other(
            *FIELDS[:number], *(4, 4, None, None, ())[number : number + 1], *FIELDS[number + 1 :]
        )


@both
@pytest.mark.parametrize("other", [tuple, *CLASSES])
@pytest.mark.parametrize("compare", [operator.lt, operator.le, operator.gt, operator.ge])
def test_ordered_as_tuples_are(kind, other, compare):
    rows = [
        (1, 2, b"a", b"", ()),
        (1, 2, b"a", b"", (("h", b""),)),
        (1, 2, b"b", None, ()),
        (2, -1, b"", b"", ()),
    ]
    for left in rows:
        for right in rows:
            made = other(right) if other is tuple else other(*right)
            assert compare(kind(*left), made) is compare(left, right)
            assert compare(made, kind(*left)) is compare(right, left)


@both
def test_no_order_where_tuples_have_none(kind):
    with pytest.raises(TypeError, match="'<' not supported between instances of 'NoneType' and 'bytes'"):
        _ = kind(1, 2, None, b"") < kind(1, 2, b"", b"")
    with pytest.raises(TypeError, match="not supported"):
        _ = kind(*FIELDS) < 1


@both
def test_a_sequence_of_five(kind):
    record = kind(*FIELDS)
    offset, *rest = record
    assert (offset, *rest) == FIELDS
    assert (len(record), record[0], record[-1], record[1:3]) == (5, 3, FIELDS[4], FIELDS[1:3])
    assert list(reversed(record)) == list(reversed(FIELDS))
    assert b"v" in record
    assert b"w" not in record
    assert (record.index(b"v"), record.count(b"v")) == (3, 1)
    assert (*record, 1) == record + (1,)  # noqa: RUF005  # the operator is what is tested
    assert isinstance(record, Sequence)
    with pytest.raises(IndexError):
        record[5]
    with pytest.raises(TypeError):
        record["offset"]


@both
def test_it_matches_patterns(kind):
    match kind(*FIELDS):
        case [3, _, key, value, _]:
            assert (key, value) == (b"k", b"v")
        case _:
            pytest.fail("not taken as a sequence")
    match kind(*FIELDS):
        case kind(3, timestamp_ms=1000, key=key):
            assert key == b"k"
        case _:
            pytest.fail("not taken by fields")


@both
def test_what_named_tuples_do(kind):
    record = kind(*FIELDS)
    assert record._asdict() == dict(zip(kind._fields, FIELDS, strict=True))
    changed = record._replace(offset=9, headers=())
    assert (type(changed), changed) == (kind, (9, 1000, b"k", b"v", ()))
    assert record == FIELDS
    assert kind._make(list(FIELDS)) == record
    if sys.version_info >= (3, 13):
        assert copy.replace(record, offset=9).offset == 9


@both
@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_a_pickle_is_the_installations_record(kind, protocol):
    found = pickle.loads(pickle.dumps(kind(*FIELDS), protocol))
    assert (type(found), found) == (Record, FIELDS)


@needs_compiled
@pytest.mark.parametrize("here", CLASSES)
@pytest.mark.parametrize("there", ["plain", "compiled"])
def test_pickles_go_between_compiled_and_plain_installations(here, there, monkeypatch):
    monkeypatch.setenv("LOGSTORE_LOOPS", there)
    code = (
        f"import pickle, sys; record = pickle.loads({pickle.dumps(here(*FIELDS))!r}); "
        "print(isinstance(record, tuple), pickle.dumps(record).hex())"
    )
    is_tuple, text = run_python(code).split()
    assert is_tuple == str(there == "plain")
    assert pickle.loads(bytes.fromhex(text)) == FIELDS


@both
def test_copies(kind):
    for made in (copy.copy(kind(*FIELDS)), copy.deepcopy(kind(*FIELDS))):
        assert made == FIELDS


@both
def test_it_is_shown_with_its_names(kind):
    assert (
        repr(kind(3, -1, b"k", None)) == "Record(offset=3, timestamp_ms=-1, key=b'k', value=None, headers=())"
    )
    assert repr(kind(0, 0, None, b"", (("h", b"x"),))).endswith("value=b'', headers=(('h', b'x'),))")
    assert eval(repr(kind(*FIELDS)), {"Record": kind}) == FIELDS


@both
def test_long_values_are_shown_shortened(kind):
    shown = repr(kind(0, 0, b"k" * 64, b"v" * 65, tuple(("h", b"x" * 1000) for _ in range(9))))
    assert f"key={b'k' * 64!r}, " in shown
    assert f"value={b'v' * 64!r}... 65 bytes, " in shown
    assert shown.count("... 1000 bytes") == 8
    assert shown.endswith(", ... 9 headers))")


@both
def test_it_can_be_derived_from(kind):
    class Event(kind):
        @property
        def text(self):
            return self.value.decode()

    event = Event(*FIELDS)
    event.note = "a class in Python has a dictionary"
    assert (event.text, event, hash(event)) == ("v", FIELDS, hash(FIELDS))
    assert type(event._replace(offset=1)) is Event
    assert repr(event).startswith("Event(")


@both
def test_it_says_what_it_is(kind):
    assert (kind.__module__, kind.__qualname__) == ("logstore.model", "Record")
    assert kind.__doc__ == PlainRecord.__doc__


@needs_compiled
def test_records_give_their_memory_back():
    value = b"a value that is counted"
    before = sys.getrefcount(value), sys.getrefcount(compiled.Record)
    for _ in range(1000):
        compiled.Record(1, 2, value, value, ((value, value),))
    assert (sys.getrefcount(value), sys.getrefcount(compiled.Record)) == before
