"""Columns that batches are read into: what they take by themselves, and where they stop."""

from __future__ import annotations

import pytest

from logstore.build import compiled
from logstore.format.batch import encode_batch
from logstore.format.column_buffers import Ended, FinishedBuffers, PlainColumns, Wanted
from logstore.format.compression import Codec
from logstore.model import Record, TimestampType

pytestmark = pytest.mark.skipif(compiled is None, reason="needs the compiled module")

FAR = 1 << 40
ALL = sum(Wanted)


def batch_at(base_offset, count=4, **options):
    return bytes(
        encode_batch(
            [b"k%d" % i for i in range(count)],
            [b"value"] * count,
            range(100, 100 + count),
            [(("h", b"x"),)] * count,
            base_offset=base_offset,
            **options,
        )
    )


def take(columns, buffer, *, start=0, stop=FAR, rows=1000, size=1 << 20, previous_last=-1, watched=False):
    ended, position, last = columns.take_batches(
        buffer, 0, len(buffer), len(buffer), FAR, previous_last, start, stop, rows, size, watched
    )
    return Ended(ended), position, last


def test_ordinary_batches_are_taken_whole():
    columns, buffer = compiled.Columns(ALL), batch_at(0) + batch_at(4) + batch_at(10)
    assert take(columns, buffer) == (Ended.NEEDS_MORE, len(buffer), 13)
    assert columns.row_count == 12


def test_plain_columns_leave_every_batch_to_their_caller():
    assert take(PlainColumns(ALL), batch_at(0)) == (Ended.IS_ODD, 0, -1)


def test_a_batch_that_is_not_whole_or_whose_neighbour_is_not_seen_waits():
    whole, columns = batch_at(0), compiled.Columns(ALL)
    for cut in range(len(whole)):
        assert take(columns, whole[:cut]) == (Ended.NEEDS_MORE, 0, -1), cut
    at = (0, len(whole), len(whole) + 100, FAR, -1, 0, FAR, 9, 9, False)
    assert columns.take_batches(whole, *at)[0] == Ended.NEEDS_MORE
    assert columns.row_count == 0


@pytest.mark.parametrize("limit", [{"rows": 7}, {"size": 300}])
def test_a_batch_that_may_pass_a_limit_waits(limit):
    columns, buffer = compiled.Columns(ALL), batch_at(0) + batch_at(4)
    assert take(columns, buffer, **limit) == (Ended.IS_FULL, len(batch_at(0)), 3)
    assert columns.row_count == 4


def test_the_first_batch_is_taken_though_it_passes_a_limit():
    columns = compiled.Columns(ALL)
    assert take(columns, batch_at(0), rows=1, size=1)[0] is Ended.NEEDS_MORE
    assert columns.row_count == 4


def test_what_is_past_the_stop_is_not_looked_at():
    columns, damaged = compiled.Columns(ALL), bytearray(batch_at(4))
    damaged[-1] ^= 1
    assert take(columns, batch_at(0) + damaged, stop=4) == (Ended.IS_DONE, len(batch_at(0)), 3)


ODD = {
    "compressed": batch_at(0, codec=Codec.GZIP),
    "of an old magic": batch_at(0)[:16] + b"\x01" + batch_at(0)[17:],
    "damaged": batch_at(0)[:-1] + b"\xff",
    "not in its place": batch_at(4) + batch_at(2),
    "below what was before": batch_at(0),
}


@pytest.mark.parametrize("name", ODD)
def test_a_batch_out_of_the_ordinary_is_left(name):
    columns = compiled.Columns(ALL)
    previous_last = 0 if name == "below what was before" else -1
    found = take(columns, ODD[name], previous_last=previous_last)
    assert found == (Ended.IS_ODD, 0, previous_last)
    assert columns.row_count == 0


def test_a_transactional_batch_is_odd_where_it_matters():
    buffer = batch_at(0, transactional=True)
    assert take(compiled.Columns(ALL), buffer, watched=True)[0] is Ended.IS_ODD
    assert take(compiled.Columns(ALL), buffer)[0] is Ended.NEEDS_MORE


@pytest.mark.parametrize("wanted", [*Wanted, Wanted(0), Wanted.KEY | Wanted.HEADERS])
def test_what_is_not_wanted_has_no_memory(wanted):
    columns = compiled.Columns(wanted)
    take(columns, batch_at(0))
    finished = FinishedBuffers._make(columns.finish())
    assert finished.row_count == 4
    found = {
        Wanted.OFFSET: finished.offsets,
        Wanted.TIMESTAMP: finished.timestamps,
        Wanted.KEY: finished.keys,
        Wanted.VALUE: finished.values,
        Wanted.HEADERS: finished.header_keys,
        Wanted.TIMESTAMP_TYPE: finished.timestamp_types,
    }
    assert {field for field, buffers in found.items() if buffers is not None} == set(Wanted(wanted))


def as_bytes(finished):
    """Buffers that can be compared."""
    return [payloads_as_bytes(*part) if isinstance(part, tuple) else plain_part(part) for part in finished]


def plain_part(part):
    return part if part is None or isinstance(part, int) else bytes(part)


def payloads_as_bytes(null_count, validity, ends, data):
    """The bits behind the last row may be anything."""
    rows = len(memoryview(ends).cast("B")) // 4 - 1
    bits = None if validity is None else int.from_bytes(bytes(validity), "little") & ((1 << rows) - 1)
    return null_count, bits, bytes(ends), bytes(data)


def test_used_bytes_are_those_of_plain_columns():
    rows = [(i, i, b"k" * i, None, (("é", b"x" * i),) * (i % 3)) for i in range(20)]
    for wanted in (*Wanted, Wanted(ALL)):
        ours, plain = compiled.Columns(wanted), PlainColumns(wanted)
        for row in rows:
            ours.append_row(*row)
            plain.append_row(*row)
        assert ours.used_bytes == plain.used_bytes


def test_each_row_has_the_type_of_its_batchs_timestamps():
    columns = compiled.Columns(Wanted.TIMESTAMP_TYPE | Wanted.HEADERS)
    stamped = {"append_time_ms": 7, "timestamp_type": TimestampType.LOG_APPEND_TIME}
    batches = batch_at(0, **stamped) + batch_at(4) + batch_at(8, **stamped)
    take(columns, batches, start=3, stop=10)
    columns.append_row(20, 0, None, None, (), -1)
    types = memoryview(FinishedBuffers._make(columns.finish()).timestamp_types).cast("B").cast("i")
    assert list(types) == [1, 0, 0, 0, 0, 1, 1, -1]
    columns.append_row(21, 0, None, None, (), 1)
    assert list(memoryview(columns.finish()[-1]).cast("B").cast("i")) == [1]


def test_records_are_appended_as_their_fields_are():
    rows = [Record(i, i, b"k" * i if i % 2 else None, b"v", (("é", b"x" * i),) * (i % 3)) for i in range(20)]
    by_field, at_once, plain = compiled.Columns(ALL), compiled.Columns(ALL), PlainColumns(ALL)
    for row in rows:
        by_field.append_row(*row)
    at_once.append_records(rows)
    plain.append_records(rows)
    assert at_once.used_bytes == by_field.used_bytes == plain.used_bytes
    expected = as_bytes(by_field.finish())
    assert as_bytes(at_once.finish()) == expected
    assert as_bytes(plain.finish()) == expected


@pytest.mark.parametrize("wanted", [*Wanted, Wanted(0), Wanted.KEY | Wanted.HEADERS, ALL])
@pytest.mark.parametrize("row_count", [0, 1, 9])
def test_plain_columns_give_the_same_buffers(wanted, row_count):
    ours, plain = compiled.Columns(wanted), PlainColumns(wanted)
    for columns in (ours, plain):
        for row in range(row_count):
            headers = (("é", b"x"), ("", None)) * (row % 3)
            columns.append_row(row, row * 1000, None if row % 4 else b"k", b"", headers, row % 2)
    assert as_bytes(ours.finish()) == as_bytes(plain.finish())
    assert plain.row_count == 0


@pytest.mark.parametrize("wrong", [(Record(0, 0, None, None),), [(0, 0, None, None, ())], [None], None])
def test_what_is_no_list_of_records_is_refused(wrong):
    columns = compiled.Columns(ALL)
    with pytest.raises(TypeError, match="list of records"):
        columns.append_records(wrong)
    assert columns.row_count == 0


def test_memory_is_used_again_and_old_nulls_are_forgotten():
    columns = compiled.Columns(Wanted.VALUE)
    for round_ in range(4):
        for row in range(50):
            columns.append_row(row, 0, None, None if (row + round_) % 4 == 0 else b"v", ())
        null_count, validity, *_ = columns.finish()[4]
        bits = int.from_bytes(bytes(validity), "little")
        assert [bits >> row & 1 for row in range(50)] == [(row + round_) % 4 != 0 for row in range(50)]
        assert null_count == sum((row + round_) % 4 == 0 for row in range(50))
        del validity, _


@pytest.mark.parametrize("then", [ALL, Wanted.VALUE])
def test_columns_that_are_gone_leave_their_memory_but_no_rows(then):
    first = compiled.Columns(ALL)
    first.append_row(0, 1, None, None, (("h", None),))
    first.finish()
    first.append_row(1, 2, b"key", None, ())  # and is never finished
    del first
    columns = compiled.Columns(then)
    assert (columns.row_count, columns.used_bytes) == (0, 0)
    columns.append_row(7, 8, b"k", b"v", ())
    null_count, validity, ends, data = FinishedBuffers._make(columns.finish()).values
    assert (null_count, validity, list(memoryview(ends).cast("i")), bytes(data)) == (0, None, [0, 1], b"v")


def test_buffers_that_are_held_are_not_used_again():
    columns, held = compiled.Columns(Wanted.VALUE), []
    for letter in b"abcdef":
        columns.append_row(0, 0, None, bytes([letter]) * 100, ())
        held.append(columns.finish()[4])
    del columns
    assert [bytes(data) for *_, data in held] == [bytes([letter]) * 100 for letter in b"abcdef"]
