"""Two more pictures: how rates grow with the size of batches, and what each codec costs and saves."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.contenders import (
    AIOKAFKA,
    COLUMNS,
    FILE,
    GATHERING,
    LMDB,
    LOGSTORE,
    ROCKSDICT,
    SQLITE,
)
from benchmarks.figures import APPEND, DURABLE, RANDOM, SEQUENTIAL, Case
from benchmarks.plot import LABELS, format_short
from benchmarks.records import JSON, SMALL
from benchmarks.results import Results, Summary


class Line(NamedTuple):
    """How a contender is drawn."""

    contender: str
    color: str
    marker: str


OURS_COLOR, OUR_VARIANT_COLOR, PEER_COLOR = "#d1495b", "#eda1aa", "#30638e"
LINES = (
    Line(SQLITE, PEER_COLOR, "s"),
    Line(LMDB, "#00798c", "D"),
    Line(ROCKSDICT, "#7a5195", "^"),
    Line(AIOKAFKA, "#8d8d8d", "v"),
    Line(FILE, "#b8860b", "x"),
    Line(COLUMNS, OUR_VARIANT_COLOR, "o"),
    Line(GATHERING, OUR_VARIANT_COLOR, "*"),
    Line(LOGSTORE, OURS_COLOR, "o"),
)
"""The most important last: they are drawn over the others."""
_NAMES = {**LABELS, GATHERING: "logstore, append one by one"}

PANELS = (
    (APPEND, "Append"),
    (DURABLE, "Durable append, a flush for each batch"),
    (SEQUENTIAL, "Sequential read"),
    (RANDOM, "Random read by offset"),
)
CODEC_NAMES = {
    LOGSTORE: "logstore, uncompressed",
    "logstore-gzip": "logstore, gzip",
    "logstore-snappy": "logstore, snappy",
    "logstore-lz4": "logstore, lz4",
    "logstore-zstd": "logstore, zstd",
    SQLITE: "SQLite",
    LMDB: "LMDB",
    ROCKSDICT: "RocksDB",
    "rocksdict-zstd": "RocksDB, zstd",
}


def plot_curves(results: Results, directory: Path) -> None:
    """Write ``batches`` and ``codecs``, each as SVG and PNG. A run without such figures writes none."""
    import matplotlib  # an extra: the rest of the package works without

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "curves", "font.size": 9, "svg.fonttype": "path"})
    directory.mkdir(parents=True, exist_ok=True)
    if any(_points(results, figure, LOGSTORE) for figure, _ in PANELS):
        _plot_batches(results, directory)
    if _events(results, APPEND):
        _plot_codecs(results, directory)


def _store(figure: Any, directory: Path, name: str) -> None:
    from matplotlib import pyplot

    figure.savefig(directory / f"{name}.png", dpi=150)
    figure.savefig(directory / f"{name}.svg", metadata={"Date": None})
    pyplot.close(figure)


# Batches ----------------------------------------------------------------------------------------------------


def _plot_batches(results: Results, directory: Path) -> None:
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(2, 2, figsize=(11, 8), facecolor="white")
    drawn: dict[str, Any] = {}
    for axes, (name, title) in zip(grid.flat, PANELS, strict=True):
        for line in LINES:
            found = _points(results, name, line.contender)
            if found:
                drawn[line.contender] = _draw_line(axes, line, found)
        _finish(axes, title)
        axes.set_xlabel("records in a batch")
    shown = [line.contender for line in reversed(LINES) if line.contender in drawn]
    labels = [_NAMES.get(name, name) for name in shown]
    figure.legend([drawn[name] for name in shown], labels, loc="lower center", ncols=4, frameon=False)
    note = "per second; keys of 16 bytes, values of 100; logarithmic axes, bars: lowest to highest round"
    figure.text(0.99, 0.995, note, ha="right", va="top", fontsize=8.5, color="#666666")
    figure.tight_layout(rect=(0, 0.07, 1, 0.975), h_pad=2, w_pad=2)
    _store(figure, directory, "batches")


def _points(results: Results, figure: str, contender: str) -> list[Summary]:
    """Its cases with small records, by the size of their batches."""
    found = [
        summary
        for case, summary in results.summaries().items()
        if case._replace(batch_records=0) == Case(figure, contender, 0, SMALL)
    ]
    return sorted(found, key=lambda summary: summary.case.batch_records)


def _draw_line(axes: Any, line: Line, found: list[Summary]) -> Any:
    rates = [summary.rate for summary in found]
    is_ours = line.contender == LOGSTORE
    return axes.errorbar(
        [summary.case.batch_records for summary in found],
        [rate.median for rate in rates],
        yerr=[[rate.median - rate.low for rate in rates], [rate.high - rate.median for rate in rates]],
        color=line.color,
        marker=line.marker,
        markersize=11 if line.marker == "*" else 6,
        linewidth=2.6 if is_ours else 1.4,
        elinewidth=1,
        zorder=4 if is_ours else 3,
    )


def _finish(axes: Any, title: str) -> None:
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_title(title, loc="left", fontweight="bold", fontsize=10.5)
    axes.xaxis.set_major_formatter(lambda count, _: f"{count:,.0f}")
    axes.tick_params(axis="x", which="minor", length=0)
    axes.yaxis.set_major_formatter(lambda rate, _: format_short(rate))
    axes.grid(color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)


# Codecs -----------------------------------------------------------------------------------------------------


def _events(results: Results, figure: str) -> dict[str, Summary]:
    return {
        case.contender: summary
        for case, summary in results.summaries().items()
        if case.figure == figure and case.data == JSON and case.contender in CODEC_NAMES
    }


def _plot_codecs(results: Results, directory: Path) -> None:
    """A line for each, the smallest on disk first: its rates, and its size."""
    from matplotlib import pyplot

    appended, read = _events(results, APPEND), _events(results, SEQUENTIAL)
    sizes = {name: found.stored_bytes / found.per_round for name, found in appended.items()}
    names = sorted(appended, key=sizes.__getitem__)
    columns = (
        ("Append, events per second", {name: found.rate.median for name, found in appended.items()}),
        ("Read, events per second", {name: found.rate.median for name, found in read.items()}),
        ("Bytes on disk for an event", sizes),
    )
    figure, grid = pyplot.subplots(1, 3, figsize=(11, 3.8), facecolor="white", sharey=True)
    for axes, (title, values) in zip(grid.flat, columns, strict=True):
        for at, name in enumerate(names):
            value = values.get(name)
            if value is not None:
                axes.barh(at, value, 0.72, color=OURS_COLOR if name.startswith(LOGSTORE) else PEER_COLOR)
                text = format_short(value)
                axes.annotate(text, (value, at), xytext=(4, 0), textcoords="offset points", va="center")
        axes.set_xlim(0, max(values.values(), default=1) * 1.2)
        axes.set_title(title, loc="left", fontweight="bold", fontsize=10)
        axes.xaxis.set_visible(False)
        axes.tick_params(axis="y", length=0)
        for side in ("top", "right", "bottom"):
            axes.spines[side].set_visible(False)
    grid[0].set_yticks(range(len(names)), [CODEC_NAMES[name] for name in names])
    grid[0].invert_yaxis()
    figure.tight_layout(w_pad=2)
    _store(figure, directory, "codecs")
