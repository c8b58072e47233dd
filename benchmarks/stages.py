"""``python -m benchmarks.stages``: where the time of one call goes, stage by stage.

A route through logstore (append rows, read rows) is timed as a whole, and each of its stages alone on the
same data: the system call, the checksum, the encoder, the interpreter's own loop. The whole minus the stages
is the engine between them: plans, locks, indexes, views. All take turns in one process; figures are medians
of many rounds. Rewrites the tables and the picture of ``docs/speed.md``.
"""

from __future__ import annotations

import argparse
import gc
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any, NamedTuple

import logstore
from benchmarks.measure import ROOT, scratch_directory
from benchmarks.process import describe_machine
from benchmarks.records import BASE_TIMESTAMP_MS, Row, batches_of, row_at
from benchmarks.report import rewrite_region
from benchmarks.text import format_seconds, format_table
from logstore.files import File, OsFiles
from logstore.format import checksum, loops
from logstore.format.batch import HEADER_BYTES, decode_header, encode_batch
from logstore.format.gathered import RowRules

DOCUMENT = ROOT / "docs" / "speed.md"
IMAGES = ROOT / "docs" / "images"
ENGINE = "the engine between them"

_ROUNDS = 15
_QUICK_ROUNDS = 3
_CHUNK_RECORDS = 20_000
_GATHERED_RECORDS = 1_700
"""About what a batch of them holds when it is full."""
_LOG_RECORDS = 400_000
_READS = 2_000
_PIECE_BYTES = 256 * 1024
_NO_LIMIT = 2**63 - 1
_RULES = RowRules(
    attributes=0, needs_keys=False, before_max_ms=_NO_LIMIT, after_max_ms=_NO_LIMIT, limit_bytes=_NO_LIMIT
)


class Route(NamedTuple):
    """One way through logstore. Calls do ``unit_count`` units of work each."""

    title: str
    unit: str
    unit_count: int
    whole: Callable[[], Any]
    stages: dict[str, Callable[[], Any]]
    rest: str = ENGINE


class Timed(NamedTuple):
    """Seconds for each unit of a route: of the whole, and of the stages, the rest last."""

    title: str
    unit: str
    whole: float
    stages: dict[str, float]


# Routes -----------------------------------------------------------------------------------------------------


def append_route(store: logstore.Store, scratch: File, batch_records: int, *, is_durable: bool) -> Route:
    """``extend`` of many batches."""
    count = 2_000 if is_durable else _CHUNK_RECORDS
    rows = list(batches_of(0, count, batch_records))
    encoded = list(map(_encode, rows))
    log = _log(store, f"append-{batch_records}-{is_durable}")

    def whole() -> None:
        for batch in rows:
            log.extend(batch, flush=is_durable)

    stages: dict[str, Callable[[], Any]] = {
        "checksum": lambda: _checksum_all(encoded),
        "rows to bytes": lambda: list(map(_encode, rows)),
        "write to the page cache": _writer(scratch, encoded, is_durable=False),
    }
    if is_durable:
        stages["bring it to the disk (fdatasync)"] = _writer(scratch, encoded, is_durable=True)
    kind = "and flush " if is_durable else ""
    unit = "batch" if is_durable else "record"
    return Route(
        f"Append {kind}rows, {batch_records:,} a batch",
        unit,
        len(rows) if is_durable else count,
        whole,
        stages,
    )


def single_route(store: logstore.Store, scratch: File) -> Route:
    """``append`` of single records, which gather."""
    rows = [row_at(number) for number in range(_CHUNK_RECORDS)]
    batches = _cut(rows, _GATHERED_RECORDS)
    log = _log(store, "single")
    gathered = loops.GatheredRows(_RULES, _NO_LIMIT)
    keep: Callable[..., int | None] = gathered.gather
    now_ms = None
    if not logstore.build_info().is_compiled:  # then the log takes its lock, and asks its clock
        keep, now_ms = gathered.add, BASE_TIMESTAMP_MS
    place = max(scratch.size_bytes(), 1)

    def whole() -> None:
        append = log.append
        for key, value, _ in rows:
            append(value, key=key)

    def call() -> None:
        for key, value, _ in rows:
            _append_nothing(value, key=key)

    def look_and_keep() -> None:
        for batch in batches:
            gathered.open_gate(0, 2**62)
            for key, value, _ in batch:
                keep(value, key, (), None, now_ms)
            gathered.clear()

    def encode_and_write() -> None:
        nonlocal place
        for batch in batches:  # as it happens: one at a time, into memory that was just given back
            encoded = _encode(batch)
            scratch.write_at(place, [encoded])
            place += len(encoded)

    stages: dict[str, Callable[[], Any]] = {
        "a call with these arguments that does nothing": call,
        "look at the clock and the record, keep it": look_and_keep,
        "its share of encoding and writing": encode_and_write,
    }
    return Route("Append single records", "record", len(rows), whole, stages)


def _append_nothing(
    value: Any, *, key: Any = None, headers: Any = (), timestamp_ms: Any = None, flush: bool = False
) -> None:
    """The arguments of ``append``."""


def rows_route(log: logstore.Log, file: File, batch_records: int) -> Route:
    """``read`` from the first record to the last."""
    pieces = list(_pieces(file))
    batches = [batch for piece in pieces for batch in _batches(piece)]
    batches = batches[: _CHUNK_RECORDS * 5 // batch_records]
    count = sum(decode_header(batch).record_count for batch in batches)
    size_bytes = sum(map(len, batches))
    decoded = [record for batch in batches for record in _decode(batch)]

    def whole() -> None:
        for record in log.read(0, count):
            record.value  # noqa: B018 - the reader's part

    def loop() -> None:
        for record in decoded:
            record.value  # noqa: B018

    def decode() -> None:
        for batch in batches:
            _decode(batch)

    stages = {
        "copy from the page cache": lambda: _read_all(file, size_bytes),
        "checksum": lambda: _checksum_all(batches),
        "bytes to records": decode,
        "the caller's loop": loop,
    }
    return Route(f"Read rows, {batch_records:,} a batch", "record", count, whole, stages)


def columns_route(log: logstore.Log, file: File) -> Route:
    """``iterate_arrow`` from the first record to the last."""
    pieces = list(_pieces(file))
    size_bytes = sum(map(len, pieces))

    def whole() -> None:
        for _ in log.iterate_arrow():
            pass

    stages = {
        "copy from the page cache": lambda: _read_all(file, size_bytes),
        "checksum": lambda: _checksum_all(pieces),
    }
    title = "Read columns, 1,000 a batch"
    return Route(title, "record", log.log_end_offset, whole, stages, "bytes to columns, and the engine")


def random_route(log: logstore.Log, file: File, batch_records: int) -> Route:
    """``record_at`` at offsets all over the log."""
    source = random.Random(5)
    offsets = [source.randrange(log.log_end_offset) for _ in range(_READS)]
    piece = file.read_at(0, _PIECE_BYTES)
    batch = next(_batches(piece))
    last = max(file.size_bytes() - len(batch), 1)
    positions = [source.randrange(last) for _ in offsets]

    def whole() -> None:
        record_at = log.record_at
        for offset in offsets:
            record_at(offset)

    def read() -> None:
        for position in positions:
            file.read_at(position, len(batch))

    stages = {"copy the batch from the page cache": read, "checksum": lambda: _checksum_all([batch] * _READS)}
    title = f"Read one record at random, {batch_records:,} a batch"
    return Route(title, "record", _READS, whole, stages, "index, header, skipping, the record, the engine")


# Stages -----------------------------------------------------------------------------------------------------


def _encode(rows: Any) -> bytearray:
    batches = loops.encode_rows(rows, BASE_TIMESTAMP_MS, _RULES)
    if batches is not None:
        return batches[0]
    keys, values, timestamps = zip(*rows, strict=True)
    return encode_batch(keys, values, timestamps)


def _decode(batch: bytes) -> list[logstore.Record]:
    header = decode_header(batch)
    where = (header.record_count, header.base_offset, header.base_timestamp_ms, None)
    return loops.decode_records(batch, HEADER_BYTES, len(batch), *where)


def _checksum_all(buffers: Any) -> None:
    for buffer in buffers:
        checksum.crc32c(buffer)


def _writer(file: File, batches: list[bytearray], *, is_durable: bool) -> Callable[[], None]:
    """Appends the batches to the file, each time behind what is there; durable: one fsync for each."""
    position = file.size_bytes()

    def write() -> None:
        nonlocal position
        position = max(position, file.size_bytes())
        for batch in batches:
            file.write_at(position, [batch])
            position += len(batch)
            if is_durable:
                file.flush()

    return write


def _pieces(file: File) -> Iterator[bytes]:
    for position in range(0, file.size_bytes(), _PIECE_BYTES):
        yield file.read_at(position, _PIECE_BYTES)


def _read_all(file: File, size_bytes: int) -> None:
    for position in range(0, size_bytes, _PIECE_BYTES):
        file.read_at(position, _PIECE_BYTES)


def _batches(piece: bytes) -> Iterator[bytes]:
    for position, header in loops.scan_batches(piece, 0, len(piece), check=False)[0]:
        yield piece[position : position + header.size_bytes]


def _cut(rows: list[Row], count: int) -> list[list[Row]]:
    return [rows[start : start + count] for start in range(0, len(rows), count)]


# Timing -----------------------------------------------------------------------------------------------------


def time_route(route: Route, rounds: int) -> Timed:
    """Whole and stages in turns. A stage that contains the one before it is shown without it."""
    calls = {"": route.whole, **route.stages}
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    gc.collect()
    gc.freeze()
    for _ in range(rounds):
        for name, call in calls.items():
            started = perf_counter()
            call()
            taken[name].append(perf_counter() - started)
    gc.unfreeze()
    seconds = {name: median(samples) / route.unit_count for name, samples in taken.items()}
    whole = seconds.pop("")
    _take_out(seconds, "rows to bytes", "checksum")
    _take_out(seconds, "bring it to the disk (fdatasync)", "write to the page cache")
    seconds[route.rest] = whole - sum(seconds.values())
    return Timed(route.title, route.unit, whole, seconds)


def _take_out(seconds: dict[str, float], name: str, contained: str) -> None:
    if name in seconds:
        seconds[name] -= seconds[contained]


def time_all(directory: str, rounds: int) -> list[Timed]:
    """All routes, in a store of their own below ``directory``."""
    files = OsFiles()
    scratch = files.open(f"{directory}/scratch", create=True)
    timed = []
    with logstore.open(f"{directory}/store") as store:
        for batch_records in (1_000, 100, 1):
            timed.append(time_route(append_route(store, scratch, batch_records, is_durable=False), rounds))
        timed.append(time_route(single_route(store, scratch), rounds))
        timed.append(time_route(append_route(store, scratch, 100, is_durable=True), rounds))
        for batch_records in (1_000, 100):
            log = _log(store, f"read-{batch_records}")
            for rows in batches_of(0, _LOG_RECORDS, batch_records):
                log.extend(rows)
            log.flush()
            file = files.open(f"{log.directory}/{'0' * 20}.log")
            timed.append(time_route(rows_route(log, file, batch_records), rounds))
            if batch_records == 1_000:
                timed.append(time_route(columns_route(log, file), rounds))
            timed.append(time_route(random_route(log, file, batch_records), rounds))
    return timed


def _log(store: logstore.Store, topic: str) -> logstore.Log:
    return store.require_topic(topic, config=logstore.TopicConfig(retention_ms=-1))[0]


# Report -----------------------------------------------------------------------------------------------------


def format_timed(timed: list[Timed], machine: dict[str, str]) -> str:
    """A table for each route, with the stages' shares."""
    parts = ["![Shares of the stages](images/stages.svg)\n"]
    for route in timed:
        rows = [_row(name, seconds, route.whole) for name, seconds in route.stages.items()]
        rows.append(["**whole**", f"**{_format_time(route.whole)}**", ""])
        parts.append(f"### {route.title}\n")
        parts.append(format_table([f"per {route.unit}", "time", "share"], rows, text_columns=1))
    facts = ", ".join(machine[name] for name in ("cpu", "python", "crc32c") if name in machine)
    parts.append(f"Measured by `python -m benchmarks.stages` on {facts}; keys of 16 bytes, values of 100.")
    return "\n".join(parts)


def _row(name: str, seconds: float, whole: float) -> list[str]:
    """One row. The rest may be smaller than the variation of the others."""
    if seconds <= 0:
        return [name, "within the noise", ""]
    return [name, _format_time(seconds), f"{seconds / whole:.0%}"]


def _format_time(seconds: float) -> str:
    return f"{seconds * 1e9:.0f} ns" if seconds < 1e-6 else format_seconds(seconds)


def plot_timed(timed: list[Timed], directory: Path) -> None:
    """One bar for each route, divided into its stages."""
    import matplotlib  # an extra: the rest of the module works without

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "stages", "font.size": 9, "svg.fonttype": "path"})
    from matplotlib import patches, pyplot

    names = list(dict.fromkeys(name for route in timed for name in route.stages))
    palette = pyplot.get_cmap("tab20")
    colors = {name: palette(number) for number, name in enumerate(names)}
    figure, axes = pyplot.subplots(figsize=(11, 0.55 * len(timed) + 2.2), facecolor="white")
    for row, route in enumerate(timed):
        left = 0.0
        for name, seconds in route.stages.items():
            share = max(seconds, 0) / route.whole
            axes.barh(row, share, left=left, color=colors[name], edgecolor="white")
            left += share
        axes.text(1.01, row, f"{_format_time(route.whole)} per {route.unit}", va="center")
    axes.set_yticks(range(len(timed)), [route.title for route in timed])
    axes.invert_yaxis()
    axes.set_xlim(0, 1.2)
    axes.set_xticks([])
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)
    handles = [patches.Patch(color=colors[name]) for name in names]
    axes.legend(handles, names, loc="upper center", bbox_to_anchor=(0.4, -0.02), ncols=3, frameon=False)
    figure.tight_layout()
    directory.mkdir(parents=True, exist_ok=True)
    figure.savefig(directory / "stages.png", dpi=150)
    figure.savefig(directory / "stages.svg", metadata={"Date": None})
    pyplot.close(figure)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stages", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few rounds; prints and writes nothing")
    parser.add_argument("--directory", help="where to measure; on the disk that you want to know about")
    arguments = parser.parse_args()
    with scratch_directory(arguments.directory) as directory:
        machine = describe_machine(directory)
        timed = time_all(directory, _QUICK_ROUNDS if arguments.quick else _ROUNDS)
    text = format_timed(timed, machine)
    if arguments.quick:
        print(text)
        return
    plot_timed(timed, IMAGES)
    rewrite_region(DOCUMENT, text)


if __name__ == "__main__":
    main()
