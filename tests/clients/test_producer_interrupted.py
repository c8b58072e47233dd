"""Ctrl-C at any line of a producer, which the program catches: what ``send()`` had returned for is delivered
once, in order, and ``flush()`` says so. Costs 2 s."""

from __future__ import annotations

import contextlib
import itertools
import signal
import sys
import time

import pytest

import logstore.clients
from logstore.clients.producer import Producer
from logstore.clients.settings import ProducerConfig
from logstore.errors import UsageError
from tests.broker.rig import T0, Rig
from tests.clients.flaky import FlakyBroker
from tests.faults.interrupt import interrupt_at_lines
from tests.rotation import seed_of_turn

PLACES = tuple(logstore.clients.__path__)
STEP = 5

pytestmark = pytest.mark.skipif(
    sys.version_info[:2] != (3, 11),
    reason="knows the instructions of Python 3.11: where it may be interrupted",
)


class Work:
    """Of one producer, with a clock set by hand, and so in one thread."""

    def __init__(self, **settings):
        self.rig = Rig(partitions=1)
        settings = {"acks": 1, "linger_ms": 1, "batch_size": 400, "retry_backoff_ms": 1, **settings}
        chances = {} if settings.pop("is_flaky", False) else {"lost": 0, "unanswered": 0, "late": 0}
        self.broker = FlakyBroker(self.rig.broker, seed=7, **chances)
        self.producer = Producer(self.broker, config=ProducerConfig(**settings), clock=self.rig.clock)
        self.sent = {}

    def step(self, number):
        value = b"%d" % number + b"x" * (1_000 if number % 8 == 7 else 60)
        self.sent[value] = self.producer.send("t", value, partition=0)
        if number % 5 == 4:
            self.rig.clock.advance(1)
            self.producer.run_due()

    def run(self, interrupter):
        """All steps. The one that is interrupted is not repeated."""

        def steps():
            for number in range(24):
                with contextlib.suppress(KeyboardInterrupt):
                    self.step(number)
            with contextlib.suppress(KeyboardInterrupt):
                self.producer.flush()

        interrupter(steps)

    def check(self):
        self.broker.is_calm = True
        for _ in range(100):
            self.rig.pass_time(1)
            self.broker.answer_some()
            self.producer.run_due()
        self.producer.flush()
        found = [record.value for record in self.rig.directory.log(T0).read()]
        assert all(each.is_done for each in self.sent.values())
        assert [value for value in found if value in self.sent] == list(self.sent)
        assert len(found) == len(set(found))
        assert all(each.result(0).offset == found.index(value) for value, each in self.sent.items())
        self.producer.close()
        assert self.producer._accumulator.undelivered_count == self.producer._accumulator.used_bytes() == 0


@pytest.mark.parametrize("settings", [{}, {"is_flaky": True}, {"max_in_flight": 1}], ids=str)
def test_at_any_line(settings):
    assert interrupt_at_lines(lambda: Work(**settings), PLACES, seed_of_turn() % STEP, STEP) > 20


def test_a_signal_handler_that_sends(tmp_path):
    """It is refused, or its record is delivered."""
    sent = []

    def handle(*_):
        with contextlib.suppress(UsageError):
            sent.append(producer.send("t", b"of the handler"))

    with logstore.open(tmp_path) as store, store.producer(linger_ms=1) as producer:
        store.create_topic("t")
        before = signal.signal(signal.SIGALRM, handle)
        signal.setitimer(signal.ITIMER_REAL, 0.002, 0.002)
        try:
            ends_at = time.monotonic() + 0.5
            while time.monotonic() < ends_at:
                sent.append(producer.send("t", b"of the program"))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)
            signal.signal(signal.SIGALRM, before)
        producer.flush(timeout=30)
        assert all(each.is_done for each in sent)
        assert store["t"][0].log_end_offset == len(sent)


class _BehindCalls:
    """Raises when the n-th call of a function in C returns, where an interrupt may strike, too."""

    def __init__(self, at):
        self.left = at

    def __call__(self, frame, event, argument):
        if event == "c_return" and frame.f_globals["__name__"].startswith(
            ("logstore.clients", "logstore.turns")
        ):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


def test_behind_any_call():
    """Behind the try for the lock of who drives, the lock stayed taken, and nothing was ever sent again."""
    for at in itertools.count(1):
        work, interrupts = Work(), _BehindCalls(at)
        work.step(0)
        work.rig.clock.advance(1)
        sys.setprofile(interrupts)
        try:
            work.producer.run_due()
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(None)
        assert not work.producer._sender._driving.locked(), at
        work.check()
        if interrupts.left > 0:
            break
    assert at > 20
