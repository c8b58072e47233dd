"""Frames come out as they went in, however the connection cuts them."""

from __future__ import annotations

import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import CorruptionError, UsageError
from logstore.wire.frames import FrameReader, encode_frame


def framed(*frames):
    return b"".join(b"".join(encode_frame([frame])) for frame in frames)


@given(st.lists(st.binary(max_size=40), max_size=6), st.lists(st.integers(0, 60), max_size=8), st.booleans())
def test_frames_come_back_however_they_are_cut(frames, cuts, is_changed):
    data = framed(*frames)
    reader = FrameReader()
    found = []
    cuts = sorted(min(cut, len(data)) for cut in cuts)
    for start, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
        piece = bytearray(data[start:end])
        views = reader.feed(piece)
        found += [bytes(view) for view in views]
        if is_changed:  # frames that have begun are kept, not viewed
            del views
            piece[:] = b"\xff" * len(piece)
        ends = [len(framed(*frames[:count])) for count in range(len(frames) + 1)]
        assert (reader.missing_bytes == 0) == (end in ends)
        assert end + reader.missing_bytes <= min(stop for stop in ends if stop >= end)
    assert found == frames


def test_a_frame_that_is_whole_is_not_copied():
    data = framed(b"one", b"two")
    assert [frame.obj is data for frame in FrameReader().feed(data)] == [True, True]


def test_what_is_missing():
    reader = FrameReader()
    assert reader.missing_bytes == 0
    assert reader.feed(b"\0\0") == []
    assert reader.missing_bytes == 2
    assert reader.feed(b"\0\5a") == []
    assert reader.missing_bytes == 4
    assert reader.feed(b"bcde" + framed(b"x")) == [b"abcde", b"x"]
    assert reader.missing_bytes == 0


@pytest.mark.parametrize("size", [-1, -(2**31), 101, 2**31 - 1])
@pytest.mark.parametrize("first", [0, 2, 4])
def test_a_size_that_is_not_allowed(size, first):
    reader = FrameReader(max_bytes=100)
    data = size.to_bytes(4, "big", signed=True)
    assert reader.feed(data[:first] if first < 4 else b"") == []
    with pytest.raises(CorruptionError, match=f"a frame of {size} bytes; 0 to 100 are allowed"):
        reader.feed(data[first:] if first < 4 else data + b"more")


@pytest.mark.parametrize("first", ["16030102", "15030300"])
def test_a_size_that_is_how_tls_begins(first):
    """A client that begins with TLS, and a broker that answers with its alert."""
    reader = FrameReader(max_bytes=100)
    with pytest.raises(CorruptionError, match="are allowed; it looks like TLS"):
        reader.feed(bytes.fromhex(first))
    assert reader.is_tls


def test_a_size_that_is_not_allowed_behind_whole_frames():
    reader = FrameReader(max_bytes=100)
    found = reader.feed(framed(b"a", b"b") + b"\xff\xff\xff\xffmore")
    assert [bytes(frame) for frame in found] == [b"a", b"b"]
    assert "a frame of -1 bytes" in str(reader.fault)
    assert reader.missing_bytes == 0


def test_the_largest_that_is_allowed():
    assert FrameReader(max_bytes=100).feed(framed(bytes(100))) == [bytes(100)]


def test_an_announced_size_takes_no_memory():
    reader = FrameReader()
    tracemalloc.start()
    reader.feed((100 * 2**20).to_bytes(4, "big") + bytes(1000))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 20_000
    assert reader.missing_bytes == 100 * 2**20 - 1000


@given(st.lists(st.integers(0, 200_000), min_size=1, max_size=4), st.data())
def test_large_frames_are_received_where_they_belong(sizes, data):
    """As a connection does: into the room that there is, or fed in pieces."""
    frames = [(bytes([65 + number]) * size) for number, size in enumerate(sizes)]
    stream = memoryview(framed(*frames))
    reader = FrameReader()
    found, at, begun_at = [], 0, 0
    while at < len(stream):
        room = reader.room()
        most = data.draw(st.sampled_from([1_000, 20_000, 70_000]))
        if room is None:
            piece = stream[at : at + most]
            found += [bytes(frame) for frame in reader.feed(piece)]
        else:
            assert 0 < len(room) <= 3 * (at - begun_at)
            assert len(room) <= reader.missing_bytes
            piece = stream[at : at + min(most, len(room))]
            room[: len(piece)] = piece
            room.release()
            found += [bytes(frame) for frame in reader.fill(len(piece))]
        at += len(piece)
        begun_at = len(framed(*frames[: len(found)]))
    assert found == frames
    assert reader.missing_bytes == 0


def test_there_is_no_room_for_what_has_hardly_begun():
    reader = FrameReader()
    assert reader.room() is None
    reader.feed((100 * 2**20).to_bytes(4, "big") + bytes(10_000))
    assert reader.room() is None
    reader.feed(bytes(10_000))
    room = reader.room()
    assert room is not None
    assert len(room) == 3 * 20_004


def test_who_has_sent_a_large_frame_gets_no_more_room_for_the_next():
    """Else a thousand clients that begin again, and stall, have memory for a whole frame each."""
    reader = FrameReader()
    frame = framed(bytes(2 * 2**20))
    assert len(reader.feed(frame[:-1]) + reader.feed(frame[-1:])) == 1
    reader.feed(frame[:20_000])
    room = reader.room()
    assert room is not None
    assert len(room) == 3 * 20_000


def test_small_pieces_are_joined_and_large_ones_passed_on():
    large, view, last = bytes(5000), memoryview(bytes(5000)), bytes(4096)
    pieces = encode_frame([b"a", b"b", large, view, memoryview(b"c"), b"", b"d", last])
    assert pieces == [b"\0\0\x37\x14ab", large, view, b"cd", last]
    assert pieces[1] is large
    assert pieces[2] is view
    assert pieces[4] is last
    assert encode_frame([]) == [b"\0\0\0\0"]
    assert encode_frame([bytes(4095)]) == [b"\0\0\x0f\xff" + bytes(4095)]


class Huge:
    def __len__(self):
        return 2**31 - 1


def test_a_frame_that_is_too_large():
    with pytest.raises(UsageError, match="a frame of 2147483649 bytes; 2147483647 are allowed"):
        encode_frame([b"ab", Huge()])
