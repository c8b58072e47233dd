"""The goals of logstore beside its results. The goals are defined here; the results are always computed from
a run, never typed.

Ratios within one run on one machine also hold on other machines, so goals are ratios where possible: *must*
has to hold, *aim* is the direction of work.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from benchmarks.alone import IMPORT, LARGE, LARGE_RECOVERY
from benchmarks.contenders import (
    AIOKAFKA,
    COLUMNS,
    FILE,
    GATHERING,
    LIMIT,
    LMDB,
    LOGSTORE,
    ON_DEMAND,
    PLAIN,
    SQLITE,
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
    Case,
)
from benchmarks.maps import KEY_BATCH
from benchmarks.plan import DECODE, DICT, ENCODE, LARGE_BATCH_RECORDS, MANY_COLUMNS, MAP, SCAN
from benchmarks.records import JSON, SMALL
from benchmarks.results import Results, Spread
from benchmarks.scans import BATCH_RECORDS
from benchmarks.text import format_bytes, format_rate, format_ratio, format_seconds, format_table

Measure = Callable[[Results], Spread | None]

CRC_FACT = "crc32c"
"""The machine's fact that names the checksum's kernel."""
_WIDE_KERNEL = "vpclmulqdq"


class Goal(NamedTuple):
    """One line of the table."""

    title: str
    must: float | None
    aim: float | None
    measure: Measure
    show: Callable[[float], str] = format_ratio
    is_ceiling: bool = False
    """Whether less is better."""

    def verdict(self, measured: float | None) -> str:
        if measured is None:
            return "not measured"
        if self.aim is not None and self._reaches(measured, self.aim):
            return "aim met"
        if self.must is None:
            return "aim not met"
        return "met" if self._reaches(measured, self.must) else "**missed**"

    def _reaches(self, measured: float, wanted: float) -> bool:
        return measured <= wanted if self.is_ceiling else measured >= wanted


def _ratio(figure: str, other: str, *, batch: int, ours: str = LOGSTORE, data: str = SMALL) -> Measure:
    case = Case(figure, ours, batch, data)
    return lambda results: results.ratio(case, case._replace(contender=other))


def _columns_to_rows(batch: int) -> Measure:
    return _ratio(APPEND, LOGSTORE, batch=batch, ours=COLUMNS)


def _large_columns_to(other: str) -> Measure:
    return _ratio(LARGE_SEQUENTIAL, other, batch=LARGE_BATCH_RECORDS, ours=COLUMNS)


def _mean(figure: str, ours: str, other: str = AIOKAFKA) -> Measure:
    return lambda results: results.mean_ratio(figure, ours, other)


def _worst(figure: str) -> Measure:
    return lambda results: results.worst_ratio(figure, LOGSTORE, AIOKAFKA)


def _single_rate(results: Results) -> Spread | None:
    found = results.summaries().get(Case(APPEND, GATHERING, 1))
    return found.rate if found else None


def _threads(results: Results) -> Spread | None:
    return results.ratio(Case(THREADS, LOGSTORE, 1), Case(ONE_THREAD, LOGSTORE, 1))


def _json_bytes(results: Results) -> Spread | None:
    summaries = results.summaries()
    stored = [summaries.get(Case(APPEND, name, 1_000, JSON)) for name in ("logstore-zstd", SQLITE)]
    ours, theirs = stored
    if ours is None or theirs is None:
        return None
    ratio = ours.stored_bytes / theirs.stored_bytes
    return Spread(ratio, ratio, ratio)


_STORE_FIGURES = (APPEND, DURABLE, THREADS, SEQUENTIAL, LARGE_SEQUENTIAL, RANDOM, OPEN, RECOVERY)


def _memory(results: Results) -> Spread | None:
    """The largest of all figures of a store, of reading the large log and of recovering one."""
    found = [
        summary.memory_bytes
        for case, summary in results.summaries().items()
        if case.contender == LOGSTORE and case.figure in _STORE_FIGURES
    ]
    for name in (LARGE, LARGE_RECOVERY):
        found += results.values_of(name, "memory_over_idle_bytes")
    return Spread(max(found), min(found), max(found)) if found else None


def _import_time(name: str) -> Measure:
    def measure(results: Results) -> Spread | None:
        seconds = results.values_of(IMPORT, name)
        return Spread.of(seconds) if seconds else None

    return measure


_MAP = Case(MAP, LOGSTORE, KEY_BATCH)


def _key_bytes(results: Results) -> Spread | None:
    found = results.summaries().get(_MAP)
    return Spread.of([found.stored_bytes / found.per_round]) if found else None


def _key_seconds(results: Results) -> Spread | None:
    found = results.summaries().get(_MAP)
    if found is None:
        return None
    return Spread(1 / found.rate.median, 1 / found.rate.high, 1 / found.rate.low)


def _format_key_bytes(size: float) -> str:
    return f"{size:.1f} bytes"


def _format_nanoseconds(seconds: float) -> str:
    return f"{seconds * 1e9:.0f} ns"


_MIB = float(2**20)
_SCAN = Case(SCAN, LOGSTORE, BATCH_RECORDS)


def goals_for(machine: dict[str, str]) -> tuple[Goal, ...]:
    """The goals on a machine: how quickly a checksum can be computed depends on the processor."""
    is_wide = _WIDE_KERNEL in machine.get(CRC_FACT, "")
    scan_must = 1.6 if is_wide else 0.7
    return (
        Goal("Encode rows, mean of all shapes, vs aiokafka", 4.0, 8.0, _mean(ENCODE, LOGSTORE)),
        Goal("Encode rows, the worst shape, vs aiokafka", 2.3, None, _worst(ENCODE)),
        Goal("Encode rows without the compiled module, vs aiokafka", 0.37, None, _mean(ENCODE, PLAIN)),
        Goal("Decode rows, mean of all shapes, vs aiokafka", 2.0, 3.0, _mean(DECODE, LOGSTORE)),
        Goal("Decode rows, the worst shape, vs aiokafka", 1.3, None, _worst(DECODE)),
        Goal("Decode rows without the compiled module, vs aiokafka", 0.15, None, _mean(DECODE, PLAIN)),
        Goal("Decode rows on demand, vs aiokafka", None, 10.0, _mean(DECODE, ON_DEMAND)),
        Goal("Append rows, 1,000 a batch, vs sqlite", 8.0, None, _ratio(APPEND, SQLITE, batch=1_000)),
        Goal("Append rows, 1,000 a batch, vs lmdb", 2.0, None, _ratio(APPEND, LMDB, batch=1_000)),
        Goal("Append rows, 1,000 a batch, vs aiokafka", 1.5, 2.5, _ratio(APPEND, AIOKAFKA, batch=1_000)),
        Goal("Append rows, 1,000 a batch, vs ready bytes", None, 0.8, _ratio(APPEND, LIMIT, batch=1_000)),
        Goal("Append single records, vs sqlite", 8.0, None, _ratio(APPEND, SQLITE, batch=1, ours=GATHERING)),
        Goal("Append single records, per second", None, 1e6, _single_rate, format_rate),
        Goal("Append columns, 1,000 a batch, vs rows", 2.0, None, _columns_to_rows(1_000)),
        Goal("Append columns, 10,000 a batch, vs rows", 2.0, None, _columns_to_rows(MANY_COLUMNS)),
        Goal("Append with a flush for every 100, vs sqlite", 1.2, None, _ratio(DURABLE, SQLITE, batch=100)),
        Goal("Append with a flush for every 100, vs file", None, 0.9, _ratio(DURABLE, FILE, batch=100)),
        Goal("16 threads that flush each append, vs one thread", 5.0, None, _threads),
        Goal("Read rows in order, vs sqlite", 4.0, None, _ratio(SEQUENTIAL, SQLITE, batch=1_000)),
        Goal("Read rows in order, vs lmdb", 4.0, None, _ratio(SEQUENTIAL, LMDB, batch=1_000)),
        Goal("Read rows in order, vs aiokafka", 2.0, 3.0, _ratio(SEQUENTIAL, AIOKAFKA, batch=1_000)),
        Goal("Read columns of a large log, vs aiokafka's rows", 12.0, None, _large_columns_to(AIOKAFKA)),
        Goal("Read columns of a large log, vs `cat`", 0.4, 0.7, _large_columns_to(LIMIT)),
        Goal("Read at random, batches of 100, vs sqlite", 1.0, None, _ratio(RANDOM, SQLITE, batch=100)),
        Goal("Read at random, batches of 100, vs lmdb", None, 1.0, _ratio(RANDOM, LMDB, batch=100)),
        Goal(
            f"Recovery scan, {'wide' if is_wide else 'without wide'} carry-less multiply, vs `cat`",
            scan_must,
            2.0,
            lambda results: results.ratio(_SCAN, _SCAN._replace(contender=LIMIT)),
        ),
        Goal("JSON events with zstd, bytes on disk, vs sqlite", 0.25, 0.22, _json_bytes, is_ceiling=True),
        Goal("Peak memory over idle", 64 * _MIB, 32 * _MIB, _memory, format_bytes, is_ceiling=True),
        Goal("Offset map, memory per key", 24.0, None, _key_bytes, _format_key_bytes, is_ceiling=True),
        Goal("Offset map, time per key", 60e-9, None, _key_seconds, _format_nanoseconds, is_ceiling=True),
        Goal("Offset map, adding keys, vs a dict", 1.0, None, _ratio(MAP, DICT, batch=KEY_BATCH)),
        Goal("Import", 0.060, 0.010, _import_time("compiled_seconds"), format_seconds, is_ceiling=True),
        Goal(
            "Import without the compiled module",
            0.060,
            0.010,
            _import_time("plain_seconds"),
            format_seconds,
            is_ceiling=True,
        ),
    )


def format_goals(results: Results) -> str:
    """The table: what must hold, the aim, and what was measured."""
    return format_goal_rows([(goal, goal.measure(results)) for goal in goals_for(results.machine)])


def format_goal_rows(goals: Sequence[tuple[Goal, Spread | None]]) -> str:
    """The table of goals that were measured."""
    rows = []
    for goal, measured in goals:
        shown = ["" if wanted is None else _wanted(goal, wanted) for wanted in (goal.must, goal.aim)]
        found = "" if measured is None else _measured(goal, measured)
        rows.append([goal.title, goal.verdict(measured and measured.median), found, *shown])
    return format_table(["goal", "", "measured", "must", "aim"], rows)


def count_verdicts(results: Results) -> dict[str, int]:
    """The number of goals by verdict."""
    found: dict[str, int] = {}
    for goal in goals_for(results.machine):
        measured = goal.measure(results)
        verdict = goal.verdict(measured and measured.median)
        found[verdict] = found.get(verdict, 0) + 1
    return found


def _wanted(goal: Goal, wanted: float) -> str:
    return f"{'at most ' if goal.is_ceiling else ''}{goal.show(wanted)}"


def _measured(goal: Goal, measured: Spread) -> str:
    if measured.low == measured.high or goal.measure is _memory:
        return goal.show(measured.median)
    return f"{goal.show(measured.median)} ({goal.show(measured.low)} to {goal.show(measured.high)})"
