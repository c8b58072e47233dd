"""Members of both protocols in many threads, at one group, which changes over and back: what is stored of
it has one protocol, and no partition has two owners.

3 s."""

from __future__ import annotations

import random
import threading
import time

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.consumer_groups.requests import ConsumerGroupHeartbeat
from logstore.broker.groups.requests import (
    GroupProtocol,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    LeavingMember,
    SyncGroup,
)
from logstore.broker.pending import wait_for
from logstore.format.messages.consumer_protocol import ConsumerProtocolSubscription, encode_subscription
from logstore.format.messages.group_records import GROUP_KEY_VERSION
from logstore.format.messages.message import version_of

TIMES = 20
PAUSE_SECONDS = 0.01
AGAIN = {ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS}
SUBSCRIPTION = encode_subscription(ConsumerProtocolSubscription(("t",)))


def newer(broker, name, chance):
    """Joins, goes where it is told, and leaves."""
    beat = ConsumerGroupHeartbeat("g", name, 0, None, None, 1000, ("t",), owned=frozenset())
    result = wait_for(broker.consumer_group_heartbeat(beat))
    joined = result.error
    while result.error is ErrorCode.NONE and chance.random() < 0.7:
        owned = beat.owned if result.assignment is None else frozenset(result.assignment)
        beat = ConsumerGroupHeartbeat("g", name, result.member_epoch, owned=owned)
        result = wait_for(broker.consumer_group_heartbeat(beat))
        assert result.error is ErrorCode.NONE
    if joined is ErrorCode.NONE:
        wait_for(broker.consumer_group_heartbeat(ConsumerGroupHeartbeat("g", name, -1)))
    return joined


def classic(broker, name, chance):
    joins = JoinGroup("g", "consumer", (GroupProtocol("range", SUBSCRIPTION),), 6_000, 500, client_id=name)
    result = wait_for(broker.join_group(joins))
    if result.error is ErrorCode.NONE:
        sync = SyncGroup("g", result.generation, result.member_id, assignments={})
        synced = wait_for(broker.sync_group(sync))
        assert synced.error in AGAIN
        time.sleep(chance.random() * PAUSE_SECONDS)
        beat = Heartbeat("g", result.generation, result.member_id)
        assert wait_for(broker.heartbeat(beat)) in AGAIN
        wait_for(broker.leave_group(LeaveGroup("g", (LeavingMember(result.member_id),))))
    return result.error


def take_turns(broker, play, name, errors):
    """Until it has been in the group so often."""
    chance = random.Random(name)
    joined_count = 0
    while joined_count < TIMES:
        error = play(broker, f"{name}-{len(errors)}", chance)
        errors.append(error)
        joined_count += error is ErrorCode.NONE
        time.sleep(chance.random() * PAUSE_SECONDS)


def has_one_protocol(broker):
    committed = broker.committed
    return not (committed.load_group("g") and committed.load_consumer_group("g"))


def test_members_of_both_protocols(tmp_path):
    errors = {newer: [], classic: []}
    protocols = set()
    with logstore.open(tmp_path) as store:
        store.create_topic("t", partitions=6)
        broker = store._open_broker(store._writable())
        threads = [
            threading.Thread(target=take_turns, args=(broker, play, f"{play.__name__}{number}", errors[play]))
            for play in (newer, classic)
            for number in range(2)
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            (described,) = wait_for(broker.describe_consumer_groups(("g",)))
            protocols.add(frozenset(member.is_classic for member in described.members))
            held = [each for member in described.members for each in member.assignment]
            assert len(held) == len(set(held))
        assert set(errors[newer]) == {ErrorCode.NONE}
        assert set(errors[classic]) <= AGAIN | {ErrorCode.UNKNOWN_MEMBER_ID}
        assert frozenset({True, False}) in protocols  # they have met
    with logstore.open(tmp_path) as store:
        broker = store._open_broker(store._writable())
        assert has_one_protocol(broker)
        (group,) = wait_for(broker.list_groups()).groups
        assert group.state == "Empty"
        check_the_log(store)


def check_the_log(store):
    """At no point of the log did the group have records of both protocols."""
    known = set()
    for record in store["__consumer_offsets"][0].read():
        (known.discard if record.value is None else known.add)(record.key)
        kinds = {version_of(key) == GROUP_KEY_VERSION for key in known}
        assert len(kinds) <= 1
