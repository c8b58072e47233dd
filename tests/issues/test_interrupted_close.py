"""An interrupt while a close waited for the background, or for a thread that was appending, gave the lock of
the directory back, and left the logs open: another process could become the writer beside this one."""

import pytest

import logstore
from logstore.errors import ClosedError, LockedError
from logstore.logdir.upkeep import for_each
from logstore.schedule import Scheduler

MARKER = ".kafka_cleanshutdown"


def interrupted(*_):
    raise KeyboardInterrupt


def must_be_closed(path, opens, opened, log):
    """Closing again does what is left of it."""
    with pytest.raises(LockedError):
        opens(path)
    assert not (path / MARKER).exists()
    opened.close()
    with pytest.raises(ClosedError):
        log.append(b"v")
    assert (path / MARKER).exists()
    opens(path).close()


@pytest.fixture
def store(tmp_path):
    store = logstore.open(tmp_path)
    for log in store.create_topic("t", partitions=3):
        log.append(b"v")
    yield store
    store.close()


def test_while_a_store_waits_for_its_background(store, tmp_path, monkeypatch):
    log = store["t"][0]
    with monkeypatch.context() as patch:
        patch.setattr(Scheduler, "stop", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.close()
    must_be_closed(tmp_path, logstore.open, store, log)


def test_between_the_logs_of_a_store(store, tmp_path, monkeypatch):
    first, *_, last = store["t"]

    def some(action, logs, **_):
        for_each(action, list(logs)[:1])
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("logstore.logdir.open_logs.for_each", some)
        with pytest.raises(KeyboardInterrupt):
            store.close()
    assert (first.is_closed, last.is_closed) == (True, False)
    must_be_closed(tmp_path, logstore.open, store, last)


def test_while_a_log_waits_for_its_background(tmp_path, monkeypatch):
    log = logstore.Log.open(tmp_path / "t-0")
    log.append(b"v")
    with monkeypatch.context() as patch:
        patch.setattr(Scheduler, "stop", interrupted)
        with pytest.raises(KeyboardInterrupt):
            log.close()
    must_be_closed(tmp_path / "t-0", logstore.Log.open, log, log)


class _InterruptedLock:
    """A lock whose holder takes his time."""

    def __init__(self, lock):
        self._lock = lock
        self.is_interrupted = True

    def __enter__(self):
        if self.is_interrupted:
            raise KeyboardInterrupt
        return self._lock.__enter__()

    def __exit__(self, *error):
        return self._lock.__exit__(*error)


def test_while_a_log_waits_for_its_lock(tmp_path):
    log = logstore.Log.open(tmp_path / "t-0")
    log.append(b"v")
    lock, log.writer.guard.lock = log.writer.guard.lock, _InterruptedLock(log.writer.guard.lock)
    with pytest.raises(KeyboardInterrupt):
        log.close()
    log.writer.guard.lock = lock
    assert log.append(b"w", flush=True) == 1
    must_be_closed(tmp_path / "t-0", logstore.Log.open, log, log)
