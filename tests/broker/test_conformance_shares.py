"""What any broker answers about share groups, beside the basics in ``test_conformance``: acknowledgements
that come with a fetch, topics that were made again, members and their epochs. On a clock set by hand; 2 s."""

from __future__ import annotations

import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import (
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    MetadataRequest,
    MorePartitions,
    NewTopic,
)
from logstore.broker.share.partition import Acknowledgement
from logstore.broker.share.requests import (
    JOINING,
    LEAVING,
    AcknowledgeBatch,
    AcknowledgePartition,
    AlterShareOffsets,
    DeleteShareOffsets,
    ShareAcknowledgeRequest,
    ShareFetchRequest,
    ShareGroupConfig,
    ShareGroupHeartbeat,
    TopicIdPartition,
)
from logstore.broker.share.stored import ShareState
from logstore.broker.storing.shares import ShareStorage
from logstore.format.messages.share_records import ShareKey
from logstore.format.names import SHARE_STATE_TOPIC
from logstore.model import TopicPartition
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles
from logstore.testing.operations import Write
from tests.broker.rig import T0, T1, Rig

ACCEPT, RELEASE, REJECT, RENEW, GAP = (
    Acknowledgement.ACCEPT,
    Acknowledgement.RELEASE,
    Acknowledgement.REJECT,
    Acknowledgement.RENEW,
    Acknowledgement.GAP,
)

SESSION_MS = 45_000
"""Of members in other processes, by default."""


class Shares:
    """A rig, and words for what share groups are asked."""

    def __init__(self, **options) -> None:
        self.rig = Rig(**options)
        self.broker = self.rig.broker

    def id_of(self, topic="t"):
        (found,) = self.rig.now(self.broker.metadata(MetadataRequest((topic,)))).topics
        return found.topic_id

    def place(self, partition=T0, topic_id=None):
        return TopicIdPartition(partition, topic_id or self.id_of(partition.topic))

    def beat(self, member="one", epoch=JOINING, topics=("t",), **fields):
        beat = ShareGroupHeartbeat("g", member, epoch, topics, **fields)
        return self.rig.now(self.broker.share_group_heartbeat(beat))

    def join(self, *members, **config):
        for member in members:
            assert self.beat(member, config=ShareGroupConfig(**config)).error is ErrorCode.NONE

    def said(self, kind, first, last=None, *, at=None):
        batch = AcknowledgeBatch(first, first if last is None else last, kind)
        return AcknowledgePartition(at or self.place(), (batch,))

    def fetch(self, member="one", *said, at=None, **fields):
        request = ShareFetchRequest(
            "g",
            member,
            at or (self.place(T0), self.place(T1)),
            acknowledgements=said,
            **{"max_wait_ms": 0} | fields,
        )
        return self.broker.share_fetch(request)

    def take(self, member="one", *said, **fields):
        """What a fetch that does not wait brings: offsets with their counts, and outcomes."""
        result = self.rig.now(self.fetch(member, *said, **fields))
        assert result.error is ErrorCode.NONE
        return acquired(result), [each.error for each in result.acknowledged]

    def acknowledge(self, member, *said, **fields):
        return self.rig.now(
            self.broker.share_acknowledge(ShareAcknowledgeRequest("g", member, said, **fields))
        )

    def describe(self):
        (found,) = self.rig.now(self.broker.describe_share_groups(("g",)))
        return found

    def state_of(self, number=0):
        return self.describe().partitions[number][1:]

    def stored_count(self):
        """How often the group's states were written."""
        return sum(
            isinstance(each, Write) and SHARE_STATE_TOPIC in each.path and each.path.endswith(".log")
            for each in self.rig.files.trace
        )

    def make_again(self):
        self.rig.now(self.broker.delete_topics(DeleteTopicsRequest(("t",))))
        self.rig.now(self.broker.create_topics(CreateTopicsRequest((NewTopic("t", 2),))))


def acquired(result):
    return [each[:] for found in result.partitions for each in found.acquired]


@pytest.fixture
def shares():
    return Shares()


class TestAcknowledgementsWithAFetch:
    def test_both_are_one_batch_of_the_states(self, shares):
        shares.rig.produce(*[b"x"] * 6)
        shares.join("one")
        assert shares.take(max_records=2) == ([(0, 1, 1)], [])
        before = shares.stored_count()
        assert shares.take("one", shares.said(ACCEPT, 0, 1), max_records=2) == ([(2, 3, 1)], [ErrorCode.NONE])
        assert shares.stored_count() == before + 1
        assert shares.state_of()[:3] == (2, 4, 2)

    def test_they_come_first(self, shares):
        """A record that is released is available; a lock that is free again counts for the limit."""
        shares.rig.produce(*[b"x"] * 3)
        shares.join("one", partition_max_record_locks=2)
        assert shares.take() == ([(0, 1, 1)], [])
        assert shares.take() == ([], [])
        assert shares.take("one", shares.said(ACCEPT, 0)) == ([(2, 2, 1)], [ErrorCode.NONE])
        assert shares.take("one", shares.said(RELEASE, 1)) == ([(1, 1, 2)], [ErrorCode.NONE])
        assert shares.take("one", shares.said(REJECT, 1)) == ([], [ErrorCode.NONE])

    def test_each_partition_has_its_own_outcome(self, shares):
        shares.rig.produce(b"a")
        shares.rig.produce(b"b", to=T1)
        shares.join("one", "two")
        shares.take("two", at=(shares.place(T0),))
        shares.take("one", at=(shares.place(T1),))
        said = (
            shares.said(ACCEPT, 0),
            shares.said(ACCEPT, 0, at=shares.place(T1)),
            shares.said(ACCEPT, 0, at=shares.place(TopicPartition("t", 7))),
        )
        errors = [
            ErrorCode.INVALID_RECORD_STATE,
            ErrorCode.NONE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ]
        assert shares.take("one", *said) == ([], errors)

    def test_a_refused_one_does_not_wait_for_records(self, shares):
        shares.join("one")
        refused = shares.fetch("one", shares.said(ACCEPT, 5), max_wait_ms=10_000).poll()
        assert [each.error for each in refused.acknowledged] == [ErrorCode.INVALID_RECORD_STATE]
        shares.rig.produce(b"a")
        shares.take()
        waiting = shares.fetch("one", shares.said(ACCEPT, 0), max_wait_ms=10_000)
        assert waiting.poll() is None
        assert shares.state_of()[:2] == (1, 1)  # known already
        shares.rig.produce(b"b")
        result = shares.rig.now(waiting)
        assert acquired(result) == [(1, 1, 1)]
        assert [each.error for each in result.acknowledged] == [ErrorCode.NONE]

    def test_a_durable_one_is_answered_after_the_flush(self, shares):
        shares.rig.produce(b"a", b"b")
        shares.join("one")
        shares.take(max_records=1)
        log = shares.rig.directory.log(TopicPartition(SHARE_STATE_TOPIC, 0))
        pending = shares.fetch("one", shares.said(ACCEPT, 0), durable=True, max_wait_ms=10_000)
        result = shares.rig.soon(pending)
        assert acquired(result) == [(1, 1, 1)]
        assert log.durable_offset == log.log_end_offset
        result = shares.rig.soon(
            shares.fetch("one", shares.said(ACCEPT, 1), durable=True, max_wait_ms=10_000)
        )
        assert (acquired(result), len(result.acknowledged)) == ([], 1)

    def test_without_records_they_are_all(self, shares):
        """As a fetch with ``is_renew_ack`` has them (KIP-1222)."""
        shares.rig.produce(b"a", b"b")
        shares.join("one", record_lock_duration_ms=1000)
        shares.take(max_records=1)
        shares.rig.pass_time(999)
        found = shares.take("one", shares.said(RENEW, 0), max_records=0, max_wait_ms=10_000)
        assert found == ([], [ErrorCode.NONE])
        shares.rig.pass_time(999)
        assert shares.take("one", shares.said(ACCEPT, 0), max_records=0) == ([], [ErrorCode.NONE])

    def test_a_disk_that_refuses_changes_nothing(self):
        files = FaultyFiles(MemoryFiles())
        shares = Shares(files=files)
        shares.rig.produce(*[b"x"] * 4)
        shares.join("one")
        shares.take(max_records=2)
        state = shares.state_of()
        files.fail(FAULTS["ENOSPC"], kinds=["write"], path=SHARE_STATE_TOPIC, times=None)
        found = shares.take("one", shares.said(ACCEPT, 0, 1))
        assert found == ([], [ErrorCode.KAFKA_STORAGE_ERROR])
        files.heal()
        assert shares.state_of() == state
        assert shares.take("one", shares.said(ACCEPT, 0, 1)) == ([(2, 3, 1)], [ErrorCode.NONE])

    def test_what_was_deleted_from_the_log_meanwhile(self, shares):
        """The states follow the log before what is said is held against them."""
        shares.rig.produce(*[b"x"] * 6)
        shares.join("one")
        shares.take(max_records=4)
        shares.rig.directory.log(T0).delete_before(2)
        assert shares.take("one", shares.said(ACCEPT, 0, 3)) == ([(4, 5, 1)], [ErrorCode.NONE])
        assert shares.state_of()[:3] == (4, 6, 2)

    @settings(max_examples=40)
    @given(
        st.lists(
            st.tuples(
                st.sampled_from(["one", "two"]),
                st.lists(
                    st.tuples(st.sampled_from([ACCEPT, RELEASE, REJECT, RENEW, GAP]), st.integers(0, 11)),
                    max_size=3,
                    unique_by=lambda each: each[1],
                ),
                st.integers(0, 5),
                st.sampled_from([0, 0, 400]),
            ),
            max_size=12,
        )
    )
    def test_they_do_the_same_as_a_request_of_their_own(self, steps):
        together, apart = Shares(), Shares()
        for each in (together, apart):
            each.rig.produce(*[b"x"] * 7)
            each.rig.produce(*[b"x"] * 5)
            each.join("one", "two", record_lock_duration_ms=1000, delivery_count_limit=3)
        for member, kinds, most, wait_ms in steps:
            found = []
            for each in (together, apart):
                each.rig.pass_time(wait_ms)
                batches = tuple(AcknowledgeBatch(offset, offset, kind) for kind, offset in kinds)
                said = (AcknowledgePartition(each.place(), batches),)
                if each is together:
                    taken, (error,) = each.take(member, *said, max_records=most)
                else:
                    (outcome,) = each.acknowledge(member, *said).partitions
                    error, (taken, _) = outcome.error, each.take(member, max_records=most)
                found.append((taken, error, each.describe().partitions))
            assert found[0] == found[1]
        loaded = []
        for each in (together, apart):
            each.broker.close()
            states = type(each.broker)(each.rig.directory).describe_share_groups(("g",)).poll()
            loaded.append(states[0].partitions)
        assert loaded[0] == loaded[1]


class TestTopicsThatAreMadeAgain:
    def test_what_is_said_of_the_old_one_does_not_touch_the_new_one(self, shares):
        shares.rig.produce(b"old")
        shares.join("one")
        old = shares.place()
        shares.take()
        shares.make_again()
        shares.rig.produce(b"new")
        assert self.refused(shares, old)
        shares.beat(epoch=shares.describe().members[0].epoch, topics=None)
        assert shares.take() == ([(0, 0, 1)], [])
        assert self.refused(shares, old)
        assert shares.state_of()[:3] == (0, 1, 1)
        assert shares.acknowledge("one", shares.said(ACCEPT, 0)).partitions[0].error is ErrorCode.NONE

    def refused(self, shares, old):
        said = shares.said(ACCEPT, 0, at=old)
        (outcome,) = shares.acknowledge("one", said).partitions
        assert (outcome.partition, outcome.refused) == (old, said.batches)
        return outcome.error is ErrorCode.UNKNOWN_TOPIC_ID and shares.take("one", said)[1] == [outcome.error]

    def test_a_fetch_of_the_old_one_is_told_at_once(self, shares):
        shares.join("one")
        old = shares.place()
        shares.make_again()
        (found,) = shares.rig.now(shares.fetch(at=(old,), max_wait_ms=10_000)).partitions
        assert (found.partition, found.error) == (old, ErrorCode.UNKNOWN_TOPIC_ID)

    def test_an_id_that_no_topic_has(self, shares):
        shares.join("one")
        nowhere = shares.place(T0, uuid.uuid4())
        (found,) = shares.rig.now(shares.fetch(at=(nowhere,))).partitions
        assert found.error is ErrorCode.UNKNOWN_TOPIC_ID

    def test_a_partition_that_the_group_does_not_have(self, shares):
        shares.join("one")
        other = shares.place(TopicPartition("t", 9))
        (found,) = shares.rig.now(shares.fetch(at=(other,))).partitions
        assert found.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class TestLimitsOfAFetch:
    def test_all_partitions_together(self, shares):
        for partition in (T0, T1):
            shares.rig.produce(b"x" * 500, to=partition)
            shares.rig.produce(b"x" * 500, to=partition)
        shares.join("one")
        size = len(shares.rig.now(shares.fetch(max_bytes=1)).partitions[0].data)
        assert 500 < size < 700
        result = shares.rig.now(shares.fetch(max_bytes=2 * size))
        assert [each.partition.partition for each in result.partitions] == [T0, T1]
        assert acquired(result) == [(1, 1, 1), (0, 0, 1)]
        assert acquired(shares.rig.now(shares.fetch())) == [(1, 1, 1)]

    def test_at_least_so_many_bytes(self, shares):
        shares.join("one")
        shares.rig.produce(b"x" * 500)
        waiting = shares.fetch(max_wait_ms=1000, min_bytes=1000)
        assert waiting.poll() is None
        shares.rig.produce(b"x" * 500, to=T1)
        assert acquired(shares.rig.now(waiting)) == [(0, 0, 1), (0, 0, 1)]

    def test_fewer_when_the_time_is_over(self, shares):
        shares.join("one")
        shares.rig.produce(b"x" * 500)
        waiting = shares.fetch(max_wait_ms=1000, min_bytes=1000)
        shares.rig.pass_time(999)
        assert waiting.poll() is None
        shares.rig.pass_time(1)
        assert acquired(shares.rig.now(waiting)) == [(0, 0, 1)]

    def test_the_answers_say_how_long_locks_hold(self, shares):
        shares.join("one", record_lock_duration_ms=12_345)
        assert shares.rig.now(shares.fetch()).lock_duration_ms == 12_345
        assert shares.acknowledge("one").lock_duration_ms == 12_345
        assert shares.acknowledge("two").error is ErrorCode.UNKNOWN_MEMBER_ID


class TestMembers:
    def test_the_epoch_counts_what_members_have_to_hear_of(self, shares):
        one = shares.beat("one")
        assert (one.member_epoch, one.is_new) == (1, True)
        assert shares.beat("one", 1, None)[1:3] == ("one", 1)
        assert shares.beat("two").member_epoch == 2
        again = shares.beat("one", 1, None)
        assert (again.member_epoch, again.is_new) == (2, False)
        shares.rig.now(shares.broker.create_partitions(CreatePartitionsRequest((MorePartitions("t", 3),))))
        more = shares.beat("one", 2, None)
        assert (more.member_epoch, more.is_new) == (3, True)
        assert [each.partition.partition for each in more.assignment] == [0, 1, 2]
        assert shares.beat("two", LEAVING).member_epoch == LEAVING
        assert shares.beat("one", 3, None).member_epoch == 4
        shares.make_again()
        other = shares.beat("one", 4, None)
        assert (other.member_epoch, other.is_new) == (5, True)
        assert shares.describe().epoch == 5

    def test_the_epoch_before_is_let_through_and_no_other(self, shares):
        """An answer may be lost on its way."""
        shares.beat("one")
        shares.beat("two")
        shares.beat("three")
        assert shares.beat("one", 1, None).member_epoch == 3
        assert shares.beat("one", 1, None).error is ErrorCode.NONE
        for epoch in (2, 4):
            assert shares.beat("one", epoch, None).error is ErrorCode.FENCED_MEMBER_EPOCH
        assert shares.beat("one", JOINING).member_epoch == 3

    @pytest.mark.parametrize(
        "fields",
        [
            {"member": ""},
            {"epoch": -2},
            {"topics": None},
            {"topics": ()},
            {"rack_id": ""},
        ],
    )
    def test_heartbeats_that_make_no_sense(self, shares, fields):
        assert shares.beat(**fields).error is ErrorCode.INVALID_REQUEST

    def test_other_topics(self, shares):
        shares.rig.now(shares.broker.create_topics(CreateTopicsRequest((NewTopic("u", 1),))))
        shares.beat()
        found = shares.beat(epoch=1, topics=("u",))
        assert found.assignment == (shares.place(TopicPartition("u", 0)),)
        assert (found.member_epoch, found.is_new) == (2, True)
        assert shares.beat(epoch=2, topics=()).assignment == ()

    def test_a_member_that_waits_for_its_topic(self, shares):
        assert shares.beat(topics=("u",)).error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        found = shares.beat(topics=("u", "t"), waits_for_topics=True)
        assert (found.error, len(found.assignment)) == (ErrorCode.NONE, 2)
        shares.rig.now(shares.broker.create_topics(CreateTopicsRequest((NewTopic("u", 1),))))
        found = shares.beat(epoch=found.member_epoch, topics=None, waits_for_topics=True)
        assert (found.is_new, [str(each) for each in found.assignment]) == (True, ["u-0", "t-0", "t-1"])

    def test_a_member_without_settings_takes_those_of_the_others(self, shares):
        shares.join("one", record_lock_duration_ms=777)
        assert shares.beat("two").error is ErrorCode.NONE
        assert shares.rig.now(shares.fetch("two")).lock_duration_ms == 777

    def test_one_that_is_not_heard_of_is_gone_with_what_it_has(self, shares):
        shares.rig.produce(b"a")
        fields = {"session_timeout_ms": SESSION_MS, "heartbeat_interval_ms": 5_000}
        found = shares.beat("one", config=ShareGroupConfig(record_lock_duration_ms=600_000), **fields)
        assert found.heartbeat_interval_ms == 5_000
        shares.beat("two")
        assert shares.take() == ([(0, 0, 1)], [])
        shares.rig.pass_time(SESSION_MS)
        assert shares.beat("one", 1, None, **fields).error is ErrorCode.NONE
        shares.rig.pass_time(SESSION_MS + 1)
        assert [each.member_id for each in shares.describe().members] == ["two"]
        assert shares.beat("one", 2, None, **fields).error is ErrorCode.UNKNOWN_MEMBER_ID
        assert shares.take("two") == ([(0, 0, 2)], [])

    def test_offsets_that_cannot_be_stored_stay_as_they_are(self):
        files = FaultyFiles(MemoryFiles())
        shares = Shares(files=files)
        shares.rig.produce(b"a", b"b", b"c")
        shares.join("one")
        shares.take()
        shares.acknowledge("one", shares.said(ACCEPT, 0))
        shares.beat("one", LEAVING)
        to_start = AlterShareOffsets("g", ((T0, 0),))
        files.fail(FAULTS["ENOSPC"], kinds=["write"], path=SHARE_STATE_TOPIC, times=None)
        found = shares.rig.now(shares.broker.alter_share_group_offsets(to_start))
        assert found.error is ErrorCode.KAFKA_STORAGE_ERROR
        found = shares.rig.now(shares.broker.delete_share_group_offsets(DeleteShareOffsets("g", ("t",))))
        assert found.error is ErrorCode.KAFKA_STORAGE_ERROR
        files.heal()
        assert shares.describe().partitions[0].start_offset == 1
        shares.join("two")
        assert shares.take("two") == ([(1, 2, 2)], [])
        shares.beat("two", LEAVING)
        assert shares.rig.now(shares.broker.alter_share_group_offsets(to_start)).error is ErrorCode.NONE
        shares.join("three")
        assert shares.take("three") == ([(0, 2, 1)], [])

    def test_a_group_whose_members_are_gone_can_be_deleted(self, shares):
        shares.beat(session_timeout_ms=1000)
        assert shares.rig.now(shares.broker.delete_share_groups(("g",))) == {"g": ErrorCode.NON_EMPTY_GROUP}
        shares.rig.pass_time(1001)
        assert shares.rig.now(shares.broker.delete_share_groups(("g",))) == {"g": ErrorCode.NONE}

    def test_what_an_administrator_sees(self, shares):
        shares.beat(client_id="app", client_host="/10.0.0.1", rack_id="r1")
        shares.beat(epoch=1, topics=None, client_id="app", client_host="/10.0.0.1")
        found = shares.describe()
        assert (found.state, found.epoch, found.assignor) == ("Stable", 1, "simple")
        (member,) = found.members
        assert member == (
            "one",
            "app",
            ("t",),
            1,
            "/10.0.0.1",
            "r1",
            (shares.place(T0), shares.place(T1)),
        )

    def test_a_session_that_ends_gives_the_rest_back(self, shares):
        shares.rig.produce(b"a", b"b")
        shares.join("one", "two")
        shares.take()
        result = shares.acknowledge("one", shares.said(ACCEPT, 0), releases_rest=True)
        assert result.partitions[0].error is ErrorCode.NONE
        assert shares.take("two") == ([(1, 1, 2)], [])
        assert shares.beat("one", 1, None).error is ErrorCode.NONE


def test_a_group_that_has_not_begun_in_a_partition_begins_where_its_settings_say():
    """A broker of Kafka's writes so of each partition that it is about to give to a member."""
    for reset, found in (("latest", []), ("earliest", [(0, 2, 1)])):
        shares = Shares()
        shares.rig.produce(*[b"x"] * 3)
        key = ShareKey("g", shares.id_of(), 0)
        ShareStorage(shares.rig.directory).write_snapshot(key, ShareState(0, 0, -1))
        shares.join("one", auto_offset_reset=reset)
        assert shares.take() == (found, [])
