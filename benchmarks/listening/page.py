"""The benchmark of the listener as a page: goals, tables and a picture, all computed from a run's lines."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from benchmarks.goals import Goal, format_goal_rows
from benchmarks.listening.measuring import BROKER, BROKER_FLUSHED, OURS, OURS_FLUSHED, SHAPES, Line
from benchmarks.listening.parts import (
    COMPUTING,
    FETCH,
    PRODUCE_ALL,
    PRODUCE_ONE,
    RATED,
    SENT,
    case_of,
)
from benchmarks.measure import ROOT
from benchmarks.plot import format_short
from benchmarks.report import rewrite_region
from benchmarks.results import Spread
from benchmarks.text import (
    format_bytes,
    format_rate,
    format_ratio,
    format_ratios,
    format_seconds,
    format_table,
)

DOCUMENT = ROOT / "docs" / "listening-speed.md"
IMAGES = ROOT / "docs" / "images"

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
    "crc32c",
    "Apache Kafka",
    "its JVM",
    "confluent-kafka",
    "librdkafka",
)
_MIB: Final = 2**20
_IDLE_BYTES: Final = 50.0 * _MIB
_FIRST_SECONDS: Final = 0.3

Figure = Callable[[Line], float]


def rate(line: Line) -> float:
    """Bytes of values per second."""
    return float(line["bytes"] / line["seconds"])


def rate_by_cpu(line: Line) -> float:
    """Bytes of values per second of processor time of the server."""
    return float(line["bytes"] / line["server_cpu_seconds"])


def value_of(name: str) -> Figure:
    """A figure as it is."""
    return lambda line: float(line[name])


def per_second(count: str, seconds: str) -> Figure:
    """How many of something in a second."""
    return lambda line: float(line[count] / line[seconds])


class Lines:
    """The lines of a run."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = list(lines)

    def of(self, part: str, case: str, server: str) -> list[Line]:
        """In the order of their rounds."""
        wanted = (part, case, server)
        return [line for line in self._lines if (line["part"], line["case"], line["server"]) == wanted]

    def spread(self, part: str, case: str, server: str, figure: Figure) -> Spread | None:
        """A figure over all rounds."""
        values = [figure(line) for line in self.of(part, case, server)]
        return Spread.of(values) if values else None

    def ratio(
        self, part: str, case: str, figure: Figure, ours: str = OURS, theirs: str = BROKER
    ) -> Spread | None:
        """Our figure over the broker's, round by round."""
        pairs = zip(
            *([figure(line) for line in self.of(part, case, name)] for name in (ours, theirs)), strict=False
        )
        ratios = [mine / other for mine, other in pairs]
        return Spread.of(ratios) if ratios else None


# Goals ------------------------------------------------------------------------------------------------------

_LATENCIES = (
    ("produce_p50_seconds", "Produce a record, median"),
    ("produce_p99_seconds", "Produce a record, 99 %"),
    ("poll_p50_seconds", "From send to a waiting fetch, median"),
    ("poll_p99_seconds", "From send to a waiting fetch, 99 %"),
)
_SESSIONS = (
    ("empty", "empty_seconds", "1,000 partitions, nothing new"),
    ("records", "record_seconds", "1,000 partitions, a wait for one record"),
)


def goals_of(lines: Lines) -> list[tuple[Goal, Spread | None]]:
    """The goals, and what was measured."""
    found: list[tuple[Goal, Spread | None]] = []

    def add(goal: Goal, measured: Spread | None) -> None:
        found.append((goal._replace(measure=lambda _: measured), measured))

    def at_least(title: str, must: float, aim: float | None, measured: Spread | None) -> None:
        add(Goal(f"{title}, vs {BROKER}", must, aim, _unmeasured), measured)

    def at_most(
        title: str, must: float, measured: Spread | None, show: Callable[[float], str] = format_ratio
    ) -> None:
        add(Goal(title, must, None, _unmeasured, show, is_ceiling=True), measured)

    for shape, deed, _ in RATED:
        case = case_of(deed, shape)
        at_least(case, 1.0, 1.5, lines.ratio("rates", case, rate))
    case = case_of(PRODUCE_ALL, SHAPES[0])
    at_least(f"{case}, flushed", 0.5, 1.0, lines.ratio("flushed", case, rate, OURS_FLUSHED))
    memory = _memory_case()
    at_most(
        f"Memory after the load, vs {BROKER}", 0.5, lines.ratio("rates", memory, value_of("resident_bytes"))
    )
    idle = lines.spread("connections", "idle", OURS, value_of("memory_bytes"))
    at_most("1,000 idle connections: memory", _IDLE_BYTES, idle, format_bytes)
    first = lines.spread("first", "first answer", OURS, value_of("seconds"))
    at_most("From start to the first answer", _FIRST_SECONDS, first, format_seconds)
    for name, title in _LATENCIES:
        at_most(f"{title}, vs {BROKER}", 1.0, lines.ratio("latency", "one record", value_of(name)))
    for count, seconds, title in _SESSIONS:
        measured = lines.ratio("sessions", "incremental fetches", per_second(count, seconds))
        at_least(title, 1.0, None, measured)
    return found


def _unmeasured(_: object) -> None:
    return None


def _memory_case() -> str:
    """The one that comes last in each round."""
    shape, deed, _ = RATED[-1]
    return case_of(deed, shape)


# Tables -----------------------------------------------------------------------------------------------------


def _mb(value: float) -> str:
    return f"{format_short(value / 1e6)}"


def _cell(spread: Spread | None, show: Callable[[float], str]) -> str:
    return "" if spread is None else show(spread.median)


def _beside(ratio: Spread | None) -> str:
    return "" if ratio is None else format_ratios(ratio)


def _rate_table(lines: Lines, part: str, cases: Sequence[str]) -> str:
    rows = []
    for case in cases:
        ours, theirs = (lines.spread(part, case, server, rate) for server in (OURS, BROKER))
        if ours is None:
            continue
        by_cpu = [lines.spread(part, case, server, rate_by_cpu) for server in (OURS, BROKER)]
        ratio, cpu_ratio = (lines.ratio(part, case, figure) for figure in (rate, rate_by_cpu))
        cells = [_cell(ours, _mb), _cell(theirs, _mb), _beside(ratio)]
        rows.append([case, *cells, *(_cell(each, _mb) for each in by_cpu), _beside(cpu_ratio)])
    titles = ["", OURS, BROKER, "ratio", f"{OURS}, per CPU second", f"{BROKER}, per CPU second", "ratio"]
    return format_table(titles, rows, text_columns=1)


def _flushed_table(lines: Lines) -> str:
    case = case_of(PRODUCE_ALL, SHAPES[0])
    rows = []
    for server in (OURS_FLUSHED, BROKER, BROKER_FLUSHED):
        found = lines.spread("flushed", case, server, rate)
        if found is not None:
            is_ours = server == OURS_FLUSHED
            ratio = None if is_ours else lines.ratio("flushed", case, rate, OURS_FLUSHED, server)
            rows.append([server, _mb(found.median), _beside(ratio)])
    return format_table(["", "MB/s", "logstore vs it"], rows, text_columns=1)


def _time_table(lines: Lines, part: str, case: str, names: Sequence[tuple[str, str]]) -> str:
    rows = []
    for name, title in names:
        ours, theirs = (lines.spread(part, case, server, value_of(name)) for server in (OURS, BROKER))
        ratio = lines.ratio(part, case, value_of(name))
        rows.append([title, _cell(ours, format_seconds), _cell(theirs, format_seconds), _beside(ratio)])
    return format_table(["", OURS, BROKER, "ratio of times"], rows, text_columns=1)


def _memory_table(lines: Lines) -> str:
    rows = []
    for title, part, case, name in (
        ("after the load", "rates", _memory_case(), "resident_bytes"),
        ("the same without pages of files", "rates", _memory_case(), "private_bytes"),
        ("for 1,000 idle connections", "connections", "idle", "memory_bytes"),
    ):
        cells = [
            _cell(lines.spread(part, case, server, value_of(name)), format_bytes) for server in (OURS, BROKER)
        ]
        rows.append([title, *cells])
    return format_table(["", OURS, BROKER], rows, text_columns=1)


def _session_table(lines: Lines) -> str:
    rows = []
    for count, seconds, title in _SESSIONS:
        figure = per_second(count, seconds)
        cells = [
            _cell(lines.spread("sessions", "incremental fetches", server, figure), format_rate)
            for server in (OURS, BROKER)
        ]
        rows.append([title, *cells, _beside(lines.ratio("sessions", "incremental fetches", figure))])
    return format_table(["fetches per second", OURS, BROKER, "ratio"], rows, text_columns=1)


def _busy_table(lines: Lines) -> str:
    rows = []
    for case, _, _ in COMPUTING:
        if lines.of("busy", case, OURS):
            spreads = [
                lines.spread("busy", case, OURS, value_of(name))
                for name in ("produce_p50_seconds", "produce_p99_seconds", "poll_p50_seconds")
            ]
            cells = [_cell(lines.spread("busy", case, OURS, rate), _mb)]
            rows.append([case, *cells, *(_cell(each, format_seconds) for each in spreads)])
    titles = ["", "produce, MB/s", "one record, median", "99 %", "to a waiting fetch, median"]
    return format_table(titles, rows, text_columns=1)


def format_page(results: dict[str, Any]) -> str:
    """Everything between the marks."""
    lines = Lines(results["lines"])
    machine = results["machine"]
    facts = format_table(["", ""], [[f"**{name}**", machine[name]] for name in _FACTS if name in machine])
    rounds = max([line["round"] for line in results["lines"] if line["part"] == "rates"], default=0)
    return "\n".join(
        [
            "![MB per second](images/listening.svg)\n",
            "### Goals\n",
            format_goal_rows(goals_of(lines)),
            "### MB per second, raw client\n",
            _rate_table(lines, "rates", [case_of(deed, shape) for shape, deed, _ in RATED]),
            "### MB per second, librdkafka\n",
            _rate_table(lines, "librdkafka", [case_of(deed, shape) for shape, deed, _ in SENT]),
            "### `acks=all` that waits for the disk\n",
            _flushed_table(lines),
            "### Latency\n",
            _time_table(lines, "latency", "one record", _LATENCIES),
            "### Start\n",
            _time_table(
                lines,
                "first",
                "first answer",
                (("seconds", "to the first answer"), ("cpu_seconds", "of the processor")),
            ),
            "### Memory\n",
            _memory_table(lines),
            "### Fetch sessions\n",
            _session_table(lines),
            "### In a process that computes\n",
            _busy_table(lines),
            "### Machine\n",
            facts,
            f"Measured by `python -m benchmarks.listening`: medians of {rounds} rounds (start and a process "
            "that computes: 3), in brackets the lowest and the highest; servers in turns.",
        ]
    )


# The picture ------------------------------------------------------------------------------------------------

_PANELS = (("Produce, acks=1", PRODUCE_ONE), ("Produce, acks=all", PRODUCE_ALL), ("Fetch", FETCH))
_COLORS = {OURS: "#d1495b", BROKER: "#30638e"}


def plot(lines: Lines, directory: Path) -> None:
    """Write ``listening.svg`` and ``listening.png``."""
    import matplotlib  # an extra: the rest of the package works without

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "listening", "font.size": 9, "svg.fonttype": "path"})
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(1, len(_PANELS), figsize=(12, 3.6), facecolor="white")
    for axes, (title, deed) in zip(grid, _PANELS, strict=True):
        for at, shape in enumerate(SHAPES):
            for number, (server, color) in enumerate(_COLORS.items()):
                found = lines.spread("rates", case_of(deed, shape), server, rate)
                if found is None:
                    continue
                place = at + 0.4 * number - 0.2
                axes.barh(place, found.median / 1e6, 0.38, color=color, label=server if at == 0 else None)
                axes.plot([found.low / 1e6, found.high / 1e6], [place, place], color="#333333", linewidth=1)
        axes.set_yticks(range(len(SHAPES)), [shape.name for shape in SHAPES])
        axes.invert_yaxis()
        axes.set_title(title, loc="left", fontweight="bold", fontsize=10.5)
        axes.set_xlabel("MB/s")
        axes.tick_params(axis="y", length=0)
        axes.grid(axis="x", color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
        for side in ("top", "right", "bottom"):
            axes.spines[side].set_visible(False)
    if lines.of("rates", case_of(FETCH, SHAPES[0]), OURS):
        grid[-1].legend(frameon=False, fontsize=8)
    figure.tight_layout()
    directory.mkdir(parents=True, exist_ok=True)
    figure.savefig(directory / "listening.png", dpi=150)
    figure.savefig(directory / "listening.svg", metadata={"Date": None})
    pyplot.close(figure)


def write(results: dict[str, Any]) -> None:
    """The page and the picture."""
    plot(Lines(results["lines"]), IMAGES)
    rewrite_region(DOCUMENT, format_page(results))
