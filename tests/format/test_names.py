"""Names of topics, partition directories and segment files, after the rules of Kafka's log directory."""

import string

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import InvalidTopicError, LogstoreError, OffsetOutOfRangeError, UsageError
from logstore.format.names import (
    MAX_DIRECTORY_NAME_LENGTH,
    MAX_OFFSET,
    MAX_PARTITION,
    MAX_TOPIC_LENGTH,
    DirectoryKind,
    DirectoryName,
    SegmentFileName,
    check_topic_name,
    deleted_directory_name,
    has_name_clash,
    match_topic_name,
    parse_directory_name,
    parse_segment_file_name,
    partition_directory_name,
    segment_file_name,
    stray_directory_name,
)

UNIQUE = "0123456789abcdef0123456789abcdef"
LONGEST = "t" * 249

topics = st.text(string.ascii_letters + string.digits + "._-", min_size=1, max_size=MAX_TOPIC_LENGTH).filter(
    lambda name: name not in (".", "..")
)
partitions = st.integers(0, MAX_PARTITION)


@pytest.mark.parametrize("name", ["a", "A9._-", "...", "-", "__consumer_offsets", LONGEST])
def test_topic_name_legal(name):
    check_topic_name(name)
    assert match_topic_name(name)


@pytest.mark.parametrize(
    "name", ["", ".", "..", "a b", "a/b", "ä", "a\n", "\n", "٣", "a\0", "a:b", LONGEST + "t", None, b"a", 7]
)
def test_topic_name_illegal(name):
    with pytest.raises(InvalidTopicError):
        check_topic_name(name)
    assert not (isinstance(name, str) and match_topic_name(name))


def test_dot_and_underscore_clash():
    assert has_name_clash("a.b_c", "a_b.c")
    assert has_name_clash("same", "same")
    assert not has_name_clash("a.b", "a-b")


def test_partition_directory_is_topic_dash_number():
    assert partition_directory_name("orders", 3) == "orders-3"


@pytest.mark.parametrize("partition", [-1, MAX_PARTITION + 1, True, "0", 1.0])
def test_partition_number_out_of_range_is_refused(partition):
    with pytest.raises(InvalidTopicError, match="partition is"):
        partition_directory_name("orders", partition)


def test_directory_splits_at_the_last_dash():
    assert parse_directory_name("my-topic-1-2") == DirectoryName("my-topic-1", 2, DirectoryKind.LIVE)


NOT_DIRECTORIES = (
    *("", "-", "-0", "orders", "orders-"),  # no topic, no partition, no dash
    *("orders-x", "orders-1x", "orders-+1", "orders-01", "orders--1x", "orders-٣", "orders-1\n"),  # no number
    *("orders-2147483648", "orders-99999999999"),  # too large
    *("a b-0", ".-0", "..-0", "a\n-0"),  # no legal topic
)


@pytest.mark.parametrize("name", NOT_DIRECTORIES)
def test_directory_without_topic_or_partition_is_an_error(name):
    with pytest.raises(InvalidTopicError):
        parse_directory_name(name)


def test_a_topic_that_ends_in_a_dash_keeps_it():
    assert parse_directory_name("orders--1") == DirectoryName("orders-", 1, DirectoryKind.LIVE)


@given(topics, partitions)
def test_partition_directory_round_trip(topic, partition):
    name = partition_directory_name(topic, partition)
    assert parse_directory_name(name) == DirectoryName(topic, partition, DirectoryKind.LIVE)


def test_deleted_directory_has_32_hex_digits_and_a_marker():
    assert deleted_directory_name("orders", 5, UNIQUE) == f"orders-5.{UNIQUE}-delete"


def test_deleted_directory_is_cut_to_255_and_keeps_213_characters_of_the_longest_topic():
    name = deleted_directory_name(LONGEST, 5, UNIQUE)
    assert len(name) == MAX_DIRECTORY_NAME_LENGTH
    assert parse_directory_name(name) == DirectoryName("t" * 213, 5, DirectoryKind.DELETED)


def test_stray_directory_is_cut_to_255():
    name = stray_directory_name(LONGEST, 5, UNIQUE)
    assert len(name) == MAX_DIRECTORY_NAME_LENGTH
    assert name.endswith(f"-5.{UNIQUE}-stray")


def test_future_directory_is_read_and_not_cut():
    name = f"{LONGEST}-5.{UNIQUE}-future"
    assert parse_directory_name(name) == DirectoryName(LONGEST, 5, DirectoryKind.FUTURE)


@pytest.mark.parametrize("unique", ["", UNIQUE[1:], UNIQUE + "0", UNIQUE.upper(), "g" * 32, UNIQUE + "\n"])
def test_unique_part_must_be_32_hex_digits(unique):
    with pytest.raises(UsageError, match="32 hex digits"):
        deleted_directory_name("orders", 0, unique)


@given(topics, partitions, st.sampled_from([DirectoryKind.DELETED, DirectoryKind.STRAY]))
def test_marked_directory_round_trip(topic, partition, kind):
    make = deleted_directory_name if kind is DirectoryKind.DELETED else stray_directory_name
    name = make(topic, partition, UNIQUE)
    read = parse_directory_name(name)
    assert len(name) <= MAX_DIRECTORY_NAME_LENGTH
    assert topic.startswith(read.topic)
    assert (read.partition, read.kind) == (partition, kind)


@pytest.mark.parametrize("marker", ["-delete", "-stray", "-future"])
@pytest.mark.parametrize("stem", ["orders-0", "orders-0.", ".x", "orders.x", "orders-0.x y"])
def test_marker_without_its_unique_part_is_an_error(stem, marker):
    with pytest.raises(InvalidTopicError):
        parse_directory_name(stem + marker)


def test_marked_name_drops_everything_from_the_last_dot():
    read = parse_directory_name("a.b-7.anything-delete")
    assert read == DirectoryName("a.b", 7, DirectoryKind.DELETED)


def test_topic_that_ends_in_a_marker_word_is_live():
    assert parse_directory_name("a.b-delete-0").kind is DirectoryKind.LIVE


@given(st.text(max_size=40))
def test_hostile_directory_names_raise_only_our_errors(name):
    try:
        read = parse_directory_name(name)
    except LogstoreError:
        return
    assert str(read.partition) in name
    assert name.startswith(read.topic)


def test_segment_file_is_20_digits_and_a_suffix():
    assert segment_file_name(170, ".log") == "00000000000000000170.log"
    assert segment_file_name(MAX_OFFSET, ".index") == "09223372036854775807.index"


@pytest.mark.parametrize("base_offset", [-1, MAX_OFFSET + 1])
def test_segment_file_of_an_impossible_offset_is_refused(base_offset):
    with pytest.raises(OffsetOutOfRangeError):
        segment_file_name(base_offset, ".log")


@pytest.mark.parametrize("state", ["", ".deleted", ".cleaned", ".swap"])
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".txnindex", ".snapshot"])
def test_segment_file_names_read_back(suffix, state):
    name = segment_file_name(42, suffix) + state
    assert parse_segment_file_name(name) == SegmentFileName(42, suffix, state)


OTHER_FILES = (
    *("", ".log", "1.log", "0000000000000000000.log", "000000000000000000000.log"),
    *("-0000000000000000001.log", "0000000000000000000٣.log", "00000000000000000000.log\n"),
    *("00000000000000000000", "00000000000000000000.log.tmp", "00000000000000000000.deleted"),
    *("00000000000000000000.log.deleted.swap", "00000000000000000000-0000000000.checkpoint.deleted"),
    "leader-epoch-checkpoint",
)


@pytest.mark.parametrize("name", OTHER_FILES)
def test_other_files_are_no_segment_files(name):
    assert parse_segment_file_name(name) is None


def test_a_number_above_the_largest_offset_is_no_segment_file():
    assert parse_segment_file_name("09223372036854775808.log") is None
    assert parse_segment_file_name("99999999999999999999.log") is None


@given(st.integers(0, MAX_OFFSET))
def test_segment_file_names_sort_as_their_offsets(offset):
    assert parse_segment_file_name(segment_file_name(offset, ".log")).base_offset == offset
    assert len(segment_file_name(offset, ".log")) == 24
