"""Processes that are stopped, forked and started beside a writer, and the clock that jumps under it."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import subprocess
import sys
import textwrap
import time

import pytest

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import LockedError
from logstore.testing import ManualClock
from tests.kernel.programs import run_program
from tests.logdir.helpers import Child, values

pytestmark = pytest.mark.disk

WRITER = """
    import sys, logstore
    store = logstore.open(sys.argv[1])
    log = store.require_topic("t")[0]
    print("ready")
    for line in sys.stdin:
        print(log.append(line.encode().strip(), flush=True))
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "s"


def refused(path):
    with pytest.raises(LockedError) as caught:
        logstore.open(path)
    return str(caught.value)


def state_of(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def stop(pid):
    os.kill(pid, signal.SIGSTOP)
    while state_of(pid) not in "TZ":  # Z: it had ended before
        time.sleep(0.001)


on_linux = pytest.mark.skipif(not os.path.exists("/proc/self/stat"), reason="looks into /proc")


@on_linux
def test_a_stopped_writer_keeps_the_lock_and_goes_on_when_it_is_continued(path):
    with Child(WRITER, path) as writer:
        assert writer.hear() == "ready"
        assert writer.ask("a") == "0"
        stop(writer.pid)
        writer.say("b")
        assert f"process {writer.pid}" in refused(path)
        with logstore.open(path, read_only=True) as reader:
            log = reader["t"][0]
            assert values(log) == [b"a"]
            os.kill(writer.pid, signal.SIGCONT)
            assert writer.hear() == "1"
            assert values(log) == [b"a", b"b"]
        assert f"process {writer.pid}" in refused(path)


@on_linux
def test_a_writer_that_is_killed_while_it_is_stopped_frees_the_lock(path):
    with Child(WRITER, path) as writer:
        writer.hear()
        writer.ask("a")
        stop(writer.pid)
        refused(path)
        writer.kill()
    with logstore.open(path) as store:
        assert values(store["t"][0]) == [b"a"]
        assert store["t"][0].append(b"b") == 1


@on_linux
def test_a_writer_that_is_stopped_again_and_again_loses_nothing_and_blocks_no_reader(path):
    """Stopped wherever it happens to be, also in the middle of a batch or of a roll; at last killed there."""
    code = """
        import sys, logstore
        from logstore.config import TopicConfig
        store = logstore.open(sys.argv[1])
        log = store.create_topic("t", config=TopicConfig(segment_bytes=3_000))[0]
        print("ready")
        end = 0
        while True:
            end = log.extend([b"%d" % (end + n) for n in range(7)]).stop
    """
    with Child(code, path) as writer:
        writer.hear()
        with logstore.open(path, read_only=True) as reader:
            seen = 0
            for _ in range(20):
                stop(writer.pid)
                found = values(reader["t"][0])
                assert found == [b"%d" % n for n in range(len(found))]
                assert len(found) >= seen
                seen = len(found)
                os.kill(writer.pid, signal.SIGCONT)
                time.sleep(0.002)
        stop(writer.pid)
        writer.kill()
    with logstore.open(path) as store:
        assert store["t"][0].log_end_offset >= seen > 0


def open_and_tell(path, answers):
    try:
        logstore.open(path).close()
        answers.put("opened")
    except LockedError as error:
        answers.put(str(error))


@pytest.mark.slow
@pytest.mark.parametrize("method", multiprocessing.get_all_start_methods())
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_process_of_multiprocessing_is_refused_by_name(path, method):
    context = multiprocessing.get_context(method)
    answers = context.SimpleQueue()

    def ask():
        process = context.Process(target=open_and_tell, args=(str(path), answers))
        process.start()
        answer = answers.get()
        process.join()
        return answer

    with logstore.open(path) as store:
        store.create_topic("t").append(b"v", flush=True)
        assert f"process {os.getpid()}" in ask()
        assert f"process {os.getpid()}" in ask()  # the first one's end did not cost us the lock
        store["t"].append(b"w", flush=True)
    assert ask() == "opened"


def test_the_lock_of_a_store_goes_with_its_process_and_not_with_a_child_of_it(path):
    code = """
        import os, sys, time, logstore
        store = logstore.open(sys.argv[1])
        store.require_topic("t")[0].append(b"v", flush=True)
        child = os.fork()
        if child == 0:
            try:
                store["t"][0].append(b"w")
            except logstore.LogstoreError as error:
                print(type(error).__name__, os.getpid())
            time.sleep(60)
            os._exit(0)
        sys.stdin.readline()
        os._exit(9)
    """
    with Child(code, path) as parent:
        refusal, child = parent.hear().split()
        assert refusal == "ForkedError"
        assert f"process {parent.pid}" in refused(path)
        parent.say()
        parent._process.wait()
        try:
            with logstore.open(path) as store:
                assert values(store["t"][0]) == [b"v"]
            os.kill(int(child), 0)  # it lives
        finally:
            os.kill(int(child), signal.SIGKILL)


# The clock

HOUR, DAY, YEAR = 3_600_000, 86_400_000, 365 * 86_400_000


def filled_store(path, clock, **settings):
    topic = TopicConfig(segment_bytes=1_000, file_delete_delay_ms=0, **settings)
    store = logstore.open(path, config=StoreConfig(topic=topic), clock=clock)
    log = store.create_topic("t")[0]
    for _ in range(5):
        log.extend([bytes(900)])
    return store, log


@pytest.mark.parametrize("jump_ms", [-YEAR, -HOUR, -1, 1, HOUR, YEAR])
def test_after_a_jump_everything_goes_on(path, jump_ms):
    """Appends get the time that the clock says; linger, flush, checkpoint and file removal go by the other
    clock, which does not jump."""
    clock = ManualClock()
    store, log = filled_store(path, clock, retention_ms=-1)
    clock.jump(jump_ms)
    offset = log.append(b"after")
    assert log.record_at(offset).timestamp_ms == clock.now_ms()
    assert log.durable_offset <= offset
    clock.advance(2_000)
    store.run_background()
    assert log.durable_offset == offset + 1
    clock.advance(61_000)
    store.run_background()
    assert log.log_start_offset == 0
    store.close()
    with logstore.open(path, clock=clock) as again:
        assert again.was_clean
        assert len(values(again["t"][0])) == 6


def test_a_clock_that_goes_back_deletes_nothing(path):
    clock = ManualClock()
    store, log = filled_store(path, clock, retention_ms=HOUR)
    clock.jump(-YEAR)
    assert store.enforce_retention() == {}
    clock.jump(YEAR)
    assert store.enforce_retention() == {}
    assert log.log_start_offset == 0
    store.close()


def test_a_clock_that_goes_ahead_expires_what_it_makes_old_as_in_kafka(path):
    """Retention by time believes the clock, as a broker does: nothing tells a wrong one from a machine that
    slept for a year. `retention_ms=-1` with a limit of bytes does not look at it."""
    clock = ManualClock()
    store, log = filled_store(path / "by-time", clock, retention_ms=7 * DAY)
    end = log.log_end_offset
    clock.jump(YEAR)
    assert store.enforce_retention(dry_run=True) != {}
    store.enforce_retention()
    assert log.log_start_offset == log.log_end_offset == end  # offsets are not used again
    clock.jump(-YEAR)
    assert log.append(b"back in time") == end
    store.close()
    store, log = filled_store(path / "by-size", clock, retention_ms=-1, retention_bytes=10_000)
    clock.jump(YEAR)
    assert store.enforce_retention() == {}
    store.close()


JUMPING = """
    import sys, time, logstore
    from logstore.config import StoreConfig, TopicConfig
    store = logstore.open(sys.argv[1], config=StoreConfig(log_retention_check_interval_ms=20))
    log = store.create_topic("t", config=TopicConfig(flush_ms=20, retention_ms=3_600_000))[0]
    until = time.perf_counter() + 10
    first = log.append(b"v")
    while log.durable_offset == 0 and time.perf_counter() < until:
        pass  # the background flushes it all the same
    assert log.durable_offset == 1, "the background stands still"
    print(log.record_at(0).timestamp_ms // 1000)
    store.close()
"""


@pytest.mark.skipif(shutil.which("faketime") is None, reason="faketime is not installed")
@pytest.mark.parametrize("when", ["2001-01-01 00:00:00", "2099-01-01 00:00:00"])
def test_a_real_process_in_another_year_appends_and_flushes(path, when):
    """The wall clock of the C library is replaced, also under the threads."""
    done = subprocess.run(
        ["faketime", "--exclude-monotonic", when, sys.executable, "-c", textwrap.dedent(JUMPING), path],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "TZ": "UTC"},
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert time.gmtime(int(done.stdout)).tm_year == int(when[:4])


# What the kernel sees


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_the_kernel_sees_what_the_seam_says(tmp_path):
    """Every file operation of the library passes through its one seam: what strace sees of the process is
    what the files that it was given have counted, call for call."""
    seen = run_program("system_calls", tmp_path / "s")
    assert seen["strange"] == []
    assert seen["kernel"] == seen["seam"]
    assert sum(seen["seam"].values()) > 100


@pytest.mark.skipif(shutil.which("strace") is None, reason="strace is not installed")
def test_a_durable_append_is_one_write_and_one_flush(tmp_path):
    seen = run_program("system_calls", tmp_path / "s", "--appends")
    assert seen["calls"] == ["pwritev", "fdatasync"] * 10
