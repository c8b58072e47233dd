"""`verify()` in another process reported damage where the writer was stopped or killed in the middle of a
truncation, a roll or a compaction: it waited half a second for files that were being replaced, and then took
the state for the log's last.

Here the writer is a process of its own that stops itself (SIGSTOP) in front of each file operation of a
change. Each time the files are verified as every reader without the writer's memory does it; then it goes on,
and at the last stop it is killed. What is stopped for long looks just as what died there."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import logstore
from logstore.clock import SystemClock
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import UnknownTopicError
from logstore.files import OsFiles
from logstore.logdir.verify import verify_partition
from logstore.logdir.watched import WatchedDirectory
from logstore.model import TopicPartition
from logstore.partition.checking.facts_of_files import facts_of_files
from logstore.partition.checking.files import StoredCheckpoints
from logstore.partition.checking.findings import VerifyReport
from logstore.partition.checking.verify import verify_log
from logstore.partition.log import Log
from logstore.testing import FaultyFiles, MemoryFiles

FILES = OsFiles()

WRITER = """
import os, signal, sys
import logstore
from logstore.files import OsFiles
from logstore.testing import FaultyFiles

path, change, is_alone = sys.argv[1], sys.argv[2], sys.argv[3] == "log"
CHANGING = {"create", "write", "truncate", "rename", "link", "remove", "flush directory"}

class StoppingFiles(FaultyFiles):
    is_stopping = False

    def begin(self, kind, path):
        if self.is_stopping and kind in CHANGING:
            os.kill(os.getpid(), signal.SIGSTOP)
        return super().begin(kind, path)

files = StoppingFiles(OsFiles())
policy = "compact" if change == "compact" else "delete"
config = logstore.TopicConfig(segment_bytes=300, index_interval_bytes=50, cleanup_policy=policy,
    flush_ms=10**9)
settings = logstore.StoreConfig(linger_ms=0, log_cleaner_enable=False)
if is_alone:
    log = logstore.Log.open(f"{path}/t-0", files=files, config=config, store_config=settings)
else:
    store = logstore.open(path, files=files, config=settings)
    log = store.create_topic("t", config=config)[0]
for number in range(12):
    log.extend([(b"%d" % (number % 3), b"v%d" % number)])
log.checkpoint()
log._context.home.store_checkpoints()
log.extend([(b"9", b"not yet durable")])
files.is_stopping = True
if change == "truncate":
    log.truncate_to(5)
elif change == "roll":
    log.roll()
elif change == "start over":
    log.truncate_fully_and_start_at(50)
elif change == "compact":
    log.compact(now=True)
elif change == "close":
    (log if is_alone else store).close()
elif change == "delete":
    store.delete_topic("t")
elif change == "create":
    store.create_topic("u", partitions=2)
elif change == "grow":
    store["t"].add_partitions(3)
os._exit(0)
"""


def stops(path: Path, change: str, kind: str, most: int | None) -> Iterator[int]:
    """Start the writer; yields the number of each of its stops. It is killed at stop number ``most``."""
    writer = subprocess.Popen([sys.executable, "-c", WRITER, path, change, kind])
    try:
        for number in itertools.count(1):
            _, status = os.waitpid(writer.pid, os.WUNTRACED)
            if not os.WIFSTOPPED(status):
                writer.returncode = os.waitstatus_to_exitcode(status)
                assert writer.returncode == 0
                return
            yield number
            if number == most:
                break
            os.kill(writer.pid, signal.SIGCONT)
        writer.kill()
        writer.wait()
        yield number + 1
    finally:
        if writer.returncode is None:
            writer.kill()
            writer.wait()


def verify_alone(home: Path) -> VerifyReport:
    directory = str(home / "t-0")
    checkpoints = StoredCheckpoints(FILES, directory)

    def source():
        is_clean = (home / "t-0" / ".kafka_cleanshutdown").exists()
        partition = TopicPartition("t", 0)
        return facts_of_files(FILES, directory, partition, checkpoints, TopicConfig(), is_clean=is_clean)

    return verify_log(source, SystemClock())


def verify_as_an_executor(path: Path) -> VerifyReport:
    """What each task of a verification on Spark does."""
    directory = WatchedDirectory(str(path))
    try:
        return verify_partition(directory, TopicPartition("t", 0))
    except UnknownTopicError:
        return VerifyReport(partition_count=0)
    finally:
        directory.close()


def check_store(path: Path) -> None:
    with logstore.open(path, read_only=True) as store:
        report = store.verify()
        assert report, report
    report = verify_as_an_executor(path)
    assert report, report


STORE_CHANGES = ["truncate", "roll", "start over", "compact", "close", "delete", "create", "grow"]
LOG_CHANGES = ["truncate", "roll", "start over", "compact", "close"]


@pytest.mark.slow
@pytest.mark.parametrize("change", STORE_CHANGES)
def test_a_store_whose_writer_is_stopped(tmp_path: Path, change: str) -> None:
    path = tmp_path / "s"
    count = 0
    for number in stops(path, change, "store", None):
        check_store(path)
        count = number
    assert count >= 5
    again = tmp_path / "again"  # killed half-way, and opened by another writer
    for _ in stops(again, change, "store", count // 2):
        check_store(again)
    with logstore.open(again, config=StoreConfig(log_cleaner_enable=False)) as store:
        report = store.verify()
        assert report, report
    check_store(again)


@pytest.mark.slow
@pytest.mark.parametrize("change", LOG_CHANGES)
def test_a_log_of_its_own_whose_writer_is_stopped(tmp_path: Path, change: str) -> None:
    count = 0
    for count in stops(tmp_path, change, "log", None):
        report = verify_alone(tmp_path)
        assert report, (count, report)
    assert count >= 5


# In the writer's own process


class HookedFiles(FaultyFiles):
    """Calls somebody in front of one operation."""

    hook = None
    remaining = -1

    def begin(self, kind, path):
        if threading.current_thread() is threading.main_thread() and kind in {"rename", "truncate", "create"}:
            self.remaining -= 1
            if self.remaining == 0:
                self.hook()
        return super().begin(kind, path)


@pytest.mark.parametrize("change", ["truncate", "roll", "start over"])
def test_a_check_that_another_thread_begins_inside_of_a_change(change: str) -> None:
    for at in itertools.count(1):
        files = HookedFiles(MemoryFiles())
        log = Log.open(
            "/t-0",
            files=files,
            config=TopicConfig(segment_bytes=300, flush_ms=10**9),
            store_config=StoreConfig(linger_ms=0),
        )
        for number in range(12):
            log.extend([b"v%d" % number])
        reports: list[VerifyReport] = []
        thread = threading.Thread(target=lambda log=log, found=reports: found.append(log.verify()))

        def begin(thread=thread):
            thread.start()
            thread.join(0.005)  # it waits for the lock soon

        files.hook, files.remaining = begin, at
        match change:
            case "truncate":
                log.truncate_to(5)
            case "roll":
                log.roll()
            case "start over":
                log.truncate_fully_and_start_at(50)
        if thread.ident is None:
            assert at > 3
            return
        thread.join()
        assert reports[0], reports[0]
        log.close()


def test_a_check_of_the_files_inside_of_a_roll_behind_which_everything_is_durable() -> None:
    """The segment that ends had no last entry in its time index yet, which was taken for damage."""
    files = HookedFiles(MemoryFiles())
    config = TopicConfig(flush_ms=10**9)
    log = Log.open("/t-0", files=files, config=config, store_config=StoreConfig(linger_ms=0))
    log.extend([b"v"] * 5)
    log.checkpoint()
    log._context.home.store_checkpoints()
    partition, checkpoints = TopicPartition("t", 0), StoredCheckpoints(files, "/t-0")
    reports: list[VerifyReport] = []

    def look() -> None:
        reports.append(
            verify_log(
                lambda: facts_of_files(files, "/t-0", partition, checkpoints, config, is_clean=False),
                SystemClock(),
            )
        )
        files.remaining = 1

    files.hook, files.remaining = look, 1
    log.roll()
    assert len(reports) >= 4
    assert all(reports), reports
    files.remaining = -1
    log.close()
