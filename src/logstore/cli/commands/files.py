"""What is in one file of a segment, wherever it lies; for ``logstore info FILE``."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from logstore.cli.errors import FINE, FOUND, WRONG, CommandError
from logstore.cli.output import Cell, Output, Shape
from logstore.cli.times import format_time
from logstore.errors import CorruptionError
from logstore.files import OsFiles, read_small_file
from logstore.format.names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SNAPSHOT_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    parse_segment_file_name,
)
from logstore.format.snapshot import decode_snapshot
from logstore.partition.segments.transaction_index import TransactionIndex
from logstore.partition.state.sidecars import MAX_SNAPSHOT_BYTES
from logstore.segment_files.indexes import OffsetIndex, TimeIndex
from logstore.segment_files.segment import Segment

SEGMENT: Final = Shape(
    "a segment (`info FILE.log`)",
    path="of the file",
    base_offset="below it the file has no record",
    next_offset="after the last whole batch",
    size_bytes="of the file",
    trailing_bytes="bytes after the last whole batch; 0 in a sound file that is not being written",
    batches="how many there are",
    records="how many the batches' headers count; those of compressed batches before magic 2 are left out",
    codecs="batches by codec",
    magics="batches by magic",
    max_timestamp_ms="the largest, milliseconds since 1970; -1 where there is none",
    transactional_batches="how many there are",
    control_batches="transaction markers",
    offset_index_entries="in the `.index` beside it; null without one",
    time_index_entries="in the `.timeindex`; null likewise",
    aborted_transactions="in the `.txnindex`; null likewise",
    damage="the first thing that is wrong; null if nothing is",
)
BATCH: Final = Shape(
    "a batch (`info FILE.log --all`, and `last_batch`)",
    base_offset="of its first record",
    last_offset="of its last one",
    record_count="-1 of a compressed batch before magic 2",
    position="where it begins in the file; null in `last_batch`",
    size_bytes="of the batch",
    magic="2; 1 before Kafka 0.11, 0 before Kafka 0.10",
    codec="`none`, `gzip`, `snappy`, `lz4` or `zstd`",
    base_timestamp_ms="the first record's, or from which they count",
    max_timestamp_ms="the largest",
    is_log_append_time="whether the broker set the timestamps",
    leader_epoch="-1 for what a batch does not have, here and below",
    producer_id="of its producer",
    producer_epoch="likewise",
    base_sequence="of its first record",
    is_transactional="whether it is part of a transaction",
    is_control="whether it is a transaction marker",
    delete_horizon_ms="when compaction may drop its tombstones and markers",
    damage="what is wrong with its checksum or structure; empty if nothing is",
)
SMALL_FILE: Final = Shape(
    "another file (`info FILE.index` and so on)",
    path="of the file",
    kind="`offset index`, `time index`, `transaction index` or `producer snapshot`",
    entries="how many there are",
)
OFFSET_ENTRY: Final = Shape(
    "an entry of an offset index (`--all`)",
    offset="the last of a batch",
    position="where the batch begins in the `.log` file",
)
TIME_ENTRY: Final = Shape(
    "an entry of a time index (`--all`)",
    timestamp_ms="the largest up to there",
    offset="the last of the batch that has it",
)
ABORTED: Final = Shape(
    "an entry of a transaction index (`--all`)",
    producer_id="whose transaction was aborted",
    first_offset="of the transaction",
    last_offset="of its marker",
    last_stable_offset="when the marker was written",
)
PRODUCER: Final = Shape(
    "an entry of a producer snapshot (`--all`, and `producers`)",
    producer_id="of the producer",
    producer_epoch="its epoch",
    last_sequence="of its last batch; -1 where only a marker was seen, as the next",
    last_offset="of its last batch",
    offset_delta="the last batch's last offset minus its first",
    timestamp_ms="of its last batch",
    coordinator_epoch="of its last marker; -1 without one",
    transaction_first_offset="of its open transaction; -1 without one",
)
FILE_SHAPES: Final = (SEGMENT, BATCH, SMALL_FILE, OFFSET_ENTRY, TIME_ENTRY, ABORTED, PRODUCER)


class SmallFile(NamedTuple):
    """A kind of file that is read whole."""

    kind: str
    shape: Shape
    read: Callable[[str], Iterable[Mapping[str, Any]]]


def file_info(out: Output, path: str, *, everything: bool) -> int:
    """What is in a file; returns the exit code.

    Raises:
        CommandError: no file of a segment is named like that.
    """
    name = path.rpartition("/")[2].removesuffix(DELETED_SUFFIX)
    if name.endswith(LOG_SUFFIX):
        return _show_batches(out, path) if everything else _show_segment(out, path)
    small = next((found for suffix, found in _SMALL_FILES.items() if name.endswith(suffix)), None)
    if small is None:
        endings = ", ".join([LOG_SUFFIX, *_SMALL_FILES])
        raise CommandError(f"{path} is no file of a segment: those end in {endings}", WRONG)
    rows = [small.shape(**row) for row in small.read(path)]
    if everything and out.is_json:
        for row in rows:
            out.json(row)
    elif everything:
        out.table([name.upper() for name in small.shape.fields], ([*row.values()] for row in rows))
    else:
        found = SMALL_FILE(path=path, kind=small.kind, entries=len(rows))
        out.json(found) if out.is_json else out.fields(found.items())
    return FINE


def _offset_entries(path: str) -> Iterator[Mapping[str, Any]]:
    with OffsetIndex.open(path) as index:
        yield from (entry._asdict() for entry in index)


def _time_entries(path: str) -> Iterator[Mapping[str, Any]]:
    with TimeIndex.open(path) as index:
        yield from (entry._asdict() for entry in index)


def _aborted(path: str) -> Iterator[Mapping[str, Any]]:
    files = OsFiles()
    full = files.absolute(path)
    parsed = parse_segment_file_name(full.rpartition("/")[2])
    base_offset = 0 if parsed is None else parsed.base_offset
    yield from (entry._asdict() for entry in TransactionIndex.open(files, full, base_offset).entries)


def _producers(path: str) -> Iterator[Mapping[str, Any]]:
    data = read_small_file(OsFiles(), path, MAX_SNAPSHOT_BYTES)
    try:
        yield from (entry._asdict() for entry in decode_snapshot(data or b""))
    except CorruptionError as error:
        raise error.located(path) from None


_SMALL_FILES: Final = {
    TIME_INDEX_SUFFIX: SmallFile("time index", TIME_ENTRY, _time_entries),
    TRANSACTION_INDEX_SUFFIX: SmallFile("transaction index", ABORTED, _aborted),
    INDEX_SUFFIX: SmallFile("offset index", OFFSET_ENTRY, _offset_entries),
    SNAPSHOT_SUFFIX: SmallFile("producer snapshot", PRODUCER, _producers),
}


# Segments


def _show_segment(out: Output, path: str) -> int:
    with Segment.open(path) as segment:
        found = _segment_object(segment)
    if out.is_json:
        out.json(found)
    else:
        shown = found | {
            "codecs": _counted(found["codecs"]),
            "magics": _counted(found["magics"]),
            "max_timestamp_ms": format_time(found["max_timestamp_ms"]),
        }
        out.fields((name.removesuffix("_ms").replace("_", " "), value) for name, value in shown.items())
    return FINE if found["damage"] is None else FOUND


def _segment_object(segment: Segment) -> dict[str, Any]:
    codecs: Counter[str] = Counter()
    magics: Counter[str] = Counter()
    counts: Counter[str] = Counter()
    newest_ms, damage = -1, None
    try:
        for batch in segment.batches():
            codecs[batch.codec] += 1
            magics[str(batch.magic)] += 1
            counts["records"] += max(batch.record_count, 0)
            counts["transactional"] += batch.is_transactional
            counts["control"] += batch.is_control
            newest_ms = max(newest_ms, batch.max_timestamp_ms)
            if batch.damage and damage is None:
                damage = f"{batch.damage} (position {batch.position})"
    except CorruptionError as error:
        damage = damage or str(error)
    offset_index, time_index, aborted = segment.offset_index, segment.time_index, segment.transaction_index
    return SEGMENT(
        path=segment.path,
        base_offset=segment.base_offset,
        next_offset=segment.next_offset,
        size_bytes=segment.size_bytes,
        trailing_bytes=segment.trailing_bytes,
        batches=codecs.total(),
        records=counts["records"],
        codecs=dict(codecs),
        magics=dict(magics),
        max_timestamp_ms=newest_ms,
        transactional_batches=counts["transactional"],
        control_batches=counts["control"],
        offset_index_entries=None if offset_index is None else len(offset_index),
        time_index_entries=None if time_index is None else len(time_index),
        aborted_transactions=None if aborted is None else len(aborted),
        damage=damage,
    )


def _counted(counts: Mapping[str, int]) -> str | None:
    return ", ".join([f"{name} ({count})" for name, count in counts.items()]) or None


def _show_batches(out: Output, path: str) -> int:
    damaged = 0
    with Segment.open(path) as segment:

        def rows() -> Iterator[tuple[Cell, ...]]:
            nonlocal damaged
            for batch in segment.batches():
                damaged += bool(batch.damage)
                yield (
                    batch.base_offset,
                    batch.last_offset,
                    batch.record_count,
                    batch.position,
                    batch.size_bytes,
                    batch.codec,
                    format_time(batch.max_timestamp_ms),
                    batch.leader_epoch,
                    batch.producer_id,
                    "marker" if batch.is_control else "transactional" if batch.is_transactional else "",
                    batch.damage,
                )

        if out.is_json:
            for batch in segment.batches():
                damaged += bool(batch.damage)
                out.json(BATCH(**batch._asdict()))
        else:
            out.table(
                (
                    "FIRST",
                    "LAST",
                    "RECORDS",
                    "POSITION",
                    "BYTES",
                    "CODEC",
                    "NEWEST",
                    "EPOCH",
                    "PRODUCER",
                    "KIND",
                    "DAMAGE",
                ),
                rows(),
            )
    return FOUND if damaged else FINE
