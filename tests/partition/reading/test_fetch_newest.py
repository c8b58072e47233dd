"""A fetch that goes on at the end gives the newest batch from the memory in which it came, as long as that is
there. Whatever happens to the log, it gives what is in the file."""

from __future__ import annotations

import random

import pytest

from logstore.format.batch import encode_batch
from logstore.format.received import Received
from logstore.model import AppendOrigin, Isolation
from logstore.partition.reading import fetched as fetching
from logstore.partition.segments.active import ActiveSegment
from tests.partition.helpers_rules import START_MS, open_log
from tests.rotation import seed_of_turn

pytestmark = pytest.mark.skipif(
    fetching.whole_run is None, reason="plain Python takes batches one by one, and begins in front"
)
ALL = 10_000_000


def batch_of(chance, count, size):
    values = [chance.randbytes(size) for _ in range(count)]
    return memoryview(Received(encode_batch([None] * count, values, START_MS)))


@pytest.fixture
def reads(monkeypatch):
    """The positions that are read of the file."""
    found = []
    read_at = ActiveSegment.read_at

    def noting(self, position, size_bytes):
        found.append(position)
        return read_at(self, position, size_bytes)

    monkeypatch.setattr(ActiveSegment, "read_at", noting)
    return found


def in_file(log, offset, monkeypatch, **options):
    """The same fetch, of the file."""
    with monkeypatch.context() as patch:
        patch.setattr(ActiveSegment, "newest_at", lambda *_: None)
        return log.fetch(offset, **options)


def test_it_is_there_while_its_memory_is(tmp_path, reads):
    chance = random.Random(1)
    with open_log(tmp_path / "t-0") as log:
        log.append_batch(batch_of(chance, 3, 1_000))
        assert log.fetch(0, max_bytes=ALL).next_offset == 3
        newest = batch_of(chance, 3, 1_000)
        log.append_batch(newest)
        reads.clear()
        for _ in range(2):  # as two followers do
            found = log.fetch(3, max_bytes=ALL)
            assert found.data == newest
            assert found.data.obj is newest.obj
            assert found.data.readonly
        assert not reads
        expected = bytes(newest)
        del newest, found
        found = log.fetch(3, max_bytes=ALL)
        assert found.data == expected
        assert reads


def test_a_small_part_of_a_large_request_is_read_from_the_file(tmp_path, reads):
    """A reader that keeps a record would keep the whole request."""
    data = encode_batch([None], [b"v" * 1000], START_MS)
    with open_log(tmp_path / "t-0") as log:
        log.append_batch(data)
        assert log.fetch(0).next_offset == 1
        newest = memoryview(Received(data + bytes(2 * len(data))))[: len(data)]
        log.append_batch(newest)
        reads.clear()
        assert log.fetch(1).data == newest
        assert reads


def test_a_log_keeps_no_memory_for_it(tmp_path):
    with open_log(tmp_path / "t-0") as log:
        memory = Received(encode_batch([None], [b"v" * 1000], START_MS))
        batch = memoryview(memory)
        log.append_batch(batch)
        assert log.fetch(0).data == batch
        del batch
        memory.extend(b"more")  # BufferError as long as anyone has a view of it


def step(log, chance, alive, goes_on_at):
    """Something that changes the end of the log. Most batches are of one size."""
    kind = chance.randrange(10)
    if kind < 5:
        newest = batch_of(chance, 3, chance.choice((10, 1_000, 1_000, 1_000, 30_000)))
        log.append_batch(newest, origin=chance.choice((AppendOrigin.CLIENT, AppendOrigin.COORDINATOR)))
        alive.append(newest)
    elif kind == 5:
        log.extend([chance.randbytes(1_000) for _ in range(3)])
    elif kind < 8 and log.log_end_offset > log.log_start_offset:
        anywhere = chance.randrange(log.log_start_offset, log.log_end_offset + 1)
        end = goes_on_at if log.log_start_offset <= goes_on_at <= log.log_end_offset else anywhere
        log.truncate_to(chance.choice((end, end, anywhere)))
        if chance.random() < 0.5:
            log.extend([chance.randbytes(1_000) for _ in range(3)])
    elif kind == 8:
        log.roll()
    else:
        log.flush()
    if chance.random() < 0.3:
        alive.clear()


@pytest.mark.parametrize("case", range(8))
def test_it_is_what_is_in_the_file(tmp_path, monkeypatch, reads, case):
    """However batches come, are cut off and come again. Costs 0.1 s each."""
    chance = random.Random(f"{case}/{seed_of_turn()}")
    alive = []
    from_memory = 0
    with open_log(tmp_path / "t-0", segment_bytes=200_000) as log:
        goes_on_at = 0
        for _ in range(150):
            step(log, chance, alive, goes_on_at)
            for _ in range(chance.randrange(3)):
                offset = chance.choice((goes_on_at, goes_on_at, chance.randrange(log.log_end_offset + 1)))
                if not log.log_start_offset <= offset <= log.log_end_offset:
                    continue
                options = {
                    "max_bytes": chance.choice((1, 2_000, ALL, ALL)),
                    "isolation": chance.choice(list(Isolation)),
                    "min_one_batch": chance.random() < 0.7,
                }
                reads.clear()
                found = log.fetch(offset, **options)
                from_memory += bool(found.data) and not reads
                expected = in_file(log, offset, monkeypatch, **options)
                assert found._replace(data=bytes(found.data)) == expected._replace(data=bytes(expected.data))
                goes_on_at = found.next_offset
    assert from_memory > 3
