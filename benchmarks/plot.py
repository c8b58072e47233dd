"""The picture: each contender's rate in the four most important figures."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.contenders import (
    AIOKAFKA,
    ARROW,
    ARROW_ROWS,
    COLUMNS,
    FILE,
    KAFKA_PYTHON,
    LIMIT,
    LMDB,
    LOGSTORE,
    NAMES,
    ON_DEMAND,
    OURS,
    PLAIN,
    ROCKSDICT,
    SQLITE,
)
from benchmarks.figures import APPEND, DURABLE, RANDOM, SEQUENTIAL, Case
from benchmarks.results import Results, Summary


class Panel(NamedTuple):
    """One quarter of the picture."""

    title: str
    figure: str
    batch_records: int


PANELS = (
    Panel("Append, 1,000 a batch", APPEND, 1_000),
    Panel("Sequential read, 1,000 a batch", SEQUENTIAL, 1_000),
    Panel("Durable append, a flush for every 100", DURABLE, 100),
    Panel("Random read by offset, 100 a batch", RANDOM, 100),
)
LABELS = {
    LOGSTORE: "logstore, rows",
    COLUMNS: "logstore, columns",
    ON_DEMAND: "logstore, on demand",
    PLAIN: "logstore, plain Python",
    ARROW: "Arrow IPC, columns",
    ARROW_ROWS: "Arrow IPC, rows",
    SQLITE: "SQLite",
    LMDB: "LMDB",
    ROCKSDICT: "RocksDB (rocksdict)",
    AIOKAFKA: "aiokafka's codec",
    KAFKA_PYTHON: "kafka-python's codec",
    FILE: "plain file",
}
_LIMITS = {APPEND: "limit: ready bytes", DURABLE: "limit: ready bytes", SEQUENTIAL: "limit: cat"}
_OURS_COLOR, _OUR_VARIANT_COLOR = "#d1495b", "#eda1aa"
_PEER_COLOR, _LIMIT_COLOR = "#30638e", "#d9d9d9"
_HEADROOM = 14.0  # to the right of the longest bar, for its label, as a factor on the logarithmic axis
_FOOT = 0.35  # to the left of the shortest bar, likewise


def plot(results: Results, directory: Path) -> None:
    """Write ``benchmarks.svg`` and ``benchmarks.png``."""
    import matplotlib  # an extra: the rest of the package works without

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "benchmarks", "font.size": 9, "svg.fonttype": "path"})
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(2, 2, figsize=(12, 8), facecolor="white", height_ratios=(13, 8))
    for axes, panel in zip(grid.flat, PANELS, strict=True):
        _draw(axes, panel, results)
    note = (
        "keys of 16 bytes, values of 100; logarithmic axes, line: lowest to highest round; "
        "behind the rate: how many times as fast logstore is, columns beside columns"
    )
    figure.text(0.99, 0.005, note, ha="right", va="bottom", fontsize=8.5, color="#666666")
    figure.tight_layout(rect=(0, 0.02, 1, 1), h_pad=2, w_pad=2)
    directory.mkdir(parents=True, exist_ok=True)
    figure.savefig(directory / "benchmarks.png", dpi=150)
    figure.savefig(directory / "benchmarks.svg", metadata={"Date": None})
    pyplot.close(figure)


def _draw(axes: Any, panel: Panel, results: Results) -> None:
    found = _summaries(panel, results)
    for at, summary in enumerate(found):
        rate = summary.rate
        axes.barh(at, rate.median, 0.78, color=_color(summary.case.contender))
        axes.plot([rate.low, rate.high], [at, at], color="#333333", linewidth=1, solid_capstyle="butt")
        text = f"{format_short(rate.median)}/s"
        if summary.ratio and summary.case.contender not in OURS:
            text += f" · {summary.ratio.median:.2g} x"
        axes.annotate(
            text, (rate.high, at), xytext=(4, 0), textcoords="offset points", va="center", fontsize=8
        )
    axes.set_xscale("log")
    if found:
        axes.set_xlim(min(s.rate.low for s in found) * _FOOT, max(s.rate.high for s in found) * _HEADROOM)
    names = [_LIMITS.get(panel.figure, "") if n == LIMIT else LABELS.get(n, n) for n in _names(found)]
    axes.set_yticks(range(len(found)), names)
    axes.invert_yaxis()
    axes.set_title(panel.title, loc="left", fontweight="bold", fontsize=10.5)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(lambda rate, _: format_short(rate))
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)


def _summaries(panel: Panel, results: Results) -> list[Summary]:
    """Ours first, then the peers from the fastest down, the limit last."""
    cases = (Case(panel.figure, name, panel.batch_records) for name in NAMES)
    found = [summary for case in cases if (summary := results.summaries().get(case))]
    return sorted(found, key=lambda s: (_group(s.case.contender), -s.rate.median))


def _group(contender: str) -> int:
    return 0 if contender in OURS else 2 if contender == LIMIT else 1


def _names(found: list[Summary]) -> list[str]:
    return [summary.case.contender for summary in found]


def _color(contender: str) -> str:
    if contender == LOGSTORE:
        return _OURS_COLOR
    return (_OUR_VARIANT_COLOR, _PEER_COLOR, _LIMIT_COLOR)[_group(contender)]


def format_short(rate: float) -> str:
    """Two digits: there is no room for more."""
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if rate >= size:
            return f"{rate / size:.2g}{unit}" if rate < 10 * size else f"{rate / size:.0f}{unit}"
    return f"{rate:.0f}"
