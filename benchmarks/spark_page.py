"""The Spark benchmark as a page: goals, tables and a picture, all computed from the lines of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.goals import Goal, format_goal_rows
from benchmarks.measure import ROOT
from benchmarks.report import rewrite_region
from benchmarks.results import Spread
from benchmarks.spark_parts import (
    ALL_COLUMNS,
    KAFKA,
    KEY_AND_VALUE,
    OURS,
    PARQUET,
    RATE,
    SHAPES,
    SMALL,
    VALUES,
    Line,
)
from benchmarks.text import (
    format_bytes,
    format_rate,
    format_ratio,
    format_ratios,
    format_seconds,
    format_table,
)

DOCUMENT = ROOT / "docs" / "spark-speed.md"
IMAGES = ROOT / "docs" / "images"

_FACTS = (
    "cpu",
    "cores",
    "memory",
    "file system",
    "python",
    "loops",
    "crc32c",
    "spark",
    "java",
    "pyarrow",
    "connector",
)


class Lines:
    """The lines of a run, selected by their fields."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self.all = list(lines)

    def of(self, **wanted: str) -> list[Line]:
        """In the order of their rounds."""
        return [line for line in self.all if all(line[name] == value for name, value in wanted.items())]

    def rate(self, **wanted: str) -> float | None:
        """Records per second: the median."""
        found = self.of(**wanted)
        return median(line["records"] / line["seconds"] for line in found) if found else None

    def ratio(self, ours: dict[str, str], other: dict[str, str]) -> Spread | None:
        """How many times as fast ours is, round by round."""
        mine, theirs = self.of(**ours), self.of(**other)
        if not mine or not theirs:
            return None
        return Spread.of(
            [
                (one["records"] / one["seconds"]) / (two["records"] / two["seconds"])
                for one, two in zip(mine, theirs, strict=False)
            ]
        )


def _against(lines: Lines, part: str, query: str, other: str, shape: str) -> Spread | None:
    case = {"part": part, "query": query, "shape": shape}
    return lines.ratio({**case, "source": OURS}, {**case, "source": other})


def goals_of(lines: Lines) -> list[tuple[Goal, Spread | None]]:
    """The goals, and what was measured."""
    found: list[tuple[Goal, Spread | None]] = []

    def add(
        title: str,
        must: float,
        aim: float | None,
        measured: Spread | None,
        show: Callable[[float], str] = format_ratio,
        *,
        is_ceiling: bool = False,
    ) -> None:
        found.append((Goal(title, must, aim, lambda _: measured, show, is_ceiling), measured))

    for shape in SHAPES:
        title = shape.title
        add(
            f"Scan of {title}, all columns, vs Parquet",
            0.5,
            1,
            _against(lines, "scan", ALL_COLUMNS, PARQUET, title),
        )
    for shape in SHAPES:
        title = shape.title
        add(
            f"Scan of {title}, all columns, vs the connector",
            2,
            4,
            _against(lines, "scan", ALL_COLUMNS, KAFKA, title),
        )
    values = [
        line["records"] / line["seconds"]
        for line in lines.of(part="scan", query=VALUES, source=OURS, shape=SMALL.title)
    ]
    add(
        "Read only values, 100 B, records per second",
        5e6,
        None,
        Spread.of(values) if values else None,
        format_rate,
    )
    for shape in SHAPES:
        title = shape.title
        add(
            f"Write of {title}, vs the connector",
            1,
            None,
            _against(lines, "write", KEY_AND_VALUE, KAFKA, title),
        )
    add(
        "Trigger with one record, time vs the rate source",
        1.5,
        None,
        _triggers(lines),
        is_ceiling=True,
    )
    add("Two tasks vs one, on two cores", 1.5, None, _two_tasks(lines))
    add("Time per record, largest topic vs smallest", 1.2, None, _growth(lines, "seconds"), is_ceiling=True)
    add(
        "Worker memory, largest topic vs smallest",
        1.2,
        None,
        _growth(lines, "worker_bytes"),
        is_ceiling=True,
    )
    return found


def _triggers(lines: Lines) -> Spread | None:
    mine, theirs = (lines.of(part="trigger", source=source) for source in (OURS, RATE))
    if not mine or not theirs:
        return None
    return Spread.of([one["seconds"] / two["seconds"] for one, two in zip(mine, theirs, strict=False)])


def _two_tasks(lines: Lines) -> Spread | None:
    return lines.ratio(
        {"part": "tasks", "query": "2", "shape": SMALL.title},
        {"part": "tasks", "query": "1", "shape": SMALL.title},
    )


def _growth(lines: Lines, name: str) -> Spread | None:
    """Of the largest topic over the smallest: of seconds, for a record."""
    found = lines.of(part="sizes")
    if not found:
        return None
    counts = sorted({line["records"] for line in found})

    def of(count: int) -> float:
        values = [float(line[name]) for line in found if line["records"] == count]
        return median(values) / (count if name == "seconds" else 1)

    return Spread(*[of(counts[-1]) / of(counts[0])] * 3)


# Tables -----------------------------------------------------------------------------------------------------


def _scan_table(lines: Lines, query: str) -> str:
    rows = []
    for shape in SHAPES:
        for source in (OURS, PARQUET, KAFKA):
            case = {"part": "scan", "query": query, "shape": shape.title, "source": source}
            rate = lines.rate(**case)
            if rate is None:
                continue
            stored = lines.of(**case)[0]
            ratio = _against(lines, "scan", query, source, shape.title)
            log = stored["bytes"] / stored["records"] * rate
            rows.append(
                [shape.title, source, format_rate(rate), f"{format_bytes(log)}/s", _beside(source, ratio)]
            )
    return format_table(["Values", "Read from", "Records/s", "Log bytes/s", "logstore vs it"], rows)


def _beside(source: str, ratio: Spread | None) -> str:
    return "" if source == OURS or ratio is None else format_ratios(ratio)


def _write_table(lines: Lines) -> str:
    rows = []
    for shape in SHAPES:
        for source in (OURS, KAFKA):
            rate = lines.rate(part="write", shape=shape.title, source=source)
            if rate is not None:
                ratio = _against(lines, "write", KEY_AND_VALUE, source, shape.title)
                rows.append([shape.title, source, format_rate(rate), _beside(source, ratio)])
    return format_table(["Values", "Written by", "Records/s", "logstore vs it"], rows)


def _trigger_table(lines: Lines) -> str:
    rows = []
    for source in (OURS, RATE):
        found = lines.of(part="trigger", source=source)
        if found:
            rows.append([source, format_seconds(median(line["seconds"] for line in found))])
    return format_table(["Stream from", "A trigger with one record"], rows, text_columns=1)


def _task_table(lines: Lines) -> str:
    rows = []
    for shape in SHAPES[:2]:
        rates = [lines.rate(part="tasks", shape=shape.title, query=str(count)) for count in (1, 2)]
        if rates[0] is not None and rates[1] is not None:
            rows.append(
                [shape.title, *(format_rate(rate or 0) for rate in rates), format_ratio(rates[1] / rates[0])]
            )
    return format_table(["Values", "One task", "Two tasks", "two vs one"], rows, text_columns=1)


def _size_table(lines: Lines) -> str:
    rows = []
    for count in sorted({line["records"] for line in lines.of(part="sizes")}):
        found = lines.of(part="sizes", query=str(count))
        seconds = median(line["seconds"] for line in found)
        memory = max(line["worker_bytes"] for line in found)
        rows.append(
            [f"{count:,}", format_seconds(seconds), f"{seconds / count * 1e9:.0f} ns", format_bytes(memory)]
        )
    return format_table(
        ["Records of 100 B", "Scan", "Per record", "Peak worker memory"], rows, text_columns=0
    )


def format_page(results: dict[str, Any]) -> str:
    """Everything between the marks."""
    lines = Lines(results["lines"])
    machine = results["machine"]
    facts = format_table(["", ""], [[f"**{name}**", machine[name]] for name in _FACTS if name in machine])
    rounds = max(line["round"] for line in lines.all)
    return "\n".join(
        [
            "![Records per second](images/spark.svg)\n",
            "### Goals\n",
            format_goal_rows(goals_of(lines)),
            "### Read all columns\n",
            _scan_table(lines, ALL_COLUMNS),
            "### Read only values\n",
            _scan_table(lines, VALUES),
            "### Write\n",
            _write_table(lines),
            "### Streams\n",
            _trigger_table(lines),
            "### One task and two tasks\n",
            _task_table(lines),
            "### As a topic grows\n",
            _size_table(lines),
            "### Machine\n",
            facts,
            f"Measured {machine['date']} at commit {machine['commit']}. Medians of {rounds} rounds after a "
            "warm-up round; lowest and highest in brackets.",
        ]
    )


def write(results: dict[str, Any]) -> None:
    """The page and its picture."""
    plot(Lines(results["lines"]), IMAGES)
    rewrite_region(DOCUMENT, format_page(results))


# Picture ----------------------------------------------------------------------------------------------------

_COLORS = {OURS: "#d1495b", PARQUET: "#9aa5b1", KAFKA: "#30638e"}


def plot(lines: Lines, directory: Path) -> None:
    """Write ``spark.svg`` and ``spark.png``."""
    import matplotlib  # an extra: the rest of the module works without

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "spark", "font.size": 9, "svg.fonttype": "path"})
    from matplotlib import pyplot

    panels = (
        ("Read, all columns", "scan", ALL_COLUMNS),
        ("Read, values alone", "scan", VALUES),
        ("Write", "write", KEY_AND_VALUE),
    )
    figure, grid = pyplot.subplots(1, len(panels), figsize=(12, 4.2), facecolor="white")
    for axes, (title, part, query) in zip(grid, panels, strict=True):
        _draw(axes, lines, part, query)
        axes.set_title(title, loc="left", fontweight="bold", fontsize=10.5)
    grid[0].set_ylabel("million records per second")
    handles, labels = grid[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="lower center", ncols=3, frameon=False)
    figure.tight_layout(rect=(0, 0.07, 1, 1))
    directory.mkdir(parents=True, exist_ok=True)
    figure.savefig(directory / "spark.png", dpi=150)
    figure.savefig(directory / "spark.svg", metadata={"Date": None})
    pyplot.close(figure)


def _draw(axes: Any, lines: Lines, part: str, query: str) -> None:
    sources = [source for source in _COLORS if lines.of(part=part, query=query, source=source)]
    width = 0.8 / max(len(sources), 1)
    for number, source in enumerate(sources):
        for at, shape in enumerate(SHAPES):
            rate = lines.rate(part=part, query=query, source=source, shape=shape.title)
            if rate is not None:
                place = at + (number - (len(sources) - 1) / 2) * width
                label = source if at == 0 else None
                axes.bar(place, rate / 1e6, width * 0.95, color=_COLORS[source], label=label)
                axes.annotate(
                    f"{rate / 1e6:.2g}", (place, rate / 1e6), ha="center", va="bottom", fontsize=7.5
                )
    axes.set_xticks(range(len(SHAPES)), [shape.title.replace(", ", "\n") for shape in SHAPES])
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
