"""A topic: a sequence of logs, and where records go."""

import collections
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.config import StoreConfig, TopicConfig
from logstore.errors import (
    InvalidConfigError,
    InvalidRecordError,
    LogstoreError,
    UnknownTopicError,
    UsageError,
)
from logstore.format.partitioner import partition_for_key
from logstore.logdir.placement import Placement
from logstore.model import NewRecord
from tests.logdir.helpers import names_in, open_store, values


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def store(path):
    with open_store(path) as store:
        yield store


@pytest.fixture
def topic(store):
    return store.create_topic("t", partitions=4)


# A sequence -------------------------------------------------------------------------------------------------


def test_is_a_sequence_of_logs_in_order(topic):
    assert isinstance(topic, collections.abc.Sequence)
    assert [log.partition.partition for log in topic] == [0, 1, 2, 3]
    assert len(topic) == 4


def test_negative_numbers_count_from_the_end(topic):
    assert topic[-1] is topic[3]
    assert topic[-4] is topic[0]


@pytest.mark.parametrize(
    "part", [slice(1, 3), slice(None), slice(None, None, -1), slice(-2, None), slice(5, 9), slice(0, 4, 2)]
)
def test_slices_are_those_of_a_list(topic, part):
    assert topic[part] == [topic[0], topic[1], topic[2], topic[3]][part]


def test_in_index_count_and_reversed_work(topic, store):
    other = store.create_topic("other")[0]
    assert topic[2] in topic
    assert other not in topic
    assert topic.index(topic[2]) == 2
    assert topic.count(topic[1]) == 1
    assert next(reversed(topic)) is topic[3]


@pytest.mark.parametrize("kind", [IndexError, KeyError, UnknownTopicError, LookupError, LogstoreError])
@pytest.mark.parametrize("number", [4, -5, 2**70])
def test_a_partition_that_is_not_there_is_an_index_error_and_ours(topic, number, kind):
    with pytest.raises(kind, match="has 4 partitions, numbered from 0; there is no"):
        topic[number]


@pytest.mark.parametrize("number", ["0", 1.0, True, None, b"0"])
def test_a_partition_is_a_number(topic, number):
    with pytest.raises(UsageError, match="must be a number"):
        topic[number]


def test_the_log_of_a_partition_is_one_object(topic):
    assert topic[1] is topic[1]


def test_repr_names_topic_and_path_even_when_closed(store, topic, path):
    store.close()
    assert repr(topic) == f"<Topic 't' in {str(path)!r}>"


# Keys -------------------------------------------------------------------------------------------------------

# Key and partition of 4, as Kafka's Java client says: (murmur2(key) & 0x7fffffff) % 4.
JAVA = [(b"21", -973932308), (b"foobar", -790332482), (b"a-little-bit-long-string", -985981536)]


@pytest.mark.parametrize(("key", "java_hash"), JAVA)
def test_a_key_goes_where_kafkas_java_client_sends_it(topic, key, java_hash):
    partition, offset = topic.append(b"v", key=key)
    assert partition == topic.partition_for(key) == (java_hash & 0x7FFFFFFF) % 4
    assert [record.key for record in topic[partition].read(offset)] == [key]


def test_append_and_extend_agree_on_a_keys_partition(topic):
    keys = [b"%d" % number for number in range(200)]
    offsets = topic.extend([(key, b"extended") for key in keys])
    assert sum(len(each) for each in offsets.values()) == 200
    for key in keys:
        partition, _ = topic.append(b"appended", key=key)
        assert b"extended" in [record.value for record in topic[partition] if record.key == key]


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_a_key_of_any_bytes_type_goes_to_the_same_partition(topic, kind):
    assert topic.append(b"v", key=kind(b"alice"))[0] == topic.partition_for(b"alice")


@pytest.mark.parametrize("key", ["alice", 5, 1.5, ["a"]])
def test_a_key_that_is_no_bytes_is_refused_and_named(topic, key):
    with pytest.raises(InvalidRecordError, match="key"):
        topic.append(b"v", key=key)
    with pytest.raises(InvalidRecordError, match="key"):
        topic.extend([(key, b"v")])
    assert [log.log_end_offset for log in topic] == [0, 0, 0, 0]


@pytest.mark.parametrize("value", ["text", 5, 1.5])
def test_a_value_that_is_no_bytes_is_refused_and_named(topic, value):
    with pytest.raises(InvalidRecordError, match="value"):
        topic.append(value)
    with pytest.raises(InvalidRecordError):
        topic.extend([(None, value)])


def test_an_explicit_partition_wins_over_the_key(topic):
    other = (topic.partition_for(b"alice") + 1) % 4
    assert topic.append(b"v", key=b"alice", partition=other) == (other, 0)


def test_a_negative_partition_counts_from_the_end_and_the_answer_does_not(topic):
    assert topic.append(b"v", partition=-1) == (3, 0)


@pytest.mark.parametrize("partition", [4, -5, "0", True, 0.0])
def test_an_explicit_partition_must_be_there(topic, partition):
    with pytest.raises(UsageError):
        topic.append(b"v", partition=partition)


def test_after_partitions_were_added_keys_go_by_the_new_number(topic):
    topic.append(b"v", key=b"alice")
    topic.add_partitions(7)
    assert topic.append(b"v", key=b"alice")[0] == partition_for_key(b"alice", 7)


def test_more_different_keys_than_are_remembered_still_go_right(monkeypatch):
    monkeypatch.setattr("logstore.logdir.placement.REMEMBERED_KEYS", 8)
    placement = Placement(1_000)
    for number in range(100):
        key = b"%d" % (number % 50)
        assert placement.of_key(key, 4) == partition_for_key(key, 4)


# Records without a key --------------------------------------------------------------------------------------


@given(
    calls=st.lists(st.lists(st.integers(0, 150)), max_size=5),
    batch_bytes=st.integers(1, 400),
    held=st.sampled_from([None, [0, 1, 2], [2], [1, 5]]),
)
def test_values_are_divided_as_they_are_placed_one_by_one(calls, batch_bytes, held):
    together, one_by_one = Placement(batch_bytes), Placement(batch_bytes)
    for sizes in calls:
        values = [bytes(size) for size in sizes]
        expected = {}
        for value in values:
            expected.setdefault(one_by_one.choose(None, value, 3, held), []).append(value)
        assert together.divide(values, 3, held) == expected


def test_many_values_are_not_placed_one_by_one(topic, monkeypatch):
    monkeypatch.setattr(Placement, "choose", None)
    assert sum(map(len, topic.extend([b"v"] * 1_000).values())) == 1_000


def test_records_without_a_key_stay_in_a_partition_for_a_batch_and_then_go_on(path):
    with open_store(path, config=StoreConfig(batch_bytes=1_000)) as store:
        topic = store.create_topic("t", partitions=3)
        went = [topic.append(b"v" * 92)[0] for _ in range(60)]
    runs = [(went[0], 1)]
    for partition in went[1:]:
        if partition == runs[-1][0]:
            runs[-1] = (partition, runs[-1][1] + 1)
        else:
            runs.append((partition, 1))
    assert [partition for partition, _ in runs] == [0, 1, 2, 0, 1, 2]
    assert {count for _, count in runs} == {10}


def test_empty_records_without_a_key_rotate_too(path):
    with open_store(path, config=StoreConfig(batch_bytes=100)) as store:
        topic = store.create_topic("t", partitions=2)
        assert {topic.append(None)[0] for _ in range(100)} == {0, 1}


def test_extend_spreads_records_without_a_key_in_runs(path):
    with open_store(path, config=StoreConfig(batch_bytes=1_000)) as store:
        topic = store.create_topic("t", partitions=3)
        offsets = topic.extend([b"v" * 92] * 60)
        assert {partition: len(each) for partition, each in offsets.items()} == {0: 20, 1: 20, 2: 20}


# Many records -----------------------------------------------------------------------------------------------


def test_extend_keeps_the_order_within_each_partition(topic):
    numbers = random.Random(1)
    records = [(b"k%d" % numbers.randrange(20), b"%d" % number) for number in range(500)]
    offsets = topic.extend(records)
    for partition, log in enumerate(topic):
        expected = [(key, value) for key, value in records if partition_for_key(key, 4) == partition]
        assert [(record.key, record.value) for record in log.read()] == expected
        assert offsets[partition] == range(len(expected))


@pytest.mark.parametrize("kind", [list, tuple, iter, lambda rows: (row for row in rows), dict])
def test_extend_takes_any_iterable(topic, kind):
    rows = {b"a": b"1", b"b": b"2"}
    given = rows.items() if kind is dict else kind(list(rows.items()))
    offsets = topic.extend(given)
    assert sum(map(len, offsets.values())) == 2


def test_extend_keeps_headers_and_timestamps(topic):
    record = NewRecord(b"v", b"k", (("h", b"x"),), 1_600_000_000_000)
    (partition,) = topic.extend([record])
    (read,) = topic[partition].read()
    assert (read.headers, read.timestamp_ms) == ((("h", b"x"),), 1_600_000_000_000)


def test_extend_of_nothing_is_nothing(topic):
    assert topic.extend([]) == topic.extend(iter(())) == {}


@pytest.mark.parametrize("records", [b"one", "text", bytearray(b"x"), 5, None])
def test_extend_refuses_what_is_no_iterable_of_records(topic, records):
    with pytest.raises(UsageError, match="records is a"):
        topic.extend(records)


def test_a_bad_record_among_many_keeps_all_of_them_out(topic):
    with pytest.raises(InvalidRecordError, match="record 2"):
        topic.extend([b"a", b"b", 5])
    assert [log.log_end_offset for log in topic] == [0, 0, 0, 0]


def test_extend_with_flush_is_durable(topic):
    for partition, offsets in topic.extend([(b"%d" % n, b"v") for n in range(20)], flush=True).items():
        assert topic[partition].durable_offset == offsets.stop


def test_append_with_flush_is_durable(topic):
    partition, offset = topic.append(b"v", flush=True)
    assert topic[partition].durable_offset == offset + 1


def test_flush_makes_every_partition_durable(topic):
    topic.extend([(b"%d" % n, b"v") for n in range(20)])
    topic.flush()
    assert all(log.durable_offset == log.log_end_offset for log in topic)


# Growing ----------------------------------------------------------------------------------------------------


def test_added_partitions_are_empty_and_the_old_keep_their_records(path):
    with open_store(path) as store:
        topic = store.create_topic("t")
        topic.append(b"v")
        topic.add_partitions(3)
        assert [values(log) for log in topic] == [[b"v"], [], []]
        topic[2].append(b"w")
    with open_store(path) as store:
        assert [values(log) for log in store["t"]] == [[b"v"], [], [b"w"]]


@pytest.mark.parametrize("count", [4, 3, 0, -1, True, "5", 100_001])
def test_partitions_are_only_added(topic, count):
    with pytest.raises(UsageError):
        topic.add_partitions(count)
    assert len(topic) == 4


def test_the_groups_of_a_store_are_not_lost_by_more_partitions(path):
    with open_store(path) as store:
        store.require_topic("t").append(b"v")
        store.offsets("g").commit({("t", 0): 1})
        with pytest.raises(UsageError, match=r"groups and their offsets .* offsets_topic_num_partitions"):
            store["__consumer_offsets"].add_partitions(20)
        assert list(store.groups()) == ["g"]


def test_added_partitions_belong_to_the_same_topic(topic, path):
    topic.add_partitions(5)
    ids = {(path / f"t-{number}" / "partition.metadata").read_bytes() for number in range(5)}
    assert len(ids) == 1


# Settings ---------------------------------------------------------------------------------------------------


def test_single_settings_are_changed_and_kept_over_a_reopen(path):
    with open_store(path) as store:
        topic = store.create_topic("t", partitions=2, config=TopicConfig(retention_ms=5))
        changed = topic.configure(segment_bytes=1000, cleanup_policy="compact")
        assert changed == topic.config == topic[1].config
        assert (changed.retention_ms, changed.segment_bytes) == (5, 1000)
    with open_store(path) as store:
        assert store["t"].config == store["t"][0].config == changed


def test_a_whole_config_replaces_all_settings(topic):
    config = TopicConfig(retention_bytes=7)
    assert topic.configure(config) == topic[3].config == config
    assert topic.configure(config, retention_bytes=8).retention_bytes == 8


def test_settings_are_stored_in_kafkas_spelling(topic, path):
    topic.configure(retention_ms=5, compression_type="zstd")
    stored = json.loads((path / "topics.json").read_text())["topics"]["t"]["config"]
    limits = {"cleanup.policy": "delete", "retention.bytes": "-1"}
    assert stored == limits | {"retention.ms": "5", "compression.type": "zstd"}


def test_changed_settings_are_used_at_once(topic):
    topic.configure(max_message_bytes=100)
    with pytest.raises(InvalidRecordError):
        topic.append(b"v" * 200)


@pytest.mark.parametrize(
    "settings",
    [
        {"retention": 5},
        {"retention.ms": 5},
        {"retention_ms": "5"},
        {"retention_ms": -2},
        {"cleanup_policy": "x"},
    ],
)
def test_an_unknown_setting_or_a_bad_value_changes_nothing(topic, path, settings):
    before = (path / "topics.json").read_bytes()
    with pytest.raises(InvalidConfigError):
        topic.configure(**settings)
    assert topic.config == TopicConfig()
    assert (path / "topics.json").read_bytes() == before


@pytest.mark.parametrize("config", [{"retention_ms": 5}, "delete", 5])
def test_configure_refuses_what_is_no_config(topic, config):
    with pytest.raises(InvalidConfigError, match="TopicConfig"):
        topic.configure(config)
    with pytest.raises(InvalidConfigError, match="TopicConfig"):
        topic.configure(config, retention_ms=5)


def test_configure_without_anything_changes_nothing(topic):
    assert topic.configure() == topic.config


# A topic that is no longer there ----------------------------------------------------------------------------


def test_a_deleted_topic_says_so(store, topic):
    store.delete_topic("t")
    for use in (lambda: len(topic), lambda: topic[0], lambda: topic.append(b"v"), lambda: topic.config):
        with pytest.raises(UnknownTopicError):
            use()


def test_nothing_but_the_partitions_is_in_the_directory(topic, path):
    assert [name for name in names_in(path) if name.startswith("t-")] == ["t-0", "t-1", "t-2", "t-3"]
