"""``python -m benchmarks.replicas``: see the package. ``--only`` measures parts and keeps the other parts'
lines of ``benchmarks/results/replicas.json``. Rewrites ``docs/replication-speed.md``.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from time import perf_counter

from benchmarks.clients.__main__ import merge
from benchmarks.listening.__main__ import describe
from benchmarks.listening.servers import why_no_broker
from benchmarks.measure import ROOT, MeasurementError, scratch_directory
from benchmarks.replicas import page
from benchmarks.replicas.parts import FULL, PARTS, QUICK, Bench

RESULTS = ROOT / "benchmarks" / "results" / "replicas.json"
_STARTED = perf_counter()


def _report(text: str) -> None:
    print(f"{perf_counter() - _STARTED:6.0f} s  {text}", file=sys.stderr, flush=True)


def main(command: Sequence[str] | None = None) -> None:
    """Measure; print, or write results and page."""
    arguments = _parse(command)
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() and not arguments.quick else {}
    if arguments.page:
        page.write(results)
        return
    reason = "--no-broker" if arguments.no_broker else why_no_broker()
    if reason is not None:
        _report(f"without brokers of Kafka: {reason}")
    failed: list[str] = []
    with scratch_directory(arguments.directory) as directory:
        machine = describe(directory, has_broker=reason is None)
        for name in arguments.only:
            place = Path(directory, name.replace(" ", "-"))
            place.mkdir()
            sizes = QUICK if arguments.quick else FULL
            try:
                found = list(PARTS[name](Bench(sizes, place, _report, has_broker=reason is None)))
            except MeasurementError as error:  # the other parts go on; --only measures it again
                _report(f"{name} FAILED: {error}")
                failed.append(name)
                continue
            results = merge(results, name, machine, found)
            if not arguments.quick:  # keep each part, even if the next one fails
                RESULTS.write_text(json.dumps(results, indent=1) + "\n")
    if arguments.quick:
        print(page.format_page(results))
    else:
        page.write(results)
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


def _parse(command: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.replicas", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="little of everything; prints and writes nothing"
    )
    parser.add_argument("--only", type=_names, default=list(PARTS), help=f"parts: {', '.join(PARTS)}")
    parser.add_argument("--directory", help="where to measure; on the disk that you want to know about")
    parser.add_argument(
        "--page", action="store_true", help="measure nothing: write the page from the results"
    )
    parser.add_argument("--no-broker", action="store_true", help="measure our nodes alone")
    return parser.parse_args(command)


def _names(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in PARTS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(PARTS)}")
    return names


if __name__ == "__main__":
    main()
