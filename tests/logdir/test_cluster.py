"""What a broker's metadata log says of topics, as a broker has written it."""

from __future__ import annotations

import shutil

import pytest

from logstore.errors import CorruptionError
from logstore.files import OsFiles
from logstore.format.batch import encode_batch, rebase_batch
from logstore.logdir.cluster import read_cluster_topics
from tests.exchange.brokers import BROKER

SNAPSHOT = "00000000000000000046-0000000001.checkpoint"


@pytest.fixture
def directory(tmp_path):
    return shutil.copytree(BROKER / "__cluster_metadata-0", tmp_path / "__cluster_metadata-0")


def read(directory):
    return read_cluster_topics(OsFiles(), str(directory))


def test_topics_replicas_and_settings_are_those_of_the_end(directory):
    topics = read(directory)
    assert set(topics) == {"plain", "kept", "compacted"}  # gone was deleted
    assert topics["plain"].partition_count == 3
    assert topics["plain"].replicas == {0: (1,), 1: (1,), 2: (1,)}
    assert topics["plain"].leader_epochs == {0: 1, 1: 1, 2: 1}
    assert topics["plain"].settings == {}
    assert topics["kept"].settings == {
        "retention.ms": "-1",
        "retention.bytes": "5000000",
        "flush.messages": "10005",
    }


def test_the_log_alone_tells_the_same_as_snapshot_and_log(directory):
    both = read(directory)
    assert (directory / SNAPSHOT).exists()
    for snapshot in directory.glob("*-*.checkpoint"):
        snapshot.unlink()
    assert read(directory) == both


def test_what_a_snapshot_holds_need_not_be_in_the_log(directory):
    both = read(directory)
    log = directory / f"{0:020d}.log"
    data = log.read_bytes()
    position = 0
    while int.from_bytes(data[position : position + 8], "big") < 46:
        position += 12 + int.from_bytes(data[position + 8 : position + 12], "big")
    log.unlink()
    base = int.from_bytes(data[position : position + 8], "big")
    (directory / f"{base:020d}.log").write_bytes(data[position:])
    assert read(directory) == both
    (directory / SNAPSHOT).unlink()
    for snapshot in directory.glob("*-*.checkpoint"):
        snapshot.unlink()
    with pytest.raises(CorruptionError, match="begins after offset 0, and there is no snapshot"):
        read(directory)


def test_a_torn_end_of_the_log_is_no_damage_and_one_of_a_snapshot_is(directory):
    both = read(directory)
    log = directory / f"{0:020d}.log"
    log.write_bytes(log.read_bytes() + b"torn")
    assert read(directory) == both
    snapshot = directory / SNAPSHOT
    snapshot.write_bytes(snapshot.read_bytes()[:-10])
    with pytest.raises(CorruptionError, match=SNAPSHOT):
        read(directory)


def append(directory, *values):
    log = directory / f"{0:020d}.log"
    batch = encode_batch([None] * len(values), list(values), [0] * len(values), [()] * len(values))
    rebase_batch(batch, 0, 54, 1)
    log.write_bytes(log.read_bytes() + batch)


REMOVED = bytes.fromhex("010900 35baa889ea6943fabd5047eb20e361ae 00")  # plain


@pytest.mark.parametrize("end", ["18", "19", None])
def test_a_metadata_transaction_counts_when_it_has_ended(directory, end):
    values = [bytes.fromhex("011700 00"), REMOVED]
    if end is not None:
        values.append(bytes.fromhex(f"01{end}00 00"))
    append(directory, *values)
    assert ("plain" in read(directory)) == (end != "18")


def test_a_record_of_a_topic_that_was_not_made_is_damage(directory):
    append(directory, REMOVED, bytes.fromhex("010500 00000000 35baa889ea6943fabd5047eb20e361ae 00"))
    with pytest.raises(CorruptionError, match=r"which was never created .*00000000000000000000\.log"):
        read(directory)


def test_a_changed_bit_is_damage(directory):
    for snapshot in directory.glob("*-*.checkpoint"):
        snapshot.unlink()
    log = directory / f"{0:020d}.log"
    data = bytearray(log.read_bytes())
    data[len(data) // 2] ^= 1
    log.write_bytes(data)
    with pytest.raises(CorruptionError, match=r"00000000000000000000\.log, position"):
        read(directory)


def test_no_metadata_log_is_none(tmp_path):
    assert read(tmp_path / "nothing") is None
