"""Checkpoint files: text tables of offsets by partition, and of start offsets by leader epoch."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import CorruptionError, LogstoreError, UnsupportedVersionError, UsageError
from logstore.format import checkpoint
from logstore.format.checkpoint import (
    MAX_CHECKPOINT_BYTES,
    EpochEntry,
    decode_epoch_checkpoint,
    decode_offset_checkpoint,
    encode_epoch_checkpoint,
    encode_offset_checkpoint,
)
from logstore.format.names import MAX_OFFSET, MAX_PARTITION
from logstore.model import TopicPartition

OFFSETS = {TopicPartition("foo", 0): 1523, TopicPartition("foo", 1): 88}
OFFSET_TEXT = b"0\n2\nfoo 0 1523\nfoo 1 88\n"
EPOCHS = [EpochEntry(0, 0), EpochEntry(3, 120)]
EPOCH_TEXT = b"0\n2\n0 0\n3 120\n"

both = pytest.mark.parametrize("decode", [decode_offset_checkpoint, decode_epoch_checkpoint])


def test_offset_checkpoint_both_ways():
    assert encode_offset_checkpoint(OFFSETS) == OFFSET_TEXT
    assert decode_offset_checkpoint(OFFSET_TEXT) == OFFSETS


def test_epoch_checkpoint_both_ways():
    assert encode_epoch_checkpoint(EPOCHS) == EPOCH_TEXT
    assert decode_epoch_checkpoint(EPOCH_TEXT) == EPOCHS


def test_equal_mappings_are_equal_files():
    assert encode_offset_checkpoint(dict(reversed(OFFSETS.items()))) == OFFSET_TEXT


def test_nothing_is_two_lines():
    assert encode_offset_checkpoint({}) == encode_epoch_checkpoint([]) == b"0\n0\n"


@both
def test_empty_file_reads_as_no_entries(decode):
    assert len(decode(b"")) == 0
    assert len(decode(b"0\n0\n")) == 0
    assert len(decode(b"0\n0")) == 0


def test_missing_last_newline_and_windows_newlines_are_read():
    assert decode_offset_checkpoint(OFFSET_TEXT[:-1]) == OFFSETS
    assert decode_offset_checkpoint(OFFSET_TEXT.replace(b"\n", b"\r\n")) == OFFSETS


topics = st.from_regex(r"[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,20}", fullmatch=True)
partitions = st.builds(TopicPartition, topics, st.integers(0, MAX_PARTITION))


@given(st.dictionaries(partitions, st.integers(0, MAX_OFFSET), max_size=8))
def test_offset_round_trip(offsets):
    assert decode_offset_checkpoint(encode_offset_checkpoint(offsets)) == offsets


@given(st.lists(st.tuples(st.integers(1, 2**26), st.integers(1, 2**58)), max_size=8))
def test_epoch_round_trip(steps):
    entries = [
        EpochEntry(sum(e for e, _ in steps[:n]), sum(o for _, o in steps[:n])) for n in range(len(steps))
    ]
    assert decode_epoch_checkpoint(encode_epoch_checkpoint(entries)) == entries


@both
@pytest.mark.parametrize("version", [b"1", b"2147483647"])
def test_higher_version_is_unsupported(decode, version):
    with pytest.raises(UnsupportedVersionError, match=version.decode()):
        decode(version + b"\n0\n")


@both
@pytest.mark.parametrize("version", [b"-1", b"x", b"", b" 0", b"0 ", b"+0", b"2147483648", b"9" * 5000])
def test_other_version_is_damage_in_line_1(decode, version):
    with pytest.raises(CorruptionError, match="line 1"):
        decode(version + b"\n0\n")


@both
@pytest.mark.parametrize("text", [b"0", b"0\n", b"0\nx\n", b"0\n-1\n", b"0\n1_0\n", b"0\n2147483648\n"])
def test_missing_or_bad_count_is_damage_in_line_2(decode, text):
    with pytest.raises(CorruptionError, match="line 2"):
        decode(text)


@pytest.mark.parametrize("count", [0, 1, 3, 2**31 - 1])
def test_count_that_does_not_match_the_lines_is_damage(count):
    with pytest.raises(CorruptionError, match=f"says it has {count} entries; 2 lines follow"):
        decode_offset_checkpoint(OFFSET_TEXT.replace(b"2", str(count).encode(), 1))


@pytest.mark.parametrize(
    "line",
    [
        *(b"", b"foo", b"foo 1", b"foo 1 88 9", b"foo  1 88", b"foo 1\t88", b" foo 1 88", b"foo 1 88 "),
        *(b"foo x 88", b"foo 1 x", b"foo -1 88", b"foo 1 -88", b"foo +1 88", b"foo 1 8_8", b"foo 1 8.0"),
        *(b"foo 2147483648 0", b"foo 1 9223372036854775808", b"foo 1 " + b"9" * 5000, b"foo 1 " + b"0" * 20),
        *(b"f/o 1 88", b". 1 88", b"f" * 250 + b" 1 88", b"foo 0 88"),
    ],
    ids=lambda line: line.decode()[:20] or "blank",
)
def test_bad_offset_line_is_named_by_its_number(line):
    with pytest.raises(CorruptionError, match="line 4"):
        decode_offset_checkpoint(b"0\n2\nfoo 0 1523\n" + line + b"\n")


@pytest.mark.parametrize(
    "line", [b"", b"3", b"3 120 1", b"x 120", b"-1 120", b"3 -1", b"2147483648 120", b"0 120", b"3 7", b"3 5"]
)
def test_bad_epoch_line_is_named_by_its_number(line):
    with pytest.raises(CorruptionError, match="line 4"):
        decode_epoch_checkpoint(b"0\n2\n0 7\n" + line + b"\n")


def test_long_damage_is_not_repeated_in_the_message():
    with pytest.raises(CorruptionError) as caught:
        decode_epoch_checkpoint(b"0\n1\n" + b"x" * 10_000)
    assert len(str(caught.value)) < 200


@both
def test_bytes_that_are_not_text_are_damage_at_their_position(decode):
    with pytest.raises(CorruptionError) as caught:
        decode(b"0\n1\n\xff")
    assert caught.value.position == 4


@both
def test_larger_files_than_the_limit_are_refused(decode, monkeypatch):
    monkeypatch.setattr(checkpoint, "MAX_CHECKPOINT_BYTES", 4)
    assert len(decode(b"0\n0\n")) == 0
    with pytest.raises(CorruptionError, match="the limit is 4"):
        decode(b"0\n00\n")


def test_the_limit_is_16_mib_and_holds_59000_partitions_of_the_longest_names():
    assert MAX_CHECKPOINT_BYTES == 16 * 1024 * 1024
    line = f"{'t' * 249} {MAX_PARTITION} {MAX_OFFSET}\n"
    assert MAX_CHECKPOINT_BYTES // len(line) > 59_000


def test_offsets_that_could_not_be_read_back_are_not_written():
    with pytest.raises(UsageError, match="-1"):
        encode_offset_checkpoint({TopicPartition("foo", 0): -1})


@settings(max_examples=200)
@given(st.data())
def test_hostile_checkpoints_raise_only_our_errors(data):
    decode, text = data.draw(
        st.sampled_from([(decode_offset_checkpoint, OFFSET_TEXT), (decode_epoch_checkpoint, EPOCH_TEXT)])
    )
    buffer = bytearray(text)
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(buffer)))
        buffer[at : at + data.draw(st.integers(0, 2))] = data.draw(
            st.sampled_from([b"", b"\n", b"9", b" ", b"-"])
        )
    with contextlib.suppress(LogstoreError):
        decode(buffer)


@given(st.binary(max_size=60))
def test_random_bytes_raise_only_our_errors(buffer):
    for decode in (decode_offset_checkpoint, decode_epoch_checkpoint):
        try:
            decode(buffer)
        except LogstoreError:
            continue
