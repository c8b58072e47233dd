"""Sockets in the file system: for the same user, at any depth, and never in the way of the next process."""

from __future__ import annotations

import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest

import logstore
from logstore.errors import ReadOnlyError, StorageError, UsageError
from logstore.wire.apis import ApiKey
from logstore.wire.messages.cluster.metadata import MetadataRequest
from tests.permissions import let_others_in
from tests.wire.raw_client import RawClient

OWNER = """
import sys, logstore
with logstore.open(sys.argv[1]) as store, store.share() as listener:
    print(listener.address, flush=True)
    sys.stdin.read()
"""

STRANGER = """
import os, socket, sys
os.setuid(65534)
socket.socket(socket.AF_UNIX).connect(sys.argv[1])
"""


def topics_at(path):
    with RawClient(path) as client:
        return [each.name for each in client.ask(ApiKey.METADATA, MetadataRequest(None), 12).topics]


def test_another_process_reaches_the_store(store, tmp_path):
    store.create_topic("t")
    with store.share() as listener:
        assert listener.address == f"{store.path}/.socket"
        assert stat.S_IMODE(os.stat(listener.address).st_mode) == 0o600
        assert topics_at(listener.address) == ["t"]
    assert not os.path.exists(listener.address)
    with store.listen(str(tmp_path / "s.sock")) as listener:
        assert topics_at(str(tmp_path / "s.sock")) == ["t"]


def test_the_socket_of_another_store_is_left_alone(store, tmp_path):
    """A store that has lost its directory to another one's takes nothing away there."""
    path = str(tmp_path / "s.sock")
    with store.listen(path):
        os.unlink(path)
        with logstore.open(tmp_path / "other") as other, other.listen(path) as listener:
            other.create_topic("t")
            store.close()
            assert topics_at(listener.address) == ["t"]


def test_it_may_be_deep(tmp_path):
    """A socket's name has room for 107 bytes."""
    deep = tmp_path / ("d" * 100) / ("e" * 100) / "store"
    deep.parent.mkdir(parents=True)
    with logstore.open(deep) as store, store.share() as listener:
        store.create_topic("t")
        with logstore.connect(listener.address) as elsewhere:
            assert elsewhere.topics() == {"t": 1}
        with pytest.raises(UsageError, match="shared already"):
            store.share()


def test_what_a_killed_process_leaves_is_in_nobodys_way(tmp_path):
    """1 s."""
    path = str(tmp_path / "store")
    for _ in range(2):
        owner = subprocess.Popen(
            [sys.executable, "-c", OWNER, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        address = owner.stdout.readline().strip()
        assert topics_at(address) == []
        owner.send_signal(signal.SIGKILL)
        owner.communicate()
        assert os.path.exists(address)
    with logstore.open(path) as store, store.share():
        assert topics_at(address) == []


def test_other_files_are_left_alone(store, tmp_path):
    path = tmp_path / "notes"
    path.write_text("mine")
    with pytest.raises(StorageError, match=r"cannot listen on .*notes: what is there is no socket"):
        store.listen(str(path))
    assert path.read_text() == "mine"
    with pytest.raises(StorageError, match=r"cannot listen on .*xx: the name of a socket may have 107 bytes"):
        store.listen(str(tmp_path / ("x" * 120)))
    with pytest.raises(StorageError, match=r"cannot listen on .*nowhere"):
        store.listen(str(tmp_path / "nowhere" / "s"))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become others")
def test_other_users_are_not_let_in(store):
    let_others_in(Path(store.path))
    with store.share() as listener:
        tried = subprocess.run(
            [sys.executable, "-c", STRANGER, listener.address], capture_output=True, text=True, check=False
        )
    assert "PermissionError" in tried.stderr


def test_it_is_no_part_of_the_store(store, tmp_path):
    """A backup leaves it out, and a reader beside it sees topics only."""
    store.create_topic("t")[0].extend([b"a"])
    with store.share():
        store.backup(tmp_path / "backup")
        assert ".socket" not in os.listdir(tmp_path / "backup")
        with logstore.open(store.path, read_only=True) as reader:
            assert list(reader) == ["t"]
            with pytest.raises(ReadOnlyError):
                reader.share()
        assert store.verify().is_sound
