"""Ctrl-C while the first append started the thread that writes what lingers: the thread ran, but nobody knew
of it, and the next append started another. Closing woke one of the two and waited for the other for ever."""

from __future__ import annotations

import contextlib
import threading
import time
from pathlib import Path

import pytest

import logstore


def test_close_ends_where_an_interrupt_hid_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = logstore.open(tmp_path / "store")
    topic = store.require_topic("t", partitions=2)
    start = threading.Thread.start

    def start_and_interrupt(thread: threading.Thread) -> None:
        start(thread)
        if thread.name == "logstore-linger":
            raise KeyboardInterrupt

    monkeypatch.setattr(threading.Thread, "start", start_and_interrupt)
    with pytest.raises(KeyboardInterrupt):
        topic[0].append(b"interrupted")
    monkeypatch.undo()
    time.sleep(0.1)  # the hidden thread waits first
    topic[1].append(b"next")
    time.sleep(0.1)

    def close() -> None:
        with contextlib.suppress(logstore.StorageError):  # the interrupted log must be opened again
            store.close()

    closing = threading.Thread(target=close, daemon=True)
    closing.start()
    closing.join(5)

    assert not closing.is_alive()
