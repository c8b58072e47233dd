"""Calls of a whole store from within a change of one of its logs, in the thread that changes it: of signal
handlers, such as one for SIGTERM that closes the store, and of callbacks of progress. Other threads do a part
of them; these waited for the log, and the caller for them, without end."""

import subprocess
import sys
import threading
import time

import pytest

import logstore
from logstore import StoreConfig
from logstore.errors import UsageError
from tests.partition.helpers_rules import WatchedFiles


def outcome(tmp_path, method, moment):
    program = [sys.executable, "-m", "tests.logdir.reentered_program", str(tmp_path / "s"), method, moment]
    done = subprocess.run(program, capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("method", "moment"),
    [
        ("close", "write"),
        ("flush", "write"),
        ("flush", "flush"),
        ("checkpoint", "write"),
        ("checkpoint", "flush"),
        ("enforce_retention", "write"),
        ("enforce_retention", "flush"),
    ],
)
def test_it_is_refused_and_all_goes_on(tmp_path, method, moment):
    refused, found = outcome(tmp_path, method, moment)
    assert refused.startswith("refused: ")
    assert found == "[b'a', b'b', b'c']"


def test_a_store_is_closed_beside_a_flush(tmp_path):
    assert outcome(tmp_path, "close", "flush") == ["closed", "[b'a', b'b']"]


@pytest.mark.parametrize("moment", ["compact", "erase"])
def test_a_store_is_closed_by_a_callback(tmp_path, moment):
    """It ends what calls it, as ``close()`` in another thread does."""
    assert outcome(tmp_path, "close", moment) == ["closed", "[b'a', b'b']"]


CALLS = {
    "append": lambda store: store["t"][0].append(b"x"),
    "append and flush": lambda store: store["t"][0].append(b"x", flush=True),
    "extend": lambda store: store["t"].extend([b"x"]),
    "checkpoint": lambda store: store.checkpoint(),
    "configure": lambda store: store["t"].configure(retention_ms=1),
    "create a topic": lambda store: store.create_topic("u"),
    "close": lambda store: store.close(),
}


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_in_the_middle_of_storing_checkpoints_is_refused(tmp_path, call):
    """Another thread had the log's lock and waited for the checkpoints; the handler waited for the log."""
    files, said = WatchedFiles(), []
    store = logstore.open(tmp_path, files=files, config=StoreConfig(linger_ms=0))
    log = store.create_topic("t")[0]
    log.extend([b"a"], flush=True)
    beside = threading.Thread(target=log.checkpoint, daemon=True)

    def handler(operation, path):
        if operation == "rename" and "recovery-point" in path:
            files.before = lambda operation, path: None
            beside.start()
            while log.writer.guard.lock.acquire(blocking=False):  # until the other thread has it
                log.writer.guard.lock.release()
                time.sleep(0.001)
            try:
                call(store)
            except UsageError as error:
                said.append(str(error))

    files.before = handler
    main = threading.Thread(target=store.checkpoint, daemon=True)
    main.start()
    main.join(10)
    assert not main.is_alive()
    beside.join()
    assert "are being stored by this thread" in said[0]
    log.extend([b"b"])
    store.close()
    with logstore.open(tmp_path) as again:
        assert again.was_clean
        assert list(again) == ["t"]
        assert [record.value for record in again["t"].read()] == [b"a", b"b"]
