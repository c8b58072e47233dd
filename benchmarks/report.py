"""Results as Markdown: the tables of ``results.md``, the short form for ``docs/benchmarks.md``, and the few
numbers of the README."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.alone import (
    FIRST_USE,
    IMPORT,
    LAG,
    LARGE,
    LARGE_RECOVERY,
    REOPEN,
    REOPEN_BEHIND,
    REOPEN_IDLE,
    SMALL,
)
from benchmarks.contenders import (
    AIOKAFKA,
    ARROW,
    ARROW_ROWS,
    COLUMNS,
    FILE,
    GATHERING,
    LIMIT,
    LMDB,
    LOGSTORE,
    NAMES,
    OURS,
    ROCKSDICT,
    SQLITE,
    contender_class,
    entry_of,
    is_installed,
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
    Case,
)
from benchmarks.goals import count_verdicts, format_goals
from benchmarks.plan import DECODE, DICT, ENCODE, LARGE_BATCH_RECORDS, MANY_COLUMNS, MAP, SCAN
from benchmarks.records import JSON
from benchmarks.results import Results, Summary, percentile_95
from benchmarks.text import (
    format_bytes,
    format_rate,
    format_rates,
    format_ratio,
    format_ratios,
    format_seconds,
    format_table,
    format_times,
)

REGION_START = "<!-- benchmarks: from here on written by `python -m benchmarks` -->"
REGION_END = "<!-- benchmarks: end of what is written by `python -m benchmarks` -->"

_NOTABLE_RATIO = 0.95
"""A peer counts as faster below this ratio; smaller differences are noise."""

_ORDER = (*NAMES, DICT)
_OURS_FIRST = (*OURS, *(name for name in _ORDER if name not in OURS))


class Section(NamedTuple):
    """One table of the report."""

    title: str
    figure: str
    note: str
    unit: str
    """What is counted per second; empty if the time of one is shown instead."""
    has_bytes: bool = False
    """Whether bytes on disk are worth a column."""


SECTIONS = (
    Section(
        "Append",
        APPEND,
        "Without flushes: when the call returns, the batch survives a crash of the process.",
        "records/s",
        has_bytes=True,
    ),
    Section(
        "Durable append",
        DURABLE,
        "With a flush for each batch: when the call returns, the batch survives a power cut.",
        "records/s",
    ),
    Section("One thread, a flush for each record", ONE_THREAD, "", "records/s"),
    Section(
        "16 threads, a flush for each record",
        THREADS,
        "Each thread waits for its own record. Stores that can do so share one flush among waiting threads.",
        "records/s",
    ),
    Section(
        "Sequential read",
        SEQUENTIAL,
        "Every record in order, with its value, from the page cache. Stores with checksums check them.",
        "records/s",
    ),
    Section(
        "Sequential read of a large log",
        LARGE_SEQUENTIAL,
        "The same for half a gigabyte, which does not fit into the processor's caches and makes the fixed "
        "costs of a read negligible.",
        "records/s",
    ),
    Section(
        "Random read by offset",
        RANDOM,
        "Single records at random offsets, from the page cache, by batch size at writing.",
        "reads/s",
    ),
    Section(
        "Random read by time",
        TIME,
        "The first record at or after a random time. LMDB, RocksDB and the files have no index by time.",
        "reads/s",
    ),
    Section("Open after a clean stop", OPEN, "Until the last record has been read, in a fresh process.", ""),
    Section(
        "Open after a crash",
        RECOVERY,
        "The same after SIGKILL with the store open and nothing flushed or checkpointed explicitly.",
        "",
    ),
    Section(
        "Recovery scan",
        SCAN,
        "Find every batch of a segment and check its checksum; logstore also indexes it. Compared with `cat` "
        "of the file. The clients' codecs get a piece of it.",
        "B/s",
    ),
    Section(
        "Offset map",
        MAP,
        "Put distinct keys of 16 bytes with their offsets, 1,000 a call. The map reads encoded records, the "
        "dict gets keys that are already decoded.",
        "keys/s",
    ),
)
_SECTION_OF = {section.figure: section for section in SECTIONS}


def format_report(results: Results) -> str:
    """All of it, for ``results.md``."""
    parts = [
        "# Benchmark results\n",
        "Written by `python -m benchmarks`; `docs/benchmarks.md` says how to read it.\n",
        _format_machine(results),
        "## Goals\n",
        format_goals(results),
        "## Contenders\n",
        format_contenders(),
        _format_skipped(results),
    ]
    for section in SECTIONS:
        summaries = _of_section(results, section.figure)
        if summaries:
            parts += [f"## {section.title}\n", section.note and f"{section.note}\n"]
            parts.append(_format_section(section, summaries))
    for figure, title in ((ENCODE, "Encode rows"), (DECODE, "Decode rows")):
        parts.append(_format_matrix(results, figure, title))
    parts.append(_format_events(results))
    parts.append(_format_alone(results, "## logstore alone\n"))
    return "\n".join(part for part in parts if part)


def format_summary(results: Results) -> str:
    """The short form: goals, every ratio in one table, where a peer is faster, and logstore alone."""
    verdicts = ", ".join(
        f"{count} {verdict.strip('*')}" for verdict, count in count_verdicts(results).items()
    )
    parts = [
        "![Records per second by contender](images/benchmarks.svg)\n",
        "### Goals\n",
        f"{verdicts}.\n",
        format_goals(results),
        "### Speed compared with each contender\n",
        "![Rates by the size of batches](images/batches.svg)\n",
        _format_ratios(results),
        "### Where a peer is faster\n",
        _format_losses(results),
        _format_codecs(results),
        _format_events_picture(results),
        _format_alone(results, "### logstore alone\n"),
        "### Contenders\n",
        format_contenders(),
        _format_skipped(results),
        "### Machine\n",
        _format_machine(results),
    ]
    return "\n".join(part for part in parts if part)


def rewrite_region(document: Path, text: str, *, program: str = "benchmarks") -> None:
    """Replace what is between the two marks of a document. ``program``: who writes it, for pages with more
    than one region.

    Raises:
        ValueError: the marks are not there, once each and in order.
    """
    start, end = (mark.replace("-m benchmarks`", f"-m {program}`") for mark in (REGION_START, REGION_END))
    old = document.read_text()
    pattern = re.compile(f"({re.escape(start)}\n).*?({re.escape(end)})", re.DOTALL)
    new, count = pattern.subn(lambda found: f"{found[1]}\n{text}\n{found[2]}", old)
    if count != 1:
        raise ValueError(f"{document} has {count} regions for results; it must have one")
    document.write_text(new)


def _of_section(results: Results, figure: str) -> list[Summary]:
    """Its cases, by data and batch size in the order of measuring, and then in that of the contenders."""
    groups: dict[tuple[str, int], list[Summary]] = {}
    for case, summary in results.summaries().items():
        if case.figure == figure:
            groups.setdefault((case.data, case.batch_records), []).append(summary)
    for found in groups.values():
        found.sort(key=lambda summary: _ORDER.index(summary.case.contender))
    return [summary for found in groups.values() for summary in found]


def _format_machine(results: Results) -> str:
    return format_table(["", ""], [[f"**{name}**", value] for name, value in results.machine.items()])


def format_contenders() -> str:
    """What each contender does and promises, or why it is missing."""
    rows = []
    for name in NAMES:
        package = entry_of(name).needs
        if not is_installed(name):
            rows.append([f"**{name}**", f"not installed ({package})", ""])
        else:
            kind = contender_class(name)
            rows.append([f"**{name}**", kind.settings, kind.promise])
    return format_table(["", "how it is used", "what it promises"], rows, text_columns=3)


def _format_skipped(results: Results) -> str:
    rows = [[name, reason] for name, reason in results.skipped.items()]
    return f"Left out:\n\n{format_table(['', ''], rows)}" if rows else ""


def _format_section(section: Section, summaries: list[Summary]) -> str:
    titles = ["data", "batch", "contender", section.unit or "time", "logstore vs it", "memory over idle"]
    if section.has_bytes:
        titles.append("bytes on disk per record")
    return format_table(titles, [_row(section, summary) for summary in summaries], text_columns=3)


def _row(section: Section, summary: Summary) -> list[str]:
    row = [
        summary.case.data,
        f"{summary.case.batch_records:,}",
        summary.case.contender,
        format_rates(summary.rate) if section.unit else format_times(summary.rate),
        format_ratios(summary.ratio) if summary.ratio and summary.case.contender != LOGSTORE else "",
        format_bytes(summary.memory_bytes),
    ]
    if section.has_bytes:
        row.append(f"{summary.stored_bytes / summary.per_round:.0f}")
    return row


# The short form ---------------------------------------------------------------------------------------------

_SHORT = (
    APPEND,
    DURABLE,
    ONE_THREAD,
    THREADS,
    SEQUENTIAL,
    LARGE_SEQUENTIAL,
    RANDOM,
    TIME,
    OPEN,
    RECOVERY,
    SCAN,
    MAP,
)


def _format_ratios(results: Results) -> str:
    """One line for each figure, data and batch size, one column for each contender."""
    summaries = [
        summary for figure in _SHORT for summary in _of_section(results, figure) if summary.case.data != JSON
    ]
    shown = [name for name in _OURS_FIRST if any(found.case.contender == name for found in summaries)]
    lines: dict[Case, dict[str, Summary]] = {}
    for summary in summaries:
        lines.setdefault(summary.case._replace(contender=""), {})[summary.case.contender] = summary
    rows = []
    for case, found in lines.items():
        section = _SECTION_OF[case.figure]
        cells = [_cell(section, name, found.get(name)) for name in shown]
        rows.append([section.title, case.data, f"{case.batch_records:,}", *cells])
    return format_table(["", "data", "batch", *shown], rows, text_columns=3)


def _cell(section: Section, name: str, summary: Summary | None) -> str:
    """A rate for logstore, a ratio for the others."""
    if summary is None:
        return ""
    if name in OURS:
        rate = summary.rate.median
        if section.unit == "B/s":
            return f"{format_bytes(rate)}/s"
        return f"{format_rate(rate)}/s" if section.unit else format_seconds(1 / rate)
    if summary.ratio is None:
        return f"{format_rate(summary.rate.median)}/s"
    ratio = format_ratio(summary.ratio.median)
    return f"**{ratio}**" if _is_lost(summary) else ratio


def _is_lost(summary: Summary) -> bool:
    """Whether a peer is faster by more than noise."""
    is_peer = summary.case.contender not in (*OURS, LIMIT)
    return is_peer and summary.ratio is not None and summary.ratio.median < _NOTABLE_RATIO


def _format_losses(results: Results) -> str:
    lines = []
    for figure in _SHORT:
        lost: dict[str, list[str]] = {}
        for summary in _of_section(results, figure):
            case = summary.case
            if _is_lost(summary) and summary.ratio:
                text = (
                    f"{format_ratio(1 / summary.ratio.median)} ({case.data}, {case.batch_records:,} a batch)"
                )
                lost.setdefault(case.contender, []).append(text)
        for name, ratios in lost.items():
            lines.append(f"- {_SECTION_OF[figure].title}: **{name}** is faster: {', '.join(ratios)}.")
    return "\n".join(lines or ["Nowhere in these measurements."]) + "\n"


def _format_codecs(results: Results) -> str:
    """Geometric means over all shapes."""
    rows = []
    for figure, title in ((ENCODE, "encode"), (DECODE, "decode")):
        names = {case.contender for case in results.rounds() if case.figure == figure}
        for name in _OURS_FIRST:
            if name in names and name != AIOKAFKA:
                mean, worst = (
                    measure(figure, name, AIOKAFKA) for measure in (results.mean_ratio, results.worst_ratio)
                )
                if mean and worst:
                    rows.append([title, name, format_ratios(mean), format_ratio(worst.median)])
    if not rows:
        return ""
    titles = ["", "", "mean of all shapes", "worst shape"]
    return f"### Encoding and decoding rows, vs aiokafka's compiled codec\n\n{format_table(titles, rows)}"


def _format_matrix(results: Results, figure: str, title: str) -> str:
    """Nanoseconds per record of each shape and codec."""
    lines: dict[str, dict[str, Summary]] = {}
    for summary in _of_section(results, figure):
        lines.setdefault(summary.case.data, {})[summary.case.contender] = summary
    if not lines:
        return ""
    shown = [name for name in _ORDER if any(name in found for found in lines.values())]
    rows = [
        [
            shape,
            "",
            *(f"{1e9 / found[name].rate.median:.0f}" if name in found else "" for name in shown),
            _ratio_text(found.get(AIOKAFKA)),
        ]
        for shape, found in lines.items()
    ]
    table = format_table(["records", "", *shown, "logstore vs aiokafka"], rows)
    return f"## {title}\n\nNanoseconds per record.\n\n{table}"


def _ratio_text(summary: Summary | None) -> str:
    return format_ratio(summary.ratio.median) if summary and summary.ratio else ""


def _format_events(results: Results) -> str:
    """Codecs on events: rates, and bytes on disk beside SQLite."""
    appended, read = (
        {s.case.contender: s for s in _of_section(results, figure) if s.case.data == JSON}
        for figure in (APPEND, SEQUENTIAL)
    )
    if not appended:
        return ""
    base = appended.get(SQLITE)
    rows = [
        [
            name,
            "",
            f"{format_rate(found.rate.median)}/s",
            f"{format_rate(read[name].rate.median)}/s" if name in read else "",
            f"{found.stored_bytes / found.per_round:.0f}",
            f"{found.stored_bytes / base.stored_bytes:.2f}" if base else "",
        ]
        for name, found in appended.items()
    ]
    titles = ["", "", "append", "read", "bytes on disk per record", "size vs SQLite"]
    return f"## JSON events and codecs\n\n{format_table(titles, rows)}"


def _format_events_picture(results: Results) -> str:
    """The same as a picture."""
    if not any(summary.case.data == JSON for summary in _of_section(results, APPEND)):
        return ""
    return (
        "### JSON events and codecs\n\n"
        "![Rates and bytes on disk of each codec](images/codecs.svg)\n\n"
        "1,000 events a batch. `benchmarks/results/results.md` has the same as a table.\n"
    )


# The README -------------------------------------------------------------------------------------------------

_README_ROWS = (
    ("Append rows, 1,000 a batch", Case(APPEND, LOGSTORE, 1_000)),
    ("Append columns, 10,000 a batch", Case(APPEND, COLUMNS, MANY_COLUMNS)),
    ("Append record by record", Case(APPEND, GATHERING, 1)),
    ("Append, a flush for every 100", Case(DURABLE, LOGSTORE, 100)),
    ("16 threads, a flush for each record", Case(THREADS, LOGSTORE, 1)),
    ("Read rows in order", Case(SEQUENTIAL, LOGSTORE, 1_000)),
    ("Read columns in order", Case(SEQUENTIAL, COLUMNS, 1_000)),
    ("Read columns of a large log", Case(LARGE_SEQUENTIAL, COLUMNS, LARGE_BATCH_RECORDS)),
    ("Read at random, batches of 100", Case(RANDOM, LOGSTORE, 100)),
)
_README_PEERS = (SQLITE, LMDB, ROCKSDICT, AIOKAFKA, ARROW, FILE)


def format_numbers(results: Results) -> str:
    """The figures for the first screen of the README: logstore's rate, and how many times as fast it is."""
    rows = []
    for title, case in _README_ROWS:
        own = results.summaries().get(case)
        if own is None:
            continue
        arrow = ARROW if case.contender == COLUMNS else ARROW_ROWS
        peers = (arrow if peer == ARROW else peer for peer in _README_PEERS)
        ratios = (results.ratio(case, case._replace(contender=peer)) for peer in peers)
        cells = [format_ratio(ratio.median) if ratio else "" for ratio in ratios]
        rows.append([title, f"{format_rate(own.rate.median)}/s", *cells])
    table = format_table(["", "logstore", *_README_PEERS], rows, text_columns=1)
    machine = f"{results.machine.get('cpu')}, {results.machine.get('cores')} cores"
    return (
        f"{table}\n"
        "Records per second, and how many times as fast that is as each peer: below 1 x the peer is faster. "
        "Arrow has columns or rows as the line says, the other peers rows. Keys of 16 bytes, values of 100. "
        f"{machine}, {results.machine.get('python')}.\n"
    )


# logstore alone ---------------------------------------------------------------------------------------------


def _format_alone(results: Results, heading: str) -> str:
    rows = [[title, text(results)] for name, title, text in _ALONE_ROWS if results.alone.get(name)]
    return f"{heading}\n{format_table(['', ''], rows)}" if rows else ""


def _median(results: Results, name: str, figure: str) -> float:
    return median(results.values_of(name, figure))


def _format_reopen(results: Results) -> str:
    seconds = format_seconds(_median(results, REOPEN, "open_seconds"))
    partitions = _median(results, REOPEN, "partitions")
    segments = _median(results, REOPEN, "segments")
    return f"{seconds} for {partitions:,.0f} partitions of {segments:.0f} segments"


def _format_killed(name: str) -> Callable[[Results], str]:
    def text(results: Results) -> str:
        seconds = format_seconds(_median(results, name, "open_seconds"))
        return f"{seconds} for {_median(results, name, 'partitions'):,.0f} partitions"

    return text


def _format_memory(results: Results) -> str:
    memory = format_bytes(_median(results, LARGE, "memory_over_idle_bytes"))
    return f"{memory} while reading {format_bytes(_median(results, LARGE, 'size_bytes'))}"


def _format_growth(figure: str) -> Callable[[Results], str]:
    def text(results: Results) -> str:
        small, large = (_median(results, name, figure) for name in (SMALL, LARGE))
        sizes = [format_bytes(_median(results, name, "size_bytes")) for name in (LARGE, SMALL)]
        return (
            f"{format_ratio(large / small)}: {format_seconds(large)} in {sizes[0]}, "
            f"{format_seconds(small)} in {sizes[1]}"
        )

    return text


def _format_recovery(results: Results) -> str:
    seconds = _median(results, LARGE_RECOVERY, "open_seconds")
    scanned = _median(results, LARGE_RECOVERY, "scanned_bytes")
    return f"{format_seconds(seconds)} for {format_bytes(scanned)} ({format_bytes(scanned / seconds)}/s)"


def _format_lag(results: Results) -> str:
    lags = results.values_of(LAG, "lag_seconds")
    return (
        f"median {format_seconds(median(lags))}, 95th percentile {format_seconds(percentile_95(lags))} "
        f"of {len(lags)}"
    )


def _format_start(name: str) -> Callable[[Results], str]:
    def text(results: Results) -> str:
        found = [
            format_seconds(_median(results, name, f"{loops}_seconds")) for loops in ("compiled", "plain")
        ]
        return f"{found[0]} over bare Python, {found[1]} without the compiled module"

    return text


_ALONE_ROWS: tuple[tuple[str, str, Callable[[Results], str]], ...] = (
    (REOPEN, "Open many partitions after a clean stop", _format_reopen),
    (
        REOPEN_IDLE,
        "The same after SIGKILL, with nothing new since the checkpoint",
        _format_killed(REOPEN_IDLE),
    ),
    (
        REOPEN_BEHIND,
        "The same after SIGKILL, with a record behind it in each partition",
        _format_killed(REOPEN_BEHIND),
    ),
    (LARGE, "Memory over the idle process", _format_memory),
    (
        LARGE,
        "Time per sequential record, large log vs small",
        _format_growth("sequential_seconds_per_record"),
    ),
    (LARGE, "Time per random read, large log vs small", _format_growth("random_seconds_per_read")),
    (LARGE_RECOVERY, "Recovery after SIGKILL, nothing checkpointed", _format_recovery),
    (LAG, "Wake-up of a follower in another process", _format_lag),
    (IMPORT, "`import logstore`", _format_start(IMPORT)),
    (FIRST_USE, "The same, and a store opened and closed", _format_start(FIRST_USE)),
)
