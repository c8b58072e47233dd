"""Partitions that a stock Kafka wrote, opened by logstore: everything reads as Kafka's own consumer saw it.

A partition is copied alone. Without the checkpoint files of its log directory it is a log that nobody closed,
so it is recovered from its beginning; with them put beside it, it opens as it was left.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import pytest

import logstore
from logstore import Isolation, Log, Store, TopicConfig
from logstore.format.batch import rebase_batch
from logstore.format.metadata import encode_base64_uuid
from logstore.format.snapshot import ProducerSnapshotEntry, decode_snapshot
from logstore.testing import ManualClock
from tests.interop.clients import SeenRecord
from tests.interop.fixtures import DATA, ExpectedPartition, case_names, load_case
from tests.interop.kafka import CLEAN_SHUTDOWN_FILE, RECOVERY_POINT_FILE, read_checkpoint, write_checkpoint
from tests.interop.ours import (
    TIME_MS,
    add_checkpoints,
    as_records,
    first_at_or_after,
    numbered,
    open_ours,
    seen_in,
)

KILLED_CLEANLY = ("killed/killed-0", True)

PARTITIONS = {
    f"{name}/{partition.directory.name}": partition
    for name in case_names()
    for partition in load_case(name).partitions
}
OPENINGS = [
    (name, is_clean)
    for name in PARTITIONS
    for is_clean in (False, True)
    if (name, is_clean) != KILLED_CLEANLY
]
"""Every partition as a crash would leave it, and as its broker left it."""

TRANSACTIONAL = [name for name in PARTITIONS if name.startswith("transactional")]

UNREPEATABLE = [
    *(name for name in PARTITIONS if "compact" in name),  # it describes batches that were compacted away
    "epochs/epochs-0",  # the broker was restarted, and forgot producers for the age of their records
]
"""Where the last producer snapshot says something else than the batches do."""

every_opening = pytest.mark.parametrize(("name", "is_clean"), OPENINGS)
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


def place(name: str, tmp_path: Path, *, is_clean: bool = False, config: TopicConfig | None = None) -> Place:
    """Copy a partition, with the checkpoints that its log directory would have for it."""
    expected = PARTITIONS[name]
    directory = tmp_path / expected.directory.name
    shutil.copytree(expected.directory, directory)
    add_checkpoints(directory, expected.log_start_offset, expected.log_end_offset if is_clean else None)
    return Place(directory, expected, config or TopicConfig())


def last_snapshot(expected: ExpectedPartition, directory: Path) -> list[ProducerSnapshotEntry] | None:
    """The entries of the producer snapshot at the log end."""
    path = directory / f"{expected.log_end_offset:020d}.snapshot"
    return sorted(decode_snapshot(path.read_bytes())) if path.exists() else None


# --- reading --------------------------------------------------------------------------------------


def first_log(names: Iterable[str], expected: ExpectedPartition) -> str:
    """Of the log files, the one with the log start."""
    return max(name for name in names if int(name.removesuffix(".log")) <= expected.log_start_offset)


@every_opening
def test_a_log_is_read_as_kafka_saw_it(name: str, is_clean: bool, tmp_path: Path) -> None:
    copy = place(name, tmp_path, is_clean=is_clean)
    expected = copy.expected
    before = copy.files("*.log")
    if not is_clean:  # a broker that was killed has left a segment that it was about to remove
        before = {name: data for name, data in before.items() if name >= first_log(before, expected)}
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


@every_opening
def test_reading_begins_and_ends_at_any_offset(name: str, is_clean: bool, tmp_path: Path) -> None:
    copy = place(name, tmp_path, is_clean=is_clean)
    records = as_records(copy.expected.records)
    with copy.open() as log:
        for start in range(log.log_start_offset, log.log_end_offset):
            wanted = [record for record in records if start <= record.offset < start + 3]
            assert list(log.read(start, start + 3)) == wanted


@every_opening
def test_lookups_by_time_equal_a_linear_scan(name: str, is_clean: bool, tmp_path: Path) -> None:
    copy = place(name, tmp_path, is_clean=is_clean)
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
    for file_name, content in brokers.items():
        # A broker that was killed has not added the closing entry, and leaves zeros.
        assert rebuilt[file_name] == content or (
            name == "killed/killed-0" and rebuilt[file_name].startswith(content.rstrip(b"\0"))
        )


@pytest.mark.parametrize("name", TRANSACTIONAL)
def test_recovery_rebuilds_the_brokers_aborted_transactions(name: str, tmp_path: Path) -> None:
    copy = place(name, tmp_path)
    brokers = copy.files("*.txnindex")
    assert brokers
    copy.remove("*.txnindex", "*.snapshot")
    with copy.open() as log:
        assert list(log.read(isolation=Isolation.COMMITTED)) == as_records(copy.expected.committed)
    assert copy.files("*.txnindex") == brokers


@pytest.mark.parametrize(
    ("name", "is_clean"),
    [
        (name, is_clean)
        for name, is_clean in OPENINGS
        if last_snapshot(PARTITIONS[name], PARTITIONS[name].directory) is not None
        and (is_clean or name not in UNREPEATABLE)
    ],
)
def test_our_producer_snapshot_equals_the_brokers(name: str, is_clean: bool, tmp_path: Path) -> None:
    copy = place(name, tmp_path, is_clean=is_clean)
    brokers = last_snapshot(copy.expected, copy.directory)
    if not is_clean:
        copy.remove("*.snapshot")
    copy.open().close()
    assert last_snapshot(copy.expected, copy.directory) == brokers


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


@every_opening
def test_a_log_goes_on_behind_what_the_broker_wrote(name: str, is_clean: bool, tmp_path: Path) -> None:
    copy = place(name, tmp_path, is_clean=is_clean)
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
        [state] = [
            each
            for each in last_snapshot(copy.expected, copy.directory) or ()
            if each.transaction_first_offset >= 0
        ]
        log.append_end_marker(state.producer_id, state.producer_epoch, committed=committed)
        assert log.last_stable_offset == log.log_end_offset
        values = [record.value for record in log.read(isolation=Isolation.COMMITTED)]
    assert values[:2] == [b"commit-0", b"commit-1"]
    assert values[2:] == ([b"open-20", b"open-21", b"open-22"] if committed else []) + [
        b"plain-30",
        b"plain-31",
    ]


# --- damage ---------------------------------------------------------------------------------------


@pytest.mark.damaged
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


# --- a whole log directory ------------------------------------------------------------------------


def copy_log_dir(tmp_path: Path, case: str) -> Path:
    ignored = shutil.ignore_patterns("expected.json")
    return Path(shutil.copytree(DATA / case, tmp_path / case, ignore=ignored))


def check_store(store: Store, case: str) -> None:
    """Everything in the store is as Kafka saw it."""
    expected = load_case(case).partitions
    assert not store.damaged
    assert {(name, log.partition.partition) for name in store for log in store[name]} == {
        (each.topic, each.partition) for each in expected
    }
    for each in expected:
        log = store[each.topic][each.partition]
        assert list(log.read()) == as_records(each.records)
        assert list(log.read(isolation=Isolation.COMMITTED)) == as_records(each.committed)
        assert (log.log_start_offset, log.log_end_offset, log.last_stable_offset) == (
            each.log_start_offset,
            each.log_end_offset,
            each.last_stable_offset,
        )


@clean_or_not
def test_a_log_directory_opens_as_a_store(is_clean: bool, tmp_path: Path) -> None:
    path = copy_log_dir(tmp_path, "log-dir")
    if not is_clean:
        (path / CLEAN_SHUTDOWN_FILE).unlink()
        (path / RECOVERY_POINT_FILE).unlink()
    metadata = (path / "many-1" / "partition.metadata").read_text()
    with logstore.open(path, clock=ManualClock(TIME_MS)) as store:
        assert store.was_clean == is_clean
        check_store(store, "log-dir")
        assert encode_base64_uuid(store["many"].topic_id) in metadata
        store["many"][1].append(b"ours")
    with logstore.open(path, clock=ManualClock(TIME_MS)) as store:
        assert store.was_clean
        assert store["many"][1].log_start_offset == 47
        assert next(store["many"][1].read(100)).value == b"ours"


def test_gaps_that_the_cleaner_left_above_the_recovery_point_are_no_loss(tmp_path: Path) -> None:
    """Nobody has told us that the topic is compacted, and its broker crashed."""
    path = copy_log_dir(tmp_path, "log-dir")
    (path / CLEAN_SHUTDOWN_FILE).unlink()
    stored = read_checkpoint(path / RECOVERY_POINT_FILE)
    write_checkpoint(path / RECOVERY_POINT_FILE, dict.fromkeys(stored, 0))
    with logstore.open(path, clock=ManualClock(TIME_MS)) as store:
        check_store(store, "log-dir")


def test_retention_removes_nothing_whose_limits_are_not_known(tmp_path: Path) -> None:
    """Only the segments below the log start go, as they would with the broker."""
    a_year_later = ManualClock(TIME_MS + 365 * 86_400_000)
    with logstore.open(copy_log_dir(tmp_path, "log-dir"), clock=a_year_later) as store:
        store.enforce_retention()
        check_store(store, "log-dir")


@pytest.mark.parametrize("case", ["internal-topics", "killed", "log-dir", "transactional-open"])
def test_a_log_directory_is_read_without_being_changed(case: str, tmp_path: Path) -> None:
    path = copy_log_dir(tmp_path, case)
    before = everything_in(path)
    with logstore.open(path, read_only=True, clock=ManualClock(TIME_MS)) as store:
        check_store(store, case)
    assert everything_in(path) == before


def everything_in(path: Path) -> dict[Path, tuple[int, bytes]]:
    return {each: (each.stat().st_mtime_ns, each.read_bytes()) for each in path.rglob("*") if each.is_file()}
