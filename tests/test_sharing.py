"""Several processes use one directory: the first owns it, and when it goes another does, while clients go
on."""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path

import pytest

import logstore
from logstore import sharing
from logstore.errors import CorruptionError, InvalidConfigError, RetriableError, StorageError, UsageError
from logstore.wire.remote.connections import loop
from tests.figures import report
from tests.rotation import seed_of_turn

ROOT = Path(__file__).parents[1]


def test_the_first_to_come_owns_it_and_another_takes_over(tmp_path):
    path = tmp_path / "store"
    first = logstore.open_or_connect(path)
    with first, logstore.open_or_connect(path) as second:
        assert first.is_owner
        assert not second.is_owner
        assert (first.store is None, second.store is None) == (False, True)
        second.require_topic("t")
        with second.producer() as producer, second.consumer("t", group="g") as consumer:
            assert producer.send("t", b"a").result(10).offset == 0
            assert [each.value for each in consumer.poll(timeout=10)] == [b"a"]
            first.close()
            assert producer.send("t", b"b").result(30).offset == 1
            assert second.is_owner
            found = []
            while not found:
                found = consumer.poll(timeout=1)
            assert [each.value for each in found] == [b"b"]
            consumer.commit()
        assert second.groups()["g"].offsets[logstore.TopicPartition("t", 0)].offset == 2
    with logstore.open(path) as store:  # nobody has it any more
        assert [each.value for each in store["t"].read()] == [b"a", b"b"]


def test_an_owner_whose_directory_is_replaced_gives_it_up_and_opens_what_is_there(tmp_path, monkeypatch):
    """As when a backup is put in its place."""
    monkeypatch.setattr(sharing, "_HELD_SECONDS", 0.05)
    path = tmp_path / "store"
    with logstore.open_or_connect(path) as shared:
        shared.require_topic("t")
        with shared.producer() as producer:
            assert producer.send("t", b"a").result(10).offset == 0
            shutil.copytree(path, tmp_path / "copy", ignore=shutil.ignore_patterns(".socket"))
            path.rename(tmp_path / "old")
            (tmp_path / "copy").rename(path)
            assert producer.send("t", b"b").result(30).offset == 1
        assert shared.is_owner
    with logstore.open(path) as store:
        assert [each.value for each in store["t"].read()] == [b"a", b"b"]


def test_a_directory_that_is_gone_is_not_made_again(tmp_path, monkeypatch):
    """It may come back: a disk that was not there for a while."""
    monkeypatch.setattr(sharing, "_HELD_SECONDS", 0.05)
    monkeypatch.setattr(sharing, "_BACKOFF_SECONDS", 0.05)
    path = tmp_path / "store"
    with logstore.open_or_connect(path) as shared:
        shared.require_topic("t")
        path.rename(tmp_path / "away")
        while shared.is_owner:
            time.sleep(0.01)
        time.sleep(0.1)
        assert not path.exists()
        (tmp_path / "away").rename(path)
        assert shared.topics() == {"t": 1}


def test_who_waits_for_the_directory_does_not_try_to_open_it_all_the_time(tmp_path, monkeypatch):
    """0.2 s. Each of many processes took 4 % of a core, with nothing to do."""
    with logstore.open_or_connect(tmp_path / "store") as first:
        tried = []
        plain = sharing.open_store
        monkeypatch.setattr(sharing, "open_store", lambda *a, **k: tried.append(a) or plain(*a, **k))
        with logstore.open_or_connect(tmp_path / "store") as second:
            time.sleep(0.2)
            assert tried == []
            first.close()
            assert second.topics() == {}
            assert second.is_owner


OWNER_WITH_A_CHILD = """
import os, sys, time, logstore
store = logstore.open_or_connect(sys.argv[1])
store.require_topic("t")
child = os.fork()
if child:
    print(child, flush=True)
time.sleep(60)
"""


def test_an_owner_is_followed_though_it_has_forked_a_child(tmp_path):
    """0.7 s. The child had the socket of the directory, which so was never free, and clients waited."""
    path = str(tmp_path / "store")
    with subprocess.Popen(
        [sys.executable, "-W", "ignore", "-c", OWNER_WITH_A_CHILD, path], stdout=subprocess.PIPE, text=True
    ) as owner:
        child = int(owner.stdout.readline())
        try:
            with logstore.open_or_connect(path) as shared, shared.producer() as producer:
                assert producer.send("t", b"a").result(10).offset == 0
                assert not shared.is_owner
                owner.kill()
                assert producer.send("t", b"b").result(10).offset == 1
                assert shared.is_owner
        finally:
            owner.kill()
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("is_made", [False, True])
def test_a_topic_is_required_while_the_owner_goes(tmp_path, monkeypatch, is_made):
    """0.1 s. The request met an owner that went; the next one may have the topic, or not."""
    path = tmp_path / "store"
    with logstore.open_or_connect(path) as first, logstore.open_or_connect(path) as second:
        plain = second.create_topic

        def create_once(name, **options):
            monkeypatch.undo()
            if is_made:
                plain(name, **options)
            first.close()
            raise RetriableError("the broker has closed the connection")

        monkeypatch.setattr(second, "create_topic", create_once)
        assert second.require_topic("t", partitions=3) == 3
        assert second.topics() == {"t": 3}


def test_a_topic_that_nobody_makes_is_waited_for_in_vain(tmp_path, monkeypatch):
    """0.2 s."""
    with logstore.open_or_connect(tmp_path / "store", request_timeout_ms=200) as store:

        def refuse(name, **options):
            raise RetriableError("not now")

        monkeypatch.setattr(store, "create_topic", refuse)
        with pytest.raises(RetriableError, match="not now"):
            store.require_topic("t")


@pytest.mark.parametrize("wrong", [3, None, "x" * 40_000])
def test_a_client_id_that_is_none_is_said_at_once(tmp_path, wrong):
    """It could not be sent, which looked like a broker that does not answer."""
    with pytest.raises(UsageError, match="client_id"):
        logstore.open_or_connect(tmp_path / "store", client_id=wrong)
    assert not (tmp_path / "store").exists()
    with (
        logstore.open(tmp_path / "store") as store,
        store.share(),
        pytest.raises(UsageError, match="client_id"),
    ):
        logstore.connect(tmp_path / "store", client_id=wrong)


def test_a_store_shows_whether_it_is_closed(tmp_path):
    with logstore.open_or_connect(tmp_path / "store") as store:
        assert repr(store).endswith(": its owner>")
    assert repr(store).endswith(": closed>")


def test_a_directory_is_an_address(tmp_path):
    with logstore.open(tmp_path / "store") as store, store.share():
        store.create_topic("t")
        for address in (tmp_path / "store", str(tmp_path / "store")):
            with logstore.connect(address) as elsewhere:
                assert elsewhere.topics() == {"t": 1}


def test_a_name_that_is_no_directory_is_told_as_one(tmp_path, monkeypatch):
    """It was told as an address only."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UsageError, match=r"'shop' is no address.*directory.*is not there"):
        logstore.connect("shop")
    (tmp_path / "shop").write_bytes(b"")
    with pytest.raises(UsageError, match=r"'shop' is no address.*directory.*is a file"):
        logstore.connect("shop")


def test_to_share_twice_is_once_too_often(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        with store.share():
            with pytest.raises(UsageError, match="shared already"):
                store.share()
            assert logstore.connect(tmp_path / "store").topics() == {}
        with store.share():
            pass


@pytest.mark.parametrize("what", ["file", "directory", "listener"])
def test_what_is_in_the_place_of_the_socket_is_named(tmp_path, what):
    """It was called a store that is shared already."""
    with logstore.open(tmp_path / "store") as store:
        name = tmp_path / "store" / ".socket"
        with socket.socket(socket.AF_UNIX) as other, contextlib.chdir(tmp_path / "store"):
            if what == "file":
                name.write_bytes(b"mine")
            elif what == "directory":
                name.mkdir()
            else:
                other.bind(name.name)
                other.listen()
            with pytest.raises(StorageError, match=r"\.socket.*remove it"):
                store.share()
        assert name.exists()


def test_an_owner_makes_a_socket_again_that_was_removed(tmp_path, monkeypatch, caplog):
    """Nobody could come any more, for as long as the owner lived."""
    monkeypatch.setattr(sharing, "_HELD_SECONDS", 0.05)
    with logstore.open_or_connect(tmp_path / "store") as owner, owner.producer() as producer:
        owner.require_topic("t")
        assert producer.send("t", b"a").result(10).offset == 0
        (tmp_path / "store" / ".socket").unlink()
        with logstore.open_or_connect(tmp_path / "store") as other:
            assert other.topics() == {"t": 1}
            assert not other.is_owner
        assert owner.is_owner
        assert producer.send("t", b"b").result(10).offset == 1
    assert [each.getMessage().split("/")[-1] for each in caplog.records] == [
        ".socket was removed; it is made again"
    ]


def test_a_process_that_does_not_share(tmp_path):
    path = tmp_path / "store"
    with logstore.open(path):
        with pytest.raises(RetriableError, match=r"socket.* is held by this process"):
            logstore.open_or_connect(path, request_timeout_ms=200)
        with pytest.raises(RetriableError):
            logstore.connect(path, request_timeout_ms=200)
    with logstore.open_or_connect(path) as shared:
        assert shared.is_owner


def test_what_cannot_be_opened_is_said_at_once(tmp_path):
    path = tmp_path / "store"
    with logstore.open(path) as store:
        store.create_topic("t")
    (path / "topics.json").write_bytes(b"{")
    with pytest.raises(CorruptionError):
        logstore.open_or_connect(path)
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(UsageError):
        logstore.open_or_connect(tmp_path / "file")
    with pytest.raises(InvalidConfigError, match="request_timeout_ms"):
        logstore.open_or_connect(path, request_timeout=1)


@pytest.mark.parametrize("what", ["thread", "descriptor"])
def test_who_cannot_go_through_it_does_not_keep_the_directory(tmp_path, monkeypatch, what):
    """The store stayed open, for nobody, until the process ended."""

    def start(thread):
        if thread.name == "logstore-keeper":
            raise RuntimeError("can't start new thread")
        plain(thread)

    plain = threading.Thread.start
    with monkeypatch.context() as patch:
        if what == "thread":
            patch.setattr(threading.Thread, "start", start)
        else:
            patch.setattr(loop.selectors, "DefaultSelector", lambda: os.listdir(tmp_path / "nothing"))
        with pytest.raises((RetriableError, StorageError)):
            logstore.open_or_connect(tmp_path / "store")
    with logstore.open(tmp_path / "store"):
        pass


def test_no_thread_is_left(tmp_path):
    before = threading.active_count()
    for _ in range(3):
        with logstore.open_or_connect(tmp_path / "store") as store:
            store.require_topic("t")
    deadline = time.monotonic() + 15
    while threading.active_count() > before:
        assert time.monotonic() < deadline, threading.enumerate()
        time.sleep(0.05)


class Process:
    """One that sends."""

    def __init__(self, directory, name):
        self.name = name
        self.notes = directory / f"{name}.notes"
        self.popen = subprocess.Popen(
            [sys.executable, "-m", "tests.sharing_program", str(directory / "store"), str(self.notes), name],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=ROOT,
            text=True,
        )

    def end(self):
        self.popen.stdin.close()
        assert self.popen.wait(60) == 0, self.name
        self.popen.stdout.close()

    def kill(self):
        self.popen.send_signal(signal.SIGKILL)
        self.popen.wait()
        self.popen.stdin.close()
        self.popen.stdout.close()


def owns(directory, process):
    """Whether a process has the directory open, by its lock."""
    files = f"/proc/{process.popen.pid}/fd"
    links = []
    for name in os.listdir(files):
        with contextlib.suppress(OSError):
            links.append(os.readlink(f"{files}/{name}"))
    return str(directory / "store" / ".lock") in links


def run_with_kills(directory, *, count, seconds, seed):
    """Processes send; one is killed now and then, most often the owner, and another comes."""
    chance = random.Random(seed)
    made = iter(range(100_000))
    every = [Process(directory, f"p{next(made)}") for _ in range(count)]
    running = list(every)
    kills = 0
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        time.sleep(chance.uniform(0.3, 1.2))
        owners = [each for each in running if owns(directory, each)]
        victim = chance.choice(owners if owners and chance.random() < 0.7 else running)
        victim.kill()
        kills += 1
        running.remove(victim)
        every.append(Process(directory, f"p{next(made)}"))
        running.append(every[-1])
    for each in running:
        each.end()
    return every, kills


def check(directory, processes):
    """Nothing acknowledged is lost, nothing is there twice, and each producer's records are in order."""
    with logstore.open(directory / "store") as store:
        found = [record.value.decode() for record in store["t"].read()]
        assert store.verify().is_sound
    twice = [value for value, count in Counter(found).items() if count > 1]
    assert twice == []
    numbers = {}
    for value in found:
        name, number = value.split()
        numbers.setdefault(name, []).append(int(number))
    for name, seen in numbers.items():
        assert seen == list(range(len(seen))), name
    acknowledged = 0
    for each in processes:
        lines = each.notes.read_text().splitlines() if each.notes.exists() else []
        acknowledged += len(lines)
        assert len(lines) <= len(numbers.get(each.name, ())), each.name
    return acknowledged


def test_owners_are_killed_under_load(tmp_path):
    """8 s."""
    processes, kills = run_with_kills(tmp_path, count=3, seconds=5, seed=seed_of_turn())
    assert check(tmp_path, processes) > 0
    assert kills > 2


@pytest.mark.soak
def test_ten_processes_for_ten_minutes(tmp_path):
    """10 min."""
    began = time.monotonic()
    processes, kills = run_with_kills(tmp_path, count=10, seconds=600, seed=seed_of_turn())
    acknowledged = check(tmp_path, processes)
    print(f"{kills} killed, {acknowledged:,} acknowledged")
    report(
        "kill -9 of ten processes that share a directory",
        count=kills,
        failures=0,
        seconds=time.monotonic() - began,
        detail=f"{acknowledged:,} records acknowledged",
    )
    assert acknowledged > 10_000
    assert kills > 200
