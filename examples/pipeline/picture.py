"""The picture: what the pipeline found, and how it came there."""

from __future__ import annotations

from calendar import month_abbr
from collections.abc import Sequence
from datetime import date
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from flights_demo import ALARM, FAINT, STYLE, Sample
from supervise import Run

_MAKERS = {
    "AIRBUS": "#8c2981",
    "BOEING": "#de4968",
    "EMBRAER": "#fe9f6d",
    "BOMBARDIER": "#3b0f70",
    "MCDONNELL DOUGLAS": "#5b8fa8",
}
_WEEKLY = "#de4968"
_ENRICHED = "#8c2981"
_LAST_WEEK = date(2013, 12, 30)
"""The table has two days of it."""
_LEAST_DEPARTURES = 20
"""A week with fewer has no mean worth drawing."""


def draw(runs: Sequence[Run], weeks: Any, path: str) -> None:
    """Write the picture as a PNG file."""
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(14, 9), dpi=110, layout=ConstrainedLayoutEngine(h_pad=0.15, w_pad=0.15))
        panels = figure.subplot_mosaic([["flights", "delays"], ["runs", "runs"]], height_ratios=[3, 2])
        whole = weeks[weeks.index.get_level_values("week") < _LAST_WEEK]
        _draw_flights(panels["flights"], whole)
        _draw_delays(panels["delays"], whole)
        _draw_runs(panels["runs"], runs)
        figure.savefig(path)


def _draw_flights(axes: Axes, weeks: Any) -> None:
    """Bands, the largest maker at the bottom; whatever else there is on top."""
    counts = weeks["flights"].unstack("manufacturer").fillna(0).astype("int64")
    others = [maker for maker in counts.columns if maker not in _MAKERS]
    bands = [counts[maker] for maker in _MAKERS if maker in counts.columns]
    names = [maker.title() for maker in _MAKERS if maker in counts.columns]
    axes.stackplot(
        list(counts.index),
        *bands,
        counts[others].sum(axis="columns"),
        labels=[*names, "not known, others"],
        colors=[*_MAKERS.values(), "#e6e3ea"],
    )
    axes.set_title("Flights from New York in each week of 2013, by maker")
    axes.set_ylim(bottom=0)
    _draw_months(axes)
    axes.legend(
        loc="upper center",
        bbox_to_anchor=(0.5, -0.08),
        ncols=6,
        frameon=False,
        fontsize=8,
        columnspacing=1,
        handlelength=1,
    )


def _draw_delays(axes: Axes, weeks: Any) -> None:
    flown = weeks[weeks["departures"] >= _LEAST_DEPARTURES]
    means = (flown["delay_minutes"] / flown["departures"]).unstack("manufacturer")
    for maker, color in _MAKERS.items():
        if maker in means.columns:
            axes.plot(list(means.index), means[maker].astype("float64"), color=color, linewidth=1.8)
    axes.set_title("How many minutes late they left, on average")
    axes.axhline(0, color=FAINT, linewidth=0.8)
    _draw_months(axes)


def _draw_months(axes: Axes) -> None:
    days = [(date(2013, month, 1) - date(1970, 1, 1)).days for month in range(1, 13)]  # as matplotlib counts
    axes.set_xticks(days, month_abbr[1:], ha="left")
    axes.margins(x=0)


def _draw_runs(axes: Axes, runs: Sequence[Run]) -> None:
    """What the two topics had, as another process saw it, and where the driver was stopped and killed."""
    began = runs[0].enriched[0].seconds
    right = axes.twinx()
    for run in runs:
        _draw_growth(axes, run.enriched, began, _ENRICHED, 1000)
        _draw_growth(right, run.weekly, began, _WEEKLY, 1)
        if run.ended != "finished":
            end = run.enriched[-1]
            at = (end.seconds - began, end.records / 1000)
            marker, text = ("X", "kill -9") if run.ended == "killed" else ("s", "stopped")
            axes.plot(*at, marker=marker, markersize=12, color=ALARM, markeredgecolor="white", zorder=5)
            axes.annotate(
                f"{text} at {end.records:,}",
                at,
                (-10, 8),
                textcoords="offset points",
                ha="right",
                color=ALARM,
            )
        first = run.enriched[0].seconds - began
        axes.axvline(first, color=FAINT, linewidth=0.8, linestyle=":")
        axes.annotate(
            "Spark starts",
            (first, 1),
            (4, -4),
            xycoords=("data", "axes fraction"),
            textcoords="offset points",
            va="top",
            fontsize=8,
            color=FAINT,
        )
    axes.set_title("The two queries: as another process sees their topics grow")
    axes.set_xlabel("seconds")
    axes.set_ylabel("thousand records in enriched", color=_ENRICHED)
    right.set_ylabel("records appended to weekly", color=_WEEKLY)
    right.spines["right"].set_visible(True)
    for each in (axes, right):
        each.set_ylim(bottom=0)
    axes.set_xlim(left=0)


def _draw_growth(axes: Axes, samples: Sequence[Sample], began: float, color: str, unit: int) -> None:
    seconds = [sample.seconds - began for sample in samples]
    axes.step(seconds, [sample.records / unit for sample in samples], where="post", color=color, linewidth=2)
