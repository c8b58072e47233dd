"""``store.groups()`` as its users have it."""

from __future__ import annotations

import contextlib
import logging
import signal
import subprocess
import sys
import threading
import time
from datetime import UTC, datetime, timedelta

import pytest

import logstore
from logstore import NewRecord
from logstore.broker.codes import ErrorCode
from logstore.broker.consumer_groups.requests import ConsumerGroupHeartbeat
from logstore.clients.groups.status import GroupStatus
from logstore.errors import (
    ReadOnlyError,
    RetriableError,
    UnknownGroupError,
    UsageError,
)
from logstore.format.messages.group_records import GroupMetadataValue, MemberMetadata
from logstore.model import OffsetAndMetadata, TopicPartition
from logstore.testing import MemoryFiles
from tests.logdir.helpers import snapshot
from tests.test_showing import Page

ORDERS = [TopicPartition("orders", number) for number in range(2)]
TIME_MS = 1_790_000_000_000


@pytest.fixture
def store():
    with logstore.open("/s", files=MemoryFiles()) as store:
        fill(store)
        yield store


def fill(store):
    for log in store.create_topic("orders", partitions=2):
        log.extend([NewRecord(b"x", timestamp_ms=TIME_MS + 1000 * number) for number in range(10)])


def reading(store):
    """The same store, beside its writer."""
    return logstore.open(store.path, read_only=True, files=store._directory.context.files)


@pytest.fixture
def groups(store):
    return store.groups()


def joined(store, group, *topics, **settings):
    """A consumer that has its partitions."""
    consumer = store.consumer(*(topics or ["orders"]), group=group, **settings)
    while not consumer.assignment:
        consumer.poll(timeout=0.1)
    return consumer


def offsets_of(status):
    return {str(each): value.offset for each, value in status.offsets.items()}


# Looking ----------------------------------------------------------------------------------------------------


def test_it_is_a_mapping(store, groups):
    assert (dict(groups), len(groups), list(groups)) == ({}, 0, [])
    store.offsets("b").commit({ORDERS[0]: OffsetAndMetadata(3, "a note", 0)})
    store.offsets("a").commit({ORDERS[1]: 10, ORDERS[0]: 10})
    assert (list(groups), len(groups), "a" in groups, "c" in groups, 5 in groups) == (
        ["a", "b"],
        2,
        True,
        False,
        False,
    )
    assert groups["b"] == GroupStatus(
        "b", "Empty", "", "", (), {ORDERS[0]: OffsetAndMetadata(3, "a note", 0)}, {ORDERS[0]: 7}
    )
    assert dict(groups.items()) == {name: groups[name] for name in groups}
    assert list(groups.values()) == [groups["a"], groups["b"]]
    assert list(groups["a"].offsets) == ORDERS
    assert groups.get("c") is None
    assert repr(groups) == f"<Groups of {store.path!r}: 'a', 'b'>"


def test_members_are_described(store, groups):
    with joined(store, "g", group_instance_id="one") as consumer:
        status = groups["g"]
        assert status[:4] == ("g", "Stable", "consumer", "cooperative-sticky")
        (member,) = status.members
        assert member[1:] == ("one", "logstore", "in-process", tuple(ORDERS))
        assert member.member_id.startswith("one-")
        assert (status.offsets, status.lag) == ({}, {})
        consumer.commit({ORDERS[0]: 4})
        assert (offsets_of(groups["g"]), groups["g"].lag) == ({"orders-0": 4}, {ORDERS[0]: 6})


def test_lag_is_the_one_of_the_metrics(store, groups):
    """Behind the high watermark, as there: an open transaction counts, and what still gathers."""
    store.offsets("g").commit({ORDERS[0]: 4, ORDERS[1]: 10})
    with store.producer(transactional_id="t") as producer, producer.transaction():
        producer.send("orders", b"open", partition=0)
        producer.flush()
        store["orders"][1].append(b"gathers")
        assert store["orders"][0].last_stable_offset == 10
        lag = store.metrics()["logstore_group_lag"]
        assert groups["g"].lag == {ORDERS[0]: 7, ORDERS[1]: 1}
        assert lag == {("g", *each): behind for each, behind in groups["g"].lag.items()}
    store["orders"][0].truncate_to(3)
    assert groups["g"].lag[ORDERS[0]] == 0


def test_partitions_that_are_not_here_have_no_lag(store, groups):
    store.offsets("g").commit({ORDERS[0]: 4, ORDERS[1]: 10})
    store["orders"].let_go(1)
    assert (list(groups["g"].offsets), groups["g"].lag) == (ORDERS, {ORDERS[0]: 6})


def test_a_status_stays_as_it_is(store, groups):
    store.offsets("g").commit({ORDERS[0]: 4})
    before = groups["g"]
    store.offsets("g").commit({ORDERS[0]: 5})
    assert (before.offsets[ORDERS[0]].offset, groups["g"].offsets[ORDERS[0]].offset) == (4, 5)


@pytest.mark.parametrize("assignment", [b"", b"\0", b"\xff\xff", b"\0\0\0\0\0\1\0"])
@pytest.mark.parametrize("protocol_type", ["consumer", "connect"])
def test_members_that_say_what_only_they_understand(tmp_path, assignment, protocol_type):
    member = MemberMetadata("m", None, "c", "/10.0.0.7", 1000, 60_000, b"?", assignment)
    value = GroupMetadataValue(protocol_type, 3, "x", "m", TIME_MS, (member,))
    with logstore.open(tmp_path) as store:
        store.offsets("g").commit({})
        store._committed_offsets().store_group("g", value)
        for read_only in (True, False):
            with logstore.open(tmp_path, read_only=True) if read_only else store as opened:
                status = opened.groups()["g"]
                assert status[:4] == ("g", "Stable", protocol_type, "x")
                assert [each[2:] for each in status.members] == [("c", "/10.0.0.7", ())]


def test_groups_of_the_newer_protocol(store, groups):
    """As they are, and in a read-only store as they were stored."""
    broker = store._open_broker(store._writable())
    joins = ConsumerGroupHeartbeat(
        "g", "m", 0, "x", None, 1000, ("orders",), owned=frozenset(), client_id="c", client_host="/10.0.0.7"
    )
    assert broker.consumer_group_heartbeat(joins).poll().error is ErrorCode.NONE
    with reading(store) as reader:
        for seen in (groups, reader.groups()):
            assert list(seen) == ["g"]
            status = seen["g"]
            assert status[:4] == ("g", "Stable", "consumer", "uniform")
            assert status.members == (("m", "x", "c", "/10.0.0.7", tuple(ORDERS)),)
            assert status.group_type == "consumer"
            with pytest.raises(logstore.RetriableError, match=r"has 1 member, .*static: 'x'"):
                seen.reset("g", "latest", topics=["orders"], dry_run=True)
    with pytest.raises(logstore.RetriableError, match="has 1 member"):
        groups.delete("g")
    groups.remove_members("g", ["x"])
    groups.reset("g", "latest", topics=["orders"])
    assert (groups["g"].state, offsets_of(groups["g"])) == ("Empty", {"orders-0": 10, "orders-1": 10})
    groups.delete("g")
    assert list(groups) == []


# Deleting ---------------------------------------------------------------------------------------------------


def test_groups_without_members_are_deleted(store, groups):
    consumer = joined(store, "g")
    consumer.commit({ORDERS[0]: 4})
    (member,) = groups["g"].members
    with pytest.raises(RetriableError) as failed:
        groups.delete("g")
    assert str(failed.value) == (
        f"group 'g' has 1 member, and it was not deleted: {member.member_id!r} (in-process). Close the "
        "consumers, or wait until their session timeouts (max_poll_interval_ms) are over, and try again"
    )
    consumer.close()
    store.offsets("other").commit({ORDERS[0]: 4})
    groups.delete("g")
    assert (list(groups), dict(store.offsets("g"))) == (["other"], {})
    with joined(store, "g"):  # it begins again
        assert groups["g"].offsets == {}


def test_deletions_are_logged(store, groups, caplog):
    store.offsets("g").commit({ORDERS[0]: 4, ORDERS[1]: 4})
    store.offsets("h").commit({ORDERS[0]: 4, ORDERS[1]: 4})
    with caplog.at_level(logging.INFO, "logstore"):
        groups.delete("g")
        groups.delete_offsets("h", [ORDERS[0]])
    assert [record.getMessage() for record in caplog.records if "group" in record.getMessage()] == [
        "group 'g': deleted, with 2 committed offsets",
        "group 'h': removed 1 committed offsets",
    ]


def test_many_threads_look_and_change(store, groups):
    """Each has a group of its own, and one that all of them change."""
    faults = []

    def work(number):
        name = f"own {number}"
        try:
            for turn in range(20):
                store.offsets(name).commit({ORDERS[0]: turn % 10})
                assert groups[name].lag == {ORDERS[0]: 10 - turn % 10}
                assert groups.reset(name, "earliest") == {ORDERS[0]: (turn % 10, 0)}
                assert name in list(groups)
                store.offsets("shared").commit({ORDERS[0]: 1})
                with contextlib.suppress(UnknownGroupError, RetriableError):
                    groups.delete("shared")
                groups.delete(name)
                assert name not in groups
        except BaseException as error:
            faults.append(error)

    threads = [threading.Thread(target=work, args=[number]) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert faults == []
    with contextlib.suppress(UnknownGroupError):
        groups.delete("shared")
    assert list(groups) == []


def test_many_members_are_named_in_part(store, groups):
    """0.5 s: they join one after the other."""
    store.create_topic("wide", partitions=6)
    consumers = [store.consumer("wide", group="g", group_instance_id=f"i{n}") for n in range(6)]
    while len(groups.get("g", (*[()] * 5,))[4]) < 6:
        for consumer in consumers:
            consumer.poll(timeout=0)
    with pytest.raises(
        RetriableError, match=r"has 6 members, .*static: 'i0'\), .*static: 'i3'\), and 2 more\. "
    ):
        groups.delete("g")
    for consumer in consumers:
        consumer.close()


def test_single_offsets_are_deleted(store, groups):
    store.create_topic("other")
    consumer = joined(store, "g")
    consumer.commit({ORDERS[0]: 4, ORDERS[1]: 4})
    store.offsets("g").commit({("other", 0): 0})
    with pytest.raises(
        RetriableError, match=r"^group 'g' has 1 member, and offsets of orders-0 were not deleted: "
    ):
        groups.delete_offsets("g", [ORDERS[0], ("other", 0)])
    assert offsets_of(groups["g"]) == {"orders-0": 4, "orders-1": 4}
    consumer.close()
    assert groups.delete_offsets("g", [ORDERS[0], ("other", 0), ORDERS[0]]) == (ORDERS[0],)
    assert offsets_of(groups["g"]) == {"orders-1": 4}
    assert groups.delete_offsets("g", []) == ()
    assert groups.delete_offsets("g", [ORDERS[1]]) == (ORDERS[1],)
    assert list(groups) == []


def test_static_members_are_removed(store, groups):
    consumers = [store.consumer("orders", group="g", group_instance_id=name) for name in ("one", "two")]
    while not all(each.assignment for each in consumers):
        for consumer in consumers:
            consumer.poll(timeout=0)
    for wrong, said in (
        (["tow"], "group 'g' has no static member 'tow'; did you mean 'two'?"),
        (["three", "x"], "group 'g' has no static member 'three'; there are 'one', 'two'"),
        ("one", "instance_ids is 'one'; give a list of texts such as ['worker-1']"),
        ([1], "instance_ids is [1]; give a list of texts such as ['worker-1']"),
        (None, "instance_ids is None; give a list of texts such as ['worker-1']"),
    ):
        with pytest.raises(UsageError) as failed:
            groups.remove_members("g", wrong)
        assert str(failed.value) == said
    groups.remove_members("g", [])
    assert len(groups["g"].members) == 2
    groups.remove_members("g", ["one", "two", "one"])
    assert groups["g"].members == ()
    with pytest.raises(UnknownGroupError):
        groups.remove_members("x", ["one"])
    for consumer in consumers:
        consumer.close()


# Resetting --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("to", "offsets"),
    [
        ("earliest", [2, 0]),
        ("latest", [10, 10]),
        (datetime.fromtimestamp(TIME_MS / 1000 + 3.5, UTC), [4, 4]),
        (datetime.fromtimestamp(0, UTC), [2, 0]),
        (datetime(2100, 1, 1, tzinfo=UTC), [10, 10]),
        (timedelta(0), [10, 10]),
        (timedelta(days=36_500), [2, 0]),
        ({("orders", 0): 2, ORDERS[1]: 10}, [2, 10]),
    ],
)
def test_a_group_goes_on_elsewhere(store, groups, to, offsets):
    store["orders"][0].delete_before(2)
    store.offsets("g").commit({ORDERS[0]: OffsetAndMetadata(5, "note"), ORDERS[1]: 5})
    store.offsets("other").commit({ORDERS[0]: 5})
    planned = groups.reset("g", to, dry_run=True)
    assert planned == dict(zip(ORDERS, [(5, offset) for offset in offsets], strict=True))
    assert offsets_of(groups["g"]) == {"orders-0": 5, "orders-1": 5}
    assert groups.reset("g", to) == planned
    assert groups["g"].offsets == {
        each: OffsetAndMetadata(offset) for each, offset in zip(ORDERS, offsets, strict=True)
    }
    assert offsets_of(groups["other"]) == {"orders-0": 5}
    with store.consumer("orders", group="g") as consumer:
        first = {}
        for record in consumer.drain():
            first.setdefault(record.partition, record.offset)
        assert [first.get(number, 10) for number in range(2)] == offsets


def test_which_partitions_are_reset(store, groups):
    store.create_topic("more", partitions=2)
    store.offsets("g").commit({ORDERS[1]: 5})
    assert list(groups.reset("g", "latest", dry_run=True)) == [ORDERS[1]]
    assert groups.reset("g", "latest", topics=["orders"], dry_run=True) == {
        ORDERS[0]: (None, 10),
        ORDERS[1]: (5, 10),
    }
    assert list(groups.reset("g", "latest", partitions=[("more", 1), ORDERS[0]])) == [("more", 1), ORDERS[0]]
    assert offsets_of(groups["g"]) == {"more-1": 0, "orders-0": 10, "orders-1": 5}
    note = OffsetAndMetadata(7, "set by hand")
    groups.reset("g", {ORDERS[0]: note})
    assert groups["g"].offsets[ORDERS[0]] == note


def test_what_still_gathers_is_written_first(store, groups):
    store.offsets("g").commit({ORDERS[0]: 0})
    store["orders"][0].append(b"gathers")
    assert groups.reset("g", "latest") == {ORDERS[0]: (0, 11)}
    with reading(store) as reader:
        assert reader["orders"][0].log_end_offset == 11


def test_not_while_it_has_members(store, groups):
    with joined(store, "g") as consumer:
        consumer.commit({ORDERS[0]: 5})
        for dry_run in (True, False):
            with pytest.raises(
                RetriableError, match=r"^group 'g' has 1 member, and its offsets were not reset: "
            ):
                groups.reset("g", "earliest", dry_run=dry_run)
    assert offsets_of(groups["g"]) == {"orders-0": 5}
    assert groups.reset("g", "earliest") == {ORDERS[0]: (5, 0)}


def test_a_member_that_comes_between_the_look_and_the_commit(store, groups, monkeypatch):
    store.offsets("g").commit({ORDERS[0]: 5})
    consumers = []
    describe = groups._describe_known

    def describe_and_join(name):
        found = describe(name)
        if not consumers:
            consumers.append(joined(store, "g"))
        return found

    monkeypatch.setattr(groups, "_describe_known", describe_and_join)
    with pytest.raises(RetriableError, match=r"^group 'g' has 1 member, and its offsets were not reset: "):
        groups.reset("g", "earliest")
    assert offsets_of(groups["g"]) == {"orders-0": 5}
    consumers[0].close()


def test_what_a_transaction_is_about_to_commit_gives_way(store, groups):
    """The later of two commits counts, as in Kafka: the reset, and not what was sent before."""
    store.offsets("g").commit({ORDERS[0]: 5})
    with (
        store.consumer(partitions=ORDERS, group="g") as consumer,
        store.producer(transactional_id="t") as producer,
    ):
        consumer.poll(timeout=0)
        with producer.transaction() as transaction:
            producer.send("orders", b"x", partition=1)
            transaction.commit_offsets(consumer)
            assert offsets_of(groups["g"]) == {"orders-0": 5}
            groups.reset("g", {ORDERS[0]: 1})
        assert offsets_of(groups["g"])["orders-0"] == 1


# Read-only, and other processes -----------------------------------------------------------------------------


def test_a_read_only_store_shows_what_is_stored(store, groups):
    store.offsets("alone").commit({ORDERS[0]: 5})
    consumer = joined(store, "g")
    consumer.commit({ORDERS[1]: 7})
    with reading(store) as reader:
        beside = reader.groups()
        assert (dict(beside), list(beside), len(beside)) == (dict(groups), ["alone", "g"], 2)
        assert beside["g"].members[0].partitions == tuple(ORDERS)
        consumer.close()
        groups.delete("alone")
        assert (dict(beside), "alone" in beside) == (dict(groups), False)
        assert (beside["g"].state, beside["g"].members) == ("Empty", ())
        groups.delete("g")
        assert dict(beside) == {}


def test_a_read_only_store_changes_nothing(tmp_path):
    with logstore.open(tmp_path) as store:
        fill(store)
        store.offsets("g").commit({ORDERS[0]: 5})
    before = snapshot(store.path)
    with logstore.open(tmp_path, read_only=True) as reader:
        groups = reader.groups()
        for change in (
            lambda: groups.delete("g"),
            lambda: groups.delete_offsets("g", [ORDERS[0]]),
            lambda: groups.remove_members("g", ["x"]),
            lambda: groups.reset("g", "latest"),
        ):
            with pytest.raises(ReadOnlyError) as failed:
                change()
            assert str(failed.value) == (
                f"{store.path} was opened read-only; open it without read_only to change offsets"
            )
        assert groups.reset("g", "latest", dry_run=True) == {ORDERS[0]: (5, 10)}
        assert groups["g"].lag == {ORDERS[0]: 5}
    assert snapshot(store.path) == before


PROGRAM = """
import sys
import logstore

with logstore.open(sys.argv[1]) as store:
    consumers = [store.consumer("orders", group="g", group_instance_id=name) for name in (None, "static")]
    while not all(each.assignment for each in consumers):
        for each in consumers:
            each.poll(timeout=0.1)
    consumers[0].commit({each: 3 for each in consumers[0].assignment})
    print("here", flush=True)
    sys.stdin.read()
"""


def test_beside_a_process_and_after_it_was_killed(tmp_path):
    """1.5 s: a program with two members. Its dynamic member ends with it, its static one is expected back."""
    with logstore.open(tmp_path) as store:
        fill(store)
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as child:
        assert child.stdout.readline() == "here\n"
        with logstore.open(tmp_path, read_only=True) as reader:
            status = reader.groups()["g"]
            assert (status.state, [each.instance_id for each in status.members].count(None)) == ("Stable", 1)
            assert sorted(sum((each.partitions for each in status.members), ())) == ORDERS
            assert list(status.lag.values()) == [7]
            child.send_signal(signal.SIGKILL)
            child.wait()
            assert reader.groups()["g"] == status
            with pytest.raises(RetriableError, match=r"has 1 member, .*\(in-process, static: 'static'\)"):
                reader.groups().reset("g", "latest", dry_run=True)
    with logstore.open(tmp_path) as again:
        groups = again.groups()
        (member,) = groups["g"].members
        assert member.instance_id == "static"
        assert offsets_of(groups["g"]) == offsets_of(status)
        with pytest.raises(RetriableError) as failed:
            groups.delete("g")
        assert str(failed.value) == (
            f"group 'g' has 1 member, and it was not deleted: {member.member_id!r} (in-process, static: "
            "'static'). Close the consumers, or wait until their session timeouts (max_poll_interval_ms) are "
            "over, and try again; remove_members() removes static members at once"
        )
        groups.remove_members("g", ["static"])
        assert (groups["g"].state, groups["g"].members) == ("Empty", ())
        groups.delete("g")


# How it looks, and what it costs ----------------------------------------------------------------------------


def test_notebooks(store, groups):
    name = "<b>\x1b[31m\u202e"
    store.offsets(name).commit({ORDERS[0]: OffsetAndMetadata(5, "<script>")})
    with joined(store, "g", group_instance_id="<i>"):
        shown = [each._repr_html_() for each in (groups, groups[name], groups["g"])]
    every, one, with_member = map(Page, shown)
    assert every.rows == [
        ["group", "state", "assignor", "members", "offsets", "lag"],
        ["<b>\\x1b[31m\\u202e", "Empty", "", "0", "1", "5"],
        ["g", "Stable", "cooperative-sticky", "1", "0", "0"],
    ]
    assert one.rows == [
        ["partition", "committed", "lag", "metadata"],
        ["orders-0", "5", "5", "<script>"],
    ]
    assert with_member.rows[0] == ["member", "instance", "client", "host", "partitions"]
    assert with_member.rows[1][1:] == ["<i>", "logstore", "in-process", "orders-0, orders-1"]
    store.close()
    assert "ClosedError" in Page(groups._repr_html_()).text


@pytest.mark.parametrize("count", [1, 1000])
def test_many_groups(count):
    """1 s for 1,000."""
    with logstore.open("/s", files=MemoryFiles()) as store:
        store.create_topic("orders")[0].extend([b"x"] * 10)
        for number in range(count):
            store.offsets(f"g{number:04}").commit({ORDERS[0]: number % 11})
        with reading(store) as reader:
            for groups in (store.groups(), reader.groups()):
                statuses = list(groups.values())
                assert [each.name for each in statuses] == list(groups) == [f"g{n:04}" for n in range(count)]
                assert [each.lag[ORDERS[0]] for each in statuses] == [10 - n % 11 for n in range(count)]
        for name in list(store.groups()):
            store.groups().delete(name)
        assert len(store.groups()) == 0


@pytest.mark.parametrize("is_connected", [False, True])
def test_a_consumer_that_is_closed_while_it_joins_is_none_of_the_members(tmp_path, is_connected):
    """The others do not wait for it. 1 s, or a heartbeat of 3 s, were it one."""
    with contextlib.ExitStack() as stack:
        store = stack.enter_context(logstore.open(tmp_path / "store"))
        place = store
        if is_connected:
            listener = stack.enter_context(store.listen("127.0.0.1:0"))
            place = stack.enter_context(logstore.connect(listener.address))
        store.create_topic("t", partitions=2)
        first = stack.enter_context(place.consumer("t", group="g", heartbeat_interval_ms=100))
        store["t"].extend([b"1", b"2"])
        while len(first.assignment) < 2:
            first.poll(timeout=0.1)
        for _ in range(3):
            with place.consumer("t", group="g") as other:
                assert other.poll(timeout=0.05) == []
        until = time.monotonic() + 10
        while time.monotonic() < until:
            first.poll(timeout=0.05)
            group = store.groups()["g"]
            if group.state == "Stable" and len(group.members) == 1 and len(first.assignment) == 2:
                return
        raise AssertionError(f"{group.state} with {len(group.members)} members")
