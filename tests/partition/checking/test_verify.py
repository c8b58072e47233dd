"""What verify finds, damage by damage, and that it finds nothing where nothing is wrong."""

from __future__ import annotations

import errno
import shutil
import threading
import tracemalloc
from pathlib import Path

import pytest

import logstore
from logstore.errors import ClosedError, storage_error
from logstore.format.batch import HEADER_BYTES, decode_header, encode_batch, seal_batch
from logstore.format.checkpoint import EpochEntry, encode_epoch_checkpoint
from logstore.format.compression import Codec, compress
from logstore.format.snapshot import decode_snapshot, encode_snapshot
from logstore.model import ProducerIdentity
from logstore.partition.checking.facts_of_files import facts_of_files
from logstore.partition.checking.files import StoredCheckpoints
from logstore.partition.checking.findings import (
    MAX_KEPT_FINDINGS,
    Finding,
    FindingKind,
    Findings,
    join_reports,
)
from logstore.partition.checking.verify import LogCheck, verify_log
from tests.interop.fixtures import DATA, load_case
from tests.logdir.helpers import snapshot as snapshot_of
from tests.partition.helpers import Partition, WatchedFile
from tests.partition.helpers_rules import START_MS, identity, open_log
from tests.partition.log_shapes import SHAPES, add_rows

pytestmark = pytest.mark.damaged  # what must be sound is verified here by name

RECORDS = 8
"""In each batch of a log made here."""


def make(path, **config):
    """Two sealed segments and an active one, of batches that are all indexed; closed cleanly."""
    partition = Partition(path, **{"index_interval_bytes": 100, **config})
    partition.write_segments(40, 40, 40, batch=RECORDS)
    partition.close()
    return partition


def verify_closed(partition):
    """As a read-only store does: by the files alone."""
    files, home = partition.files, str(partition.path)
    checkpoints = StoredCheckpoints(files, home)
    name = logstore.TopicPartition("t", 0)
    is_clean = (partition.path / ".kafka_cleanshutdown").exists()

    def source():
        facts = facts_of_files(files, home, name, checkpoints, partition.config, is_clean=is_clean)
        facts.findings.extend(checkpoints.findings)
        return facts

    return verify_log(source, partition.clock)


def kinds(report):
    return [problem.kind for problem in report.problems]


def only(report, kind):
    """The one problem of a report, which is of this kind."""
    assert kinds(report) == [kind], str(report)
    problem = report.problems[0]
    assert problem.next_step in str(problem)
    assert problem.path in str(report)
    return problem


# Sound logs


@pytest.mark.parametrize("shape", SHAPES)
def test_a_log_of_any_shape_is_sound(tmp_path, shape):
    log = SHAPES[shape](tmp_path / "t-0")
    report = log.verify()
    assert report, str(report)
    assert report.segment_count == log.segment_count
    assert report.log_bytes == log.size_bytes
    assert report.batch_count > 0
    log.close()


@pytest.mark.parametrize("shape", SHAPES)
def test_a_log_of_any_shape_is_sound_when_it_was_closed(tmp_path, shape):
    log = SHAPES[shape](tmp_path / "t-0")
    counted = log.verify()
    log.close()
    partition = Partition(tmp_path / "t-0")
    report = verify_closed(partition)
    assert report, str(report)
    assert (report.batch_count, report.record_count) == (counted.batch_count, counted.record_count)


@pytest.mark.parametrize("codec", Codec)
def test_every_codec_is_decompressed(tmp_path, codec):
    name = "uncompressed" if codec is Codec.NONE else codec.name.lower()
    log = open_log(tmp_path / "t-0", compression_type=name)
    add_rows(log, 100, 3)
    report = log.verify()
    assert report, str(report)
    assert report.record_count == 103


CASES = sorted(path.parent.name for path in DATA.glob("*/expected.json"))


@pytest.mark.parametrize("case", CASES)
def test_what_a_broker_wrote_is_sound(tmp_path, case):
    with logstore.open(DATA / case, read_only=True) as store:
        report = store.verify()
    assert report, str(report)
    assert report.partition_count == len(load_case(case).partitions)
    copy = shutil.copytree(DATA / case, tmp_path / case)
    with logstore.open(copy) as store:
        opened = store.verify()
        assert opened, str(opened)
        store[next(iter(store))].append(b"more", flush=True)
        assert store.verify()
    assert opened.record_count == report.record_count


def test_all_producers_and_transactions_are_replayed(tmp_path):
    log = open_log(tmp_path / "t-0")
    for round_number in range(8):
        for producer in (1, 2):
            by = identity(2 * round_number, producer=producer, transactional=True)
            log.extend([b"a", b"b"], producer=by)
        log.append_end_marker(1, 0, committed=False)
        log.append_end_marker(2, 0, committed=round_number % 2 == 0)
        if round_number % 3 == 0:
            log.roll()
    assert log.verify()
    log.delete_before(20)
    assert log.verify()


def test_an_empty_log_is_sound(tmp_path):
    report = open_log(tmp_path / "t-0").verify()
    assert (report.is_sound, report.batch_count, report.segment_count) == (True, 0, 1)


# Damage in the log


@pytest.fixture
def partition(tmp_path):
    return make(tmp_path / "t-0")


@pytest.mark.parametrize("base", [0, 40, 80])
@pytest.mark.parametrize("is_open", [False, True])
def test_a_changed_record(partition, base, is_open):
    if is_open:
        partition.open()
    position = partition.corrupt_batch(2, base)
    report = partition.log.verify() if is_open else verify_closed(partition)
    problem = only(report, FindingKind.BATCH)
    assert (problem.path, problem.position) == (str(partition.file(base)), position)
    assert (problem.base_offset, problem.last_offset) == (base + 16, base + 23)
    assert (report.batch_count, report.record_count) == (14, 112)
    partition.crash()


def change(partition, base, position, data):
    """Write other bytes into a segment's file."""
    with partition.file(base).open("r+b") as file:
        file.seek(position)
        file.write(data)


@pytest.mark.parametrize("number", range(5))
def test_a_changed_leader_epoch(partition, number):
    position, _ = partition.batches(40)[number]
    change(partition, 40, position + 15, b"\1")
    problem = only(verify_closed(partition), FindingKind.LEADER_EPOCH)
    assert (problem.position, problem.base_offset) == (position, 40 + 8 * number)


@pytest.mark.parametrize("number", range(5))
@pytest.mark.parametrize("byte", [0, 3, 6, 7])
def test_a_changed_base_offset(partition, number, byte):
    position, _ = partition.batches(40)[number]
    partition.corrupt(position + byte, 40)
    report = verify_closed(partition)
    assert not report
    assert {FindingKind.OFFSETS, FindingKind.BATCH} & set(kinds(report))


@pytest.mark.parametrize("place", [8, 9, 10, 11, 16])
def test_a_changed_length_or_magic_is_passed_with_the_help_of_the_index(partition, place):
    position, _ = partition.batches(40)[2]
    partition.corrupt(position + place, 40)
    report = verify_closed(partition)
    assert only(report, FindingKind.BATCH).position == position
    assert report.batch_count == 14


def test_damage_without_an_index_leaves_the_rest_of_the_segment_unchecked(partition):
    partition.file(40, ".index").unlink()
    position, _ = partition.batches(40)[2]
    partition.corrupt(position + 16, 40)
    report = verify_closed(partition)
    problem = only(report, FindingKind.BATCH)
    assert "nothing behind it" in problem.reason
    assert report.batch_count == 12


def test_batches_that_changed_places(partition):
    data = partition.file(40).read_bytes()
    (first, _), (second, _), (third, _), *_ = partition.batches(40)
    swapped = data[:first] + data[second:third] + data[first:second] + data[third:]
    partition.write_file(swapped, 40)
    assert FindingKind.OFFSETS in kinds(verify_closed(partition))


def test_a_batch_that_is_missing(partition):
    data = partition.file(40).read_bytes()
    batches = partition.batches(40)
    partition.write_file(data[: batches[2][0]] + data[batches[3][0] :], 40)
    report = verify_closed(partition)
    assert FindingKind.OFFSET_INDEX in kinds(report)
    assert FindingKind.GAP in [note.kind for note in report.notes]


def test_a_gap_above_the_recovery_point(partition):
    partition.open()
    partition.checkpoint()
    partition.write(3)
    data = partition.file(80).read_bytes()
    batches = partition.batches(80)
    partition.crash()
    partition.write_file(data[: batches[-2][0]] + data[batches[-1][0] :], 80)
    assert only(verify_closed(partition), FindingKind.GAP).base_offset == 121


def test_a_segment_that_lost_its_end(partition):
    position, _ = partition.batches(40)[3]
    partition.truncate_file(position, 40)
    problem = only(verify_closed(partition), FindingKind.BATCH)
    assert (problem.position, problem.base_offset, problem.last_offset) == (position, 64, 79)


def test_a_last_segment_that_lost_its_end(partition):
    position, _ = partition.batches(80)[3]
    partition.truncate_file(position, 80)
    assert FindingKind.BATCH in kinds(verify_closed(partition))
    for suffix in (".index", ".timeindex"):
        partition.file(80, suffix).unlink()
    problem = only(verify_closed(partition), FindingKind.OFFSETS)
    assert "everything below offset 120 was durable" in problem.reason


def test_a_file_that_is_shorter_or_longer_than_its_writer_left_it(partition):
    partition.open()
    partition.read()
    partition.extend_file(bytes(100), 0)
    assert only(partition.log.verify(), FindingKind.SIZE).path == str(partition.file(0))
    partition.truncate_file(partition.file(0).stat().st_size - 100, 0)
    partition.truncate_file(partition.batches(0)[3][0], 0)
    assert FindingKind.SIZE in kinds(partition.log.verify())
    partition.crash()


def test_bytes_behind_a_sealed_segment(partition):
    size = partition.file(0).stat().st_size
    partition.extend_file(b"garbage that is no batch, and is long enough to be one's header" * 2, 0)
    assert only(verify_closed(partition), FindingKind.BATCH).position == size


def test_a_torn_end_after_a_crash_is_no_problem(partition):
    partition.open()
    partition.write(8, batch=8)
    partition.crash()
    partition.truncate_file(partition.file(80).stat().st_size - 10, 80)
    report = verify_closed(partition)
    assert report, str(report)
    assert [note.kind for note in report.notes] == [FindingKind.TORN_END]


def test_a_torn_end_after_a_clean_stop_is_one(partition):
    partition.extend_file(bytes(30), 80)
    assert only(verify_closed(partition), FindingKind.BATCH).base_offset == 120


def rewrite_batch(partition, base, number, make_batch):
    """Replace a batch by another one of the same size."""
    data = bytearray(partition.file(base).read_bytes())
    position, header = partition.batches(base)[number]
    changed = make_batch(data[position : position + header.size_bytes], header)
    assert len(changed) == header.size_bytes
    data[position : position + header.size_bytes] = changed
    partition.write_file(bytes(data), base)
    return position


def test_a_largest_timestamp_that_no_record_has(partition):
    def later(batch, header):
        return seal_batch(header._replace(max_timestamp_ms=header.max_timestamp_ms + 1), batch[61:])

    position = rewrite_batch(partition, 40, 1, later)
    report = verify_closed(partition)
    assert (FindingKind.RECORDS, position) in [
        (problem.kind, problem.position) for problem in report.problems
    ]


def test_records_that_do_not_decode_under_a_right_checksum(partition):
    def spoiled(batch, header):
        return seal_batch(header, bytes(len(batch) - 61))

    position = rewrite_batch(partition, 40, 1, spoiled)
    assert only(verify_closed(partition), FindingKind.RECORDS).position == position


def test_a_decompression_bomb_is_refused_in_bounded_memory(tmp_path):
    log = open_log(tmp_path / "t-0", max_message_bytes=2**27, segment_bytes=2**28)
    plain = encode_batch([None], [bytes(80 * 2**20)], START_MS)
    header = decode_header(plain)._replace(attributes=Codec.ZSTD)
    log.append_replicated(bytes(seal_batch(header, compress(Codec.ZSTD, plain[HEADER_BYTES:]))))
    del plain
    tracemalloc.start()
    report = log.verify()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert only(report, FindingKind.RECORDS).base_offset == 0
    assert peak < 70 * 2**20


class BrokenFile(WatchedFile):
    """A disk with a bad spot."""

    def read_at(self, position, size_bytes):
        if position <= self.bad < position + size_bytes and self.path.endswith(self.name):
            raise storage_error(OSError(errno.EIO, "bad spot"), self.path, "reading")
        return self._file.read_at(position, size_bytes)


def test_a_bad_spot_on_the_disk_is_passed(partition, monkeypatch):
    bad = partition.batches(40)[2][0] + 50
    monkeypatch.setattr(BrokenFile, "bad", bad, raising=False)
    monkeypatch.setattr(BrokenFile, "name", f"{40:020}.log", raising=False)
    monkeypatch.setattr("tests.partition.helpers.WatchedFile", BrokenFile)
    report = verify_closed(partition)
    assert FindingKind.UNREADABLE in kinds(report)
    assert "bad spot" in str(report)
    assert report.batch_count >= 12  # those behind it too, but for what one read takes


# Lost files


def test_a_segment_that_is_missing(partition):
    partition.file(40).unlink()
    report = verify_closed(partition)
    assert set(kinds(report)) == {FindingKind.MISSING_SEGMENT}
    assert (report.problems[-1].base_offset, report.problems[-1].last_offset) == (40, 79)


def test_a_segment_that_is_missing_with_its_indexes(partition):
    for suffix in (".log", ".index", ".timeindex"):
        partition.file(40, suffix).unlink()
    assert only(verify_closed(partition), FindingKind.MISSING_SEGMENT).base_offset == 40


def test_a_first_segment_that_is_missing(partition):
    for suffix in (".log", ".index", ".timeindex"):
        partition.file(0, suffix).unlink()
    assert FindingKind.MISSING_SEGMENT in kinds(verify_closed(partition))


def test_segments_that_are_all_missing(partition):
    for name in partition.names("*.log"):
        (partition.path / name).unlink()
    assert set(kinds(verify_closed(partition))) == {FindingKind.MISSING_SEGMENT}


def test_a_gap_in_which_the_log_begins_is_no_missing_segment(tmp_path):
    """Deleting moves the beginning of the first leader epoch into the gap."""
    with open_log(tmp_path / "t-0") as log:
        log.extend([b"v"] * 3)
        log.roll()
        log.extend([b"v"] * 5)
        log.checkpoint()
        log.truncate_to(7)  # inside of the batch: offsets 3 to 6 have none
        log.extend([b"v"])
        log.checkpoint()
        log.delete_before(6)
        assert log.epoch_entries == (EpochEntry(0, 6), EpochEntry(1, 7))
        report = log.verify()
        assert report, report
        assert FindingKind.GAP in [note.kind for note in report.notes]


@pytest.mark.parametrize("is_damaged", [False, True])
@pytest.mark.parametrize("renamed", [(".log", ".index", ".timeindex"), (".index", ".timeindex"), (".index",)])
def test_a_segment_that_is_just_being_replaced_is_read_where_it_lies(partition, renamed, is_damaged):
    """Compaction has renamed the old files away and not yet given the new their names: it may never do so."""
    if is_damaged:
        partition.corrupt_batch(2, 0)
        partition.corrupt(3, 0, suffix=".index")
    for suffix in renamed:
        partition.rename(0, suffix, f"{suffix}.swap")
    report = verify_closed(partition)
    assert set(kinds(report)) == ({FindingKind.BATCH, FindingKind.OFFSET_INDEX} if is_damaged else set())
    assert [note.kind for note in report.notes] == [FindingKind.UNFINISHED] * len(renamed)
    assert report.batch_count == 15 - is_damaged


@pytest.mark.parametrize("is_damaged", [False, True])
def test_what_only_one_look_at_a_changing_log_found_is_no_problem(partition, monkeypatch, is_damaged):
    """Compaction that is always at another segment: each look finds one of them just gone."""
    if is_damaged:
        partition.corrupt(100, 80)
    bases = iter([0, 40, 0, 40, 0, 40])
    steps = LogCheck.steps

    def check_while_one_is_replaced(check):
        path = partition.file(next(bases))
        path.rename(f"{path}.away")
        yield from steps(check)
        Path(f"{path}.away").rename(path)
        (partition.path / f"{len(partition.names('*.snapshot')) + 900:020}.snapshot").write_bytes(b"")

    monkeypatch.setattr(LogCheck, "steps", check_while_one_is_replaced)
    report = verify_closed(partition)
    assert FindingKind.CHANGED in [note.kind for note in report.notes]
    assert kinds(report) == [FindingKind.BATCH] * is_damaged


def test_files_of_a_replacement_that_has_not_come_to_count_are_left_over(partition):
    for suffix in (".log.cleaned", ".index.swap"):
        partition.write_file(b"", 0, suffix=suffix)
    report = verify_closed(partition)
    assert report, report
    assert [note.kind for note in report.notes] == [FindingKind.LEFTOVER] * 2


def test_a_segment_that_is_missing_under_an_open_log(partition):
    partition.open()
    partition.file(40).unlink()
    report = partition.log.verify()
    assert FindingKind.MISSING_SEGMENT in kinds(report)
    assert report.batch_count == 10
    partition.crash()


def test_a_log_start_in_the_gap_that_a_truncation_left_is_no_segment_that_is_missing(tmp_path):
    log = open_log(tmp_path / "t-0")
    log.extend([b"a"])
    log.extend([b"b", b"c", b"d", b"e"])
    log.truncate_to(4)  # inside the second batch: offsets 1 to 3 are gone
    log.extend([b"f"])
    log.delete_before(3)
    assert (log.log_start_offset, log.log_end_offset, log.segment_count) == (3, 5, 2)
    report = log.verify()
    assert report, str(report)


# Damage in the indexes


def entry_places(size_bytes, entry_bytes):
    return [(n, at) for n in (0, 2) for at in range(n * entry_bytes, (n + 1) * entry_bytes)]


@pytest.mark.parametrize("base", [40, 80])
@pytest.mark.parametrize("place", range(16, 24))
def test_a_changed_entry_of_an_offset_index(partition, base, place):
    partition.corrupt(place, base, suffix=".index")
    report = verify_closed(partition)
    assert set(kinds(report)) == {FindingKind.OFFSET_INDEX}
    assert report.problems[0].path == str(partition.file(base, ".index"))


@pytest.mark.parametrize("base", [40, 80])
@pytest.mark.parametrize("place", range(24, 36))
def test_a_changed_entry_of_a_time_index(partition, base, place):
    partition.corrupt(place, base, suffix=".timeindex")
    assert set(kinds(verify_closed(partition))) == {FindingKind.TIME_INDEX}


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_an_index_that_is_no_whole_number_of_entries(partition, suffix):
    partition.truncate_file(partition.file(40, suffix).stat().st_size - 1, 40, suffix=suffix)
    report = verify_closed(partition)
    assert [p.path for p in report.problems] == [str(partition.file(40, suffix))]


def test_a_time_index_without_its_last_entry(partition):
    partition.truncate_file(partition.file(40, ".timeindex").stat().st_size - 12, 40, suffix=".timeindex")
    assert "the last entry is" in only(verify_closed(partition), FindingKind.TIME_INDEX).reason


def test_an_offset_index_that_lacks_entries_is_noted(tmp_path):
    partition = make(tmp_path / "t-0")
    partition.size_bytes = 1000
    partition.open()
    partition.write(200, batch=RECORDS)
    partition.close()
    assert verify_closed(partition).notes == ()
    partition.truncate_file(8 * 4, 80, suffix=".index")
    report = verify_closed(partition)
    assert report
    assert [note.kind for note in report.notes] == [FindingKind.SPARSE_INDEX]


def test_index_files_that_are_missing_are_noted(partition):
    for suffix in (".index", ".timeindex"):
        partition.file(40, suffix).unlink()
    report = verify_closed(partition)
    assert report
    assert [note.kind for note in report.notes] == [FindingKind.MISSING_INDEX] * 2


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_the_index_file_of_the_active_segment_is_held_against_memory(partition, suffix):
    partition.open()
    partition.corrupt(3, 80, suffix=suffix)
    assert only(
        partition.log.verify(),
        FindingKind[suffix[1:].upper().replace("INDEX", "_INDEX").lstrip("_")]
        if suffix == ".timeindex"
        else FindingKind.OFFSET_INDEX,
    )
    partition.crash()


# Producers and transactions


@pytest.fixture
def transactional(tmp_path):
    """Aborted and committed transactions in two segments; closed cleanly."""
    partition = Partition(tmp_path / "t-0")
    log = partition.open()
    for number in range(6):
        by = ProducerIdentity(number % 2, 0, 2 * (number // 2), True)
        log.extend([b"a", b"b"], producer=by)
        log.append_end_marker(number % 2, 0, committed=number % 3 == 1)
        if number == 2:
            log.roll()
    partition.close()
    assert verify_closed(partition)
    return partition


@pytest.mark.parametrize("place", range(34))
def test_a_changed_entry_of_a_transaction_index(transactional, place):
    transactional.corrupt(place, 0, suffix=".txnindex")
    assert set(kinds(verify_closed(transactional))) == {FindingKind.TRANSACTION_INDEX}


@pytest.mark.parametrize("count", [0, 1])
def test_a_transaction_index_that_lacks_entries(transactional, count):
    transactional.truncate_file(34 * count, 0, suffix=".txnindex")
    assert "missing" in only(verify_closed(transactional), FindingKind.TRANSACTION_INDEX).reason


def test_a_transaction_index_that_is_missing(transactional):
    transactional.file(0, ".txnindex").unlink()
    only(verify_closed(transactional), FindingKind.TRANSACTION_INDEX)


def test_a_changed_byte_in_a_producer_snapshot(transactional):
    path = transactional.path / transactional.names("*.snapshot")[-1]
    data = path.read_bytes()
    for place in range(len(data)):
        path.write_bytes(data[:place] + bytes([data[place] ^ 0x55]) + data[place + 1 :])
        assert only(verify_closed(transactional), FindingKind.SNAPSHOT).path == str(path)


@pytest.mark.parametrize("field", ["producer_epoch", "last_sequence", "last_offset", "timestamp_ms"])
def test_a_producer_snapshot_that_says_something_else(transactional, field):
    path = transactional.path / transactional.names("*.snapshot")[-1]
    entries = decode_snapshot(path.read_bytes())
    entries[0] = entries[0]._replace(**{field: getattr(entries[0], field) + 1})
    path.write_bytes(encode_snapshot(entries))
    assert "the batches say" in only(verify_closed(transactional), FindingKind.SNAPSHOT).reason


def test_producers_in_memory_that_are_not_those_of_the_batches(transactional):
    log = transactional.open()
    assert log.verify()
    states = log.writer.core.producers._producers
    states[0] = states[0]._replace(producer_epoch=7)
    only(log.verify(), FindingKind.PRODUCERS)
    del states[0]  # as one that was idle for long
    assert log.verify()
    transactional.crash()


def test_a_transaction_that_is_open_for_long_is_noted(tmp_path):
    partition = Partition(tmp_path / "t-0")
    partition.log.extend([b"a"], producer=ProducerIdentity(5, 0, 0, True))
    assert partition.log.verify().notes == ()
    partition.clock.advance(2_000_000)
    report = partition.log.verify()
    assert report
    assert [note.kind for note in report.notes] == [FindingKind.LATE_TRANSACTION]
    partition.close()


# Small files


@pytest.mark.parametrize(
    "name", ["leader-epoch-checkpoint", "recovery-point-offset-checkpoint", "replication-offset-checkpoint"]
)
def test_a_checkpoint_that_does_not_parse(partition, name):
    (partition.path / name).write_bytes(b"garbage")
    assert only(verify_closed(partition), FindingKind.CHECKPOINT).path.endswith(name)


def test_a_recovery_point_behind_the_log_end(partition):
    path = partition.path / "recovery-point-offset-checkpoint"
    path.write_bytes(path.read_bytes().replace(b" 120\n", b" 121\n"))
    assert "was durable" in only(verify_closed(partition), FindingKind.OFFSETS).reason


def test_another_history_of_leader_epochs(partition):
    path = partition.path / "leader-epoch-checkpoint"
    path.write_bytes(encode_epoch_checkpoint([EpochEntry(0, 0), EpochEntry(1, 100)]))
    report = verify_closed(partition)
    assert set(kinds(report)) == {FindingKind.LEADER_EPOCH}
    assert report.problems[0].base_offset == 96


def test_a_topic_id_that_does_not_parse(partition):
    (partition.path / "partition.metadata").write_bytes(b"garbage")
    only(verify_closed(partition), FindingKind.METADATA)


def test_leftover_files_are_noted(partition):
    for name in ("00000000000000000000.torn-0000000001", "x.tmp", f"{0:020}.log.deleted"):
        (partition.path / name).write_bytes(b"x")
    report = verify_closed(partition)
    assert report
    assert [note.kind for note in report.notes] == [FindingKind.LEFTOVER] * 3


# How it works


def test_it_changes_nothing(partition):
    partition.open()
    partition.write(5)
    before = snapshot_of(partition.path)
    assert partition.log.verify()
    assert snapshot_of(partition.path) == before
    partition.close()
    before = snapshot_of(partition.path)
    assert verify_closed(partition)
    assert snapshot_of(partition.path) == before


def test_it_sees_what_still_gathers(tmp_path):
    log = open_log(tmp_path / "t-0", linger_ms=1000)
    log.append(b"v")
    assert log.verify().record_count == 1


def test_a_closed_log_cannot_be_verified(tmp_path):
    log = open_log(tmp_path / "t-0")
    log.close()
    with pytest.raises(ClosedError):
        log.verify()


def test_progress_is_told_and_may_stop_it(partition):
    seen = []
    partition.open().verify(on_progress=seen.append)
    assert [progress.partition for progress in seen] == [partition.log.partition] * len(seen)
    assert seen[-1].done_bytes == seen[-1].total_bytes == partition.log.size_bytes
    assert [p.done_bytes for p in seen] == sorted(p.done_bytes for p in seen)

    def stop(progress):
        raise InterruptedError

    with pytest.raises(InterruptedError):
        partition.log.verify(on_progress=stop)
    partition.close()


def test_beside_appends_truncations_and_deletions_it_finds_nothing(tmp_path):
    log = open_log(tmp_path / "t-0", segment_bytes=3000, index_interval_bytes=200)
    has_ended = threading.Event()
    reports = []

    def verify():
        while not has_ended.is_set():
            reports.append(log.verify())

    threads = [threading.Thread(target=verify) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for number in range(400):
            log.extend([b"v" * 50] * 5)
            if number % 20 == 7:
                log.truncate_to(max(log.log_end_offset - 10, log.log_start_offset))
            if number % 30 == 11:
                log.delete_before(max(log.log_end_offset - 60, 0))
            if number % 50 == 13:
                log.checkpoint()
    finally:
        has_ended.set()
        for thread in threads:
            thread.join()
    assert len(reports) >= 2
    unsound = [report for report in reports if not report and not report.notes]
    assert not unsound, str(unsound[0])
    assert log.verify()


def test_memory_is_bounded(tmp_path):
    log = open_log(tmp_path / "t-0", segment_bytes=8 * 2**20)
    for _ in range(64):
        log.extend([b"v" * 1000] * 256)
    tracemalloc.start()
    report = log.verify()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert report.log_bytes > 16_000_000
    assert peak < 3 * 2**20


def test_a_report_says_what_it_knows(partition):
    sound = verify_closed(partition)
    assert bool(sound) is sound.is_sound is True
    assert repr(sound) == f"<VerifyReport sound; 15 batches, {sound.log_bytes} bytes>"
    assert str(sound).startswith("sound: 120 records in 15 batches, 3 segments, 1 partitions")
    partition.corrupt_batch(2, 40)
    damaged = verify_closed(partition)
    assert bool(damaged) is damaged.is_sound is False
    assert "1 problem: batch" in repr(damaged)
    assert str(partition.file(40)) in str(damaged)
    assert "restore the file" in str(damaged)


def test_a_report_keeps_a_bounded_number_of_findings():
    findings = Findings()
    for number in range(MAX_KEPT_FINDINGS + 5):
        findings.problem(Finding(kind=FindingKind.BATCH, path="p", position=number, reason="r"))
    report = findings.report(0)
    assert (report.problem_count, len(report.problems)) == (MAX_KEPT_FINDINGS + 5, MAX_KEPT_FINDINGS)
    assert "and 5 more problems" in str(report)


def note(kind, number):
    return Finding(kind=kind, path=str(number), reason="is so")


def test_many_notes_of_one_kind_hide_no_other():
    findings = Findings()
    for number in range(MAX_KEPT_FINDINGS + 5):
        findings.note(note(FindingKind.LEFTOVER, number))
    findings.note(note(FindingKind.GAP, "gap"))
    for report in (findings.report(0), join_reports([findings.report(0)], 0)):
        assert len(report.notes) == MAX_KEPT_FINDINGS + 1
        assert report.notes[-1].kind is FindingKind.GAP
        lines = str(report).splitlines()
        assert sum("leftover" in line for line in lines) == 11
        assert "  and 990 more notes of the kind leftover" in lines
        assert sum("note: gap" in line for line in lines) == 1


def test_every_kind_of_finding_says_what_to_do():
    for kind in FindingKind:
        assert Finding(kind=kind, path="p", reason="r").next_step.endswith(".")
