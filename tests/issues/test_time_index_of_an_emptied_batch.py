"""After `erase` the time index could have an entry for a batch without records: the largest timestamp is the
one that the header has kept. Kafka's dumper compares such an entry with the records that are there, and finds
fault.

A batch without records gives its segment no timestamp, whoever makes the index: an erasure, a compaction, an
append by a follower, recovery, a rebuild. The dumper itself is asked in `tests/interop/test_dump_ours.py`."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from tests.partition.helpers import Partition, batch_of

from logstore.format.header import decode_header
from logstore.format.names import LOG_SUFFIX
from logstore.model import NewRecord
from logstore.partition.log import Log


def complaints(partition: Partition) -> list[str]:
    """What the dumper would say of the time indexes."""
    found = []
    for path in sorted(partition.path.glob("*.timeindex")):
        base, log = int(path.stem), path.with_suffix(LOG_SUFFIX).read_bytes()
        batches = {}
        position = 0
        while position < len(log):
            header = decode_header(log[position : position + 61])
            batches[header.last_offset] = header
            position += header.size_bytes
        for timestamp_ms, relative in struct.iter_unpack(">qi", path.read_bytes()):
            named = batches[base + relative]
            if not named.record_count or named.max_timestamp_ms != timestamp_ms:
                found.append(f"{path.name}: {timestamp_ms} of {base + relative}")
    return found


def write(partition: Partition) -> Log:
    """Two segments; in each the third of five batches is the newest."""
    log = partition.log
    for segment in range(2):
        if segment:
            log.roll()
        for number in range(5):
            at_ms = 1_600_000_000_000 + segment * 100 + (50 if number == 2 else number)
            log.extend([NewRecord(b"v" * 200, key=b"%d" % number, timestamp_ms=at_ms)])
    return log


@pytest.mark.parametrize("lost", [[], [".timeindex"], [".index", ".timeindex"]])
def test_an_erasure_leaves_no_entry_for_what_it_emptied(tmp_path: Path, lost: list[str]) -> None:
    partition = Partition(tmp_path / "t-0")
    log = write(partition)
    log.erase(keys=[b"2"])
    assert log.verify(), log.verify()
    assert log.offset_at(1_600_000_000_004 + 1) == 5
    partition.close()
    for suffix in lost:
        for path in partition.path.glob(f"*{suffix}"):
            path.unlink()
    log = partition.open()
    assert [record.offset for record in log.read()] == [0, 1, 3, 4, 5, 6, 8, 9]
    assert log.offset_at(1_600_000_000_004) == 4
    report = log.verify()
    assert report, report
    partition.close()
    assert not complaints(partition)
    assert (partition.path / f"{0:020}.timeindex").stat().st_size >= 12


@pytest.mark.parametrize("dies", [False, True])
def test_a_follower_that_gets_an_emptied_batch(tmp_path: Path, dies: bool) -> None:
    """As from a leader that was compacted."""
    partition = Partition(tmp_path / "t-0")
    source = Partition(tmp_path / "s-0")
    write(source).erase(keys=[b"2"])
    for batch in (source.log.fetch(0, max_bytes=2**20).data,):
        partition.log.append_replicated(batch)
    source.close()
    if dies:
        partition.recover()
    report = partition.log.verify()
    assert report, report
    partition.log.roll()
    partition.close()
    assert not complaints(partition)


def test_a_segment_of_emptied_batches_has_no_timestamp(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "t-0")
    partition.write(3)
    partition.log.erase(offsets=range(3))
    assert partition.log.offset_at(0) is None
    assert partition.log.verify()
    partition.close()
    assert partition.file(0, ".timeindex").stat().st_size == 0


def test_batches_that_are_written_with_their_records_have_their_entries(tmp_path: Path) -> None:
    partition = Partition(tmp_path / "t-0")
    partition.log.append_replicated(bytes(batch_of(0, 3)))
    partition.log.roll()
    partition.close()
    assert partition.file(0, ".timeindex").stat().st_size == 12
