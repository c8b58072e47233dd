"""A workload that is checked: producers and consumers, ours and librdkafka's, count their records.

Each producer numbers its records. Each consumer has to get all numbers of all producers, in their order.
"""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor

from confluent_kafka import Consumer, Producer

import logstore
from logstore.wire.apis import ApiKey
from logstore.wire.messages.cluster.api_versions import ApiVersionsRequest
from tests.wire.hostile.serving import CHECKED_TOPIC
from tests.wire.raw_client import RawClient

_BURST = 20
_PAUSE_SECONDS = 0.02
_GIVE_UP_SECONDS = 60


class Workload:
    """Runs from ``start`` to ``finish``. An error of any client is raised by ``finish``."""

    def __init__(self, address: str) -> None:
        self._address = address
        self._stopping = threading.Event()
        self._going = threading.Barrier(3)
        self._pool = ThreadPoolExecutor(5)
        self._running = []
        self.acknowledged: dict[str, int] = {}
        """By producer."""
        self.seconds: list[float] = []
        """How long small requests took."""

    def start(self) -> None:
        """Returns when every consumer has something."""
        for work in (self._produce_ours, self._produce_theirs, self._consume_ours, self._consume_theirs):
            self._running.append(self._pool.submit(work))
        self._running.append(self._pool.submit(self._ask))
        self._going.wait(_GIVE_UP_SECONDS)

    def finish(self) -> None:
        self._stopping.set()
        for each in self._running:
            each.result(2 * _GIVE_UP_SECONDS)
        self._pool.shutdown()

    def _produce_ours(self) -> None:
        with logstore.connect(self._address) as store, store.producer(linger_ms=1) as producer:
            number, waiting = 0, []
            while not self._stopping.is_set():
                for _ in range(_BURST):
                    waiting.append(producer.send(CHECKED_TOPIC, b"ours %d" % number, key=b"ours"))
                    number += 1
                time.sleep(_PAUSE_SECONDS)
                if len(waiting) >= 1_000:
                    _check(waiting)
            _check(waiting)
        self.acknowledged["ours"] = number

    def _produce_theirs(self) -> None:
        errors: list[object] = []
        delivered = 0

        def told(error, _message) -> None:
            nonlocal delivered
            delivered += error is None
            if error is not None:
                errors.append(error)

        settings = {"bootstrap.servers": self._address, "enable.idempotence": True, "linger.ms": 1}
        producer, number = Producer(settings), 0
        while not self._stopping.is_set():
            for _ in range(_BURST):
                producer.produce(CHECKED_TOPIC, b"theirs %d" % number, key=b"theirs", on_delivery=told)
                number += 1
            producer.poll(_PAUSE_SECONDS)
            time.sleep(_PAUSE_SECONDS)
        assert producer.flush(_GIVE_UP_SECONDS) == 0
        assert not errors, errors[:3]
        assert delivered == number
        self.acknowledged["theirs"] = number

    def _consume_ours(self) -> None:
        seen = Seen()
        with (
            logstore.connect(self._address) as store,
            store.consumer(CHECKED_TOPIC, group="ours") as consumer,
        ):
            while not self._has_all(seen):
                for record in consumer.poll(timeout=0.5):
                    seen.note(record.value)
                consumer.commit()
                self._going_on(seen)

    def _consume_theirs(self) -> None:
        seen = Seen()
        consumer = Consumer(
            {"bootstrap.servers": self._address, "group.id": "theirs", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe([CHECKED_TOPIC])
        while not self._has_all(seen):
            for message in consumer.consume(1_000, 0.5):
                assert message.error() is None, message.error()
                seen.note(message.value())
            self._going_on(seen)
        consumer.close()

    def _going_on(self, seen: Seen) -> None:
        if seen.counts and not seen.has_begun:
            seen.has_begun = True
            self._going.wait(_GIVE_UP_SECONDS)

    def _has_all(self, seen: Seen) -> bool:
        """Whether a consumer has what was acknowledged.

        Raises:
            AssertionError: it still does not have it after a minute.
        """
        if not self._stopping.is_set() or len(self.acknowledged) < 2:
            seen.until = time.monotonic() + _GIVE_UP_SECONDS
            return False
        if dict(seen.counts) == self.acknowledged:
            return True
        assert time.monotonic() < seen.until, f"{dict(seen.counts)} of {self.acknowledged}"
        return False

    def _ask(self) -> None:
        """How long a client waits for a small answer."""
        with RawClient(self._address) as client:
            while not self._stopping.is_set():
                began = time.monotonic()
                assert client.ask(ApiKey.API_VERSIONS, ApiVersionsRequest("x", "1"), 3).error_code == 0
                self.seconds.append(time.monotonic() - began)
                time.sleep(0.05)


def _check(waiting) -> None:
    for each in waiting:
        each.result(_GIVE_UP_SECONDS)
    waiting.clear()


class Seen:
    """What a consumer got: of each producer, all numbers from 0 on."""

    def __init__(self) -> None:
        self.counts: defaultdict[str, int] = defaultdict(int)
        self.until = 0.0
        self.has_begun = False

    def note(self, value: bytes) -> None:
        name, _, number = value.decode().partition(" ")
        assert int(number) == self.counts[name], f"{name} {number} after {self.counts[name]} records"
        self.counts[name] += 1
