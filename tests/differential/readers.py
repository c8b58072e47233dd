"""The ways to read offsets ``[start, stop)`` of a log, each as one function that gives lists of records.

Each ends as the read ends: what came before an error counts, and so does the error.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

import logstore
from logstore.errors import CorruptionError, LogstoreError
from logstore.format.batch import decode_batch
from logstore.format.control import ControlType, decode_control_record
from logstore.format.loops import scan_batches
from logstore.model import Isolation, Record
from logstore.partition.reading import arrow
from logstore.partition.reading.readable import ReadableLog
from logstore.partition.state.context import make_context
from logstore.partition.watching.pinned import PinnedReader
from logstore.partition.watching.read_only import ReadOnlyLog

COLUMNS = arrow.plan_columns(None, 7, 1000)

Way = Callable[[Any, int, int, Isolation], Iterable[list[Record]]]


class Outcome(NamedTuple):
    """What a read gave, and how it ended."""

    records: list[Record]
    fault: tuple[Any, ...] | None
    """The kind of the error; of damage also the file and the position."""


def outcome(lists: Callable[[], Iterable[list[Record]]]) -> Outcome:
    records: list[Record] = []
    try:
        for each in lists():
            records += each
    except CorruptionError as error:
        name = None if error.path is None else error.path.rpartition("/")[2]
        return Outcome(records, ("CorruptionError", name, error.position))
    except LogstoreError as error:
        return Outcome(records, (type(error).__name__,))
    return Outcome(records, None)


def rows(log: ReadableLog, start: int, stop: int, isolation: Isolation) -> Iterator[list[Record]]:
    for record in log.read(start, stop, isolation=isolation):
        yield [record]


def rows_on_demand(log: ReadableLog, start: int, stop: int, isolation: Isolation) -> Iterator[list[Record]]:
    for record in log.read(start, stop, isolation=isolation, on_demand=True):
        yield [record._replace()]


def columns(log: ReadableLog, start: int, stop: int, isolation: Isolation) -> Iterator[list[Record]]:
    reader = log.iterate_arrow(start, stop, isolation=isolation, batch_rows=5, batch_bytes=700)
    for batch in reader:
        yield records_of(batch)


def one_table(log: ReadableLog, start: int, stop: int, isolation: Isolation) -> Iterator[list[Record]]:
    yield records_of(log.read_arrow(start, stop, isolation=isolation))


def single_records(log: ReadableLog, start: int, stop: int, isolation: Isolation) -> Iterator[list[Record]]:
    log.read(start, start, isolation=isolation)  # the range is checked as in other reads
    for offset in range(start, stop):
        record = log.record_at(offset, isolation=isolation)
        yield [] if record is None else [record]


def single_reads(log: ReadableLog, start: int, stop: int, isolation: Isolation) -> Iterator[list[Record]]:
    log.read(start, start, isolation=isolation)
    for offset in range(start, stop):
        yield list(log.read(offset, offset + 1, isolation=isolation))


def follower(log: ReadableLog, start: int, stop: int, isolation: Isolation) -> Iterator[list[Record]]:
    """To the end of what is shown; ``stop`` cuts here."""
    for record in log.follow(start, timeout=0, isolation=isolation):
        if record.offset >= stop:
            return
        yield [record]


def fetches(
    log: ReadableLog, start: int, stop: int, isolation: Isolation, max_bytes: int = 1
) -> Iterator[list[Record]]:
    """As Kafka's consumers do it: batches of raw bytes, and aborted transactions in order of first offsets.
    A fetch gives whole batches, so it ends in front of one that reaches over the end."""
    position = start
    while position < stop:
        fetched = log.fetch(position, max_bytes=max_bytes, isolation=isolation)
        if fetched.next_offset == position:
            return
        waiting = sorted(fetched.aborted, key=lambda entry: entry.first_offset)
        hiding: set[int] = set()
        for at, header in scan_batches(fetched.data, 0, len(fetched.data), check=True)[0]:
            while waiting and waiting[0].first_offset <= header.last_offset:
                hiding.add(waiting.pop(0).producer_id)
            found = decode_batch(fetched.data, at, header, partition=log.partition)
            if header.is_control:
                if (
                    found and decode_control_record(found[0]).control_type is ControlType.ABORT
                ):  # else cleaned
                    hiding.discard(header.producer_id)
            elif not (header.is_transactional and header.producer_id in hiding):
                yield [record for record in found if start <= record.offset < stop]
        position = fetched.next_offset


def larger_fetches(log: ReadableLog, start: int, stop: int, isolation: Isolation) -> Iterator[list[Record]]:
    return fetches(log, start, stop, isolation, 2000)


def pinned(
    log: ReadOnlyLog, start: int, stop: int, isolation: Isolation, on_damage: Any = None
) -> Iterator[list[Record]]:
    """As a task of Spark reads."""

    home, _, name = log.directory.rpartition("/")

    def pin(log: ReadOnlyLog, position: int) -> Any:
        log.passes_damage = on_damage is not None
        try:
            return log.pin(position, stop, isolation=isolation)
        finally:
            log.passes_damage = False

    def pin_anew(position: int) -> Any:
        with logstore.open(home, read_only=True) as store:
            again = store[name.rpartition("-")[0]][0]
            assert isinstance(again, ReadOnlyLog)
            return pin(again, position)

    if on_damage is None:
        log.read(start, start, isolation=isolation)
    if start >= stop:
        return
    found = pin(log, start) if on_damage is None else pin_anew(start)
    wanted = pickle.loads(pickle.dumps(found))
    for batch in PinnedReader(wanted, make_context(home), pin_anew, on_damage).columns(COLUMNS):
        yield records_of(batch)


def records_of(table: Any) -> list[Record]:
    """Columns as records."""
    return [
        Record(
            row["offset"],
            row["timestamp_ms"],
            row["key"],
            row["value"],
            tuple((header["key"], header["value"]) for header in row["headers"]),
        )
        for row in table.to_pylist()
    ]


IN_ORDER: dict[str, Way] = {
    "rows": rows,
    "rows on demand": rows_on_demand,
    "columns": columns,
    "follower": follower,
    "single records": single_records,
    "single reads": single_reads,
    "fetches": fetches,
    "larger fetches": larger_fetches,
}
"""They give what is in front of an error."""

WHOLE: dict[str, Way] = {"one table": one_table}
"""They give all or nothing."""

COLUMNS_ALONE = {"columns", "one table", "pinned"}
"""They make records of columns, which do not say where they were read."""

SINGLE = {"single records", "single reads"}
"""They read each record by itself: what was kept of a batch may serve them, and an error may name its
neighbour."""

REACHING = {"follower", "fetches", "larger fetches"}
"""They look beyond ``stop``, up to what the isolation shows, and may find damage there."""
