"""Ctrl-C while a worker's request stored what became of jobs: what the request carried was
forgotten. The jobs were given again when their locks had run out, although ``accept()`` had
returned, and the ``with`` block ended in order.
"""

from __future__ import annotations

from functools import partial

import pytest

import logstore
from logstore.broker.local import LocalBroker
from logstore.testing import ManualClock, MemoryFiles


@pytest.fixture
def store():
    with logstore.open("/store", files=MemoryFiles(), clock=ManualClock()) as store:
        store.create_topic("jobs").extend([b"%d" % number for number in range(5)])
        yield store


def interrupted(monkeypatch, name, *, is_carried_out):
    """Let the next request of a kind end with Ctrl-C."""
    request = getattr(LocalBroker, name)

    def interrupt(*arguments):
        monkeypatch.setattr(LocalBroker, name, request)
        if is_carried_out:
            request(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(LocalBroker, name, interrupt)


def given(store):
    with store.queue("jobs", group="g") as queue:
        return [job.offset for job in queue.drain()]


@pytest.mark.parametrize("is_carried_out", [False, True])
@pytest.mark.parametrize("name", ["share_fetch", "share_acknowledge"])
def test_it_is_sent_again(store, monkeypatch, name, is_carried_out):
    """By the end of the block; what counts already is no error. 0.02 s."""
    with store.queue("jobs", group="g") as queue:
        first, second, third = queue.poll(max_jobs=3)
        first.accept()  # sent at once
        second.accept()
        interrupted(monkeypatch, name, is_carried_out=is_carried_out)
        ask = partial(queue.poll, max_jobs=1) if name == "share_fetch" else partial(third.release, delay=60)
        with pytest.raises(KeyboardInterrupt):
            ask()
    assert given(store) == ([2, 3, 4] if name == "share_fetch" else [3, 4])


def test_a_worker_goes_on_with_it(store, monkeypatch):
    """0.02 s."""
    with store.queue("jobs", group="g") as queue:
        jobs = queue.poll(max_jobs=3)
        jobs[0].accept()
        jobs[1].accept()
        interrupted(monkeypatch, "share_fetch", is_carried_out=True)
        with pytest.raises(KeyboardInterrupt):
            queue.poll(max_jobs=2)
        jobs[2].accept()
        queue.flush()
        (status,) = store.queues()
        assert status.partitions[0].start_offset == 3
