"""``python -m benchmarks.clients``: see the package. Each measurement has a process of its own; the
contenders take turns, and another one is first in each round. ``--only`` measures parts and keeps the other
parts' lines of ``benchmarks/results/clients.json``. Rewrites ``docs/client-speed.md`` and its picture.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from time import perf_counter
from typing import Any

from benchmarks.clients import page
from benchmarks.clients.measuring import (
    CONFLUENT,
    QUEUE,
    QUEUE_FLUSHED,
    SIZES,
    Line,
    measure_elsewhere,
)
from benchmarks.clients.parts import PARTS
from benchmarks.measure import ROOT, bring_to_disk, scratch_directory
from benchmarks.process import describe_machine

RESULTS = ROOT / "benchmarks" / "results" / "clients.json"

_NEEDS = {
    CONFLUENT: "confluent_kafka",
    QUEUE: "persistqueue",
    QUEUE_FLUSHED: "persistqueue",
}
_PACKAGES = ("confluent-kafka", "persist-queue")


def is_available(case: str) -> bool:
    """Whether the contender's library is installed."""
    return case not in _NEEDS or importlib.util.find_spec(_NEEDS[case]) is not None


def measure(name: str, size: str, directory: str) -> Iterator[Line]:
    """All rounds of one part."""
    part, sizes = PARTS[name], SIZES[size]
    cases = [case for case in part.cases if is_available(case)]
    if name == "partitions":
        cases = cases[: len(sizes.partitions)]
    for number in range(part.rounds(sizes)):
        first = number % len(cases)
        for case in cases[first:] + cases[:first]:
            _report(f"{name}, round {number + 1}: {case}")
            place = tempfile.mkdtemp(prefix="case-", dir=directory)
            bring_to_disk()
            found = measure_elsewhere(name, case, place, size)
            shutil.rmtree(place)
            yield {"part": name, "case": case, "round": number + 1, **found}


_STARTED = perf_counter()


def _report(text: str) -> None:
    print(f"{perf_counter() - _STARTED:6.0f} s  {text}", file=sys.stderr, flush=True)


def describe(directory: str) -> dict[str, str]:
    """The machine, the libraries, and how busy others kept it when the run began."""
    facts = describe_machine(directory)
    for package in _PACKAGES:
        if importlib.util.find_spec(package.replace("-kafka", "_kafka").replace("-queue", "queue")):
            facts[package] = version(package)
    if CONFLUENT in facts:
        from confluent_kafka import libversion

        facts["librdkafka"] = libversion()[0]
    return facts | {"load before": f"{os.getloadavg()[0]:.1f} of {os.cpu_count()} cores"}


def merge(old: dict[str, Any], part: str, machine: dict[str, str], lines: list[Line]) -> dict[str, Any]:
    """New lines instead of the old ones of the same part. The machine is that of the newest."""
    kept = [line for line in old.get("lines", []) if line["part"] != part]
    return {"machine": machine, "lines": kept + lines}


def main(command: Sequence[str] | None = None) -> None:
    """Measure; print, or write results and page."""
    arguments = _parse(command)
    if arguments.case:
        part, case = arguments.case
        print(json.dumps(PARTS[part].cases[case](arguments.directory, SIZES[arguments.size])))
        return
    path = Path(arguments.output) if arguments.output else RESULTS
    results = json.loads(path.read_text()) if path.exists() and not arguments.quick else {}
    if arguments.page:
        page.write(results)
        return
    size = "quick" if arguments.quick else arguments.size
    with scratch_directory(arguments.directory) as directory:
        machine = describe(directory)
        for part in arguments.only:
            results = merge(results, part, machine, list(measure(part, size, directory)))
            if not arguments.quick:  # keep each part, even if the next one fails
                path.write_text(json.dumps(results, indent=1) + "\n")
    if arguments.quick:
        print(page.format_page(results))
    elif not arguments.output:
        page.write(results)


def _parse(command: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.clients", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="little of everything; prints and writes nothing"
    )
    parser.add_argument(
        "--only", type=_names, default=list(PARTS), help=f"parts, by commas: {', '.join(PARTS)}"
    )
    parser.add_argument("--directory", help="where to measure; on the disk that you want to know about")
    parser.add_argument(
        "--page", action="store_true", help="measure nothing: write the page from the results"
    )
    parser.add_argument(
        "--output", help="a file for the results instead of the repository's; no page is written"
    )
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--size", choices=SIZES, default="full", help=argparse.SUPPRESS)
    return parser.parse_args(command)


def _names(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in PARTS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(PARTS)}")
    return names


if __name__ == "__main__":
    main()
