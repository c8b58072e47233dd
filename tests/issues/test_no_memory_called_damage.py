"""The libraries of zstd, lz4 and gzip tell only in the text of an error that they got no memory. That was
taken for damage: a read raised ``CorruptionError``, which consumers seek past and Spark may skip, and
``verify()`` blamed the program that had written the records."""

from __future__ import annotations

import zlib

import lz4.frame
import pytest
import zstandard

import logstore
from logstore.errors import CorruptionError
from logstore.format import zstd_frame

ERRORS = {
    "zstd": zstandard.ZstdError("decompression error: Allocation error : not enough memory"),
    "lz4": RuntimeError("LZ4F_decompress failed with code: ERROR_allocation_failed"),
    "gzip": zlib.error("Error -4 while decompressing data: insufficient memory"),
}


class Failing:
    """What a library gives to decompress or compress with."""

    def __init__(self, error):
        self.error = error

    def decompress(self, *arguments, **options):
        raise self.error

    compress = decompress


def fail_with(monkeypatch, codec, error):
    failing = Failing(error)
    monkeypatch.setattr(zlib, "decompressobj", lambda bits: failing)
    monkeypatch.setattr(lz4.frame, "LZ4FrameDecompressor", lambda: failing)
    monkeypatch.setattr(zstd_frame._contexts, "decompressor", failing)


@pytest.fixture(params=ERRORS)
def codec(request):
    return request.param


@pytest.fixture
def store(tmp_path, codec):
    with logstore.open(tmp_path / "store") as store:
        topic = store.create_topic("t", config=logstore.TopicConfig(compression_type=codec))
        topic.extend([b"x" * 100] * 100)
        yield store


def test_records_that_could_not_be_decompressed_are_there_when_there_is_memory(store, codec, monkeypatch):
    with monkeypatch.context() as patch:
        fail_with(patch, codec, ERRORS[codec])
        for use in (lambda: list(store["t"].read()), lambda: store["t"].read_arrow(), store.verify):
            with pytest.raises(MemoryError):
                use()
    assert len(list(store["t"].read())) == 100
    assert store.verify()


def test_damage_is_damage(store, codec, monkeypatch):
    with monkeypatch.context() as patch:
        fail_with(patch, codec, type(ERRORS[codec])("invalid data"))
        with pytest.raises(CorruptionError, match="invalid data"):
            list(store["t"].read())


def test_a_record_that_could_not_be_compressed_is_not_there(tmp_path, monkeypatch):
    with logstore.open(tmp_path / "store") as store:
        topic = store.create_topic("t", config=logstore.TopicConfig(compression_type="zstd"))
        failing = Failing(zstandard.ZstdError("cannot compress: Allocation error : not enough memory"))
        with monkeypatch.context() as patch:
            patch.setattr(zstd_frame._contexts, "compressors", {zstd_frame.ZSTD_DEFAULT_LEVEL: failing})
            with pytest.raises(MemoryError):
                topic.extend([b"x" * 100] * 100)
        topic.extend([b"y"])
        assert [record.value for record in topic.read()] == [b"y"]
