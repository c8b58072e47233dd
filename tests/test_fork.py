"""A forked child and its parent's store."""

import contextlib
import os
import signal
import socket
import sys
import time
import traceback

import pytest

import logstore
from logstore.errors import ForkedError, LockedError
from tests.logdir.helpers import open_store, run_python, values
from tests.test_lifecycle import LOG_USES, STORE_USES, TOPIC_USES

pytestmark = [
    pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]


def in_child(check):
    """Run ``check`` in a forked child and fail if it fails there."""
    child = os.fork()
    if child == 0:
        try:
            check()
            os._exit(0)
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "store", clock=None) as store:
        store.create_topic("t").append(b"v", flush=True)
        yield store


def refuses(use, what):
    with pytest.raises(ForkedError, match="child"):
        use(what)


def test_every_use_of_the_parents_store_is_refused(store):
    topic, log = store["t"], store["t"][0]

    def check():
        for uses, what in ((STORE_USES, store), (TOPIC_USES, topic), (LOG_USES, log)):
            for use in uses.values():
                refuses(use, what)

    in_child(check)


def test_a_lock_that_another_thread_held_at_the_fork_stops_nothing(store):
    log = store["t"][0]
    with store._directory._lock, log.writer.guard.lock:
        in_child(lambda: (refuses(lambda s: s.create_topic("u"), store), refuses(LOG_USES["append"], log)))


def test_closing_in_the_child_changes_nothing(store, tmp_path):
    in_child(store.close)
    assert ".kafka_cleanshutdown" not in os.listdir(tmp_path / "store")
    store["t"].append(b"w", flush=True)
    assert values(store["t"][0]) == [b"v", b"w"]


def test_the_parent_goes_on_and_still_holds_the_lock(store, tmp_path):
    log = store["t"][0]
    in_child(lambda: refuses(LOG_USES["append"], log))
    store["t"].append(b"w", flush=True)
    printed = run_python(
        """
        import sys, logstore
        try:
            logstore.open(sys.argv[1])
        except logstore.RetriableError as error:
            print(error)
        """,
        tmp_path / "store",
    )
    assert f"process {os.getpid()}" in printed


def test_a_child_cannot_open_what_its_parent_has_open(store, tmp_path):
    def check():
        with pytest.raises(LockedError, match=f"process {os.getppid()}"):
            open_store(tmp_path / "store")

    in_child(check)
    in_child(check)  # the first child's end did not cost the parent its lock
    store["t"].append(b"w", flush=True)


def test_a_child_may_open_another_store(store, tmp_path):
    def check():
        with open_store(tmp_path / "other", clock=None) as other:
            other.create_topic("t").append(b"v", flush=True)
            assert values(other["t"][0]) == [b"v"]

    in_child(check)


def test_a_child_may_read_the_parents_directory(store, tmp_path):
    def check():
        with logstore.open(tmp_path / "store", read_only=True) as reader:
            assert values(reader["t"][0]) == [b"v"]

    in_child(check)


def test_a_read_only_store_of_the_parent_is_refused_too(store, tmp_path):
    with logstore.open(tmp_path / "store", read_only=True) as reader:
        log = reader["t"][0]
        in_child(lambda: (refuses(list, reader), refuses(LOG_USES["read"], log), reader.close()))
        assert values(log) == [b"v"]


@pytest.mark.parametrize("how", ["close", "leave"])
@pytest.mark.parametrize("what", ["listen", "share", "connect", "open_or_connect"])
def test_a_child_that_closes_what_its_parent_serves_changes_nothing(tmp_path, what, how):
    """0.3 s."""
    with contextlib.ExitStack() as stack:
        if what == "open_or_connect":
            used = listener = stack.enter_context(logstore.open_or_connect(tmp_path / "store"))
        else:
            used = store = stack.enter_context(logstore.open(tmp_path / "store"))
            listener = stack.enter_context(store.share() if what == "share" else store.listen("127.0.0.1:0"))
            if what == "connect":
                used = stack.enter_context(logstore.connect(listener.address))
        used.require_topic("t")

        def check():
            for each in (used, listener):
                if how == "close":
                    each.close()
                else:
                    each.__exit__(SystemExit, SystemExit(), None)

        in_child(check)
        if what == "listen":
            used = stack.enter_context(logstore.connect(listener.address, request_timeout_ms=5_000))
        elif what == "share":
            used = stack.enter_context(logstore.connect(tmp_path / "store", request_timeout_ms=5_000))
        with used.producer() as producer:
            assert producer.send("t", b"x").result(10).offset == 0


@pytest.fixture
def idle_child():
    """Forks a child that does nothing until the test ends."""
    children = []

    def fork():
        child = os.fork()
        if child == 0:
            time.sleep(60)
            os._exit(0)
        children.append(child)

    yield fork
    for each in children:
        os.kill(each, signal.SIGKILL)
        os.waitpid(each, 0)


def test_what_listens_ends_though_a_child_was_forked_meanwhile(tmp_path, idle_child):
    """A child that had the sockets, too, kept the address, and clients waited for answers until it ended."""
    with logstore.open(tmp_path / "store") as store, store.listen("127.0.0.1:0") as listener:
        host, port = listener.address.rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=10) as client:
            while listener.connection_count == 0:
                time.sleep(0.001)
            idle_child()
            listener.close()
            assert client.recv(1) == b""
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection((host, int(port)), timeout=10)


def test_a_client_hangs_up_though_a_child_was_forked_meanwhile(tmp_path, idle_child):
    """A broker that still saw the connection kept the jobs of a worker that was killed."""
    with logstore.open(tmp_path / "store") as store, store.share() as listener:
        with logstore.connect(tmp_path / "store") as client:
            assert client.topics() == {}
            idle_child()
        deadline = time.monotonic() + 10
        while listener.connection_count:
            assert time.monotonic() < deadline
            time.sleep(0.005)


def test_connections_go_on_when_a_child_has_closed_its_copies(tmp_path):
    with (
        logstore.open(tmp_path / "store") as store,
        store.share(),
        logstore.connect(tmp_path / "store") as client,
    ):
        client.require_topic("t")
        with client.producer() as producer:
            for _ in range(3):
                in_child(lambda: refuses(lambda each: each.topics(), client))
                producer.send("t", b"v").result(10)
        assert values(store["t"][0]) == [b"v"] * 3
