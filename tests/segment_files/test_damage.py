"""A damaged segment file: no wrong record comes without a word.

What a file alone cannot know is listed here too, to the bit: the tests fail when it becomes more.
"""

import random
import shutil

import pytest

from logstore import Log, Segment, TopicConfig
from logstore.errors import CorruptionError
from logstore.format.header import LEADER_EPOCH_POSITION
from logstore.partition.checking.findings import FindingKind
from tests.interop.fixtures import load_case
from tests.partition.helpers import batch_of, value_of
from tests.segment_files.helpers import lone_copy, outcome, written_segment

BATCHES = 3
RECORDS = 4


@pytest.fixture
def small(tmp_path):
    """Three batches of four records, with indexes that name the last two."""
    return written_segment(tmp_path, count=BATCHES * RECORDS, batch=RECORDS, index_interval_bytes=1)


def flipped(data, bit):
    changed = bytearray(data)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def unseen_flips(path, bits):
    """The bits whose change neither a read nor a check reports, and whether records are others for it."""
    data = path.read_bytes()
    with Segment.open(path) as segment:
        right = list(segment.records())
        assert segment.check()
    unseen = {}
    for bit in bits:
        path.write_bytes(flipped(data, bit))
        with Segment.open(path) as segment:
            found, error = outcome(segment.records())
            assert error is None or (error.position is not None and error.path == str(path))
            if error is None and segment.check():
                unseen[bit] = found != right
            elif error is not None:
                assert found == right[: len(found)], f"bit {bit}"
                assert not segment.check(), f"bit {bit}: {error}"
    path.write_bytes(data)
    return unseen


@pytest.mark.slow
@pytest.mark.parametrize("is_indexed", [True, False], ids=["indexed", "alone"])
def test_every_bit(small, tmp_path, is_indexed):
    """All but these are told: the leader epoch of the last batch, upwards; without indexes, its base offset
    upwards, too."""
    path = small if is_indexed else lone_copy(small, tmp_path / "alone", suffixes=(".log",))
    with Segment.open(path) as segment:
        last = list(segment.batches())[-1].position
    unseen = unseen_flips(path, range(path.stat().st_size * 8))
    epoch_bits = {bit for bit in unseen if (bit // 8 - last) in range(LEADER_EPOCH_POSITION, 16)}
    offset_bits = {bit for bit in unseen if (bit // 8 - last) in range(8)}
    assert set(unseen) == epoch_bits | offset_bits
    assert not any(unseen[bit] for bit in epoch_bits)
    assert len(epoch_bits) == 31  # not the sign; the epoch is 0
    if is_indexed:
        assert offset_bits == set()
    else:
        assert all(unseen[bit] for bit in offset_bits)
        assert 25 < len(offset_bits) <= 31  # beyond 2^31 it would be in another segment


def test_bits_of_every_field(small):
    """A part of the same for every run: each bit of the header of the batch in the middle."""
    with Segment.open(small) as segment:
        _, middle, _ = segment.batches()
    bits = range(middle.position * 8, (middle.position + 61) * 8, 3)
    assert unseen_flips(small, bits) == {}


def test_a_last_batch_with_other_offsets_leaves_a_note(small, tmp_path):
    path = lone_copy(small, tmp_path / "alone", suffixes=(".log",))
    data = path.read_bytes()
    with Segment.open(path) as segment:
        last = list(segment.batches())[-1].position
    path.write_bytes(flipped(data, (last + 6) * 8))
    with Segment.open(path) as segment:
        report = segment.check()
        assert report
        assert [note.kind for note in report.notes if note.kind is not FindingKind.MISSING_INDEX] == [
            FindingKind.GAP
        ]


@pytest.mark.parametrize(
    "codec", ["codec-zstd", "codec-lz4", "legacy-v0-gzip", "legacy-v1-none", "compacted"]
)
def test_flips_in_what_a_broker_wrote(tmp_path, codec):
    """Every 37th bit. Of magic 0 and 1 a checksum covers all but the offset and the size."""
    source = next(
        p for p in sorted(load_case(codec).partitions[0].directory.glob("*.log")) if p.stat().st_size
    )
    path = lone_copy(source, tmp_path)
    with Segment.open(path) as segment:
        batches = list(segment.batches())
    bits = range(random.Random(codec).randrange(37), path.stat().st_size * 8, 37)
    for bit, is_other in unseen_flips(path, bits).items():
        at = bit // 8
        batch = max((b for b in batches if b.position <= at), key=lambda b: b.position)
        assert at - batch.position < 16
        gap_follows = (
            batch is batches[-1] or batches[batches.index(batch) + 1].base_offset > batch.last_offset + 1
        )
        gap_before = batch.base_offset > (
            batches[batches.index(batch) - 1].last_offset + 1 if batch is not batches[0] else 0
        )
        assert not is_other or gap_follows or gap_before or batch.magic < 2


def test_damage_inside_is_named_and_what_is_around_it_can_be_read(tmp_path):
    path = written_segment(tmp_path, count=60, batch=5)
    with Segment.open(path) as segment:
        batches = list(segment.batches())
    sixth = batches[6]
    data = bytearray(path.read_bytes())
    data[sixth.position + 70] ^= 1
    path.write_bytes(data)
    with Segment.open(path) as segment:
        shown = list(segment.batches())
        assert [batch.is_sound for batch in shown].index(False) == 6
        assert len(shown) == 12
        assert "checksum" in shown[6].damage
        found, error = outcome(segment.records())
        assert [record.offset for record in found] == list(range(30))
        assert (error.position, error.base_offset, error.last_offset) == (sixth.position, 30, 34)
        assert [record.offset for record in segment.records(40)] == list(range(40, 60))
        with pytest.raises(CorruptionError):
            segment.read_arrow()
        [problem] = segment.check().problems
        assert (problem.kind, problem.path, problem.position) == (
            FindingKind.BATCH,
            str(path),
            sixth.position,
        )
        assert segment.record_at(29).value == value_of(29)
        with pytest.raises(CorruptionError):
            segment.record_at(31)


def test_a_size_that_is_wrong_inside_hides_nothing_behind_it_where_an_index_leads_there(tmp_path):
    path = written_segment(tmp_path, count=60, batch=5)
    with Segment.open(path) as segment:
        third = list(segment.batches())[3]
    data = bytearray(path.read_bytes())
    data[third.position + 8] ^= 1  # 16 MiB more
    path.write_bytes(data)
    with Segment.open(path) as segment:
        assert (segment.next_offset, segment.trailing_bytes) == (60, 0)
        assert [record.offset for record in segment.records(30)] == list(range(30, 60))
        assert [record.offset for record in outcome(segment.records())[0]] == list(range(15))
        batches, error = outcome(segment.batches())
        assert (len(batches), error.position) == (3, third.position)
        assert segment.check().record_count >= 50
    path.with_suffix(".index").unlink()
    with Segment.open(path) as segment:
        assert (segment.next_offset, segment.trailing_bytes) == (15, len(data) - third.position)
        with pytest.raises(CorruptionError) as caught:
            segment.records(25)
        assert caught.value.position == third.position


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
def test_no_index_makes_a_read_wrong(tmp_path, suffix):
    """Every byte of an index another: reads are the same, and the check names the file."""
    path = written_segment(tmp_path, count=40, batch=5, index_interval_bytes=100)
    index = path.with_suffix(suffix)
    entries = index.read_bytes()
    assert len(entries) > 30
    reported = 0
    for at in range(len(entries)):
        index.write_bytes(flipped(entries, at * 8 + at % 8))
        with Segment.open(path) as segment:
            assert [record.offset for record in segment.records(17)] == list(range(17, 40))
            assert segment.record_at(23).value == value_of(23)
            assert segment.offset_at(segment.record_at(23).timestamp_ms) == 23
            assert segment.next_offset == 40
            problems = segment.check().problems
            assert all(problem.path in (str(index), str(path)) for problem in problems)
            reported += bool(problems)
    assert reported == len(entries)


@pytest.mark.parametrize("junk", [b"", b"x", bytes(8_000), b"\xff" * 24, b"\x7f" * 48])
def test_no_junk_in_the_place_of_indexes_makes_a_read_wrong(tmp_path, junk):
    path = written_segment(tmp_path)
    for suffix in (".index", ".timeindex", ".txnindex"):
        path.with_suffix(suffix).write_bytes(junk)
    with Segment.open(path) as segment:
        assert [record.offset for record in segment.records(17)] == list(range(17, 60))
        assert segment.offset_at(segment.record_at(23).timestamp_ms) == 23
        assert segment.next_offset == 60
        assert segment.check().record_count == 60


def test_an_index_of_odd_length(tmp_path):
    path = written_segment(tmp_path)
    with path.with_suffix(".index").open("ab") as file:
        file.write(b"\0\0\0")
    with Segment.open(path) as segment:
        assert len(list(segment)) == 60
        with pytest.raises(CorruptionError, match="whole entries") as caught:
            segment.offset_index  # noqa: B018
        assert caught.value.path == str(path.with_suffix(".index"))
        [problem] = segment.check().problems
        assert problem.kind is FindingKind.OFFSET_INDEX


def test_indexes_of_a_broker_that_was_using_them(tmp_path):
    """Their files have 10 MiB, zeros behind the last entry."""
    path = written_segment(tmp_path)
    sizes = {}
    for suffix, unit in ((".index", 8), (".timeindex", 12)):
        data = path.with_suffix(suffix).read_bytes()
        sizes[suffix] = len(data) // unit
        path.with_suffix(suffix).write_bytes(data.ljust(10 * 1024 * 1024 // unit * unit, b"\0"))
    with Segment.open(path) as segment:
        assert (len(segment.offset_index), len(segment.time_index)) == tuple(sizes.values())
        assert segment.next_offset == 60
        assert [record.offset for record in segment.records(50)] == list(range(50, 60))
        report = segment.check()
        assert report
        assert not report.notes


def test_a_lost_end_is_told_by_the_indexes(tmp_path):
    """Cut where a batch ends: only an index tells that there was more."""
    path = written_segment(tmp_path, count=60, batch=5)
    with Segment.open(path) as segment:
        cut = list(segment.batches())[8].position
    with path.open("r+b") as file:
        file.truncate(cut)
    with Segment.open(path) as segment:
        assert segment.next_offset == 40
        [problem] = [p for p in segment.check().problems if p.kind is FindingKind.BATCH]
        assert "lost its end" in problem.reason
    alone = lone_copy(path, tmp_path / "alone", suffixes=(".log",))
    assert Segment.open(alone).check()


def test_a_segment_in_use_is_no_problem(tmp_path):
    """No entry closes its time index yet."""
    path = tmp_path / "00000000000000000000.log"
    path.write_bytes(b"".join(bytes(batch_of(base, 5)) for base in range(0, 50, 5)))
    for suffix in (".index", ".timeindex"):
        path.with_suffix(suffix).touch()
    assert Segment.open(path).check()


def test_a_segment_of_an_open_log_is_sound_after_a_cut(tmp_path):
    """The files of its indexes have named batches that were gone, until the next checkpoint."""
    with Log.open(tmp_path / "t-0", config=TopicConfig(index_interval_bytes=0)) as log:
        log.extend([b"v"])
        log.extend([b"v"] * 6)
        log.roll()
        log.truncate_to(1)
        with Segment.open(tmp_path / "t-0" / f"{0:020}.log") as segment:
            report = segment.check()
            assert report, report
            assert (report.record_count, len(segment.offset_index)) == (1, 0)


def test_aborted_transactions_without_their_index_are_a_note(tmp_path):
    case = load_case("transactional").partitions[0]
    found = 0
    for source in sorted(case.directory.glob("*.log")):
        path = lone_copy(source, tmp_path / "named", suffixes=(".log",))
        nameless = tmp_path / f"nameless-{source.stem}"
        shutil.copy(path, nameless)
        for each in (path, nameless):
            with Segment.open(each) as segment:
                report = segment.check()
                assert report, str(report)
                found += any("aborted" in note.reason for note in report.notes)
    assert found
