"""Partitions that a stock Kafka wrote, opened by logstore: everything reads as Kafka's own consumer saw it.

A partition is copied alone. Without the checkpoint files of its log directory it is a log that nobody closed,
so it is recovered from its beginning; with them put beside it, it opens as it was left.
"""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from logstore.config import TopicConfig
from logstore.format.batch import rebase_batch
from logstore.format.snapshot import ProducerSnapshotEntry, decode_snapshot
from logstore.model import Isolation
from logstore.partition.log import Log
from tests.interop.clients import SeenRecord
from tests.interop.fixtures import DATA, ExpectedPartition, case_names, load_case
from tests.interop.kafka import CLEAN_SHUTDOWN_FILE, LOG_START_FILE, RECOVERY_POINT_FILE, write_checkpoint
from tests.interop.ours import as_records, first_at_or_after, numbered, open_ours, seen_in

PARTITIONS = {
    f"{name}/{partition.directory.name}": partition
    for name in case_names()
    for partition in load_case(name).partitions
}
CLEAN = [name for name in PARTITIONS if not name.startswith("killed/")]
TRANSACTIONAL = [name for name in PARTITIONS if name.startswith("transactional")]
FORGOTTEN = {
    "compacted/compacted-0": "batches that the snapshot describes were compacted away",
    "compacted-transactional/compacted-transactional-0": "batches that the snapshot describes were compacted away",
    "log-dir/compact-one-0": "batches that the snapshot describes were compacted away",
    "epochs/epochs-0": "its broker was restarted, and dropped producers for the age of their records",
}
"""Where a producer snapshot cannot be rebuilt from the batches."""

every_partition = pytest.mark.parametrize("name", PARTITIONS)
clean_or_not = pytest.mark.parametrize("is_clean", [False, True], ids=["unclean", "clean"])


@dataclass(frozen=True)
class Place:
    """A copy of a committed partition that a test may change, and what Kafka saw of the original."""

    directory: Path
    expected: ExpectedPartition
    config: TopicConfig

    def open(self) -> Log:
        return open_ours(self.directory, self.config)

    def files(self, pattern: str) -> dict[str, bytes]:
        return {path.name: path.read_bytes() for path in sorted(self.directory.glob(pattern))}

    def remove(self, *patterns: str) -> None:
        for pattern in patterns:
            for path in self.directory.glob(pattern):
                path.unlink()


def place(
    name: str, tmp_path: Path, *, is_clean: bool = False, config: TopicConfig | None = None
) -> Place:
    """Copy a partition, with the checkpoints that its log directory would have for it."""
    expected = PARTITIONS[name]
    directory = tmp_path / expected.directory.name
    shutil.copytree(expected.directory, directory)
    at = expected.topic, expected.partition
    if expected.log_start_offset:
        write_checkpoint(directory / LOG_START_FILE, {at: expected.log_start_offset})
    if is_clean:
        write_checkpoint(directory / RECOVERY_POINT_FILE, {at: expected.log_end_offset})
        shutil.copy(DATA / "log-dir" / CLEAN_SHUTDOWN_FILE, directory)
    return Place(directory, expected, config or TopicConfig())


# --- reading --------------------------------------------------------------------------------------


@every_partition
@clean_or_not
def test_a_log_is_read_as_kafka_saw_it(name: str, is_clean: bool, tmp_path: Path) -> None:
    if is_clean and name not in CLEAN:
        pytest.skip("its broker was killed")
    copy = place(name, tmp_path, is_clean=is_clean)
    expected = copy.expected
    before = copy.files("*.log")
    with copy.open() as log:
        assert log.recovery.was_clean == is_clean
        assert list(log.read()) == as_records(expected.records)
        assert list(log.read(isolation=Isolation.COMMITTED)) == as_records(expected.committed)
        assert seen_in(log) == list(expected.records)
        assert (log.log_start_offset, log.log_end_offset, log.last_stable_offset) == (
            expected.log_start_offset,
            expected.log_end_offset,
            expected.last_stable_offset,
        )
    assert copy.files("*.log") == before


@every_partition
@clean_or_not
def test_reading_begins_and_ends_at_any_offset(name: str, is_clean: bool, tmp_path: Path) -> None:
    copy = place(name, tmp_path, is_clean=is_clean and name in CLEAN)
    records = as_records(copy.expected.records)
    with copy.open() as log:
        for start in range(log.log_start_offset, log.log_end_offset):
            wanted = [record for record in records if start <= record.offset < start + 3]
            assert list(log.read(start, start + 3)) == wanted


@every_partition
@clean_or_not
def test_lookups_by_time_equal_a_linear_scan(name: str, is_clean: bool, tmp_path: Path) -> None:
    copy = place(name, tmp_path, is_clean=is_clean and name in CLEAN)
    records = copy.expected.records
    with copy.open() as log:
        for timestamp_ms in _interesting_times(records):
            assert log.offset_at(timestamp_ms) == first_at_or_after(records, timestamp_ms), timestamp_ms


def _interesting_times(records: tuple[SeenRecord, ...]) -> list[int]:
    """Every seventh timestamp and its neighbours, and the ends."""
    stamps = sorted({record.timestamp_ms for record in records if record.timestamp_ms >= 0})
    chosen = {*stamps[::7], *stamps[-1:]}
    return sorted({0, *chosen, *(stamp + 1 for stamp in chosen), *(stamp - 1 for stamp in chosen if stamp)})


# --- what recovery rebuilds -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "interval_bytes"),
    [
        ("segments/segments-0", 512),
        ("idempotent/idempotent-0", 256),
        ("transactional-segments/transactional-segments-0", 256),
        ("log-dir/many-0", 256),
        ("killed/killed-0", 256),
        ("codec-lz4/codec-lz4-0", 4096),
    ],
)
def test_recovery_rebuilds_the_brokers_indexes(name: str, interval_bytes: int, tmp_path: Path) -> None:
    copy = place(name, tmp_path, config=TopicConfig(index_interval_bytes=interval_bytes))
    brokers = copy.files("*.index") | copy.files("*.timeindex")
    copy.remove("*.index", "*.timeindex")
    copy.open().close()
    rebuilt = copy.files("*.index") | copy.files("*.timeindex")
    assert rebuilt.keys() == brokers.keys()
    active = max(copy.files("*.log")).removesuffix(".log")
    for file_name, content in brokers.items():
        if file_name.startswith(active):
            # The broker adds a closing entry when it stops; a killed one leaves zeros.
            assert content.startswith(rebuilt[file_name])
        else:
            assert rebuilt[file_name] == content


@pytest.mark.parametrize("name", TRANSACTIONAL)
def test_recovery_rebuilds_the_brokers_aborted_transactions(name: str, tmp_path: Path) -> None:
    copy = place(name, tmp_path)
    brokers = copy.files("*.txnindex")
    assert brokers
    copy.remove("*.txnindex", "*.snapshot")
    with copy.open() as log:
        assert list(log.read(isolation=Isolation.COMMITTED)) == as_records(copy.expected.committed)
    assert copy.files("*.txnindex") == brokers


@every_partition
@clean_or_not
def test_our_producer_snapshot_equals_the_brokers(name: str, is_clean: bool, tmp_path: Path) -> None:
    if not is_clean and name in FORGOTTEN:
        pytest.skip(FORGOTTEN[name])
    copy = place(name, tmp_path, is_clean=is_clean and name in CLEAN)
    brokers = _last_snapshot(copy)
    if brokers is None:
        pytest.skip("its broker left none at the log end")
    if not is_clean:
        copy.remove("*.snapshot")
    copy.open().close()
    assert _last_snapshot(copy) == brokers


def _last_snapshot(copy: Place) -> list[ProducerSnapshotEntry] | None:
    """The entries of the snapshot at the log end."""
    path = copy.directory / f"{copy.expected.log_end_offset:020d}.snapshot"
    return sorted(decode_snapshot(path.read_bytes())) if path.exists() else None


@pytest.mark.parametrize("name", ["epochs/epochs-0", "log-dir/many-1", "segments/segments-0"])
@clean_or_not
def test_leader_epochs_are_kept_and_rebuilt(name: str, is_clean: bool, tmp_path: Path) -> None:
    copy = place(name, tmp_path, is_clean=is_clean)
    brokers = copy.files("leader-epoch-checkpoint")
    if not is_clean:
        copy.remove("leader-epoch-checkpoint")
    copy.open().close()
    assert copy.files("leader-epoch-checkpoint") == brokers


# --- going on -------------------------------------------------------------------------------------


@every_partition
@clean_or_not
def test_a_log_goes_on_behind_what_the_broker_wrote(name: str, is_clean: bool, tmp_path: Path) -> None:
    copy = place(name, tmp_path, is_clean=is_clean and name in CLEAN)
    new = numbered("ours", range(5))
    with copy.open() as log:
        offsets = log.extend((each.key, each.value, each.timestamp_ms) for each in new)
        assert offsets[0] == copy.expected.log_end_offset
    with copy.open() as log:
        assert log.recovery.was_clean
        records = list(log.read())
        assert records[:-5] == as_records(copy.expected.records)
        assert [record.value for record in records[-5:]] == [each.value for each in new]


@clean_or_not
def test_a_batch_that_the_broker_has_is_not_appended_again(is_clean: bool, tmp_path: Path) -> None:
    copy = place("idempotent/idempotent-0", tmp_path, is_clean=is_clean)
    with copy.open() as log:
        batch = bytearray(log.fetch(log.log_end_offset - 1).data)
        rebase_batch(batch, 0, 0, -1)
        again = log.append_batch(batch)
        assert again is not None
        assert again.is_duplicate
        assert again.last_offset == copy.expected.log_end_offset - 1 == log.log_end_offset - 1


@clean_or_not
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_that_a_client_left_open_can_be_ended(
    is_clean: bool, committed: bool, tmp_path: Path
) -> None:
    copy = place("transactional-open/transactional-open-0", tmp_path, is_clean=is_clean)
    with copy.open() as log:
        [state] = [each for each in _last_snapshot(copy) or () if each.transaction_first_offset >= 0]
        log.append_end_marker(state.producer_id, state.producer_epoch, committed=committed)
        assert log.last_stable_offset == log.log_end_offset
        values = [record.value for record in log.read(isolation=Isolation.COMMITTED)]
    assert values[:2] == [b"commit-0", b"commit-1"]
    assert values[2:] == ([b"open-20", b"open-21", b"open-22"] if committed else []) + [
        b"plain-30",
        b"plain-31",
    ]


# --- damage ---------------------------------------------------------------------------------------


def test_zeros_behind_preallocated_indexes_mislead_nobody(tmp_path: Path) -> None:
    copy = place("killed/killed-0", tmp_path, is_clean=True)
    records = copy.expected.records
    with copy.open() as log:
        assert list(log.read()) == as_records(records)
        for record in records:
            assert next(log.read(record.offset)).offset == record.offset
            assert log.offset_at(record.timestamp_ms) == record.offset


@pytest.mark.parametrize(
    "name",
    [
        "codec-zstd/codec-zstd-0",
        "compacted/compacted-0",
        "epochs/epochs-0",
        "legacy-mixed/legacy-mixed-0",
        "legacy-v1-lz4/legacy-v1-lz4-0",
        "transactional/transactional-0",
    ],
)
def test_a_log_that_was_cut_recovers_to_a_prefix(name: str, tmp_path: Path) -> None:
    size = max(PARTITIONS[name].directory.glob("*.log")).stat().st_size
    lengths = []
    for kept_bytes in range(0, size, max(size // 12, 1)):
        copy = place(name, tmp_path / str(kept_bytes))
        last = max(copy.directory.glob("*.log"))
        last.write_bytes(last.read_bytes()[:kept_bytes])
        with copy.open() as log:
            found = list(log.read())
            end = log.log_end_offset
        assert found == [record for record in as_records(copy.expected.records) if record.offset < end]
        assert last.stat().st_size <= kept_bytes
        lengths.append(len(found))
    assert lengths == sorted(lengths)
    assert lengths[0] < lengths[-1] < len(PARTITIONS[name].records)


@pytest.mark.parametrize("name", ["segments/segments-0", "legacy-v0-none/legacy-v0-none-0"])
def test_a_flipped_bit_ends_the_log_in_front_of_its_batch(name: str, tmp_path: Path) -> None:
    copy = place(name, tmp_path)
    last = max(copy.directory.glob("*.log"))
    damaged = bytearray(last.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    last.write_bytes(damaged)
    with copy.open() as log:
        found = list(log.read())
        assert log.recovery.cut_bytes > 0
    assert found == as_records(copy.expected.records)[: len(found)]
    assert 0 < len(found) < len(copy.expected.records)
