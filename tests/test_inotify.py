"""Being told of changes: every kind of change, by one instance of the process, through threads, forks, limits
and interrupts."""

from __future__ import annotations

import contextlib
import errno
import os
import random
import resource
import shutil
import signal
import sys
import threading

import pytest

from logstore.errors import StorageError
from logstore.files import OsFiles
from tests.partition.helpers import in_child

pytestmark = [
    pytest.mark.disk,
    pytest.mark.skipif(sys.platform != "linux", reason="inotify is Linux's"),
    pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning"),
]

LONG_MS = 60_000
"""Nobody waits for so long but by a fault."""


@pytest.fixture
def files():
    return OsFiles()


@pytest.fixture
def place(tmp_path):
    """A directory with a file in it, and one beside it."""
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "0.log").write_bytes(b"first")
    return tmp_path


@pytest.fixture
def never_renews(monkeypatch):
    """Without what heals missed news within a second."""
    monkeypatch.setattr("logstore.inotify._RENEWED_SECONDS", 1000.0)


@contextlib.contextmanager
def watching(files, *paths):
    watch = files.watch([str(path) for path in paths])
    try:
        yield watch
    finally:
        watch.close()


def instance_count():
    links = (f"/proc/self/fd/{name}" for name in os.listdir("/proc/self/fd"))
    return sum(os.path.islink(link) and "inotify" in os.readlink(link) for link in links)


def with_file(change):
    def act(files, place):
        file = files.open(str(place / "a/0.log"), write=True)
        change(file)
        file.close()

    return act


CHANGES = {
    "an append": with_file(lambda file: file.write_at(5, [b"more"])),
    "a write in place": with_file(lambda file: file.write_at(0, [b"x"])),
    "a cut": with_file(lambda file: file.truncate(2)),
    "a growth without data": with_file(lambda file: file.truncate(9)),
    "a new file": lambda files, place: files.open(f"{place}/a/1.log", create=True).close(),
    "a rename": lambda files, place: files.rename(f"{place}/a/0.log", f"{place}/a/0.log.deleted"),
    "a link": lambda files, place: files.link(f"{place}/a/0.log", f"{place}/a/1.log"),
    "a removal": lambda files, place: files.remove(f"{place}/a/0.log"),
    "a new directory": lambda files, place: files.make_directory(f"{place}/a/new"),
    "its own rename": lambda files, place: files.rename(f"{place}/a", f"{place}/a-delete"),
    "its own removal": lambda files, place: shutil.rmtree(place / "a"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_is_told_once(files, place, change):
    with watching(files, place / "a") as watch, watching(files, place / "b") as other:
        assert not watch.wait(0)
        CHANGES[change](files, place)
        assert watch.wait(LONG_MS)
        assert not watch.wait(0)
        assert not other.wait(0)


def test_reading_tells_nothing(files, place):
    path = f"{place}/a/0.log"
    with watching(files, place / "a") as watch:
        file = files.open(path)
        assert file.read_at(0, 5) == b"first"
        file.map().close()
        file.close()
        assert [entry.name for entry in files.list_directory(f"{place}/a")] == ["0.log"]
        files.stamp(path), files.changed_ns(f"{place}/a")
        assert not watch.wait(0)


def test_either_of_two_directories_is_enough(files, place):
    with watching(files, place / "a", place / "b") as watch:
        for name in ("a", "b"):
            (place / name / "new").touch()
            assert watch.wait(LONG_MS)
            assert not watch.wait(0)


def test_the_directory_that_takes_its_place_is_watched_from_then_on(files, place, never_renews):
    with watching(files, place / "a") as watch:
        for number in range(3):
            (place / "a").rename(place / f"gone-{number}")
            assert watch.wait(LONG_MS)
            assert not watch.wait(0)
            (place / "a").mkdir()
            assert watch.wait(LONG_MS)  # that it is there
            (place / "a" / "new").touch()
            assert watch.wait(LONG_MS)
            (place / f"gone-{number}" / "new").touch()
            assert not watch.wait(0)


def test_where_a_directory_further_up_was_replaced_the_next_look_finds_it(files, place, monkeypatch):
    monkeypatch.setattr("logstore.inotify._RENEWED_SECONDS", 0.01)
    (place / "up/down/store").mkdir(parents=True)
    with watching(files, place / "up/down/store") as watch:
        (place / "up").rename(place / "gone")
        (place / "up/down/store").mkdir(parents=True)
        while not watch.wait(20):
            pass
        (place / "up/down/store/new").touch()
        assert watch.wait(LONG_MS)


def test_more_than_the_system_remembers_is_told_to_all(files, place):
    """It drops what does not fit, and says so."""
    with open("/proc/sys/fs/inotify/max_queued_events") as file:
        most = int(file.read())
    if most > 100_000:
        pytest.skip("this system remembers very much")
    with watching(files, place / "a") as watch, watching(files, place / "b") as other:
        for number in range(most // 2 + 1):
            (place / "a" / f"{number % 2}.tmp").touch()
            (place / "a" / f"{number % 2}.tmp").unlink()
        (place / "b/new").touch()
        assert other.wait(LONG_MS)
        assert watch.wait(LONG_MS)
        assert not watch.wait(0)
        (place / "b/newer").touch()
        assert other.wait(LONG_MS)


# One instance


def test_one_instance_serves_all_and_ends_with_the_last(files, place):
    before = instance_count()
    assert before == 0
    with contextlib.ExitStack() as watches:
        for name in "aabbab":
            watches.enter_context(watching(OsFiles(), place / name))
        assert instance_count() == 1
    assert instance_count() == 0
    with watching(files, place / "a"):
        assert instance_count() == 1
    assert instance_count() == 0


def test_the_end_of_one_watch_leaves_others_of_the_same_directory(files, place):
    first, second = files.watch([f"{place}/a"]), files.watch([f"{place}/a", f"{place}/b"])
    first.close()
    first.close()
    (place / "a/new").touch()
    assert second.wait(LONG_MS)
    second.close()


@pytest.mark.parametrize("paths", [["missing"], ["a", "missing"], ["a/0.log"]], ids=str)
def test_what_cannot_be_watched_is_refused_and_leaves_nothing_behind(files, place, paths):
    with pytest.raises(StorageError, match="watching") as caught:
        files.watch([f"{place}/{path}" for path in paths])
    assert caught.value.errno in (errno.ENOENT, errno.ENOTDIR)
    assert caught.value.filename == f"{place}/{paths[-1]}"
    assert instance_count() == 0


@pytest.mark.parametrize("free_count", [0, 1])
def test_without_descriptors_it_is_refused_and_later_it_is_not(files, place, free_count):
    """The instance needs two."""
    files.watch([f"{place}/a"]).close()  # what it imports is there
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    taken = [os.dup(0) for _ in range(50)]
    kept, freed = taken[: 50 - free_count], taken[50 - free_count :]
    try:
        for descriptor in freed:
            os.close(descriptor)
        resource.setrlimit(resource.RLIMIT_NOFILE, (taken[-1] + 1, limits[1]))
        with pytest.raises(StorageError) as caught:
            files.watch([f"{place}/a"])
        assert caught.value.errno == errno.EMFILE
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        for descriptor in kept:
            os.close(descriptor)
    assert instance_count() == 0
    with watching(files, place / "a") as watch:
        (place / "a/new").touch()
        assert watch.wait(LONG_MS)


# Threads


def test_every_thread_is_told_of_every_change_of_its_own(files, place, never_renews):
    """Each thread answers each change of its directory; a change that is missed has no answer. Nothing but
    being told ends a wait."""
    count, rounds = 6, 60
    directories = [place / f"dir-{number}" for number in range(count)]
    answers = [threading.Semaphore(0) for _ in directories]
    watches = []
    for directory in directories:
        directory.mkdir()
        watches.append(files.watch([str(directory)]))

    def follow(number):
        seen = 0
        while seen < rounds:
            assert watches[number].wait(LONG_MS)
            now = len(os.listdir(directories[number]))
            for _ in range(now - seen):
                answers[number].release()
            seen = now

    threads = [threading.Thread(target=follow, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    chance = random.Random(7)
    for turn in range(rounds):
        order = chance.sample(range(count), count)
        together = chance.random() < 0.5
        for number in order:
            (directories[number] / str(turn)).touch()
            assert together or answers[number].acquire(timeout=30)
        for number in order if together else ():
            assert answers[number].acquire(timeout=30)
    for thread, watch in zip(threads, watches, strict=True):
        thread.join(30)
        watch.close()
    assert instance_count() == 0


def test_threads_that_come_and_go_leave_the_others_told(files, place, never_renews):
    """The one that listens ends all the time; another one has to take its seat."""
    stop = threading.Event()
    told = threading.Semaphore(0)
    steady = files.watch([f"{place}/a"])

    def stay():
        while not stop.is_set():
            assert steady.wait(LONG_MS)
            told.release()

    def come_and_go(seed):
        chance = random.Random(seed)
        while not stop.is_set():
            with watching(OsFiles(), place / "b") as watch:
                for _ in range(chance.randrange(4)):
                    watch.wait(chance.randrange(3))

    threads = [threading.Thread(target=stay, daemon=True)]
    threads += [threading.Thread(target=come_and_go, args=(seed,), daemon=True) for seed in range(3)]
    for thread in threads:
        thread.start()
    for turn in range(100):
        (place / "a" / str(turn)).touch()
        assert told.acquire(timeout=30)
        while told.acquire(blocking=False):
            pass
    stop.set()
    (place / "a/last").touch()
    for thread in threads:
        thread.join(30)
        assert not thread.is_alive()
    steady.close()


def test_a_wait_is_woken_by_another_thread(files, place, never_renews):
    """The one that listens, and the one that sleeps behind it."""
    watches = [files.watch([f"{place}/a"]) for _ in range(3)]
    threads = [threading.Thread(target=watch.wait, args=(LONG_MS,), daemon=True) for watch in watches]
    for thread in threads:
        thread.start()
    for watch, thread in zip(watches, threads, strict=True):
        watch.wake()
        thread.join(30)
        assert not thread.is_alive()
        watch.close()
        watch.wake()
    assert instance_count() == 0


def test_an_interrupt_ends_the_wait_and_leaves_the_seat(files, place, never_renews):
    told = threading.Event()

    class StruckError(Exception):
        pass

    def interrupt(*_):
        raise StruckError

    old = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with watching(files, place / "a") as watch, watching(files, place / "b") as other:
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            with pytest.raises(StruckError):
                watch.wait(LONG_MS)
            thread = threading.Thread(target=lambda: (other.wait(LONG_MS), told.set()), daemon=True)
            thread.start()
            threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1)).start()
            with pytest.raises(StruckError):
                watch.wait(LONG_MS)
            (place / "b/new").touch()
            assert told.wait(30)
            thread.join(30)
    finally:
        signal.signal(signal.SIGUSR1, old)


# Forked children


def test_a_forked_child_shares_nothing_with_its_parent(files, place, never_renews):
    with watching(files, place / "a") as watch:

        def child():
            had = instance_count()
            watch.wake()
            watch.close()
            with watching(files, place / "a") as own:
                (place / "a/of the child").touch()
                return had, own.wait(LONG_MS), instance_count()

        assert in_child(child) == "(0, True, 1)"
        assert watch.wait(LONG_MS)  # the child has not read what is its parent's
        assert not watch.wait(0)
        (place / "a/of the parent").touch()
        assert watch.wait(LONG_MS)
        assert instance_count() == 1


def test_a_fork_beside_threads_that_wait(files, place, never_renews):
    watches = [files.watch([f"{place}/a"]) for _ in range(3)]
    threads = [threading.Thread(target=watch.wait, args=(LONG_MS,), daemon=True) for watch in watches]
    for thread in threads:
        thread.start()

    def child():
        with watching(files, place / "b") as own:
            (place / "b" / str(os.getpid())).touch()
            return own.wait(LONG_MS)

    for _ in range(5):
        assert in_child(child) == "True"
    (place / "a/new").touch()
    for thread, watch in zip(threads, watches, strict=True):
        thread.join(30)
        assert not thread.is_alive()
        watch.close()
