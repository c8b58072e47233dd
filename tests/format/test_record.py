"""The record: what it equals, what it refuses, how it is shown; the compiled class as the plain one."""

import copy
import operator
import pickle
import sys
from collections.abc import Sequence

import pytest

from logstore.build import compiled
from logstore.model import PlainRecord, Record, TimestampType
from tests.logdir.helpers import run_python
from tests.whole_records import BESIDE, beside, whole

CLASSES = [PlainRecord] if compiled is None else [PlainRecord, compiled.Record]
FIELDS = (3, 1000, b"k", b"v", (("h", b"x"), ("n", None)))
SOURCE = {"topic": "t", "partition": 4, "timestamp_type": TimestampType.LOG_APPEND_TIME, "leader_epoch": 5}
NO_SOURCE = (None, None, TimestampType.NO_TIMESTAMP_TYPE, None)
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


class NumberLike:
    def __index__(self):
        return 1

    __int__ = __index__


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
    "topic is bytes": (TypeError, {"topic": b"t"}),
    "partition is str": (TypeError, {"partition": "0"}),
    "partition is float": (TypeError, {"partition": 0.0}),
    "partition -1 is not 0 to 2147483647": (ValueError, {"partition": -1}),
    "partition 2147483648 is not": (ValueError, {"partition": 2**31}),
    "leader_epoch is NumberLike": (TypeError, {"leader_epoch": NumberLike()}),
    "leader_epoch -1 is not": (ValueError, {"leader_epoch": -1}),
    f"leader_epoch {2**70} is not": (ValueError, {"leader_epoch": 2**70}),
    "timestamp_type is NoneType": (TypeError, {"timestamp_type": None}),
    "timestamp_type is str": (TypeError, {"timestamp_type": "CREATE_TIME"}),
    "2 is not a valid TimestampType": (ValueError, {"timestamp_type": 2}),
    f"{-(2**70)} is not a valid TimestampType": (ValueError, {"timestamp_type": -(2**70)}),
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
@pytest.mark.parametrize("name", [*PlainRecord._fields, *BESIDE, "colour"])
def test_it_is_immutable(kind, name):
    for record in (kind(*FIELDS), kind(*FIELDS, **SOURCE)):
        with pytest.raises(AttributeError):
            setattr(record, name, 0)


# What it says beside its fields


@both
def test_a_record_made_by_hand_was_read_nowhere(kind):
    assert beside(kind(*FIELDS)) == beside(kind(*FIELDS, topic=None, timestamp_type=-1)) == NO_SOURCE


@both
@pytest.mark.parametrize("name", BESIDE)
def test_each_may_be_given_by_itself(kind, name):
    record = kind(*FIELDS, **{name: SOURCE[name]})
    expected = [
        SOURCE[name] if each == name else nothing for each, nothing in zip(BESIDE, NO_SOURCE, strict=True)
    ]
    assert list(beside(record)) == expected
    assert type(record.timestamp_type) is TimestampType
    with pytest.raises(TypeError):
        kind(*FIELDS, SOURCE[name])


@both
def test_what_is_given_is_kept_as_plain_text_and_numbers(kind):
    class Name(str):
        def __str__(self):
            return "another"

    class Number(int):
        def __int__(self):
            return 9

    record = kind(*FIELDS, topic=Name("t"), partition=True, leader_epoch=True, timestamp_type=True)
    assert beside(record) == ("t", 1, TimestampType.LOG_APPEND_TIME, 1)
    assert [type(each) for each in beside(record)] == [str, int, TimestampType, int]
    made = kind(*FIELDS, partition=Number(3))
    assert (made.partition, type(made.partition)) == (3, int)


@both
@pytest.mark.parametrize("other", CLASSES)
def test_it_is_no_part_of_the_tuple(kind, other):
    record = kind(*FIELDS, **SOURCE)
    assert record == FIELDS == other(*FIELDS) == other(*FIELDS, topic="another", leader_epoch=0)
    assert hash(record) == hash(FIELDS) == hash(other(*FIELDS))
    assert not record < other(*FIELDS)
    assert (len(record), tuple(record), [*record]) == (5, FIELDS, [*FIELDS])
    assert record[:] == FIELDS
    assert repr(record) == repr(kind(*FIELDS))
    assert record._asdict() == kind(*FIELDS)._asdict()
    assert set(record._fields).isdisjoint(BESIDE)
    assert "t" not in record


@both
def test_a_changed_record_keeps_it(kind):
    record = kind(*FIELDS, **SOURCE)
    changed = record._replace(value=b"w")
    assert (type(changed), whole(changed)) == (kind, (*FIELDS[:3], b"w", FIELDS[4], *SOURCE.values()))
    assert whole(record._replace(topic=None, partition=0)) == (*FIELDS, None, 0, *[*SOURCE.values()][2:])
    assert beside(kind(*FIELDS)._replace(topic="t")) == ("t", *NO_SOURCE[1:])
    if sys.version_info >= (3, 13):
        assert whole(copy.replace(record, value=b"w")) == whole(changed)


@both
def test_matched_by_name(kind):
    match kind(*FIELDS, **SOURCE):
        case kind(3, topic="t", partition=partition, timestamp_type=TimestampType.LOG_APPEND_TIME):
            assert partition == 4
        case _:
            pytest.fail("not taken by attributes")


@both
def test_a_class_derived_from_it_has_it(kind):
    class Event(kind):
        @property
        def place(self):
            return f"{self.topic}-{self.partition}"

    event = Event(*FIELDS, **SOURCE)
    event.note = "as before"
    assert (event.place, event.leader_epoch, event) == ("t-4", 5, FIELDS)
    assert (type(event._replace(offset=1)), event._replace(offset=1).place) == (Event, "t-4")
    with pytest.raises(AttributeError):
        event.topic = "another"


@needs_compiled
def test_sources_give_their_memory_back():
    topic, number = "a topic that is counted", 10**6
    before = sys.getrefcount(topic), sys.getrefcount(number)
    for _ in range(1000):
        compiled.Record(1, 2, None, None, topic=topic, partition=number)._replace(offset=3)
    assert (sys.getrefcount(topic), sys.getrefcount(number)) == before


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
    for source in ({}, SOURCE, {"topic": "t"}):
        record = kind(*FIELDS, **source)
        found = pickle.loads(pickle.dumps(record, protocol))
        assert (type(found), whole(found)) == (Record, whole(record))


OLD_PICKLE = (
    b"\x80\x04\x95B\x00\x00\x00\x00\x00\x00\x00\x8c\x0elogstore.model\x94\x8c\x06Record\x94\x93\x94(K\x03M\xe8\x03"
    b"C\x01k\x94C\x01v\x94\x8c\x01h\x94C\x01x\x94\x86\x94\x8c\x01n\x94N\x86\x94\x86\x94t\x94R\x94."
)


def test_a_pickle_of_the_five_fields_alone_is_one_of_a_record_made_by_hand():
    """As they were before records said where they were read, and still are where they do not."""
    found = pickle.loads(OLD_PICKLE)
    assert (type(found), whole(found)) == (Record, (*FIELDS, *NO_SOURCE))
    assert pickle.dumps(found, 4) == OLD_PICKLE


@needs_compiled
@pytest.mark.parametrize("here", CLASSES)
@pytest.mark.parametrize("there", ["plain", "compiled"])
def test_pickles_go_between_compiled_and_plain_installations(here, there, monkeypatch):
    monkeypatch.setenv("LOGSTORE_LOOPS", there)
    records = [here(*FIELDS), here(*FIELDS, **SOURCE)]
    code = (
        f"import pickle, sys; records = pickle.loads({pickle.dumps(records)!r}); "
        "print(isinstance(records[0], tuple), pickle.dumps(records).hex())"
    )
    is_tuple, text = run_python(code).split()
    assert is_tuple == str(there == "plain")
    assert [*map(whole, pickle.loads(bytes.fromhex(text)))] == [*map(whole, records)]


@both
def test_copies(kind):
    for record in (kind(*FIELDS), kind(*FIELDS, **SOURCE)):
        for made in (copy.copy(record), copy.deepcopy(record)):
            assert whole(made) == whole(record)


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
