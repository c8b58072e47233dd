"""``python -m benchmarks``: measure everything; rewrite results, pictures and documentation."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from benchmarks.alone import ALONE, measure_alone
from benchmarks.contenders import NAMES, contender_class, why_missing
from benchmarks.curves import plot_curves
from benchmarks.measure import ROOT, Rounds, scratch_directory
from benchmarks.plan import RACED_FIGURES
from benchmarks.plot import plot
from benchmarks.process import describe_machine, touch_free_memory
from benchmarks.report import format_numbers, format_report, format_summary, rewrite_region
from benchmarks.results import Results
from benchmarks.sizes import FULL, QUICK, Sizes

RESULTS_NAME = "results.json"


@dataclass(frozen=True, slots=True)
class Places:
    """Where the results are written."""

    results: Path
    images: Path
    document: Path | None = None
    """The page with a region for the short form."""
    readme: Path | None = None
    """The page with a region for the figures of logstore."""


PUBLISHED = Places(
    results=ROOT / "benchmarks" / "results",
    images=ROOT / "docs" / "images",
    document=ROOT / "docs" / "benchmarks.md",
    readme=ROOT / "README.md",
)


def main(command: Sequence[str] | None = None) -> None:
    arguments = _parse(command)
    if arguments.list:
        _list()
        return
    places = _places_of(arguments)
    if arguments.report:
        assert places is not None
        write_outcome(Results.load(places.results / RESULTS_NAME), places)
        return
    wanted = set(arguments.only or (*RACED_FIGURES, *ALONE))
    sizes = QUICK if arguments.quick else FULL
    if arguments.rounds:
        sizes = replace(sizes, rounds=arguments.rounds)
    results = measure(sizes, wanted, arguments.directory)
    if places is None:
        print(format_report(results))
    else:
        places.results.mkdir(parents=True, exist_ok=True)
        results.store(places.results / RESULTS_NAME)
        write_outcome(results, places)


def measure(sizes: Sizes, wanted: set[str], parent: str | None = None) -> Results:
    """Measure the wanted figures, below a temporary directory in ``parent``."""
    with scratch_directory(parent) as directory:
        machine = describe_machine(directory)
        if sizes is not QUICK:
            touch_free_memory()
        started = time.monotonic()

        def report(text: str) -> None:
            print(f"{time.monotonic() - started:6.0f} s  {text}", file=sys.stderr, flush=True)

        measurements = Rounds(sizes, wanted, directory, report).run()
        alone, skipped = measure_alone(sizes, wanted, directory, report)
    return Results(machine=machine, measurements=measurements, alone=alone, skipped=_missing() | skipped)


def _missing() -> dict[str, str]:
    """The contenders that cannot be measured here, and why."""
    return {name: reason for name in NAMES if (reason := why_missing(name))}


def write_outcome(results: Results, places: Places) -> None:
    """Tables, pictures, and the region in the documentation."""
    (places.results / "results.md").write_text(format_report(results))
    plot(results, places.images)
    plot_curves(results, places.images)
    if places.document is not None:
        rewrite_region(places.document, format_summary(results))
    if places.readme is not None:
        rewrite_region(places.readme, format_numbers(results))


def _parse(command: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="small sizes, under a minute; says little")
    parser.add_argument("--only", type=_names, help="figures to measure, with commas between; see --list")
    parser.add_argument("--rounds", type=int, help="instead of five; fewer say little")
    parser.add_argument("--list", action="store_true", help="list figures and contenders")
    parser.add_argument(
        "--report", action="store_true", help="measure nothing, write the stored results anew"
    )
    parser.add_argument("--directory", help="where to measure; on the disk that you want to know about")
    parser.add_argument(
        "--output", help="write everything there; without it a quick, short or partial run only prints"
    )
    return parser.parse_args(command)


def _names(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in (*RACED_FIGURES, *ALONE):
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join((*RACED_FIGURES, *ALONE))}")
    return names


def _places_of(arguments: argparse.Namespace) -> Places | None:
    """Where to write; None to print. Only whole runs at full size are published."""
    if arguments.output:
        return Places(Path(arguments.output), Path(arguments.output, "images"))
    return None if arguments.quick or arguments.only or arguments.rounds else PUBLISHED


def _list() -> None:
    print("figures, against the peers: ", ", ".join(RACED_FIGURES))
    print("figures, logstore alone:    ", ", ".join(ALONE))
    for name in NAMES:
        print(f"{name:18}", why_missing(name) or contender_class(name).settings)


if __name__ == "__main__":
    main()
