"""The table: for each function of the compiled module a target that calls it once with chance's arguments.

A target returns whether the compiled code did the work itself, and raises AssertionError where the plain code
says something else. A function that is not named here gets arguments of any type only (`any_arguments`), and
fails a test that asks for its row.
"""

from __future__ import annotations

import mmap
import operator
import pickle

from logstore.build import compiled
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import LogstoreError
from logstore.format import loops, partitioner, plain
from logstore.format.gathered import GatheredRows, record_bytes
from logstore.format.header import BatchHeader
from logstore.format.offset_map import PLAIN_KEY_BYTES, OffsetMap, PlainTable
from logstore.format.run import IndexProgress, RunPlace, RunRules
from logstore.model import NewRecord
from logstore.partition.columns import Columns, columns_of
from logstore.partition.encoding import RowEncoder
from tests.fuzz import junk
from tests.fuzz.chance import INT64_MAX

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


UNTOUCHED = {"__class__", "__new__", "__init_subclass__", "__subclasshook__", "__setattr__", "__delattr__"}
NEW = {
    "OffsetMap": lambda chance: compiled.OffsetMap(chance.choice((48, 100, 5000)), chance.randbytes(16)),
    "GatheredRows": lambda chance: compiled.GatheredRows(
        (0, False, 5, 5, 1000), chance.choice((100, 1 << 40))
    ),
}
"""How to make an object of a type, where junk would hardly ever do it."""


def call_with_junk(chance, called):
    return call_with(called, *(junk.argument(chance) for _ in range(chance.randrange(12))))


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
    ours = outcome(
        lambda: [*map(tuple, loops.decode_records(*where, last_offset_delta=last_delta, on_demand=on_demand))]
    )
    plains = outcome(lambda: [*map(tuple, plain.decode_records(*where, last_offset_delta=last_delta))])
    assert ours == plains, (section, ours, plains)
    return compiled.decode_records(*where, last_delta, on_demand) is not None


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
            call_with_junk(chance, ours.add)
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
    slots = chance.choice((2, 3, 10, 30, 200))
    ours, plains = OffsetMap(slots * 24, chance.randbytes(16)), OffsetMap.__new__(OffsetMap)
    plains._table = PlainTable(ours.capacity * PLAIN_KEY_BYTES, bytes(16))
    took = False
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
