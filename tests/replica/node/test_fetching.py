"""What a node asks its leaders for, and when. Costs two seconds."""

from __future__ import annotations

import threading
import time

import pytest

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.pending import Answered, Promise
from logstore.broker.requests import FetchedPartition
from logstore.model import TopicPartition
from logstore.replica.coordination.interface import Endpoint
from logstore.replica.node.fetching import MAX_PARTITION_BYTES, MAX_WAIT_MS, Fetchers
from logstore.replica.node.limiting import CatchUpLimit
from logstore.replica.rules.actions import Fetch
from logstore.replica.rules.partition_state import Member
from logstore.wire.remote.fetches.following_session import FetchNews
from tests.replica.node.cluster import eventually

LEADER = 1
MANY_SECONDS = 10


class Follower:
    """A replica without a log: each record has one byte."""

    def __init__(self, number, *, is_in_sync=True):
        self.partition = TopicPartition("t", number)
        self.topic_id = None
        self.follows = Member(LEADER, 1)
        self.is_in_sync = is_in_sync
        self.offset = 0
        self.log_start_offset = 0
        self.troubles = []
        self.looks = 0
        self._asked = None

    def plan_fetch(self, *, anew=False):
        if self._asked is not None and not anew:
            return None
        self._asked = Fetch(LEADER, self.offset, 0, 0)
        return self._asked

    def asks(self, fetch):
        self.looks += 1
        return fetch is self._asked

    def on_answer(self, fetch, found):
        if fetch is not self._asked:
            return False
        self._asked = None
        if found is None or found.error is not NONE:
            return False
        self.offset += len(found.data)
        return True

    def note_trouble(self, error):
        self.troubles.append(error)

    def note_well(self):
        pass


class Leader:
    """Answers from what a test has set, with what is new to who asks; a request that finds nothing waits as
    long as it may. Each request is noted with all that stands then."""

    def __init__(self):
        self.requests = []
        self.named = []
        """Which partitions each request has named."""
        self.refused = {}
        self.sizes = {}
        self.batch_bytes = 1

    def connect(self, endpoint):
        return _LinkTo(self)

    def found(self, row, *, is_first):
        error = self.refused.get(row.partition.partition, NONE)
        if error is not NONE:
            return FetchedPartition(row.partition, error)
        size = self.sizes.get(row.partition.partition, 0)
        room = row.max_bytes // self.batch_bytes * self.batch_bytes
        if is_first:  # the first batch comes however large it is
            room = max(room, self.batch_bytes)
        data = bytes(max(min(size - row.offset, room), 0))
        return FetchedPartition(row.partition, NONE, data, high_watermark=size, log_start_offset=0)


class _LinkTo:
    """What was asked stands."""

    def __init__(self, leader):
        self._leader = leader
        self._rows = {}
        self._anew = {}
        self._told = {}

    def close(self):
        pass

    def change(self, rows, forgotten):
        for partition in forgotten:
            self._rows.pop(partition, None)
            self._anew.pop(partition, None)
            self._told.pop(partition, None)
        for row in rows:
            if self._rows.get(row.partition) != row:
                self._rows[row.partition] = self._anew[row.partition] = row

    def fetch(self, request):
        rows = tuple(self._rows.values())
        self._leader.requests.append(request._replace(partitions=rows))
        self._leader.named.append(set(self._anew))
        most_bytes = request.max_bytes
        news = self._news(rows, most_bytes)
        if news:
            return Answered(self._answer(news))
        promise = Promise()
        timer = threading.Timer(
            request.max_wait_ms / 1_000, lambda: promise.complete(self._answer(self._news(rows, most_bytes)))
        )
        timer.daemon = True
        timer.start()
        return promise

    def _news(self, rows, most_bytes):
        news = []
        is_empty = True
        for row in rows:
            room = row._replace(max_bytes=min(row.max_bytes, most_bytes))
            found = self._leader.found(room, is_first=is_empty)
            told = found.high_watermark, found.error
            is_empty = is_empty and not found.data
            most_bytes = max(most_bytes - len(found.data), 0)
            if found.data or found.error is not NONE or self._told.get(row.partition) != told:
                news.append(found)
                self._told[row.partition] = told
        return news

    def _answer(self, news):
        anew, self._anew = self._anew, {}
        for each in news:
            anew.pop(each.partition, None)
        return FetchNews(
            (*news, *[self._leader.found(row._replace(max_bytes=0), is_first=False) for row in anew.values()])
        )


@pytest.fixture
def leader():
    return Leader()


@pytest.fixture
def limit():
    return None


@pytest.fixture
def fetchers(leader, limit):
    opened = Fetchers(
        lambda: Member(2, 1),
        lambda node_id: Endpoint("PLAINTEXT", "localhost", 1),
        leader.connect,
        CatchUpLimit(limit, lambda: time.monotonic() * 1_000),
    )
    yield opened
    opened.close()


def asked_of(leader, follower):
    return [
        row
        for request in leader.requests
        for row in request.partitions
        if row.partition == follower.partition
    ]


def test_a_leader_that_does_not_know_yet_is_asked_again_soon(leader, fetchers):
    """Also if other partitions are quiet, which are asked for with a long wait."""
    quiet, new = Follower(0), Follower(1)
    leader.refused[1] = ErrorCode.NOT_LEADER_OR_FOLLOWER
    fetchers.follow(quiet)
    fetchers.follow(new)
    eventually(lambda: len(asked_of(leader, new)) >= 2)
    waits = [request.max_wait_ms for request in leader.requests if len(request.partitions) == 1]
    assert min(waits[-1:]) < MAX_WAIT_MS / 4
    leader.refused.clear()
    leader.sizes[1] = 1
    eventually(lambda: new.offset == 1)


def test_who_is_refused_is_asked_for_less_and_less_often_and_told_of_once(leader, fetchers, caplog):
    quiet, refused = Follower(0), Follower(1)
    leader.refused[1] = ErrorCode.KAFKA_STORAGE_ERROR
    fetchers.follow(quiet)
    fetchers.follow(refused)
    time.sleep(1.0)
    assert 3 <= len(asked_of(leader, refused)) <= 6
    assert len([each for each in caplog.records if "KAFKA_STORAGE_ERROR" in each.getMessage()]) == 1


def test_new_partitions_do_not_wait_for_each_other(leader, fetchers):
    followers = [Follower(number) for number in range(8)]
    began = time.monotonic()
    for follower in followers:
        fetchers.follow(follower)
        eventually(lambda follower=follower: asked_of(leader, follower))
    assert time.monotonic() - began < 2  # with a pause after each request that was ended, it took four


def test_a_new_partition_does_not_disturb_the_others(leader, fetchers):
    """They are not asked for again; it is asked for with them soon. 0.6 s."""
    quiet, new = [Follower(number) for number in range(5)], Follower(9)
    for follower in quiet:
        fetchers.follow(follower)
    eventually(lambda: len(together(leader, quiet[:1], quiet[4:])) > 1 and not leader.named[-1])
    before, began = len(leader.named), time.monotonic()
    leader.sizes[9] = 1
    fetchers.follow(new)
    eventually(lambda: new.offset == 1)
    assert time.monotonic() - began < MAX_WAIT_MS / 1_000 / 2
    eventually(lambda: together(leader, [new], quiet))
    assert all(each <= {new.partition} for each in leader.named[before:])
    leader.sizes[9] = 5
    eventually(lambda: new.offset == 5)
    time.sleep(0.1)
    count = len(leader.requests)
    time.sleep(0.1)
    assert len(leader.requests) <= count + 1  # the lane for new ones has nobody


def test_one_that_is_behind_does_not_wait_for_another_that_has_nothing_to_copy(leader, fetchers):
    """So it is when a node comes back: some of its partitions are quiet."""
    quiet, late = Follower(0, is_in_sync=False), Follower(1, is_in_sync=False)
    fetchers.follow(quiet)
    eventually(lambda: asked_of(leader, quiet))
    leader.sizes[1] = 1
    began = time.monotonic()
    fetchers.follow(late)
    eventually(lambda: late.offset == 1)
    assert time.monotonic() - began < MAX_WAIT_MS / 1_000 / 2


def test_one_that_falls_behind_while_it_is_new_copies_apart(leader, fetchers):
    quiet, new = Follower(0), Follower(1)
    fetchers.follow(quiet)
    eventually(lambda: asked_of(leader, quiet))
    fetchers.follow(new)
    new.is_in_sync = False
    leader.sizes[1] = 3 * MAX_PARTITION_BYTES
    eventually(lambda: new.offset == 3 * MAX_PARTITION_BYTES)
    time.sleep(0.6)
    assert not together(leader, [new], [quiet])


def together(leader, some, others):
    """The requests that ask for some of both."""
    return [
        request
        for request in leader.requests
        if {row.partition for row in request.partitions} & {each.partition for each in some}
        and {row.partition for row in request.partitions} & {each.partition for each in others}
    ]


def test_who_is_in_sync_does_not_wait_for_what_others_copy(leader, fetchers):
    behind = [Follower(number, is_in_sync=False) for number in range(5)]
    leader.sizes = dict.fromkeys(range(5), 3 * MAX_PARTITION_BYTES)
    others = [Follower(number) for number in (5, 6)]
    for follower in (*behind, *others):
        fetchers.follow(follower)
    eventually(lambda: all(each.offset == 3 * MAX_PARTITION_BYTES for each in behind), MANY_SECONDS)
    assert not together(leader, behind, others)


def test_of_many_partitions_only_those_cost_anything_of_which_there_is_news(leader, fetchers):
    """Of the others all are looked at once a second. 1 s."""
    some, others = Follower(0), [Follower(number) for number in range(1, 500)]
    for each in (some, *others):
        fetchers.follow(each)
    eventually(lambda: asked_of(leader, others[-1]) and not leader.named[-1])
    before, count = sum(each.looks for each in others), len(leader.named)
    began = time.monotonic()
    leader.sizes[0] = 50 * MAX_PARTITION_BYTES
    eventually(lambda: some.offset == leader.sizes[0])
    seconds = time.monotonic() - began
    named = leader.named[count:]
    assert len(named) >= 50
    assert all(each <= {some.partition} for each in named)
    assert (sum(each.looks for each in others) - before) / len(others) <= seconds + 2


@pytest.mark.parametrize("has_more", [False, True])
def test_who_has_caught_up_is_asked_for_with_those_in_sync(leader, fetchers, has_more):
    """Whether there is more for it to copy then, or its last question still stands."""
    others, late = [Follower(0)], Follower(1, is_in_sync=False)
    leader.sizes = {1: 10}
    fetchers.follow(others[0])
    fetchers.follow(late)
    eventually(lambda: late.offset == 10)
    if not has_more:
        eventually(lambda: [row.offset for row in asked_of(leader, late)].count(10) > 1)
    late.is_in_sync = True
    leader.sizes[1] += has_more
    eventually(lambda: together(leader, [late], others))
    leader.sizes[1] = 20
    eventually(lambda: late.offset == 20)


def test_who_falls_behind_is_asked_for_apart(leader, fetchers):
    others, late = [Follower(0)], Follower(1)
    for each in (*others, late):
        fetchers.follow(each)
    eventually(lambda: together(leader, [late], others))
    late.is_in_sync = False
    leader.sizes = {1: 10}
    eventually(lambda: late.offset == 10)
    before = len(together(leader, [late], others))
    leader.sizes = {1: 20}
    eventually(lambda: late.offset == 20)
    assert len(together(leader, [late], others)) <= before + 1


def test_who_is_let_go_is_not_asked_for(leader, fetchers):
    late = Follower(0, is_in_sync=False)
    leader.sizes = {0: 10**12}
    fetchers.follow(late)
    eventually(lambda: late.offset)
    fetchers.let_go(late)
    time.sleep(0.2)
    count = len(leader.requests)
    time.sleep(0.2)
    assert len(leader.requests) == count


def test_who_is_let_go_waits_for_no_answer(leader, fetchers):
    """Another connection may ask for it then. 0.5 s."""
    alone = Follower(0)
    fetchers.follow(alone)
    eventually(lambda: asked_of(leader, alone))
    fetchers.let_go(alone)
    eventually(lambda: alone.plan_fetch() is not None)


@pytest.mark.parametrize("limit", [None, 20_000_000])
def test_batches_larger_than_a_piece_come_though_others_always_have_records(leader, fetchers):
    """What is first in an answer gives a batch of any size, and the others only what has room."""
    leader.batch_bytes = MAX_PARTITION_BYTES // 2
    leader.sizes = {0: 10**12, 1: 2 * MAX_PARTITION_BYTES, 2: 2 * MAX_PARTITION_BYTES}
    behind = [Follower(number, is_in_sync=False) for number in (1, 2)]
    for follower in (Follower(0), *behind):
        fetchers.follow(follower)
    eventually(lambda: all(each.offset == 2 * MAX_PARTITION_BYTES for each in behind), MANY_SECONDS)


@pytest.mark.parametrize("limit", [400_000])
def test_many_that_copy_keep_the_limit_together(leader, fetchers):
    """Each was given its piece in the first answer: megabytes, and the wait after them is ten seconds at
    most. 1.5 s."""
    behind = [Follower(number, is_in_sync=False) for number in range(60)]
    leader.sizes = dict.fromkeys(range(60), MAX_PARTITION_BYTES)
    began = time.monotonic()
    for each in behind:
        fetchers.follow(each)
    eventually(lambda: sum(each.offset for each in behind) >= 600_000)
    seconds = time.monotonic() - began
    assert sum(each.offset for each in behind) <= 400_000 * (seconds + 1.5)
    count = len(leader.requests)
    assert count < 60  # while the limit lets nothing come nobody asks


def test_who_has_fallen_behind_alone_copies_as_fast_as_it_can(leader, fetchers):
    behind = Follower(0, is_in_sync=False)
    leader.sizes = {0: 8 * MAX_PARTITION_BYTES}
    fetchers.follow(behind)
    eventually(lambda: behind.offset == 8 * MAX_PARTITION_BYTES)
    assert len([row for row in asked_of(leader, behind) if row.offset < 8 * MAX_PARTITION_BYTES]) == 8


def test_who_copies_beside_others_asks_for_pieces(leader, fetchers):
    """One record that is acknowledged would wait for whole answers. 0.2 s."""
    behind = Follower(1, is_in_sync=False)
    leader.sizes = {1: 2 * MAX_PARTITION_BYTES}
    for each in (Follower(0), behind):
        fetchers.follow(each)
    eventually(lambda: behind.offset == 2 * MAX_PARTITION_BYTES)
    rows = [row for row in asked_of(leader, behind) if row.offset < 2 * MAX_PARTITION_BYTES]
    assert {row.max_bytes for row in rows} == {MAX_PARTITION_BYTES // 4}
