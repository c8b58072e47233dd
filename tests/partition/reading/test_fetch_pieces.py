"""A fetch gives the same batches however it reads them, and what has nothing to give is known without one."""

from __future__ import annotations

import random

import pytest

import logstore
from logstore.errors import OffsetOutOfRangeError
from logstore.format.batch import decode_header, encode_batch
from logstore.format.header import HEADER_BYTES
from logstore.format.loops import whole_run
from logstore.model import Isolation
from logstore.partition.reading.readable import MAX_FETCH_BYTES, fetch_new, published_view
from logstore.partition.reading.view import LogView
from logstore.partition.segments.active import ActiveSegment
from tests.rotation import seed_of_turn

SIZES = (100, 3_000, 40_000, 300_000, 900_000)


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    """A log of batches of all sizes, and each batch with its last offset."""
    chance = random.Random(seed_of_turn())
    batches = []
    with logstore.Log.open(
        tmp_path_factory.mktemp("log") / "t-0", config=logstore.TopicConfig(segment_bytes=6_000_000)
    ) as log:
        for number in range(60):
            count = chance.randrange(1, 9)
            size = chance.choice(SIZES) // count
            batch = encode_batch([None] * count, [chance.randbytes(size)] * count, number)
            log.append_batch(batch)
        start = 0
        while start < log.log_end_offset:
            data = bytes(log.fetch(start, max_bytes=0).data)  # one batch
            start = decode_header(data).next_offset
            batches.append((start - 1, data))
        assert len(batches) == 60
        yield log, batches, chance


def test_batches_come_as_they_are_however_much_is_asked_for(filled):
    log, batches, chance = filled
    for _ in range(150):
        start = chance.randrange(log.log_end_offset)
        max_bytes = chance.choice((0, 1, 50_000, 70_000, 500_000, 1_048_576, 3_000_000, 2**30))
        fetched = log.fetch(start, max_bytes=max_bytes)
        at = next(number for number, (last, _) in enumerate(batches) if last >= start)
        data, taken = bytes(fetched.data), []
        while sum(map(len, taken)) < len(data):
            taken.append(batches[at + len(taken)][1])
        assert data == b"".join(taken)
        last, _ = batches[at + len(taken) - 1]
        assert fetched.next_offset == last + 1
        assert len(data) <= max_bytes or len(taken) == 1
        is_last_of_segment = fetched.next_offset in log_bases(log)
        if at + len(taken) < len(batches) and not is_last_of_segment:
            assert len(data) + len(batches[at + len(taken)][1]) > max_bytes


def log_bases(log):
    return published_view(log).bases


@pytest.mark.parametrize("isolation", Isolation)
def test_an_idle_reader_is_one_that_a_fetch_gives_nothing(filled, isolation):
    log, _, _ = filled
    for offset in range(-1, log.log_end_offset + 2):
        try:
            fetched = log.fetch(offset, isolation=isolation)
        except (OffsetOutOfRangeError, logstore.UsageError):
            with pytest.raises((OffsetOutOfRangeError, logstore.UsageError)):
                fetch_new(log, offset, MAX_FETCH_BYTES, isolation, min_one_batch=True)
            continue
        found = fetch_new(log, offset, MAX_FETCH_BYTES, isolation, min_one_batch=True)
        assert isinstance(found, LogView) == (not fetched.data)
        seen = (found.log_start_offset, found.high_watermark, found.last_stable_offset)
        assert seen == (fetched.log_start_offset, fetched.high_watermark, fetched.last_stable_offset)
        assert isinstance(found, LogView) or found == fetched


@pytest.mark.skipif(whole_run is None, reason="plain Python takes batch by batch")
def test_what_a_follower_asks_for_is_read_at_once(tmp_path, monkeypatch):
    """Of several pieces it would have to be joined, which costs as much again. 0.1 s."""
    reads = []
    plain = ActiveSegment.read_at
    monkeypatch.setattr(
        ActiveSegment,
        "read_at",
        lambda self, at, size_bytes: reads.append(size_bytes) or plain(self, at, size_bytes),
    )
    with logstore.Log.open(tmp_path / "t-0") as log:
        for number in range(90):
            log.append_batch(encode_batch([None] * 100, [bytes(1_000)] * 100, 100 * number))
        start = 0
        while start < log.log_end_offset:
            reads.clear()
            fetched = log.fetch(start, max_bytes=4 * 1024 * 1024)
            start = fetched.next_offset
            assert isinstance(fetched.data, memoryview)
            assert len([size_bytes for size_bytes in reads if size_bytes > HEADER_BYTES]) == 1
        assert start == 9_000
