"""How compacted segments take the place of others: what comes in between, what goes wrong, what is left."""

import errno
import threading
from pathlib import Path

import pytest

from logstore.config import TopicConfig
from logstore.errors import (
    ClosedError,
    CorruptionError,
    DiskFullError,
    ReopenRequiredError,
    RetriableError,
    StorageError,
    UsageError,
)
from logstore.model import Isolation
from logstore.partition.cleaning.grouping import GroupingFacts, plan_groups
from logstore.partition.segments.segment import Segment
from logstore.testing import ManualClock
from tests.partition.helpers_compaction import SETTINGS, end, left, open_compacted, put, reopen, transact
from tests.partition.helpers_rules import WatchedFiles, bases_of, names_in, open_log, run_background


@pytest.fixture
def files():
    return WatchedFiles()


@pytest.fixture
def log(tmp_path, files):
    """Three sealed segments; of the keys a and b each has an older value."""
    made = open_compacted(tmp_path / "topic-0", files=files)
    fill(made)
    return made


def fill(log):
    for number in range(3):
        put(log, a=f"{number}", b=f"{number}", **{f"key {number}": "1" * 50})
        log.roll()


WHOLE = {2: ("key 0", "1" * 50), 5: ("key 1", "1" * 50), 6: ("a", "2"), 7: ("b", "2"), 8: ("key 2", "1" * 50)}


def leftovers(log):
    return [name for name in names_in(log) if name.rpartition(".")[2] in ("cleaned", "swap", "deleted")]


# Groups -----------------------------------------------------------------------------------------------------


def segments(*sizes, index=0, times=0, step=10):
    return [
        GroupingFacts(number * step, number * step + step, size, index, times)
        for number, size in enumerate(sizes)
    ]


def test_neighbours_are_grouped_up_to_the_size_of_a_segment():
    config = TopicConfig(segment_bytes=100)
    assert plan_groups(segments(50, 50, 1, 99, 100, 7), config=config) == [
        range(2),
        range(2, 4),
        range(4, 5),
        range(5, 6),
    ]


@pytest.mark.parametrize("kind", ["index", "times"])
def test_neighbours_are_grouped_up_to_the_size_of_an_index(kind):
    config = TopicConfig(segment_index_bytes=100)
    assert plan_groups(segments(1, 1, 1, **{kind: 50}), config=config) == [range(2), range(2, 3)]


def test_neighbours_are_grouped_as_far_as_offsets_reach():
    step = 2**30
    config = TopicConfig()
    assert plan_groups(segments(1, 1, 1, step=step), config=config) == [range(2), range(2, 3)]
    assert plan_groups(segments(1, 1, 0, step=step), config=config) == [range(3)]


def test_a_segment_beyond_the_limits_is_a_group_of_its_own():
    assert plan_groups(segments(500, 500), config=TopicConfig(segment_bytes=100)) == [range(1), range(1, 2)]


def test_small_segments_become_one(log):
    report = log.compact()
    assert bases_of(log) == [0, 9]
    assert (report.segment_count_before, report.segment_count_after) == (4, 2)
    assert left(log) == WHOLE


def test_segments_that_are_full_stay_apart(tmp_path):
    log = open_compacted(tmp_path / "topic-0", segment_bytes=400)
    fill(log)
    log.compact()
    assert bases_of(log) == [0, 6, 9]
    assert left(log) == WHOLE


# Files ------------------------------------------------------------------------------------------------------


def test_old_files_are_removed_after_their_delay(tmp_path):
    clock = ManualClock()
    log = open_compacted(tmp_path / "topic-0", clock=clock, file_delete_delay_ms=60)
    fill(log)
    log.compact()
    assert len(leftovers(log)) == 9
    clock.advance(60)
    run_background(log)
    assert leftovers(log) == []


def test_a_reader_of_the_old_segments_goes_on(tmp_path):
    log = open_compacted(tmp_path / "topic-0", file_delete_delay_ms=60_000)
    fill(log)
    before = left(log)
    view = log._current_view()
    reading = log.read()
    first = next(reading)
    log.compact()
    assert [first.offset, *(record.offset for record in reading)] == list(before)
    assert view.segments[0].read_at(0, 61)


def test_a_name_that_is_taken_again_never_shows_another_segments_bytes(tmp_path):
    """Two compactions within the delay: both leave a segment with base 0 under its ``.deleted`` name. The
    files are kept open for who reads from the first."""
    log = open_compacted(tmp_path / "topic-0", file_delete_delay_ms=60_000)
    fill(log)
    old = log._current_view().segments[0]
    before = old.read_at(0, old.size_bytes)
    log.compact()
    put(log, a="last")
    log.compact(now=True)
    old.forget_files()
    assert old.read_at(0, old.size_bytes) == before


def test_the_new_segment_has_the_time_of_the_last_old_one(tmp_path):
    log = open_compacted(tmp_path / "topic-0")
    fill(log)
    segment = log.writer.core.segments[2]
    log._context.files.set_modified_ms(segment.path, 1_234_000)
    log.compact()
    assert log.writer.core.segments[0].modified_ms == 1_234_000


def test_everything_is_durable_before_it_is_swapped(tmp_path, files, log):
    log.compact()
    renamed = files.operations.index(("rename", f"{0:020}.log.cleaned"))
    for kind in (".log", ".index", ".timeindex"):
        assert ("flush", f"{0:020}{kind}.cleaned") in files.operations[:renamed]


def test_snapshots_of_segments_that_went_are_gone(log):
    log.compact()
    assert names_in(log, "*.snapshot") == [f"{9:020}.snapshot"]


# What others do meanwhile -----------------------------------------------------------------------------------


class Once:
    """A callback that does something when it is first called after the map was filled."""

    def __init__(self, log, action):
        self._is_copying = lambda: any(name.endswith(".cleaned") for name in names_in(log))
        self._action = action
        self.was_called = False

    def __call__(self, progress):
        if not self.was_called and self._is_copying():
            self.was_called = True
            self._action()


def test_retention_may_take_the_first_segments_meanwhile(tmp_path):
    log = open_compacted(tmp_path / "topic-0", cleanup_policy="compact,delete")
    fill(log)
    meanwhile = Once(log, lambda: log.delete_before(5))
    log.compact(on_progress=meanwhile)
    assert meanwhile.was_called
    expected = {offset: row for offset, row in WHOLE.items() if offset >= 5}
    assert left(log) == expected
    assert log.log_start_offset == 5
    for how in ("clean", "crash"):
        log = reopen(log, how=how)
        assert left(log) == expected
        assert log.log_start_offset == 5


def test_retention_may_take_all_segments_meanwhile(tmp_path):
    log = open_compacted(tmp_path / "topic-0", cleanup_policy="compact,delete")
    fill(log)
    meanwhile = Once(log, lambda: log.delete_before(9))
    log.compact(on_progress=meanwhile)
    assert meanwhile.was_called
    assert (left(log), bases_of(log)) == ({}, [9])
    run_background(log)
    assert leftovers(log) == []


def test_files_that_are_gone_before_their_transactions_were_read_end_it(tmp_path, monkeypatch):
    log = open_compacted(tmp_path / "topic-0", cleanup_policy="compact,delete")
    fill(log)
    read = Segment.read_transaction_index

    def delete_and_read(segment):
        if log.log_start_offset == 0:
            log.delete_before(3)
            run_background(log)
        return read(segment)

    monkeypatch.setattr(Segment, "read_transaction_index", delete_and_read)
    with pytest.raises(RetriableError, match="its beginning was deleted"):
        log.compact()
    assert leftovers(log) == []
    log.compact()


def test_files_that_are_gone_before_they_were_read_end_it(tmp_path):
    log = open_compacted(tmp_path / "topic-0", cleanup_policy="compact,delete")
    fill(log)

    def take_the_first(progress):
        if progress.done_bytes == progress.total_bytes // 2:  # the map is filled
            first = log.writer.core.segments[0]
            log.delete_before(3)
            run_background(log)
            first.forget_files()

    with pytest.raises(RetriableError, match="its beginning was deleted"):
        log.compact(on_progress=take_the_first)
    assert leftovers(log) == []
    log.compact()
    assert left(log) == {offset: row for offset, row in WHOLE.items() if offset >= 3}


@pytest.mark.parametrize("offset", [9, 7, 4, 0])
def test_a_truncation_ends_it_and_nothing_is_left_of_it(log, offset):
    put(log, a="9")
    before = left(log)
    meanwhile = Once(log, lambda: log.truncate_to(offset))
    with pytest.raises(RetriableError, match="its end was cut"):
        log.compact(on_progress=meanwhile)
    run_background(log)
    assert leftovers(log) == []
    floor = offset - offset % 3
    assert left(log) == {at: row for at, row in before.items() if at < floor}
    assert log.dirtiness().first_dirty_offset == 0
    put(log, a="new")
    log.compact(now=True)
    assert left(log)[log.log_end_offset - 1] == ("a", "new")


def test_appends_go_on_meanwhile(log):
    meanwhile = Once(log, lambda: put(log, a="new"))
    log.compact(on_progress=meanwhile)
    assert left(log) == WHOLE | {9: ("a", "new")}


def test_rolling_goes_on_meanwhile(log):
    def act():
        put(log, a="new")
        log.roll()

    log.compact(on_progress=Once(log, act))
    assert bases_of(log) == [0, 9, 10]
    assert left(log) == WHOLE | {9: ("a", "new")}


@pytest.mark.parametrize("callback", ["on_progress", "throttle"])
def test_a_callback_that_raises_ends_it_and_nothing_is_left_of_it(log, callback):
    names, before = names_in(log), left(log)
    calls = []

    def give_up(_):
        calls.append(_)
        if len(calls) > 4:
            raise KeyError("enough")

    with pytest.raises(KeyError):
        log.compact(**{callback: give_up})
    assert left(log) == before
    assert [name for name in names if name.endswith((".log", "index"))] == [
        name for name in names_in(log) if name.endswith((".log", "index"))
    ]
    assert leftovers(log) == []
    log.compact()
    assert left(log) == WHOLE


def test_closing_ends_it_and_nothing_is_left_of_it(log):
    before = left(log)
    with pytest.raises(ClosedError):
        log.compact(on_progress=Once(log, log.close))
    assert leftovers(log) == []
    log = open_log(log.directory, **SETTINGS)
    assert left(log) == before


def test_closing_waits_until_it_has_cleaned_up(log):
    inside, closing = threading.Event(), threading.Event()

    def wait(progress):
        inside.set()
        closing.wait(10)

    failures = []

    def compact():
        try:
            log.compact(on_progress=wait)
        except ClosedError as error:
            failures.append(error)

    thread = threading.Thread(target=compact)
    thread.start()
    assert inside.wait(10)
    closer = threading.Thread(target=log.close)
    closer.start()
    closer.join(0.05)
    assert closer.is_alive()
    closing.set()
    thread.join(10)
    closer.join(10)
    assert len(failures) == 1
    assert leftovers(log) == []


def test_a_second_compaction_waits_for_the_first(log):
    order = []
    inside, go_on = threading.Event(), threading.Event()

    def wait(progress):
        inside.set()
        go_on.wait(10)

    def second():
        inside.wait(10)
        log.compact(now=True)
        order.append("second")

    thread = threading.Thread(target=second)
    thread.start()
    threading.Timer(0.05, go_on.set).start()
    log.compact(on_progress=wait)
    order.append("first")
    thread.join(10)
    assert order == ["first", "second"] or order == ["second", "first"]
    assert left(log) == WHOLE


def test_a_callback_cannot_compact_the_same_log(log):
    with pytest.raises(UsageError, match="progress"):
        log.compact(on_progress=lambda _: log.compact())


# Damage -----------------------------------------------------------------------------------------------------


def flip(log, base_offset, position):
    path = Path(log.directory, f"{base_offset:020}.log")
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def contents(log):
    return {name: Path(log.directory, name).read_bytes() for name in names_in(log, "*.log")}


@pytest.mark.damaged
@pytest.mark.parametrize("base_offset", [0, 3, 6])
def test_a_damaged_batch_is_refused_and_nothing_changes(log, base_offset):
    flip(log, base_offset, 100)
    before = contents(log)
    with pytest.raises(CorruptionError) as caught:
        log.compact()
    assert caught.value.path.endswith(f"{base_offset:020}.log")
    assert (caught.value.position, caught.value.base_offset) == (0, base_offset)
    assert contents(log) == before
    assert leftovers(log) == []
    assert log.dirtiness().first_dirty_offset == 0


@pytest.mark.damaged
def test_damage_in_the_clean_part_is_refused_too(log):
    log.compact()
    run_background(log)
    put(log, a="3")
    put(log, b="3")
    flip(log, 0, 100)
    before = contents(log)
    with pytest.raises(CorruptionError):
        log.compact(now=True)
    assert {name: data for name, data in contents(log).items() if name in before} == before
    assert leftovers(log) == []


@pytest.mark.damaged
def test_a_batch_out_of_its_place_is_refused(log):
    path = Path(log.directory, f"{3:020}.log")
    data = bytearray(path.read_bytes())
    data[7] = 40  # its base offset, which no checksum covers
    path.write_bytes(data)
    with pytest.raises(CorruptionError, match="follow 2"):
        log.compact()


@pytest.mark.damaged
def test_a_segment_that_is_cut_is_refused(log):
    path = Path(log.directory, f"{3:020}.log")
    path.write_bytes(path.read_bytes()[:-1])
    with pytest.raises(CorruptionError, match="incomplete"):
        log.compact()


@pytest.mark.damaged
@pytest.mark.parametrize("committed", [True, False])
def test_a_transaction_index_that_contradicts_a_marker_is_refused(tmp_path, committed):
    log = open_compacted(tmp_path / "topic-0")
    put(log, a="1")
    transact(log, 7, 0, a="2")
    end(log, 7, committed=False)
    log.roll()
    path = Path(log.directory, f"{0:020}.txnindex")
    if committed:
        index = path.read_bytes()
        path.unlink()
        transact(log, 7, 1, a="3")
        end(log, 7, committed=True)
        log.roll()
        assert index
    else:
        path.unlink()
    with pytest.raises(CorruptionError, match="transaction indexes"):
        log.compact()
    assert left(log)[0] == ("a", "1")


# A disk that refuses ----------------------------------------------------------------------------------------


def test_a_full_disk_leaves_everything_as_it_was(log, files):
    before = left(log)
    log.checkpoint()
    put(log, c="1")
    log.checkpoint()
    files.fault = lambda operation, path: (
        errno.ENOSPC if operation == "write" and path.endswith(".cleaned") else None
    )
    with pytest.raises(DiskFullError):
        log.compact()
    files.heal()
    assert leftovers(log) == []
    assert left(log) == before | {9: ("c", "1")}
    log.compact()
    assert left(log) == WHOLE | {9: ("c", "1")}


@pytest.mark.parametrize("suffix", [".index.cleaned", ".timeindex.cleaned", ".log.cleaned"])
def test_a_swap_that_cannot_begin_is_undone(log, files, suffix):
    before = left(log)
    files.refuse("rename", suffix)
    with pytest.raises(StorageError):
        log.compact()
    files.heal()
    assert leftovers(log) == []
    assert left(log) == before
    log.compact()
    assert left(log) == WHOLE


@pytest.mark.parametrize("suffix", [f"{3:020}.log", ".log.swap", ".index.swap"])
def test_a_swap_that_stops_half_way_is_finished_by_the_next_open(log, files, suffix):
    before = left(log)
    files.refuse("rename", suffix)
    with pytest.raises(StorageError):
        log.compact()
    with pytest.raises(ReopenRequiredError):
        put(log, c="1")
    assert left(log) == before
    files.heal()
    log = reopen(log, how="crash")
    assert left(log) == WHOLE
    assert leftovers(log) == []


def test_what_an_earlier_compaction_could_not_remove_is_gone_before_the_next_swap(log, files):
    """A crash in the middle of the swap would take it for a sign that the swap has not begun."""
    Path(log.directory, f"{0:020}.txnindex.cleaned").write_bytes(b"")
    Path(log.directory, f"{5:020}.log.swap").write_bytes(b"")
    log.compact()
    before = files.operations[: files.operations.index(("rename", f"{0:020}.index.cleaned"))]
    assert {("remove", f"{0:020}.txnindex.cleaned"), ("remove", f"{5:020}.log.swap")} <= set(before)


# Gaps -------------------------------------------------------------------------------------------------------


def test_a_log_that_was_compacted_once_may_have_gaps_for_ever(log):
    """Though its policy is another now, and though nothing of it is below the recovery point."""
    log.compact()
    log.reconfigure(log.config.with_settings(cleanup_policy="delete"))
    put(log, c="1")
    log._context.home.lower_recovery_point(log.partition, 0)
    log = reopen(log, how="crash")
    assert left(log) == WHOLE | {9: ("c", "1")}
    report = log.verify()
    assert report
    assert not report.notes


@pytest.mark.parametrize("how", ["clean", "crash"])
@pytest.mark.parametrize("keep_snapshots", [True, False])
def test_a_compacted_log_is_sound_when_it_is_opened_again(tmp_path, how, keep_snapshots):
    log = open_compacted(tmp_path / "topic-0")
    for number in range(30):
        transact(log, 7 + number % 2, number // 2, **{f"key {number % 5}": f"{number}"})
        if number % 4 > 1:
            end(log, 7 + number % 2, committed=number % 8 > 3)
        if number % 10 == 9:
            log.roll()
    end(log, 7, committed=True)
    end(log, 8, committed=True)
    log.compact(now=True)
    before = left(log), left(log, isolation=Isolation.COMMITTED), log.last_stable_offset
    log = reopen(log, how=how, keep_snapshots=keep_snapshots or how == "clean")
    assert (left(log), left(log, isolation=Isolation.COMMITTED), log.last_stable_offset) == before
    assert log.verify()


def test_batches_larger_than_a_read_are_compacted(tmp_path):
    log = open_compacted(tmp_path / "topic-0", max_message_bytes=10_000_000, batch_bytes=8_000_000)
    large = "x" * 3_000_000
    put(log, a=large + "1", b="1")
    put(log, b="2")
    put(log, a=large + "2", c="1")
    log.compact(now=True)
    assert left(log) == {2: ("b", "2"), 3: ("a", large + "2"), 4: ("c", "1")}
