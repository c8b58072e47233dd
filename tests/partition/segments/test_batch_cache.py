"""The cache of verified batches: bounded, and never older than the log."""

import random
import sys
import tempfile
import threading

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from logstore.errors import CorruptionError, InvalidConfigError
from logstore.format import lookup as plain
from logstore.format.batch import check_batch, decode_header
from logstore.format.compression import Codec
from logstore.partition.reading import lookup
from logstore.partition.segments import batch_cache
from logstore.partition.segments.batch_cache import MARK_STEP, BatchCache, VerifiedBatch
from tests.partition.helpers_rules import batch, crash, open_log
from tests.partition.log_shapes import LOOPS, SHAPES, encoded, loops_named, thinned


@pytest.fixture(params=LOOPS)
def loops(request):
    with loops_named(request.param):
        yield request.param


def verified(data):
    header = decode_header(data)
    check_batch(data, 0, header)
    return VerifiedBatch(bytes(data), 0, header)


def batch_at(base_offset, *, count=10, size_bytes=100, codec=Codec.NONE):
    values = [b"%d" % offset + b"." * size_bytes for offset in range(base_offset, base_offset + count)]
    return verified(batch(*values, base_offset=base_offset, codec=codec))


# One batch


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("count", [1, 2, 2 * MARK_STEP, 2 * MARK_STEP + 1, 1000])
def test_every_record_of_a_batch_is_found_in_any_order(loops, codec, count):
    kept = batch_at(50, count=count, codec=codec)
    for _ in range(2):
        for offset in random.Random(1).sample(range(50, 50 + count), count):
            assert kept.find(offset).value.startswith(b"%d." % offset)


@pytest.mark.parametrize("count", [33, 1000])
@pytest.mark.parametrize("keep", [2, 3, 7, 65])
def test_in_a_batch_with_gaps_every_record_is_found_and_every_gap(loops, count, keep):
    kept = verified(thinned(50, count, keep=keep))
    for offset in [*range(50, 50 + count), *range(50, 50 + count)]:
        found = kept.find(offset)
        assert found is False if (offset - 50) % keep else found.offset == offset


def test_a_record_in_a_large_batch_is_found_near_a_mark(monkeypatch):
    kept = batch_at(0, count=10_000, size_bytes=1)
    positions = []
    find = batch_cache.find_in_section
    monkeypatch.setattr(
        batch_cache,
        "find_in_section",
        lambda section, position, number, *rest: (
            positions.append(number) or find(section, position, number, *rest)
        ),
    )
    assert [kept.find(offset).offset for offset in (9_999, 9_999, 5_000)] == [9_999, 9_999, 5_000]
    assert positions == [0, 9_999 // MARK_STEP * MARK_STEP, 5_000 // MARK_STEP * MARK_STEP]


@pytest.mark.parametrize("change", [b"\xff", b"\x00", b"\x7e"])
def test_a_batch_whose_records_lie_is_left_to_the_careful_reader(loops, change):
    """The checksum is right: it was written so."""
    data = encoded(0, 300)
    for position in (61, 62, 64, 3000):
        spoiled = data[:position] + change + data[position + 1 :]
        kept = VerifiedBatch(bytes(spoiled), 0, decode_header(spoiled))
        for offset in range(300):
            found = kept.find(offset)
            assert found is None or found is False or found.offset == offset


def test_a_batch_that_does_not_decompress_is_refused():
    data = batch(b"x" * 1000, codec=Codec.GZIP)
    data[80] ^= 0xFF
    with pytest.raises(CorruptionError):
        VerifiedBatch(bytes(data), 0, decode_header(data))


# Many batches


def test_the_batches_that_were_not_read_for_the_longest_time_go_first():
    batches = [batch_at(10 * n) for n in range(4)]
    cache = BatchCache(3 * batches[0].size_bytes + 100)
    for kept in batches[:3]:
        cache.add((1, 0), kept)
    assert cache.find((1, 0), 5) is batches[0]
    cache.add((1, 0), batches[3])
    assert [cache.find((1, 0), offset) for offset in (5, 15, 25, 35)] == [batches[0], None, *batches[2:]]


def test_the_bound_is_kept_whatever_is_added():
    chance = random.Random(1)
    cache = BatchCache(50_000)
    for number in range(500):
        cache.add(
            (chance.randrange(5), 0), batch_at(10 * number, size_bytes=chance.choice((0, 10, 500, 6000)))
        )
        assert cache.size_bytes <= 50_000
    assert cache.size_bytes > 20_000
    cache.drop(range(5))
    assert (cache.size_bytes, len(cache)) == (0, 0)


def test_what_a_batch_is_said_to_take_is_what_it_takes():
    for count in (1, 100, 10_000):
        kept = batch_at(0, count=count, size_bytes=50)
        kept.find(count - 1), kept.find(count - 1)
        marks = kept._marks or ((), ())
        taken = sys.getsizeof(kept._section) + sum(
            map(sys.getsizeof, (*marks, *marks[0], *marks[1], *kept.header))
        )
        assert 0.7 * taken < kept.size_bytes < 1.1 * taken + 2000


def test_a_batch_larger_than_the_cache_is_not_kept():
    cache = BatchCache(5_000)
    cache.add((1, 0), batch_at(0, size_bytes=10))
    cache.add((1, 0), batch_at(10, size_bytes=1000))
    assert [cache.find((1, 0), offset) is None for offset in (0, 10)] == [False, True]


def test_a_batch_is_found_from_its_first_to_its_last_offset_and_nowhere_else():
    cache = BatchCache(10**6)
    for base in (30, 10, 20):
        cache.add((1, 0), batch_at(base, count=5))
    found = {offset for offset in range(50) if cache.find((1, 0), offset) is not None}
    assert found == {*range(10, 15), *range(20, 25), *range(30, 35)}
    assert cache.find((2, 0), 10) is cache.find((1, 1), 10) is None


def test_the_same_batch_from_two_threads_is_kept_once():
    cache = BatchCache(10**6)
    cache.add((1, 0), batch_at(0))
    size_bytes = cache.size_bytes
    cache.add((1, 0), batch_at(0))
    assert (len(cache), cache.size_bytes) == (1, size_bytes)


def test_threads_may_use_it_at_once():
    cache = BatchCache(60_000)
    failures = []

    def use(seed):
        chance = random.Random(seed)
        try:
            for _ in range(3000):
                base, place = 10 * chance.randrange(100), (chance.randrange(3), 0)
                kept = cache.find(place, base + 3)
                if kept is None:
                    cache.add(place, batch_at(base))
                elif kept.find(base + 3).value != b"%d" % (base + 3) + b"." * 100:
                    failures.append(base)
                if chance.random() < 0.01:
                    cache.drop([place[0]])
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=use, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert cache.size_bytes == sum(kept.size_bytes for kept in cache._order) <= 60_000


# In a log


def test_compressed_and_large_batches_are_kept_and_small_ones_are_not(tmp_path, loops):
    log = SHAPES["small batches"](tmp_path / "a-0")
    [log.record_at(offset) for offset in range(log.log_end_offset)]
    assert len(log._context.batches) == 0
    for name in ("large batches", "compressed"):
        log = SHAPES[name](tmp_path / f"{name[0]}-0")
        [log.record_at(offset) for offset in range(log.log_end_offset)]
        assert 0 < log._context.batches.size_bytes < 8 * 2**20


def test_a_kept_batch_is_read_without_the_disk(tmp_path, loops, monkeypatch):
    log = SHAPES["compressed"](tmp_path / "t-0")
    before = log.record_at(140)
    monkeypatch.setattr(lookup, "_find_quickly", None)
    monkeypatch.setattr(lookup, "_find_carefully", None)
    assert log.record_at(140) == before


def test_reading_through_a_log_leaves_the_cache_alone(tmp_path):
    log = SHAPES["compressed"](tmp_path / "t-0")
    list(log.read())
    list(log.read(3, 200))
    assert len(log._context.batches) == 0


def test_of_no_bytes_it_keeps_nothing(tmp_path):
    log = open_log(tmp_path / "t-0", batch_cache_bytes=0)
    log.append_replicated(encoded(0, 50, codec=2))
    assert log.record_at(3).offset == log.record_at(3).offset == 3
    assert len(log._context.batches) == 0


def test_truncating_and_closing_free_what_was_kept(tmp_path):
    log = open_log(tmp_path / "t-0")
    for action in (lambda: log.truncate_to(10), lambda: log.truncate_fully_and_start_at(0), log.close):
        log.append_replicated(encoded(log.log_end_offset, 50, codec=2))
        log.record_at(log.log_end_offset - 1)
        assert len(log._context.batches) == 1
        action()
        assert len(log._context.batches) == 0


@pytest.mark.parametrize("size", [-1, 1.5, True])
def test_its_size_must_be_a_size(tmp_path, size):
    with pytest.raises(InvalidConfigError, match="batch_cache_bytes"):
        open_log(tmp_path / "t-0", batch_cache_bytes=size)


class CachedLog(RuleBasedStateMachine):
    """Reads of single records, between changes that put other records at the same offsets and positions: what
    is read is always what a list has."""

    @initialize(codec=st.sampled_from([0, 0, 2, 3]), limit=st.sampled_from([20_000, 10**6]))
    def begin(self, codec, limit):
        self.directory = tempfile.TemporaryDirectory()
        self.limit = limit
        self.log = self.open()
        self.codec = codec
        self.model = {}
        self.firsts = []  # of each batch
        self.writes = 0

    def open(self):
        return open_log(
            f"{self.directory.name}/t-0",
            segment_bytes=60_000,
            index_interval_bytes=500,
            batch_cache_bytes=self.limit,
        )

    @rule(count=st.sampled_from([1, 3, 40, 350]), codec=st.booleans())
    def append(self, count, codec):
        self.writes += 1
        first = self.log.log_end_offset
        values = [b"%04d %08d " % (self.writes, first + n) + b"." * 90 for n in range(count)]
        self.log.append_replicated(batch(*values, base_offset=first, codec=self.codec if codec else 0))
        self.firsts.append(first)
        self.model.update(zip(range(first, first + count), values, strict=True))

    @precondition(lambda self: self.firsts)
    @rule(number=st.integers(0, 5), into=st.sampled_from([0, 0, 2]))
    def truncate(self, number, into):
        """To the beginning of a batch, or into it."""
        offset = self.firsts[-1 - number % len(self.firsts)] + into
        self.log.truncate_to(max(offset, self.log.log_start_offset))
        left = {record.offset for record in self.log.read()}
        self.model = {offset: value for offset, value in self.model.items() if offset in left}
        self.firsts = [first for first in self.firsts if first in left]

    @rule(what=st.sampled_from(["roll", "delete", "start over", "reopen", "crash"]), place=st.floats(0, 0.5))
    def change(self, what, place):
        if what == "roll":
            self.log.roll()
        elif what == "delete":
            start, end = self.log.log_start_offset, self.log.log_end_offset
            kept_from = self.log.delete_before(start + int(place * (end - start)))
            self.model = {offset: value for offset, value in self.model.items() if offset >= kept_from}
        elif what == "start over":
            self.log.truncate_fully_and_start_at(self.log.log_start_offset)
            self.model, self.firsts = {}, []
        else:
            self.log.close() if what == "reopen" else crash(self.log)
            self.log = self.open()

    @invariant()
    def what_is_read_is_what_was_written(self):
        if hasattr(self, "log"):
            start, end = self.log.log_start_offset, self.log.log_end_offset
            for offset in random.Random(start + end).choices(range(start, end), k=8 if end > start else 0):
                record = self.log.record_at(offset)
                assert (record and record.value) == self.model.get(offset)
            assert self.log._context.batches.size_bytes <= self.limit

    def teardown(self):
        if hasattr(self, "log"):
            crash(self.log)
            self.directory.cleanup()


TestCachedLog = CachedLog.TestCase
TestCachedLog.settings = settings(max_examples=30, stateful_step_count=30)


def test_the_plain_twins_are_what_plain_python_uses():
    with loops_named("plain"):
        assert batch_cache.find_in_section is plain.find_in_section
        assert lookup.find_record is plain.find_record
