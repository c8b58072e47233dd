"""``python -m benchmarks.listening``: see the package. ``--only`` measures parts and keeps the other parts'
lines of ``benchmarks/results/listening.json``. Rewrites ``docs/listening-speed.md`` and its picture.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from time import perf_counter

from benchmarks.clients.__main__ import merge
from benchmarks.listening import page
from benchmarks.listening.measuring import SIZES
from benchmarks.listening.parts import PARTS, Bench
from benchmarks.listening.servers import JVM_FLAGS, why_no_broker
from benchmarks.measure import ROOT, MeasurementError, scratch_directory
from benchmarks.process import describe_machine

RESULTS = ROOT / "benchmarks" / "results" / "listening.json"
_STARTED = perf_counter()


def _report(text: str) -> None:
    print(f"{perf_counter() - _STARTED:6.0f} s  {text}", file=sys.stderr, flush=True)


def describe(directory: str, *, has_broker: bool) -> dict[str, str]:
    """The machine, the libraries, the broker, and how busy others kept it when the run began."""
    from confluent_kafka import libversion

    facts = describe_machine(directory)
    facts["confluent-kafka"], facts["librdkafka"] = version("confluent-kafka"), libversion()[0]
    if has_broker:
        from tests.interop.kafka import NEWEST

        facts["Apache Kafka"] = NEWEST
        facts["its JVM"] = " ".join(JVM_FLAGS)
    return facts | {"load before": f"{os.getloadavg()[0]:.1f} of {os.cpu_count()} cores"}


def main(command: Sequence[str] | None = None) -> None:
    """Measure; print, or write results and page."""
    arguments = _parse(command)
    path = Path(arguments.output) if arguments.output else RESULTS
    results = json.loads(path.read_text()) if path.exists() and not arguments.quick else {}
    if arguments.page:
        page.write(results)
        return
    reason = "--no-broker" if arguments.no_broker else why_no_broker()
    if reason is not None:
        _report(f"without a broker of Kafka: {reason}")
    sizes = SIZES["quick" if arguments.quick else "full"]
    if arguments.rounds:
        sizes = sizes._replace(rounds=arguments.rounds)
    failed: list[str] = []
    with scratch_directory(arguments.directory) as directory:
        machine = describe(directory, has_broker=reason is None)
        for name in arguments.only:
            place = Path(directory, name)
            place.mkdir()
            bench = Bench(sizes, place, _report, has_broker=reason is None)
            try:
                found = list(PARTS[name](bench))
            except MeasurementError as error:  # the other parts go on; --only measures it again
                _report(f"{name} FAILED: {error}")
                failed.append(name)
                continue
            results = merge(results, name, machine, found)
            if not arguments.quick:  # keep each part, even if the next one fails
                path.write_text(json.dumps(results, indent=1) + "\n")
    if arguments.quick:
        print(page.format_page(results))
    elif not arguments.output:
        page.write(results)
    if failed:
        sys.exit(f"not measured: {', '.join(failed)}")


def _parse(command: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.listening", description=__doc__)
    parser.add_argument(
        "--quick", action="store_true", help="little of everything; prints and writes nothing"
    )
    parser.add_argument(
        "--only", type=_names, default=list(PARTS), help=f"parts, by commas: {', '.join(PARTS)}"
    )
    parser.add_argument("--rounds", type=int, help="instead of five; fewer say little")
    parser.add_argument("--directory", help="where to measure; on the disk that you want to know about")
    parser.add_argument(
        "--page", action="store_true", help="measure nothing: write the page from the results"
    )
    parser.add_argument(
        "--output", help="a file for the results instead of the repository's; no page is written"
    )
    parser.add_argument("--no-broker", action="store_true", help="measure the listener alone")
    return parser.parse_args(command)


def _names(text: str) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in PARTS:
            raise argparse.ArgumentTypeError(f"{name!r} is none of {', '.join(PARTS)}")
    return names


if __name__ == "__main__":
    main()
