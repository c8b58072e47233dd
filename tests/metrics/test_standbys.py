"""What a store that copies another one tells of that."""

from __future__ import annotations

import time

import pytest

import logstore
from logstore import replica


def told(store):
    names = ("standby_lag", "standby_stopped_topics", "standby_in_trouble")
    found = store.metrics()
    return [dict(found[f"logstore_{name}"]) for name in names]


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.parametrize("is_stopped", [False, True])
def test_how_far_the_copy_is_and_what_holds_it_up(tmp_path, is_stopped):
    """1 s each."""
    with logstore.open(tmp_path / "here") as here, logstore.open(tmp_path / "there") as there:
        there.create_topic("t")[0].extend([b"1", b"2"])
        if is_stopped:
            for store in (here, there):
                store.create_topic("own")[0].append(b"its own")
        assert told(here) == [{}, {}, {}]
        with there.listen() as listener, replica.follow(here, listener.address, request_timeout_ms=500):
            name = (listener.address,)
            until(lambda: told(here) == [{name: 0}, {name: is_stopped}, {name: is_stopped}] and "t" in here)
            listener.close()
            until(lambda: told(here)[2] == {name: 1})
        assert told(here) == [{}, {}, {}]
