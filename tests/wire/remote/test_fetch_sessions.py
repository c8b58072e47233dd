"""Fetch sessions of our client (KIP-227): what comes through them is what comes without, and requests name
only what has changed. Costs 6 s together.
"""

from __future__ import annotations

import random
import threading
import time

import pytest

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.local import LocalBroker
from logstore.broker.pending import wait_for
from logstore.broker.requests import Fetcher, FetchPartition, FetchRequest
from logstore.connected import connect
from logstore.errors import OffsetOutOfRangeError
from logstore.model import Isolation, TopicPartition
from logstore.wire.addresses import parse_address
from logstore.wire.apis import ApiKey
from logstore.wire.messages.records import fetch
from logstore.wire.remote.broker import RemoteBroker
from logstore.wire.remote.connections.codes import code_of_number
from logstore.wire.remote.fetches.following import Links
from logstore.wire.remote.fetches.messages import LAST_BY_NAME
from tests.broker.rig import T0, T1, batch_of
from tests.wire.remote.peers import HASTY, Peer, Silence, tell_of, topic_id_of, versions_response
from tests.wire.remote.test_listening import ListeningRig

SECONDS = 10
MANY = 40


@pytest.fixture
def asked(monkeypatch):
    """The Fetch requests that a listener of this process has got."""
    from logstore.wire.handlers.records import fetch as handler

    seen = []
    answer = handler.answer

    def note(call, request, version):
        seen.append((version, request))
        return answer(call, request, version)

    monkeypatch.setattr(handler, "answer", note)
    return seen


def rows_of(request):
    return sum(len(topic.partitions) for topic in request.topics)


def forgotten_of(request):
    return sum(len(topic.partitions) for topic in request.forgotten_topics)


class Same:
    """A broker in this process, and the same one through our client and a listener."""

    def __init__(self, seed):
        self.rig = ListeningRig("127.0.0.1:0")
        self.here = LocalBroker(self.rig.directory)
        self.chance = random.Random(seed)
        self.rig.create_topic("many", MANY)
        self.offsets = {TopicPartition("many", number): 0 for number in range(MANY)}
        self.named = {}

    def fetch(self):
        """Most of the partitions, as a consumer does that pauses some; sometimes at other offsets."""
        chance = self.chance
        wanted = []
        for partition in self.offsets:
            if chance.random() < 0.1:
                continue
            offset = self.offsets[partition]
            if chance.random() < 0.02:
                offset = chance.choice([0, offset + 5])
            limit = 100 if chance.random() < 0.02 else 2**20
            wanted.append(FetchPartition(partition, offset, limit, topic_id=self.named.get(partition)))
        chance.shuffle(wanted)
        isolation = Isolation.COMMITTED if chance.random() < 0.2 else Isolation.HIGH_WATERMARK
        request = FetchRequest(tuple(wanted), max_wait_ms=0, isolation=isolation)
        there, here = (self.rig.now(each.fetch(request)).partitions for each in (self.rig.broker, self.here))
        for each, other in zip(there, here, strict=True):
            assert each[:2] == other[:2]
            if each.error is ErrorCode.NONE:
                told = (each.high_watermark, each.last_stable_offset, each.log_start_offset, each.topic_id)
                assert told == (
                    other.high_watermark,
                    other.last_stable_offset,
                    other.log_start_offset,
                    other.topic_id,
                )
                assert (bytes(each.data), each.next_offset) == (bytes(other.data), other.next_offset)
                self.offsets[each.partition] = each.next_offset
                self.named[each.partition] = each.topic_id
            else:
                self.offsets[each.partition] = 0
                self.named.pop(each.partition, None)

    def produce(self):
        for _ in range(self.chance.randint(1, 4)):
            self.rig.produce(b"x" * self.chance.randint(1, 60), to=self.chance.choice(list(self.offsets)))

    def cut(self):
        log = self.rig.directory.log(self.chance.choice(list(self.offsets)))
        log.delete_before(log.high_watermark)

    def lose_sessions(self):
        """As a broker that restarts, or has no room."""
        self.rig._listener._node.fetch_sessions._sessions.clear()

    def skip_epochs(self):
        for session in self.rig._listener._node.fetch_sessions._sessions.values():
            session.epoch += 1

    def make_again(self):
        self.rig.directory.delete_topic("many")
        self.rig.directory.create_topic("many", MANY, None)
        self.produce()

    def drop(self):
        """A fetch that is not wanted any more, and whose answer may come all the same."""
        wanted = tuple(FetchPartition(each, offset) for each, offset in self.offsets.items())
        pending = self.rig.broker.fetch(FetchRequest(wanted, max_wait_ms=self.chance.choice([0, 30])))
        if self.chance.random() < 0.5:
            time.sleep(0.005)
        pending.cancel()

    def close(self):
        self.here.close()
        self.rig.close()


@pytest.mark.parametrize("seed", range(3))
def test_what_comes_is_what_a_broker_in_this_process_gives(seed, asked):
    """150 random steps: other offsets, other partitions, lost sessions, topics that are made again. 1 s."""
    same = Same(seed)
    try:
        doings = [same.fetch] * 8 + [same.produce] * 3
        doings += [same.cut, same.lose_sessions, same.skip_epochs, same.make_again, same.drop]
        for _ in range(150):
            same.chance.choice(doings)()
            same.fetch()
    finally:
        same.close()
    assert any(request.session_epoch > 0 for _, request in asked)


class Standing(Same):
    """The same through a follower's link. What it was asked stands; what it does not name is as before."""

    def __init__(self, seed):
        super().__init__(seed)
        self.links = Links("follower")
        self.link = self.links.to(parse_address(self.rig._listener.address))
        self.rows = {}
        self.anew = set()
        """Of these the next result says something, be it that there is nothing new."""
        self.told = {}
        self.uses_ids = True

    def change(self):
        """Some at other offsets, some anew, some as they are, some no more."""
        chance = self.chance
        rows = []
        for partition in chance.sample(list(self.offsets), chance.choice([0, 1, 5, MANY])):
            offset = max(self.offsets[partition] + chance.choice([0, 0, 0, -1, 5]), 0)
            rows.append(FetchPartition(partition, offset, 2**20, -1, self.topic_id, -1, 0))
        rows += chance.sample(list(self.rows.values()), min(chance.choice([0, 0, 5]), len(self.rows)))
        rows = list({each.partition: each for each in rows}.values())
        standing = list(self.rows)
        forgotten = chance.sample(standing, min(chance.choice([0, 0, 1, 5]), len(standing)))
        self.link.change(rows, forgotten)
        for each in forgotten:
            self.rows.pop(each)
            self.anew.discard(each)
        self._note(rows)

    def _note(self, rows):
        self.anew |= {each.partition for each in rows if each != self.rows.get(each.partition)}
        self.rows |= {each.partition: each for each in rows}

    def fetch(self):
        if not self.rows:
            return
        request = FetchRequest((), 0, isolation=Isolation.LOG_END, replica=Fetcher(2, 5))
        news = self.rig.now(self.link.fetch(request))
        assert news.error is ErrorCode.NONE
        here = self.rig.now(
            self.here.fetch(request._replace(partitions=tuple(self.rows.values())))
        ).partitions
        found = {each.partition: each for each in news.partitions}
        assert len(found) == len(news.partitions)
        assert self.anew <= found.keys() <= self.rows.keys()
        self.anew = set()
        for other in here:
            each, partition = found.get(other.partition), other.partition
            is_quiet = other.error is ErrorCode.NONE and not other.data
            if each is None:
                assert is_quiet
            else:
                assert each.error is code_of_number(other.error)
                assert bytes(each.data) == bytes(other.data)
                self.told[partition] = each.high_watermark, each.log_start_offset
            if other.error is ErrorCode.NONE:
                assert self.told[partition] == (other.high_watermark, other.log_start_offset)
                self.offsets[partition] = other.next_offset

    def name(self):
        """The ids of topics are not known any more, or are now."""
        self.uses_ids = not self.uses_ids
        rows = [each._replace(topic_id=self.topic_id) for each in self.rows.values()]
        self.link.change(rows)
        self._note(rows)

    @property
    def topic_id(self):
        return self.rig.directory.topic("many").topic_id if self.uses_ids else None

    def close(self):
        self.links.close()
        super().close()


@pytest.mark.parametrize("seed", range(3))
def test_what_a_link_names_and_leaves_out_is_what_a_broker_in_this_process_gives(seed, asked):
    """200 random steps. 1 s."""
    same = Standing(seed)
    try:
        doings = [same.change] * 6 + [same.fetch] * 6 + [same.produce] * 3
        doings += [same.cut, same.lose_sessions, same.skip_epochs, same.make_again, same.name]
        for _ in range(200):
            same.chance.choice(doings)()
            same.fetch()
    finally:
        same.close()
    rows = [rows_of(request) for _, request in asked if request.session_epoch > 0]
    assert sum(rows) < len(rows) * MANY / 2
    assert {version > LAST_BY_NAME for version, _ in asked} == {True, False}


def test_a_poll_of_many_partitions_names_those_that_have_changed(asked):
    rig = ListeningRig("127.0.0.1:0")
    rig.create_topic("many", 200)
    many = [rig.directory.log(TopicPartition("many", number)) for number in range(200)]
    with connect(rig._listener.address) as shop, shop.consumer("many") as consumer:
        many[0].append(b"first", flush=True)
        assert reading(consumer, 1) == [b"first"]
        for number in range(1, 20):
            many[number].append(b"%d" % number, flush=True)
            assert reading(consumer, 1) == [b"%d" % number]
        consumer.pause(("many", 5))
        many[6].append(b"again", flush=True)
        assert reading(consumer, 1) == [b"again"]
    rig.close()
    (version, first), *rest = asked
    assert (version, rows_of(first), first.session_epoch) == (18, 200, 0)
    in_session = [request for _, request in rest if request.session_epoch > 0]
    assert [each.session_epoch for each in in_session] == list(range(1, len(in_session) + 1))
    assert max(map(rows_of, in_session)) <= 2
    assert sum(map(forgotten_of, in_session)) == 1


def reading(consumer, count):
    found = []
    deadline = time.monotonic() + SECONDS
    while len(found) < count:
        assert time.monotonic() < deadline, found
        found += [each.value for each in consumer.poll(0.2)]
    return found


@pytest.mark.parametrize("where", ["here", "there"])
@pytest.mark.parametrize("group", [None, "g"])
def test_a_consumer_of_a_topic_that_is_made_again_begins_again(tmp_path, caplog, where, group):
    """The new one has as many records as the old one had: nothing is out of range."""
    with logstore.open(tmp_path) as store, store.listen("127.0.0.1:0") as listener:
        store.create_topic("t").extend([(b"k", b"old")] * 5)
        with connect(listener.address) as shop:
            consumer = (store if where == "here" else shop).consumer(
                "t", group=group, enable_auto_commit=group is not None, auto_commit_interval_ms=1
            )
            with consumer:
                assert len(reading(consumer, 5)) == 5
                store.delete_topic("t")
                store.create_topic("t").extend([(b"k", b"%d" % number) for number in range(7)])
                assert reading(consumer, 7) == [b"%d" % number for number in range(7)]
                assert "deleted and made again" in caplog.text


@pytest.mark.parametrize("where", ["here", "there"])
def test_it_is_an_error_if_nothing_says_where_to_begin(tmp_path, where):
    with logstore.open(tmp_path) as store, store.listen("127.0.0.1:0") as listener:
        store.create_topic("t").extend([(b"k", b"old")] * 5)
        with connect(listener.address) as shop:
            consumer = (store if where == "here" else shop).consumer(
                partitions=[("t", 0)], auto_offset_reset="none"
            )
            with consumer:
                consumer.seek(("t", 0), 0)
                assert len(reading(consumer, 5)) == 5
                store.delete_topic("t")
                store.create_topic("t").extend([(b"k", b"new")] * 7)
                for _ in range(2):
                    with pytest.raises(OffsetOutOfRangeError, match="deleted and made again; offset 5"):
                        reading(consumer, 1)
                consumer.seek(("t", 0), 6)
                assert reading(consumer, 1) == [b"new"]


# Brokers that have their own ideas --------------------------------------------------------------------------


class Scripted:
    """A broker that answers Fetch by script: what it was asked, and the records it gives."""

    def __init__(self, peer, *codes, session_ids=(7,)):
        self.codes, self.session_ids = list(codes), list(session_ids)
        self.asked = []
        peer.answers[ApiKey.FETCH] = self.answer

    def answer(self, request, version):
        self.asked.append((request.session_id, request.session_epoch, rows_of(request)))
        if self.codes and (code := self.codes.pop(0)) is not ErrorCode.NONE:
            return fetch.FetchResponse(error_code=code)
        session_id = self.session_ids.pop(0) if len(self.session_ids) > 1 else self.session_ids[0]
        if request.session_epoch > 0 and not rows_of(request):
            return fetch.FetchResponse(session_id=session_id)
        topics = tuple(
            fetch.TopicResult(
                topic.name,
                topic.topic_id,
                tuple(
                    fetch.PartitionResult(each.partition, 0, 9, 9, 0, records=batch_of([b"a"], 0))
                    for each in topic.partitions
                ),
            )
            for topic in request.topics
        )
        return fetch.FetchResponse(session_id=session_id, topics=topics)


@pytest.fixture
def peer():
    with Peer() as made:
        tell_of([made], {"t": [0, 0]})
        yield made


@pytest.fixture
def broker(peer):
    made = RemoteBroker(peer.address, config=HASTY)
    yield made
    made.close()


BOTH = FetchRequest((FetchPartition(T0, 0), FetchPartition(T1, 0)), max_wait_ms=0)
GOOD = (ErrorCode.NONE, ErrorCode.NONE)


def codes_of(broker, request=BOTH):
    result = wait_for(broker.fetch(request), SECONDS)
    assert result is not None, "no answer comes"
    return tuple(each.error for each in result.partitions)


@pytest.mark.parametrize(
    ("code", "session_id"),
    [
        (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0),
        (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 7),
        (ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR, 7),
    ],
)
def test_a_session_that_is_lost_is_begun_again_at_once(peer, broker, code, session_id):
    script = Scripted(peer, ErrorCode.NONE, ErrorCode.NONE, code)
    assert [codes_of(broker) for _ in range(4)] == [GOOD] * 4
    assert script.asked == [(0, 0, 2), (7, 1, 0), (7, 2, 0), (session_id, 0, 2), (7, 1, 0)]


def test_a_broker_that_loses_every_session_is_asked_without(peer, broker):
    lost = ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    script = Scripted(peer, ErrorCode.NONE, lost, lost)
    assert [codes_of(broker) for _ in range(2)] == [GOOD] * 2
    assert script.asked == [(0, 0, 2), (7, 1, 0), (0, 0, 2), (0, -1, 2)]
    Scripted(peer, *[lost] * 50)
    assert codes_of(broker) == (lost, lost)


def test_a_broker_that_has_no_room_is_told_everything_each_time(peer, broker):
    script = Scripted(peer, session_ids=[0])
    assert [codes_of(broker) for _ in range(3)] == [GOOD] * 3
    assert script.asked == [(0, 0, 2)] * 3


def test_another_error_of_the_whole_request_is_told(peer, broker):
    script = Scripted(peer, ErrorCode.NONE, ErrorCode.UNKNOWN_SERVER_ERROR)
    assert codes_of(broker) == GOOD
    assert set(codes_of(broker)) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert codes_of(broker) == GOOD
    assert script.asked == [(0, 0, 2), (7, 1, 0), (7, 0, 2)]


def test_an_answer_of_another_session_is_none(peer, broker):
    Scripted(peer, session_ids=[7, 8, 9])
    assert codes_of(broker) == GOOD
    assert set(codes_of(broker)) == {ErrorCode.UNKNOWN_SERVER_ERROR}
    assert codes_of(broker) == GOOD


def test_after_a_connection_broke_everything_is_named(peer, broker):
    script = Scripted(peer)
    assert codes_of(broker) == GOOD
    hangs_up = [True]
    peer.answers[ApiKey.FETCH] = lambda request, version: (
        None if hangs_up and hangs_up.pop() else script.answer(request, version)
    )
    assert codes_of(broker, BOTH._replace(max_wait_ms=1_000)) == GOOD
    assert script.asked[1:] == [(7, 0, 2)]


def test_a_poll_beside_another_goes_without_a_session(peer, broker):
    script = Scripted(peer)
    assert codes_of(broker) == GOOD
    gate, sent = threading.Event(), threading.Event()

    def wait(request, version):
        if request.session_epoch > 0:
            sent.set()
            gate.wait(SECONDS)
        return script.answer(request, version)

    peer.answers[ApiKey.FETCH] = wait
    first = broker.fetch(BOTH._replace(max_wait_ms=4_000))
    assert sent.wait(SECONDS)
    one = BOTH._replace(partitions=BOTH.partitions[:1])
    assert codes_of(broker, one) == GOOD[:1]
    assert script.asked[-1] == (0, -1, 1)
    gate.set()
    peer.answers[ApiKey.FETCH] = script.answer
    first.cancel()
    while codes_of(broker, one) and script.asked[-1][1] < 2:
        time.sleep(0.005)
    assert script.asked[-1] == (7, 2, 0)  # the other partition is forgotten


def test_an_older_broker_is_asked_by_name(peer):
    peer.answers[ApiKey.API_VERSIONS] = lambda request, version: versions_response(FETCH=(4, 12))
    script = Scripted(peer)
    broker = RemoteBroker(peer.address, config=HASTY)
    wanted = FetchPartition(T0, 0, topic_id=topic_id_of("t"))
    assert codes_of(broker, FetchRequest((wanted,), max_wait_ms=0)) == GOOD[:1]
    (request,) = [request for key, _, request in peer.asked if key is ApiKey.FETCH]
    assert request.topics[0].name == "t"
    other = wanted._replace(topic_id=topic_id_of("another"))
    assert codes_of(broker, FetchRequest((other,), max_wait_ms=0)) == (ErrorCode.UNKNOWN_TOPIC_ID,)
    assert len(script.asked) == 1
    broker.close()


def test_what_a_broker_does_not_know_yet_is_asked_for_again(peer, broker):
    """A leader that has not heard of the topic, and metadata that have."""
    left = [2]

    def answer(request, version):
        if not left[0]:
            return script.answer(request, version)
        left[0] -= 1
        (topic,) = request.topics
        refused = tuple(fetch.PartitionResult(each.partition, 100, -1) for each in topic.partitions)
        return fetch.FetchResponse(topics=(fetch.TopicResult("", topic.topic_id, refused),))

    script = Scripted(peer)
    peer.answers[ApiKey.FETCH] = answer
    assert codes_of(broker) == GOOD
    peer.answers[ApiKey.FETCH] = lambda request, version: Silence()
