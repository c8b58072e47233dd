"""What ``store.groups()`` refuses, with the message that says what is wrong and what to do."""

from __future__ import annotations

from datetime import datetime

import pytest

import logstore
from logstore.errors import (
    ClosedError,
    CorruptionError,
    InvalidTimestampError,
    LogstoreError,
    OffsetOutOfRangeError,
    StorageError,
    UnknownGroupError,
    UnknownPartitionError,
    UnknownTopicError,
    UsageError,
)
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles
from tests.clients.test_groups_of_a_store import ORDERS, groups, joined, store
from tests.logdir.helpers import flip_byte
from tests.test_hostile_arguments import HOSTILE, HisError

__all__ = ["groups", "store"]
"""Fixtures."""

REFUSED = [
    (lambda g: g["bilin"], UnknownGroupError, "there is no group 'bilin' in {}; did you mean 'billing'?"),
    (lambda g: g[5], UnknownGroupError, "there is no group 5 in {}; there are 'audit', 'billing'"),
    (lambda g: g.delete("x"), UnknownGroupError, "there is no group 'x' in {}; there are 'audit', 'billing'"),
    (
        lambda g: g.delete_offsets("audi", []),
        UnknownGroupError,
        "there is no group 'audi' in {}; did you mean 'audit'?",
    ),
    (
        lambda g: g.reset("audi", "latest"),
        UnknownGroupError,
        "there is no group 'audi' in {}; did you mean 'audit'?",
    ),
    (
        lambda g: g.delete_offsets("billing", [("order", 0)]),
        UnknownTopicError,
        "there is no topic 'order' in {}; did you mean 'orders'?",
    ),
    (
        lambda g: g.delete_offsets("billing", [ORDERS[0], ("orders", 2)]),
        UnknownPartitionError,
        "topic 'orders' has 2 partitions, numbered from 0; there is no 2",
    ),
    (
        lambda g: g.delete_offsets("billing", "orders"),
        UsageError,
        "partitions is 'orders'; give a list of pairs such as [('orders', 0)]",
    ),
    (
        lambda g: g.reset("billing", {("orders", 0): 11}),
        OffsetOutOfRangeError,
        "a group cannot go on at offset 11 of orders-0: its log has offsets 2 to 10; 'earliest' and 'latest' "
        "are always there",
    ),
    (
        lambda g: g.reset("billing", {("orders", 0): 1}),
        OffsetOutOfRangeError,
        "a group cannot go on at offset 1 of orders-0: its log has offsets 2 to 10; 'earliest' and 'latest' "
        "are always there",
    ),
    (
        lambda g: g.reset("billing", {("orders", 2): 1}),
        UnknownPartitionError,
        "topic 'orders' has 2 partitions, numbered from 0; there is no 2",
    ),
    (
        lambda g: g.reset("billing", "latest", topics=["order"]),
        UnknownTopicError,
        "there is no topic 'order' in {}; did you mean 'orders'?",
    ),
    (
        lambda g: g.reset("billing", "latest", topics="orders"),
        UsageError,
        "topics is 'orders'; give a list of names such as ['orders']",
    ),
    (
        lambda g: g.reset("billing", "latest", partitions=[("orders", 2)]),
        UnknownPartitionError,
        "topic 'orders' has 2 partitions, numbered from 0; there is no 2",
    ),
    (
        lambda g: g.reset("billing", "latest", topics=["orders"], partitions=[ORDERS[0]]),
        UsageError,
        "give topics or partitions, not both",
    ),
    (
        lambda g: g.reset("billing", {}, topics=["orders"]),
        UsageError,
        "to is a mapping, which names its partitions; leave out topics and partitions",
    ),
    (
        lambda g: g.reset("billing", {}),
        UsageError,
        "to is empty: there is nothing to reset",
    ),
    (
        lambda g: g.reset("billing", 17),
        UsageError,
        "to is 17; it must be 'earliest', 'latest', a datetime, a timedelta, or a mapping from (topic, "
        "partition) to offset; for an offset give {{('orders', 0): 17}}",
    ),
    (
        lambda g: g.reset("billing", "late"),
        UsageError,
        "to is 'late'; it must be 'earliest', 'latest', a datetime, a timedelta, or a mapping from (topic, "
        "partition) to offset",
    ),
    (
        lambda g: g.reset("billing", datetime(2026, 1, 1)),
        InvalidTimestampError,
        "to is datetime.datetime(2026, 1, 1, 0, 0), a datetime without a time zone; when.astimezone() makes "
        "it local time, when.replace(tzinfo=timezone.utc) UTC",
    ),
]


@pytest.mark.parametrize(("call", "error", "said"), REFUSED)
def test_wrong_calls_say_what_is_wrong(store, groups, call, error, said):
    store["orders"][0].delete_before(2)
    store.offsets("billing").commit({ORDERS[0]: 5})
    store.offsets("audit").commit({ORDERS[0]: 5})
    before = dict(groups)
    with pytest.raises(error) as failed:
        call(groups)
    assert type(failed.value) is error
    assert str(failed.value) == said.format(store.path)
    assert dict(groups) == before


def test_a_group_without_offsets_has_nothing_to_reset(store, groups):
    joined(store, "g").close()
    with pytest.raises(UsageError) as failed:
        groups.reset("g", "latest")
    assert str(failed.value) == (
        "group 'g' has committed no offset, and no partition is named: there is nothing to reset. Name "
        "topics=[...] or partitions=[...]"
    )
    assert groups.reset("g", "latest", topics=["orders"]) == dict.fromkeys(ORDERS, (None, 10))


@pytest.mark.parametrize("kind", HOSTILE)
def test_no_argument_raises_anything_but_our_errors(store, groups, kind):
    store.offsets("g").commit({ORDERS[0]: 5})
    before, called = dict(groups), []

    def use(call):
        try:
            call(HOSTILE[kind]())
        except LogstoreError as error:
            str(error)
        except HisError as error:
            called.append(error.args[0])

    use(groups.__getitem__)
    use(groups.__contains__)
    use(groups.get)
    use(groups.delete)
    use(lambda value: groups.delete_offsets(value, [ORDERS[0]]))
    use(lambda value: groups.delete_offsets("g", value))
    use(lambda value: groups.delete_offsets("g", [("orders", value)]))
    use(lambda value: groups.remove_members("g", value))
    use(lambda value: groups.remove_members("g", [value]))
    use(lambda value: groups.reset(value, "latest"))
    use(lambda value: groups.reset("g", value, dry_run=True))
    use(lambda value: groups.reset("g", {ORDERS[0]: value}, dry_run=True))
    use(lambda value: groups.reset("g", "latest", topics=value, dry_run=True))
    use(lambda value: groups.reset("g", "latest", topics=[value], dry_run=True))
    use(lambda value: groups.reset("g", "latest", partitions=value, dry_run=True))
    use(lambda value: groups.reset("x", "latest", dry_run=value))
    assert set(called) <= {"__iter__", "items"}, called
    assert dict(groups) == before


def test_a_store_that_is_closed(tmp_path):
    store = logstore.open(tmp_path)
    groups = store.groups()
    store.close()
    calls = [
        store.groups,
        lambda: list(groups),
        lambda: groups["g"],
        lambda: "g" in groups,
        groups.items,
        lambda: groups.delete("g"),
        lambda: groups.delete_offsets("g", [ORDERS[0]]),
        lambda: groups.remove_members("g", ["x"]),
        lambda: groups.reset("g", "latest"),
    ]
    for call in calls:
        with pytest.raises(ClosedError, match="is closed"):
            call()
    assert repr(groups) == f"<Groups of {store.path!r}: ClosedError>"


def test_a_disk_that_refuses(tmp_path):
    files = FaultyFiles(MemoryFiles())
    store = logstore.open("/s", files=files, clock=ManualClock())
    store.create_topic("orders")[0].extend([b"x"] * 3)
    store.offsets("g").commit({ORDERS[0]: 1})
    groups, before = store.groups(), dict(store.groups())
    for change in (
        lambda: groups.delete("g"),
        lambda: groups.delete_offsets("g", [ORDERS[0]]),
        lambda: groups.reset("g", "latest"),
    ):
        files.fail(FAULTS["ENOSPC"], kinds=["write"], path="__consumer_offsets", times=None)
        with pytest.raises(StorageError):
            change()
        files.heal()
        assert dict(groups) == before
    groups.delete("g")
    assert list(groups) == []
    store.close()


@pytest.mark.damaged
def test_offsets_that_are_damaged(tmp_path):
    with logstore.open(tmp_path) as store:
        store.create_topic("orders")
        store.offsets("g").commit({ORDERS[0]: 0})
    flip_byte(tmp_path / "__consumer_offsets-0" / f"{0:020}.log", 80)
    for read_only in (True, False):
        with logstore.open(tmp_path, read_only=read_only) as store:
            for look in (lambda: list(store.groups()), lambda: store.groups()["g"], store.groups().values):
                with pytest.raises(CorruptionError, match="__consumer_offsets-0"):
                    look()


def test_a_consumer_without_an_assignor_of_its_group():
    """Such as when a member of another program has died, or was there when the directory was copied."""
    with logstore.open("/s", files=MemoryFiles()) as store:
        store.create_topic("t")
        with (
            store.consumer("t", group="g", assignors=["range"]) as member,
            store.consumer("t", group="g") as other,
        ):
            member.poll(timeout=1)
            with pytest.raises(UsageError, match=r"Give it one of theirs, such as assignors=\['range'\]"):
                other.poll(timeout=1)
        with store.consumer("t", group="g") as other:
            assert other.poll(timeout=0.1) == []
