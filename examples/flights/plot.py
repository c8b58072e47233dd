"""The picture: a year of delays as the log tells it, how the load went, what is left of what was there."""

from __future__ import annotations

from calendar import month_abbr
from datetime import date, timedelta
from math import isnan
from statistics import fmean
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.patches import Patch

from check import Grid
from report import Compacted, Result, Segments, bytes_of

INK, FAINT, _LINE, ALARM = "#22272e", "#8a939e", "#8c2981", "#c2410c"
_KEPT, _LEFT_BY_SIZE, _LEFT_BY_TIME = "#8c2981", "#f9a08a", "#e6e3ea"
STYLE: dict[Any, Any] = {
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": FAINT,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlelocation": "left",
    "axes.titleweight": "bold",
    "axes.titlepad": 12,
    "xtick.color": INK,
    "ytick.color": INK,
}
_DARKEST_MINUTES = 90
_NAMED_DAYS = 8
_DAYS_APART = 10
"""Named days must not be closer, or their names would touch."""


def draw(result: Result, path: str) -> None:
    """Write the picture as a PNG file."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(14, 9), dpi=110, layout=ConstrainedLayoutEngine(h_pad=0.15, w_pad=0.15))
        panels = figure.subplot_mosaic(
            [["year"] * 3, ["load", "storage", "compaction"]],
            height_ratios=[3, 2],
            width_ratios=[4, 4, 3],
        )
        _draw_year(figure, panels["year"], result)
        _draw_load(panels["load"], result)
        _draw_storage(panels["storage"], result.segments)
        _draw_compaction(panels["compaction"], result.compacted)
        figure.savefig(path)


def _draw_year(figure: Figure, axes: Axes, result: Result) -> None:
    """Days across, hours up: a storm is a column that gets darker towards the evening."""
    title = f"How late the {result.records:,} flights from New York left in 2013, as read back from the log"
    axes.set_title(title, pad=26)
    image = axes.imshow(
        result.delays,
        origin="lower",
        aspect="auto",
        interpolation="nearest",
        cmap="magma_r",
        vmin=0,
        vmax=_DARKEST_MINUTES,
    )
    axes.set_ylim(4.5, 23.5)
    axes.set_yticks(range(6, 24, 3), [f"{hour}:00" for hour in range(6, 24, 3)])
    axes.set_ylabel("hour due to leave")
    months = [date(2013, month, 1).timetuple().tm_yday - 1.5 for month in range(1, 13)]
    axes.set_xticks(months, month_abbr[1:], ha="left")
    axes.spines[["left", "bottom"]].set_visible(False)
    for day in _worst_days(result.delays):
        name = f"{date(2013, 1, 1) + timedelta(days=day):%-d %b}"
        axes.annotate(name, (day, 23.8), ha="center", va="bottom", fontsize=8, annotation_clip=False)
    bar = figure.colorbar(image, ax=axes, extend="max", pad=0.01, aspect=30)
    bar.set_label("average delay in minutes (white: none left)")
    bar.outline.set_visible(False)


def _worst_days(delays: Grid) -> list[int]:
    """The days with the largest delays over all hours, the worst first, and none too close to a worse one."""
    days = [[minutes for minutes in hours if not isnan(minutes)] for hours in zip(*delays, strict=True)]
    average = [fmean(minutes) if minutes else 0.0 for minutes in days]
    chosen: list[int] = []
    for day in sorted(range(len(average)), key=average.__getitem__, reverse=True):
        if len(chosen) < _NAMED_DAYS and all(abs(day - other) >= _DAYS_APART for other in chosen):
            chosen.append(day)
    return chosen


def _draw_load(axes: Axes, result: Result) -> None:
    """Both writers' progress as a reader saw it, and what happened between them."""
    began = result.first.samples[0].seconds
    for run in (result.first, result.second):
        seconds = [sample.seconds - began for sample in run.samples]
        thousands = [sample.records / 1000 for sample in run.samples]
        axes.plot(seconds, thousands, color=_LINE, linewidth=2.5)
    end, start = result.first.samples[-1], result.second.samples[0]
    if result.first.was_killed:
        at = (end.seconds - began, end.records / 1000)
        text = f"kill -9 at {end.records:,}"
        axes.plot(*at, marker="X", markersize=13, color=ALARM, markeredgecolor="white", clip_on=False)
        axes.annotate(text, at, (-12, 6), textcoords="offset points", ha="right", color=ALARM)
    axes.annotate(
        f"recovered in {result.recovery_ms:.0f} ms;\na new writer starts and\nfinds its place",
        (start.seconds - began, start.records / 1000),
        (6, -12),
        textcoords="offset points",
        va="top",
    )
    axes.set_title("Loading: as another process sees it")
    axes.set_xlabel("seconds")
    axes.set_ylabel("thousand records")
    axes.set_ylim(bottom=0)
    axes.set_xlim(left=0)


def _draw_storage(axes: Axes, stages: list[Segments]) -> None:
    """A row for each partition, a box for each segment file, as wide as its bytes, coloured by its fate."""
    before, after_time, after_size = stages
    for partition, sizes in enumerate(before):
        left = 0.0
        for name, size in sizes.items():
            is_kept, is_recent = name in after_size[partition], name in after_time[partition]
            color = _KEPT if is_kept else _LEFT_BY_SIZE if is_recent else _LEFT_BY_TIME
            axes.barh(
                partition, size / 1e6, left=left, height=0.6, color=color, edgecolor="white", linewidth=1.5
            )
            left += size / 1e6
    axes.set_title("Storage: each box is a segment file")
    axes.set_yticks(range(len(before)), [f"flights-{partition}" for partition in range(len(before))])
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.spines["left"].set_visible(False)
    axes.set_xlabel("MB on disk, oldest records first")
    fates = {
        _LEFT_BY_TIME: "before October: deleted",
        _LEFT_BY_SIZE: "too much: deleted",
        _KEPT: "kept",
    }
    axes.legend(
        handles=[Patch(color=color, label=fate) for color, fate in fates.items()],
        loc="upper center",
        bbox_to_anchor=(0.5, -0.18),
        ncols=3,
        frameon=False,
        columnspacing=1,
        handlelength=1,
    )


def _draw_compaction(axes: Axes, compacted: Compacted) -> None:
    """What there was of each aircraft's states, and what is left."""
    widths = [bytes_of(compacted.before) / 1e6, bytes_of(compacted.after) / 1e6]
    counts = [compacted.records_before, compacted.records_after]
    names = [f"{name}\n{count:,}\nrecords" for name, count in zip(("before", "after"), counts, strict=True)]
    bars = axes.barh(names, widths, height=0.6, color=[_LEFT_BY_SIZE, _KEPT])
    axes.bar_label(bars, [f"{width:.2g} MB" for width in widths], padding=3)
    axes.invert_yaxis()
    axes.tick_params(axis="y", length=0)
    axes.margins(x=0.25)
    axes.set_title("Compaction: 1 per aircraft")
    axes.set_xlabel("MB on disk")
