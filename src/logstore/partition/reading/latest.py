"""The table view of a log: the current record of each key, whether or not compaction has run.

It makes two passes over the same offsets. The first puts every key with its offset into an
:class:`~logstore.format.offset_map.OffsetMap`, straight from the records sections, without making a record.
The second asks the map which records are still the latest of their keys, and makes those. If the keys do not
fit in memory, they are divided into classes, and each class has its two passes.

Meanwhile, even between the passes, compaction may replace segments and retention may remove them. A pass then
goes on behind the last batch that it read, in the newer segments. Records that stay keep their offsets, and a
record is returned only if its offset is the latest that the first pass saw for its key. So a removed record
can be missed, but nothing older takes its place. (A pass never sees an older record of a key whose later ones
were removed before it reached them: compaction removes from the beginning of the log onwards, and the second
pass never works on a state older than the last one of the first.)

This module knows neither files nor the log whose views it gets. Columns are made from it in
:mod:`logstore.partition.reading.arrow`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import chain, compress
from typing import TYPE_CHECKING, Any, Final

from logstore.arguments import shown
from logstore.errors import CorruptionError, LogstoreError, StorageError, UsageError
from logstore.format.batch import decode_section
from logstore.format.header import MAGIC
from logstore.format.loops import latest_run, put_run
from logstore.format.offset_map import (
    ALL_KEYS,
    WINDOW,
    KeyClass,
    OffsetMap,
    Standing,
    bytes_for,
    marks_of,
)
from logstore.model import Isolation, Record, TopicPartition
from logstore.partition.reading.place import ends_at_base
from logstore.partition.reading.records import (
    AbortedFilter,
    FoundBatch,
    Section,
    TellingOfTruncation,
    aborted_transactions,
    section_of,
    segment_runs,
    truncated_meanwhile,
)
from logstore.partition.reading.view import LogView

if TYPE_CHECKING:
    import pyarrow

LEAST_MAP_BYTES: Final = 4096

NewerView = Callable[[LogView, LogstoreError], LogView]
"""Called with a view and the error that a reader met in it. Returns the current view if that explains the
error; otherwise raises."""

_FIRST_MAP_BYTES = 4 * 1024 * 1024  # for 179,000 keys; page tables and caches like it, too
_GROWTH = 4
_MOST_PARTS = 64

_IS_LATEST = marks_of(Standing.LATEST)


class LatestView:
    """The current record of each key of one partition, as of :attr:`end_offset`. Returned by
    :meth:`.Log.latest`.

    Each iteration reads the log, as of the same offset. ``follow(end_offset)`` continues from there, without
    a gap or a duplicate.
    """

    def __init__(
        self,
        partition: TopicPartition,
        view: LogView,
        isolation: Isolation,
        map_bytes: int,
        *,
        newer_view: NewerView,
        seed: bytes,
    ) -> None:
        """``seed``: :data:`~logstore.format.offset_map.SEED_BYTES` random bytes that the author of the keys
        cannot know.

        Raises:
            UsageError: ``map_bytes`` is not a whole number, :data:`LEAST_MAP_BYTES` or above.
        """
        if type(map_bytes) is not int or map_bytes < LEAST_MAP_BYTES:
            raise UsageError(
                f"map_bytes is {shown(map_bytes)}; it must be a whole number, {LEAST_MAP_BYTES} or above"
            )
        self.partition = partition
        """The topic's name and the partition's number."""
        self.end_offset = max(view.limit_of(isolation), view.log_start_offset)
        """The view covers every record below this offset, and none at or above it."""
        self._newer_view = newer_view
        self._seed = seed
        self._view = view
        self._isolation = isolation
        self._map_bytes = map_bytes

    def __iter__(self) -> Iterator[Record]:
        """The records in the order of their offsets. :meth:`.Log.latest` has the costs."""
        return chain.from_iterable(self.record_lists())

    def record_lists(self) -> Iterator[list[Record]]:
        """The records in lists; no list is empty."""
        scan = _Scan(self._view, self.end_offset, self._isolation, self._newer_view)
        classes = deque([ALL_KEYS])
        while classes:
            keys = classes.popleft()
            table = _KeyTable(keys, self._seed, self._map_bytes, scan.stop - scan.start)
            reached = _fill(table, scan)
            if reached is None:
                yield from _latest_lists(table, scan)
            else:
                classes.extendleft(reversed(keys.divided(_part_count(scan, reached))))

    def iterate_arrow(
        self,
        *,
        columns: Iterable[str] | None = None,
        batch_rows: int = 16_384,
        batch_bytes: int = 4 * 1024 * 1024,
    ) -> pyarrow.RecordBatchReader:
        """The same records as columns of Apache Arrow; see :meth:`.Log.latest_arrow`."""
        from logstore.partition.reading import arrow  # pyarrow is optional, and slow to import

        plan = arrow.plan_columns(columns, batch_rows, batch_bytes, has_types=False)
        return arrow.reader_of(plan, arrow.columns_of_lists(self.record_lists(), plan))

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.partition} as of offset {self.end_offset}>"


# Passes -----------------------------------------------------------------------------------------------------


class _Scan:
    """Passes over the batches of a log below an offset. They leave out control batches and records of
    transactions that were aborted below that offset: compaction removes those too, at any isolation.

    For committed records the offset is the last stable offset. All transactions that began below it have
    ended, but a marker may lie above it, if a transaction that is still open began in between.
    """

    def __init__(self, view: LogView, stop: int, isolation: Isolation, newer_view: NewerView) -> None:
        self._newer_view = newer_view
        self._view = view
        self.start = view.log_start_offset
        self.stop = stop
        self._is_committed = isolation is Isolation.COMMITTED

    def runs(self, run: Any) -> Iterator[Any]:
        """The results of ``run`` for runs of ordinary batches, lists of records or nothing; and each other
        batch as a :class:`_Batch`. See :func:`~logstore.partition.reading.records.segment_runs`."""
        position = max(self.start, self._view.log_start_offset)  # it may have risen in an earlier pass
        while position < self.stop:
            view = self._view
            try:
                for made in self._runs_of_view(view, position, run):
                    if isinstance(made, FoundBatch):
                        yield _Batch(made, position, self.stop)
                        position = max(position, made.header.next_offset)
                    else:
                        position = made[-1].offset + 1
                        yield made
                return
            except (StorageError, CorruptionError) as error:
                self._view = self._newer_view(view, error)
                position = max(position, self._view.log_start_offset)

    def _runs_of_view(self, view: LogView, position: int, run: Any) -> Iterator[Any]:
        with TellingOfTruncation(view):
            found = aborted_transactions(view, position, self.stop)
            aborted = AbortedFilter(found if self._is_committed else found.below(self.stop))
            for number in range(view.floor(position), len(view.segments)):
                if view.bases[number] >= self.stop:
                    break
                for made in segment_runs(view, number, position, self.stop, aborted, run, None):
                    if view.was_truncated:
                        break
                    yield made
            if view.was_truncated:
                raise truncated_meanwhile()


class _Batch:
    """A checked batch: its records section as bytes, or its records if it is legacy or wanted in part."""

    __slots__ = ("_found", "_records", "_section", "header", "start")

    def __init__(self, found: FoundBatch, start: int, stop: int) -> None:
        """
        Raises:
            CorruptionError: its records do not decode; this is not always noticed here.
        """
        self._found = found
        self._records: list[Record] | None = None
        header = self.header = found.header
        self.start = max(start, start if ends_at_base(header) else header.base_offset)
        """Its first record has this offset or a later one."""
        self._section: Section | None = None
        """The uncompressed section with its begin and end, if all of it is wanted."""
        if header.magic == MAGIC and start <= header.base_offset and header.last_offset < stop:
            self._section = section_of(found.buffer, found.position, found.header)
        if self._section is None:
            self._records = found.decode_range(start, stop)

    @property
    def records(self) -> list[Record]:
        """All records."""
        if self._records is None:
            self._records = self._decode()
        return self._records

    def _decode(self) -> list[Record]:
        assert self._section is not None
        try:
            return decode_section(*self._section, self.header, self._found.partition)
        except CorruptionError:
            return self._found.decode()  # raises with what is wrong, and where

    def put_into(self, offset_map: OffsetMap) -> bool:
        """Put all keys into the map; False if it has no room for them."""
        if self._section is None:
            return _put(self.records, offset_map)
        header = self.header
        try:
            taken = offset_map.put_section(
                *self._section, header.record_count, header.base_offset, header.last_offset_delta
            )
        except CorruptionError:
            return _put(self._found.decode(), offset_map)
        return taken == header.record_count

    def classify(self, offset_map: OffsetMap) -> bytes:
        """The standing of each record."""
        if self._section is None:
            return offset_map.classify(self.records)
        header = self.header
        try:
            return offset_map.classify_section(
                *self._section, header.record_count, header.base_offset, header.last_offset_delta
            )
        except CorruptionError:
            return offset_map.classify(self._found.decode())


def _put(records: list[Record], offset_map: OffsetMap) -> bool:
    keys, offsets = [record.key for record in records], [record.offset for record in records]
    return offset_map.put_keys(keys, offsets) == len(records)


# The latest offsets -----------------------------------------------------------------------------------------


class _KeyTable:
    """The latest offset of each key of a class.

    It is a chain of maps, each larger than the one before, so that few keys take little memory. When a map is
    full, the next takes over with the batch that did not fit. A record is superseded if any of them says so.
    """

    def __init__(self, keys: KeyClass, seed: bytes, limit_bytes: int, most_keys: int) -> None:
        """``most_keys``: the number of offsets in the log; it cannot have more keys.

        Offsets that may be far apart need maps without a window: dividing the keys into classes does not help
        where a window ends.
        """
        self._has_window = most_keys <= WINDOW
        self._keys = keys
        self._seed = seed
        self._left_bytes = limit_bytes
        self._next_bytes = _FIRST_MAP_BYTES if keys == ALL_KEYS else limit_bytes
        self._maps: list[OffsetMap] = []
        self._add_map(most_keys)

    def _add_map(self, most_keys: int) -> bool:
        left = self._left_bytes
        if left < LEAST_MAP_BYTES:
            return False
        size = left if left < 2 * self._next_bytes else self._next_bytes
        size = min(size, max(bytes_for(most_keys, has_window=self._has_window), LEAST_MAP_BYTES))
        self._maps.append(OffsetMap(size, self._seed, self._keys, has_window=self._has_window))
        self._left_bytes -= size
        self._next_bytes = size * _GROWTH
        return True

    def put(self, batch: _Batch, most_keys: int) -> bool:
        """Take in a batch; at most ``most_keys`` keys follow from here on. False if the memory is full."""
        while not batch.put_into(self._maps[-1]):
            if not self._add_map(most_keys):
                return False
        return True

    @property
    def put_run(self) -> Any:
        """Like :meth:`put`, for a run of batches, as far as there is room. None if it must be one by one."""
        return self._put_run if put_run is not None and self._has_window else None

    def _put_run(self, *arguments: Any) -> Any:
        return put_run(*arguments[:-2], self._maps[-1].table)

    def finish(self, end_offset: int) -> None:
        """Note that everything below this offset was put."""
        self._maps[-1].advance_to(max(end_offset - 1, 0))

    def classify(self, batch: _Batch) -> bytes:
        """The standing of each record. Call it for batches in the order in which they were put."""
        self._drop_below(batch.header.base_offset)
        standings = [batch.classify(offset_map) for offset_map in self._maps]
        if len(standings) == 1:
            return standings[0]
        return bytes(map(min, zip(*standings, strict=True)))  # superseded is least, beyond a map is most

    @property
    def latest_run(self) -> Any:
        """Finds the records of a run that are the latest of their keys. None if it must be one by one."""
        return self._latest_run if latest_run is not None and self._has_window else None

    def _latest_run(self, *arguments: Any) -> Any:
        previous_last: int = arguments[2]
        self._drop_below(previous_last + 1)
        tables = [offset_map.table for offset_map in self._maps]
        return latest_run(*arguments[:-2], tables, arguments[-1])

    def _drop_below(self, offset: int) -> None:
        """Free the maps that know nothing at or above this offset."""
        while len(self._maps) > 1 and self._maps[0].latest_offset < offset:
            del self._maps[0]


def _fill(table: _KeyTable, scan: _Scan) -> int | None:
    """Put all keys into the table. Returns None, or the offset it reached when the table was full."""
    for batch in scan.runs(table.put_run):
        if not table.put(batch, scan.stop - batch.start):
            start: int = batch.start
            return start
    table.finish(scan.stop)
    return None


def _latest_lists(table: _KeyTable, scan: _Scan) -> Iterator[list[Record]]:
    for found in scan.runs(table.latest_run):
        if not isinstance(found, _Batch):
            yield found
        elif Standing.LATEST in (standings := table.classify(found)):
            yield list(compress(found.records, standings.translate(_IS_LATEST)))


def _part_count(scan: _Scan, reached: int) -> int:
    """Into how many classes to divide the keys, if the memory held those below ``reached``: assumes that the
    rest of the log has new keys at the same rate. A class that is still too large is divided again."""
    seen, left = max(reached - scan.start, 1), scan.stop - reached
    return min(max(-(-left * 11 // (seen * 10)) + 1, 2), _MOST_PARTS)
