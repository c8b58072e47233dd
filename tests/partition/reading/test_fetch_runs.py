"""Raw fetches: what the compiled module takes at once is what the careful code takes batch by batch, with
every error. Costs 6 s in all."""

import random
from pathlib import Path

import pytest

from logstore import build
from logstore.errors import LogstoreError
from logstore.format.batch import decode_header, encode_batch
from logstore.model import Isolation
from logstore.partition.reading import fetched as fetching
from tests.partition.helpers_rules import open_log
from tests.partition.log_shapes import SHAPES
from tests.rotation import seed_of_turn

pytestmark = pytest.mark.skipif(
    build.compiled is None, reason="there is nothing to compare without the module"
)
SIZES = (0, 1, 300, 5_000, 70_000, 1_048_576)


def found_in(log, offset, **options):
    """All that a fetch says, or its error."""
    try:
        fetched = log.fetch(offset, **options)
    except LogstoreError as error:
        return type(error), str(error)
    return fetched._replace(data=bytes(fetched.data))


def both(log, *arguments, monkeypatch, **options):
    quick = found_in(log, *arguments, **options)
    with monkeypatch.context() as patch:
        patch.setattr(fetching, "whole_run", None)
        return quick, found_in(log, *arguments, **options)


def any_fetch(log, chance, goes_on_at=None):
    offset = chance.randrange(log.log_start_offset, log.log_end_offset + 1)
    if goes_on_at is not None and chance.random() < 0.6:
        offset = goes_on_at
    return offset, {
        "max_bytes": chance.choice(SIZES),
        "isolation": chance.choice(list(Isolation)),
        "min_one_batch": chance.random() < 0.7,
    }


@pytest.mark.parametrize("shape", SHAPES)
def test_any_fetch_is_what_the_careful_code_gives(shape, tmp_path, monkeypatch):
    chance = random.Random(f"{shape}/{seed_of_turn()}")
    with SHAPES[shape](tmp_path / "t-0") as log:
        log.flush()
        goes_on_at = None
        for _ in range(60):
            offset, options = any_fetch(log, chance, goes_on_at)
            quick, careful = both(log, offset, monkeypatch=monkeypatch, **options)
            assert quick == careful, (offset, options)
            goes_on_at = getattr(quick, "next_offset", None)


@pytest.mark.damaged
@pytest.mark.parametrize("shape", SHAPES)
def test_so_it_is_with_any_byte_flipped(shape, tmp_path, monkeypatch):
    """But for damage in front of where the last fetch ended: a fetch that goes on there does not meet it."""
    chance = random.Random(f"{shape}/{seed_of_turn()}")
    log = SHAPES[shape](tmp_path / "t-0")
    try:
        log.flush()
        goes_on_at = None
        paths = sorted(Path(log.directory).glob("*.log"))
        for _ in range(60):
            path = chance.choice([each for each in paths if each.stat().st_size])
            at = chance.randrange(path.stat().st_size)
            with path.open("r+b") as file:
                file.seek(at)
                was = file.read(1)
                file.seek(at)
                file.write(bytes([was[0] ^ 1 << chance.randrange(8)]))
            passed = []
            for _ in range(3):
                offset, options = any_fetch(log, chance, goes_on_at)
                quick, careful = both(log, offset, monkeypatch=monkeypatch, **options)
                goes_on_at = getattr(quick, "next_offset", None)
                if quick != careful:
                    passed.append((quick, careful, offset, options))
            with path.open("r+b") as file:
                file.seek(at)
                file.write(was)
            for quick, careful, offset, options in passed:
                case = path.name, at, offset, options
                assert not isinstance(careful, fetching.Fetched), case
                assert quick == found_in(log, offset, **options), case
    finally:
        log.abandon()  # what it has rebuilt from damaged bytes is not to be stored


def test_a_fetch_of_large_batches_reads_little_more_than_it_gives(tmp_path, monkeypatch):
    """Not the batch in front of the first one, and not what does not fit any more."""
    with open_log(tmp_path / "t-0") as log:
        batch = encode_batch([None] * 100, [bytes(1_000)] * 100, 1)
        for _ in range(40):
            log.append_batch(batch)
        read = []
        segment = fetching.SegmentReader(log.writer.current_view(), 0, 0, 1)._segment
        read_at = type(segment).read_at
        monkeypatch.setattr(
            type(segment),
            "read_at",
            lambda self, position, size: read.append(size) or read_at(self, position, size),
        )
        fetched = log.fetch(500, max_bytes=10 * len(batch))
        assert len(fetched.data) == 10 * len(batch)
        assert sum(read) < len(fetched.data) + 10_000
        read.clear()
        assert log.fetch(fetched.next_offset, max_bytes=10 * len(batch)).next_offset == 2_500
        assert len(read) == 1  # where the last one ended
        read.clear()
        assert log.fetch(fetched.next_offset, max_bytes=10 * len(batch)).next_offset == 2_500
        assert len(read) == 1  # and the next reader, too: two followers are often at the same place


def test_where_a_fetch_ended_is_forgotten_if_something_else_lies_there(tmp_path):
    """The log is cut inside of what was read, and has grown again with batches of another size."""
    chance = random.Random(1)
    with open_log(tmp_path / "t-0") as log:
        for count in (3, 3, 3, 3):
            log.extend([chance.randbytes(20_000)] * count)
        assert log.fetch(0, max_bytes=200_000).next_offset == 9
        log.truncate_to(3)
        for size in (100, 50_000, 20_000):
            log.extend([chance.randbytes(size)] * 3)
        assert (
            log.fetch(9, max_bytes=200_000).data == log.fetch(9, max_bytes=200_000, min_one_batch=True).data
        )
        assert decode_header(log.fetch(9).data).base_offset == 9
