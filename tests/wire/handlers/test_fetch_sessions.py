"""Fetch sessions: a client that is told only of changes knows the same as one that asks for everything."""

from __future__ import annotations

import math
import random

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import FetchedPartition
from logstore.format.messages.fields import NO_UUID
from logstore.logdir.directory import LogDirectory
from logstore.wire.apis import ApiKey
from logstore.wire.handlers.fetch_sessions import FetchSessions, Resolved
from logstore.wire.messages.records.fetch import (
    FetchRequest,
    ForgottenTopic,
    Partition,
    Topic,
)
from tests.rotation import seed_of_turn
from tests.wire.raw_client import RawClient

TOPICS = ("a", "b")
PARTITIONS = 4


class Reader:
    """A consumer that reads partitions on to their ends, in a session or without one."""

    def __init__(self, client, version, ids, *, in_session):
        self.client = client
        self.version = version
        self.ids = ids
        self.in_session = in_session
        self.positions = {}
        self.sent = {}
        self.known = {}
        self.records = {}
        self.session_id = 0
        self.epoch = 0

    def named(self, topic):
        return {"topic_id": self.ids[topic]} if self.version >= 13 else {"name": topic}

    def poll(self):
        wanted = {
            each: Partition(each[1], fetch_offset=offset, max_bytes=300)
            for each, offset in self.positions.items()
        }
        request = FetchRequest(max_wait_ms=0, min_bytes=1, max_bytes=2000)
        if not self.in_session:
            answer = self.ask(request, wanted)
        elif not self.epoch:
            answer = self.ask(request._replace(session_epoch=0), wanted)
            assert answer.session_id
            self.session_id, self.epoch, self.sent = answer.session_id, 1, wanted
        else:
            changed = {each: one for each, one in wanted.items() if self.sent.get(each) != one}
            gone = [each for each in self.sent if each not in wanted]
            forgotten = tuple(ForgottenTopic(**self.named(topic), partitions=(n,)) for topic, n in gone)
            request = request._replace(
                session_id=self.session_id, session_epoch=self.epoch, forgotten_topics=forgotten
            )
            answer = self.ask(request, changed)
            self.epoch, self.sent = self.epoch + 1, wanted
        assert answer.error_code == ErrorCode.NONE
        names = {topic_id: name for name, topic_id in self.ids.items()}
        for topic in answer.topics:
            name = topic.name or names[topic.topic_id]
            for part in topic.partitions:
                self.take((name, part.partition), part)
        return answer

    def ask(self, request, wanted):
        topics = tuple(Topic(**self.named(topic), partitions=(part,)) for (topic, _), part in wanted.items())
        return self.client.ask(ApiKey.FETCH, request._replace(topics=topics), self.version)

    def take(self, key, part):
        self.known[key] = (part.error_code, part.high_watermark, part.log_start_offset)
        if part.records:
            self.records[key] = bytes(part.records)


@pytest.mark.parametrize("version", [7, 11, 12, 13, 18])
def test_a_session_tells_all_that_changes(store, version):
    chance = random.Random(seed_of_turn())
    ids = {name: store.create_topic(name, partitions=PARTITIONS).topic_id for name in TOPICS}
    with store.listen() as listener, RawClient(listener.address) as one, RawClient(listener.address) as two:
        plain = Reader(one, version, ids, in_session=False)
        session = Reader(two, version, ids, in_session=True)
        everything = [(name, number) for name in TOPICS for number in range(PARTITIONS)]
        for _ in range(60):
            for _ in range(chance.randrange(3)):
                name, number = chance.choice(everything)
                step = chance.random()
                log = store[name][number]
                if step < 0.6:
                    log.extend([b"v" * chance.randrange(50)])
                elif step < 0.8:
                    log.delete_before(chance.randint(log.log_start_offset, log.high_watermark))
                key = chance.choice(everything)
                if chance.random() < 0.3:
                    for reader in (plain, session):
                        reader.positions.pop(key, None)
                else:
                    log = store[key[0]][key[1]]
                    offset = chance.randint(
                        log.log_start_offset, log.log_end_offset + (chance.random() < 0.1)
                    )
                    for reader in (plain, session):
                        reader.positions[key] = offset
            for reader in (plain, session):
                reader.poll()
                reader.known = {key: reader.known[key] for key in reader.positions}
            for key in plain.positions:
                assert session.known[key] == plain.known[key], key
                assert session.records.get(key) == plain.records.get(key), key
        assert listener_sessions(listener) == 1
        assert session.ask(FetchRequest(session_id=session.session_id, session_epoch=-1), {}).error_code == 0
        assert listener_sessions(listener) == 0


def listener_sessions(listener):
    return len(listener._node.fetch_sessions)


def test_nothing_is_told_twice(store):
    store.create_topic("a", partitions=PARTITIONS)
    with store.listen() as listener, RawClient(listener.address) as client:
        reader = Reader(client, 12, {"a": None}, in_session=True)
        reader.positions = {("a", number): 0 for number in range(PARTITIONS)}
        assert len(reader.poll().topics[0].partitions) == PARTITIONS
        assert reader.poll().topics == ()
        store["a"][2].extend([b"v"])
        assert [each.partition for each in reader.poll().topics[0].partitions] == [2]
        reader.positions["a", 2] = 1
        assert reader.poll().topics == ()


def test_whoever_got_records_is_read_last_the_next_time(store):
    """Else a partition with much to read starves those behind it."""
    topic = store.create_topic("a", partitions=2)
    for log in topic:
        log.extend([bytes(400)] * 10)
    with store.listen() as listener, RawClient(listener.address) as client:
        reader = Reader(client, 12, {"a": None}, in_session=True)
        reader.positions = {("a", 0): 0, ("a", 1): 0}
        first = FetchRequest(max_bytes=300, session_epoch=0)
        wanted = {("a", n): Partition(n, fetch_offset=0, max_bytes=300) for n in range(2)}
        answer = reader.ask(first, wanted)
        got = [[each.partition for each in answer.topics[0].partitions if each.records]]
        for epoch in (1, 2, 3):
            again = FetchRequest(max_bytes=300, session_id=answer.session_id, session_epoch=epoch)
            parts = reader.ask(again, {}).topics[0].partitions
            got.append([each.partition for each in parts if each.records])
    assert got == [[0], [1], [0], [1]]


def test_sessions_that_are_not_known_and_epochs_that_are_wrong():
    sessions = FetchSessions()
    request = FetchRequest(session_id=5, session_epoch=3)
    assert sessions.open(request, uses_ids=False).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    begun = sessions.open(FetchRequest(session_epoch=0), uses_ids=False).session
    request = FetchRequest(session_id=begun.session_id, session_epoch=2)
    assert sessions.open(request, uses_ids=False).error is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    request = request._replace(session_epoch=1)
    assert sessions.open(request, uses_ids=True).error is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    assert sessions.open(request, uses_ids=False).session is begun
    begun.epoch = 2**31 - 1
    request = request._replace(session_epoch=2**31 - 1)
    assert sessions.open(request, uses_ids=False).error is ErrorCode.NONE
    assert begun.epoch == 1


def test_a_full_cache_keeps_those_in_use():
    sessions = FetchSessions(slots=2)
    first, second = (sessions.open(FetchRequest(session_epoch=0), uses_ids=False).session for _ in range(2))
    assert sessions.open(FetchRequest(session_epoch=0), uses_ids=False).session is None
    first.used_seconds -= 1000
    third = sessions.open(FetchRequest(session_epoch=0), uses_ids=False).session
    assert third is not None
    request = FetchRequest(session_id=first.session_id, session_epoch=1)
    assert sessions.open(request, uses_ids=False).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    request = request._replace(session_id=second.session_id)
    assert sessions.open(request, uses_ids=False).error is ErrorCode.NONE


def noted(sessions):
    """What a broker hears of a follower: at first; as it asks for the same again; when it has got on."""
    asked = FetchRequest(session_epoch=0, topics=(Topic("t", partitions=(Partition(0), Partition(1))),))
    session = sessions.open(asked, uses_ids=False).session
    session.resolve((object(),), lambda name: Resolved(name[0], None, ErrorCode.NONE))

    def now_noted():
        return [(part.key[1], part.offset) for part in session.to_note()]

    found = [now_noted()]
    for epoch, topics in ((1, ()), (2, (Topic("t", partitions=(Partition(1, fetch_offset=7),)),))):
        again = FetchRequest(session_id=session.session_id, session_epoch=epoch, topics=topics)
        assert sessions.open(again, uses_ids=False).session is session
        found.append(now_noted())
    return found


def test_a_broker_hears_of_what_a_follower_has_got_and_now_and_then_of_the_rest():
    both = [(0, 0), (1, 0)]
    assert noted(FetchSessions(sign_seconds=math.inf)) == [both, [], [(1, 7)]]
    assert noted(FetchSessions(sign_seconds=-1.0)) == [both, both, [(0, 0), (1, 7)]]


def test_what_is_not_refused_any_more_is_told_again():
    topic = ("t", NO_UUID)
    asked = FetchRequest(session_epoch=0, topics=(Topic("t", partitions=(Partition(0), Partition(1))),))
    session = FetchSessions().open(asked, uses_ids=False).session
    codes = {topic: ErrorCode.NONE}
    looked_up = []

    def resolved(name):
        looked_up.append(name)
        return Resolved(name[0], None, codes[name])

    def found():
        return [
            (part, FetchedPartition(part.partition, ErrorCode.NONE, b"", 5, 5, 0))
            for part in session.kept.take()
        ]

    first, second = object(), object()
    session.resolve((first,), resolved)
    assert (session.kept.count, looked_up) == (2, [topic])
    assert [key for key, _ in session.news(found())] == [(topic, 0), (topic, 1)]
    session.resolve((first,), resolved)  # nothing has changed: nothing is looked up
    assert (found(), looked_up) == ([], [topic])
    codes[topic] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    session.resolve((second,), resolved)
    assert session.refused() == [((topic, n), ErrorCode.TOPIC_AUTHORIZATION_FAILED) for n in range(2)]
    assert (session.kept.count, found()) == (0, [])
    assert session.news([], [key for key, _ in session.refused()]) == []
    codes[topic] = ErrorCode.NONE
    session.resolve((second,), resolved)  # what is refused is looked up each time
    assert session.refused() == []
    assert [key for key, _ in session.news(found())] == [(topic, 0), (topic, 1)]


def test_a_fetch_looks_at_what_has_changed_and_at_nothing_else(store, monkeypatch):
    """However many partitions there are, and whether the request waits or not. Costs 0.1 s."""
    topic = store.create_topic("a", partitions=100)
    looked = []
    log_of = LogDirectory.log
    monkeypatch.setattr(LogDirectory, "log", lambda self, each: looked.append(each) or log_of(self, each))
    with store.listen() as listener, RawClient(listener.address) as client:
        reader = Reader(client, 12, {"a": None}, in_session=True)
        reader.positions = {("a", number): 0 for number in range(100)}
        reader.poll()
        assert len(looked) == 100

        def looked_at(**changes):
            looked.clear()
            request = FetchRequest(
                min_bytes=1, session_id=reader.session_id, session_epoch=reader.epoch, **changes
            )
            reader.epoch += 1
            answer = client.ask(ApiKey.FETCH, request, 12)
            told = [each.partition for topic in answer.topics for each in topic.partitions]
            return [each.partition for each in looked], told

        assert looked_at(max_wait_ms=0) == ([], [])
        assert looked_at(max_wait_ms=10) == ([], [])
        topic[7].append(b"gathers")  # whoever reads sees it, before it is written
        assert looked_at(max_wait_ms=10_000) == ([7], [7])
        changed = (Topic("a", partitions=(Partition(7, fetch_offset=1, max_bytes=300),)),)
        assert looked_at(max_wait_ms=0, topics=changed) == ([7], [])
        assert looked_at(max_wait_ms=0) == ([], [])
        topic[9].assign_leader_epoch(1)
        topic[8].extend([b"a"])
        topic[8].delete_before(1)
        assert looked_at(max_wait_ms=0) == ([8, 9], [8])
        topic.reopen(5)
        assert looked_at(max_wait_ms=0)[0] == [5, 8]  # offset 0 is deleted: an error stays one
        assert looked_at(max_wait_ms=0)[0] == [8]


def test_sessions_that_are_over_leave_nothing_in_the_logs(store):
    """Neither that of a client that hangs up, nor those of a listener that is closed."""
    store.create_topic("a", partitions=3)
    logs = list(store["a"])

    def watchers():
        return [len(log.writer.waits.watchers or ()) for log in logs]

    def session(client):
        reader = Reader(client, 12, {"a": None}, in_session=True)
        reader.positions = {("a", number): 0 for number in range(3)}
        reader.poll()
        return reader

    with store.listen() as listener:
        with RawClient(listener.address) as client:
            first, second = session(client), session(client)
            assert watchers() == [2, 2, 2]
            first.ask(FetchRequest(session_id=first.session_id, session_epoch=-1), {})
            assert watchers() == [1, 1, 1]
            second.positions.pop(("a", 1))
            second.poll()
            assert watchers() == [1, 0, 1]
        logs[0].extend([b"a"])  # nobody comes back to ask for it
        assert watchers() == [0, 0, 1]
    assert watchers() == [0, 0, 0]
