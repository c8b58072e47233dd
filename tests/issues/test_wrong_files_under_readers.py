"""A reader elsewhere that met a damaged small file said IndexError and KeyError.

The first look at a partition with a damaged ``partition.metadata`` failed as it should; the third took the
directory for listed, and what was to come of the list for there. A symbolic link in the place of a checkpoint
was an error of the first look, and nothing at all for the second: it went on with what had been read so far.
For ``verify`` it was a KeyError.
"""

from __future__ import annotations

import time

import pytest
from tests.logdir.helpers import open_store, values

import logstore
from logstore.errors import CorruptionError


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "store"
    with open_store(path) as store:
        store.create_topic("t")[0].extend([b"v"] * 3)
    return path


@pytest.mark.parametrize("rest_s", [0, 0.06], ids=["at once", "at rest"])
def test_a_damaged_topic_id_is_the_same_each_time(path, rest_s):
    file = path / "t-0" / "partition.metadata"
    right = file.read_bytes()
    file.write_bytes(b"version: 0\ntopic_id: no such thing\n")
    time.sleep(rest_s)
    with logstore.open(path, read_only=True) as reader:
        for _ in range(4):
            assert values(reader["t"][0]) == [b"v"] * 3
            (found,) = reader.verify().problems
            assert found.path == str(file)
        file.write_bytes(right)
        assert values(reader["t"][0]) == [b"v"] * 3


CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
    "cleaner-offset-checkpoint",
)


@pytest.mark.parametrize("name", CHECKPOINTS)
def test_a_link_in_the_place_of_a_checkpoint_is_refused_each_time(path, name):
    file = path / name
    right = file.read_bytes() if file.exists() else None
    file.unlink(missing_ok=True)
    file.symlink_to(path / "topics.json")
    time.sleep(0.06)
    with logstore.open(path, read_only=True) as reader:
        for _ in range(4):
            with pytest.raises(CorruptionError, match=name):
                values(reader["t"][0])
        found = reader.verify()
        assert not found
        assert name in str([finding.path for finding in found.problems])
        file.unlink()
        if right is not None:
            file.write_bytes(right)
        assert values(reader["t"][0]) == [b"v"] * 3
