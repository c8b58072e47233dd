"""``send()`` returns at once, but not while the broker of a connection did not answer: a second after a topic
was looked at last, each call that began a batch waited a minute (``max_block_ms``) to hear whether the topic
had changed. It goes by what is known, and what the broker has told meanwhile counts from the next batch on.
"""

from __future__ import annotations

import time

import pytest
from tests.broker.rig import Rig

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Promise
from logstore.broker.requests import MetadataResult, TopicMetadata
from logstore.clients.producer import Producer
from logstore.clients.settings import ProducerConfig
from logstore.errors import UnknownTopicError

KEYS = [b"key %d" % number for number in range(40)]


class SlowMetadata:
    """A broker that tells of topics when a test says so."""

    def __init__(self, broker):
        self._broker = broker
        self.is_slow = False
        self.waiting = []

    def __getattr__(self, name):
        return getattr(self._broker, name)

    def metadata(self, request):
        if not self.is_slow:
            return self._broker.metadata(request)
        self.waiting.append((Promise(), request))
        return self.waiting[-1][0]

    def answer(self, error=None):
        while self.waiting:
            promise, request = self.waiting.pop()
            failed = MetadataResult("", tuple(TopicMetadata(name, error) for name in request.topics))
            promise.complete(self._broker.metadata(request).poll() if error is None else failed)


def send(rig, value, **settings):
    sent = rig.producer.send("t", value, **settings)
    rig.producer.flush()
    return sent.result().partition


@pytest.fixture
def rig():
    rig = Rig()
    rig.slow = SlowMetadata(rig.broker)
    rig.producer = Producer(rig.slow, config=ProducerConfig(acks=1, linger_ms=0), clock=rig.clock)
    send(rig, b"0", partition=0)
    rig.clock.advance(1_000)
    rig.slow.is_slow = True
    return rig


def test_records_go_by_what_is_known(rig):
    began = time.monotonic()
    for number in range(20):
        rig.clock.advance(1_000)
        assert send(rig, b"%d" % number, partition=0) == 0
    assert time.monotonic() - began < 10
    assert len(rig.slow.waiting) == 1  # it is asked once


def test_what_the_broker_tells_late_counts(rig):
    send(rig, b"1", partition=0)
    rig.directory.add_partitions("t", 3)
    rig.slow.answer()
    assert {send(rig, b"v", key=key) for key in KEYS} == {0, 1, 2}


def test_an_old_answer_is_not_believed_if_there_is_a_newer_one(rig):
    send(rig, b"1", partition=0)
    rig.slow.answer()
    rig.slow.is_slow = False
    rig.directory.add_partitions("t", 3)
    rig.clock.advance(60_000)
    assert {send(rig, b"v", key=key) for key in KEYS} == {0, 1, 2}


def test_a_broker_that_gives_up_is_asked_again(rig):
    send(rig, b"1", partition=0)
    rig.slow.answer(ErrorCode.REQUEST_TIMED_OUT)
    assert send(rig, b"2", partition=0) == 0
    rig.clock.advance(1_000)
    assert send(rig, b"3", partition=0) == 0
    assert len(rig.slow.waiting) == 1


def test_a_topic_that_is_gone_is_told(rig):
    send(rig, b"1", partition=0)
    rig.directory.delete_topic("t")
    rig.slow.answer()
    rig.slow.is_slow = False
    with pytest.raises(UnknownTopicError):
        rig.producer.send("t", b"2", partition=0)
