"""``store.offsets(group)`` as its users have it."""

from __future__ import annotations

import threading

import pytest

import logstore
from logstore.clients.offsets import Offsets
from logstore.errors import (
    ClosedError,
    LogstoreError,
    OffsetOutOfRangeError,
    ReadOnlyError,
    StorageError,
    UnknownPartitionError,
    UnknownTopicError,
    UsageError,
)
from logstore.model import OffsetAndMetadata, TopicPartition
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles
from tests.broker.offsets.helpers import ORDERS, OTHER
from tests.logdir.helpers import run_python
from tests.test_hostile_arguments import HOSTILE, HisError


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "s") as store:
        orders = store.create_topic("orders", partitions=2)
        for log in orders:
            log.extend([b"%d" % number for number in range(10)])
        yield store


@pytest.fixture
def offsets(store):
    return store.offsets("billing")


def test_a_reader_goes_on_where_its_group_stopped(store, offsets):
    log = store["orders"][0]
    read = []
    for _ in range(4):
        committed = offsets.get(("orders", 0))
        for record in log.read(committed.offset if committed else None):
            read.append(record.value)
            offsets.commit({("orders", 0): record.offset + 1})
            if len(read) % 3 == 0:
                break
    assert read == [b"%d" % number for number in range(10)]


def test_it_is_a_mapping(offsets):
    assert dict(offsets) == {}
    assert not offsets
    offsets.commit({("orders", 1): 4, ORDERS: OffsetAndMetadata(2, "note", 0)})
    assert dict(offsets) == {ORDERS: (2, "note", 0), OTHER: (4, "", None)}
    assert list(offsets) == [ORDERS, OTHER]
    assert all(isinstance(each, TopicPartition) for each in offsets)
    assert len(offsets) == 2
    assert ("orders", 1) in offsets
    assert ("orders", 7) not in offsets
    assert offsets["orders", 0] == OffsetAndMetadata(2, "note", 0)
    assert offsets[OTHER].offset == 4
    with pytest.raises(KeyError, match="group 'billing' has committed no offset for orders-7"):
        offsets["orders", 7]
    assert offsets.group == "billing"


def test_it_says_what_it_has(store, offsets):
    assert repr(offsets) == "<Offsets of group 'billing': none>"
    offsets.commit({ORDERS: 3, OTHER: 4})
    assert repr(offsets) == "<Offsets of group 'billing': orders-0: 3, orders-1: 4>"
    many = store.create_topic("many", partitions=9)
    offsets.commit({("many", number): 0 for number in range(len(many))})
    assert repr(offsets).endswith("many-3: 0, ... 11 partitions>")
    store.close()
    assert repr(offsets) == "<Offsets of group 'billing': ClosedError>"


def test_a_commit_keeps_other_partitions_and_may_go_back(store, offsets):
    offsets.commit({ORDERS: 9, OTHER: 1})
    offsets.commit({ORDERS: 3})
    offsets.commit({})
    assert {each: value.offset for each, value in offsets.items()} == {ORDERS: 3, OTHER: 1}
    assert dict(store.offsets("another")) == {}


def test_offsets_are_deleted(offsets):
    offsets.commit({ORDERS: 9, OTHER: 1})
    assert offsets.delete([("orders", 0), ("gone", 1)]) == (ORDERS,)
    assert list(offsets) == [OTHER]
    assert offsets.delete(flush=True) == (OTHER,)
    assert offsets.delete() == ()


def test_they_are_there_after_an_open(tmp_path):
    for turn in range(3):
        with logstore.open(tmp_path / "s") as store:
            store.require_topic("orders").append(b"x")
            offsets = store.offsets("billing")
            assert offsets.get(("orders", 0), OffsetAndMetadata(0)).offset == turn
            offsets.commit({("orders", 0): turn + 1})


# What is refused --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "error", "said"),
    [
        ({("nope", 0): 1}, UnknownTopicError, "no topic 'nope'.*did you mean|there is no topic 'nope'"),
        (
            {("orders", 2): 1},
            UnknownPartitionError,
            "'orders' has 2 partitions, numbered from 0; there is no 2",
        ),
        ({("orders", -1): 1}, UsageError, "partition -1 of topic 'orders' is not 0 to"),
        ({("orders", "0"): 1}, UsageError, "partition '0' of topic 'orders' must be a number"),
        ({"orders": 1}, UsageError, r"'orders' is no partition; give a pair such as \('orders', 0\)"),
        (
            {ORDERS: 11},
            OffsetOutOfRangeError,
            "offset 11 cannot be committed for orders-0: its log ends at 10",
        ),
        ({ORDERS: -1}, OffsetOutOfRangeError, "offset -1 cannot be committed"),
        ({ORDERS: True}, UsageError, "offset is True; it must be a whole number"),
        ({ORDERS: 1.0}, UsageError, "offset is 1.0; it must be a whole number"),
        ({ORDERS: None}, UsageError, "offset is None"),
        ({ORDERS: (1, "note")}, UsageError, "or an OffsetAndMetadata"),
        ({ORDERS: OffsetAndMetadata("1")}, UsageError, "offset is '1'"),
        ({ORDERS: OffsetAndMetadata(1, b"x")}, UsageError, "metadata is b'x'; it must be text"),
        ({ORDERS: OffsetAndMetadata(1, "x" * 5_000)}, UsageError, "offset_metadata_max_bytes allows 4096"),
        ({ORDERS: OffsetAndMetadata(1, "", -1)}, UsageError, "leader_epoch is -1; it must be None or 0 to"),
        ([(ORDERS, 1)], UsageError, "give a mapping"),
        (5, UsageError, "give a mapping"),
    ],
)
def test_a_wrong_commit_changes_nothing(offsets, given, error, said):
    offsets.commit({OTHER: 5})
    with pytest.raises(error, match=said):
        offsets.commit({OTHER: 6, **given} if isinstance(given, dict) else given)
    assert {each: value.offset for each, value in offsets.items()} == {OTHER: 5}


def test_an_error_has_the_log_end(offsets):
    with pytest.raises(OffsetOutOfRangeError) as caught:
        offsets.commit({ORDERS: 11})
    assert (caught.value.log_start_offset, caught.value.log_end_offset) == (0, 10)


@pytest.mark.parametrize("group", ["", None, 5, b"billing", "x" * 32_768, "\ud800"])
def test_what_is_no_group_is_refused(store, group):
    with pytest.raises(UsageError, match="group"):
        store.offsets(group)


@pytest.mark.parametrize("partitions", ["orders", ("orders", 0), 5, [5]])
def test_what_is_no_list_of_partitions_is_not_deleted(offsets, partitions):
    with pytest.raises(UsageError):
        offsets.delete(partitions)


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_argument_raises_anything_but_our_errors(store, offsets, kind):
    called = []

    def use(call):
        try:
            call(HOSTILE[kind]())
        except (LogstoreError, KeyError) as error:
            str(error)
        except HisError as error:
            called.append(error.args[0])

    use(store.offsets)
    use(offsets.__getitem__)
    use(lambda value: offsets.commit({ORDERS: value}))
    use(lambda value: offsets.commit({ORDERS: OffsetAndMetadata(value)}))
    use(lambda value: offsets.commit({ORDERS: OffsetAndMetadata(1, value)}))
    use(lambda value: offsets.commit({ORDERS: OffsetAndMetadata(1, "", value)}))
    use(lambda value: offsets[("orders", value)])
    use(lambda value: offsets.delete([(value, 0)]))
    use(lambda value: offsets.commit({ORDERS: 1}, flush=value))
    use(offsets.commit)
    use(offsets.delete)
    assert set(called) <= {"__iter__", "items", "__len__", "__hash__", "__eq__"}  # asked of keys and lists
    offsets.commit({ORDERS: 7})
    assert store.offsets("billing")["orders", 0].offset == 7


def test_a_closed_store_has_no_offsets(store, offsets):
    store.close()
    for use in (
        lambda: offsets[ORDERS],
        lambda: offsets.commit({}),
        offsets.delete,
        lambda: store.offsets("x"),
    ):
        with pytest.raises(ClosedError):
            use()


# Read-only --------------------------------------------------------------------------------------------------


def test_another_process_reads_them_beside_the_writer(store, offsets, tmp_path):
    with logstore.open(tmp_path / "s", read_only=True) as reader:
        theirs = reader.offsets("billing")
        assert dict(theirs) == {}
        for number in range(3):
            offsets.commit({ORDERS: number})
            assert theirs[ORDERS].offset == number
        offsets.delete()
        assert dict(theirs) == {}
        for change in (lambda: theirs.commit({ORDERS: 1}), theirs.delete):
            with pytest.raises(ReadOnlyError, match="opened read-only; open it without read_only"):
                change()


# Durability -------------------------------------------------------------------------------------------------


def test_a_flushed_commit_has_its_records_flushed_first():
    files = MemoryFiles()
    with logstore.open("/store", files=files, clock=ManualClock()) as store:
        log = store.create_topic("orders")[0]
        log.extend([b"1", b"2"])
        offsets = store.offsets("billing")
        offsets.commit({ORDERS: 1})
        assert log.durable_offset == 0
        offsets.commit({ORDERS: 1}, flush=True)
        assert log.durable_offset == 2
        assert store["__consumer_offsets"][0].durable_offset == 2


def test_records_that_gather_are_written_before_they_are_committed(tmp_path):
    """A kill right after the commit leaves no offset above the end of its log."""
    run_python(
        f"import logstore, os; store = logstore.open({str(tmp_path / 's')!r},"
        " config=logstore.StoreConfig(linger_ms=1_000_000)); orders = store.create_topic('orders');"
        "orders.append(b'1'); store.offsets('billing').commit({('orders', 0): 1}); os._exit(0)"
    )
    with logstore.open(tmp_path / "s") as store:
        assert store.offsets("billing")["orders", 0].offset == 1
        assert [record.value for record in store["orders"][0].read()] == [b"1"]


def test_a_disk_that_refuses_leaves_what_was_committed():
    files = FaultyFiles(MemoryFiles())
    with logstore.open("/store", files=files, clock=ManualClock()) as store:
        store.create_topic("orders")[0].extend([b"1", b"2"])
        offsets = store.offsets("billing")
        offsets.commit({ORDERS: 1})
        files.fail(FAULTS["ENOSPC"], kinds=["write"], path="__consumer_offsets", times=None)
        with pytest.raises(StorageError):
            offsets.commit({ORDERS: 2})
        assert offsets["orders", 0].offset == 1
        files.heal()
        offsets.commit({ORDERS: 2})
        assert offsets["orders", 0].offset == 2


def test_many_threads_commit(store):
    """Each sees its own last commit, and the log has them all."""
    faults = []

    def work(number):
        offsets = store.offsets(f"group-{number % 4}")
        partition = TopicPartition("orders", number // 4)
        for offset in range(10):
            offsets.commit({partition: offset})
            if offsets[partition].offset != offset:
                faults.append((number, offset))

    threads = [threading.Thread(target=work, args=[number]) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    assert store["__consumer_offsets"][0].log_end_offset == 80
    assert isinstance(store.offsets("group-3"), Offsets)
    assert {each: value.offset for each, value in store.offsets("group-3").items()} == {ORDERS: 9, OTHER: 9}
