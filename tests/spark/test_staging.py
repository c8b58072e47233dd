"""Staged files: what tasks write is what commits read, and nothing else passes."""

import mmap

import pytest

from logstore.errors import CorruptionError, StorageError
from logstore.files import OsFiles
from logstore.format.batch import decode_batch
from logstore.spark import flush_ahead, staging
from logstore.spark.staging import is_staged_name, read_staged, staged_among, staged_name
from logstore.testing import FAULTS, FaultyFiles
from tests.page_cache import cached_pages, forget, needs_mincore
from tests.spark.staged import SINK, Place


@pytest.fixture
def place():
    place = Place()
    place.create()
    return place


def batches_of(place, staged):
    return [
        (found.number, [bytes(record.value) for record in decode_batch(found.batch)])
        for piece in read_staged(place.files, place.path, staged)
        for found in piece
    ]


def overwrite(place, staged, position, data):
    place.files.open(f"{place.path}/{staged.name}", write=True).write_at(position, [data])


def test_batches_come_back_in_their_order_each_for_its_target(place):
    staged = place.stage({1: [b"a", b"b", b"c"], 0: [b"x"]})
    assert [str(part.target) for part in staged.parts] == ["t-1", "t-0"]
    assert [part[1:] for part in staged.parts] == [(2, 3), (1, 1)]
    assert batches_of(place, staged) == [(0, [b"a", b"b"]), (1, [b"x"]), (0, [b"c"])]


@pytest.mark.parametrize("piece_bytes", [1, 61, 100, 150, 10_000])
def test_pieces_of_any_size(place, monkeypatch, piece_bytes):
    monkeypatch.setattr(staging, "PIECE_BYTES", piece_bytes)
    staged = place.stage({0: [b"%d" % number * (number + 1) for number in range(20)]})
    assert len(batches_of(place, staged)) == 10


def test_what_is_flushed_meanwhile_is_flushed_again_at_the_end(place, monkeypatch):
    monkeypatch.setattr(flush_ahead, "AHEAD_BYTES", 1)
    staged = place.stage({0: [b"%d" % number for number in range(20)]})
    operations = [str(line).split()[0] for line in place.files.trace if staged.name in str(line)]
    assert operations.count("write") == 10
    assert operations.count("flush") >= 2
    assert operations[-1] == "flush"


def test_a_flush_that_fails_meanwhile_fails_the_file(place, monkeypatch):
    monkeypatch.setattr(flush_ahead, "AHEAD_BYTES", 1)
    place.files = FaultyFiles(place.files)
    place.files.fail(FAULTS["failed flush"], path=".staged")
    with pytest.raises(StorageError, match="staged"):
        place.stage({0: [b"a"]})
    assert len(place.files.failures) == 1


def test_a_file_is_made_with_the_first_batch(place):
    writer = staging.StagedWriter(place.files, place.path, lambda: staged_name(SINK, 0, 0))
    writer.append(place.target(0), [], 10_000)
    assert writer.finish() == []
    writer.discard()
    assert place.staged_names() == []


def test_every_changed_byte_of_a_header_is_noticed(place):
    staged = place.stage({0: [b"a"], 1: [b"b"]})
    for position in range(61):
        original = place.files.open(f"{place.path}/{staged.name}").read_at(position, 1)
        overwrite(place, staged, position, bytes([original[0] ^ 1]))
        with pytest.raises(CorruptionError, match=r"\.staged"):
            list(read_staged(place.files, place.path, staged))
        overwrite(place, staged, position, original)
    assert len(batches_of(place, staged)) == 2


@pytest.mark.parametrize("size", [0, 1, 60, 61, 100])
def test_a_file_of_another_size_is_refused(place, size):
    staged = place.stage({0: [b"a" * 100]})
    place.files.open(f"{place.path}/{staged.name}", write=True).truncate(size)
    with pytest.raises(CorruptionError, match="the task wrote"):
        batches_of(place, staged)


@pytest.mark.parametrize(
    "lie",
    [
        lambda staged: staged._replace(checksum=staged.checksum ^ 1),
        lambda staged: staged._replace(parts=staged.parts[:1]),
        lambda staged: staged._replace(parts=(staged.parts[0]._replace(record_count=7), staged.parts[1])),
        lambda staged: staged._replace(parts=(staged.parts[0]._replace(batch_count=7), staged.parts[1])),
    ],
)
def test_a_message_that_does_not_fit_the_file_is_refused(place, lie):
    staged = lie(place.stage({0: [b"a"], 1: [b"b"]}))
    with pytest.raises(CorruptionError):
        batches_of(place, staged)


def test_a_file_that_is_gone_is_an_error_of_the_disk(place):
    staged = place.stage({0: [b"a"]})
    place.files.remove(f"{place.path}/{staged.name}")
    with pytest.raises(StorageError):
        batches_of(place, staged)


@pytest.mark.disk
@needs_mincore
def test_what_is_let_go_leaves_the_memory_of_the_system(tmp_path, monkeypatch):
    monkeypatch.setattr(staging, "PIECE_BYTES", 100_000)
    place = Place(OsFiles(), str(tmp_path / "store"))
    place.create()
    staged = place.stage({0: [b"%d" % number * 5_000 for number in range(100)]})
    path = f"{place.path}/{staged.name}"
    forget(path)
    expected = batches_of(place, staged)
    assert all(cached_pages(path))
    found = []
    for piece in read_staged(place.files, place.path, staged, lets_go=True):
        found += [(batch.number, [record.value for record in decode_batch(batch.batch)]) for batch in piece]
    assert found == expected
    assert sum(cached_pages(path)) < staged.size_bytes / mmap.PAGESIZE / 10


def test_names_tell_sink_and_batch():
    name = staged_name("a/b c", 12, 3)
    assert is_staged_name(name)
    assert staged_among([name], "a/b c", up_to=12) == {name: True}
    assert staged_among([name], "a/b c", up_to=11) == {name: False}
    assert staged_among([name], "other", up_to=12) == {name: False}
    assert staged_name("a/b c", 12, 3) != name
    foreign = ["topics.json", "t-0", name + ".tmp", "x" + name, "spark-1-2-3-4.staged"]
    assert not any(map(is_staged_name, foreign))
    assert staged_among(foreign, "a/b c", up_to=99) == {}


def test_staged_files_are_no_part_of_the_store(place):
    place.stage({0: [b"a"]})
    assert place.values() == {0: [], 1: []}
    with place.open() as store:
        assert list(store) == ["t"]
    place.verify()
