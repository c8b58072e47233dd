"""Which contenders are measured in which figure. One that is not installed is left out; the report says
so."""

from __future__ import annotations

from benchmarks.contenders import (
    AIOKAFKA,
    ARROW,
    ARROW_ROWS,
    CODECS,
    COLUMNS,
    FILE,
    GATHERING,
    KAFKA_PYTHON,
    LIMIT,
    LMDB,
    LOGSTORE,
    ON_DEMAND,
    PLAIN,
    ROCKSDICT,
    ROCKSDICT_ZSTD,
    SQLITE,
    SQLITE_TIME,
)
from benchmarks.figures import (
    APPEND,
    DURABLE,
    LARGE_SEQUENTIAL,
    ONE_THREAD,
    OPEN,
    RANDOM,
    RECOVERY,
    SEQUENTIAL,
    THREADS,
    TIME,
)
from benchmarks.records import JSON, LARGE, SMALL

ENCODE = "encode"
DECODE = "decode"
SCAN = "scan"
MAP = "map"

DICT = "dict"
"""In :data:`MAP` only: Python's own."""

_STORES = (LOGSTORE, PLAIN, SQLITE, LMDB, ROCKSDICT, AIOKAFKA, KAFKA_PYTHON, FILE, LIMIT)
_QUICK_STORES = tuple(name for name in _STORES if name not in (PLAIN, KAFKA_PYTHON))
_COLUMNS = (COLUMNS, ARROW)
_MANY = 1_000
_SOME = 100
MANY_COLUMNS = 10_000
"""Rows of a table when columns are appended: tables of a thousand rows are not usual."""

APPENDERS: dict[tuple[str, int], tuple[str, ...]] = {
    (SMALL, 1): (GATHERING, *_STORES),
    (SMALL, _SOME): (*_STORES, SQLITE_TIME),
    (SMALL, _MANY): (*_STORES, *_COLUMNS, ARROW_ROWS),
    (SMALL, MANY_COLUMNS): (LOGSTORE, LIMIT, *_COLUMNS),
    (LARGE, 1): _QUICK_STORES,
    (LARGE, _SOME): _QUICK_STORES,
    (LARGE, _MANY): (*_QUICK_STORES, *_COLUMNS),
    (JSON, _MANY): (LOGSTORE, *CODECS, SQLITE, LMDB, ROCKSDICT, ROCKSDICT_ZSTD),
}
"""By data and records per batch."""

_ONLY_APPEND = (GATHERING, SQLITE_TIME)
_SINGLE_READERS = (LOGSTORE, PLAIN, SQLITE, LMDB, ROCKSDICT, FILE)
_TIME_READERS = (LOGSTORE, PLAIN, SQLITE_TIME)
FLUSHERS = (LOGSTORE, PLAIN, SQLITE, LMDB, ROCKSDICT, AIOKAFKA, FILE, LIMIT)
THREADED = (LOGSTORE, SQLITE)
RECOVERED = (LOGSTORE, PLAIN, SQLITE, LMDB, ROCKSDICT, FILE)

RECOVERED_BATCH_RECORDS = _MANY
"""The batch size of the logs that are opened and recovered."""


def readers(figure: str, data: str, batch_records: int) -> tuple[str, ...]:
    """The contenders that read records appended in these batches."""
    if batch_records == MANY_COLUMNS:
        return ()  # stored, they are the same batches again
    if figure == SEQUENTIAL:
        names = tuple(name for name in APPENDERS[data, batch_records] if name not in _ONLY_APPEND)
        return names if data == JSON or batch_records == 1 else (ON_DEMAND, *names)
    if figure == RANDOM and data == SMALL:
        return _SINGLE_READERS
    if figure == TIME and (data, batch_records) == (SMALL, _SOME):
        return _TIME_READERS
    if figure == OPEN and (data, batch_records) == (SMALL, RECOVERED_BATCH_RECORDS):
        return _SINGLE_READERS
    return ()


LARGE_BATCH_RECORDS = _MANY
LARGE_READERS = {LOGSTORE: LOGSTORE, COLUMNS: LOGSTORE, ARROW: ARROW, AIOKAFKA: AIOKAFKA, LIMIT: LIMIT}
"""The contenders that read a large log in order, and whose log: logstore's rows and columns are the same
bytes."""

CODECS_COMPARED = {
    ENCODE: (LOGSTORE, PLAIN, AIOKAFKA, KAFKA_PYTHON),
    DECODE: (LOGSTORE, PLAIN, ON_DEMAND, AIOKAFKA, KAFKA_PYTHON),
}
SCANNERS = (LOGSTORE, PLAIN, AIOKAFKA, KAFKA_PYTHON, LIMIT)
MAPPED = (LOGSTORE, DICT)

STORED_FIGURES = (APPEND, SEQUENTIAL, RANDOM, TIME, OPEN)
"""Of one store, which the first of them fills."""
FLUSHED_FIGURES = (DURABLE, ONE_THREAD, THREADS)
BARE_FIGURES = (ENCODE, DECODE, SCAN, MAP)
"""Of functions of the format layer, without a store."""
RACED_FIGURES = (*STORED_FIGURES, LARGE_SEQUENTIAL, *FLUSHED_FIGURES, RECOVERY, *BARE_FIGURES)
