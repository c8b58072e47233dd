"""Ctrl-C while a client of a store elsewhere sent a request: whether it was on its way was forgotten, and
nothing more was sent on that connection. All that was asked on it, closing the client too, failed after
``request_timeout_ms`` (30 s), and a consumer kept its partitions for its session.
Cost: 0.5 s.
"""

from __future__ import annotations

import threading
import time

import pytest
from tests.replica.node.cluster import eventually

import logstore
from logstore.wire.remote.connections import connection
from logstore.wire.remote.connections.loop import Loop


class _Interrupted:
    """Stands in front of a function, and is interrupted once: before the call, or behind it."""

    def __init__(self, function, *, behind):
        self._function = function
        self._behind = behind
        self._thread = threading.current_thread()
        self.has_struck = False

    def __get__(self, instance, owner):
        return lambda *arguments, **options: self(instance, *arguments, **options)

    def __call__(self, *arguments, **options):
        if self.has_struck or threading.current_thread() is not self._thread:
            return self._function(*arguments, **options)
        self.has_struck = True
        if self._behind:
            self._function(*arguments, **options)
        raise KeyboardInterrupt


@pytest.mark.parametrize("behind", [False, True])
@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (connection.Connection, "_push_locked"),
        (connection.Connection, "_plan_sweep_locked"),
        (connection, "encode_frame"),
    ],
)
def test_the_next_requests_are_answered(tmp_path, monkeypatch, owner, name, behind):
    with logstore.open(tmp_path) as store, store.share(), logstore.connect(tmp_path) as shop:
        store.create_topic("t").extend([b"1", b"2"])
        began = time.monotonic()
        with shop.consumer("t", group="g", max_poll_records=1) as consumer:
            assert len(consumer.poll(timeout=5)) == 1
            with monkeypatch.context() as patched:
                interrupted = _Interrupted(getattr(owner, name), behind=behind)
                patched.setattr(owner, name, interrupted)
                with pytest.raises(KeyboardInterrupt):
                    consumer.commit()
                assert interrupted.has_struck
            consumer.commit()
            assert shop.topics() == {"t": 1}
            assert len(consumer.poll(timeout=5)) == 1
        eventually(lambda: not store.groups()["g"].members)
        assert time.monotonic() - began < 10


@pytest.mark.parametrize(
    ("owner", "name"), [(Loop, "call_later"), (Loop, "call_soon"), (connection.Connection, "__init__")]
)
def test_a_connection_that_was_being_made_is_given_up_quietly(tmp_path, monkeypatch, caplog, owner, name):
    with logstore.open(tmp_path) as store, store.share():
        with monkeypatch.context() as patched:
            interrupted = _Interrupted(getattr(owner, name), behind=True)
            patched.setattr(owner, name, interrupted)
            with pytest.raises(KeyboardInterrupt):
                logstore.connect(tmp_path, request_timeout_ms=200)
            assert interrupted.has_struck
        with logstore.connect(tmp_path) as shop:
            assert shop.topics() == {}
        time.sleep(0.4)  # what was begun has had its time
    assert "failed" not in caplog.text


def test_a_loop_that_was_not_woken_is_woken_by_the_next(monkeypatch):
    loop = Loop("a loop")
    done = threading.Event()
    loop.call_soon(done.set)
    assert done.wait(5)
    while not loop._is_asleep:
        time.sleep(0.001)
    wakes = loop._wakes

    class Wakes:
        send = _Interrupted(lambda _, data: wakes.send(data), behind=False)

    done.clear()
    with monkeypatch.context() as patched:
        patched.setattr(loop, "_wakes", Wakes())
        with pytest.raises(KeyboardInterrupt):
            loop.call_soon(done.set)
    loop.call_soon(done.set)
    assert done.wait(5)
    loop.close()
