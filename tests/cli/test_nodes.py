"""The file of a node, and the process that is one."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import time
import urllib.request
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

import logstore
from logstore.cli import nodes
from logstore.cli.nodes import read_node_file
from logstore.cli.serving import Serving, run_plain
from logstore.errors import LockedError, RetriableError, UsageError
from logstore.replica import FileCoordinator

LINES = {"directory": '"data"', "node_id": "7", "coordinator": '"common"', "listener": '"127.0.0.1:0"'}


@pytest.fixture
def write(tmp_path):
    def write(**lines):
        file = tmp_path / "node.toml"
        found = {**LINES, **lines}
        file.write_text("\n".join(f"{name} = {value}" for name, value in found.items() if value is not None))
        return str(file)

    return write


def test_paths_are_relative_to_the_file(write, tmp_path):
    found = read_node_file(write())
    assert (found.directory, found.coordinator, found.node_id) == (
        str(tmp_path / "data"),
        str(tmp_path / "common"),
        7,
    )
    assert read_node_file(write(coordinator='"zookeeper://h:1/p"')).coordinator == "zookeeper://h:1/p"
    assert read_node_file(write(directory='"/srv"')).directory == "/srv"


def test_settings_are_text_by_kafkas_names(write):
    found = read_node_file(write(settings='{"min.insync.replicas" = 2, "auto.create.topics.enable" = false}'))
    assert found.settings == {"min.insync.replicas": "2", "auto.create.topics.enable": "false"}


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ({"node_id": None}, "node_id must be given"),
        ({"node_id": '"7"'}, "node_id is '7'; it must be of type int"),
        ({"node_id": "true"}, "node_id is True; it must be of type int"),
        ({"nodeid": "7"}, "there is no 'nodeid'"),
        ({"node_id": "="}, "is no TOML"),
        (
            {"coordinator": '"zookeper://h:1/p"'},
            "coordinator is 'zookeper://h:1/p'; it must be zookeeper://host",
        ),
        ({"coordinator": '"./data/"'}, "the coordinator is in the node's own directory"),
        (
            {"settings": "{min.insync.replicas = 2}"},
            r"node.toml: \[settings\] has 'min' without quotes; write \"retention.ms\" = 1000",
        ),
    ],
)
def test_a_file_that_is_wrong(write, lines, why):
    with pytest.raises(UsageError, match=why):
        read_node_file(write(**lines))


@pytest.mark.parametrize(
    ("lines", "why"),
    [
        ({"node_id": "-1"}, "node_id is -1"),
        ({"session_ms": "1"}, "session_ms is 1; it must be a whole number, 200 or above"),
        ({"replication_factor": "0"}, "replication_factor is 0"),
        ({"listener": '"127.0.0.1"'}, "'127.0.0.1' is no address"),
        ({"settings": '{"min.insync.replicas" = 0}'}, "min.insync.replicas is 0; it must be from 1 to"),
        ({"settings": '{"num.partitions" = 0}'}, "num.partitions is 0; it must be from 1 to"),
        ({"settings": '{"retention.ms" = "7d"}'}, "retention.ms is '7d'"),
        ({"coordinator": '"zookeeper://h:x/p"'}, "hosts is 'h:x/p'; it must be text such as 'host1:2181,"),
        (
            {"coordinator": '"zookeeper://h/a/../b"'},
            "hosts is 'h/a/../b'; it must be text such as 'host1:2181,",
        ),
        ({"coordinator": '"zookeeper://h,,i/p"'}, "hosts is 'h,,i/p'; it must be text such as 'host1:2181,"),
    ],
)
def test_what_is_refused_is_told_with_the_file(write, monkeypatch, capsys, lines, why):
    monkeypatch.setattr(nodes, "until_told", lambda: None)
    file = write(**lines)
    assert run_plain(Serving(config=file, is_quiet=True)) == 2
    assert capsys.readouterr().err.startswith(f"error: {file}: {why}")


def test_the_first_node_of_a_new_cluster_is_told_where_it_looks(write, monkeypatch, capsys):
    monkeypatch.setattr(nodes, "until_told", lambda: None)
    file = write()
    assert run_plain(Serving(config=file, is_new_cluster=True, is_quiet=True)) == 2
    told = capsys.readouterr().err
    assert f"error: {file}: " in told
    assert "Start the node without --new-cluster" in told


def test_a_directory_is_no_file_of_a_node(tmp_path):
    with pytest.raises(UsageError, match=r"is a directory; --config names the file of a node"):
        read_node_file(str(tmp_path))


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(UsageError, match="there is no file"):
        read_node_file(str(tmp_path / "none.toml"))


def run(*words):
    return subprocess.run(
        [sys.executable, "-m", "logstore", "serve", *words], capture_output=True, text=True, timeout=120
    )


def test_the_file_says_all(write):
    """1 s: it starts two processes."""
    done = run("--config", write(), "--listen", "127.0.0.1:0")
    assert (done.returncode, "the file says all the rest" in done.stderr) == (2, True)
    assert run().returncode == 2


@contextmanager
def serving(*words):
    """A node as a process; yields what it tells."""
    command = [sys.executable, "-m", "logstore", "serve", *words, "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as node:
        yield json.loads(node.stdout.readline())
        node.send_signal(signal.SIGTERM)
        assert node.wait(30) == 0
        assert "handing over" in node.stderr.read()


def test_a_node_serves_until_it_is_told_to_end(write, tmp_path):
    """2 s."""
    with serving("--config", write(metrics='"127.0.0.1:0"')) as told:
        assert told["path"] == str(tmp_path / "data")
        with urllib.request.urlopen(told["metrics"], timeout=10) as scraped:
            assert b"logstore_replica_is_controller 1.0" in scraped.read()
        with logstore.connect(told["address"]) as remote:
            remote.create_topic("t")
            assert remote.leaders("t") == [7]
            with remote.producer(acks="all") as producer:
                assert producer.send("t", b"x").result().offset == 0
    with logstore.open(tmp_path / "data", read_only=True) as store:
        assert [record.value for record in store["t"][0].read()] == [b"x"]


def test_a_directory_that_is_moved_away_ends_the_node(write, tmp_path, monkeypatch, capsys):
    """It would keep its place in the cluster, and could write nothing."""
    looks = []

    def wait(_):
        looks.append((tmp_path / "data").rename(tmp_path / "moved") if not looks else None)
        return len(looks) > 9

    monkeypatch.setattr(nodes, "until_told", lambda: SimpleNamespace(wait=wait))
    assert run_plain(Serving(config=write())) == 3
    assert len(looks) == 1
    assert ".lock was removed: " in capsys.readouterr().err


def test_a_node_id_that_is_in_use_is_no_directory_that_is(write, monkeypatch, capsys):
    def refuse(*_, **__):
        raise LockedError("node id 7 is in use by 127.0.0.1:9092, in its life 1", "wait_ms")

    monkeypatch.setattr(nodes, "until_told", lambda: None)
    monkeypatch.setattr(nodes, "Node", refuse)
    assert run_plain(Serving(config=write(), is_quiet=True)) == 3
    assert "error: node id 7 is in use by 127.0.0.1:9092, in its life 1. Stop that" in capsys.readouterr().err


@pytest.fixture
def quick(monkeypatch):
    """A process that is told to end as soon as clients can connect, and does not wait between looks."""
    looks = []

    def wait(_):
        looks.append(1)
        return len(looks) > 3

    monkeypatch.setattr(nodes, "until_told", lambda: SimpleNamespace(wait=wait))
    return looks


def _away(monkeypatch, times):
    """The coordinator does not answer so often."""
    opened, tries = nodes.open_coordinator, []

    def open_coordinator(*arguments, **options):
        tries.append(1)
        if len(tries) <= times:
            raise RetriableError("zookeeper://h does not answer")
        return opened(*arguments, **options)

    monkeypatch.setattr(nodes, "open_coordinator", open_coordinator)
    return tries


def test_a_node_that_has_a_cluster_waits_for_its_coordinator(write, quick, monkeypatch, capsys):
    """After a power cut all machines start at once: it ended, and nobody started it again. 0.3 s."""
    file = write()
    assert run_plain(Serving(config=file)) == 0
    capsys.readouterr()
    quick.clear()
    tries = _away(monkeypatch, times=2)
    assert run_plain(Serving(config=file)) == 0
    told = capsys.readouterr()
    assert told.err.count("zookeeper://h does not answer. The node waits for it") == 1
    assert "is served at" in told.out
    assert len(tries) == 3
    quick.clear()
    _away(monkeypatch, times=99)
    assert run_plain(Serving(config=file)) == 0  # it is told to end while it waits
    assert "is served at" not in capsys.readouterr().out


def test_a_node_without_a_cluster_does_not_wait(write, quick, monkeypatch, capsys):
    """The name may be wrong."""
    _away(monkeypatch, times=99)
    assert run_plain(Serving(config=write())) == 3
    assert quick == []
    assert capsys.readouterr().err == "error: zookeeper://h does not answer\n"


@pytest.mark.parametrize("kind", ["other files", "a file", "another cluster", "no cluster"])
def test_what_is_refused_though_the_file_is_right_ends_with_3(write, quick, tmp_path, capsys, kind):
    """As the table of exit codes says. It was 2, as for a wrong file. 0.2 s."""
    file, data = write(), tmp_path / "data"
    if kind == "other files":
        data.mkdir()
        (data / "letter.txt").write_text("x")
    elif kind == "a file":
        data.write_text("x")
    else:
        assert run_plain(Serving(config=file)) == 0
        shutil.rmtree(tmp_path / "common")
        if kind == "another cluster":
            FileCoordinator(tmp_path / "common").close()
    capsys.readouterr()
    assert run_plain(Serving(config=file)) == 3
    told = capsys.readouterr().err
    assert told.startswith("error: ")
    assert file in told or str(tmp_path / "common") in told


@pytest.mark.parametrize("is_new_cluster", [False, True])
def test_a_damaged_coordinator_is_no_store_to_be_verified(write, tmp_path, capsys, is_new_cluster):
    FileCoordinator(tmp_path / "common").close()
    (snapshot,) = tmp_path.glob("common/log-*/snapshot")
    snapshot.write_bytes(b"torn")
    assert run_plain(Serving(config=write(), is_new_cluster=is_new_cluster)) == 3
    told = capsys.readouterr().err
    assert str(snapshot) in told
    assert f"Put back what was there; if that is lost, move {tmp_path / 'common'} away" in told
    assert "logstore verify" not in told


def test_a_lost_coordinator_is_not_made_again_by_accident(write, tmp_path):
    """5 s: it starts six processes."""
    with serving("--config", write()) as told, logstore.connect(told["address"]) as remote:
        remote.create_topic("t")
        with remote.producer(acks="all") as producer:
            producer.send("t", b"x").result()  # the node holds the topic then
    refused = run("--config", write(), "--new-cluster")
    assert (refused.returncode, "Start the node without it" in refused.stderr) == (2, True)
    shutil.rmtree(tmp_path / "common")
    refused = run("--config", write())
    assert (refused.returncode, "there is no cluster in" in refused.stderr) == (3, True)
    assert not (tmp_path / "common").exists()
    refused = run("--config", write(settings='{"retention.ms" = "7d"}'), "--new-cluster")
    assert (refused.returncode, "retention.ms is '7d'" in refused.stderr) == (2, True)  # and nothing was done
    with serving("--config", write(), "--new-cluster") as told, logstore.connect(told["address"]) as remote:
        deadline = time.monotonic() + 30
        while "t" not in remote.topics():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert run("--new-cluster").returncode == 2
