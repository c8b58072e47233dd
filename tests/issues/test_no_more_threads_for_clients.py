"""A process that may have no more threads, and then may: sending, listening and connecting ended with a
``RuntimeError``, a connection with one about a thread that was never started."""

from __future__ import annotations

import contextlib
import socket
import threading

import pytest

import logstore
from logstore.errors import RetriableError


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("t")
        yield store


@contextlib.contextmanager
def no_more_threads():
    def refuse(thread):
        raise RuntimeError("can't start new thread")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(threading.Thread, "start", refuse)
        yield


def test_a_record_is_refused_and_the_next_one_sent(store):
    with store.producer() as producer:
        with (
            no_more_threads(),
            pytest.raises(RetriableError, match="no thread can be started for the producer"),
        ):
            producer.send("t", b"refused")
        assert producer.send("t", b"sent").result(10).offset == 0


def test_a_listener_that_cannot_begin_leaves_its_address(store):
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with no_more_threads(), pytest.raises(RetriableError, match="no thread can be started to listen"):
        store.listen(f"127.0.0.1:{port}")
    with store.listen(f"127.0.0.1:{port}") as listener:
        assert listener.address.endswith(f":{port}")


def test_a_connection_is_refused_and_the_next_one_made(store):
    with store.listen("127.0.0.1:0") as listener:
        with (
            no_more_threads(),
            pytest.raises(RetriableError, match="no thread can be started for a connection"),
        ):
            logstore.connect(listener.address)
        with logstore.connect(listener.address) as connection, connection.producer() as producer:
            assert producer.send("t", b"sent").result(10).offset == 0
