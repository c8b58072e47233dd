"""The benchmark of clients as a page: goals, tables and a picture, all computed from the lines of a run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.clients.measuring import (
    CONFLUENT,
    OURS,
    OURS_FLUSHED,
    QUEUE,
    QUEUE_FLUSHED,
    SQLITE,
    SQLITE_FLUSHED,
    Line,
)
from benchmarks.clients.parts import (
    ALONE,
    BESIDE_IDLE,
    CLEAN,
    IDLE,
    KILLED,
    OPEN,
    OPEN_FLUSHED,
    OPEN_PRODUCERS,
    POLL_ARROW,
    READ_ARROW,
)
from benchmarks.goals import Goal, format_goal_rows
from benchmarks.measure import ROOT
from benchmarks.plot import format_short
from benchmarks.report import rewrite_region
from benchmarks.results import Spread
from benchmarks.text import (
    format_bytes,
    format_rate,
    format_ratios,
    format_seconds,
    format_table,
)

DOCUMENT = ROOT / "docs" / "client-speed.md"
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
    "confluent-kafka",
    "librdkafka",
    "persist-queue",
    "sqlite",
)
_MIB = 2**20
_CASES = (OURS, CONFLUENT, SQLITE, QUEUE, OURS_FLUSHED, SQLITE_FLUSHED, QUEUE_FLUSHED)
_OURS_OF = {
    CONFLUENT: OURS,
    SQLITE: OURS,
    QUEUE: OURS,
    SQLITE_FLUSHED: OURS_FLUSHED,
    QUEUE_FLUSHED: OURS_FLUSHED,
}
"""The case of ours that does the same work."""

Figure = Callable[[Line], float]


def sent(line: Line) -> float:
    """Records per second."""
    return float(line["records"] / line["sent_seconds"])


def sent_by_cpu(line: Line) -> float:
    """Records per second of processor time."""
    return float(line["records"] / line["cpu_sent_seconds"])


def received_by_cpu(line: Line) -> float:
    """Records per second of processor time."""
    return float(line.get("received", line["records"]) / line["cpu_received_seconds"])


def received(line: Line) -> float:
    """Records per second."""
    return float(line.get("received", line["records"]) / line["received_seconds"])


def iterated(line: Line) -> float:
    """Records per second."""
    return float(line["records"] / line["iterated_seconds"])


def value_of(name: str) -> Figure:
    """A figure as it is."""
    return lambda line: float(line[name])


def each(name: str, count: str) -> Figure:
    """A figure, divided by another."""
    return lambda line: float(line[name] / line[count])


class Lines:
    """The lines of a run."""

    def __init__(self, lines: Sequence[Line]) -> None:
        self._lines = list(lines)

    def of(self, part: str, case: str) -> list[Line]:
        """In the order of their rounds."""
        return [line for line in self._lines if (line["part"], line["case"]) == (part, case)]

    def cases(self, part: str) -> list[str]:
        """Those that were measured."""
        return list(dict.fromkeys(line["case"] for line in self._lines if line["part"] == part))

    def spread(self, part: str, case: str, figure: Figure) -> Spread | None:
        """A figure over all rounds."""
        values = [figure(line) for line in self.of(part, case)]
        return Spread.of(values) if values else None

    def ratio(self, part: str, case: str, other: str, figure: Figure) -> Spread | None:
        """The figure of one case over that of another, round by round."""
        pairs = zip(*([figure(line) for line in self.of(part, name)] for name in (case, other)), strict=False)
        ratios = [mine / theirs for mine, theirs in pairs]
        return Spread.of(ratios) if ratios else None


# Goals ------------------------------------------------------------------------------------------------------


def _share(share: float) -> str:
    return f"{share:.2%}"


def _count(count: float) -> str:
    return f"{count:.0f}"


_RATIOS = (  # part, figure, what it is called, peer, must
    ("rates", sent, "send()", CONFLUENT, 1.0),
    ("rates", sent, "send()", SQLITE, 1.0),
    ("rates", sent, "send()", QUEUE, 1.0),
    ("rates", received, "poll()", CONFLUENT, 1.0),
    ("rates", received, "poll()", SQLITE, 1.0),
    ("rates", received, "poll()", QUEUE, 1.0),
    ("rates", sent, "send()", SQLITE_FLUSHED, 1.0),
    ("rates", sent, "send()", QUEUE_FLUSHED, 1.0),
)
_CEILINGS = (  # title, part, case, figure, must, how it is shown
    ("To another thread, 99 %", "delays", ALONE, value_of("p99_seconds"), 1e-3, format_seconds),
    (
        "The same, others wait beside, 99 %",
        "delays",
        BESIDE_IDLE,
        value_of("p99_seconds"),
        1e-3,
        format_seconds,
    ),
    ("Commit an offset", "commits", OURS, value_of("seconds"), 50e-6, format_seconds),
    ("Load 10,000 groups, clean", "loading", CLEAN, value_of("seconds"), 1.0, format_seconds),
    ("Load 10,000 groups, after a kill", "loading", KILLED, value_of("seconds"), 1.0, format_seconds),
    ("1,000 consumers wait: threads", "waiting", IDLE, value_of("threads"), 0.0, _count),
    ("1,000 consumers wait: of one core", "waiting", IDLE, value_of("share"), 0.01, _share),
    ("A transaction of one record", "transactions", OURS, value_of("one_seconds"), 1e-3, format_seconds),
    ("10,000 open transactions: memory", "open", OPEN, value_of("memory_bytes"), 50.0 * _MIB, format_bytes),
)


def goals_of(lines: Lines) -> list[tuple[Goal, Spread | None]]:
    """The goals, and what was measured."""
    found: list[tuple[Goal, Spread | None]] = []

    def add(goal: Goal, measured: Spread | None) -> None:
        found.append((goal._replace(measure=lambda _: measured), measured))

    def rate(title: str, must: float, aim: float, figure: Figure) -> None:
        add(Goal(title, must, aim, _unmeasured, format_rate), lines.spread("rates", OURS, figure))

    rate("send(), records per second", 1e6, 3e6, sent)
    rate("send(), records per second of processor time", 1e6, 3e6, sent_by_cpu)
    rate("poll(), records per second", 3e6, 8e6, received)
    rate("poll(), records per second of processor time", 3e6, 8e6, received_by_cpu)
    for part, figure, name, peer, must in _RATIOS:
        measured = lines.ratio(part, _OURS_OF[peer], peer, figure)
        add(Goal(f"{name}, vs {peer}", must, None, _unmeasured), measured)
    columns = lines.ratio("columns", POLL_ARROW, READ_ARROW, each("records", "seconds"))
    add(Goal("poll_arrow(), vs read_arrow()", 0.5, None, _unmeasured), columns)
    for title, part, case, value, ceiling, show in _CEILINGS:
        add(Goal(title, ceiling, None, _unmeasured, show, is_ceiling=True), lines.spread(part, case, value))
    many = lines.spread("transactions", OURS, each("plain_seconds", "many_seconds"))
    producers = lines.spread("open", OPEN_PRODUCERS, value_of("memory_bytes"))
    title = "The same with a producer each: memory"
    add(Goal(title, 50.0 * _MIB, None, _unmeasured, format_bytes, is_ceiling=True), producers)
    add(Goal("1,000 records in a transaction, vs without", 0.8, None, _unmeasured), many)
    return found


def _unmeasured(_: object) -> None:
    return None


# Tables -----------------------------------------------------------------------------------------------------


def _rate_table(lines: Lines) -> str:
    rows = []
    for case in _CASES:
        if not lines.of("rates", case):
            continue
        cells = [case]
        for figure, by_cpu in ((sent, sent_by_cpu), (received, received_by_cpu)):
            rate, cpu_rate = lines.spread("rates", case, figure), lines.spread("rates", case, by_cpu)
            assert rate is not None
            assert cpu_rate is not None
            beside = _beside(lines, "rates", case, figure)
            cells += [f"{format_rate(rate.median)}/s", beside, format_rate(cpu_rate.median)]
        rows.append(cells)
        if case == OURS and (rate := lines.spread("rates", case, iterated)):
            rows.append(["logstore, record by record", "", "", "", f"{format_rate(rate.median)}/s", "", ""])
    titles = ["", "sent", "logstore vs it", "per CPU second", "received", "logstore vs it", "per CPU second"]
    return format_table(titles, rows, text_columns=1)


def _beside(lines: Lines, part: str, case: str, figure: Figure) -> str:
    """How many times as fast ours is, with the same durability."""
    if case not in _OURS_OF:
        return ""
    ratio = lines.ratio(part, _OURS_OF[case], case, figure)
    return "" if ratio is None else format_ratios(ratio)


def _time_table(lines: Lines, part: str, cases: Sequence[str], names: dict[str, str]) -> str:
    """Medians of times, by case and figure, and how many times as fast ours is in the first."""
    rows = []
    for case in cases:
        spreads = [lines.spread(part, case, _optional(name)) for name in names]
        if spreads[0] is None:
            continue
        cells = [
            "" if spread is None or spread.median == 0 else format_seconds(spread.median)
            for spread in spreads
        ]
        first = next(iter(names))
        rows.append([case, *cells, _beside(lines, part, case, _inverse(first))])
    titles = ["", *names.values(), "logstore vs it"]
    if not any(row[-1] for row in rows):
        titles, rows = titles[:-1], [row[:-1] for row in rows]
    return format_table(titles, rows, text_columns=1)


def _optional(name: str) -> Figure:
    return lambda line: float(line.get(name, 0))


def _inverse(name: str) -> Figure:
    return lambda line: 1 / float(line[name])


def _partition_table(lines: Lines) -> str:
    rows = []
    for case in lines.cases("partitions"):
        found = lines.of("partitions", case)
        cells = [f"{found[0]['partitions']:,}"]
        for name, share in (("sent_seconds", 1.0), ("lingered_seconds", 0.1), ("received_seconds", 1.1)):
            seconds = median(line[name] / (line["records"] * share) for line in found)
            cells.append(_format_short_time(seconds))
        rows.append(cells)
    titles = ["partitions", "send, whole batches", "send, batches of 5 ms", "poll"]
    return format_table(titles, rows, text_columns=0)


def _format_short_time(seconds: float) -> str:
    return f"{seconds * 1e9:.0f} ns" if seconds < 1e-6 else format_seconds(seconds)


def _transaction_table(lines: Lines) -> str:
    rows = []
    for case in (OURS, CONFLUENT, SQLITE, OURS_FLUSHED, SQLITE_FLUSHED):
        found = lines.of("transactions", case)
        if not found:
            continue
        one, many = (median(line[name] for line in found) for name in ("one_seconds", "many_seconds"))
        share = [line["plain_seconds"] / line["many_seconds"] for line in found if "plain_seconds" in line]
        rows.append(
            [
                case,
                format_seconds(one),
                _beside(lines, "transactions", case, _inverse("one_seconds")),
                format_seconds(many),
                _beside(lines, "transactions", case, _inverse("many_seconds")),
                f"{median(share):.0%}" if share else "",
            ]
        )
    titles = ["", "of one record", "logstore vs it", "of 1,000", "logstore vs it", "rate of 1,000 vs without"]
    return format_table(titles, rows, text_columns=1)


def _open_table(lines: Lines) -> str:
    rows = []
    for case in (OPEN, OPEN_FLUSHED, OPEN_PRODUCERS):
        found = lines.of("open", case)
        if found:
            memory = median(line["memory_bytes"] for line in found)
            seconds = median(line["seconds"] for line in found)
            threads = median(line["threads"] for line in found)
            number = f"{found[0]['open']:,}"
            rows.append([case, number, format_bytes(memory), f"{threads:.0f}", format_seconds(seconds)])
    titles = ["", "open", "memory", "threads of the process", "opening one"]
    return format_table(titles, rows, text_columns=1)


def _waiting_table(lines: Lines) -> str:
    found = lines.of("waiting", IDLE)
    if not found:
        return ""
    threads, share, memory = (
        median(line[name] for line in found) for name in ("threads", "share", "memory_bytes")
    )
    rows = [[_count(threads), _share(share), format_bytes(memory)]]
    return format_table(["threads added", "of one core", "memory for each"], rows, text_columns=0)


_COMMIT = {"seconds": "time"}
_LOADING = {"seconds": "time", "cpu_seconds": "of the processor"}
_DELAYS = {"median_seconds": "median", "p99_seconds": "99 %", "p999_seconds": "99.9 %"}


def format_page(results: dict[str, Any]) -> str:
    """Everything between the marks."""
    lines = Lines(results["lines"])
    machine = results["machine"]
    facts = format_table(["", ""], [[f"**{name}**", machine[name]] for name in _FACTS if name in machine])
    rounds = max(line["round"] for line in results["lines"])
    return "\n".join(
        [
            "![Records per second](images/clients.svg)\n",
            "### Goals\n",
            format_goal_rows(goals_of(lines)),
            "### Sending and receiving\n",
            _rate_table(lines),
            "### From one thread to another\n",
            _time_table(lines, "delays", (ALONE, BESIDE_IDLE, CONFLUENT), _DELAYS),
            "### Consumers that wait\n",
            _waiting_table(lines),
            "### Committing an offset\n",
            _time_table(lines, "commits", (OURS, CONFLUENT, SQLITE, OURS_FLUSHED, SQLITE_FLUSHED), _COMMIT),
            "### Loading 10,000 groups with 100,000 offsets\n",
            _time_table(lines, "loading", (CLEAN, KILLED, SQLITE), _LOADING),
            "### By the number of partitions\n",
            "Time per record.\n",
            _partition_table(lines),
            "### Transactions\n",
            _transaction_table(lines),
            _open_table(lines),
            "### Machine\n",
            facts,
            f"Measured by `python -m benchmarks.clients`: medians of {rounds} rounds (partitions: 2, open "
            "transactions: 1), in brackets the lowest and the highest; each measurement in a process of its "
            "own, contenders in turns.",
        ]
    )


# The picture ------------------------------------------------------------------------------------------------

_PANELS = (("Sent, 100 bytes, one thread", sent), ("Received", received))
_OURS_COLOR, _PEER_COLOR = "#d1495b", "#30638e"


def plot(lines: Lines, directory: Path) -> None:
    """Write ``clients.svg`` and ``clients.png``."""
    import matplotlib  # an extra: the rest of the package works without

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "clients", "font.size": 9, "svg.fonttype": "path"})
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(1, 2, figsize=(12, 3.6), facecolor="white")
    cases = [case for case in _CASES if lines.of("rates", case)]
    for axes, (title, value) in zip(grid, _PANELS, strict=True):
        for at, case in enumerate(cases):
            rate = lines.spread("rates", case, value)
            assert rate is not None
            axes.barh(
                at, rate.median, 0.78, color=_OURS_COLOR if case in (OURS, OURS_FLUSHED) else _PEER_COLOR
            )
            axes.plot([rate.low, rate.high], [at, at], color="#333333", linewidth=1)
            axes.annotate(
                f"{format_short(rate.median)}/s",
                (rate.high, at),
                xytext=(4, 0),
                textcoords="offset points",
                va="center",
                fontsize=8,
            )
        axes.set_xscale("log")
        axes.set_xlim(axes.get_xlim()[0], axes.get_xlim()[1] * 4)
        axes.set_yticks(range(len(cases)), cases)
        axes.invert_yaxis()
        axes.set_title(title, loc="left", fontweight="bold", fontsize=10.5)
        axes.tick_params(axis="y", length=0)
        axes.xaxis.set_major_formatter(lambda rate, _: format_short(rate))
        axes.grid(axis="x", color="#e4e4e4", linewidth=0.8)
        axes.set_axisbelow(True)
        for side in ("top", "right", "bottom"):
            axes.spines[side].set_visible(False)
    figure.tight_layout()
    directory.mkdir(parents=True, exist_ok=True)
    figure.savefig(directory / "clients.png", dpi=150)
    figure.savefig(directory / "clients.svg", metadata={"Date": None})
    pyplot.close(figure)


def write(results: dict[str, Any]) -> None:
    """The page and the picture."""
    plot(Lines(results["lines"]), IMAGES)
    rewrite_region(DOCUMENT, format_page(results))
