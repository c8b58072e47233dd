"""A queue on a cluster under faults: each job is done, and none is accepted twice."""

from __future__ import annotations

import itertools
import threading
import time
from contextlib import suppress

import logstore
from logstore.errors import LogstoreError
from tests.replica.node.loads import Load

TOPIC = "jobs"
GROUP = "workers"
_PATIENCE_SECONDS = 60


class Jobs(Load):
    """A producer of jobs, and two workers. They go on until they have done what was sent."""

    def __init__(self, addresses, partitions):
        self._addresses = addresses
        self._partitions = partitions
        self._has_sent_all = False
        self.sent = set()
        self.accepted = set()
        self.unknown = set()
        """What became of these the worker was not told."""
        self.doubled = []
        self._lock = threading.Lock()
        super().__init__(self._send, self._work, self._work)

    def _send(self):
        numbers = itertools.count()
        while not self.is_over.is_set():
            with (
                suppress(LogstoreError),  # what became of the rest is not known
                logstore.connect(*self._addresses, request_timeout_ms=5_000) as remote,
                remote.producer(acks="all", delivery_timeout_ms=20_000, request_timeout_ms=5_000) as producer,
            ):
                while not self.is_over.is_set():
                    number = next(numbers)
                    partition = number % self._partitions
                    producer.send(TOPIC, value=b"%d" % number, partition=partition).result()
                    self.sent.add(number)
                    time.sleep(0.005)
        self._has_sent_all = True

    def _work(self):
        until = None
        while True:
            if self._has_sent_all:
                until = until or time.monotonic() + _PATIENCE_SECONDS
                if self.sent <= self.accepted | self.unknown or time.monotonic() > until:
                    return
            with suppress(LogstoreError):
                self._work_for_a_while()

    def _work_for_a_while(self):
        """As one worker, for some seconds."""
        until = time.monotonic() + 5
        numbers = []
        with (
            logstore.connect(*self._addresses, request_timeout_ms=5_000) as remote,
            remote.queue(TOPIC, group=GROUP, record_lock_duration_ms=2_000) as queue,
        ):
            while time.monotonic() < until:
                try:
                    jobs = queue.poll(timeout=0.2, max_jobs=20)
                    numbers = [int(job.value) for job in jobs]
                    for job in jobs:
                        job.accept()
                    queue.flush()
                    # A job that was on its way when its leader changed may come late, and is not accepted.
                    with self._lock:
                        self.doubled.extend(number for number in numbers if number in self.accepted)
                        self.accepted.update(numbers)
                except LogstoreError:
                    self.unknown.update(numbers)

    def check(self):
        """How many were done."""
        assert not self.doubled, f"{self.doubled[:10]} were accepted twice"
        lost = self.sent - self.accepted - self.unknown
        assert not lost, f"{sorted(lost)[:10]} never came: {len(lost)} of {len(self.sent)}"
        assert self.accepted
        return len(self.accepted)
