"""Layouts: one declaration gives sizes, positions, packing and the table in the documentation."""

import pytest

from logstore.format.layout import (
    BATCH_HEADER,
    LAYOUTS,
    LEGACY_HEADER,
    OFFSET_INDEX_ENTRY,
    SNAPSHOT_ENTRY,
    SNAPSHOT_HEADER,
    TIME_INDEX_ENTRY,
    TRANSACTION_INDEX_ENTRY,
    Field,
    Layout,
)


@pytest.mark.parametrize(
    ("layout", "size_bytes"),
    [
        (BATCH_HEADER, 61),
        (LEGACY_HEADER, 18),
        (OFFSET_INDEX_ENTRY, 8),
        (TIME_INDEX_ENTRY, 12),
        (TRANSACTION_INDEX_ENTRY, 34),
        (SNAPSHOT_HEADER, 10),
        (SNAPSHOT_ENTRY, 46),
    ],
    ids=lambda value: getattr(value, "name", value),
)
def test_sizes_are_those_of_the_formats(layout, size_bytes):
    assert layout.size_bytes == size_bytes


def test_every_layout_is_listed_once():
    names = [layout.name for layout in LAYOUTS]
    assert len(names) == len(set(names)) == 7


@pytest.mark.parametrize(
    ("name", "position"),
    [
        ("base_offset", 0),
        ("batch_length", 8),
        ("partition_leader_epoch", 12),
        ("magic", 16),
        ("crc", 17),
        ("attributes", 21),
        ("last_offset_delta", 23),
        ("base_timestamp", 27),
        ("max_timestamp", 35),
        ("producer_id", 43),
        ("producer_epoch", 51),
        ("base_sequence", 53),
        ("record_count", 57),
    ],
)
def test_batch_header_positions(name, position):
    assert BATCH_HEADER.position_of(name) == position


def test_position_of_an_unknown_field_is_a_key_error():
    with pytest.raises(KeyError, match="colour"):
        BATCH_HEADER.position_of("colour")


SMALL = Layout("small", Field("first", "int16", "a note"), Field("second_one", "uint32"))


def test_integers_are_big_endian_and_unpadded():
    assert SMALL.pack(-2, 0x01020304) == bytes.fromhex("fffe01020304")
    assert SMALL.unpack_from(b"\0" + bytes.fromhex("fffe01020304"), 1) == (-2, 0x01020304)
    assert list(SMALL.iter_unpack(bytes(12))) == [(0, 0), (0, 0)]


def test_crc_fields_are_unsigned():
    assert SNAPSHOT_HEADER.unpack(bytes.fromhex("0001ffffffff00000000")) == (1, 0xFFFFFFFF, 0)


def test_describe_is_a_markdown_table_with_positions():
    assert SMALL.describe().splitlines() == [
        "| At | Type | Field | Notes |",
        "|---|---|---|---|",
        "| 0 | int16 | first | a note |",
        "| 2 | uint32 | second one |  |",
    ]
