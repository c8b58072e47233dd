"""Fetch sessions look at what has changed, and tell the same as fetches that look at everything, over any
history of a log. And what is being sent does not change on the way."""

import random
import select
import socket
import time
from contextlib import suppress

import pytest

import logstore
from logstore import TopicConfig
from logstore.broker.codes import ErrorCode
from logstore.broker.records import fetching
from logstore.config import StoreConfig
from logstore.errors import LogstoreError
from logstore.model import ProducerIdentity
from logstore.wire.apis import ApiKey
from logstore.wire.messages.records.fetch import FetchRequest, ForgottenTopic, Partition, Topic
from tests.rotation import seed_of_turn
from tests.wire.raw_client import RawClient

CONFIG = TopicConfig(cleanup_policy="compact,delete", segment_bytes=4_000, min_cleanable_dirty_ratio=0.0)
PARTITIONS = 5


class History:
    """Changes of two topics at random, of every kind that readers can see."""

    def __init__(self, store, chance):
        self.store, self.chance = store, chance
        self.sequences = {}
        for name in "ab":
            store.create_topic(name, partitions=PARTITIONS, config=CONFIG)

    def log(self):
        return self.store[self.chance.choice("ab")][self.chance.randrange(PARTITIONS)]

    def step(self):
        steps = (
            [self.extend] * 4
            + [self.append] * 4
            + [self.produce, self.produce, self.end, self.delete, self.cut]
        )
        steps += [self.compact, self.roll, self.begin_epoch, self.reopen, self.create_again]
        with suppress(LogstoreError):  # such as the end of a transaction that is not open
            self.chance.choice(steps)(self.log())

    def rows(self):
        count = self.chance.choice((1, 1, 3, 20))
        keys = [b"k%d" % self.chance.randrange(9) for _ in range(count)]
        return [(key, self.chance.randbytes(self.chance.randrange(120))) for key in keys]

    def extend(self, log):
        log.extend(self.rows())

    def append(self, log):
        log.append(b"gathers", key=b"k")

    def produce(self, log):
        producer_id, rows = self.chance.randrange(1, 4), self.rows()
        sequence = self.sequences.get((log.directory, producer_id), 0)
        log.extend(rows, producer=ProducerIdentity(producer_id, 0, sequence, transactional=True))
        self.sequences[log.directory, producer_id] = sequence + len(rows)

    def end(self, log):
        log.append_end_marker(self.chance.randrange(1, 4), 0, committed=self.chance.random() < 0.5)

    def delete(self, log):
        log.delete_before(self.chance.randint(log.log_start_offset, log.high_watermark))

    def cut(self, log):
        log.truncate_to(self.chance.randint(max(log.log_end_offset - 30, 0), log.log_end_offset))

    def compact(self, log):
        log.compact(now=True)

    def roll(self, log):
        log.roll()
        log.enforce_retention()

    def begin_epoch(self, log):
        log.assign_leader_epoch(log.leader_epoch + 1)

    def reopen(self, log):
        self.store[log.partition.topic].reopen(log.partition.partition)

    def create_again(self, log):
        if self.chance.random() < 0.2:
            self.store.delete_topic("b")
            self.store.create_topic("b", partitions=PARTITIONS, config=CONFIG)
            self.sequences = {each: count for each, count in self.sequences.items() if "/b-" not in each[0]}

    def wanted(self):
        """Where a reader of a partition might be."""
        log = self.log()
        offset = self.chance.choice((log.log_end_offset, log.log_end_offset, 0, log.log_start_offset))
        offset = max(offset + self.chance.choice((0, 0, 0, 0, -3, 1)), 0)
        epoch = self.chance.choice((-1, -1, -1, log.leader_epoch, log.leader_epoch + 1))
        part = Partition(log.partition.partition, epoch, offset, max_bytes=self.chance.choice((200, 5_000)))
        return (log.partition.topic, part.partition), part


class Session:
    """A session, and what a fetch of everything says of what it must be told."""

    def __init__(self, client, plain, version, ids):
        self.client, self.plain, self.version, self.ids = client, plain, version, ids
        self.parts, self.told = {}, {}
        self.session_id = self.epoch = 0

    def topics(self, parts):
        named = [
            ({"topic_id": self.ids[name]} if self.version >= 13 else {"name": name}) for name, _ in parts
        ]
        return tuple(
            Topic(**name, partitions=(part,)) for name, part in zip(named, parts.values(), strict=True)
        )

    def poll(self, changed, forgotten, *, is_first, **limits):
        for key in forgotten:
            self.parts.pop(key, None)
            self.told.pop(key, None)
        self.parts |= changed
        everything = FetchRequest(session_epoch=-1, topics=self.topics(self.parts), **limits)
        gone = tuple(
            ForgottenTopic(topic.name, topic.topic_id, (number,))
            for topic, (_, number) in zip(
                self.topics(dict.fromkeys(forgotten, Partition())), forgotten, strict=True
            )
        )
        request = FetchRequest(
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=self.topics(changed),
            forgotten_topics=gone if self.epoch else (),
            **limits,
        )
        if is_first:  # also of those that see what still gathers
            answer = self.client.ask(ApiKey.FETCH, request, self.version)
        expected = self.news(flat(self.plain.ask(ApiKey.FETCH, everything, self.version)))
        if not is_first:
            answer = self.client.ask(ApiKey.FETCH, request, self.version)
        assert answer.error_code == ErrorCode.NONE
        assert flat(answer) == expected
        self.session_id, self.epoch = answer.session_id, self.epoch + 1

    def news(self, everything):
        news = []
        keys = {
            (self.ids[name] if self.version >= 13 else name, number): (name, number)
            for name, number in self.parts
        }
        for topic, part in everything:
            key = keys[topic, part.partition]
            told = part.high_watermark, part.last_stable_offset, part.log_start_offset, part.error_code != 0
            if part.error_code == ErrorCode.UNKNOWN_TOPIC_ID:
                self.told.pop(key, None)
                news.append((topic, part))
            elif part.error_code or part.records or self.told.get(key) != told:
                self.told[key] = told
                news.append((topic, part))
                if part.records:
                    self.parts[key] = self.parts.pop(key)
        return news


def flat(answer):
    return [
        (topic.name or topic.topic_id, part._replace(records=bytes(part.records or b"")))
        for topic in answer.topics
        for part in topic.partitions
    ]


@pytest.fixture
def patient(tmp_path):
    """A store in which nothing that gathers is written between two questions, unless they ask for it."""
    with logstore.open(
        tmp_path / "patient", config=StoreConfig(linger_ms=3_600_000, log_cleaner_enable=False)
    ) as store:
        yield store


@pytest.mark.parametrize("version", [7, 12, 17])
def test_a_session_is_told_what_a_fetch_of_everything_says(patient, version, monkeypatch):
    """Costs 2 s. An epoch that the one makes up is not to change what the other is told."""
    monkeypatch.setattr(fetching, "outgrow", lambda log, epoch: None)
    chance = random.Random(f"{version}/{seed_of_turn()}")
    history = History(patient, chance)
    ids = {name: patient[name].topic_id for name in "ab"}
    with patient.listen() as listener, RawClient(listener.address) as one, RawClient(listener.address) as two:
        session = Session(one, two, version, ids)
        isolation = 0
        for _ in range(150):
            for _ in range(chance.randrange(3)):
                history.step()
            changed = dict(history.wanted() for _ in range(chance.randrange(4)))
            forgotten = [each for each in session.parts if chance.random() < 0.03 and each not in changed]
            isolation = isolation if chance.random() < 0.9 else 1 - isolation
            session.poll(
                changed,
                forgotten,
                is_first=chance.random() < 0.7,
                isolation_level=isolation,
                max_bytes=chance.choice((300, 10_000, 2**20)),
                min_bytes=1,
            )


@pytest.mark.parametrize("change", ["delete", "truncate", "compact", "delete topic"])
def test_what_is_being_sent_stays_as_it_was(store, change):
    """The client has the beginning of the answer, and most of it is not sent yet, when the log has nothing of
    it any more. Costs 0.2 s."""
    config = TopicConfig(
        cleanup_policy="compact,delete",
        segment_bytes=30_000_000,
        file_delete_delay_ms=0,
        max_message_bytes=2**21,
    )
    log = store.create_topic("t", config=config)[0]
    batches = [bytes([n]) * 1_000_000 for n in range(12)]
    for value in batches:
        log.extend([(b"k", value)])
    with store.listen() as listener, RawClient(listener.address, timeout=30) as client:
        client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65_536)
        want = Partition(0, fetch_offset=0, max_bytes=2**24)
        expected = bytes(log.fetch(0, max_bytes=2**24).data)
        request = FetchRequest(topics=(Topic("t", partitions=(want,)),))
        for _ in range(4):  # more than the system takes for a client that does not read
            client.send(ApiKey.FETCH, request, 12)
        assert select.select([client.socket], [], [], 30)[0]  # the answer is made
        if change == "delete":
            log.delete_before(log.high_watermark)
        elif change == "truncate":
            log.truncate_to(0)
            log.extend([(b"k", b"\xff" * 1_000_000)] * 3)
        elif change == "compact":
            log.compact(now=True)
        else:
            store.delete_topic("t")
        first = client.receive(ApiKey.FETCH, 12, 1).topics[0].partitions[0]
        assert bytes(first.records) == expected


def test_a_session_whose_answer_nobody_took_tells_it_the_next_time(store):
    """A client hangs up while its request waits: what it would have been told is not taken as told."""
    topic = store.create_topic("t", partitions=2)
    topic[0].extend([b"a"])
    with store.listen() as listener:
        with RawClient(listener.address) as client:
            parts = tuple(Partition(number, fetch_offset=1 - number, max_bytes=100) for number in range(2))
            request = FetchRequest(session_epoch=0, topics=(Topic("t", partitions=parts),))
            session_id = client.ask(ApiKey.FETCH, request, 12).session_id
            topic[0].delete_before(1)  # news, but nothing to read
            client.send(
                ApiKey.FETCH,
                FetchRequest(session_id=session_id, session_epoch=1, max_wait_ms=60_000, min_bytes=1),
                12,
            )
            time.sleep(0.05)
        until = time.monotonic() + 10
        while listener.connection_count and time.monotonic() < until:
            time.sleep(0.01)
        assert not listener.connection_count
        with RawClient(listener.address) as client:
            answer = client.ask(ApiKey.FETCH, FetchRequest(session_id=session_id, session_epoch=2), 12)
            assert [(one.partition, one.log_start_offset) for one in answer.topics[0].partitions] == [(0, 1)]
