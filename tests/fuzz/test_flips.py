"""No changed bit and no lost end goes unnoticed, or makes a wrong record. See ``flips.py``."""

from __future__ import annotations

import time

import pytest

from tests.figures import report
from tests.fuzz.flips import (
    CODECS,
    EPOCH,
    Target,
    cut_under_log,
    epoch_bytes,
    flip_bits,
    recover_cuts,
    recover_flips,
    verify_bits,
)
from tests.rotation import part, rotating, seed_of_turn

pytestmark = pytest.mark.damaged

SIZE_BYTES = 64 * 1024


@pytest.fixture
def small():
    target = Target("uncompressed", 4096)
    yield target
    target.close()


def target_of(codec, size_bytes=SIZE_BYTES):
    target = Target(codec, size_bytes)
    assert size_bytes <= len(target.data) < size_bytes * 1.3
    assert len(target.starts) > 10
    return target


def timed(name, action, count=None):
    """What the action gives, after a report of how many changes it has made."""
    began = time.monotonic()
    result = action()
    tried = count or (result if isinstance(result, int) else result[0])
    report(name, count=tried, failures=0, seconds=time.monotonic() - began)
    return result


def test_some_bits(small):
    tally = flip_bits(small, range(0, len(small.data), 7))
    assert tally.tried > 4000
    assert tally.refused > 0.9 * tally.tried


def test_some_lengths(small):
    lengths = range(0, len(small.data), 97)
    cut_under_log(small, lengths)
    recover_cuts(small, lengths)


def test_some_recoveries(small):
    tried, refused = recover_flips(small, range(0, len(small.data), 97))
    assert refused > 0.4 * tried


def test_recoveries_with_each_byte_of_the_first_and_the_last_header(small):
    for start in (0, small.starts[-1][0]):
        recover_flips(small, range(start, start + 61))


@pytest.mark.slow
def test_every_bit_of_a_segment_in_plain_records():
    """An eighth of them, the next with each commit."""
    target = target_of("uncompressed")
    places = part(range(len(target.data)), 8)
    tally = timed("flips/read/uncompressed", lambda: flip_bits(target, places))
    assert tally.tried == 8 * len(places)
    assert tally.unseen == 8 * len({*places} & {*epoch_bytes(target)})
    target.close()


@pytest.mark.slow
@pytest.mark.parametrize("codec", CODECS[1:])
def test_every_bit_of_a_smaller_segment_in_every_codec(codec):
    target = Target(codec, 4096)
    places = part(range(len(target.data)), 4)
    tally = timed(f"flips/read/{codec}", lambda: flip_bits(target, places))
    assert tally.unseen == 8 * len({*places} & {*epoch_bytes(target)})
    target.close()


@pytest.mark.slow
@pytest.mark.parametrize("codec", rotating(CODECS, 5))
def test_verifying_finds_what_no_reader_can(codec):
    target = Target(codec, 16 * 1024)
    assert timed(f"flips/verify/{codec}", lambda: verify_bits(target, epoch_bytes(target))) > 500
    timed(f"flips/verify/{codec}", lambda: verify_bits(target, range(0, len(target.data), 131)))
    target.close()


def test_verifying_finds_an_epoch_in_a_log_that_has_none():
    target = Target("uncompressed", 1024, leader_epoch=None)
    assert verify_bits(target, epoch_bytes(target)) == 8 * len(EPOCH) * len(target.starts)
    target.close()


@pytest.mark.slow
def test_every_length_of_a_segment():
    """An eighth of them, the next with each commit; for recovery fewer, others each time."""
    target = target_of("uncompressed")
    lengths = part(range(len(target.data)), 8)
    timed("cuts/read/uncompressed", lambda: cut_under_log(target, lengths), count=len(lengths))
    some = range(seed_of_turn() % 211, len(target.data), 211)
    timed("cuts/recovery/uncompressed", lambda: recover_cuts(target, some), count=2 * len(some))
    timed("flips/recovery/uncompressed", lambda: recover_flips(target, some))
    target.close()


@pytest.mark.soak
@pytest.mark.parametrize("codec", CODECS)
def test_every_bit_and_every_length_in_every_codec(codec):
    target = target_of(codec)
    everywhere = range(len(target.data))
    tally = timed(f"flips/read/{codec}", lambda: flip_bits(target, everywhere))
    assert tally.unseen == 8 * len(EPOCH) * len(target.starts)
    timed(f"flips/verify/{codec}", lambda: verify_bits(target, epoch_bytes(target)))
    timed(f"flips/verify/{codec}", lambda: verify_bits(target, everywhere[::8]))
    timed(f"cuts/read/{codec}", lambda: cut_under_log(target, everywhere), count=len(everywhere))
    timed(f"cuts/recovery/{codec}", lambda: recover_cuts(target, everywhere), count=2 * len(everywhere))
    timed(f"flips/recovery/{codec}", lambda: recover_flips(target, everywhere))
    target.close()


def test_a_reader_that_checks_nothing_is_found_out(small, monkeypatch):
    """The flips would find nothing to complain about in a reader that returns what it finds."""
    records = [*small.records[:3], small.records[3]._replace(value=b"wrong"), *small.records[4:]]
    monkeypatch.setattr(small.log, "read", lambda start=0, stop=None: iter(records[start:stop]))
    with pytest.raises(AssertionError):
        flip_bits(small, range(100))
    monkeypatch.setattr(small.log, "read", lambda start=0, stop=None: iter(small.records[start:stop]))
    with pytest.raises(AssertionError, match="unnoticed"):
        flip_bits(small, range(100))
