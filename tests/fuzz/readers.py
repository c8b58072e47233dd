"""The table of everything that reads bytes of unknown origin: one function per format, bytes in.

A reader gets an engine and some bytes, reads them in every way there is, and returns what came out in a form
that compares. Wrong are: an error that is none of logstore's, a result that contradicts itself, and two
engines that differ. Checksums and sizes that stand in the way of everything else are put right first, so that
what is behind them is reached.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import replace

from crc32c import crc32c

from logstore.format.layout import LEGACY_HEADER
from tests.fuzz.engines import ENGINES, Refused

READERS = {}
COMMON = set()
LIMIT_BYTES = 1 << 16
"""Of decompression here: a page of zeros that expands to megabytes would only take time."""

_INT32 = struct.Struct(">i")
_UINT32 = struct.Struct(">I")


def reader(read):
    """Marks a reader that comes to the hot loops: each engine has its own code there."""
    READERS[read.__name__] = read
    return read


def common_reader(read):
    """Marks a reader whose code is the same in each engine, so that one of them is enough."""
    COMMON.add(read.__name__)
    return reader(read)


def check(name, data, engines=ENGINES):
    """Read the bytes with each engine; AssertionError if they do not agree, or if one contradicts itself."""
    read = READERS[name]
    first, *others = engines
    result = read(first, data)
    if others and name not in COMMON:
        for engine in others:
            plain = read(engine, data)
            assert plain == result, f"{name}: {result!r:.500} compiled, {plain!r:.500} plain"
    return result


def is_refused(result):
    """Whether an outcome is an error."""
    return isinstance(result, Refused)


# Batches ----------------------------------------------------------------------------------------------------


def repaired(data, position=0):
    """The batch at ``position``, to the end, with the size, magic and checksum that a reader wants to see."""
    batch = bytearray(data)
    if len(batch) - position >= 61:
        _INT32.pack_into(batch, position + 8, len(batch) - position - 12)
        batch[position + 16] = 2
        _UINT32.pack_into(batch, position + 17, crc32c(bytes(batch[position + 21 :])))
    return bytes(batch)


def resealed(data):
    """Batches one after the other as their sizes say, each with the right magic and checksum."""
    batches, position = bytearray(data), 0
    while len(batches) - position >= 61:
        (length,) = _INT32.unpack_from(batches, position + 8)
        if not 49 <= length <= len(batches) - position - 12:
            break
        batches[position + 16] = 2
        end = position + 12 + length
        _UINT32.pack_into(batches, position + 17, crc32c(bytes(batches[position + 21 : end])))
        position = end
    return bytes(batches)


def check_records(records, header):
    """As many as the header says, at rising offsets between its first and last."""
    offsets = [record[0] for record in records]
    assert offsets == sorted(set(offsets)), offsets
    if header.magic == 2:
        assert all(header.base_offset <= offset <= header.last_offset for offset in offsets), (
            offsets,
            header,
        )
        assert len(records) == header.record_count, (len(records), header)


def decode_here(engine, data, position=0):
    """One batch: its header, and its records or why not."""
    batch = engine.modules["logstore.format.batch"]
    header = engine.outcome(batch.decode_header, data, position)
    if is_refused(header):
        return header
    fault = engine.outcome(batch.check_batch, data, position, header)
    records = engine.outcome(
        lambda: [tuple(r) for r in batch.decode_batch(data, position, header, limit_bytes=LIMIT_BYTES)]
    )
    if fault is None and isinstance(records, list):
        check_records(records, header)
    return tuple(header), fault, records


@reader
def batch(engine, data):
    """One batch of magic 2, repaired; as it is on demand too, and a part of it."""
    data = repaired(data)
    decoded = decode_here(engine, data)
    module = engine.modules["logstore.format.batch"]
    if len(decoded) == 3 and decoded[0][5] & 7 == 0:
        lazy = engine.outcome(lambda: [tuple(r) for r in module.decode_batch(data, on_demand=True)])
        assert lazy == decoded[2], (lazy, decoded)
    return decoded


@reader
def batch_as_found(engine, data):
    """One batch of any magic, with whatever is wrong about it."""
    return decode_here(engine, data)


@reader
def part_of_batch(engine, data):
    """Some offsets of a repaired batch: what all of it has of them."""
    data = repaired(data)
    module = engine.modules["logstore.format.batch"]
    header = engine.outcome(module.decode_header, data)
    if is_refused(header) or engine.outcome(module.check_batch, data, 0, header) is not None:
        return header if is_refused(header) else None
    whole = engine.outcome(lambda: [tuple(r) for r in module.decode_batch(data, 0, header)])
    found = []
    middle = header.base_offset + header.last_offset_delta // 2
    for start, stop in ((header.base_offset, header.base_offset + 1), (middle, middle + 2)):
        part = engine.outcome(lambda: [tuple(r) for r in module.decode_range(data, 0, header, start, stop)])  # noqa: B023
        if isinstance(whole, list):
            assert part == [r for r in whole if start <= r[0] < stop], (part, whole, start, stop)
        found.append(part)
    return whole, found


@reader
def batches(engine, data):
    """A run of batches as a file has them: the walk over them, with and without checks."""
    data = resealed(data)
    scan = engine.loops.scan_batches
    results = []
    for is_checked in (True, False):
        found, stop, fault = scan(data, 0, len(data), check=is_checked)
        assert 0 <= stop <= len(data)
        position = 0
        for at, header in found:
            assert at == position, found
            position += header.size_bytes
        assert position == stop
        results.append(([(at, tuple(h)) for at, h in found], stop, fault and (str(fault), fault.position)))
    return results


class _Segment:
    """What a reader asks of a segment, over bytes."""

    directory = path = "memory"

    def __init__(self, engine, data, base_offset):
        self.data, self.base_offset, self.size_bytes = data, base_offset, len(data)
        self.offset_index = self
        self._at_base = engine.modules["logstore.format.index"].OffsetPosition(base_offset, 0)

    def read_at(self, position, size_bytes):
        return self.data[position : position + size_bytes]

    def read_into(self, position, buffer):
        data = self.read_at(position, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def lookup(self, offset):
        return self._at_base

    def position_before(self, offset):
        return 0

    def end_position(self, offset, end):
        return end

    def promises(self, offset):
        return False


@reader
def segment(engine, data):
    """The records of a whole segment, through the reader that logs have: as rows, and as columns."""
    data = resealed(data)
    base = max(int.from_bytes(data[:8], "big", signed=True), 0) % (1 << 60)
    view_of, reading = (
        engine.modules["logstore.partition.reading.view"],
        engine.modules["logstore.partition.reading.records"],
    )
    end = base + 400
    segment = _Segment(engine, data, base)
    view = view_of.LogView((segment,), (base,), len(data), base, end, end, end, end)
    isolation = engine.modules["logstore.model"].Isolation.LOG_END
    rows = []

    def read():
        for records in reading.record_lists(view, base, end, isolation):
            rows.extend(map(tuple, records))

    fault = engine.outcome(read)
    offsets = [row[0] for row in rows]
    assert offsets == sorted(set(offsets)), offsets
    assert all(base <= offset < end for offset in offsets), (base, offsets)
    arrow = engine.modules["logstore.partition.reading.arrow"]
    plan, columns = arrow.plan_columns(None, 64, 1 << 16), []

    def read_columns():
        for batch, _ in arrow.iterate_columns(view, base, end, isolation, plan):
            columns.extend(zip(batch["offset"].to_pylist(), batch["value"].to_pylist(), strict=True))

    column_fault = engine.outcome(read_columns)
    if fault is None:
        assert columns == [(row[0], row[3]) for row in rows], (columns, rows, column_fault)
    assert (fault is None) == (column_fault is None), (fault, column_fault)
    return rows, fault, len(columns)


@reader
def records(engine, data):
    """A section of records behind 12 bytes that say what its header would."""
    if len(data) < 12:
        return None
    count, last_delta, flags = struct.unpack_from(">HIH", data)
    base = 0 if flags & 1 else (1 << 63) - 1 - last_delta
    append_time_ms = 5 if flags & 2 else None
    arguments = (data, 12, len(data), count, base, 1000, append_time_ms)
    delta = min(last_delta, (1 << 31) - 1)
    found = engine.outcome(
        lambda: [tuple(r) for r in engine.loops.decode_records(*arguments, last_offset_delta=delta)]
    )
    if isinstance(found, list):
        assert len(found) == count
        assert all(base <= record[0] <= base + delta for record in found)
    return found


@reader
def control(engine, data):
    """A control record's key and value, behind a byte that says where they part; and as a batch's records."""
    module = engine.modules["logstore.format.control"]
    model = engine.modules["logstore.model"]
    at = data[0] % (len(data) or 1) if data else 0
    record = model.Record(7, 0, data[1 : at + 1], data[at + 1 :] or None, ())
    said = engine.outcome(module.decode_control_record, record)
    if not is_refused(said):
        said = (said.version, said.type_code, said.control_type and int(said.control_type), said[3])
    if len(data) > 22:
        flagged = bytearray(data)
        flagged[22] |= 0x20
        return said, decode_here(engine, repaired(flagged))
    return said


@reader
def legacy(engine, data):
    """Message sets of magic 0 and 1 as they are found, and the same bytes inside a compressed entry."""
    results = [decode_here(engine, sealed_entries(data))]
    if data:
        magic, codec = data[0] & 1, (1, 2, 3)[data[0] >> 1 & 3 if data[0] >> 1 & 3 < 3 else 0]
        compression = engine.modules["logstore.format.compression"]
        inner = compression.compress(compression.Codec(codec), sealed_entries(data[1:]))
        results.append(decode_here(engine, entry_around(magic, codec, inner)))
    scanned, stop, fault = batch_scan(engine, sealed_entries(data))
    return results, scanned, stop, fault


def batch_scan(engine, data):
    found, stop, fault = engine.loops.scan_batches(data, 0, len(data), check=True)
    return [(at, tuple(header)) for at, header in found], stop, fault and str(fault)


def sealed_entries(data):
    """Entries of magic 0 or 1 as their sizes say, each with the right checksum."""
    entries, position = bytearray(data), 0
    while len(entries) - position >= 17:
        (length,) = _INT32.unpack_from(entries, position + 8)
        end = position + 12 + length
        if length < 6 or end > len(entries):
            break
        if entries[position + 16] < 2:
            _UINT32.pack_into(entries, position + 12, zlib.crc32(entries[position + 16 : end]))
        position = end
    return bytes(entries)


def entry_around(magic, codec, value):
    payload = struct.pack(">q", 1000) * magic + struct.pack(">i", -1) + struct.pack(">i", len(value)) + value
    crc = zlib.crc32(struct.pack(">bb", magic, codec) + payload)
    return LEGACY_HEADER.pack(5, LEGACY_HEADER.size_bytes - 12 + len(payload), crc, magic, codec) + payload


# Codecs -----------------------------------------------------------------------------------------------------


def _codec(name, number, magic=2):
    def read(engine, data):
        module = engine.modules["logstore.format.compression"]
        codec = module.Codec(number)
        found = engine.outcome(module.decompress, codec, data, LIMIT_BYTES, magic=magic)
        if not is_refused(found):
            assert len(found) <= LIMIT_BYTES, len(found)
            assert module.decompress(codec, module.compress(codec, found), LIMIT_BYTES) == found
            found = bytes(found)
        return found

    read.__name__ = name
    read.__doc__ = f"A stream of {name}; what comes out is within the limit."
    return common_reader(read)


for _number, _name in enumerate(("uncompressed", "gzip", "snappy", "lz4", "zstd")):
    _codec(_name, _number)
_codec("lz4_of_magic_0", 3, magic=0)


# Files ------------------------------------------------------------------------------------------------------


@reader
def offset_index(engine, data):
    """Entries of any kind, searched as a reader does before anybody has checked them."""
    module, count = engine.modules["logstore.format.index"], len(data) // 8
    base = 100
    fault = engine.outcome(module.check_offset_index, data, len(data), base)
    found = [
        (
            tuple(module.find_offset(data, count, base, target)),
            module.find_offset_upper_bound(data, count, base, module.OffsetPosition(base, 5), target),
            module.count_entries_below_offset(data, count, base, target),
            engine.loops.find_interval(data[: count * 8], target - base),
        )
        for target in (0, base, base + 7, base + (1 << 31), (1 << 63) - 1)
    ]
    if fault is None:
        for target, (entry, *_) in zip((0, base, base + 7), found, strict=False):
            assert entry[0] <= max(target, base), (target, entry)
    return fault, [(entry, bound and tuple(bound), *rest) for entry, bound, *rest in found]


@common_reader
def time_index(engine, data):
    module, count = engine.modules["logstore.format.index"], len(data) // 12
    fault = engine.outcome(module.check_time_index, data, len(data), 100)
    found = [
        tuple(module.find_timestamp(data, count, 100, target)) for target in (0, 1000, 1 << 40, (1 << 63) - 1)
    ]
    layout = engine.modules["logstore.format.layout"].TIME_INDEX_ENTRY
    kept = module.count_entries_below_offset(data, count, 100, 107, layout)
    return fault, found, kept


@common_reader
def transaction_index(engine, data):
    module = engine.modules["logstore.format.index"]
    entries = engine.outcome(module.decode_aborted_transactions, data, 100)
    if is_refused(entries):
        return entries
    assert b"".join(map(module.encode_aborted_transaction, entries)) == data
    found, is_complete = entries.overlapping(100, 110)
    return [tuple(e) for e in entries], [tuple(e) for e in found], is_complete


@reader
def producer_snapshot(engine, data):
    """With the right count and checksum if the size is right; else as it is."""
    module = engine.modules["logstore.format.snapshot"]
    data = bytearray(data)
    if len(data) >= 10 and data[0] & 1:
        data[0] = 0
        _UINT32.pack_into(data, 2, crc32c(bytes(data[6:])))
    entries = engine.outcome(module.decode_snapshot, bytes(data))
    if is_refused(entries):
        return entries
    assert module.encode_snapshot(entries) == bytes(data)
    states = engine.modules["logstore.partition.state.producer_state"].ProducerStates()
    loaded = engine.outcome(states.load_snapshot, entries, 50, 0)
    return [tuple(e) for e in entries], loaded, [tuple(e) for e in states.snapshot_entries()]


@common_reader
def offset_checkpoint(engine, data):
    module = engine.modules["logstore.format.checkpoint"]
    found = engine.outcome(module.decode_offset_checkpoint, data)
    if is_refused(found):
        return found
    assert module.decode_offset_checkpoint(module.encode_offset_checkpoint(found)) == found
    return sorted((tuple(partition), offset) for partition, offset in found.items())


@common_reader
def epoch_checkpoint(engine, data):
    module = engine.modules["logstore.format.checkpoint"]
    found = engine.outcome(module.decode_epoch_checkpoint, data)
    if is_refused(found):
        return found
    assert module.decode_epoch_checkpoint(module.encode_epoch_checkpoint(found)) == found
    epochs = engine.modules["logstore.partition.state.leader_epochs"]
    history = engine.outcome(epochs.LeaderEpochs, found)
    return [tuple(entry) for entry in found], history if is_refused(history) else None


@common_reader
def partition_metadata(engine, data):
    module = engine.modules["logstore.format.metadata"]
    found = engine.outcome(module.decode_partition_metadata, data)
    if not is_refused(found):
        assert module.decode_partition_metadata(module.encode_partition_metadata(found)) == found
    return found


@common_reader
def meta_properties(engine, data):
    module = engine.modules["logstore.format.metadata"]
    found = engine.outcome(module.decode_meta_properties, data)
    if is_refused(found):
        return found
    again = engine.outcome(lambda: module.decode_meta_properties(module.encode_meta_properties(found)))
    assert again == found, (found, again)
    return tuple(found)


@common_reader
def catalogue(engine, data):
    module = engine.modules["logstore.logdir.catalogue"]
    found = engine.outcome(module.decode_catalogue, data)
    if is_refused(found):
        return found[0]  # json words its errors
    again = module.decode_catalogue(module.encode_catalogue(found.values()))
    assert again == {name: replace(entry, has_implied_retention=False) for name, entry in found.items()}
    return sorted((n, e.topic_id, e.partition_count, e.state.value) for n, e in found.items())


@common_reader
def names(engine, data):
    """Bytes as a file system gives them: a topic, a directory, a segment's file."""
    module = engine.modules["logstore.format.names"]
    name = data.decode("utf-8", "surrogateescape")
    topic = engine.outcome(module.check_topic_name, name)
    if topic is None:
        assert not set("/\0") & set(name), name
        assert name not in ("", ".", "..")
        assert len(name) <= 249
        directory = module.partition_directory_name(name, 3)
        assert tuple(module.parse_directory_name(directory))[:2] == (name, 3)
    parsed = engine.outcome(module.parse_directory_name, name)
    if not is_refused(parsed):
        parsed = (*parsed[:2], parsed[2].value)
    file = engine.outcome(module.parse_segment_file_name, name)
    return topic, parsed, file and tuple(file)
