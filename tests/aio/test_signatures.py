"""The calls take the arguments of the synchronous ones."""

import inspect

import pytest

import logstore
from logstore import aio
from logstore.clients.consumer import Consumer
from logstore.clients.groups.groups import Groups
from logstore.clients.producer import Producer
from logstore.clients.queues.job import Job
from logstore.clients.queues.queue import Queue
from logstore.partition.log import Log
from logstore.store import Store
from logstore.topic import Topic

KNOWN = {
    ("AsyncProducer", "send"): {"on_delivery"},  # await what send() gave
}
"""The arguments that ``docs/aio.md`` says are missing."""

SYNCHRONOUS = {
    aio.AsyncConsumer: Consumer,
    aio.AsyncGroups: Groups,
    aio.AsyncLog: Log,
    aio.AsyncProducer: Producer,
    aio.AsyncQueue: Queue,
    aio.AsyncStore: Store,
    aio.AsyncTopic: Topic,
}

ABOUT_JOBS = {"accept", "reject", "release", "renew"}
"""Calls of a queue that are calls of the job for synchronous programs."""


def arguments(function, leave_out):
    parameters = inspect.signature(function).parameters.values()
    return [(each.name, each.kind, each.default) for each in parameters if each.name not in leave_out]


def pairs():
    for mine, theirs in SYNCHRONOUS.items():
        for name, function in vars(mine).items():
            if name.startswith("_") or not inspect.isfunction(function):
                continue
            if mine is aio.AsyncQueue and name in ABOUT_JOBS:
                yield mine, name, function, getattr(Job, name)
            elif hasattr(theirs, name):
                yield mine, name, function, getattr(theirs, name)


@pytest.mark.parametrize(
    ("mine", "name", "function", "other"),
    [pytest.param(*each, id=f"{each[0].__name__}.{each[1]}") for each in pairs()],
)
def test_of_each_call(mine, name, function, other):
    left_out = KNOWN.get((mine.__name__, name), set())
    assert arguments(function, {"self", "job"}) == arguments(other, {"self", *left_out})


def test_of_open():
    assert arguments(aio.open, set()) == arguments(logstore.open, set())


def test_no_class_is_left_out():
    """Those that have no synchronous object are what calls return."""
    assert {
        each for each in vars(aio).values() if inspect.isclass(each) and each.__name__ in aio.__all__
    } == {
        *SYNCHRONOUS,
        aio.AsyncRecords,
        aio.AsyncSent,
        aio.Joining,
        aio.Opening,
    }
