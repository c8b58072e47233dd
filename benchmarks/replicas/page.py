"""The benchmark of replication as a page: goals and tables, all computed from a run's lines."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from benchmarks.goals import Goal, format_goal_rows
from benchmarks.listening.measuring import BROKER, OURS, Line
from benchmarks.listening.page import Lines, rate, rate_by_cpu, value_of
from benchmarks.measure import ROOT
from benchmarks.plot import format_short
from benchmarks.replicas.parts import (
    BEFORE,
    BEFORE_PACED,
    CAUGHT_UP,
    LIMIT_BYTES,
    MEANWHILE,
    MEANWHILE_PACED,
    MEANWHILE_SLOWLY,
    PACED,
    PER_SECOND,
    RATED,
    SEND,
    SLOWLY,
    case_of,
)
from benchmarks.replicas.servers import NODES
from benchmarks.report import rewrite_region
from benchmarks.results import Spread
from benchmarks.text import format_bytes, format_ratio, format_ratios, format_seconds, format_table

DOCUMENT = ROOT / "docs" / "replication-speed.md"
_PROGRAM: Final = "benchmarks.replicas"
_FACTS = (
    "date",
    "commit",
    "cpu",
    "cores",
    "load before",
    "memory",
    "file system",
    "kernel",
    "python",
    "loops",
    "Apache Kafka",
    "its JVM",
    "librdkafka",
)
_LAST: Final = case_of(SEND, RATED[-1], NODES)
"""After it memory is looked at."""


def _paired(
    lines: Lines, over: tuple[str, str], under: tuple[str, str], figure: Callable[[Line], float]
) -> Spread | None:
    """A figure of one of our cases over that of another, round by round."""
    pairs = zip(lines.of(*over, OURS), lines.of(*under, OURS), strict=False)
    ratios = [figure(a) / figure(b) for a, b in pairs]
    return Spread.of(ratios) if ratios else None


def _copied_per_second(line: Line) -> float:
    """From when the cluster knew of the node again."""
    return float(line["bytes"]) / (float(line["seconds"]) - float(line["there_seconds"]))


def _share_of_disk(line: Line) -> float:
    return _copied_per_second(line) / float(line["disk_bytes_per_second"])


def goals_of(lines: Lines) -> list[tuple[Goal, Spread | None]]:
    """The goals, and what was measured."""
    found: list[tuple[Goal, Spread | None]] = []

    def add(
        title: str,
        must: float,
        measured: Spread | None,
        show: Callable[[float], str] = format_ratio,
        *,
        is_ceiling: bool = False,
    ) -> None:
        found.append((Goal(title, must, None, lambda _: measured, show, is_ceiling), measured))

    for shape in RATED:
        case = case_of(SEND, shape, NODES)
        add(f"{case}, vs {BROKER}", 1.0, lines.ratio("rates", case, rate))
    memory = lines.ratio("rates", _LAST, value_of("resident_bytes"))
    add(f"Memory of the three, vs {BROKER}", 1 / 3, memory, is_ceiling=True)
    for shape in RATED:
        one, three = (("rates", case_of(SEND, shape, count)) for count in (1, NODES))
        title = f"send, {shape.name}: with three replicas, vs with one"
        add(title, 1 / 3, _paired(lines, three, one, rate))
    idle = lines.spread("failover", "idle", OURS, value_of("cpu_share"))
    add("1,000 partitions, idle: of a core, each node", 0.05, idle, _percent, is_ceiling=True)
    elected = lines.spread("failover", "a node is killed", OURS, value_of("elected_seconds"))
    add("From a kill to new leaders of 1,000 partitions", 1.0, elected, format_seconds, is_ceiling=True)
    add(
        "An empty disk is filled, vs what the disk can take",
        0.5,
        lines.spread("catching up", CAUGHT_UP, OURS, _share_of_disk),
    )
    harm = _paired(lines, ("catching up", MEANWHILE), ("catching up", BEFORE), value_of("p99_seconds"))
    add("One record meanwhile, 99 %, vs before", 2.0, harm, is_ceiling=True)
    slowly = _paired(
        lines, ("catching up", MEANWHILE_SLOWLY), ("catching up", BEFORE), value_of("p99_seconds")
    )
    add(
        f"An empty disk, beside {PER_SECOND} records a second, vs what the disk can take",
        0.5,
        lines.spread("catching up", PACED, OURS, _share_of_disk),
    )
    paced = _paired(
        lines, ("catching up", MEANWHILE_PACED), ("catching up", BEFORE_PACED), value_of("p99_seconds")
    )
    add(f"One of {PER_SECOND} records a second meanwhile, 99 %, vs before", 2.0, paced, is_ceiling=True)
    title = f"One record meanwhile with a limit of {format_short(LIMIT_BYTES / 1e6)} MB/s, 99 %, vs before"
    add(title, 2.0, slowly, is_ceiling=True)
    return found


def _percent(value: float) -> str:
    return f"{value:.1%}"


def _mb(value: float) -> str:
    return format_short(value / 1e6)


def _cells(
    lines: Lines, part: str, case: str, figure: Callable[[Line], float], show: Callable[[float], str]
) -> list[str]:
    spreads = [lines.spread(part, case, server, figure) for server in (OURS, BROKER)]
    ratio = lines.ratio(part, case, figure)
    cells = ["" if each is None else show(each.median) for each in spreads]
    return [*cells, "" if ratio is None else format_ratios(ratio)]


def _rate_table(lines: Lines) -> str:
    rows = []
    for shape in RATED:
        for count in (1, NODES):
            case = case_of(SEND, shape, count)
            by_cpu = _cells(lines, "rates", case, rate_by_cpu, _mb)[-1]
            rows.append([case, *_cells(lines, "rates", case, rate, _mb), by_cpu])
    titles = ["MB/s", OURS, BROKER, "ratio", "ratio per CPU second"]
    return format_table(titles, rows, text_columns=1)


def _failover_table(lines: Lines) -> str:
    rows = []
    for title, case, name, show in (
        ("idle, of a core for each node", "idle", "cpu_share", _percent),
        ("memory of each node", "idle", "resident_bytes", format_bytes),
        ("a record to each partition", "write everywhere", "seconds", format_seconds),
        ("from the kill until all have a leader", "a node is killed", "elected_seconds", format_seconds),
        ("until each has taken a record", "a node is killed", "written_seconds", format_seconds),
    ):
        rows.append([title, *_cells(lines, "failover", case, value_of(name), show)])
    return format_table(["1,000 partitions", OURS, BROKER, "ratio"], rows, text_columns=1)


def _catching_up_table(lines: Lines) -> str:
    rows = []
    for title, case, figure, show in (
        (
            "from its start until the cluster knows of it",
            CAUGHT_UP,
            value_of("there_seconds"),
            format_seconds,
        ),
        ("from then on copied, MB/s", CAUGHT_UP, _copied_per_second, _mb),
        ("the disk alone, MB/s", CAUGHT_UP, value_of("disk_bytes_per_second"), _mb),
        ("one record before, median", BEFORE, value_of("p50_seconds"), format_seconds),
        ("one record before, 99 %", BEFORE, value_of("p99_seconds"), format_seconds),
        ("one record meanwhile, median", MEANWHILE, value_of("p50_seconds"), format_seconds),
        ("one record meanwhile, 99 %", MEANWHILE, value_of("p99_seconds"), format_seconds),
        (f"copied beside {PER_SECOND} records a second, MB/s", PACED, _copied_per_second, _mb),
        ("one of these before, median", BEFORE_PACED, value_of("p50_seconds"), format_seconds),
        ("one of these before, 99 %", BEFORE_PACED, value_of("p99_seconds"), format_seconds),
        ("one of these meanwhile, median", MEANWHILE_PACED, value_of("p50_seconds"), format_seconds),
        ("one of these meanwhile, 99 %", MEANWHILE_PACED, value_of("p99_seconds"), format_seconds),
        ("copied with a limit, MB/s", SLOWLY, _copied_per_second, _mb),
        ("one record meanwhile, median", MEANWHILE_SLOWLY, value_of("p50_seconds"), format_seconds),
        ("one record meanwhile, 99 %", MEANWHILE_SLOWLY, value_of("p99_seconds"), format_seconds),
    ):
        rows.append([title, _cells(lines, "catching up", case, figure, show)[0]])
    return format_table(["", OURS], rows, text_columns=1)


def format_page(results: dict[str, Any]) -> str:
    """Everything between the marks."""
    lines = Lines(results["lines"])
    machine = results["machine"]
    facts = format_table(["", ""], [[f"**{name}**", machine[name]] for name in _FACTS if name in machine])
    memory = format_table(
        ["memory of the three after the load", OURS, BROKER, "ratio"],
        [
            [title, *_cells(lines, "rates", _LAST, value_of(name), format_bytes)]
            for title, name in (("all", "resident_bytes"), ("without pages of files", "private_bytes"))
        ],
        text_columns=1,
    )
    return "\n".join(
        [
            "### Goals\n",
            format_goal_rows(goals_of(lines)),
            "### MB per second\n",
            _rate_table(lines),
            "### Memory\n",
            memory,
            "### Many partitions, and a node that is killed\n",
            _failover_table(lines),
            "### A node that comes back with an empty disk\n",
            _catching_up_table(lines),
            "### Machine\n",
            facts,
            f"Measured by `python -m {_PROGRAM}`: medians, in brackets the lowest and the highest.",
        ]
    )


def write(results: dict[str, Any]) -> None:
    """The page."""
    rewrite_region(DOCUMENT, format_page(results), program=_PROGRAM)
