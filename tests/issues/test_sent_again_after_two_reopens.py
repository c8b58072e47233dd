"""A log remembers only the last batch of a producer after it was reopened twice. The batches in front of it,
of which the producer had not heard, were refused when they came again. The producer took that for a gap, and
sent them all with a new id: they were in the log twice.

Since then a broker says that it has had such a batch. That is a delivery, at an offset that is not known.
"""

from __future__ import annotations

import pytest

import logstore
from logstore.errors import OutOfOrderError
from logstore.model import ProducerIdentity
from logstore.testing import ManualClock, MemoryFiles


@pytest.fixture
def store():
    with logstore.open("/store", files=MemoryFiles(), clock=ManualClock()) as store:
        store.create_topic("orders")
        yield store


def test_nothing_is_twice(store):
    producer = store.producer(acks="all", linger_ms=0, batch_size=1)

    def deliver():
        for _ in range(20):
            store.run_background()
            store._directory.context.clock.advance(100)
            producer.run_due()

    sent = [producer.send("orders", b"0")]
    deliver()  # until then no other is sent
    sent += [producer.send("orders", b"%d" % number) for number in range(1, 9)]
    producer.run_due()
    log = store["orders"][0]
    assert log.log_end_offset == 6, "as many as may be in flight"
    for _ in range(2):
        store["orders"].reopen(0)
    deliver()
    log = store["orders"][0]
    assert [record.value for record in log.read()] == [b"%d" % number for number in range(9)]
    assert [each.result(0).offset for each in sent] == [0, -1, -1, -1, -1, 5, 6, 7, 8]
    assert log.durable_offset == 9


@pytest.mark.parametrize(
    ("first", "count", "was_appended"),
    [(0, 2, True), (2, 2, True), (3, 2, False), (5, 1, False), (2**31 - 2, 2, True)],
)
def test_what_the_log_says_of_it(store, first, count, was_appended):
    log = store["orders"][0]
    for sequence in (0, 2):
        log.extend([b"a", b"b"], producer=ProducerIdentity(7, 0, sequence))
    for _ in range(2):
        log = store["orders"].reopen(0)
    rows = [b"x"] * count
    if (first, count) == (2, 2):  # the last one, which it remembers
        assert log.extend(rows, producer=ProducerIdentity(7, 0, first)) == range(2, 4)
        return
    with pytest.raises(OutOfOrderError, match="the next must be 4") as raised:
        log.extend(rows, producer=ProducerIdentity(7, 0, first))
    assert raised.value.was_appended is was_appended
