"""A bad sector under a sealed segment's index, or an index file that somebody cut short, killed the process
(SIGBUS): indexes were mapped. They are read in pages now, and one that cannot be read is built anew from the
log; the reader gets his records, and a warning says why."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import textwrap

import pytest

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.partition.log import Log
from logstore.testing import FAULTS, Fault, FaultyFiles, ManualClock, MemoryFiles

CONFIG = TopicConfig(segment_bytes=400_000, index_interval_bytes=0, retention_ms=-1)
COUNT = 3_000
SUFFIXES = [".index", ".timeindex"]

CUT_AND_READ = """
    import glob, os, sys, logstore
    from logstore.config import TopicConfig
    from logstore.testing import ManualClock

    path, is_read_only = sys.argv[1], sys.argv[2] == "read-only"
    with logstore.open(path, read_only=is_read_only) as store:
        log = store["t"][0]
        start = log.record_at(0).timestamp_ms  # the files are open now
        for name in glob.glob(f"{path}/t-0/*index"):
            os.truncate(name, os.stat(name).st_size // 24 * 12 if sys.argv[3] == "half" else 0)
        for offset in (2_000, 1_000, 400, 5, 2_999):
            assert log.record_at(offset).value == b"%d|" % offset + bytes(100)
            assert next(log.read(offset)).offset == offset
            assert log.offset_at(start + offset) == offset
    print("lived")
"""


def fill(log):
    now_ms = log._context.clock.now_ms()
    for number in range(COUNT):
        row = logstore.NewRecord(b"%d|" % number + bytes(100), timestamp_ms=now_ms + number)
        log.extend([row])


@pytest.fixture(scope="module")
def store_path(tmp_path_factory):
    path = tmp_path_factory.mktemp("cut") / "s"
    with logstore.open(path, config=StoreConfig(topic=CONFIG, linger_ms=0)) as store:
        fill(store.create_topic("t")[0])
    return path


@pytest.mark.damaged
@pytest.mark.parametrize(("opened", "left"), [("for writing", "half"), ("read-only", "nothing")])
def test_an_index_cut_short_under_an_open_log_does_not_end_the_process(store_path, tmp_path, opened, left):
    path = tmp_path / "s"
    subprocess.run(["cp", "-r", store_path, path], check=True)
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(CUT_AND_READ), path, opened, left],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "lived\n", (done.returncode, done.stderr)


@pytest.fixture
def files():
    return FaultyFiles(MemoryFiles())


def open_log(files):
    store_config = StoreConfig(linger_ms=0)
    return Log.open("/t-0", config=CONFIG, store_config=store_config, files=files, clock=ManualClock())


@pytest.fixture
def log(files):
    written = open_log(files)
    fill(written)
    written.close()
    return open_log(files)


def check_reads(log, *offsets):
    start_ms = log.record_at(0).timestamp_ms
    for offset in offsets:
        assert log.record_at(offset).value == b"%d|" % offset + bytes(100)
        assert [record.offset for record in log.read(offset, offset + 3)] == [offset, offset + 1, offset + 2]
        assert log.offset_at(start_ms + offset) == offset


@pytest.mark.parametrize("suffix", SUFFIXES)
@pytest.mark.parametrize("kind", ["read", "open"])
@pytest.mark.parametrize("number", [errno.EIO, getattr(errno, "EUCLEAN", errno.EIO)])
def test_an_index_that_cannot_be_read_is_built_anew(files, log, suffix, kind, number, caplog):
    files.fail(Fault(number, frozenset({kind})), path=suffix, times=None)
    check_reads(log, 100, 1_500, 2, 2_900)
    files.heal()
    check_reads(log, 100, 1_500, 2, 2_900)
    log.close()
    assert open_log(files).verify().is_sound


@pytest.mark.parametrize("at", range(1, 8))
def test_an_index_that_fails_at_any_read_is_built_anew(files, log, at):
    check_reads(log, 1)
    files.fail(FAULTS["EIO"], kinds=["read"], path="index", at=at, times=None)
    check_reads(log, 100, 1_500, 2, 2_900)
    files.heal()


def test_a_small_index_that_cannot_be_read_is_built_anew(files):
    config = TopicConfig(segment_bytes=5_000, index_interval_bytes=0, retention_ms=-1)
    store_config = StoreConfig(linger_ms=0)
    with Log.open("/small", config=config, store_config=store_config, files=files) as log:
        for number in range(60):
            log.extend([b"%d|" % number + bytes(100)])
    with Log.open("/small", config=config, store_config=store_config, files=files) as log:
        files.fail(FAULTS["EIO"], kinds=["read"], path="index", times=None)
        assert [log.record_at(offset).offset for offset in (1, 55, 20)] == [1, 55, 20]
        files.heal()


@pytest.mark.parametrize("suffix", SUFFIXES)
def test_a_warning_says_which_index_it_was(files, log, suffix, caplog):
    files.fail(FAULTS["EIO"], kinds=["read"], path=suffix, times=None)
    check_reads(log, 100)
    files.heal()
    assert any(suffix in record.getMessage() for record in caplog.records)


def test_a_reader_of_another_process_goes_on_too(tmp_path, store_path):
    path = tmp_path / "s"
    subprocess.run(["cp", "-r", store_path, path], check=True)
    files = FaultyFiles(logstore.files.OsFiles())
    with logstore.open(path, read_only=True, files=files) as store:
        files.fail(FAULTS["EIO"], kinds=["read"], path="index", times=None)
        check_reads(store["t"][0], 100, 1_500, 2, 2_900)
    assert sorted(os.listdir(path)) == sorted(os.listdir(store_path))


def test_want_of_descriptors_is_no_damage(files, log):
    files.fail(FAULTS["EMFILE"], path=".index", times=None)
    with pytest.raises(logstore.StorageError):
        log.record_at(100)
    files.heal()
    check_reads(log, 100)
