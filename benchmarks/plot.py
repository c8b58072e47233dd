"""The picture: records per second of every contender, for the four figures that a reader looks at first."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.contenders import GATHERING, LOGSTORE, NAMES
from benchmarks.report import SECTIONS, Section
from benchmarks.results import Results, Summary

PLOTTED = ("Append", "Durable append", "Sequential read", "Random read")
COLORS = {
    LOGSTORE: "#d1495b",
    GATHERING: "#eda1aa",
    "sqlite": "#30638e",
    "lmdb": "#66a182",
    "file": "#8d96a3",
}
_LABELS = {GATHERING: "logstore, append()", "file": "plain file"}
_GROUP_WIDTH = 0.84
_HEADROOM = 2.2  # above the highest bar, for its label, as a factor on the logarithmic axis
_FOOT = 0.45  # below the lowest bar, likewise


def plot(results: Results, directory: Path) -> None:
    """Write ``benchmarks.svg`` and ``benchmarks.png``."""
    import matplotlib  # an extra: the rest of the package works without

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "benchmarks", "font.size": 9, "svg.fonttype": "path"})
    from matplotlib import pyplot

    sections = [section for section in SECTIONS if section.title in PLOTTED]
    sections.sort(key=lambda section: PLOTTED.index(section.title))
    figure, grid = pyplot.subplots(2, 2, figsize=(11, 7.4), facecolor="white")
    for axes, section in zip(grid.flat, sections, strict=True):
        _draw(axes, section, results)
    _add_legend(figure, results)
    figure.tight_layout(rect=(0, 0, 1, 0.93), h_pad=2.2, w_pad=2)
    directory.mkdir(parents=True, exist_ok=True)
    figure.savefig(directory / "benchmarks.png", dpi=150)
    figure.savefig(directory / "benchmarks.svg", metadata={"Date": None})
    pyplot.close(figure)


def _draw(axes: Any, section: Section, results: Results) -> None:
    groups = _groups(section, results)
    lows = []
    for at, found in enumerate(groups.values()):
        width = _GROUP_WIDTH / len(found)
        for number, summary in enumerate(found):
            x = at - _GROUP_WIDTH / 2 + (number + 0.5) * width
            _draw_bar(axes, x, width, summary)
            lows.append(summary.rate.low)
    axes.set_yscale("log")
    if lows:
        axes.set_ylim(min(lows) * _FOOT, axes.get_ylim()[1] * _HEADROOM)
    axes.set_xticks(range(len(groups)), [f"batches of {size:,}" for size in groups])
    axes.set_title(f"{section.title}, {section.unit}", loc="left", fontweight="bold", fontsize=10.5)
    axes.tick_params(axis="x", length=0)
    axes.yaxis.set_major_formatter(lambda rate, _: _label(rate))
    axes.grid(axis="y", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)


def _draw_bar(axes: Any, x: float, width: float, summary: Summary) -> None:
    rate = summary.rate
    axes.bar(x, rate.median, width * 0.92, color=COLORS[summary.case.contender])
    axes.plot([x, x], [rate.low, rate.high], color="#333333", linewidth=1, solid_capstyle="butt")
    axes.annotate(
        _label(rate.median),
        (x, rate.high),
        xytext=(0, 3),
        textcoords="offset points",
        ha="center",
        fontsize=7.5,
        color="#333333",
    )


def _label(rate: float) -> str:
    """Two digits: there is no room for more."""
    for size, unit in ((1e6, " M"), (1e3, " k")):
        if rate >= size:
            return f"{rate / size:.2g}{unit}" if rate < 10 * size else f"{rate / size:.0f}{unit}"
    return f"{rate:.0f}"


def _groups(section: Section, results: Results) -> dict[int, list[Summary]]:
    """Summaries by batch size, contenders in their order."""
    groups: dict[int, list[Summary]] = {}
    for case, summary in results.summaries().items():
        if (case.figure, case.is_durable) == (section.figure, section.is_durable):
            groups.setdefault(case.batch_records, []).append(summary)
    for found in groups.values():
        found.sort(key=lambda summary: NAMES.index(summary.case.contender))
    return dict(sorted(groups.items()))


def _add_legend(figure: Any, results: Results) -> None:
    from matplotlib.patches import Patch

    shown = [name for name in NAMES if any(case.contender == name for case in results.summaries())]
    handles = [Patch(color=COLORS[name], label=_LABELS.get(name, name)) for name in shown]
    figure.legend(handles=handles, loc="upper left", ncol=len(shown), frameon=False, fontsize=10)
    note = "logarithmic axes, higher is faster; line: lowest to highest round"
    figure.text(0.99, 0.972, note, ha="right", va="top", fontsize=8.5, color="#666666")
