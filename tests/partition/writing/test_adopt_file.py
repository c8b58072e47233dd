"""Files that become a log's newest segment as they are: what the log has then, what is refused, and what a
crash or a failing disk leaves."""

import errno
from pathlib import Path

import pytest

from logstore.errors import (
    CorruptionError,
    InvalidRecordError,
    LogstoreError,
    OutOfOrderError,
    ProducerFencedError,
    RecordTooLargeError,
    StorageError,
    UsageError,
)
from logstore.partition.log import Log
from logstore.partition.segments.active import ActiveSegment
from logstore.partition.writing.durability import Durability
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles, explore
from logstore.testing.explorer import CrashError
from tests.format.vectors import LEGACY
from tests.partition.helpers_rules import (
    ADOPTED_PRODUCER as PRODUCER,
)
from tests.partition.helpers_rules import (
    START_MS,
    WatchedFile,
    WatchedFiles,
    add,
    bases_of,
    batch,
    crash,
    headers_of,
    identity,
    names_in,
    open_log,
    placed,
    stored_bytes,
    values_of,
)
from tests.partition.helpers_rules import (
    write_placed as write_file,
)
from tests.rotation import seed_of_turn


@pytest.fixture
def file(tmp_path):
    return tmp_path / "file"


def adopt(log, file, *batches, **places):
    write_file(file, *batches, **places)
    return log.adopt_file(str(file))


# What the log has then


def test_it_is_a_segment_between_what_was_there_and_what_comes(log, file):
    add(log, b"before")
    assert adopt(log, file, batch(b"a", b"b"), batch(b"c"), base_offset=1) == range(1, 4)
    add(log, b"after")
    assert values_of(log) == [b"before", b"a", b"b", b"c", b"after"]
    assert bases_of(log) == [0, 1]
    assert not file.exists()
    assert log.verify()


def test_an_empty_log_has_it_for_its_first(log, file):
    assert adopt(log, file, batch(b"a"), batch(b"b")) == range(2)
    add(log, b"after")
    assert bases_of(log) == [0]
    assert values_of(log) == [b"a", b"b", b"after"]
    assert log.verify()


def test_the_file_itself_becomes_the_segment(log, file):
    headers = write_file(file, batch(b"a"))
    inode, data = file.stat().st_ino, file.read_bytes()
    log.adopt_file(str(file))
    assert Path(log.directory, f"{0:020}.log").stat().st_ino == inode
    assert stored_bytes(log) == data
    assert headers_of(log) == headers


def many(first, count=60):
    return [batch(b"%d" % number + b"." * 2_000) for number in range(first, first + count)]


def test_all_files_are_those_that_copying_makes(tmp_path, file):
    moved, copied = open_log(tmp_path / "moved-0"), open_log(tmp_path / "copied-0")
    for log in (moved, copied):
        add(log, b"before")
    for first in (0, 60):
        adopt(moved, file, *many(first), base_offset=first + 1, sequence=first)
        copied.roll()
        copied.adopt(many(first), producer=identity(first, producer=PRODUCER))
    for log in (moved, copied):
        add(log, b"after")
        log.close()
    assert names_in(moved) == names_in(copied)
    for name in names_in(moved, "0*"):
        assert Path(moved.directory, name).read_bytes() == Path(copied.directory, name).read_bytes(), name
    reopened = open_log(moved.directory)
    assert len(values_of(reopened)) == 122
    assert reopened.verify()


def test_it_survives_the_death_of_the_process_with_its_producer(tmp_path, file):
    log = open_log(tmp_path / "s-0")
    add(log, b"before")
    adopt(log, file, batch(b"a", b"b"), base_offset=1, sequence=4)
    assert log.last_of_producer(PRODUCER) == (6, 2)
    crash(log)
    log = open_log(tmp_path / "s-0")
    assert values_of(log) == [b"before", b"a", b"b"]
    assert log.last_of_producer(PRODUCER) == (6, 2)


def test_records_that_were_gathered_come_first(tmp_path, file):
    log = open_log(tmp_path / "g-0", linger_ms=1_000)
    log.append(b"gathered")
    write_file(file, batch(b"a"))
    with pytest.raises(OutOfOrderError, match="do not follow the log end 1"):
        log.adopt_file(str(file))
    assert adopt(log, file, batch(b"a"), base_offset=1) == range(1, 2)


def test_a_flush_makes_all_durable(log, file):
    add(log, b"before")
    adopt(log, file, batch(b"a"), base_offset=1)
    log.flush()
    assert log.durable_offset == 2


def test_with_flush_messages_it_is_durable_on_return(tmp_path, file):
    log = open_log(tmp_path / "f-0", flush_messages=1)
    adopt(log, file, batch(b"a"))
    assert log.durable_offset == 1


def test_a_new_leader_epoch_is_noted(log, file):
    log.assign_leader_epoch(3)
    with pytest.raises(OutOfOrderError, match="leader epoch 0 is not the current 3"):
        adopt(log, file, batch(b"a"))
    file.unlink()
    adopt(log, file, batch(b"a"), leader_epoch=3)
    assert log.end_offset_for_epoch(3) == (3, 1)


def test_readers_under_way_go_on_with_it(log, file):
    from_empty = log.read()
    assert list(from_empty) == []
    adopt(log, file, batch(b"a"))
    reader = log.follow(0, timeout=0)
    assert next(reader).value == b"a"
    adopt(log, file, batch(b"b"), base_offset=1, sequence=1)
    assert [record.value for record in reader] == [b"b"]


def test_lookups_by_time_find_their_way(log, file):
    batches = [batch(b"%d" % number, timestamp_ms=START_MS + number) for number in range(50)]
    adopt(log, file, *batches)
    assert log.offset_at(START_MS + 30) == 30


# What is refused


@pytest.mark.parametrize(
    ("places", "error", "named"),
    [
        ({"base_offset": 0}, OutOfOrderError, "offsets from 0 on do not follow the log end 1"),
        ({"base_offset": 2}, OutOfOrderError, "offsets from 2 on"),
        ({"base_offset": 1, "leader_epoch": 1}, OutOfOrderError, "leader epoch 1 is not"),
        (
            {"base_offset": 1, "sequence": 0},
            OutOfOrderError,
            "sequence 0 is out of order; the next must be 1",
        ),
        (
            {"base_offset": 1, "sequence": 7},
            OutOfOrderError,
            "sequence 7 is out of order; the next must be 1",
        ),
    ],
)
def test_what_does_not_follow_is_refused_and_nothing_changes(log, file, places, error, named):
    log.adopt([batch(b"before")], producer=identity(0, producer=PRODUCER))
    with pytest.raises(error, match=named):
        adopt(log, file, batch(b"a"), **places)
    assert file.exists()
    assert values_of(log) == [b"before"]
    assert bases_of(log) == [0]


def test_an_older_producer_epoch_is_fenced(log, file):
    log.adopt([batch(b"before")], producer=identity(0, producer=PRODUCER, epoch=2))
    with pytest.raises(ProducerFencedError):
        adopt(log, file, batch(b"a"), base_offset=1, sequence=1, epoch=1)
    assert values_of(log) == [b"before"]


def refused(log, file, error, named):
    with pytest.raises(error, match=named) as found:
        log.adopt_file(str(file))
    assert file.name in str(found.value)
    assert log.log_end_offset == 0
    assert file.exists()


@pytest.mark.parametrize(("cut", "named"), [(0, "too short"), (60, "too short"), (100, "inside a batch"),
                                            (-1, "inside a batch"), (-20, "too short")])  # fmt: skip
def test_a_file_of_parts_of_batches_is_refused(log, file, cut, named):
    data, _ = placed(batch(b"a" * 100), batch(b"b"))
    file.write_bytes(data[:cut])
    refused(log, file, CorruptionError, named)


def test_a_file_that_is_not_there_is_an_error_of_the_disk(log, file):
    with pytest.raises(StorageError):
        log.adopt_file(str(file))


@pytest.mark.parametrize("name", [f"{0:020}.log", f"{0:020}.log.tmp", "file"])
def test_one_in_the_directory_of_the_log_is_refused(log, name):
    """Its name may be one that the log takes or removes."""
    path = Path(log.directory, name)
    write_file(path, batch(b"a"))
    data = path.read_bytes()
    with pytest.raises(UsageError, match="the log's own directory"):
        log.adopt_file(path)
    assert path.read_bytes() == data
    path.unlink()
    path.touch()  # as the log left the first


def test_a_gap_between_batches_is_refused(log, file):
    file.write_bytes(placed(batch(b"a"))[0] + placed(batch(b"b"), base_offset=2, sequence=1)[0])
    with pytest.raises(OutOfOrderError, match="or each other"):
        log.adopt_file(str(file))


@pytest.mark.parametrize(
    "encoded",
    [
        batch(b"a"),
        batch(b"a", producer_id=1, producer_epoch=0, base_sequence=0, transactional=True),
        LEGACY[0].encoded,
    ],
)
def test_batches_of_no_idempotent_producer_are_refused(log, file, encoded):
    file.write_bytes(encoded)
    refused(log, file, InvalidRecordError, "the batch at 0 has no idempotent producer")


def test_batches_of_two_producers_are_refused(log, file):
    file.write_bytes(placed(batch(b"a"))[0] + batch(b"b", base_offset=1, producer_id=1, producer_epoch=0,
                                                    base_sequence=0))  # fmt: skip
    refused(log, file, InvalidRecordError, "is from another producer")


def test_one_that_is_larger_than_a_segment_is_refused(tmp_path, file):
    log = open_log(tmp_path / "l-0", segment_bytes=300)
    with pytest.raises(RecordTooLargeError, match="segment_bytes"):
        adopt(log, file, batch(b"a" * 200), batch(b"b" * 200))


# Disks


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.ENOSPC])
@pytest.mark.parametrize("before", [0, 1])
def test_where_there_is_no_second_name_nothing_is_changed(tmp_path, file, before, code):
    files = WatchedFiles()
    log = open_log(tmp_path / "x-0", files=files)
    add(log, *[b"before"] * before)
    write_file(file, batch(b"a"), base_offset=before)
    files.refuse("link", code=code)
    with pytest.raises(StorageError) as found:
        log.adopt_file(str(file))
    assert found.value.errno == code
    names = names_in(log)
    assert not log.needs_reopen
    add(log, b"c")
    assert values_of(log) == [*[b"before"] * before, b"c"]
    assert bases_of(log) == [0]
    assert not [name for name in names if name.endswith(".tmp")]
    crash(log)
    assert len(values_of(open_log(tmp_path / "x-0"))) == before + 1


def test_no_hole_is_left_in_front_of_it(tmp_path, file):
    """What was appended before is durable before the file has its new name."""
    files = WatchedFiles()
    log = open_log(tmp_path / "h-0", files=files)
    add(log, b"before")
    write_file(file, batch(b"a"), base_offset=1)
    files.operations.clear()
    log.adopt_file(str(file))
    names = [operation for operation in files.operations if operation[1].startswith(f"{0:020}.log")]
    assert names[0] == ("flush", f"{0:020}.log")
    at = files.operations.index(("rename", f"{1:020}.log.tmp"))
    assert files.operations.index(("flush", f"{0:020}.log")) < at
    assert files.operations[at + 1] == ("flush_directory", "h-0")


@pytest.mark.parametrize("then", [[], [b"more"]])
def test_sealed_segments_in_front_are_durable_first_too(tmp_path, file, then):
    files = WatchedFiles()
    log = open_log(tmp_path / "h-0", files=files)
    add(log, b"before")
    log.roll()
    add(log, *then)
    write_file(file, batch(b"a"), base_offset=log.log_end_offset)
    files.operations.clear()
    log.adopt_file(str(file))
    at = [number for number, (operation, _) in enumerate(files.operations) if operation == "rename"][-1]
    flushed = [name for operation, name in files.operations[:at] if operation == "flush"]
    assert {f"{base:020}.log" for base in range(1 + len(then))} <= {*flushed}
    assert log.durable_offset == 1 + len(then)


def test_bytes_of_a_failed_append_do_not_come_back_in_front_of_it(tmp_path, file):
    files = WatchedFiles()
    log = open_log(tmp_path / "r-0", files=files)
    add(log, b"before", flush=True)
    files.fault = lambda operation, path: errno.EIO if operation == "truncate" else None
    path = Path(log.directory, f"{0:020}.log")
    write_at = WatchedFile.write_at

    def torn(self, position, buffers):
        write_at(self, position, buffers)
        raise StorageError(errno.EIO, "written, and then failed", self.path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(WatchedFile, "write_at", torn)
        with pytest.raises(StorageError):
            add(log, b"failed")
    files.heal()
    size = path.stat().st_size
    write_file(file, batch(b"a"), base_offset=1)
    files.operations.clear()
    log.adopt_file(str(file))
    assert path.stat().st_size < size
    cut, flushed = (
        files.operations.index(("truncate", path.name)),
        files.operations.index(("flush", path.name)),
    )
    assert cut < flushed < files.operations.index(("link", file.name))


DIRECTORY, FILE = "/d/t-0", "/d/file"


class Scenario:
    """Records that nobody has flushed, a file behind them, and more records. Each session begins where the
    one before was cut off."""

    def session(self, files, said, rng):
        files.make_directory("/d")
        files.flush_directory("/")
        log = open_log(DIRECTORY, files=files)
        for _ in range(rng.choice((0, 1, 1, 2))):
            add(log, b"own")
            if rng.random() < 0.4:
                log.roll()
        if "adopted" not in said:
            if log.last_of_producer(PRODUCER) is None:
                write_file(FILE, batch(b"a"), batch(b"b"), files=files,
                           base_offset=log.log_end_offset, leader_epoch=log.leader_epoch)  # fmt: skip
                files.note("file")
                log.adopt_file(FILE)
            log.flush()
            files.note("adopted")
        add(log, b"own", flush=True)
        log.close()

    def check(self, files, said):
        log = open_log(DIRECTORY, files=files) if files.is_directory("/d") else None
        values = values_of(log) if log is not None else []
        moved = [value for value in values if value != b"own"]
        assert moved in ([], [b"a", b"b"]), "in part, or twice"
        if "adopted" in said:
            assert moved, "LOST"
        elif "file" in said and not moved:
            assert files.is_file(FILE), "LOST"
        if log is not None:
            assert log.verify()
            crash(log)


def explore_sessions(count, first=0):
    """Power cuts in so many histories; returns the number of states that they left."""
    return sum(
        explore(Scenario(), seed=seed, max_states=1_000, depth=2, states_per_point=8).state_count
        for seed in range(first, first + count)
    )


@pytest.mark.slow
def test_every_power_cut_leaves_the_file_or_the_segment():
    assert explore_sessions(4, 4 * seed_of_turn()) >= 300


def test_the_control_finds_a_name_that_goes_too_early(monkeypatch):
    """The check can fail: where the directory is not flushed before the old name goes."""
    take_name = ActiveSegment.take_name

    def hasty(segment, headers):
        with monkeypatch.context() as patch:
            patch.setattr(MemoryFiles, "flush_directory", lambda files, path: None)
            take_name(segment, headers)

    monkeypatch.setattr(ActiveSegment, "take_name", hasty)
    with pytest.raises(CrashError, match="LOST"):
        explore_sessions(4)


def test_the_control_finds_a_hole_in_front(monkeypatch):
    """The check can fail: where what is in front of the new segment is not flushed."""
    adopt_file = Log.adopt_file

    def hasty(log, path):
        with monkeypatch.context() as patch:
            patch.setattr(Durability, "flush_now_locked", lambda durability: None)
            return adopt_file(log, path)

    monkeypatch.setattr(Log, "adopt_file", hasty)
    with pytest.raises(CrashError):
        explore_sessions(8)


@pytest.mark.parametrize("before", [0, 1])
@pytest.mark.parametrize("name", ["EIO", "ENOSPC", "failed flush", "late EIO"])
def test_every_failing_operation_leaves_all_or_nothing(name, before):
    failures = 0
    for at in range(1, 200):
        disk = MemoryFiles()
        disk.make_directory("/d")
        faulty = FaultyFiles(disk)
        log = open_log(DIRECTORY, files=faulty)
        add(log, *[b"before"] * before)
        write_file(FILE, batch(b"a"), batch(b"b"), files=disk, base_offset=before)
        faulty.fail(FAULTS[name], at=at)
        done = False
        try:
            log.adopt_file(FILE)
            done = True
        except LogstoreError:
            pass
        failed = bool(faulty.failures)
        if not failed:
            assert done
            break
        failures += 1
        if not log.needs_reopen:
            assert len(values_of(log)) == before + 2 * done, at
        crash(log)
        again = open_log(DIRECTORY, files=MemoryFiles(disk.now()))
        moved = values_of(again)[before:]
        assert moved in ([], [b"a", b"b"]), at
        assert moved or not done, at
        assert moved or disk.is_file(FILE), at
        assert again.verify()
        crash(again)
    else:
        pytest.fail("more operations than expected")
    assert failures >= 2
