"""What the stories do not tell: several groups, offsets, restored groups, threads, and its end."""

from __future__ import annotations

import queue
import threading

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.config import GroupConfig
from logstore.broker.groups.coordinator import random_member_id
from logstore.broker.groups.requests import (
    GroupProtocol,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from logstore.broker.groups.snapshots import GroupSnapshot, MemberSnapshot
from logstore.broker.groups.subscriptions import decode_topics
from logstore.broker.offsets.expiry import NO_GROUP
from logstore.errors import InvalidConfigError
from logstore.format.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartitions,
    encode_assignment,
    encode_subscription,
)
from tests.broker.groups.stage import Stage, protocols, subscription
from tests.broker.offsets.helpers import MINUTE_MS, ORDERS, World

NOW_MS = 1_700_000_000_000


@pytest.fixture
def stage():
    return Stage()


def call(stage, name, *request):
    """The result of a request that is answered at once."""
    results = []
    getattr(stage.coordinator, name)(*request, stage.once(results.append))
    (result,) = results
    return result


def join(stage, group_id="g", *, topics="orders", member_id="", kind="consumer", **fields):
    request = JoinGroup(group_id, kind, protocols(f"range:{topics}"), 10_000, 30_000, member_id, **fields)
    return call(stage, "join_group", request)


def sync(stage, joined, part=b"orders-0", group_id="g"):
    request = SyncGroup(group_id, joined.generation, joined.member_id, assignments={joined.member_id: part})
    return call(stage, "sync_group", request)


def leave(stage, member_id, group_id="g"):
    return call(stage, "leave_group", LeaveGroup(group_id, (LeavingMember(member_id),)))


def member(member_id, *, instance_id=None, topics="orders", rebalance_ms=30_000):
    return MemberSnapshot(
        member_id, instance_id, "c", "/h", rebalance_ms, 10_000, subscription(topics), b"orders-0"
    )


# Groups


def test_groups_are_independent(stage):
    first, second = join(stage, "g1"), join(stage, "g2")
    assert first.generation == second.generation == 1
    assert sync(stage, first, group_id="g1").assignment == b"orders-0"
    listed = call(stage, "list_groups", ())
    assert [group[:3] for group in listed] == [
        ("g1", "consumer", "Stable"),
        ("g2", "consumer", "CompletingRebalance"),
    ]
    described = call(stage, "describe_groups", ["g2", "g1", "other"])
    assert [(group.group_id, group.state, len(group.members)) for group in described] == [
        ("g2", "CompletingRebalance", 1),
        ("g1", "Stable", 1),
        ("other", "Dead", 0),
    ]


def test_several_groups_are_deleted_and_answered_together(stage):
    joined = join(stage, "g1")
    join(stage, "g2")
    leave(stage, joined.member_id, "g1")
    stage.storage.is_holding = True
    results = []
    stage.coordinator.delete_groups(["g1", "g2", "g3"], stage.once(results.append))
    assert results == []
    stage.storage.release()
    assert results == [
        {
            "g1": ErrorCode.NONE,
            "g2": ErrorCode.NON_EMPTY_GROUP,
            "g3": ErrorCode.GROUP_ID_NOT_FOUND,
        }
    ]
    assert call(stage, "delete_groups", []) == {}


def test_what_is_stored_has_all_that_kafka_stores(stage):
    joined = join(stage, client_id="c", client_host="/h", instance_id="x")
    stage.clock.advance(5)
    sync(stage, joined)
    expected = MemberSnapshot("x-1", "x", "c", "/h", 30_000, 10_000, subscription("orders"), b"orders-0")
    assert stage.storage.snapshots == {
        "g": GroupSnapshot("g", "consumer", 1, "range", "x-1", NOW_MS, (expected,))
    }


def test_a_storage_that_raises_has_failed(stage, caplog):
    def fail(_snapshot, _done):
        raise OSError("no disk")

    joined = join(stage)
    stage.storage.store = fail
    assert sync(stage, joined).error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert "group g could not be stored: no disk" in caplog.text


def test_heartbeats_arm_no_timers(stage):
    joined = join(stage)
    sync(stage, joined)
    made = stage.timers.made_count
    for _ in range(1000):
        assert call(stage, "heartbeat", Heartbeat("g", 1, joined.member_id)) is ErrorCode.NONE
    assert stage.timers.made_count == made


def test_random_member_ids_differ_and_begin_with_the_prefix():
    ids = {random_member_id("client") for _ in range(100)}
    assert len(ids) == 100
    assert all(member_id.startswith("client-") for member_id in ids)


# Offsets


def commit(stage, generation, member_id, instance_id=None, **options):
    return stage.coordinator.check_commit("g", generation, member_id, instance_id, **options)


def test_a_commit_is_a_heartbeat(stage):
    joined = join(stage)
    sync(stage, joined)
    for _ in range(10):
        stage.wait(6_000)
        assert commit(stage, 1, joined.member_id) is ErrorCode.NONE
    stage.wait(10_000)
    assert commit(stage, 1, joined.member_id) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_transaction_commits_by_its_own_rules(stage):
    """Its early versions name no member; it is no heartbeat, and may come during a rebalance."""
    assert commit(stage, 0, "m", is_transactional=True) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(stage, -1, "", is_transactional=True) is ErrorCode.NONE
    joined = join(stage)
    assert commit(stage, 1, joined.member_id) is ErrorCode.REBALANCE_IN_PROGRESS
    assert commit(stage, 1, joined.member_id, is_transactional=True) is ErrorCode.NONE
    assert commit(stage, -1, "", is_transactional=True) is ErrorCode.NONE
    assert commit(stage, -1, "") is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit(stage, 0, joined.member_id, is_transactional=True) is ErrorCode.ILLEGAL_GENERATION
    assert commit(stage, 1, joined.member_id, "x", is_transactional=True) is ErrorCode.UNKNOWN_MEMBER_ID


def test_the_oldest_clients_commit_for_a_group_without_a_name(stage):
    assert stage.coordinator.check_commit("", -1, "") is ErrorCode.NONE
    assert call(stage, "delete_groups", [""]) == {"": ErrorCode.NONE}


def test_since_when_a_group_is_empty(stage):
    coordinator = stage.coordinator
    assert coordinator.empty_since("g") == NO_GROUP
    commit(stage, -1, "")
    assert coordinator.empty_since("g") == NO_GROUP
    joined = join(stage)
    assert coordinator.empty_since("g") is None
    stage.wait(7)
    leave(stage, joined.member_id)
    stage.wait(100)
    assert coordinator.empty_since("g") == NOW_MS + 7
    commit(stage, -1, "")
    assert coordinator.empty_since("g") == NOW_MS + 7


def test_which_topics_a_group_subscribes_to(stage):
    topics = stage.coordinator.subscribed_topics
    assert topics("g") == frozenset()
    first = join(stage, topics="orders+bills")
    assert topics("g") == {"orders", "bills"}
    results = []
    second = JoinGroup("g", "consumer", protocols("range:jobs"), 10_000, 30_000)
    stage.coordinator.join_group(second, stage.once(results.append))
    assert topics("g") is None
    join(stage, member_id=first.member_id, topics="orders")
    assert topics("g") == {"orders", "jobs"}
    for member_id in (first.member_id, results[0].member_id):
        leave(stage, member_id)
    assert topics("g") == frozenset()


@pytest.mark.parametrize(
    "metadata",
    [b"", b"\0", b"\0\0\xff", b"\0\0\0\0\0\1\0\5ab", b"\0\0\x7f\xff\xff\xff", b"\0\0\0\0\0\1\0\1\xff"],
)
def test_metadata_that_is_no_subscription_tells_nothing(stage, metadata):
    assert decode_topics(metadata) is None
    request = JoinGroup("g", "consumer", (("range", metadata),), 10_000, 30_000)
    assert call(stage, "join_group", request).error is ErrorCode.NONE
    assert stage.coordinator.subscribed_topics("g") is None


def test_later_versions_of_a_subscription_say_more(stage):
    assert decode_topics(b"\0\x63" + subscription("a", "b")[2:] + b"whatever follows") == {"a", "b"}


def test_of_other_kinds_of_groups_no_topics_are_known(stage):
    join(stage, kind="connect")
    assert stage.coordinator.subscribed_topics("g") is None


def test_committed_offsets_expire_by_what_the_coordinator_knows():
    """Those of a group with members stay; those of an empty one go by its time, all others by their own."""
    world = World(offsets_retention_minutes=1)
    stage = Stage(clock=world.clock)
    world.empty_since = stage.coordinator.empty_since
    world.reopen()
    assert commit(stage, -1, "") is ErrorCode.NONE
    joined = join(stage, "joined")
    sync(stage, joined, group_id="joined")
    for group_id in ("g", "joined", "unknown"):
        world.commit(group_id, {ORDERS: 1})
    world.clock.advance(MINUTE_MS - 1)
    assert world.committed.expire() == {}
    world.clock.advance(1)
    assert world.committed.expire() == {"g": (ORDERS,), "unknown": (ORDERS,)}
    leave(stage, joined.member_id, "joined")
    world.clock.advance(MINUTE_MS - 1)
    assert world.committed.expire() == {}
    world.clock.advance(1)
    assert world.committed.expire() == {"joined": (ORDERS,)}
    world.store.close()


# Restored groups


def test_a_restored_group_goes_on(stage):
    members = (member("a-1"), member("x-1", instance_id="x", rebalance_ms=-1))
    stage.coordinator.restore([GroupSnapshot("g", "consumer", 7, "range", "a-1", 5, members)])
    assert stage.coordinator.subscribed_topics("g") == {"orders"}
    assert call(stage, "heartbeat", Heartbeat("g", 7, "a-1")) is ErrorCode.NONE
    assert call(stage, "heartbeat", Heartbeat("g", 7, "x-9", "x")) is ErrorCode.FENCED_INSTANCE_ID
    request = SyncGroup("g", 7, "x-1", "x", "consumer", "range")
    assert call(stage, "sync_group", request).assignment == b"orders-0"
    stage.wait(10_000)
    assert stage.storage.snapshots["g"].generation == 8
    assert stage.storage.snapshots["g"].members == ()
    assert not stage.timers.armed


def test_a_group_of_which_only_offsets_are_known_is_restored(stage):
    stage.coordinator.restore([GroupSnapshot("g", "", 0, None, None, -1, ())])
    assert stage.coordinator.empty_since("g") == NO_GROUP
    assert [group.state for group in call(stage, "list_groups", ["EMPTY"])] == ["Empty"]
    assert call(stage, "heartbeat", Heartbeat("g", 0, "m")) is ErrorCode.UNKNOWN_MEMBER_ID
    assert call(stage, "list_groups", ()) != ()
    assert call(stage, "delete_groups", ["g"]) == {"g": ErrorCode.NONE}


def test_a_restored_group_that_is_too_large_loses_those_that_join_last():
    stage = Stage(group_max_size=2)
    members = tuple(member(f"{name}-1") for name in "abc")
    stage.coordinator.restore([GroupSnapshot("g", "consumer", 7, "range", "a-1", 5, members)])
    results = {}
    for name in "abc":
        assert call(stage, "heartbeat", Heartbeat("g", 7, f"{name}-1")) is ErrorCode.REBALANCE_IN_PROGRESS
    for name in "cab":
        request = JoinGroup("g", "consumer", protocols("range:orders"), 10_000, 30_000, f"{name}-1")
        stage.coordinator.join_group(
            request, stage.once(lambda result, name=name: results.update({name: result.error}))
        )
    assert results == {
        "c": ErrorCode.NONE,
        "a": ErrorCode.NONE,
        "b": ErrorCode.GROUP_MAX_SIZE_REACHED,
    }


# The end


def test_a_closed_coordinator_has_answered_everything_and_refuses_the_rest(stage):
    joined = join(stage)
    sync(stage, joined)
    results = []
    request = JoinGroup("g", "consumer", protocols("range:orders"), 10_000, 30_000)
    stage.coordinator.join_group(request, stage.once(results.append))
    pending = join(stage, "g2", requires_member_id=True)
    assert pending.error is ErrorCode.MEMBER_ID_REQUIRED
    stage.coordinator.close()
    assert [result.error for result in results] == [ErrorCode.NOT_COORDINATOR]
    assert not stage.timers.armed
    assert join(stage).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert sync(stage, joined).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    beat = Heartbeat("g", 1, joined.member_id)
    assert call(stage, "heartbeat", beat) is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert leave(stage, joined.member_id).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert commit(stage, -1, "") is ErrorCode.COORDINATOR_NOT_AVAILABLE
    (described,) = call(stage, "describe_groups", ["g"])
    assert described.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert call(stage, "delete_groups", ["g"]) == {"g": ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert "g" in stage.storage.snapshots
    stage.coordinator.close()


def test_an_answer_of_the_storage_after_the_end_changes_nothing(stage):
    joined = join(stage)
    stage.storage.is_holding = True
    results = []
    request = SyncGroup("g", 1, joined.member_id)
    stage.coordinator.sync_group(request, stage.once(results.append))
    leave_later = join(stage, "g2")
    leave(stage, leave_later.member_id, "g2")
    stage.coordinator.delete_groups(["g2"], stage.once(results.append))
    stage.coordinator.close()
    stage.storage.release()
    assert [result.error for result in results[:1]] == [ErrorCode.NOT_COORDINATOR]
    assert results[1:] == [{"g2": ErrorCode.NONE}]
    assert not stage.timers.armed


# Threads


def ask(call, request):
    """The result, whichever thread gives it."""
    results: queue.SimpleQueue = queue.SimpleQueue()
    call(request, results.put)
    return results.get(timeout=60)


def test_many_threads_join_and_leave(stage):
    """A member that is between its two requests holds up the others, and then lets them go on."""
    errors = []

    def consume(name):
        try:
            for _ in range(50):
                request = JoinGroup(
                    "g", "consumer", protocols("range:orders"), 10_000, 30_000, client_id=name
                )
                joined = ask(stage.coordinator.join_group, request)
                assert joined.error is ErrorCode.NONE
                gone = LeaveGroup("g", (LeavingMember(joined.member_id),))
                assert ask(stage.coordinator.leave_group, gone).members[0].error is ErrorCode.NONE
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=consume, args=(f"c{number}",)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert errors == []
    assert not stage.timers.armed
    assert call(stage, "describe_groups", ["g"])[0].members == ()


# Settings


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"group_max_size": -1}, "group_max_size is -1; it must be"),
        ({"group_initial_rebalance_delay_ms": 0.5}, "is 0.5; it must be a whole number"),
        ({"group_min_session_timeout_ms": 2, "group_max_session_timeout_ms": 1}, "no member could join"),
    ],
)
def test_settings_that_make_no_sense_are_refused(config, message):
    with pytest.raises(InvalidConfigError, match=message):
        GroupConfig(**config)


def test_the_last_member_to_leave_does_not_wait_for_the_storage(stage):
    """Others wait for theirs: an assignment is given when it is stored."""
    joined = join(stage)
    stage.storage.is_holding = True
    synced = []
    request = SyncGroup("g", joined.generation, joined.member_id, assignments={joined.member_id: b"part"})
    stage.coordinator.sync_group(request, stage.once(synced.append))
    assert synced == []
    stage.storage.release()
    assert synced[0].assignment == b"part"
    stage.storage.is_holding = True
    assert leave(stage, joined.member_id).members[0].error is ErrorCode.NONE  # while the storage is busy
    stage.storage.release()
    assert stage.storage.snapshots["g"].members == ()


def test_commits_of_members_where_there_is_no_group(stage):
    assert stage.coordinator.check_commit("never", 3, "m") is ErrorCode.ILLEGAL_GENERATION
    beat = Heartbeat("never", 3, "m")
    assert call(stage, "heartbeat", beat) is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_storage_that_answers_and_then_raises_has_answered(stage):
    def store_and_fail(_snapshot, done):
        done(ErrorCode.NONE)
        raise OSError("too late")

    joined = join(stage)
    stage.storage.store = store_and_fail
    assert sync(stage, joined).error is ErrorCode.NONE
    leave(stage, joined.member_id)

    def delete_and_fail(_group_id, done):
        done(ErrorCode.NONE)
        raise OSError("too late")

    stage.storage.delete = delete_and_fail
    assert call(stage, "delete_groups", ["g"]) == {"g": ErrorCode.NONE}


def cooperative(stage, name, owned, **fields):
    """Joins with what it owns."""
    parts = (TopicPartitions("orders", tuple(owned)),) if owned else ()
    metadata = encode_subscription(ConsumerProtocolSubscription(("orders",), owned_partitions=parts))
    protocol = GroupProtocol("cooperative-sticky", metadata)
    request = JoinGroup("g", "consumer", (protocol,), 10_000, 30_000, instance_id=name, **fields)
    results = []
    stage.coordinator.join_group(request, stage.once(results.append))
    return results


@pytest.mark.parametrize("is_stored", [False, True], ids=["the same broker", "a broker after it"])
@pytest.mark.parametrize("kept", [(0, 1), (0, 1, 2)])
def test_a_static_member_stops_before_it_has_given_up_a_partition(stage, kept, is_stored):
    """Another gets it as soon as the member is back. If it had nothing to give up, all stays as it is."""
    (first,) = cooperative(stage, "x", ())
    assigned = ConsumerProtocolAssignment((TopicPartitions("orders", (0, 1, 2)),))
    sync(stage, first, encode_assignment(assigned))
    waiting = cooperative(stage, "y", ())
    (first,) = cooperative(stage, "x", (0, 1, 2), member_id=first.member_id)
    (second,) = waiting
    part = encode_assignment(ConsumerProtocolAssignment((TopicPartitions("orders", kept),)))
    none = encode_assignment(ConsumerProtocolAssignment())
    parts = {first.member_id: part, second.member_id: none}
    assert not call(
        stage, "sync_group", SyncGroup("g", first.generation, first.member_id, assignments=parts)
    ).error
    if is_stored:
        stage.coordinator.close()
        stage.start()
    back = cooperative(stage, "x", (), can_skip_assignment=True)
    if kept == (0, 1, 2):
        assert [(each.generation, each.skip_assignment) for each in back] == [(first.generation, True)]
        return
    assert back == []
    (second,) = cooperative(stage, "y", (), member_id=second.member_id)
    assert [each.generation for each in (*back, second)] == [first.generation + 1] * 2
