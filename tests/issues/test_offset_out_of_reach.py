"""A changed bit in the base offset of a segment's last batch, which no checksum covers, moved the end of a
log that nobody had called durable: up to 2^62 ahead, or past the segment behind it, whose place it took."""

import struct

import pytest

import logstore
from logstore.format.header import decode_header
from logstore.format.names import LOG_SUFFIX, segment_file_name


def make(path, *, segments):
    """A topic of five batches in its last segment, as after a copy of its files alone."""
    with logstore.open(path) as store:
        log = store.create_topic("t")[0]
        for segment in range(segments):
            if segment:
                log.roll()
            for number in range(5):
                log.append(b"%d" % number, flush=True)
    for name in ("recovery-point-offset-checkpoint", ".kafka_cleanshutdown"):
        (path / name).unlink()
    return path / "t-0"


def move_last_batch(file, base_offset):
    data = bytearray(file.read_bytes())
    position = 0
    while position < len(data):
        last, position = position, position + decode_header(data, position).size_bytes
    struct.pack_into(">q", data, last, base_offset)
    file.write_bytes(data)


@pytest.mark.parametrize("base_offset", [4 + (1 << 61), 4 + (1 << 40)])
def test_a_log_does_not_end_where_its_segment_cannot_reach(tmp_path, base_offset):
    directory = make(tmp_path, segments=1)
    move_last_batch(directory / segment_file_name(0, LOG_SUFFIX), base_offset)
    with logstore.open(tmp_path) as store:
        log = store["t"][0]
        assert [record.offset for record in log.read()] == [0, 1, 2, 3]
        assert log.append(b"next") == 4
    assert any(directory.glob("*.torn-*"))


def test_a_segment_does_not_end_behind_the_one_that_follows(tmp_path):
    directory = make(tmp_path, segments=2)
    move_last_batch(directory / segment_file_name(0, LOG_SUFFIX), 1_000)
    with logstore.open(tmp_path) as store:
        assert [record.offset for record in store["t"][0].read()] == [0, 1, 2, 3]
