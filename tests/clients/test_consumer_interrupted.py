"""Ctrl-C at any line of a consumer, which the program catches: every record comes all the same, and once."""

from __future__ import annotations

import contextlib
import sys

import pytest

import logstore.clients
from logstore.clients.consumer import Consumer
from tests.broker.rig import T0, T1, Rig
from tests.faults.interrupt import interrupt_at_lines
from tests.rotation import seed_of_turn

PLACES = tuple(logstore.clients.__path__)
STEP = 3
COUNT = 12

pytestmark = [
    pytest.mark.skipif(
        sys.version_info[:2] != (3, 11),
        reason="knows the instructions of Python 3.11: where it may be interrupted",
    ),
    # Python ignores what comes while it drops a generator
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


def take_records(consumer, found):
    found += [record.value for record in consumer.poll(timeout=0, max_records=3)]


def take_columns(consumer, found):
    found += consumer.poll_arrow(timeout=0)["value"].to_pylist()


def take_two(consumer, found):
    for record in consumer.drain():
        found.append(record.value)
        if len(found) % 2 == 0:
            break


WAYS = {
    "records": (take_records, {}),
    "columns": (take_columns, {}),
    "one by one": (take_two, {}),
    "deserialized": (take_records, {"value_deserializer": bytes}),
    "intercepted": (take_records, {"interceptors": [list]}),
}


class Work:
    """Of one consumer, with a clock set by hand, and so in one thread."""

    def __init__(self, poll, settings):
        rig = Rig()
        for partition, first in ((T0, 0), (T1, 1)):
            values = [b"%d" % number for number in range(first, COUNT, 2)]
            rig.produce(*values[:4], to=partition)
            rig.produce(*values[4:], to=partition)
        self.consumer = Consumer(rig.broker, ("t",), clock=rig.clock, **settings)
        self.poll = poll
        self.found = []

    def run(self, interrupter):
        def polls():
            for _ in range(3 * COUNT):
                if len(self.found) == COUNT:
                    break
                with contextlib.suppress(KeyboardInterrupt):
                    self.poll(self.consumer, self.found)

        interrupter(polls)

    def check(self):
        numbers = [int(value) for value in self.found]
        assert sorted(numbers) == list(range(COUNT))
        for first in (0, 1):
            assert [number for number in numbers if number % 2 == first] == list(range(first, COUNT, 2))
        assert self.consumer.lag() == {T0: 0, T1: 0}
        assert self.consumer.poll(timeout=0) == []


@pytest.mark.parametrize("way", WAYS)
def test_at_any_line(way):
    if way == "columns":
        pytest.importorskip("pyarrow")
    assert interrupt_at_lines(lambda: Work(*WAYS[way]), PLACES, seed_of_turn() % STEP, STEP) > 20


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("name", ["value_deserializer", "interceptors"])
def test_in_the_middle_of_a_function_of_the_program(error, name):
    errors = [error]

    def interrupted(given):
        if errors:
            raise errors.pop()
        return given

    work = Work(take_records, {name: [interrupted] if name == "interceptors" else interrupted})
    with pytest.raises(error):
        work.consumer.poll(timeout=0)
    work.run(lambda polls: polls())
    work.check()
