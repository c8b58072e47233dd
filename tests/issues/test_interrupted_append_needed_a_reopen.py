"""Ctrl-C in an append that had written nothing, or no thread for what lingers: the log refused all changes
until it was opened again, or the record of the call that failed was appended with the next.

The error that asked for the reopen gave no reason, since an interrupt has no text, and "[Errno None]".
"""

from __future__ import annotations

import os
import threading

import pytest

import logstore
from logstore import StoreConfig, TopicConfig
from logstore.errors import ReopenRequiredError, RetriableError
from logstore.format.batch import encode_batch
from logstore.partition.encoding.row_encoder import RowEncoder


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


def append_batch(log):
    log.append_batch(encode_batch([None], [b"interrupted"], [1_700_000_000_000]))


@pytest.mark.parametrize(
    "append",
    [lambda log: log.extend([b"interrupted"]), lambda log: log.append(b"interrupted"), append_batch],
    ids=["extend", "append", "append_batch"],
)
def test_an_interrupt_while_the_system_writes_does_no_harm(tmp_path, monkeypatch, append):
    """The system ends the write all the same, and the append is finished. So it was in nine of ten Ctrl-C in
    a program that does nothing else."""
    write = os.pwritev

    def interrupt(*arguments):
        write(*arguments)
        raise KeyboardInterrupt

    with logstore.open(tmp_path / "store", config=StoreConfig(linger_ms=0)) as store:
        log = store.create_topic("t")[0]
        log.extend([b"before"])
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwritev", interrupt)
            with pytest.raises(KeyboardInterrupt):
                append(log)
        assert not log.needs_reopen
        assert log.append(b"after") == 2
        expected = [b"before", b"interrupted", b"after"]
        assert [record.value for record in log.read()] == expected
    with logstore.open(tmp_path / "store") as store:
        assert store.was_clean
        assert [record.value for record in store["t"][0].read()] == expected


def test_an_interrupt_in_the_middle_of_many_batches_comes_at_their_end(tmp_path, monkeypatch):
    write, interrupted = os.pwritev, []

    def interrupt(*arguments):
        written = write(*arguments)
        if not interrupted:
            interrupted.append(True)
            raise KeyboardInterrupt
        return written

    config = StoreConfig(batch_bytes=4_096)
    with logstore.open(tmp_path / "store", config=config) as store:
        log = store.create_topic("t", config=TopicConfig(segment_bytes=20_000))[0]
        values = [b"%d" % number * 200 for number in range(400)]
        with monkeypatch.context() as patched:
            patched.setattr(os, "pwritev", interrupt)
            with pytest.raises(KeyboardInterrupt):
                log.extend(values)
        assert [record.value for record in log.read()] == values
        assert log.extend([b"after"]) == range(400, 401)
        assert log.segment_count > 2


@pytest.mark.parametrize("where", ["lock", "encoding"])
def test_an_interrupt_before_the_write_does_no_harm(tmp_path, monkeypatch, where):
    def interrupt(*arguments, **options):
        raise KeyboardInterrupt

    with logstore.open(tmp_path / "store", config=StoreConfig(linger_ms=60_000)) as store:
        log = store.create_topic("t")[0]
        log.append(b"gathered")
        with monkeypatch.context() as patched:
            if where == "lock":
                home = store.directory.context.home
                home.checked_ms = 0
                patched.setattr(home, "check_held", interrupt)
            else:
                patched.setattr(RowEncoder, "encode_gathered", interrupt)
            with pytest.raises(KeyboardInterrupt):
                log.extend([b"not appended"])
        assert not log.needs_reopen
        assert log.extend([b"after"]) == range(1, 2)
        assert [record.value for record in log.read()] == [b"gathered", b"after"]


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
