"""The table: for each function of the compiled module a target that calls it once with chance's arguments.

A target returns whether the compiled code did the work itself, and raises AssertionError where the plain code
says something else. A function that is not named here gets arguments of any type only (`any_arguments`), and
fails a test that asks for its row.
"""

from __future__ import annotations

import mmap
import operator
import pickle
import struct
from contextlib import contextmanager
from itertools import chain
from unittest.mock import patch

from logstore.build import compiled
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import LogstoreError
from logstore.format import batch, lookup, loops, partitioner, plain
from logstore.format.column_buffers import Chunk, Ended, FinishedBuffers, PayloadSlice, Wanted
from logstore.format.gathered import GatheredRows, record_bytes
from logstore.format.header import HEADER_BYTES, BatchHeader, decode_header
from logstore.format.index import OffsetPosition
from logstore.format.offset_map import PLAIN_KEY_BYTES, SEED_BYTES, OffsetMap, PlainTable, bytes_for
from logstore.format.run import IndexProgress, RunPlace, RunRules
from logstore.model import (
    Isolation,
    NewRecord,
    PlainRecord,
    TimestampType,
    TopicPartition,
    place_plain_records,
)
from logstore.partition.encoding.row_encoder import RowEncoder
from logstore.partition.encoding.rows import Columns, columns_of
from logstore.partition.reading import fetched, latest
from logstore.partition.reading import records as reading
from logstore.partition.reading.view import LogView
from tests.fuzz import junk
from tests.fuzz.chance import INT32_MAX, INT64_MAX
from tests.partition.helpers_wire import any_config, any_data, any_origin, assert_same
from tests.whole_records import whole

TARGETS = {}
COVERED = set()


def target(*functions):
    """Marks the target of these names of the compiled module."""

    def take(run):
        TARGETS[run.__name__] = run
        COVERED.update(functions)
        return run

    return take


def outcome(call, *arguments, **options):
    """What comes out, in a form that compares: the value, or the error with all that it says."""
    try:
        return call(*arguments, **options)
    except LogstoreError as error:
        return type(error).__name__, str(error)
    except (TypeError, ValueError, OverflowError, AttributeError, BufferError) as error:
        return type(error).__name__


def public_names(module):
    return {name for name in vars(module) if not name.startswith("_") and callable(getattr(module, name))}


@target()
def any_arguments(chance):
    """Any function, and any method of any type, with anything."""
    called = getattr(compiled, chance.choice(sorted(public_names(compiled))))
    call_with_junk(chance, called)
    if isinstance(called, type):
        made = NEW.get(called.__name__, lambda chance: call_with_junk(chance, called))(chance)
        for _ in range(chance.randrange(6)):
            method = getattr(made, chance.choice([name for name in dir(made) if name not in UNTOUCHED]), None)
            if callable(method):
                call_with_junk(chance, method)
        repr(made)
    return True


UNTOUCHED = {
    "__class__",
    "__new__",
    "__init_subclass__",
    "__subclasshook__",
    "__setattr__",
    "__delattr__",
    "timestamp",  # in Python, and refuses what no datetime can be
}
NEW = {
    "OffsetMap": lambda chance: compiled.OffsetMap(chance.choice((336, 700, 5000)), chance.randbytes(16)),
    "GatheredRows": lambda chance: compiled.GatheredRows(
        (0, False, 5, 5, 1000, chance.happens(0.5)), chance.choice((100, 1 << 40))
    ),
}
"""How to make an object of a type, where junk would hardly ever do it."""


def call_with_junk(chance, called):
    return call_with(called, *[junk.argument(chance) for _ in range(chance.randrange(12))])


def call_with(called, *arguments):
    try:
        return called(*arguments)
    except SystemError:  # a result with an error, or neither
        raise
    except (Exception, MemoryError):
        return None


@target("decode_records")
def decode_records(chance):
    section = chance.section()
    *where, last_delta = *section[:5], *section[6:], section.last_offset_delta
    on_demand = chance.happens(0.4)
    options = {
        "last_offset_delta": last_delta,
        "leader_epoch": leader_epoch(chance),
        "partition": place(chance),
    }
    ours = outcome(lambda: [*map(whole, loops.decode_records(*where, **options, on_demand=on_demand))])
    plains = outcome(lambda: [*map(whole, plain.decode_records(*where, **options))])
    assert ours == plains, (section, options, ours, plains)
    _, *source = options.values()
    return compiled.decode_records(*where, last_delta, on_demand, *source) is not None


def leader_epoch(chance):
    return chance.choice((-1, 0, 0, 5, (1 << 31) - 1, -(1 << 31)))


def place(chance):
    """Where records are said to be read."""
    return chance.choice(
        (None, TopicPartition("t", 0), TopicPartition(chance.choice("ab"), chance.randrange(2000)))
    )


@target("inspect_records")
def inspect_records(chance):
    section = chance.section()
    where = (section.buffer, section.position, section.end, section.count)
    numbers = (section.last_offset_delta, section.base_timestamp_ms)
    ours = outcome(loops.inspect_records, *where, *numbers)
    plains = outcome(plain.inspect_records, *where, *numbers)
    assert ours == plains, (section, ours, plains)
    return call_with(compiled.inspect_records, *where, *numbers) is not None


@target()
def produced_batch(chance):
    """A batch as a client may send it, for a topic of any kind: as record by record."""
    data, config, origin = any_data(chance), any_config(chance), any_origin(chance)
    found = assert_same(chance.exact(data), config, origin)
    return found is not None and not isinstance(found[0], type)


@target("keep_records")
def keep_records(chance):
    """Any section, and as many choices as it has records, or not."""
    section = chance.section()
    count = max(section.count, 0) if section.count < 10_000 else 3
    stays = bytes(chance.randrange(2) for _ in range(chance.near(count) if chance.happens(0.1) else count))
    where = (
        section.buffer,
        section.position,
        section.end,
        stays,
        section.base_timestamp_ms,
        chance.choice((0, 61)),
    )
    ours = outcome(loops.keep_records, *where)
    plains = outcome(plain.keep_records, *where)
    assert ours == plains, (section, stays, ours, plains)
    return call_with(compiled.keep_records, *where) is not None


@target("decode_batch")
def decode_batch(chance):
    data, _ = chance.batch(chance.choice((0, 100, chance.randrange(1 << 63))))
    before = chance.choice((0, 0, 5))
    position = chance.near(before) if chance.happens(0.1) else before
    buffer, on_demand = chance.exact(bytes(before) + data), chance.happens(0.4)
    partition = place(chance)
    ours = outcome(
        lambda: [*map(whole, batch.decode_batch(buffer, position, on_demand=on_demand, partition=partition))]
    )
    with patch.object(loops, "decode_batch", plain.decode_batch):
        plains = outcome(lambda: [*map(whole, batch.decode_batch(buffer, position, partition=partition))])
    assert ours == plains, (bytes(buffer), position, ours, plains)
    return compiled.decode_batch(buffer, position, on_demand, partition) is not None


@target("Record", "OnDemandRecord")
def records(chance):
    """Records and their operators: equal to the tuples of their fields, with anything on the other side."""
    keys, values, timestamps, headers, base_timestamp_ms, _ = chance.columns(2)
    data = plain.encode_records(keys, values, timestamps, headers, base_timestamp_ms)
    where = (data, 0, len(data), 2, chance.randrange(100), base_timestamp_ms, None)
    first, second = loops.decode_records(*where, on_demand=chance.happens(0.5))
    fields = tuple(first)
    assert first == fields
    assert hash(first) == hash(fields)
    assert pickle.loads(pickle.dumps(first)) == first
    other = chance.choice((first, second, fields, junk.argument(chance)))
    operate = chance.choice(
        (
            operator.eq,
            operator.lt,
            operator.ge,
            operator.add,
            operator.mul,
            operator.getitem,
            operator.contains,
        )
    )
    call_with(operate, first, other)
    call_with(operate, other, first)
    call_with_junk(
        chance, getattr(first, chance.choice([name for name in dir(first) if name not in UNTOUCHED]))
    )
    del data, first, second
    return True


@target("Record", "place_records")
def sources(chance):
    """What records say beside their fields: as the plain class, whatever they are told and whoever asks."""
    told = {name: chance.choice(ODD_SOURCES[name]) for name in ODD_SOURCES if chance.happens(0.6)}
    if chance.happens(0.1):
        told[chance.choice(sorted(ODD_SOURCES))] = junk.argument(chance)
    fields = (chance.randrange(100), 5, b"k", None)
    ours, plains = (
        outcome(lambda kind=kind: kind(*fields, **told)) for kind in (compiled.Record, PlainRecord)
    )
    if not isinstance(plains, PlainRecord):
        assert ours == plains, (told, ours, plains)
        return False
    assert whole(ours) == whole(plains), (told, whole(ours), whole(plains))
    assert whole(pickle.loads(pickle.dumps(ours))) == whole(pickle.loads(pickle.dumps(plains))) == whole(ours)
    assert whole(ours._replace(key=b"x")) == whole(plains._replace(key=b"x"))
    records = [compiled.Record(*fields, **told) for _ in range(chance.randrange(4))]
    partition, kind, epoch = place(chance), chance.choice((-1, 0, 1)), leader_epoch(chance)
    assert compiled.place_records(records, partition, kind, epoch) is records
    expected = place_plain_records([plains], partition, kind, epoch)[0]
    assert all(whole(record) == whole(expected) for record in records)
    call_with(compiled.place_records, records, *(junk.argument(chance) for _ in range(3)))
    return bool(told)


ODD_SOURCES = {
    "topic": ("t", "", None, b"t", 5),
    "partition": (0, 7, 1 << 30, None, True, -1, 1 << 31, 1 << 80, "0"),
    "timestamp_type": (-1, 0, 1, True, TimestampType.LOG_APPEND_TIME, 2, -2, 1 << 80, None, "1"),
    "leader_epoch": (0, 5, (1 << 31) - 1, None, False, -1, 1 << 31, 0.0),
}


@target("encode_records")
def encode_records(chance):
    columns = list(chance.columns())
    reserve_bytes = chance.choice((0, 0, 61))
    if chance.happens(0.4):
        spoil_column(chance, columns)
    ours = outcome(loops.encode_records, *columns, reserve_bytes=reserve_bytes)
    plains = outcome(plain.encode_records, *columns, reserve_bytes=reserve_bytes)
    assert ours == plains, (columns, ours, plains)
    return isinstance(ours, bytearray)


def spoil_column(chance, columns):
    """One column, or one item in it, becomes something else."""
    index = chance.randrange(len(columns))
    column = columns[index]
    if not isinstance(column, list) or chance.happens(0.2):
        columns[index] = chance.choice((None, 0, [], chance.number(), [chance.number()] * 3, "text"))
    elif chance.happens(0.3):
        columns[index] = chance.choice((tuple(column), column[:-1], [*column, None]))
    else:
        column[chance.randrange(len(column))] = chance.choice(
            (
                None,
                b"",
                "é",
                "\udc80",
                1,
                -2,
                chance.number(),
                bytearray(b"b"),
                memoryview(b"mm"),
                ((),),
                ((1, 2),),
            )
        )


def rows_to_append(chance):
    """Rows as users append them, mostly ordinary."""
    keys, values, timestamps, headers, _, _ = chance.columns()
    rows = []
    for number, (key, value) in enumerate(zip(keys, values, strict=True)):
        timestamp_ms = timestamps if isinstance(timestamps, int) else timestamps[number]
        named = headers[number] if headers else ()
        shapes = (value, (key, value), (key, value, timestamp_ms), (key, value, timestamp_ms, named))
        rows.append(chance.choice((*shapes[value is None :], NewRecord(value, key, named, timestamp_ms))))
    if chance.happens(0.3):
        rows[chance.randrange(len(rows))] = junk.argument(chance)
    if chance.happens(0.1):
        rows[0] = (b"k", junk.argument(chance), 5, (("h", junk.argument(chance)),))
    return chance.choice((list, tuple))(rows)


@target("encode_rows", "divide_rows", "partition_for_key")
def encode_rows(chance):
    rows = rows_to_append(chance)
    config = TopicConfig(
        message_timestamp_type=chance.choice(("CreateTime", "LogAppendTime")),
        cleanup_policy=chance.choice(("delete", "delete", "compact")),
        message_timestamp_after_max_ms=chance.choice((3_600_000, INT64_MAX)),
    )
    row_encoder = RowEncoder(StoreConfig(batch_bytes=chance.choice((1, 100, 300, 1 << 20))), config)
    now_ms = chance.choice((1_700_000_000_000, 0, -1, INT64_MAX))
    ours = loops.encode_rows(rows, now_ms, row_encoder.rules)
    if ours is not None:
        plains = outcome(row_encoder.encode_by_columns, rows, now_ms, None)
        assert ours == plains, (rows, config, now_ms, ours, plains)
    count = chance.choice((1, 2, 3, 50))
    divided = loops.divide_rows(rows, count)
    if divided is not None:
        assert sum(map(len, divided)) == len(rows)
        key = columns_of(rows, 0).keys[0]
        assert rows[0] in divided[partitioner.partition_for_key(key, count)]
    return ours is not None


@target("partitions_for_keys")
def partitions_for_keys(chance):
    is_large = chance.happens(0.5)
    ends = [0]
    for _ in range(chance.randrange(20)):
        ends.append(ends[-1] + chance.randrange(12))
    data = bytes(chance.randrange(256) for _ in range(ends[-1]))
    if chance.happens(0.3):
        ends[chance.randrange(len(ends))] = chance.choice((-1, 5, 1 << 20, INT32_MAX))
    packed = struct.pack(f"={len(ends)}{'q' if is_large else 'i'}", *ends)
    if chance.happens(0.2):
        packed = packed[: chance.randrange(len(packed))]
    offset = chance.choice((0, 0, 0, 1, -1, INT32_MAX, INT64_MAX))
    row_count = chance.choice((len(ends) - 1, len(ends) - 1, 0, len(ends), -1, INT64_MAX))
    arguments = (is_large, offset, row_count, packed, data, chance.choice((1, 2, 7, INT32_MAX, 0, INT64_MAX)))
    ours = loops.partitions_for_keys(*arguments)
    plains = partitioner.partitions_for_keys(*arguments)
    assert ours == plains, (arguments, ours, plains)
    return ours is not None


@contextmanager
def plainly():
    """Header and records of a batch are put together in Python."""
    with (
        patch.object(loops, "encode_batch", plain.encode_batch),
        patch.object(loops, "encode_records", plain.encode_records),
    ):
        yield


@target("encode_batch")
def encode_batch(chance):
    columns = list(chance.columns()[:4])
    if chance.happens(0.4):
        spoil_column(chance, columns)
    options = {
        "base_offset": chance.choice((0, 100, chance.number())),
        "partition_leader_epoch": chance.choice((-1, 0, 7, chance.number())),
        "producer_id": chance.choice((-1, 5, chance.number())),
        "producer_epoch": chance.choice((-1, 0, chance.number())),
        "base_sequence": chance.choice((-1, 0, chance.number())),
        "transactional": chance.happens(0.2),
    }
    if chance.happens(0.3):
        options["timestamp_type"] = TimestampType.LOG_APPEND_TIME
        options["append_time_ms"] = chance.choice((chance.timestamp_ms(), chance.number()))
    ours = outcome(batch.encode_batch, *columns, **options)
    with plainly():
        plains = outcome(batch.encode_batch, *columns, **options)
    assert ours == plains, (columns, options, ours, plains)
    return isinstance(ours, bytearray)


@target("GatheredRows")
def gathered_rows(chance):
    """The class and its plain twin, which is given whatever the class takes."""
    row_encoder = RowEncoder(StoreConfig(batch_bytes=chance.choice((100, 1 << 20))), TopicConfig())
    ours, plains = (
        kind(row_encoder.rules, row_encoder.max_record_bytes) for kind in (loops.GatheredRows, GatheredRows)
    )
    now_ms = 1_700_000_000_000
    for row in rows_to_append(chance):
        fields = columns_of([row], now_ms) if chance.happens(0.5) and is_right(row) else None
        if fields is None:
            ours.open_gate(chance.choice((0, INT64_MAX, 5)), chance.choice((now_ms, INT64_MAX)))
            call_with_junk(chance, chance.choice((ours.add, ours.gather)))
            ours.close_gate()
            ours.clear()
            plains.clear()
            continue
        headers = fields.headers[0] if fields.headers else ()
        timestamp_ms = fields.timestamps if isinstance(fields.timestamps, int) else fields.timestamps[0]
        key, value = fields.keys[0], fields.values[0]
        if ours.add(value, key, headers, timestamp_ms, now_ms) >= 0 or chance.happens(0.5):
            size_bytes = record_bytes(key, value, headers)
            plains.put((key, value, timestamp_ms, headers), size_bytes)
            if ours.row_count < plains.row_count:
                ours.put((key, value, timestamp_ms, headers), size_bytes)
        if chance.happens(0.2) and ours.row_count:
            ours.remove_last()
            plains.remove_last()
    assert (ours.rows, ours.size_bytes) == (plains.rows, plains.size_bytes)
    if not ours.row_count:
        return False
    found = outcome(row_encoder.encode_gathered, ours, now_ms)
    assert found == outcome(row_encoder.encode_gathered, plains, now_ms)
    return isinstance(found, list)


def is_right(row):
    return isinstance(outcome(columns_of, [row], 0), Columns)


def part_of(chance, data):
    """The bytes in a buffer, and from where to where to read it, not always right."""
    before = chance.randbytes(chance.choice((0, 0, 17)))
    position, end = len(before), len(before) + len(data)
    if chance.happens(0.1):
        end = chance.choice((chance.randrange(end + 1), end + 1, end + 100, INT64_MAX))
    if chance.happens(0.05):
        position = chance.choice((chance.randrange(position + len(data) + 1), position + len(data) + 1))
    return chance.exact(before + data), position, end


@target("index_run")
def index_run_and_walk(chance):
    """The run goes over nothing that the plain walk finds fault with, and ends where a batch does."""
    buffer, position, end = part_of(chance, chance.batches())
    wild = chance.happens(0.1)
    base_offset = chance.number() if wild else 0
    rules = RunRules(
        base_offset, chance.choice((-1, -1, 0, 100)), chance.choice((0, 7, -1)), chance.choice((0, 100, 4096))
    )
    place = RunPlace(chance.choice((0, base_offset, chance.number() if wild else 0)), 0, -1, -1)
    progress = IndexProgress(
        chance.choice((0, 50, 5000)),
        *chance.choice(
            ((-1, base_offset), (1_600_000_000_000, base_offset), (chance.number(), chance.number()))
        ),
        *(base_offset, chance.choice((0, 1, 1000)), chance.choice((0, 1, 1000))),
        *(-1, base_offset),
    )
    arguments = (chance.choice((0, 1000, chance.number() if wild else 0)), rules, place, progress)
    run = loops.index_run(buffer, position, end, *arguments)
    if run is None or run.stop == position:
        return False
    found, stop, fault = plain.scan_batches(buffer, position, run.stop, check=True)
    assert (stop, fault) == (run.stop, None), (bytes(buffer), position, end, arguments, run)
    assert run.place.end_offset == found[-1][1].next_offset
    assert len(run.offset_entries) // 8 <= progress.offset_room
    assert len(run.time_entries) // 12 <= progress.time_room
    return True


def records_of(found, buffer, start, stop, form=tuple, partition=None):
    """Of the batches that the plain walk found: records with offsets in [start, stop), no control records."""
    records = []
    for position, header in found:
        if not header.is_control:
            where = (buffer, position + HEADER_BYTES, position + header.size_bytes, header.record_count)
            is_append_time = header.timestamp_type is TimestampType.LOG_APPEND_TIME
            times = (header.base_timestamp_ms, header.max_timestamp_ms if is_append_time else None)
            source = {"leader_epoch": header.partition_leader_epoch, "partition": partition}
            records += plain.decode_records(*where, header.base_offset, *times, **source)
    return [form(record) for record in records if start <= record.offset < stop]


def offsets_in(chance, buffer, position):
    """Where a read of these batches may start and stop, and what offset came before."""
    found, _, _ = plain.scan_batches(buffer, position, len(buffer), check=False)
    first = found[0][1].base_offset if found else 0
    last = found[-1][1].last_offset if found else 0
    start = chance.choice((0, first, chance.near(first), chance.near(last)))
    stop = chance.choice((INT64_MAX, INT64_MAX, last + 1, chance.near(last), chance.number()))
    previous_last = chance.choice((-1, first - 1, first - 1, chance.near(first)))
    next_segment = chance.choice((INT64_MAX, INT64_MAX, last + 1, chance.near(last)))
    return [max(min(n, INT64_MAX), -INT64_MAX) for n in (start, stop, previous_last, next_segment)]


def check_walk(buffer, position, after, records, start, stop, *form):
    """These records are those of the batches from position to after, about which nothing is wrong. What is
    not wanted, batches below the start and records of the first and last batch, may have been passed over."""
    found, end, _ = plain.scan_batches(buffer, position, after, check=False)
    assert end == after, (bytes(buffer), position, after)
    found = [(at, header) for at, header in found if header.last_offset >= start]
    for at, header in found:
        batch.check_batch(buffer, at, header)
    expected = outcome(records_of, found, buffer, start, stop, *form)
    if not isinstance(expected, list):
        assert start > found[0][1].base_offset or stop <= found[-1][1].last_offset, expected
        return
    assert records == expected, (bytes(buffer), position, after, start, stop)


@target("read_run")
def read_run(chance):
    buffer, position, _ = part_of(chance, chance.batches())
    start, stop, previous_last, next_segment = offsets_in(chance, buffer, position)
    if position > len(buffer):
        return False
    limit_bytes = chance.choice((1, 300, 1 << 20))
    flags = (chance.happens(0.3), chance.happens(0.4))
    partition = place(chance)
    records, after, _, _ = loops.read_run(
        buffer, position, previous_last, next_segment, start, stop, limit_bytes, *flags, partition
    )
    check_walk(buffer, position, after, [*map(whole, records)], start, stop, whole, partition)
    return bool(records)


@target("find_record")
def find_record(chance):
    buffer, _, _ = part_of(chance, chance.batches())
    start, _, previous_last, next_segment = offsets_in(chance, buffer, 0)
    numbers = (previous_last, chance.choice((-1, -1, -1, start, chance.number())), next_segment, start)
    partition = place(chance)
    found = loops.find_record(
        buffer,
        chance.happens(0.5),
        *numbers,
        chance.happens(0.3),
        chance.choice((0, 100, 1 << 20)),
        partition,
    )
    if not isinstance(found, compiled.Record):
        return False
    # Batches in front are walked over, not checked; so the one with the record is looked for from any on.
    walked = plain.scan_batches(buffer, 0, len(buffer), check=False)[0]
    last = [item for item in walked if item[1].base_offset <= start <= item[1].last_offset][:1]
    expected = outcome(records_of, last, buffer, start, start + 1, whole, partition)
    if isinstance(expected, list):  # else another record of the batch is damaged, into which nobody looked
        assert [whole(found)] == expected, (bytes(buffer), numbers, found)
    return True


@target("find_in_section", "mark_records")
def find_in_section(chance):
    section = chance.section()
    offset = chance.near(section.base_offset) + chance.randrange(5)
    base = (section.base_offset, section.base_timestamp_ms, section.append_time_ms or 0)
    data = memoryview(section.buffer)
    data = bytes(data) if chance.happens(0.2) else chance.exact(bytes(data))
    step = chance.choice((1, 2, 7))
    marks, expected = (
        (
            m.mark_records(bytes(data) if m is lookup else data, section.position, section.count, step)
            for m in (loops, lookup)
        )
        if (all(-INT64_MAX <= n <= INT64_MAX for n in (section.position, section.count)))
        else (None, None)
    )
    assert marks == expected, (section, step, marks, expected)
    where = (section.position, 0, section.count, chance.happens(0.5))
    arguments = (data, *where, *base, section.append_time_ms is not None, offset)
    if not all(-INT64_MAX - 1 <= n <= INT64_MAX for n in arguments[1:]):
        return False
    arguments = (*arguments, leader_epoch(chance), place(chance))
    found = loops.find_in_section(*arguments)
    if found is not None:
        expected = lookup.find_in_section(bytes(data), *arguments[1:])
        assert (found and whole(found)) == (expected and whole(expected)), (
            arguments,
            bytes(data),
            found,
            expected,
        )
    return found is not None


@target("find_interval")
def find_interval(chance):
    count = chance.randrange(20)
    relatives = sorted(chance.sample(range(1000), count))
    entries = b"".join(struct.pack(">ii", relative, chance.randrange(10**6)) for relative in relatives)
    entries = chance.exact(chance.cut(entries) if chance.happens(0.3) else entries)
    wanted = chance.choice((chance.randrange(-1, 1001), chance.number()))
    ours, plains = (m.find_interval(entries, wanted) for m in (loops, lookup))
    assert ours == plains, (bytes(entries), wanted, ours, plains)
    return True


def column_of(buffers, count):
    """The payloads of a column; None where a bit says so."""
    if buffers is None:
        return [None] * count
    _, validity, ends, data = buffers
    ends, data = memoryview(ends).cast("B").cast("i"), bytes(data)
    present = [validity is None or bytes(validity)[row >> 3] >> (row & 7) & 1 for row in range(count)]
    return [data[ends[row] : ends[row + 1]] if present[row] else None for row in range(count)]


def rows_of(finished):
    """The rows of finished columns that had all fields."""
    count = finished.row_count
    offsets, timestamps = (memoryview(b).cast("B").cast("q")[:count] for b in finished[1:3])
    keys, values = column_of(finished.keys, count), column_of(finished.values, count)
    ends = memoryview(finished.header_ends).cast("B").cast("i")
    names = column_of(finished.header_keys, finished.header_count)
    pairs = list(
        zip((name.decode() for name in names), column_of(finished.header_values, len(names)), strict=True)
    )
    headers = [tuple(pairs[ends[row] : ends[row + 1]]) for row in range(count)]
    return list(zip(offsets, timestamps, keys, values, headers, strict=True))


@target("Columns")
def columns(chance):
    """Batches and sections into columns: the rows are those that plain code decodes."""
    wanted = Wanted(63) if chance.happens(0.7) else Wanted(chance.randrange(64))
    ours = loops.Columns(wanted)
    buffer, position, end = part_of(chance, chance.batches())
    end = min(end, len(buffer))
    position = min(position, end)
    start, stop, previous_last, next_segment = offsets_in(chance, buffer, position)
    segment_end = chance.choice((end, end, end + 100))
    limits = (chance.choice((1, 5, 1000)), chance.choice((1, 300, 1 << 20)), chance.happens(0.3))
    why, after, _ = ours.take_batches(
        buffer, position, end, segment_end, next_segment, previous_last, start, stop, *limits
    )
    assert why in tuple(Ended)
    row_count = ours.row_count
    section = chance.section()
    times = (section.base_timestamp_ms, section.append_time_ms is not None, section.append_time_ms or 0)
    arguments = (*section[:5], *times, section.last_offset_delta, 0, INT64_MAX)
    took = False
    if all(-INT32_MAX <= n <= INT32_MAX for n in (section.count, section.last_offset_delta)):
        took = ours.take_section(*arguments)
    ours.append_row(1, 2, b"k", None, (("h", b"v"),))
    finished = FinishedBuffers(*ours.finish())
    if wanted != 63:
        return row_count > 0
    rows = rows_of(finished)
    check_walk(buffer, position, after, rows[:row_count], start, stop)
    assert rows[-1] == (1, 2, b"k", None, (("h", b"v"),))
    if took:
        where = (*section[:5], section.base_timestamp_ms, section.append_time_ms)
        decoded = plain.decode_records(*where, last_offset_delta=section.last_offset_delta)
        assert rows[row_count:-1] == [tuple(record) for record in decoded if record.offset >= 0]
    return row_count > 0


def payload_slice(chance, column, may_be_large=True):
    """Payloads in Arrow's layout, behind some rows that are not of the slice."""
    offset = chance.choice((0, 0, 1, 9))
    rows = [b"x", None, b"yy"] * 3
    rows = [*rows[:offset], *column]
    ends = [0]
    for payload in rows:
        ends.append(ends[-1] + len(payload or b""))
    is_large = may_be_large and chance.happens(0.3)
    packed = struct.pack(f"<{len(ends)}{'q' if is_large else 'i'}", *ends)
    bits = [payload is not None for payload in rows]
    validity = None
    if not all(bits):
        validity = sum(bit << row for row, bit in enumerate(bits)).to_bytes(len(bits) // 8 + 1, "little")
        validity = chance.exact(validity)
    data = b"".join(payload or b"" for payload in rows)
    return PayloadSlice(is_large, offset, len(column), validity, chance.exact(packed), chance.exact(data))


def counts_slice(chance, headers):
    """The column of lists of headers, and all headers."""
    ends = [0]
    for pairs in headers:
        ends.append(ends[-1] + len(pairs))
    packed = chance.exact(struct.pack(f"<{len(ends)}i", *ends))
    return PayloadSlice(False, 0, len(headers), None, packed, None), [pair for row in headers for pair in row]


def chunk(chance, keys, values, timestamps, headers):
    lists = names = payloads = stamps = None
    if headers is not None:
        lists, pairs = counts_slice(chance, headers)
        names = payload_slice(chance, [name.encode() for name, _ in pairs], may_be_large=False)
        payloads = payload_slice(chance, [payload for _, payload in pairs], may_be_large=False)
    if timestamps is not None:
        stamps = (1, chance.exact(struct.pack(f"<{len(timestamps) + 1}q", 77, *timestamps)))
    slices = (payload_slice(chance, keys), payload_slice(chance, values))
    return Chunk(len(values), *slices, stamps, lists, names, payloads)


def spoiled_chunk(chance, chunk):
    """A chunk that says something wrong of itself somewhere."""
    fields = list(chunk)
    at = chance.randrange(len(fields))
    if isinstance(fields[at], tuple):
        parts = list(fields[at])
        part = chance.randrange(len(parts))
        if isinstance(parts[part], int) or parts[part] is None:
            parts[part] = chance.choice((chance.number(), None))
        else:
            data = bytes(parts[part])
            parts[part] = chance.exact(chance.cut(data) if chance.happens(0.5) else chance.mutated(data))
        fields[at] = tuple(parts) if chance.happens(0.9) else parts
    else:
        fields[at] = chance.choice((None, chance.number(), (), b""))
    return tuple(fields)


@target("encode_columns")
def encode_columns(chance):
    """Chunks of Arrow's buffers: the batches are those of the same rows as lists, if they are right."""
    keys, values, timestamps, headers, _, _ = chance.columns()
    timestamps = None if isinstance(timestamps, int) else timestamps
    cut = chance.randrange(len(values) + 1)
    chunks = [
        chunk(
            chance,
            *(None if column is None else column[part] for column in (keys, values, timestamps, headers)),
        )
        for part in (slice(0, cut), slice(cut, None))
    ]
    kind = chance.choice(("CreateTime", "LogAppendTime"))
    config = TopicConfig(message_timestamp_type=kind, message_timestamp_after_max_ms=INT64_MAX)
    row_encoder = RowEncoder(StoreConfig(batch_bytes=chance.choice((1, 100, 300, 1 << 20))), config)
    now_ms = chance.choice((1_700_000_000_000, 0))
    if chance.happens(0.5):
        spoiled = spoiled_chunk(chance, chunks[0])
        call_with(loops.encode_columns, [spoiled, chunks[1]], now_ms, row_encoder.rules)
    ours = loops.encode_columns(chunks, now_ms, row_encoder.rules)
    if ours is None:
        return False
    rows = Columns(keys, values, now_ms if timestamps is None else timestamps, headers)
    plains = outcome(row_encoder.encode_columns, rows, now_ms)
    assert list(map(bytes, ours)) == list(map(bytes, plains)), (rows, config, now_ms, ours, plains)
    return True


@target("crc32c", "crc32c_with")
def crc32c(chance):
    data = chance.exact(chance.randbytes(chance.choice((0, 1, 7, 8, 15, 63, 64, 65, chance.randrange(3000)))))
    seed = chance.choice((0, 0, 1, 0xFFFFFFFF, chance.randrange(1 << 32)))
    found = {compiled.crc32c_with(kernel, data, seed) for kernel in compiled.CRC32C_KERNELS}
    assert found == {compiled.crc32c(data, seed)}, (bytes(data), seed, found)
    return True


def walked(scan, *arguments, check):
    found, stop, fault = scan(*arguments, check=check)
    said = fault and (str(fault), fault.position, fault.base_offset, fault.last_offset)
    return [(position, tuple(header)) for position, header in found], stop, said


@target("scan_batches")
def scan_batches(chance):
    data = chance.batches()
    position, end = 0, len(data)
    if chance.happens(0.1):
        position, end = chance.choice(((abs(chance.near(0)), end), (0, chance.near(end)), (end, end)))
    arguments, check = (chance.exact(data), position, end), chance.happens(0.6)
    ours = outcome(walked, loops.scan_batches, *arguments, check=check)
    plains = outcome(walked, plain.scan_batches, *arguments, check=check)
    assert ours == plains, (bytes(data), position, end, check, ours, plains)
    return compiled.scan_batches(BatchHeader, *arguments, check)[1] > position


@target("index_run")
def index_run(chance):
    """Numbers of all kinds; what comes out fits together. That it is right, the tests of recovery say."""
    data = chance.batches()
    end = len(data)
    rules = RunRules(
        0, chance.choice((-1, 0, 50)), chance.choice((-1, 0, 9)), chance.choice((0, 0, 100, 4096))
    )
    place = RunPlace(0, -1, -1, -1)
    progress = IndexProgress(
        chance.randrange(5000), -1, 0, 0, chance.randrange(9), chance.randrange(9), -1, 0
    )
    file_position = chance.choice((0, chance.randrange(1 << 31), INT64_MAX - end, (1 << 31) - 100))
    if chance.happens(0.3):
        rules, place, progress = (spoiled(chance, numbers) for numbers in (rules, place, progress))
    position = chance.near(0) if chance.happens(0.1) else 0
    run = outcome(
        compiled.index_run, chance.exact(data), position, end, file_position, rules, (*place, *progress)
    )
    if run is None or isinstance(run, str):
        return False
    stop, numbers, offset_entries, time_entries = run
    assert position <= stop <= end
    found = IndexProgress._make(numbers[4:])
    assert len(offset_entries) == 8 * (progress[4] - found.offset_room)
    assert len(time_entries) == 12 * (progress[5] - found.time_room)
    assert len(time_entries) * 8 <= len(offset_entries) * 12
    return stop > position


def spoiled(chance, numbers):
    numbers = list(numbers)
    numbers[chance.randrange(len(numbers))] = chance.number()
    return tuple(numbers)


@target("load_pages")
def load_pages(chance):
    with mmap.mmap(-1, chance.choice((1, 4096, 10_000))) as mapped:
        position, end = (
            chance.choice((0, 1, 4095, chance.number())),
            chance.choice((len(mapped), chance.number())),
        )
        is_loaded = outcome(compiled.load_pages, mapped, position, end)
        assert is_loaded in (True, False, "OverflowError")
        return is_loaded is not True or 0 <= position <= end <= len(mapped)


@target("OffsetMap", "hash_key")
def offset_map(chance):
    """A map and its plain twin, with room for as many keys, through some calls each."""
    groups = chance.choice((1, 2, 3, 10))
    ours, plains = OffsetMap(bytes_for(14 * groups), chance.randbytes(16)), OffsetMap.__new__(OffsetMap)
    plains._table = PlainTable(ours.capacity * PLAIN_KEY_BYTES, bytes(16))
    took = False
    if chance.happens(0.5):  # hardly any room, so groups are full
        fillers = [b"filler %d" % number for number in range(ours.capacity - chance.randrange(4))]
        first = chance.number()
        found, expected = (outcome(m.put_keys, fillers, first) for m in (ours, plains))
        assert found == expected, (first, found, expected)
    for _ in range(chance.randrange(1, 6)):
        section = chance.section()
        arguments = section[:6]
        start_offset = chance.choice((0, section.base_offset, chance.near(section.base_offset) % INT64_MAX))
        for name, more in (("put_section", (start_offset,)), ("classify_section", ())):
            found, expected = (outcome(getattr(m, name), *arguments, *more) for m in (ours, plains))
            assert found == expected, (name, start_offset, found, expected, section)
            took |= not isinstance(found, tuple | str)
        assert (ours.count, ours.latest_offset) == (plains.count, plains.latest_offset)
        key = chance.key() or b""
        assert ours.get(key) == plains.get(key)
        keys, first = [chance.key() for _ in range(chance.randrange(5))], chance.number()
        found, expected = (outcome(m.put_keys, keys, first) for m in (ours, plains))
        assert found == expected, (keys, first, found, expected)
        if chance.happens(0.1):
            ours.clear()
            plains.clear()
    compiled.hash_key(key, bytes(16))
    return took


@target("find_record")
def find_record_or_not(chance):
    """The same answer as the plain twin, of any kind."""
    data = chance.batches()
    first = int.from_bytes(data[:8], "big", signed=True)
    previous = chance.choice((-1, first - 1, first - 1, first - 1, chance.near(first)))
    indexed = chance.choice((-1, -1, -1, -1, chance.near(first), first + 300))
    behind = chance.choice((-1, (1 << 63) - 1, (1 << 63) - 1, (1 << 63) - 1, chance.near(first)))
    wanted = first + chance.choice((0, 0, 1, 2, chance.randrange(-1, 90)))
    whole_bytes = chance.choice((1 << 20, 1 << 20, 0, 100))
    arguments = (chance.happens(0.1), previous, indexed, behind, wanted, chance.happens(0.3), whole_bytes)
    if any(not -(1 << 63) <= value < 1 << 63 for value in arguments):
        return call_with(compiled.find_record, data, *arguments) is not None
    arguments = (*arguments, place(chance))
    ours = outcome(compiled.find_record, chance.exact(data), *arguments)
    plains = outcome(lookup.find_record, data, *arguments)
    if isinstance(ours, compiled.Record) and isinstance(plains, compiled.Record):
        assert whole(ours) == whole(plains), (data, arguments, whole(ours), whole(plains))
    assert (ours, type(ours)) == (plains, type(plains)), (data, arguments, ours, plains)
    return ours is not None


class MemorySegment:
    """What a reader asks of a segment, over bytes."""

    def __init__(self, data, base_offset):
        self.data, self.base_offset, self.path = data, base_offset, "memory"
        self.number = 0
        self.size_bytes = len(data)
        self.offset_index = self
        self.directory = ""

    def read_at(self, position, size_bytes):
        return bytes(self.data[position : position + size_bytes])

    def lookup(self, offset):
        return OffsetPosition(self.base_offset, 0)

    def position_before(self, offset):
        found, _, _ = plain.scan_batches(self.data, 0, len(self.data), check=False)
        return max([at for at, header in found if header.base_offset <= offset], default=0)

    def header_at(self, position):
        try:
            return decode_header(self.data, position)
        except LogstoreError:
            return None

    def end_position(self, offset, end):
        return end

    def promises(self, offset):
        return False


@target("read_run")
def read_segment(chance):
    """All of a segment, in runs and batch by batch: the same records, and the same error behind them."""
    data = chance.batches()
    first = max(int.from_bytes(data[:8], "big", signed=True), 0) % (1 << 60)
    end = first + chance.choice((400, 1 << 61, chance.randrange(200)))
    segment = MemorySegment(data, chance.choice((first, 0)))
    view = LogView(
        (segment,), (segment.base_offset,), len(data), 0, end, end, end, end, partition=place(chance)
    )
    start = chance.choice((first, first, chance.near(first), first + chance.randrange(90)))
    stop = chance.choice((end, end, start + 1, start + chance.randrange(40), chance.near(start)))
    isolation, on_demand = Isolation.LOG_END, chance.happens(0.3)
    found = [[], []]
    for rows, run in zip(found, (reading.read_run, None), strict=True):
        with patch.object(reading, "read_run", run):
            lists = reading.record_lists(view, max(start, 0), stop, isolation, on_demand=on_demand)
            rows.append(outcome(lambda rows=rows, lists=lists: rows.extend(chain.from_iterable(lists))))
    ours, plains = (
        [whole(row) if isinstance(row, compiled.Record) else row for row in rows] for rows in found
    )
    assert ours == plains, (len(data), start, stop, end, ours[-2:], plains[-2:])
    numbers = [chance.number() for _ in range(8)]
    call_with(compiled.read_run, chance.exact(data), *numbers)
    arguments = (data, 0, -1, -1, 0, end, 1 << 20, 0, on_demand)
    call_with(compiled.read_run, *arguments, junk.argument(chance))
    records, *_ = compiled.read_run(*arguments)
    return bool(records)


@target("whole_run")
def fetch_of_a_segment(chance):
    """What a fetch takes in runs is what it takes batch by batch: the same bytes, and the same error."""
    data = chance.batches()
    first = max(int.from_bytes(data[:8], "big", signed=True), 0) % (1 << 60)
    end = first + chance.choice((400, 1 << 61, chance.randrange(200)))
    segment = MemorySegment(data, chance.choice((first, 0)))
    view = LogView((segment,), (segment.base_offset,), len(data), 0, end, end, end, end)
    start = max(chance.choice((first, chance.near(first), first + chance.randrange(90))), 0)
    limits = chance.choice((0, 300, 1 << 20, chance.randrange(len(data) + 2))), chance.happens(0.7)
    found = []
    for run in (fetched.whole_run, None):
        with patch.object(fetched, "whole_run", run):
            taken = outcome(fetched.fetch, view, start, limits[0], Isolation.LOG_END, min_one_batch=limits[1])
        found.append((bytes(taken.data), taken.next_offset) if isinstance(taken, fetched.Fetched) else taken)
    assert found[0] == found[1], (len(data), start, end, limits, found)
    call_with(compiled.whole_run, chance.exact(data), *[chance.number() for _ in range(7)])
    call_with(compiled.whole_run, data, 0, -1, -1, 0, end, 1 << 20, junk.argument(chance))
    taken_from, *_ = compiled.whole_run(data, 0, -1, -1, 0, end, 1 << 20, True)
    return taken_from >= 0


def no_newer_view(seen, error):
    raise error


@target("put_run", "latest_run")
def table_of_a_segment(chance):
    """The latest record of each key, in runs and batch by batch: the same records, and the same error."""
    data = chance.batches()
    first = max(int.from_bytes(data[:8], "big", signed=True), 0) % (1 << 60)
    end = first + chance.choice((400, 1 << 61, chance.randrange(200)))
    segment = MemorySegment(data, chance.choice((first, 0)))
    start = max(chance.choice((0, first, chance.near(first))), 0)
    partition, seed = TopicPartition("memory", 0), bytes(range(SEED_BYTES))
    offsets = (start, end, end, end, end)
    view = LogView((segment,), (segment.base_offset,), len(data), *offsets, partition=partition)
    table = latest.LatestView(
        partition, view, Isolation.LOG_END, 1 << 20, newer_view=no_newer_view, seed=seed
    )
    found = [[], []]
    for rows, run in zip(found, ((latest.put_run, latest.latest_run), (None, None)), strict=True):
        with patch.object(latest, "put_run", run[0]), patch.object(latest, "latest_run", run[1]):
            rows.append(outcome(lambda rows=rows: rows.extend(table)))
    ours, plains = (
        [whole(row) if isinstance(row, compiled.Record) else row for row in rows] for rows in found
    )
    assert ours == plains, (len(data), start, end, ours[-2:], plains[-2:])
    numbers = [chance.number() for _ in range(7)]
    maps = [
        compiled.OffsetMap(chance.choice((336, 5000)), bytes(16), 1, 3),
        compiled.OffsetMap(336, bytes(16)),
    ]
    call_with(compiled.put_run, chance.exact(data), *numbers, maps[0])
    call_with(compiled.latest_run, chance.exact(data), *numbers, maps)
    for offset_map in maps:
        compiled.put_run(data, 0, -1, -1, 0, end, 1 << 20, 0, offset_map)
    records, *_ = compiled.latest_run(data, 0, -1, -1, 0, end, 1 << 20, 0, maps)
    return bool(records)


@target("grow")
def memory_that_grows(chance):
    """What was there stays, and what is added can be written to its end; nothing gets smaller, nor any that
    somebody looks at."""
    memory = bytearray(chance.randbytes(chance.randrange(300)))
    before, size = bytes(memory), len(memory) + chance.choice((0, 1, chance.randrange(1 << 16)))
    compiled.grow(memory, size)
    assert len(memory) == size
    assert memory.startswith(before)
    memory[len(before) :] = bytes(size - len(before))
    assert bytes(memory) == before.ljust(size, b"\0")
    with memoryview(memory):
        assert outcome(compiled.grow, memory, size + 1) == "BufferError"
    assert outcome(compiled.grow, memory, size - 1) == "ValueError"
    call_with(compiled.grow, junk.argument(chance), chance.number())
    return True
