"""What heartbeats make of a group, and what is answered: one rule in each test."""

from __future__ import annotations

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.consumer_groups.config import ConsumerGroupConfig
from logstore.broker.consumer_groups.requests import ConsumerGroupHeartbeat
from logstore.broker.consumer_groups.states import GroupState, MemberState
from logstore.broker.groups.requests import LeaveGroup, LeavingMember
from logstore.errors import InvalidConfigError
from tests.broker.consumer_groups.stage import GROUP, Client, Stage, settle

SESSION_MS = 45_000


@pytest.fixture
def stage():
    return Stage({"orders": 4, "bills": 2})


def state_of(stage, client):
    return stage.group.members[client.member_id].state


class TestJoin:
    def test_the_first_member_gets_all_at_once(self, stage):
        result = stage.join("a", "orders", "bills")
        assert result[:4] == (ErrorCode.NONE, "a", 1, 5_000)
        assert stage.numbers(result.assignment) == [
            *("bills-0", "bills-1"),
            *("orders-0", "orders-1", "orders-2", "orders-3"),
        ]
        assert stage.group.state is GroupState.STABLE

    def test_one_without_an_id_gets_one(self, stage):
        assert stage.join("", "orders").member_id == "m1"

    def test_topics_that_are_not_there_come_later(self, stage):
        client = Client(stage, "a", "later")
        assert (client.error, client.owned, client.epoch) == (ErrorCode.NONE, frozenset(), 1)
        stage.set_topic("later", 1)
        client.beat()
        assert (client.shown, client.epoch) == (["later-0"], 2)

    def test_again_with_epoch_zero_nothing_changes(self, stage):
        client = Client(stage, "a", "orders")
        again = stage.join("a", "orders")
        assert (again.member_epoch, frozenset(again.assignment)) == (1, client.owned)

    def test_a_full_group(self):
        stage = Stage({"orders": 4}, group_consumer_max_size=1)
        client = Client(stage, "a", "orders", instance_id="x")
        assert stage.join("b", "orders").error is ErrorCode.GROUP_MAX_SIZE_REACHED
        assert client.beat() is ErrorCode.NONE
        client.beat(owned=None)
        stage.beat("a", -2, instance_id="x")
        assert stage.join("c", "orders", instance_id="x").error is ErrorCode.NONE  # in its own place


class TestRefused:
    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"group_id": " "}, "the group id is empty"),
            ({"instance_id": ""}, "the instance id is empty"),
            ({"rack_id": ""}, "the rack id is empty"),
            ({"member_id": "", "member_epoch": 1}, "the member id is empty"),
            ({"member_id": "", "member_epoch": -1}, "the member id is empty"),
            ({"member_epoch": -3}, "the member epoch is -3"),
            ({"member_epoch": -2}, "only a static member leaves for a while"),
            ({"rebalance_timeout_ms": -1}, "a rebalance timeout"),
            ({"topics": None}, "topic names or a regular expression"),
            ({"owned": None}, "has no partitions"),
        ],
    )
    def test_requests_that_make_no_sense(self, stage, changes, message):
        fields = {"rebalance_timeout_ms": 1, "topics": ("orders",), "owned": frozenset()} | changes
        request = ConsumerGroupHeartbeat(**({"group_id": GROUP, "member_id": "a"} | fields))
        result = stage.coordinator.heartbeat(request)
        assert result.error is ErrorCode.INVALID_REQUEST
        assert message in result.message
        assert stage.coordinator.names() == []

    def test_an_assignor_that_is_not_there(self, stage):
        result = stage.join("a", "orders", assignor="best")
        assert result.error is ErrorCode.UNSUPPORTED_ASSIGNOR
        assert result.message.endswith("uniform, range")

    def test_no_regular_expression(self, stage):
        result = stage.join("a", pattern="(")
        assert result.error is ErrorCode.INVALID_REGULAR_EXPRESSION
        assert stage.coordinator.names() == []

    def test_members_of_no_group(self, stage):
        for epoch in (1, -1):
            assert stage.beat("a", epoch).error is ErrorCode.GROUP_ID_NOT_FOUND

    def test_strangers(self, stage):
        Client(stage, "a", "orders")
        for epoch, instance_id in ((1, None), (1, "x"), (-1, None), (-1, "x"), (-2, "x")):
            result = stage.beat("b", epoch, instance_id=instance_id)
            assert result.error is ErrorCode.UNKNOWN_MEMBER_ID

    def test_after_the_broker_has_closed(self, stage):
        Client(stage, "a", "orders")
        stage.coordinator.close()
        assert stage.join("b", "orders").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert stage.beat("a", 1).error is ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert not stage.timers.armed


class TestReconciliation:
    def test_what_one_gives_up_another_gets_then(self, stage):
        a = Client(stage, "a", "orders")
        b = Client(stage, "b", "orders")
        assert (b.epoch, b.owned) == (2, frozenset())
        assert state_of(stage, b) is MemberState.UNRELEASED_PARTITIONS
        result = stage.beat("a", a.epoch, owned=a.owned)
        assert (result.member_epoch, len(result.assignment)) == (1, 2)
        assert state_of(stage, a) is MemberState.UNREVOKED_PARTITIONS
        b.beat()
        assert b.owned == frozenset()  # the other may still work on them
        assert stage.beat("a", a.epoch).assignment is None  # a beat that does not say what it has
        assert state_of(stage, a) is MemberState.UNREVOKED_PARTITIONS
        a.take(result)
        a.beat()
        b.beat()
        assert (a.epoch, b.epoch, len(a.owned), len(b.owned)) == (2, 2, 2, 2)
        assert a.owned | b.owned == stage.partitions("orders")
        assert stage.group.state is GroupState.STABLE

    def test_the_rest_of_the_group_is_not_disturbed(self, stage):
        clients = [Client(stage, name, "orders", "bills") for name in "abc"]
        settle(*clients)
        epochs = [client.epoch for client in clients]
        owned = [client.owned for client in clients]
        d = Client(stage, "d", "orders", "bills")
        settle(*clients, d)
        kept = [len(before & client.owned) for before, client in zip(owned, clients, strict=True)]
        assert sorted(kept) in ([1, 1, 2], [1, 2, 2])
        assert sum(kept) == 6 - len(d.owned)
        assert {client.epoch for client in [*clients, d]} == {epochs[0] + 1}

    def test_states_of_the_group(self, stage):
        a = Client(stage, "a", "orders")
        assert stage.group.state is GroupState.STABLE
        b = Client(stage, "b", "orders")
        assert stage.group.state is GroupState.RECONCILING
        settle(a, b)
        assert stage.group.state is GroupState.STABLE
        stage.beat("b", -1)
        assert stage.group.state is GroupState.ASSIGNING
        settle(a)
        assert (stage.group.state, len(a.owned)) == (GroupState.STABLE, 4)
        stage.beat("a", -1)
        assert (stage.group.state, stage.group.epoch) == (GroupState.EMPTY, 4)

    def test_a_heartbeat_that_brings_nothing_new_stores_nothing(self, stage):
        client = Client(stage, "a", "orders")
        client.beat()
        stage.storage.is_failing = True
        before = stage.group
        assert client.beat() is ErrorCode.NONE
        assert stage.group is before

    def test_a_new_target_while_it_gives_up(self, stage):
        """It goes on from the next epoch, and has to give up more."""
        stage.set_topic("orders", 6)
        a = Client(stage, "a", "orders")
        Client(stage, "b", "orders")
        first = stage.beat("a", 1, owned=a.owned)
        assert (first.member_epoch, len(first.assignment)) == (1, 3)
        Client(stage, "c", "orders")
        a.take(first)
        second = stage.beat("a", 1, owned=a.owned)
        assert (second.member_epoch, len(second.assignment)) == (2, 2)
        assert state_of(stage, a) is MemberState.UNREVOKED_PARTITIONS
        assert stage.beat("a", 2, owned=frozenset(second.assignment)).member_epoch == 3

    def test_more_partitions(self, stage):
        a, b = Client(stage, "a", "orders"), Client(stage, "b", "orders")
        settle(a, b)
        epoch, owned = a.epoch, a.owned
        stage.set_topic("orders", 6)
        settle(a, b)
        assert (a.epoch, b.epoch) == (epoch + 1, epoch + 1)
        assert owned < a.owned
        assert a.owned | b.owned == stage.partitions("orders")

    def test_a_topic_that_is_made_again_is_another(self, stage):
        a = Client(stage, "a", "orders")
        before = a.owned
        stage.set_topic("orders", 4, is_new=True)
        settle(a)
        assert a.owned == stage.partitions("orders")
        assert a.owned.isdisjoint(before)

    def test_what_most_members_want_counts(self, stage):
        stage.set_topic("orders", 2)
        a, b = (Client(stage, name, "orders", "bills", assignor="range") for name in "ab")
        settle(a, b)
        assert (a.shown, b.shown) == (["bills-0", "orders-0"], ["bills-1", "orders-1"])
        epoch = stage.group.epoch
        a.beat(assignor="uniform")
        assert stage.group.epoch == epoch  # a tie: the first by name
        b.beat(assignor="uniform")
        assert stage.group.epoch == epoch + 1


class TestFencing:
    def test_the_answer_was_lost(self, stage):
        a, b = Client(stage, "a", "orders"), Client(stage, "b", "orders")
        a.beat()
        lost = stage.beat("a", a.epoch, owned=a.owned)
        assert (a.epoch, lost.member_epoch) == (1, 2)
        again = stage.beat("a", 1, owned=a.owned, rebalance_timeout_ms=1, topics=("orders",))
        assert (again.error, again.member_epoch) == (ErrorCode.NONE, 2)
        assert frozenset(again.assignment) == a.owned
        b.beat()
        assert b.owned.isdisjoint(a.owned)

    def test_an_answer_was_lost_and_it_has_what_it_should_not(self, stage):
        a = Client(stage, "a", "orders")
        had = a.owned
        Client(stage, "b", "orders")
        a.beat()
        a.beat()
        assert stage.beat("a", 1, owned=had).error is ErrorCode.FENCED_MEMBER_EPOCH
        assert stage.beat("a", 1).error is ErrorCode.FENCED_MEMBER_EPOCH

    @pytest.mark.parametrize("given", [1, 3, 9])
    def test_another_epoch(self, stage, given):
        a = Client(stage, "a", "orders")
        for topics in (("bills",), ("orders",), ("bills",)):
            a.beat(topics=topics)
            settle(a)
        assert a.epoch == 4
        fenced = stage.beat("a", given, owned=stage.partitions("orders"))
        assert fenced.error is ErrorCode.FENCED_MEMBER_EPOCH
        assert stage.join("a", "bills").member_epoch == 4


class TestTimeouts:
    def test_a_member_that_is_not_heard_of(self, stage):
        a, b = Client(stage, "a", "orders"), Client(stage, "b", "orders")
        settle(a, b)
        stage.wait(SESSION_MS - 1)
        a.beat()
        assert b.member_id in stage.group.members
        stage.wait(1)
        assert b.member_id not in stage.group.members
        settle(a)
        assert len(a.owned) == 4
        assert b.beat() is ErrorCode.UNKNOWN_MEMBER_ID

    def test_a_member_that_gives_nothing_up(self, stage):
        a, b = Client(stage, "a", "orders"), Client(stage, "b", "orders")
        had = a.owned
        a.beat()
        for _ in range(9):
            stage.wait(1_000)
            assert stage.beat("a", a.epoch, owned=had).error is ErrorCode.NONE
        stage.wait(1_000)
        assert stage.beat("a", a.epoch, owned=had).error is ErrorCode.UNKNOWN_MEMBER_ID
        settle(b)
        assert len(b.owned) == 4

    def test_in_time_the_timer_stops(self, stage):
        a, b = Client(stage, "a", "orders"), Client(stage, "b", "orders")
        a.beat()
        settle(a, b)
        stage.wait(20_000)
        settle(a, b)
        assert len(stage.timers.armed) == 2

    def test_while_the_disk_is_full_it_stays(self, stage):
        Client(stage, "a", "orders")
        stage.storage.is_failing = True
        stage.wait(SESSION_MS)
        assert "a" in stage.group.members
        stage.storage.is_failing = False
        stage.wait(5_000)
        assert "a" not in stage.group.members
        assert not stage.timers.armed


class TestStaticMembers:
    def test_a_restart_disturbs_nobody(self, stage):
        a = Client(stage, "a", "orders", instance_id="x")
        b = Client(stage, "b", "orders")
        settle(a, b)
        epochs = (stage.group.epoch, b.epoch)
        assert stage.beat("a", -2, instance_id="x")[:3] == (ErrorCode.NONE, "a", -2)
        assert state_of(stage, a) is MemberState.AWAY
        settle(b)
        again = Client(stage, "c", "orders", instance_id="x")
        assert again.owned == a.owned
        settle(b, again)
        assert (stage.group.epoch, b.epoch) == epochs
        assert sorted(stage.group.members) == ["b", "c"]
        assert stage.beat("a", epochs[0], instance_id="x").error is ErrorCode.FENCED_INSTANCE_ID

    def test_under_its_old_id(self, stage):
        a = Client(stage, "a", "orders", instance_id="x")
        stage.beat("a", -2, instance_id="x")
        assert Client(stage, "a", "orders", instance_id="x").owned == a.owned
        assert stage.group.state is GroupState.STABLE

    def test_an_id_that_is_in_use(self, stage):
        Client(stage, "a", "orders", instance_id="x")
        assert stage.join("b", "orders", instance_id="x").error is ErrorCode.UNRELEASED_INSTANCE_ID
        assert stage.beat("b", -1, instance_id="x").error is ErrorCode.FENCED_INSTANCE_ID

    def test_one_that_stays_away(self, stage):
        Client(stage, "a", "orders", instance_id="x")
        b = Client(stage, "b", "orders")
        stage.beat("a", -2, instance_id="x")
        for _ in range(9):
            stage.wait(5_000)
            settle(b)
        assert list(stage.group.members) == ["b"]
        assert len(b.owned) == 4

    def test_the_time_that_it_may_stay_away_begins_with_its_last_heartbeat(self, stage):
        Client(stage, "a", "orders", instance_id="x")
        stage.wait(SESSION_MS - 5_000)
        stage.beat("a", -2, instance_id="x")
        stage.wait(5_000)
        assert stage.group.state is GroupState.EMPTY

    def test_what_it_was_to_give_up_is_free(self, stage):
        a, b = Client(stage, "a", "orders", instance_id="x"), Client(stage, "b", "orders")
        stage.beat("a", a.epoch, owned=a.owned, instance_id="x")
        stage.beat("a", -2, instance_id="x")
        settle(b)
        assert len(b.owned) == 2

    def test_with_other_topics(self, stage):
        Client(stage, "a", "orders", instance_id="x")
        stage.beat("a", -2, instance_id="x")
        again = Client(stage, "b", "bills", instance_id="x")
        assert (again.shown, again.epoch) == (["bills-0", "bills-1"], 2)

    def test_the_id_of_another_member(self, stage):
        """Which then is gone: a member has one place."""
        Client(stage, "a", "orders", instance_id="x")
        Client(stage, "b", "orders")
        stage.beat("a", -2, instance_id="x")
        again = Client(stage, "b", "orders", instance_id="x")
        assert (list(stage.group.members), len(again.owned)) == (["b"], 4)

    def test_an_administrator_removes_it(self, stage):
        Client(stage, "a", "orders", instance_id="x")
        leaves = LeaveGroup(GROUP, (LeavingMember("", "x"), LeavingMember("", "y"), LeavingMember("b")))
        result = stage.coordinator.leave_group(leaves)
        unknown = ErrorCode.UNKNOWN_MEMBER_ID
        assert [each.error for each in result.members] == [ErrorCode.NONE, unknown, unknown]
        assert stage.group.state is GroupState.EMPTY


class TestPatterns:
    def test_topics_that_match_and_those_that_come_later(self, stage):
        a = Client(stage, "a", pattern="or.*|b", topics=None)
        assert a.shown == ["orders-0", "orders-1", "orders-2", "orders-3"]
        stage.set_topic("oranges", 1)
        settle(a)
        assert "oranges-0" in a.shown
        assert stage.group.matches["or.*|b"].topics == {"orders", "oranges"}
        stage.set_topic("orders", 0)
        settle(a)
        assert a.shown == ["oranges-0"]

    def test_an_empty_one_is_none(self, stage):
        a = Client(stage, "a", "bills", pattern="or.*")
        a.beat(pattern="")
        settle(a)
        assert (a.shown, stage.group.matches) == (["bills-0", "bills-1"], {})


class TestStorage:
    def test_nothing_changes_while_it_fails(self, stage):
        a = Client(stage, "a", "orders")
        stage.storage.is_failing = True
        before = stage.group
        assert stage.join("b", "orders").error is ErrorCode.KAFKA_STORAGE_ERROR
        assert stage.beat("a", -1).error is ErrorCode.KAFKA_STORAGE_ERROR
        assert stage.group is before
        leaves = LeaveGroup(GROUP, (LeavingMember("a"),))
        assert stage.coordinator.leave_group(leaves).error is ErrorCode.KAFKA_STORAGE_ERROR
        stage.storage.is_failing = False
        assert Client(stage, "b", "orders").error is ErrorCode.NONE
        assert a.beat() is ErrorCode.NONE

    def test_a_group_that_could_not_begin(self, stage):
        stage.storage.is_failing = True
        assert stage.join("a", "orders").error is ErrorCode.KAFKA_STORAGE_ERROR
        assert stage.coordinator.names() == []

    def test_deleting(self, stage):
        a = Client(stage, "a", "orders")
        assert stage.coordinator.delete(GROUP) is ErrorCode.NON_EMPTY_GROUP
        stage.beat(a.member_id, -1)
        stage.storage.is_failing = True
        assert stage.coordinator.delete(GROUP) is ErrorCode.KAFKA_STORAGE_ERROR
        stage.storage.is_failing = False
        assert stage.coordinator.delete(GROUP) is ErrorCode.NONE
        assert stage.coordinator.delete(GROUP) is ErrorCode.GROUP_ID_NOT_FOUND
        assert stage.storage.rows == {}


@pytest.mark.parametrize(
    "wrong",
    [
        {"group_consumer_session_timeout_ms": 5_000},
        {"group_consumer_max_size": 0},
        {"group_consumer_heartbeat_interval_ms": 2.5},
    ],
)
def test_settings_that_make_no_sense(wrong):
    with pytest.raises(InvalidConfigError, match=next(iter(wrong))):
        ConsumerGroupConfig(**wrong)
