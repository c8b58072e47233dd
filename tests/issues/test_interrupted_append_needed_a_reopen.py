"""Ctrl-C in an append that had written nothing, or no thread for what lingers: the log refused all changes
until it was opened again, or the record of the call that failed was appended with the next.

The error that asked for the reopen gave no reason, since an interrupt has no text, and "[Errno None]".
"""

from __future__ import annotations

import threading

import pytest

import logstore
from logstore.errors import ReopenRequiredError, RetriableError


@pytest.mark.parametrize("failure", [KeyboardInterrupt(), RuntimeError("can't start new thread")])
@pytest.mark.parametrize("has_started", [True, False])
def test_the_log_goes_on_without_that_record(tmp_path, monkeypatch, failure, has_started):
    start = threading.Thread.start

    def fail(thread):
        if thread.name != "logstore-linger":
            start(thread)
        elif has_started:
            start(thread)
            raise failure
        else:
            raise failure

    with logstore.open(tmp_path / "store") as store:
        log = store.create_topic("t")[0]
        with monkeypatch.context() as patched:
            patched.setattr(threading.Thread, "start", fail)
            with pytest.raises((KeyboardInterrupt, RetriableError)):
                log.append(b"failed")
        assert [log.append(b"next"), log.append(b"last")] == [0, 1]
        assert [record.value for record in log.read()] == [b"next", b"last"]
    with logstore.open(tmp_path / "store") as store:
        assert [record.value for record in store["t"][0].read()] == [b"next", b"last"]


def test_an_interrupted_write_says_what_to_do(tmp_path, monkeypatch):
    with logstore.open(tmp_path / "store") as store:
        log = store.create_topic("t")[0]

        def interrupt(*arguments, **options):
            raise KeyboardInterrupt

        with monkeypatch.context() as patched:
            patched.setattr(log.writer.core, "publish", interrupt)
            with pytest.raises(KeyboardInterrupt):
                log.extend([b"half-way"])
        with pytest.raises(ReopenRequiredError) as raised:
            log.append(b"refused")
        assert "because of: KeyboardInterrupt" in str(raised.value)
        assert "topic.reopen(0)" in str(raised.value)
        assert "Errno" not in str(raised.value)
        store["t"].reopen(0)
        store["t"][0].append(b"taken")
