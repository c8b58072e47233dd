"""Ctrl-C, or `sys.exit()` in a handler of SIGTERM, while the system flushed: the log had to be opened again,
`close()` raised an error in place of it, and the reason was "0". So ended most programs that append with
`flush=True`, as they wait for the disk nearly all the time.
"""

from __future__ import annotations

import errno
import os
import sys

import pytest

import logstore
from logstore.errors import ReopenRequiredError


def flush_with(monkeypatch, *interrupts, before=False):
    """The next flushes of files are interrupted, after the system has done them or before."""
    flush, coming = os.fdatasync, list(interrupts)

    def interrupt(descriptor):
        if before and coming:
            raise coming.pop(0)
        flush(descriptor)
        if coming:
            raise coming.pop(0)

    monkeypatch.setattr(os, "fdatasync", interrupt)


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt(), SystemExit(0), RuntimeError("of a handler")])
@pytest.mark.parametrize("before", [True, False])
def test_an_interrupt_while_the_system_flushes_does_no_harm(tmp_path, monkeypatch, interrupt, before):
    with logstore.open(tmp_path / "store") as store:
        log = store.create_topic("t")[0]
        with monkeypatch.context() as patched:
            flush_with(patched, interrupt, before=before)
            with pytest.raises(type(interrupt)):
                log.append(b"interrupted", flush=True)
        assert not log.needs_reopen
        assert log.durable_offset == 1
        assert log.append(b"after", flush=True) == 1
    with logstore.open(tmp_path / "store") as store:
        assert store.was_clean
        assert [record.value for record in store["t"][0].read()] == [b"interrupted", b"after"]


def append_while_handling(log):
    try:
        raise OSError("of the program")
    except OSError:
        log.append(b"interrupted", flush=True)


def test_so_also_while_another_error_is_handled(tmp_path, monkeypatch):
    with logstore.open(tmp_path / "store") as store:
        log = store.create_topic("t")[0]
        with monkeypatch.context() as patched:
            flush_with(patched, KeyboardInterrupt())
            with pytest.raises(KeyboardInterrupt):
                append_while_handling(log)
        assert not log.needs_reopen


def work(path, monkeypatch):
    with logstore.open(path) as store:
        topic = store.require_topic("t")
        flush_with(monkeypatch, SystemExit(7))
        topic.append(b"interrupted", flush=True)


def test_sys_exit_of_a_handler_ends_the_program_as_it_says(tmp_path, monkeypatch):
    with pytest.raises(SystemExit) as ended:
        work(tmp_path / "store", monkeypatch)
    assert ended.value.code == 7


def test_an_interrupt_hides_no_flush_that_has_failed(tmp_path, monkeypatch):
    def fail(descriptor):
        try:
            raise OSError(errno.EIO, "the disk is gone")
        except OSError:
            sys.exit(0)  # a signal handler, before anybody has seen the error

    store = logstore.open(tmp_path / "store")
    log = store.create_topic("t")[0]
    log.append(b"lost")
    with monkeypatch.context() as patched:
        patched.setattr(os, "fdatasync", fail)
        with pytest.raises(SystemExit):
            log.flush()
    assert log.needs_reopen
    assert log.durable_offset == 0
    with pytest.raises(ReopenRequiredError, match="because of: SystemExit: 0"):
        log.append(b"refused")
    assert store["t"].reopen(0).durable_offset == 1
    store.close()


def test_a_second_interrupt_asks_for_a_reopen(tmp_path, monkeypatch):
    store = logstore.open(tmp_path / "store")
    log = store.create_topic("t")[0]
    log.append(b"interrupted")
    with monkeypatch.context() as patched:
        flush_with(patched, KeyboardInterrupt(), KeyboardInterrupt())
        with pytest.raises(KeyboardInterrupt):
            log.flush()
    assert log.needs_reopen
    assert [record.value for record in store["t"].reopen(0).read()] == [b"interrupted"]
    store.close()
