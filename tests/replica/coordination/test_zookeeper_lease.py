"""From when on the lease counts, without a server."""

from __future__ import annotations

import pytest

from logstore.testing import ManualClock

pytest.importorskip("kazoo")

from logstore.replica.coordination import zookeeper

SESSION_MS = 1_000


class Connection:
    def _invoke(self, *args):
        return None


class Client:
    """What the signs of life know of kazoo's."""

    def __init__(self):
        self._connection = Connection()
        self.client_id = (7, b"")


class Answer:
    def __init__(self, *, is_good=True):
        self._is_good = is_good

    def successful(self):
        return self._is_good

    def get_nowait(self):
        return [True]


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def signs(clock):
    made = zookeeper._SignsOfLife(Client(), clock, SESSION_MS)
    clock.advance(100)
    made.on_connected()
    return made


def answer(signs, sent_ms, session_id=7, **how):
    signs._on_answer(Answer(**how), session_id, sent_ms)


def test_a_new_session_counts_from_before_it_was_asked_for(signs):
    assert signs.begin(print).until_ms == 900


def test_a_sign_counts_when_the_leader_must_have_heard_of_it(signs):
    """A quarter of the session later."""
    lease = signs.begin(print)
    for sent_ms in (100, 200, 249):
        answer(signs, sent_ms)
    assert lease.until_ms == 900
    answer(signs, 350)
    assert lease.until_ms == 100 + 900
    answer(signs, 450)
    assert lease.until_ms == 200 + 900
    answer(signs, 5_000)  # what was sent in between may have been lost
    assert lease.until_ms == 450 + 900


def test_what_was_not_answered_well_does_not_count(signs):
    lease = signs.begin(print)
    for sent_ms in range(100, 900, 100):
        answer(signs, sent_ms, is_good=False)
        answer(signs, sent_ms, session_id=6)
    assert lease.until_ms == 900


def test_a_lost_session_is_told_once_and_gets_no_lease_again(signs, clock):
    told = []
    lease = signs.begin(lambda: told.append(1))
    signs.on_lost()
    assert lease.is_lost
    assert lease.until_ms == 0
    lease.tell()
    lease.tell()
    assert told == [1]
    clock.advance(1_000)
    signs._client.client_id = (8, b"")
    signs.on_connected()
    answer(signs, 1_200, session_id=8)
    assert lease.until_ms == 0
    assert signs.begin(print).until_ms == 100 + 900  # it was lost then, and asked for later


def test_the_same_session_through_another_connection_goes_on(signs, clock):
    lease = signs.begin(print)
    answer(signs, 100)
    answer(signs, 400)
    clock.advance(500)
    signs.on_connected()
    assert lease.until_ms == 100 + 900
