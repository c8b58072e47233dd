"""The three indexes: entries, searches, truncation counts, and what is damage."""

import mmap
import pickle
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import CorruptionError, LogstoreError, UnsupportedVersionError, UsageError
from logstore.format.index import (
    MAX_POSITION,
    MAX_RELATIVE_OFFSET,
    AbortedTransactions,
    OffsetPosition,
    TimestampOffset,
    check_offset_index,
    check_time_index,
    count_entries_below_offset,
    decode_aborted_transactions,
    encode_aborted_transaction,
    encode_offset_entry,
    encode_time_entry,
    find_offset,
    find_offset_upper_bound,
    find_timestamp,
    offset_entry,
    time_entry,
)
from logstore.format.layout import TIME_INDEX_ENTRY
from logstore.model import AbortedTransaction

from . import file_vectors as vectors

BASE = 100
OFFSETS = [(110, 40), (120, 90), (150, 200)]
TIMES = [(1000, 105), (2000, 120), (3000, 120)]


def offset_index(*entries, base=BASE):
    return b"".join(encode_offset_entry(base, offset, position) for offset, position in entries)


def time_index(*entries, base=BASE):
    return b"".join(encode_time_entry(base, timestamp_ms, offset) for timestamp_ms, offset in entries)


INDEX = offset_index(*OFFSETS)
TIME_INDEX = time_index(*TIMES)


def test_offset_entry_golden_bytes_both_ways():
    assert encode_offset_entry(vectors.BASE_OFFSET, *vectors.OFFSET_ENTRY_VALUE) == vectors.OFFSET_ENTRY
    assert offset_entry(vectors.OFFSET_ENTRY, 0, vectors.BASE_OFFSET) == vectors.OFFSET_ENTRY_VALUE


def test_time_entry_golden_bytes_both_ways():
    assert encode_time_entry(vectors.BASE_OFFSET, *vectors.TIME_ENTRY_VALUE) == vectors.TIME_ENTRY
    assert time_entry(vectors.TIME_ENTRY, 0, vectors.BASE_OFFSET) == vectors.TIME_ENTRY_VALUE


@pytest.mark.parametrize("offset", [BASE - 1, BASE + MAX_RELATIVE_OFFSET + 1])
def test_relative_offset_outside_int32_is_refused(offset):
    with pytest.raises(UsageError, match="does not fit"):
        encode_offset_entry(BASE, offset, 0)
    with pytest.raises(UsageError, match="does not fit"):
        encode_time_entry(BASE, 0, offset)


@pytest.mark.parametrize("position", [-1, MAX_POSITION + 1])
def test_position_outside_int32_is_refused(position):
    with pytest.raises(UsageError, match="position"):
        encode_offset_entry(BASE, BASE, position)


def test_largest_relative_offset_and_position_fit():
    entry = encode_offset_entry(BASE, BASE + MAX_RELATIVE_OFFSET, MAX_POSITION)
    assert offset_entry(entry, 0, BASE) == (BASE + MAX_RELATIVE_OFFSET, MAX_POSITION)


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        (0, (BASE, 0)),
        (109, (BASE, 0)),
        (110, (110, 40)),
        (119, (110, 40)),
        (149, (120, 90)),
        (10**12, (150, 200)),
    ],
)
def test_lookup_finds_the_largest_offset_at_or_below(target, expected):
    assert find_offset(INDEX, 3, BASE, target) == OffsetPosition(*expected)


def test_lookup_in_an_empty_index_is_the_base():
    assert find_offset(b"", 0, BASE, 500) == OffsetPosition(BASE, 0)
    assert find_timestamp(b"", 0, BASE, 500) == TimestampOffset(-1, BASE)


def test_lookup_ignores_bytes_behind_the_entry_count():
    assert find_offset(INDEX, 2, BASE, 500) == OffsetPosition(120, 90)


@pytest.mark.parametrize(
    ("start", "size_bytes", "expected"),
    [
        ((BASE, 0), 40, (110, 40)),
        ((BASE, 0), 41, (120, 90)),
        ((110, 40), 160, (150, 200)),
        ((110, 40), 161, None),
    ],
)
def test_fetch_upper_bound_is_the_first_entry_at_or_past_the_end(start, size_bytes, expected):
    assert find_offset_upper_bound(INDEX, 3, BASE, OffsetPosition(*start), size_bytes) == expected


def test_fetch_upper_bound_of_an_empty_index_is_none():
    assert find_offset_upper_bound(b"", 0, BASE, OffsetPosition(BASE, 0), 0) is None


@pytest.mark.parametrize(
    ("timestamp_ms", "expected"),
    [(999, (-1, BASE)), (1000, (1000, 105)), (2999, (2000, 120)), (2**63 - 1, (3000, 120))],
)
def test_time_lookup_finds_the_largest_timestamp_at_or_below(timestamp_ms, expected):
    assert find_timestamp(TIME_INDEX, 3, BASE, timestamp_ms) == TimestampOffset(*expected)


@pytest.mark.parametrize(("offset", "kept"), [(0, 0), (110, 0), (111, 1), (150, 2), (151, 3)])
def test_truncate_to_drops_offset_entries_at_or_above(offset, kept):
    assert count_entries_below_offset(INDEX, 3, BASE, offset) == kept


@pytest.mark.parametrize(("offset", "kept"), [(0, 0), (105, 0), (106, 1), (120, 1), (121, 3)])
def test_truncate_to_drops_time_entries_at_or_above(offset, kept):
    assert count_entries_below_offset(TIME_INDEX, 3, BASE, offset, TIME_INDEX_ENTRY) == kept


def test_searches_work_on_a_mapped_file(tmp_path):
    path = tmp_path / "index"
    path.write_bytes(INDEX)
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        assert find_offset(mapped, 3, BASE, 119) == (110, 40)
        assert find_offset(memoryview(mapped)[8:], 2, BASE, 149) == (120, 90)
        check_offset_index(mapped, len(mapped), BASE)


def test_a_failed_check_does_not_keep_a_mapped_file_open(tmp_path):
    path = tmp_path / "index"
    path.write_bytes(offset_index((120, 90), (110, 40)))
    with path.open("rb") as file:
        mapped = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)
    with pytest.raises(CorruptionError):
        check_offset_index(mapped, len(mapped), BASE)
    mapped.close()  # BufferError if anything still looked into it


rising = st.lists(st.integers(0, 2**31 - 1), unique=True, max_size=40).map(sorted)


@given(rising, rising, st.integers(-5, 2**31 + 5))
def test_searches_equal_a_linear_scan(relatives, positions, target):
    entries = [(relative + BASE, position) for relative, position in zip(relatives, positions, strict=False)]
    index = offset_index(*entries)
    check_offset_index(index, len(index), BASE)
    at_or_below = [entry for entry in entries if entry[0] <= target]
    past = [entry for entry in entries if entry[1] >= target]
    assert find_offset(index, len(entries), BASE, target) == (at_or_below[-1] if at_or_below else (BASE, 0))
    assert find_offset_upper_bound(index, len(entries), BASE, OffsetPosition(BASE, 5), target - 5) == (
        past[0] if past else None
    )
    kept = count_entries_below_offset(index, len(entries), BASE, target)
    assert kept == sum(1 for entry in entries if entry[0] < target)


@given(rising, rising, st.integers(-5, 2**31 + 5))
def test_time_searches_equal_a_linear_scan(times, relatives, target):
    entries = [(time, relative + BASE) for time, relative in zip(times, relatives, strict=False)]
    index = time_index(*entries)
    check_time_index(index, len(index), BASE)
    at_or_below = [entry for entry in entries if entry[0] <= target]
    assert find_timestamp(index, len(entries), BASE, target) == (
        at_or_below[-1] if at_or_below else (-1, BASE)
    )


@given(st.binary(max_size=80), st.integers(0, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_searches_in_hostile_bytes_always_answer(buffer, base, target):
    find_offset(buffer, len(buffer) // 8, base, target)
    find_offset_upper_bound(buffer, len(buffer) // 8, base, OffsetPosition(base, 0), target)
    find_timestamp(buffer, len(buffer) // 12, base, target)
    count_entries_below_offset(buffer, len(buffer) // 8, base, target)


@pytest.mark.parametrize("check", [check_offset_index, check_time_index])
def test_sanity_an_empty_index_is_good(check):
    check(b"", 0, BASE)


@pytest.mark.parametrize("size_bytes", [1, 7, 9, 23])
def test_sanity_offset_index_must_be_whole_entries(size_bytes):
    with pytest.raises(CorruptionError, match="whole entries") as caught:
        check_offset_index(INDEX, size_bytes, BASE)
    assert caught.value.position == size_bytes // 8 * 8


@pytest.mark.parametrize("size_bytes", [1, 11, 13])
def test_sanity_time_index_must_be_whole_entries(size_bytes):
    with pytest.raises(CorruptionError, match="whole entries"):
        check_time_index(TIME_INDEX, size_bytes, BASE)


def test_sanity_more_entries_than_bytes_is_damage():
    with pytest.raises(CorruptionError):
        check_offset_index(INDEX, 32, BASE)


def test_sanity_looks_at_the_stated_size_only():
    check_offset_index(INDEX + bytes(16), 24, BASE)


@pytest.mark.parametrize(
    "entries",
    [[(-1, 5)], [(5, 5), (4, 9)], [(5, 5), (5, 9)], [(5, 5), (9, 5)], [(5, -1)], [(5, 5), (0, 0)]],
    ids=["below base", "falling", "equal", "same position", "negative position", "zeros behind"],
)
def test_sanity_offset_entries_must_rise_from_the_base(entries):
    index = b"".join(struct.pack(">ii", *entry) for entry in entries)
    with pytest.raises(CorruptionError) as caught:
        check_offset_index(index, len(index), BASE)
    assert caught.value.position == len(index) - 8
    assert caught.value.base_offset == BASE


def test_sanity_the_first_offset_may_be_the_base():
    check_offset_index(offset_index((BASE, 0)), 8, BASE)


@pytest.mark.parametrize(
    "entries",
    [[(5, -1)], [(5, 5), (4, 6)], [(5, 5), (5, 6)], [(5, 5), (6, 4)], [(-1, 0)], [(5, 5), (0, 0)]],
    ids=["below base", "time falls", "time equal", "offset falls", "no timestamp", "zeros behind"],
)
def test_sanity_time_entries_must_rise(entries):
    index = b"".join(struct.pack(">qi", *entry) for entry in entries)
    with pytest.raises(CorruptionError) as caught:
        check_time_index(index, len(index), BASE)
    assert caught.value.position == len(index) - 12


def test_sanity_reports_the_position_in_a_later_piece():
    good = [(relative, relative * 10) for relative in range(1, 10_000)]
    index = b"".join(struct.pack(">ii", *entry) for entry in [*good, (3, 10**6)])
    with pytest.raises(CorruptionError) as caught:
        check_offset_index(index, len(index), BASE)
    assert caught.value.position == len(good) * 8


@given(st.binary(max_size=120), st.integers(0, 130))
def test_hostile_indexes_raise_only_our_errors(buffer, size_bytes):
    for check in (check_offset_index, check_time_index):
        try:
            check(buffer, size_bytes, BASE)
        except LogstoreError:
            continue


# The transaction index


def aborted(first, last, stable=None, producer_id=1):
    return AbortedTransaction(producer_id, first, last, last + 1 if stable is None else stable)


def transaction_index(*entries):
    return b"".join(map(encode_aborted_transaction, entries))


def test_aborted_transaction_golden_bytes_both_ways():
    assert encode_aborted_transaction(vectors.ABORTED_TRANSACTION) == vectors.ABORTED
    assert decode_aborted_transactions(vectors.ABORTED, 0) == (vectors.ABORTED_TRANSACTION,)


@given(st.lists(st.integers(0, 2**62), unique=True, max_size=10), st.integers(0, 2**63 - 1))
def test_transaction_index_round_trip(markers, producer_id):
    entries = [aborted(marker // 2, marker, producer_id=producer_id) for marker in sorted(markers)]
    assert decode_aborted_transactions(transaction_index(*entries), 0) == tuple(entries)


def test_sanity_a_version_above_0_is_unsupported():
    with pytest.raises(UnsupportedVersionError, match="version 1"):
        decode_aborted_transactions(b"\0\1" + vectors.ABORTED[2:], 0)


def test_sanity_a_negative_version_is_damage():
    with pytest.raises(CorruptionError, match="version -1"):
        decode_aborted_transactions(b"\xff\xff" + vectors.ABORTED[2:], 0)


def test_sanity_a_marker_below_the_segment_base_is_damage():
    assert decode_aborted_transactions(vectors.ABORTED, 7)
    with pytest.raises(CorruptionError) as caught:
        decode_aborted_transactions(vectors.ABORTED, 8)
    assert caught.value.position == 0


@pytest.mark.parametrize("second", [aborted(1, 7), aborted(1, 6), aborted(10, 9)])
def test_sanity_markers_must_rise_and_follow_their_transaction(second):
    with pytest.raises(CorruptionError) as caught:
        decode_aborted_transactions(transaction_index(aborted(5, 7), second), 0)
    assert caught.value.position == 34


def test_sanity_a_torn_last_entry_is_damage_where_it_begins():
    with pytest.raises(CorruptionError) as caught:
        decode_aborted_transactions(vectors.ABORTED + vectors.ABORTED[:33], 0)
    assert caught.value.position == 34


@settings(max_examples=200)
@given(st.data())
def test_hostile_transaction_indexes_raise_only_our_errors(data):
    buffer = bytearray(transaction_index(*[aborted(n, n + 3) for n in range(4)]))
    for _ in range(data.draw(st.integers(1, 4))):
        buffer[data.draw(st.integers(0, len(buffer) - 1))] = data.draw(st.integers(0, 255))
    try:
        entries = decode_aborted_transactions(buffer[: data.draw(st.integers(0, len(buffer)))], 0)
    except LogstoreError:
        return
    assert transaction_index(*entries) == buffer[: len(entries) * 34]


LIST = AbortedTransactions(
    [aborted(10, 20, stable=15), aborted(15, 30, stable=31), aborted(40, 50, stable=51)]
)


@pytest.mark.parametrize(
    ("fetch_offset", "upper_bound", "expected", "complete"),
    [
        (0, 10, (), True),  # begins at the bound
        (0, 11, LIST[:1], True),
        (20, 16, LIST[:2], True),  # the marker itself is still read
        (21, 31, LIST[1:2], True),  # ended before the fetch
        (21, 32, LIST[1:2], True),
        (31, 100, LIST[2:], False),
        (51, 100, (), False),
        (0, 100, LIST, False),
    ],
)
def test_a_search_takes_overlapping_entries_until_the_stable_offset_passes_the_bound(
    fetch_offset, upper_bound, expected, complete
):
    assert LIST.overlapping(fetch_offset, upper_bound) == (expected, complete)


def test_a_search_stops_at_the_entry_whose_stable_offset_reaches_the_bound():
    early_stop = AbortedTransactions([aborted(10, 20, stable=21), aborted(12, 30, stable=31)])
    assert early_stop.overlapping(0, 21) == (early_stop[:1], True)


def test_a_search_in_nothing_is_incomplete():
    assert AbortedTransactions().overlapping(0, 10) == ((), False)


@pytest.mark.parametrize(("offset", "kept"), [(0, 0), (20, 0), (21, 1), (50, 2), (51, 3)])
def test_below_an_offset_are_those_whose_markers_are(offset, kept):
    assert LIST.below(offset) == LIST[:kept]


def test_a_list_is_of_one_kind_wherever_it_comes_from():
    made = [LIST.below(31), LIST.overlapping(0, 20)[0], LIST.joined([]), pickle.loads(pickle.dumps(LIST))]
    assert {type(each) for each in made} == {AbortedTransactions}
    assert AbortedTransactions(LIST[:1]).joined(LIST[1:]) == made[-1] == LIST


@pytest.mark.parametrize("wrong", [aborted(41, 50), aborted(45, 49), aborted(60, 59)])
def test_a_list_out_of_order_cannot_be_made(wrong):
    for make in (LIST.joined, lambda entries: AbortedTransactions([*LIST, *entries])):
        with pytest.raises(CorruptionError, match="after offset 50"):
            make([wrong])
