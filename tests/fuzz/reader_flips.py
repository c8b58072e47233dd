"""Every bit of a log's segments changed in turn, under each kind of reader.

The store lies in memory as a process has left it: closed, or killed. For each change it is opened twice, once
for writing, as recovery leaves it, and once for reading only; and a reader that was there before the change
goes on. Held against each other, record by record:

* no record is wrong, whoever gives it; but for a base offset that moves within a gap that compaction left,
  which nothing contradicts: such changes are counted apart;
* where damage is met there is an error, and no end: what recovery cuts off above the recovery point is what
  no new reader shows either;
* whoever opened the log after the change shows the records that its writer shows, and an error where the
  writer has one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import CorruptionError
from logstore.format.header import decode_header
from logstore.model import Isolation, ProducerIdentity
from logstore.partition.state.context import make_context
from logstore.partition.watching.pinned import PinnedReader
from logstore.testing import ManualClock, MemoryFiles
from tests.fuzz.flips import EPOCH

PATH = "/store"
DIRECTORY = f"{PATH}/t-0"
STORE_CONFIG = StoreConfig(linger_ms=0, batch_cache_bytes=0)
TEXT = b"a sentence that is said again and again, with number %d in it; "
UNCOVERED = range(16)
"""Of a batch: the bytes of its base offset, size and leader epoch, which no checksum covers."""

REFUSED = "refused"
"""Whoever asks gets CorruptionError."""


def open_store(files: MemoryFiles, *, read_only: bool = False) -> Any:
    clock = ManualClock()
    return logstore.open(PATH, read_only=read_only, config=STORE_CONFIG, files=files, clock=clock)


class Writer:
    """Writes the log that is to be damaged."""

    def __init__(self, **config: Any) -> None:
        self.files = MemoryFiles()
        self.store = open_store(self.files)
        config.setdefault("index_interval_bytes", 4096)
        self.log = self.store.create_topic("t", config=TopicConfig(retention_ms=-1, **config))[0]
        self.log.assign_leader_epoch(3)
        self.count = 0

    def write(self, size_bytes: int, *, rows: int = 8, repeat: int = 8, **options: Any) -> None:
        end = self.log.size_bytes + size_bytes
        while self.log.size_bytes < end:
            numbers = range(self.count, self.count + rows)
            self.log.extend([(b"k%d" % (n % 16), TEXT % n * repeat) for n in numbers], **options)
            self.count += rows

    def left(self, *, is_closed: bool, isolation: Isolation = Isolation.HIGH_WATERMARK) -> Target:
        """The store, closed or as a kill leaves it."""
        records = list(self.log.read(isolation=isolation))
        self.store.close() if is_closed else self.store._directory.abandon()
        return Target(self.files.now(), records, is_closed, isolation)


def closed(size_bytes: int) -> Target:
    writer = Writer()
    writer.write(size_bytes)
    return writer.left(is_closed=True)


def killed(size_bytes: int) -> Target:
    writer = Writer()
    writer.write(size_bytes // 2)
    writer.log.checkpoint()
    writer.write(size_bytes // 2)
    return writer.left(is_closed=False)


def segments(size_bytes: int) -> Target:
    writer = Writer(segment_bytes=max(size_bytes // 4, 8192))
    writer.write(size_bytes)
    return writer.left(is_closed=True)


def killed_segments(size_bytes: int) -> Target:
    """The recovery point lies in the second of four."""
    writer = Writer(segment_bytes=max(size_bytes // 4, 8192))
    writer.write(size_bytes * 3 // 8)
    writer.log.checkpoint()
    writer.write(size_bytes * 5 // 8)
    return writer.left(is_closed=False)


def compacted(size_bytes: int) -> Target:
    writer = Writer(cleanup_policy="compact", segment_bytes=max(size_bytes // 4, 8192))
    writer.write(size_bytes)
    writer.log.compact(now=True)
    writer.write(size_bytes // 4)
    return writer.left(is_closed=True)


def transactions(size_bytes: int) -> Target:
    """Every third one is aborted; two producers take turns."""
    writer, sequences = Writer(), Counter[int]()
    number = 0
    while writer.log.size_bytes < size_bytes:
        producer = 7 + number % 2
        who = ProducerIdentity(producer, 0, sequences[producer], transactional=True)
        before = writer.count
        writer.write(1, producer=who)
        sequences[producer] += writer.count - before
        writer.log.append_end_marker(producer, 0, committed=number % 3 != 0)
        number += 1
        if writer.log.size_bytes > size_bytes // 2 and number % 8 == 0:
            writer.log.checkpoint()
    return writer.left(is_closed=True, isolation=Isolation.COMMITTED)


SHAPES: dict[str, Callable[[int], Target]] = {
    "closed": closed,
    "killed": killed,
    "segments": segments,
    "killed segments": killed_segments,
    "compacted": compacted,
    "transactions": transactions,
}


class Batch(NamedTuple):
    path: str
    inode: int
    position: int
    size_bytes: int
    base_offset: int
    next_offset: int
    is_last: bool
    """Of its segment."""


class Target:
    """A store on a disk in memory, what its log holds, and where."""

    def __init__(self, image: Any, records: list[Any], is_closed: bool, isolation: Isolation) -> None:
        self.image = image
        self.records = records
        self.by_offset = {record.offset: record for record in records}
        self.is_closed = is_closed
        self.isolation = isolation
        self.batches = list(self._batches())
        with open_store(MemoryFiles(image), read_only=True) as store:
            view = store["t"][0]._current_view()
            self.start, self.end, self.recovery_point = (
                view.log_start_offset,
                view.log_end_offset,
                view.durable_offset,
            )

    def _batches(self) -> Iterator[Batch]:
        files = MemoryFiles(self.image)
        for path in sorted(path for path in self.image.paths() if path.endswith(".log")):
            inode = files.stamp(path).number
            data, position = self.image.files[inode], 0
            while position < len(data):
                header = decode_header(data, position)
                size = header.size_bytes
                is_last = position + size == len(data)
                yield Batch(path, inode, position, size, header.base_offset, header.next_offset, is_last)
                position += size

    @property
    def size_bytes(self) -> int:
        return sum(batch.size_bytes for batch in self.batches)

    def disk(self, batch: Batch, place: int, bit: int) -> MemoryFiles:
        """The store with one bit of a batch changed."""
        files = MemoryFiles(self.image)
        flip(files, batch, place, bit)
        return files


def flip(files: MemoryFiles, batch: Batch, place: int, bit: int) -> None:
    files.changeable(batch.inode)[batch.position + place] ^= 1 << bit


# Readers ----------------------------------------------------------------------------------------------------


class Stream(NamedTuple):
    """What one way of reading all has given, and how it ended."""

    records: list[tuple[int, bytes]]
    has_error: bool


def stream(read: Callable[[], Iterator[tuple[int, bytes]]]) -> Stream:
    found: list[tuple[int, bytes]] = []
    try:
        for each in read():
            found.append(each)
    except CorruptionError as error:
        return Stream(found, error.path is not None)  # an error that does not say where counts for nothing
    return Stream(found, False)


def plain(records: Any) -> Iterator[tuple[int, bytes]]:
    return ((record.offset, record.value) for record in records)


def arrow_rows(batches: Any) -> Iterator[tuple[int, bytes]]:
    for batch in batches:
        yield from zip(batch.column(0).to_pylist(), batch.column(1).to_pylist(), strict=True)


COLUMNS = ("offset", "value")


def ways(target: Target, log: Any) -> dict[str, Callable[[], Iterator[tuple[int, bytes]]]]:
    isolation = target.isolation
    return {
        "read": lambda: plain(log.read(isolation=isolation)),
        "arrow": lambda: arrow_rows(log.iterate_arrow(isolation=isolation, columns=COLUMNS)),
        "follow": lambda: plain(log.follow(log.log_start_offset, timeout=0, isolation=isolation)),
    }


def pinned_rows(target: Target, log: Any, files: MemoryFiles) -> Iterator[tuple[int, bytes]]:
    """By way of a pinned range."""
    from logstore.partition.reading import arrow

    def pin(start: int) -> Any:
        offsets = log.readable_offsets(target.isolation)
        return log.pin(start, offsets.stop, isolation=target.isolation)

    context = make_context(PATH, config=STORE_CONFIG, files=files, clock=ManualClock())
    reader = PinnedReader(pin(log.log_start_offset), context, pin)
    return arrow_rows(reader.columns(arrow.plan_columns(COLUMNS, 1000, 1 << 20)))


def by_offset(target: Target, log: Any) -> list[Any]:
    """For each offset the record, None or :data:`REFUSED`; beyond the log's end nothing."""
    try:
        offsets = log.readable_offsets(target.isolation)
    except CorruptionError:
        return [REFUSED] * (target.end - target.start)
    found: list[Any] = []
    for offset in offsets:
        try:
            record = log.record_at(offset, isolation=target.isolation)
            found.append(None if record is None else (record.offset, record.value))
        except CorruptionError:
            found.append(REFUSED)
    return found


# Holding them against each other ----------------------------------------------------------------------------


class Tally(Counter[str]):
    """How many changes were tried, how many looks were taken, and how they ended."""


def check_flip(
    target: Target, batch: Batch, place: int, bit: int, tally: Tally, *, thorough: bool = True
) -> None:
    """One change, all readers.

    Raises:
        AssertionError: a wrong record, a silent end, or readers that do not agree.
    """
    what = f"bit {bit} of byte {place} of the batch at {batch.position} of {batch.path}"
    tally["changes"] += 1
    if moves_in_gap(target, batch, place, bit):
        tally["within gaps"] += 1
        return
    expected = [(record.offset, record.value) for record in target.records]
    writer = _of_writer(target, batch, place, bit, thorough)
    files = target.disk(batch, place, bit)
    with open_store(files, read_only=True) as store:
        log = store["t"][0]
        seen = {name: stream(read) for name, read in ways(target, log).items()}
        seen["pinned"] = stream(lambda: pinned_rows(target, log, files))
        offsets = by_offset(target, log) if thorough else None
    for name, found in {**{f"writer's {n}": f for n, f in writer.streams.items()}, **seen}.items():
        tally["looks"] += 1
        check_stream(target, batch, place, found, expected, f"{what}: {name}", tally)
    for name, found in seen.items():
        theirs = writer.streams.get(name, writer.streams["read"])
        _check_same(target, batch, found, theirs, f"{what}: {name}")
    if offsets is not None:
        tally["looks"] += len(offsets)
        _check_offsets(target, batch, writer.offsets, offsets, what)


def moves_in_gap(target: Target, batch: Batch, place: int, bit: int) -> bool:
    """Whether a change gives a batch another base offset that its neighbours and its segment allow."""
    if place >= 8:
        return False
    number = target.batches.index(batch)
    moved = batch.base_offset ^ 1 << (8 * (7 - place) + bit)
    before = target.batches[number - 1].next_offset if number else target.start
    following = target.batches[number + 1 :][:1]
    behind = min((base_of(each.path) if batch.is_last else each.base_offset for each in following), default=0)
    least = max(before, base_of(batch.path))
    return least <= moved and moved + batch.next_offset - batch.base_offset <= behind


def base_of(path: str) -> int:
    return int(path.rpartition("/")[2].partition(".")[0])


class Seen(NamedTuple):
    streams: dict[str, Stream]
    offsets: list[Any] | None


def _of_writer(target: Target, batch: Batch, place: int, bit: int, thorough: bool) -> Seen:
    store = open_store(target.disk(batch, place, bit))
    try:
        log = store["t"][0]
    except CorruptionError:
        refused = Stream([], True)
        wrong = [REFUSED] * (target.end - target.start)
        return Seen({"read": refused, "arrow": refused, "follow": refused}, wrong)
    else:
        streams = {name: stream(read) for name, read in ways(target, log).items()}
        return Seen(streams, by_offset(target, log) if thorough else None)
    finally:
        store._directory.abandon()


def check_stream(
    target: Target, batch: Batch, place: int, found: Stream, expected: list[Any], what: str, tally: Tally
) -> None:
    """Right records, and an error or all of them; above the recovery point of a log that was not closed also
    those in front of the damaged batch."""
    assert found.records == expected[: len(found.records)], f"{what}: a wrong record"
    if found.has_error:
        tally["errors"] += 1
    elif len(found.records) < len(expected):
        last = found.records[-1][0] if found.records else target.start - 1
        is_cut = not target.is_closed and batch.base_offset >= target.recovery_point
        assert is_cut, f"{what}: ends silently behind offset {last}"
        assert last + 1 >= batch.base_offset, f"{what}: ends silently behind offset {last}"
        tally["cut"] += 1
    else:
        tally["whole"] += 1


def _check_same(target: Target, batch: Batch, found: Stream, theirs: Stream, what: str) -> None:
    if _may_differ(target, batch):
        return
    assert found == theirs, f"{what}: {_shown(found)}, and the writer {_shown(theirs)}"


def _may_differ(target: Target, batch: Batch) -> bool:
    """Damage above the recovery point with segments behind it. Recovery takes those out of the log; a reader,
    who does not know that the writer is dead, has an error there and goes on behind."""
    is_above = not target.is_closed and batch.next_offset > target.recovery_point
    return is_above and batch.path != target.batches[-1].path


def _shown(found: Stream) -> str:
    return f"gives {len(found.records)} records and {'an error' if found.has_error else 'the end'}"


def _check_offsets(target: Target, batch: Batch, writer: Any, reader: Any, what: str) -> None:
    for number, found in enumerate(reader):
        offset = target.start + number
        record = target.by_offset.get(offset)
        right = None if record is None else (offset, record.value)
        assert found in (REFUSED, right), f"{what}: record_at({offset}) is wrong"
    if not _may_differ(target, batch):
        differing = [
            n + target.start for n, pair in enumerate(zip(writer, reader, strict=False)) if pair[0] != pair[1]
        ]
        assert len(writer) == len(reader), f"{what}: ends at other offsets"
        assert not differing, f"{what}: record_at differs at {differing[:5]}"


def check_under_reader(target: Target, batches: list[tuple[Batch, int, int]], tally: Tally) -> None:
    """Changes under a reader that is there already, which is told of each by the file's time, and is not."""
    files = MemoryFiles(target.image)
    expected = [(record.offset, record.value) for record in target.records]
    with open_store(files, read_only=True) as store:
        log = store["t"][0]
        for batch, place, bit in batches:
            if moves_in_gap(target, batch, place, bit):
                continue
            flip(files, batch, place, bit)
            tally["changes"] += 1
            for is_noticed in (False, True):
                if is_noticed:
                    files.touch(batch.inode)
                for name, read in ways(target, log).items():
                    tally["looks"] += 1
                    what = f"bit {bit} of byte {place} of the batch at {batch.position}, under {name}"
                    check_stream(target, batch, place, stream(read), expected, what, tally)
            flip(files, batch, place, bit)
            files.touch(batch.inode)


def places(target: Target, *, step: int, offset: int = 0) -> Iterator[tuple[Batch, int, int]]:
    """Every ``step``-th bit of the log, from one on."""
    number = offset
    for batch in target.batches:
        while number < batch.size_bytes * 8:
            yield batch, number // 8, number % 8
            number += step
        number -= batch.size_bytes * 8


def uncovered(target: Target, *, step: int = 1, offset: int = 0) -> Iterator[tuple[Batch, int, int]]:
    """Bits that no checksum covers and a reader depends on: of base offsets and sizes."""
    number = 0
    for batch in target.batches:
        for place in UNCOVERED:
            for bit in range(8):
                number += 1
                if place not in EPOCH and number % step == offset % step:
                    yield batch, place, bit
