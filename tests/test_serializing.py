"""Keys and values that are more than bytes."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

import logstore
from logstore.errors import InvalidRecordError, UsageError
from logstore.serializing import JSON, TEXT

jsonable = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


@given(jsonable.filter(lambda value: value is not None))
def test_json_comes_back(value):
    try:
        encoded = JSON.encode(value)
    except UnicodeEncodeError:
        return  # half of a surrogate pair is not text
    assert JSON.decode(encoded) == value


@pytest.fixture
def topic(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        yield store.create_topic("t", partitions=3)


def test_text_and_json_go_through_every_call(topic):
    orders = topic.serialized(key="text", value="json")
    partition, offset = orders.append({"status": "paid"}, key="alice")
    assert partition == topic.partition_for(b"alice") == orders.partition_for("alice")
    orders.extend([("bob", [1, 2]), ("bob", None), ("carol", 5, 1_700_000_000_000, {"h": b"x"})])
    orders.extend([logstore.NewRecord("plain", "dave")])
    found = {(record.key, str(record.value)) for record in orders.read()}
    assert found == {
        ("alice", "{'status': 'paid'}"),
        ("bob", "[1, 2]"),
        ("bob", "None"),
        ("carol", "5"),
        ("dave", "plain"),
    }
    carol = next(record for record in orders.read() if record.key == "carol")
    assert carol.headers == (("h", b"x"),)
    assert (carol.topic, carol.timestamp_ms) == ("t", 1_700_000_000_000)
    assert "alice" in {record.key for record in orders.follow({partition: offset}, timeout=0)}
    table = orders.latest()
    assert table == {"alice": {"status": "paid"}, "carol": 5, "dave": "plain"}
    assert table.end_offsets == {number: log.log_end_offset for number, log in enumerate(topic)}
    orders.append("later", key="erin")
    assert [record.key for record in orders.follow(table.end_offsets, timeout=0)] == ["erin"]
    assert topic[partition].record_at(offset).value == b'{"status":"paid"}'
    assert orders.topic is topic
    assert repr(orders) == "<SerializedTopic 't': key text, value json>"


def test_any_pair_of_functions_will_do(topic):
    pair = (struct.Struct(">q").pack, lambda data: struct.unpack(">q", data)[0])
    numbers = topic.serialized(key=pair, value=TEXT)
    numbers.append("seven", key=7)
    assert [(record.key, record.value) for record in numbers.read()] == [(7, "seven")]


def test_a_key_that_moved_to_another_partition_has_its_later_value(tmp_path):
    keys = [f"key {number}" for number in range(20)]
    with logstore.open(tmp_path / "store") as store:
        topic = store.create_topic("t", partitions=2)
        prices = topic.serialized(key="text", value="json")
        prices.extend([(key, "old", 1_700_000_000_000) for key in keys])
        topic.add_partitions(3)
        placed = prices.extend([(key, "new", 1_700_000_000_001) for key in keys])
        assert set(placed) == {0, 1, 2}, "some came from a partition in front, and some from one behind"
        assert prices.latest() == dict.fromkeys(keys, "new")


def test_what_a_serializer_refuses_is_named(topic):
    orders = topic.serialized(key="text", value="json")
    for call, words in (
        (lambda: orders.append(object(), key="k"), r"value is <object .*serializer \(json\) refuses"),
        (lambda: orders.append(float("nan")), "value is nan"),
        (lambda: orders.append(1, key=b"k"), r"key is b'k', which its serializer \(text\) refuses"),
        (lambda: orders.extend([("a", 1), (2, 1)]), "key of record 1 is 2"),
        (lambda: orders.extend([5]), "record 0 is a int"),
        (lambda: orders.append("\ud800"), "refuses"),
    ):
        with pytest.raises(InvalidRecordError, match=words):
            call()
    assert sum(log.log_end_offset for log in topic) == 0
    topic.append(b"not json", key=b"k", partition=1)
    with pytest.raises(InvalidRecordError, match="the value of the record at offset 0 of t-1 is b'not json'"):
        list(orders.read())
    with pytest.raises(InvalidRecordError, match="gives it as bytes"):
        orders.latest()
    lists = topic.serialized(key="json")
    topic.append(b"v", key=b"[1]", partition=0)
    with pytest.raises(InvalidRecordError, match=r"the key of the record at offset 0 of t-0"):
        lists.latest()


@pytest.mark.parametrize("choice", ["xml", 5, (1, 2), (str,), None])
def test_wrong_serializers_are_refused(topic, choice):
    with pytest.raises(UsageError, match="it must be 'bytes', 'text', 'json', or a pair of functions"):
        topic.serialized(value=choice)


def test_text_without_a_serializer_is_refused_with_both_ways_out(topic):
    for call in (lambda: topic.append("text"), lambda: topic[0].append("text")):
        with pytest.raises(InvalidRecordError) as caught:
            call()
        assert str(caught.value) == (
            "value is a str; it must be bytes or None; .encode() makes bytes of it, or "
            'topic.serialized(value="text") of every value'
        )
    with pytest.raises(InvalidRecordError, match=r'topic.serialized\(key="text"\) of every key'):
        topic.append(b"v", key="text")
    with pytest.raises(InvalidRecordError, match=r'value of record 1 is a dict.*value="json"'):
        topic.extend([(b"k", b"v"), (b"k", {})])
