"""One measurement in this process: ``python -m benchmarks.one append --contender logstore --batch 1000``.

Prints what it found as JSON. Without ``--directory`` it works in a temporary one, and lets processes of their
own prepare it and measure; with ``--directory`` it measures what is there, in this process.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

from benchmarks import figures
from benchmarks.contenders import LOGSTORE, NAMES
from benchmarks.figures import APPEND, CRASH, FIGURES, OPEN, RANDOM, RECOVERY, SEQUENTIAL, Case
from benchmarks.measure import run_one, run_until_killed, scratch_directory
from benchmarks.sizes import FULL, QUICK, Sizes

Arguments = argparse.Namespace

_CONTENDERS_FIGURES = (*FIGURES, CRASH)
_ALONE_FIGURES = (
    "reopen",
    "prepare-reopen",
    "large",
    "prepare-large",
    "large-recovery",
    "prepare-large-recovery",
    "lag",
    "follower",
)
_DEFAULT_RECORDS = 200_000
_DEFAULT_READS = 2_000


def _case(arguments: Arguments) -> Case:
    return Case(arguments.figure, arguments.contender, arguments.batch, arguments.flush)


def _measure(arguments: Arguments) -> Any:
    case, directory = _case(arguments), arguments.directory
    if case.figure == APPEND:
        return asdict(figures.measure_append(case, directory, arguments.records))
    if case.figure == SEQUENTIAL:
        return asdict(figures.measure_sequential(case, directory))
    if case.figure == RANDOM:
        return asdict(figures.measure_random(case, directory, arguments.reads))
    if case.figure == CRASH:
        figures.fill_and_crash(case, directory, arguments.records)
    return asdict(figures.measure_open(case, directory))


def _measure_alone(arguments: Arguments) -> Any:
    from benchmarks import large  # brings logstore, which has no business in a peer's process

    a = arguments
    commands: dict[str, Callable[[], Any]] = {
        "reopen": lambda: large.measure_reopen(a.directory, a.partitions, a.segments),
        "prepare-reopen": lambda: large.prepare_partitions(a.directory, a.partitions, a.segments),
        "large": lambda: large.measure_large(a.directory, a.reads, a.least_records),
        "prepare-large": lambda: large.prepare_large(a.directory, a.bytes),
        "large-recovery": lambda: large.measure_recovery(a.directory),
        "prepare-large-recovery": lambda: large.fill_large_and_crash(a.directory, a.bytes),
        "lag": lambda: large.measure_lags(a.directory, a.reads),
        "follower": lambda: large.follow(a.directory, a.reads),
    }
    return commands[a.figure]()


_PREPARED_BY = {
    SEQUENTIAL: APPEND,
    RANDOM: APPEND,
    OPEN: APPEND,
    RECOVERY: CRASH,
    "reopen": "prepare-reopen",
    "large": "prepare-large",
    "large-recovery": "prepare-large-recovery",
}
_KILL_THEMSELVES = {CRASH, "prepare-large-recovery"}


def main(command: Sequence[str] | None = None) -> None:
    arguments = _parse(command)
    if not arguments.directory:
        found = _measure_elsewhere(arguments)
    elif arguments.figure in _CONTENDERS_FIGURES:
        found = _measure(arguments)
    else:
        found = _measure_alone(arguments)
    if arguments.figure != "follower":  # it has printed what its parent waits for
        print(json.dumps(found, indent=1))


def _measure_elsewhere(arguments: Arguments) -> Any:
    options = _format_options(arguments)
    with scratch_directory(None) as directory:
        place = [*options, "--directory", directory]
        preparation = _PREPARED_BY.get(arguments.figure)
        if preparation in _KILL_THEMSELVES:
            run_until_killed([preparation, *place])
        elif preparation is not None:
            run_one([preparation, *place])
        return run_one([arguments.figure, *place])


def _parse(command: Sequence[str] | None) -> Arguments:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one", description=__doc__)
    parser.add_argument("figure", choices=[*_CONTENDERS_FIGURES, *_ALONE_FIGURES])
    parser.add_argument("--contender", choices=NAMES, default=LOGSTORE)
    parser.add_argument("--batch", type=int, default=1_000, help="records per batch")
    parser.add_argument("--flush", action="store_true", help="make each batch durable")
    parser.add_argument("--directory", help="where to measure; with it nothing is prepared or removed")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    for name, meaning in _NUMBERS.items():
        parser.add_argument(f"--{name}", type=int, help=meaning)
    arguments = parser.parse_args(command)
    for name, default in _defaults(arguments, QUICK if arguments.quick else FULL).items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, default)
    return arguments


_NUMBERS = {
    "records": "how many to append",
    "reads": "how many single records to read, or wake-ups to measure",
    "bytes": "size of the large log",
    "least-records": "how many to read in order at least",
    "partitions": "how many to open",
    "segments": "in each of them",
}


def _defaults(arguments: Arguments, sizes: Sizes) -> dict[str, int]:
    recovers = "recovery" in arguments.figure
    counts = sizes.flushed_records if arguments.flush else sizes.records
    return {
        "records": counts.get(arguments.batch, _DEFAULT_RECORDS),
        "reads": sizes.lags
        if arguments.figure == "lag"
        else sizes.random_reads.get(arguments.batch, _DEFAULT_READS),
        "bytes": sizes.recovered_bytes if recovers else sizes.large_bytes,
        "least_records": sizes.large_least_records,
        "partitions": sizes.partitions,
        "segments": sizes.segments,
    }


def _format_options(arguments: Arguments) -> list[str]:
    """The options again as text, all numbers settled, for a process of its own."""
    options = ["--contender", arguments.contender, "--batch", str(arguments.batch)]
    for name in _NUMBERS:
        options += [f"--{name}", str(getattr(arguments, name.replace("-", "_")))]
    return [*options, *(["--flush"] if arguments.flush else [])]


if __name__ == "__main__":
    main()
