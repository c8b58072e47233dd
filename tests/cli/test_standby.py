"""``logstore standby``: a copy in a process of its own, which takes over."""

from __future__ import annotations

import contextlib
import json
import signal
import time
import urllib.request

import pytest

import logstore
from tests.cli.helpers import answer, run, start


@pytest.fixture
def leader(tmp_path):
    with logstore.open(tmp_path / "leader") as store, store.listen("127.0.0.1:0") as listener:
        store.create_topic("orders")[0].extend([b"1", b"2", b"3"])
        yield store, listener.address


@contextlib.contextmanager
def copying(*arguments):
    """A process; what it says first, and how to end it."""
    process = start("standby", *arguments, "--json")
    try:
        yield json.loads(process.stdout.readline()), process
    finally:
        process.kill()
        process.communicate()


def told_to_end(process):
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=30)
    return process.returncode, err.decode()


def until(condition):
    deadline = time.monotonic() + 30
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.05)


def test_it_copies_is_read_and_takes_over(leader, tmp_path):
    """3 s."""
    there, address = leader
    here = tmp_path / "here"
    options = ("--listen", "127.0.0.1:0", "--metrics", "127.0.0.1:0")
    with copying(here, address, *options) as (said, process):
        assert (said["path"], said["leader"]) == (str(here), address)
        (place,) = said["addresses"]
        until(lambda: values_in(place) == [b"1", b"2", b"3"])
        there["orders"][0].extend([b"4"])

        def metrics():
            with urllib.request.urlopen(said["metrics"]) as answered:
                lines = answered.read().decode().splitlines()
            return [line.split("}")[1].strip() for line in lines if line.startswith("logstore_standby_")]

        until(lambda: metrics() == ["0.0", "0.0", "0.0"])
        until(lambda: values_in(place) == [b"1", b"2", b"3", b"4"])
        code, err = told_to_end(process)
        assert code == 0
        assert "0 offsets left" in err
    done = answer("standby", here, address, "--promote")
    assert done.lines == ["orders"]
    assert f"1 topic is {here}'s own now" in done.err
    with logstore.open(here) as store:
        store["orders"][0].append(b"by the standby")
        values = [record.value for record in store["orders"][0].read()]
        assert values == [b"1", b"2", b"3", b"4", b"by the standby"]
    [report] = answer("standby", here, address, "--promote", "--json").rows
    assert report == {"path": str(here), "topics": []}


def values_in(place):
    """What a reader of the copy finds."""
    with logstore.connect(place) as copy:
        if "orders" not in copy.topics():
            return []
        with copy.consumer("orders") as consumer:
            return [record.value for record in consumer.drain()]


def test_promotion_needs_no_leader(leader, tmp_path):
    """2 s."""
    there, address = leader
    there.create_topic("mails")[0].append(b"not wanted")
    here = tmp_path / "here"
    with copying(here, address, "--topic", "orders") as (_, process):
        until((here / "orders-0" / f"{0:020}.log").exists)
        until(lambda: (here / "orders-0" / f"{0:020}.log").stat().st_size > 0)
        assert told_to_end(process)[0] == 0
    there.close()
    [report] = answer("standby", here, address, "--promote", "--json").rows
    assert report["topics"] == ["orders"]
    with logstore.open(here) as store:
        assert list(store) == ["orders"]
        assert len(list(store["orders"][0].read())) == 3


def test_it_waits_for_its_leader_and_ends_when_it_is_told(tmp_path):
    """2 s."""
    with copying(tmp_path / "here", "127.0.0.1:1") as (said, process):
        assert said["addresses"] == []
        code, err = told_to_end(process)
    assert code == 0
    assert "0 offsets left" in err


def test_what_is_wrong(leader, tmp_path):
    _, address = leader
    here = tmp_path / "here"
    for arguments, code, text in [
        ((here, address, "--promote"), 3, "there is no directory"),
        ((here, address, "--promote", "--listen", "127.0.0.1:0"), 2, "--listen and --metrics are for a copy"),
        ((here, address, "--user", "a"), 2, "--user needs a password"),
        ((here, address, "--topic", "__consumer_offsets"), 2, "'__consumer_offsets' is internal"),
        ((here, "nowhere"), 2, "nowhere"),
    ]:
        done = run("standby", *arguments)
        assert (done.code, text in done.err) == (code, True), done.err


def test_what_ends_a_copy_is_no_fault_of_the_command_line(leader, tmp_path):
    """2 s."""
    _, address = leader
    here = tmp_path / "here"
    with logstore.open(here) as store:
        store.create_topic("orders")[0].append(b"own")
    done = answer_of_process("standby", here, address)
    assert (done[0], "'orders'" in done[1]) == (3, True), done[1]


def answer_of_process(*arguments):
    """The exit code and the standard error of a command that ends by itself."""
    process = start(*arguments)
    try:
        _, err = process.communicate(timeout=30)
    finally:
        process.kill()
    return process.returncode, err.decode()


def test_an_address_in_use_leaves_no_copies(leader, tmp_path):
    _, address = leader
    here = tmp_path / "here"
    done = run("standby", here, address, "--listen", address)
    assert (done.code, "in use" in done.err) == (3, True), done.err
    with logstore.open(here) as store:
        assert list(store) == []
        assert not (here / "followed.json").exists()


def test_a_promotion_of_nothing_is_told(leader, tmp_path):
    """2 s."""
    there, address = leader
    here = tmp_path / "here"
    with logstore.open(here) as store:
        store.create_topic("own")
    for options in ((), ("--topic", "own"), ("--topic", "nowhere")):
        done = run("standby", here, address, "--promote", *options)
        assert (done.code, "nothing was promoted" in done.err) == (3, True), done.err
        assert str(here) in done.err
    with logstore.open(here) as store:
        assert list(store) == ["own"]
        store.delete_topic("own")
    with copying(here, address) as (_, process):
        until(lambda: (here / "orders-0" / f"{0:020}.log").exists())
        assert told_to_end(process)[0] == 0
    done = run("standby", here, "127.0.0.1:1", "--promote")
    assert (done.code, f"a copy of {address}: give that leader's address with --promote" in done.err) == (
        3,
        True,
    )
    there.create_topic("new")
    names = ("--topic", "orders", "--topic", "nowhere", "--topic", "new")
    done = answer("standby", here, address, "--promote", *names)
    assert done.lines == ["orders"]
    assert "topics 'nowhere', 'new' were not promoted: they are not in" in done.err
    done = answer("standby", here, address, "--promote", *names)
    assert (done.lines, "promoted before all was copied" in done.err) == ([], False)
