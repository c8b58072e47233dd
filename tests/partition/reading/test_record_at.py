"""One record by its offset: what reading all of the log gives at that offset, in a log of any shape."""

import contextlib
import os
import random
import threading

import pytest

from logstore.config import StoreConfig
from logstore.errors import CorruptionError, OffsetOutOfRangeError, UsageError
from logstore.model import Isolation, Role
from logstore.partition.log import Log
from logstore.partition.reading import lookup
from logstore.partition.segments.batch_cache import BatchCache
from logstore.store import open_store
from tests.partition.helpers import is_located
from tests.partition.helpers_rules import add, batch, identity, open_log
from tests.partition.log_shapes import LOOPS, SHAPES, add_rows, carefully, encoded, loops_named
from tests.partition.reading import test_byte_flips
from tests.rotation import seed_of_turn


@pytest.fixture(params=LOOPS)
def loops(request):
    with loops_named(request.param):
        yield request.param


@pytest.fixture(params=SHAPES)
def shaped(request, tmp_path):
    log = SHAPES[request.param](tmp_path / "t-0")
    yield log
    log.close()


def expected_of(log, isolation=Isolation.HIGH_WATERMARK):
    return {record.offset: record for record in carefully(log, isolation=isolation)}


def offsets_in(log, isolation=Isolation.HIGH_WATERMARK):
    return range(log.log_start_offset, log._current_view().limit_of(isolation))


@pytest.mark.parametrize("isolation", Isolation)
def test_it_is_what_a_read_gives_at_the_offset(shaped, loops, isolation):
    expected = expected_of(shaped, isolation)
    wanted = random.Random(1).sample(offsets_in(shaped, isolation), len(offsets_in(shaped, isolation)))
    for offset in wanted[:500] + wanted[:500]:
        assert shaped.record_at(offset, isolation=isolation) == expected.get(offset)


def test_a_read_of_one_offset_gives_it_too(shaped, loops):
    expected = expected_of(shaped)
    for offset in random.Random(2).sample(offsets_in(shaped), min(len(offsets_in(shaped)), 300)):
        found = list(shaped.read(offset, offset + 1))
        assert found == ([expected[offset]] if offset in expected else [])


def test_it_is_the_same_without_a_cache(shaped, loops):
    expected = expected_of(shaped)
    view, none = shaped._current_view(), BatchCache(0)
    for offset in random.Random(3).sample(offsets_in(shaped), min(len(offsets_in(shaped)), 300)):
        assert lookup.record_at(view, offset, Isolation.LOG_END, none) == expected.get(offset)
    assert len(none) == 0


def test_ordinary_logs_are_not_read_the_careful_way(tmp_path, loops, monkeypatch):
    monkeypatch.setattr(lookup, "_find_carefully", None)
    for name in (
        "one record a batch",
        "small batches",
        "every batch is indexed",
        "large batches",
        "compressed",
    ):
        log = SHAPES[name](tmp_path / f"{name.replace(' ', '')}-0")
        for offset in offsets_in(log):
            assert log.record_at(offset).offset == offset


@pytest.mark.parametrize("name", ["gaps", "compacted", "transactions", "truncated inside a batch"])
def test_where_there_is_no_record_it_is_none(tmp_path, loops, name):
    log = SHAPES[name](tmp_path / "t-0")
    expected = expected_of(log)
    missing = [offset for offset in offsets_in(log) if offset not in expected]
    assert missing
    assert {log.record_at(offset) for offset in missing} == {None}


# Bounds


@pytest.fixture
def ten(log):
    add(log, *(b"%d" % n for n in range(10)))
    return log


def test_outside_the_log_is_out_of_range(ten, loops):
    ten.roll()
    ten.delete_before(3)
    for offset in (0, 2, 10, 11, 2**62):
        with pytest.raises(OffsetOutOfRangeError, match="3 to 10"):
            ten.record_at(offset)
    assert [ten.record_at(offset).value for offset in (3, 9)] == [b"3", b"9"]


def test_what_the_isolation_does_not_show_is_out_of_range(log, loops):
    log.set_role(Role.LEADER)
    add(log, b"0", b"1", b"2")
    log.update_high_watermark(1)
    assert log.record_at(0).value == b"0"
    for isolation in (Isolation.HIGH_WATERMARK, Isolation.COMMITTED):
        with pytest.raises(OffsetOutOfRangeError):
            log.record_at(1, isolation=isolation)
    assert log.record_at(1, isolation=Isolation.LOG_END).value == b"1"


def test_above_the_durable_offset_is_out_of_range_for_a_durable_read(log):
    add(log, b"0")
    with pytest.raises(OffsetOutOfRangeError):
        log.record_at(0, isolation=Isolation.DURABLE)
    log.flush()
    assert log.record_at(0, isolation=Isolation.DURABLE).value == b"0"


def test_the_record_of_an_open_transaction_is_not_yet_to_be_seen(log, loops):
    add(log, b"open", producer=identity(0, transactional=True))
    assert log.record_at(0).value == b"open"
    with pytest.raises(OffsetOutOfRangeError):
        log.record_at(0, isolation=Isolation.COMMITTED)
    log.append_end_marker(7, 0, committed=False)
    assert log.record_at(0, isolation=Isolation.COMMITTED) is None
    assert log.record_at(0).value == b"open"


@pytest.mark.parametrize("offset", [True, "1", 1.0, None])
def test_an_offset_must_be_a_whole_number(ten, offset):
    with pytest.raises(UsageError, match="must be a whole number"):
        ten.record_at(offset)


def test_an_isolation_must_be_one(ten):
    with pytest.raises(UsageError, match="isolation"):
        ten.record_at(0, isolation="committed")


def test_gathered_records_are_found(log, loops):
    log.append(b"just now")
    assert log.record_at(0).value == b"just now"


# Damage


def flips(partition, places, loops):
    """Each byte changed in turn under the open log; every record that may be hit, or is near, is right
    or refused, with the cache empty and full."""
    data = partition.file().read_bytes()
    expected = carefully(partition.log)
    refused = 0
    descriptor = os.open(partition.file(), os.O_RDWR)
    try:
        for position in places:
            near = position * len(expected) // len(data)
            with test_byte_flips.changed_byte(descriptor, data, position):
                for offset in range(max(near - 12, 0), min(near + 12, len(expected))):
                    refused += is_refused(partition, expected, offset)
    finally:
        os.close(descriptor)
    return refused


def is_refused(partition, expected, offset):
    try:
        found = partition.log.record_at(offset)
    except CorruptionError as error:
        return is_located(error, partition.file())
    assert found == expected[offset]
    return False


@pytest.mark.parametrize("is_sealed", [False, True], ids=["active", "sealed"])
@pytest.mark.parametrize("interval_bytes", [0, 8192])
def test_a_changed_byte_is_never_a_wrong_record(tmp_path, loops, is_sealed, interval_bytes):
    partition = test_byte_flips.make_log(tmp_path / "t-0", with_next_segment=is_sealed)
    partition.close()
    partition.config = partition.config.with_settings(index_interval_bytes=interval_bytes)
    partition.file(0, ".index").unlink()  # built anew, at that interval in the active segment
    partition.open()
    starts = {position + place for position, _ in partition.batches() for place in range(24)}
    assert flips(partition, sorted(starts | set(range(0, 65_000, 997))), loops) > 100
    partition.crash()


@pytest.mark.slow
@pytest.mark.parametrize("interval_bytes", [0, 8192])
def test_no_changed_byte_is_a_wrong_record(tmp_path, interval_bytes):
    partition = test_byte_flips.make_log(tmp_path / "t-0", with_next_segment=True)
    first = seed_of_turn() % 13  # each in its turn, whichever turns run the test
    assert flips(partition, range(first, partition.file().stat().st_size, 13), "compiled") > 2_500
    partition.crash()


def test_a_wrong_base_offset_is_refused_even_if_the_index_was_built_from_it(tmp_path, loops):
    """One fault: the index agrees with it, so only the neighbours tell."""
    partition = test_byte_flips.make_log(tmp_path / "t-0", with_next_segment=True)
    partition.close()
    expected = test_byte_flips.RECORDS * test_byte_flips.BATCHES
    for number in range(1, test_byte_flips.BATCHES):
        for base in {8 * number - 8, 8 * number - 1, 8 * number + 1, 8 * number + 8} - {128}:
            copy = partition.copy()
            start, _ = copy.batches()[number]
            data = bytearray(copy.file().read_bytes())
            data[start : start + 8] = base.to_bytes(8, "big")
            copy.write_file(data)
            copy.file(0, ".index").unlink()
            copy.open()
            for offset in range(expected):
                with contextlib.suppress(CorruptionError):
                    record = copy.log.record_at(offset)
                    assert record is not None
                    assert (
                        record.value == b"value of %d " % offset + record.value.partition(b" ")[2][3:] or True
                    )
                    assert record.value.startswith(b"value of %d " % offset)
            copy.crash()


@pytest.mark.damaged
def test_damage_in_a_kept_batch_is_not_met_again(tmp_path, loops):
    """What is kept was right when it was read: it is the bytes in memory that are asked."""
    log = open_log(tmp_path / "t-0")
    log.append_replicated(encoded(0, 50, codec=2))
    before = log.record_at(20)
    path = tmp_path / "t-0" / f"{0:020}.log"
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    assert log.record_at(20) == before
    with pytest.raises(CorruptionError):
        list(log.read())


# The log changes


def test_a_truncated_log_never_gives_what_was_cut(tmp_path, loops):
    log = open_log(tmp_path / "t-0", index_interval_bytes=0)
    for codec in (0, 2, 0, 4):
        log.append_replicated(encoded(0, 400, codec=codec))
        assert log.record_at(10).key == b"key 10"
        log.truncate_to(0)
        log.append_replicated(_other(400, codec))
        assert log.record_at(10).value == b"other 10"
        log.truncate_to(0)


def _other(count, codec):
    return batch(*(b"other %d" % n for n in range(count)), codec=codec)


def test_a_reopened_log_reads_its_own_bytes(tmp_path, loops):
    path = tmp_path / "t-0"
    log = open_log(path)
    log.append_replicated(encoded(0, 400, codec=2))
    assert log.record_at(7).key == b"key 7"
    log.close()
    (path / f"{0:020}.log").write_bytes(_other(400, 2))
    assert Log.open(str(path)).record_at(7).value == b"other 7"


@pytest.mark.slow
def test_reads_from_threads_during_appends_rolls_retention_and_truncation_are_right_or_refused(tmp_path):
    log = open_log(tmp_path / "t-0", segment_bytes=40_000, index_interval_bytes=300, max_open_segments=2)
    failures, stop, hits = [], threading.Event(), [0]

    def read_again_and_again(seed):
        chance = random.Random(seed)
        while not stop.is_set():
            start, end = log.log_start_offset, log.log_end_offset
            if start >= end:
                continue
            try:
                record = log.record_at(chance.randrange(start, end))
            except OffsetOutOfRangeError:
                continue
            except Exception as error:
                failures.append(error)
                return
            if record is not None:
                hits[0] += 1
                if not record.value.startswith(b"value of %d " % record.offset):
                    failures.append(record)

    threads = [threading.Thread(target=read_again_and_again, args=(seed,)) for seed in range(3)]
    for thread in threads:
        thread.start()
    chance = random.Random(9)
    for number in range(250):
        end, count = log.log_end_offset, chance.choice((1, 5, 60, 300))
        codec = chance.choice((0, 0, 2, 3))
        log.append_replicated(_valued(end, count, codec))
        if number % 7 == 6:
            log.truncate_to(max(log.log_end_offset - chance.randrange(400), log.log_start_offset))
        if number % 11 == 10:
            log.delete_before(max(log.log_end_offset - 900, log.log_start_offset))
    stop.set()
    for thread in threads:
        thread.join()
    assert not failures
    assert hits[0] > 100
    assert log._context.batches.size_bytes <= StoreConfig().batch_cache_bytes


def _valued(base_offset, count, codec):
    return batch(
        *(b"value of %d %s" % (offset, b"." * 100) for offset in range(base_offset, base_offset + count)),
        base_offset=base_offset,
        codec=codec,
    )


# Read-only


def test_a_read_only_log_finds_records_while_another_writes(tmp_path, loops):
    with open_store(tmp_path / "s") as store:
        log = store.create_topic("t")[0]
        add_rows(log, 20, 300)
        with open_store(tmp_path / "s", read_only=True) as reader:
            other = reader["t"][0]
            assert other.record_at(5) == log.record_at(5)
            add_rows(log, 10)
            log.roll()
            add_rows(log, 1)
            assert other.record_at(330) == log.record_at(330)
            log.truncate_to(320)
            add(log, *[b"other"] * 10)
            assert other.record_at(325).value == b"other"
            with pytest.raises(OffsetOutOfRangeError):
                other.record_at(330)
