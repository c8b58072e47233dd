"""The little language of the tests about a log's rules: open, append, read back, and count or break its disk
operations."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from logstore.config import StoreConfig, TopicConfig
from logstore.errors import storage_error
from logstore.files import File, Files, OsFiles
from logstore.format.batch import decode_batch, encode_batch
from logstore.format.header import BatchHeader
from logstore.format.loops import scan_batches
from logstore.model import Isolation, ProducerIdentity, Record
from logstore.partition.encoding.adopting import check_adopted, place_adopted
from logstore.partition.log import Log
from logstore.partition.reading.records import iterate_batches
from logstore.testing import ManualClock

START_MS = 1_700_000_000_000
"""The time of a new :class:`ManualClock`."""

ADOPTED_PRODUCER = 2**62 + 5

_STORE_SETTINGS = {
    "linger_ms",
    "batch_bytes",
    "batch_cache_bytes",
    "producer_id_expiration_ms",
    "max_open_segments",
}

_opened: list[Log] = []


def open_log(path: Any, *, clock: Any = None, files: Files | None = None, **settings: Any) -> Log:
    """A standalone log; takes settings of the topic and of the store by name."""
    store = {name: value for name, value in settings.items() if name in _STORE_SETTINGS}
    topic = {name: value for name, value in settings.items() if name not in _STORE_SETTINGS}
    log = Log.open(
        str(path),
        config=TopicConfig(**topic),
        store_config=StoreConfig(**store),
        files=files,
        clock=ManualClock() if clock is None else clock,
    )
    _opened.append(log)
    return log


def let_go_of_all() -> None:
    """Release every log of the test, as the death of the process would."""
    while _opened:
        crash(_opened[-1])


def crash(log: Log) -> None:
    """Let the process die: what it wrote stays, what it had in memory is lost."""
    log.abandon()
    log._context.scheduler.stop()
    log._context.home.release()
    log.writer.core.forget_files()
    if log in _opened:
        _opened.remove(log)


def run_background(log: Log) -> int:
    """Run what is due by the log's clock."""
    return log._context.scheduler.run_due()


def check_gone_after(log: Log, delay_ms: int) -> None:
    """Files that were renamed to be removed are there until then."""
    log._context.clock.advance(delay_ms - 1)
    run_background(log)
    assert names_in(log, "*.deleted")
    log._context.clock.advance(1)
    run_background(log)
    assert names_in(log, "*.deleted") == []


# Records ----------------------------------------------------------------------------------------------------


def values_of(log: Log, start: int | None = None, **options: Any) -> list[bytes | None]:
    return [record.value for record in log.read(start, **options)]


def offsets_of(log: Log, start: int | None = None, **options: Any) -> list[int]:
    return [record.offset for record in log.read(start, **options)]


def all_of(log: Log) -> list[Record]:
    return list(log.read(isolation=Isolation.LOG_END))


def add(log: Log, *values: bytes, **options: Any) -> range:
    """Append one batch."""
    return log.extend(values, **options)


def add_batches(log: Log, count: int, *, size_bytes: int = 10) -> None:
    """Append ``count`` batches of one record; the value is its offset."""
    for _ in range(count):
        log.extend([b"%d" % log.log_end_offset + b"." * size_bytes])


def add_segments(log: Log, count: int, *, size_bytes: int = 10) -> None:
    """Append ``count`` sealed segments of one record each; leaves an empty active one."""
    for _ in range(count):
        add_batches(log, 1, size_bytes=size_bytes)
        log.roll()


def batch(
    *values: bytes | None,
    base_offset: int = 0,
    timestamp_ms: Any = START_MS,
    key: bytes = b"k",
    **fields: Any,
) -> bytearray:
    """An encoded batch, as a client or a leader sends it."""
    keys = [key] * len(values)
    return encode_batch(keys, values, timestamp_ms, base_offset=base_offset, **fields)


def identity(sequence: int, *, producer: int = 7, epoch: int = 0, transactional: bool = False) -> Any:
    return ProducerIdentity(producer, epoch, sequence, transactional)


def placed(
    *batches: Any,
    producer: int = ADOPTED_PRODUCER,
    base_offset: int = 0,
    sequence: int = 0,
    epoch: int = 0,
    leader_epoch: int = 0,
) -> tuple[bytes, Sequence[BatchHeader]]:
    """Batches at places in a log, as one piece, and their headers."""
    (planned,) = place_adopted(
        batches,
        check_adopted(batches, TopicConfig(), START_MS),
        config=TopicConfig(),
        producer=identity(sequence, producer=producer, epoch=epoch),
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        now_ms=START_MS,
    )
    return b"".join(planned.buffers), planned.headers


def write_placed(
    path: Any, *batches: Any, files: Files | None = None, **places: int
) -> Sequence[BatchHeader]:
    """A durable file of batches at places in a log; returns their headers."""
    files = files or OsFiles()
    data, headers = placed(*batches, **places)
    file = files.open(str(path), create=True)
    file.write_at(0, [data])
    file.flush()
    file.close()
    files.flush_directory(str(path).rpartition("/")[0])
    return headers


def headers_of(log: Log) -> list[BatchHeader]:
    """The batches on disk."""
    view = log._current_view()
    return [found.header for found in iterate_batches(view, view.log_start_offset, view.log_end_offset)]


def stored_bytes(log: Log, base_offset: int = 0) -> bytes:
    log._current_view()  # writes what is gathered
    return Path(log.directory, f"{base_offset:020}.log").read_bytes()


def decode_all(data: bytes) -> list[Record]:
    batches, _, fault = scan_batches(data, 0, len(data), check=True)
    assert fault is None
    return [record for position, header in batches for record in decode_batch(data, position, header)]


def bases_of(log: Log) -> list[int]:
    return list(log._current_view().bases)


def names_in(log: Log, pattern: str = "*") -> list[str]:
    return sorted(path.name for path in Path(log.directory).glob(pattern))


# Disks ------------------------------------------------------------------------------------------------------


class WatchedFile:
    """A file that tells its :class:`WatchedFiles` what is done to it."""

    def __init__(self, files: WatchedFiles, file: File) -> None:
        self._files = files
        self._file = file
        self.path = file.path

    def write_at(self, position: int, buffers: Sequence[Any]) -> None:
        self._files.on("write", self.path)
        self._file.write_at(position, buffers)

    def truncate(self, size_bytes: int) -> None:
        self._files.on("truncate", self.path)
        self._file.truncate(size_bytes)

    def flush(self) -> None:
        self._files.on("flush", self.path)
        self._file.flush()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class WatchedFiles(OsFiles):
    """The machine's disk; counts every change, and refuses it while ``fault`` says so."""

    def __init__(self) -> None:
        self.operations: list[tuple[str, str]] = []
        self.fault: Callable[[str, str], int | None] = lambda operation, path: None
        self.before: Callable[[str, str], None] = lambda operation, path: None

    def on(self, operation: str, path: str) -> None:
        self.before(operation, path)
        self.refuse_if_faulty(operation, path)
        self.operations.append((operation, path.rpartition("/")[2]))

    def refuse_if_faulty(self, operation: str, path: str) -> None:
        code = self.fault(operation, path)
        if code is not None:
            raise storage_error(OSError(code, "refused by the test"), path, operation)

    def count(self, operation: str, suffix: str = "") -> int:
        return sum(op == operation and name.endswith(suffix) for op, name in self.operations)

    def open(self, path: str, *, write: bool = False, create: bool = False) -> Any:
        if create and not self.is_file(path):
            self.on("create", path)
        elif write:
            self.refuse_if_faulty("open", path)
        return WatchedFile(self, super().open(path, write=write, create=create))

    def rename(self, old: str, new: str) -> None:
        self.on("rename", old)
        super().rename(old, new)

    def link(self, path: str, new: str) -> None:
        self.on("link", path)
        super().link(path, new)

    def remove(self, path: str) -> None:
        self.on("remove", path)
        super().remove(path)

    def flush_directory(self, path: str) -> None:
        self.on("flush_directory", path)
        super().flush_directory(path)

    # Faults

    def fill(self) -> None:
        """Fill the disk: nothing can be written or created; removing and renaming work."""
        self.fault = lambda operation, path: errno.ENOSPC if operation in ("write", "create") else None

    def refuse(self, operation: str, suffix: str = "", code: int = errno.EIO) -> None:
        self.fault = lambda op, path: code if op == operation and path.endswith(suffix) else None

    def heal(self) -> None:
        self.fault = lambda operation, path: None
