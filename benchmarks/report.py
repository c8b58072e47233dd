"""Results as Markdown: the tables of ``results.md``, and the short form for ``docs/benchmarks.md``."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import NamedTuple

from benchmarks.alone import LAG, LARGE, LARGE_RECOVERY, REOPEN, SMALL
from benchmarks.contenders import GATHERING, LOGSTORE, NAMES, PEERS, contender_class, is_available
from benchmarks.figures import APPEND, OPEN, RANDOM, RECOVERY, SEQUENTIAL
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

_NOTABLE_RATIO = 1.05
"""A peer is called faster from here on: less is noise."""


class Section(NamedTuple):
    """One table of the report."""

    title: str
    figure: str
    is_durable: bool
    note: str
    unit: str
    """What is counted per second; empty where the time of one is shown instead."""


SECTIONS = (
    Section(
        "Append",
        APPEND,
        False,
        "Without flushes: a batch survives the death of the process when the call returns.",
        "records/s",
    ),
    Section(
        "Durable append",
        APPEND,
        True,
        "With a flush for each batch: it survives a power cut when the call returns.",
        "records/s",
    ),
    Section("Sequential read", SEQUENTIAL, False, "Every record in order, from the page cache.", "records/s"),
    Section(
        "Random read",
        RANDOM,
        False,
        "Single records at random offsets, from the page cache, by batch size at writing.",
        "reads/s",
    ),
    Section(
        "Open after a clean stop", OPEN, False, "Until the last record has been read. Fresh process.", ""
    ),
    Section(
        "Open after a crash",
        RECOVERY,
        False,
        "The same after SIGKILL with the store open, nothing flushed or checkpointed on purpose.",
        "",
    ),
)


_SHOWN_BATCH = 1_000


def format_report(results: Results) -> str:
    """All of it, for ``results.md``."""
    parts = [
        "# Benchmark results\n",
        "Written by `python -m benchmarks`; `docs/benchmarks.md` says how to read it.\n",
    ]
    parts += [_format_machine(results), _format_contenders()]
    for section in SECTIONS:
        summaries = _of_section(results, section)
        if summaries:
            parts.append(f"## {section.title}\n\n{section.note}\n")
            parts.append(_format_section(section, summaries))
    parts.append(_format_alone(results, "## logstore alone\n"))
    return "\n".join(part for part in parts if part)


def format_summary(results: Results) -> str:
    """The short form: every ratio in one table, where a peer is faster, and the figures of logstore alone."""
    parts = [
        "![Records per second by contender](images/benchmarks.svg)\n",
        _format_ratios(results),
        "### Where a peer is faster\n",
        _format_losses(results),
        _format_alone(results, "### logstore alone\n"),
        "### The machine\n",
        _format_machine(results),
    ]
    return "\n".join(part for part in parts if part)


def format_numbers(results: Results) -> str:
    """What the first screen of the README says, with the way to the rest."""
    rows = [
        [f"{section.title}, batches of {summary.case.batch_records:,}", _cell(section, LOGSTORE, summary)]
        for section in SECTIONS
        for summary in _of_section(results, section)
        if summary.case.contender == LOGSTORE and summary.case.batch_records == _SHOWN_BATCH
    ]
    rows += [[title, text(results)] for name, title, text in _ALONE_ROWS if results.alone.get(name)]
    machine = f"{results.machine['cpu']}, {results.machine['cores']} cores, {results.machine['python']}"
    return f"{format_table(['', ''], rows)}\n{machine}; records of 16-byte keys and 100-byte values.\n"


def rewrite_region(document: Path, text: str) -> None:
    """Replace what is between the two marks of a document.

    Raises:
        ValueError: the marks are not there, once each and in order.
    """
    old = document.read_text()
    pattern = re.compile(f"({re.escape(REGION_START)}\n).*?({re.escape(REGION_END)})", re.DOTALL)
    new, count = pattern.subn(lambda found: f"{found[1]}\n{text}\n{found[2]}", old)
    if count != 1:
        raise ValueError(f"{document} has {count} regions for results; it must have one")
    document.write_text(new)


def _of_section(results: Results, section: Section) -> list[Summary]:
    """Its cases, by batch size and then in the order of the contenders."""
    found = [
        summary
        for case, summary in results.summaries().items()
        if (case.figure, case.is_durable) == (section.figure, section.is_durable)
    ]
    return sorted(found, key=lambda found: (found.case.batch_records, NAMES.index(found.case.contender)))


def _format_machine(results: Results) -> str:
    return format_table(["", ""], [[f"**{name}**", value] for name, value in results.machine.items()])


def _format_contenders() -> str:
    rows = [[f"**{name}**", contender_class(name).description] for name in NAMES if is_available(name)]
    return "## Contenders\n\n" + format_table(["", ""], rows)


def _format_section(section: Section, summaries: list[Summary]) -> str:
    titles = ["batch", "contender", section.unit or "time", "relative to logstore", "memory over idle"]
    if section.figure == APPEND:
        titles.append("bytes on disk per record")
    return format_table(titles, [_row(section, summary) for summary in summaries])


def _row(section: Section, summary: Summary) -> list[str]:
    is_ours = summary.case.contender == LOGSTORE
    row = [
        f"{summary.case.batch_records:,}",
        summary.case.contender,
        format_rates(summary.rate) if section.unit else format_times(summary.rate),
        "1" if is_ours else format_ratios(summary.relative),
        format_bytes(summary.memory_bytes),
    ]
    if section.figure == APPEND:
        row.append(f"{summary.stored_bytes / summary.per_round:.0f}")
    return row


# The short form ---------------------------------------------------------------------------------------------


def _format_ratios(results: Results) -> str:
    """One line for each figure and batch size, one column for each contender."""
    shown = [name for name in NAMES if any(case.contender == name for case in results.summaries())]
    rows = []
    for section in SECTIONS:
        by_batch: dict[int, dict[str, Summary]] = {}
        for summary in _of_section(results, section):
            by_batch.setdefault(summary.case.batch_records, {})[summary.case.contender] = summary
        for batch_records, found in by_batch.items():
            cells = [_cell(section, name, found.get(name)) for name in shown]
            rows.append([section.title, f"{batch_records:,}", *cells])
    return format_table(["", "batch", *shown], rows)


def _cell(section: Section, name: str, summary: Summary | None) -> str:
    if summary is None:
        return ""
    if name == LOGSTORE:
        rate = summary.rate.median
        return f"{format_rate(rate)}/s" if section.unit else format_seconds(1 / rate)
    ratio = format_ratio(summary.relative.median)
    return f"**{ratio}**" if name != GATHERING and summary.relative.median > _NOTABLE_RATIO else ratio


def _format_losses(results: Results) -> str:
    lines = []
    for section in SECTIONS:
        lost = [s for s in _of_section(results, section) if s.relative.median > _NOTABLE_RATIO]
        for name in PEERS:
            ratios = [
                f"{format_ratio(summary.relative.median)} at {summary.case.batch_records:,}"
                for summary in lost
                if summary.case.contender == name
            ]
            if ratios:
                lines.append(f"- {section.title}: **{name}** is faster: {', '.join(ratios)}.")
    return "\n".join(lines or ["Nowhere, in what was measured."]) + "\n"


# logstore alone ---------------------------------------------------------------------------------------------


def _format_alone(results: Results, heading: str) -> str:
    rows = [[title, text(results)] for name, title, text in _ALONE_ROWS if results.alone.get(name)]
    rows += [[f"{name}: not measured", reason] for name, reason in results.skipped.items()]
    return f"{heading}\n{format_table(['', ''], rows)}" if rows else ""


def _median(results: Results, name: str, figure: str) -> float:
    return median(results.values_of(name, figure))


def _format_reopen(results: Results) -> str:
    seconds = format_seconds(_median(results, REOPEN, "open_seconds"))
    partitions = _median(results, REOPEN, "partitions")
    segments = _median(results, REOPEN, "segments")
    return f"{seconds} for {partitions:,.0f} partitions of {segments:.0f} segments"


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


_ALONE_ROWS: tuple[tuple[str, str, Callable[[Results], str]], ...] = (
    (REOPEN, "Opening many partitions after a clean stop", _format_reopen),
    (LARGE, "Memory over the idle process", _format_memory),
    (
        LARGE,
        "Time per sequential record, large log against small",
        _format_growth("sequential_seconds_per_record"),
    ),
    (LARGE, "Time per random read, large log against small", _format_growth("random_seconds_per_read")),
    (LARGE_RECOVERY, "Recovery after SIGKILL, nothing checkpointed", _format_recovery),
    (LAG, "Wake-up of a follower in another process", _format_lag),
)
