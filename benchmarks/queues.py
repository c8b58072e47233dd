"""``python -m benchmarks.queues``: jobs per second of workers of a queue, beside others that do the same.

:mod:`benchmarks.queue_contenders` says what each of them does for a job. All run in this process, in turns,
with 1 worker and with 20 threads, with a flush and without; figures are medians of some rounds, and ratios
are taken within one round. Then logstore alone: how long a job takes from the append to a worker that waits,
and what thousands of jobs cost that are put off.

Rewrites ``benchmarks/results/queues.json``, a section of ``docs/speed.md`` and its picture.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import threading
import time
from collections.abc import Sequence
from contextlib import ExitStack
from statistics import median
from typing import Any

import logstore
from benchmarks.measure import ROOT, bring_to_disk, scratch_directory
from benchmarks.plot import format_short
from benchmarks.postgres import Postgres, PostgresError, start_postgres
from benchmarks.process import describe_machine, resident_memory_bytes
from benchmarks.queue_contenders import CONTENDERS, OURS_LOOP, OURS_SINGLE, VALUE, Load
from benchmarks.report import rewrite_region
from benchmarks.text import format_bytes, format_rate, format_ratio, format_seconds, format_table

DOCUMENT = ROOT / "docs" / "speed.md"
IMAGES = ROOT / "docs" / "images"
RESULTS = ROOT / "benchmarks" / "results" / "queues.json"

_ROUNDS = 5
_WORKERS = (1, 20)
_QUICK_SHARE = 50
_DELAYS = 1_000
_WAITING = (0, 19)
_PUT_OFF = (0, 1_000, 5_000, 9_000)
_IN_FLIGHT = (0, 1_990)
_SAMPLE = 300
_GOALS = ((False, 200_000), (True, 5_000))
"""Jobs per second in one process that loops shall reach: without a flush, and durable."""

Line = dict[str, Any]
"""A measurement."""


class WrongCountError(Exception):
    """Jobs were lost, or done twice."""


# Rates ------------------------------------------------------------------------------------------------------


def rate_of(name: str, load: Load) -> float:
    """Jobs per second.

    Raises:
        WrongCountError: other than once each.
    """
    done: list[int] = []
    with CONTENDERS[name].run(load) as works:
        threads = [threading.Thread(target=lambda work=work: done.append(work())) for work in works]
        bring_to_disk()
        started = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        seconds = time.perf_counter() - started
    if len(done) != load.worker_count or sum(done) != load.job_count:
        raise WrongCountError(f"{name}: {sum(done)} of {load.job_count} jobs by {len(done)} workers")
    return load.job_count / seconds


def rates(
    directory: str, names: Sequence[str], rounds: int, share: int, server: Postgres | None
) -> list[Line]:
    """Of all contenders, in turns."""
    lines: list[Line] = []
    for number in range(rounds):
        for is_durable in (True, False):
            for worker_count in _WORKERS:
                for name in names:
                    contender = CONTENDERS[name]
                    count = contender.durable_jobs if is_durable else contender.other_jobs
                    place = f"{directory}/queue"
                    load = Load(place, max(count // share, 20), worker_count, is_durable, server)
                    rate = rate_of(name, load)
                    shutil.rmtree(place, ignore_errors=True)
                    lines.append(
                        {
                            "contender": name,
                            "durable": is_durable,
                            "workers": worker_count,
                            "round": number,
                            "rate": rate,
                        }
                    )
    return lines


# logstore alone ---------------------------------------------------------------------------------------------


def delays(directory: str, count: int, waiting: int) -> Line:
    """From the append of a job to a worker that waits, with so many other workers waiting beside: seconds."""
    taken: list[float] = []
    over = threading.Event()

    def work(queue: logstore.Queue) -> None:
        try:
            for job in queue:
                taken.append(time.perf_counter() - float(job.value))
                job.accept()
                if len(taken) == count:
                    over.set()
        except logstore.RetriableError:  # woken up
            return

    with logstore.open(f"{directory}/delays-{waiting}") as store, ExitStack() as stack:
        log = store.create_topic("jobs")[0]
        queues = [stack.enter_context(store.queue("jobs", group="workers")) for _ in range(waiting + 1)]
        threads = [threading.Thread(target=work, args=(queue,)) for queue in queues]
        for thread in threads:
            thread.start()
        for _ in range(count):
            log.extend([b"%.9f" % time.perf_counter()])
            time.sleep(0.001)
        over.wait(60)
        for queue in queues:
            queue.wakeup()
        for thread in threads:
            thread.join()
    if len(taken) != count:
        raise WrongCountError(f"{len(taken)} of {count} jobs arrived")
    taken.sort()
    return {"waiting": waiting, "median": taken[count // 2], "p99": taken[count * 99 // 100]}


def put_off(directory: str, counts: Sequence[int], sample: int) -> list[Line]:
    """What it costs to put a job off, and to take and accept another, once so many are put off, each to
    another time; at last, as many as the partition takes."""
    lines: list[Line] = []
    with logstore.open(f"{directory}/put-off") as store:
        log = store.create_topic("jobs")[0]
        for _ in range(400):
            log.extend([VALUE] * 100)
        before = resident_memory_bytes()
        with store.queue("jobs", group="workers", linger_ms=0) as queue:
            done = 0

            def release_one() -> float | None:
                nonlocal done
                found = queue.poll(0, max_jobs=1)
                if not found:
                    return None
                started = time.perf_counter()
                found[0].release(3_600 + done * 0.01)
                done += 1
                return time.perf_counter() - started

            for count in [*counts, None]:
                released = []
                while count is None or done < count + sample:
                    seconds = release_one()
                    if seconds is None:
                        break
                    released.append(seconds)
                line: Line = {
                    "put_off": done,
                    "release_seconds": median(released[-sample:]),
                    "memory_bytes": max(resident_memory_bytes() - before, 0),
                }
                others = []
                for _ in range(sample if count is not None else 0):
                    started = time.perf_counter()
                    queue.poll(0, max_jobs=1)[0].accept()
                    others.append(time.perf_counter() - started)
                line["other_seconds"] = median(others) if others else None
                lines.append(line)
    return lines


def in_flight(directory: str, counts: Sequence[int], sample: int) -> list[Line]:
    """What it costs to take and accept a job while two workers have so many others, each a run of its own."""
    lines: list[Line] = []
    for count in counts:
        with logstore.open(f"{directory}/in-flight-{count}") as store, ExitStack() as stack:
            log = store.create_topic("jobs")[0]
            for _ in range((count + sample) // 100 + 1):
                log.extend([VALUE] * 100)
            queues = [
                stack.enter_context(store.queue("jobs", group="workers", linger_ms=0)) for _ in range(2)
            ]
            for number in range(count):
                queues[number % 2].poll(0, max_jobs=1)
            seconds = []
            for number in range(sample):
                started = time.perf_counter()
                queues[number % 2].poll(0, max_jobs=1)[0].accept()
                seconds.append(time.perf_counter() - started)
            lines.append({"in_flight": count, "seconds": median(seconds)})
    return lines


# The page ---------------------------------------------------------------------------------------------------


def _rates_of(lines: Sequence[Line], name: str, is_durable: bool, workers: int) -> dict[int, float]:
    return {
        line["round"]: line["rate"]
        for line in lines
        if (line["contender"], line["durable"], line["workers"]) == (name, is_durable, workers)
    }


def format_rates_table(results: dict[str, Any], is_durable: bool) -> str:
    """A line for each contender."""
    lines, left_out = results["lines"], results["left_out"]
    rows = []
    for name, contender in CONTENDERS.items():
        if name in left_out:
            rows.append([name, left_out[name], *[""] * (2 * len(_WORKERS) - 1)])
            continue
        row = [name]
        for workers in _WORKERS:
            own = _rates_of(lines, name, is_durable, workers)
            ours = _rates_of(lines, contender.beside, is_durable, workers)
            row.append(f"{format_rate(median(own.values()))}/s")
            ratio = median(ours[number] / own[number] for number in own)
            row.append("" if name in (OURS_LOOP, OURS_SINGLE) else format_ratio(ratio))
        rows.append(row)
    titles = ["durable" if is_durable else "without a flush"]
    for workers in _WORKERS:
        titles += [f"{workers} worker{'s' if workers > 1 else ''}", "logstore vs it"]
    return format_table(titles, rows, text_columns=1)


def format_goals(lines: Sequence[Line]) -> str:
    """What loops reach, and what they shall."""
    rows = []
    for is_durable, goal in _GOALS:
        found = max(median(_rates_of(lines, OURS_LOOP, is_durable, workers).values()) for workers in _WORKERS)
        kind = "durable" if is_durable else "without a flush"
        verdict = "met" if found >= goal else "**missed**"
        rows.append(
            [f"Jobs per second in one process, {kind}", verdict, format_rate(found), format_rate(goal)]
        )
    return format_table(["goal", "", "measured", "must"], rows)


def format_page(results: dict[str, Any]) -> str:
    """Everything between the marks."""
    machine = results["machine"]
    names = ("cpu", "cores", "file system", "kernel", "python", "postgres", "load average", "commit", "date")
    facts = ", ".join(f"{name} {machine[name]}" for name in names if name in machine)
    waits = [
        [f"{line['waiting']}", format_seconds(line["median"]), format_seconds(line["p99"])]
        for line in results["delays"]
    ]
    flights = [[f"{line['in_flight']:,}", format_seconds(line["seconds"])] for line in results["in_flight"]]
    offs = [
        [
            f"{line['put_off']:,}",
            format_seconds(line["release_seconds"]),
            format_seconds(line["other_seconds"]) if line["other_seconds"] else "none is given",
            format_bytes(line["memory_bytes"]),
        ]
        for line in results["put_off"]
    ]
    return "\n".join(
        [
            "![Jobs per second by contender](images/queues.svg)\n",
            format_goals(results["lines"]),
            format_rates_table(results, True),
            format_rates_table(results, False),
            "A job on its way from `extend` to a worker that waits, in the same process:\n",
            format_table(["other workers that wait", "median", "99 %"], waits, text_columns=0),
            "Jobs that two workers have, taken one by one in turns:\n",
            format_table(["in flight", "to take and accept another"], flights, text_columns=0),
            "Jobs that are put off, each to another time, in one partition:\n",
            format_table(
                ["put off", "to put off one more", "to take and accept another", "memory"],
                offs,
                text_columns=0,
            ),
            f"Measured by `python -m benchmarks.queues`: {facts}. Jobs of 100 bytes; medians of "
            f"{results['rounds']} rounds, ratios within a round. Every measurement is in "
            "`benchmarks/results/queues.json`.",
        ]
    )


# The picture ------------------------------------------------------------------------------------------------


def plot(results: dict[str, Any]) -> None:
    """Write ``queues.svg`` and ``queues.png``."""
    import matplotlib  # an extra: the rest of the module works without

    matplotlib.use("Agg")
    matplotlib.rcParams.update({"svg.hashsalt": "queues", "font.size": 9, "svg.fonttype": "path"})
    from matplotlib import pyplot

    figure, grid = pyplot.subplots(2, 2, figsize=(12, 6), facecolor="white", sharey=True, sharex="row")
    for row, is_durable in zip(grid, (True, False), strict=True):
        for axes, workers in zip(row, _WORKERS, strict=True):
            _draw(axes, results, is_durable, workers)
    note = "jobs per second, logarithmic axes; line: lowest to highest round"
    figure.text(0.99, 0.005, note, ha="right", va="bottom", fontsize=8.5, color="#666666")
    figure.tight_layout(rect=(0, 0.02, 1, 1), h_pad=2, w_pad=2)
    figure.savefig(IMAGES / "queues.png", dpi=150)
    figure.savefig(IMAGES / "queues.svg", metadata={"Date": None})
    pyplot.close(figure)


def _draw(axes: Any, results: dict[str, Any], is_durable: bool, workers: int) -> None:
    names = [name for name in CONTENDERS if name not in results["left_out"]]
    most = 0.0
    for at, name in enumerate(names):
        found = sorted(_rates_of(results["lines"], name, is_durable, workers).values())
        color = "#d1495b" if name in (OURS_LOOP, OURS_SINGLE) else "#30638e"
        axes.barh(at, median(found), 0.78, color=color)
        axes.plot([found[0], found[-1]], [at, at], color="#333333", linewidth=1, solid_capstyle="butt")
        axes.annotate(
            f"{format_short(median(found))}/s",
            (found[-1], at),
            xytext=(4, 0),
            textcoords="offset points",
            va="center",
            fontsize=8,
        )
        most = max(most, found[-1])
    axes.set_xscale("log")
    axes.set_xlim(50, max(most * 6, axes.get_xlim()[1]))
    axes.set_yticks(range(len(names)), names)
    axes.set_ylim(len(names) - 0.4, -0.6)
    kind = "Durable" if is_durable else "Without a flush"
    title = f"{kind}, {workers} worker{'s' if workers > 1 else ''}"
    axes.set_title(title, loc="left", fontweight="bold", fontsize=10.5)
    axes.tick_params(axis="y", length=0)
    axes.xaxis.set_major_formatter(lambda rate, _: format_short(rate))
    axes.grid(axis="x", color="#e4e4e4", linewidth=0.8)
    axes.set_axisbelow(True)
    for side in ("top", "right", "bottom"):
        axes.spines[side].set_visible(False)


# All of it --------------------------------------------------------------------------------------------------


def measure(directory: str, *, is_quick: bool) -> dict[str, Any]:
    """Everything, as it is stored."""
    share, rounds = (_QUICK_SHARE, 1) if is_quick else (1, _ROUNDS)
    put_offs = put_off(directory, (0, 50) if is_quick else _PUT_OFF, 20 if is_quick else _SAMPLE)
    flights = in_flight(directory, (0, 50) if is_quick else _IN_FLIGHT, 20 if is_quick else _SAMPLE)
    waits = [delays(directory, _DELAYS // share, waiting) for waiting in _WAITING]
    machine = describe_machine(directory)
    with ExitStack() as stack:
        server, why_not = None, ""
        try:
            server = stack.enter_context(start_postgres(directory))
            machine["postgres"] = server.version
        except PostgresError as error:
            why_not = str(error)
        left_out = {
            name: why for name, contender in CONTENDERS.items() if (why := contender.why_not(why_not))
        }
        names = [name for name in CONTENDERS if name not in left_out]
        before = os.getloadavg()[0]
        lines = rates(directory, names, rounds, share, server)
    machine["load average"] = f"{before:.1f} before and {os.getloadavg()[0]:.1f} after"
    return {
        "machine": machine,
        "rounds": rounds,
        "left_out": left_out,
        "lines": lines,
        "delays": waits,
        "in_flight": flights,
        "put_off": put_offs,
    }


def write(results: dict[str, Any]) -> None:
    """The page and its picture."""
    plot(results)
    rewrite_region(DOCUMENT, format_page(results), program="benchmarks.queues")


def main(command: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.queues", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few jobs, once; prints and writes nothing")
    parser.add_argument("--page", action="store_true", help="write the page again from the stored results")
    parser.add_argument("--directory", help="where to measure; on the disk that you want to know about")
    arguments = parser.parse_args(command)
    if arguments.page:
        write(json.loads(RESULTS.read_text()))
        return
    with scratch_directory(arguments.directory) as directory:
        results = measure(directory, is_quick=arguments.quick)
    if arguments.quick:
        print(format_page(results))
        return
    os.makedirs(RESULTS.parent, exist_ok=True)
    RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    write(results)


if __name__ == "__main__":
    main()
