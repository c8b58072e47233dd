"""One measurement: ``python -m benchmarks.one append --contender logstore --batch 1000``, or :func:`measure`.

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
from benchmarks.contenders import LOGSTORE, NAMES, entry_of
from benchmarks.figures import (
    APPEND,
    CRASH,
    DURABLE,
    FIGURES,
    LARGE_SEQUENTIAL,
    OPEN,
    RANDOM,
    RECOVERY,
    SEQUENTIAL,
    THREAD_COUNTS,
    TIME,
    Case,
)
from benchmarks.measure import arguments_of, run_one, run_until_killed, scratch_directory
from benchmarks.plan import BARE_FIGURES, DECODE, DICT, ENCODE, MAP, SCAN
from benchmarks.records import DATA, SMALL
from benchmarks.sizes import FULL, QUICK, Sizes

Arguments = argparse.Namespace

_CONTENDERS_FIGURES = (*FIGURES, CRASH)
_PREPARE_SCAN = "prepare-scan"
_ALONE_FIGURES = (
    "reopen",
    "prepare-reopen",
    "reopen-idle",
    "reopen-behind",
    "leave-partitions",
    "large",
    "prepare-large",
    "large-recovery",
    "prepare-large-recovery",
    "lag",
    "follower",
    "import",
    "first-use",
)
ALL_FIGURES = (*_CONTENDERS_FIGURES, *BARE_FIGURES, _PREPARE_SCAN, *_ALONE_FIGURES)


def measure(figure: str, contender: str = LOGSTORE, **options: Any) -> Any:
    """Measure one figure in processes of its own and return what it found, as ``python -m benchmarks.one``
    prints it. Options are those of the command, by the same names: ``batch=100, data="1 KiB"``.

    Raises:
        MeasurementError: a process failed; has its output.
    """
    command = [figure, "--contender", contender]
    for name, value in options.items():
        command += [f"--{name.replace('_', '-')}"] + ([] if value is True else [str(value)])
    return _measure_elsewhere(_parse(command))


def _measure(a: Arguments) -> Any:
    """Of a contender, in the directory of the arguments."""
    case, directory = Case(a.figure, a.contender, a.batch, a.data), a.directory
    if case.figure in (APPEND, DURABLE):
        return asdict(figures.measure_append(case, directory, a.records, is_checked=not a.unchecked))
    if case.figure in THREAD_COUNTS:
        return asdict(figures.measure_threads(case, directory, a.records))
    if case.figure in (SEQUENTIAL, LARGE_SEQUENTIAL):
        return asdict(figures.measure_sequential(case, directory))
    if case.figure in (RANDOM, TIME):
        return asdict(figures.measure_random(case, directory, a.reads))
    if case.figure == CRASH:
        figures.fill_and_crash(case, directory, a.records)
    return asdict(figures.measure_open(case, directory, is_checked=not a.unchecked))


def _measure_bare(a: Arguments) -> Any:
    """Of the format layer, without a store."""
    from benchmarks import codecs, maps, scans  # a process that needs none of these starts faster

    if a.figure in (ENCODE, DECODE):
        return [asdict(found) for found in codecs.measure_codec(a.figure, a.contender, a.seconds)]
    if a.figure == SCAN:
        return asdict(scans.measure_scan(a.contender, a.directory, a.bytes))
    if a.figure == MAP:
        return asdict(maps.measure_map(a.contender, a.records))
    return scans.prepare_scan(a.directory, a.bytes)


def _measure_alone(a: Arguments) -> Any:
    from benchmarks import imports, large  # imports logstore, which should not be in a peer's process

    commands: dict[str, Callable[[], Any]] = {
        "reopen": lambda: large.measure_reopen(a.directory, a.partitions, a.segments),
        "prepare-reopen": lambda: large.prepare_partitions(a.directory, a.partitions, a.segments),
        "reopen-idle": lambda: large.measure_reopen_killed(a.directory, a.partitions, 0),
        "reopen-behind": lambda: large.measure_reopen_killed(a.directory, a.partitions, 1),
        "leave-partitions": lambda: large.leave_partitions(a.directory, a.records),
        "large": lambda: large.measure_large(a.directory, a.reads, a.least_records),
        "prepare-large": lambda: large.prepare_large(a.directory, a.bytes),
        "large-recovery": lambda: large.measure_recovery(a.directory),
        "prepare-large-recovery": lambda: large.fill_large_and_crash(a.directory, a.bytes),
        "lag": lambda: large.measure_lags(a.directory, a.reads),
        "follower": lambda: large.follow(a.directory, a.reads),
        "import": lambda: imports.measure_imports(a.directory, a.reads),
        "first-use": lambda: imports.measure_first_uses(a.directory, a.reads),
    }
    return commands[a.figure]()


_PREPARED_BY = {
    SEQUENTIAL: APPEND,
    LARGE_SEQUENTIAL: APPEND,
    RANDOM: APPEND,
    TIME: APPEND,
    OPEN: APPEND,
    RECOVERY: CRASH,
    SCAN: _PREPARE_SCAN,
    "reopen": "prepare-reopen",
    "reopen-idle": "prepare-reopen",
    "reopen-behind": "prepare-reopen",
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
    elif arguments.figure in (*BARE_FIGURES, _PREPARE_SCAN):
        found = _measure_bare(arguments)
    else:
        found = _measure_alone(arguments)
    if arguments.figure != "follower":  # it has printed what its parent waits for
        print(json.dumps(found, indent=1))


def _measure_elsewhere(a: Arguments) -> Any:
    with scratch_directory(None) as directory:
        preparation = _PREPARED_BY.get(a.figure)
        writer = a.contender
        if a.figure != SCAN and a.contender in NAMES:
            writer = entry_of(a.contender).reads or a.contender
        command = [*_format_options(a, writer), "--directory", directory]
        if preparation in _KILL_THEMSELVES:
            run_until_killed([preparation, *command], writer)
        elif preparation is not None:
            run_one([preparation, *command], writer)
        return run_one([a.figure, *_format_options(a, a.contender), "--directory", directory], a.contender)


def _parse(command: Sequence[str] | None) -> Arguments:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.one", description=__doc__)
    parser.add_argument("figure", choices=ALL_FIGURES)
    parser.add_argument("--contender", choices=[*NAMES, DICT], default=LOGSTORE)
    parser.add_argument("--batch", type=int, default=1_000, help="records per batch")
    parser.add_argument("--data", default=SMALL, help=f"which records: {', '.join(DATA)}")
    parser.add_argument("--seconds", type=float, help="for each case of a codec, about")
    parser.add_argument("--directory", help="where to measure; with it nothing is prepared or removed")
    parser.add_argument("--unchecked", action="store_true", help="do not read back what was appended")
    parser.add_argument("--quick", action="store_true", help="small sizes")
    for name, meaning in _NUMBERS.items():
        parser.add_argument(f"--{name}", type=int, help=meaning)
    arguments = parser.parse_args(command)
    if arguments.data not in DATA:
        parser.error(f"data is {arguments.data!r}; there are {', '.join(DATA)}")
    for name, default in _defaults(arguments, QUICK if arguments.quick else FULL).items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, default)
    return arguments


_NUMBERS = {
    "records": "how many to append, or keys to put",
    "reads": "how many single records to read, wake-ups or imports to measure",
    "bytes": "size of the large log, or of what is scanned",
    "least-records": "how many to read in order at least",
    "partitions": "how many to open",
    "segments": "in each of them",
}


def _defaults(a: Arguments, sizes: Sizes) -> dict[str, Any]:
    case = Case(a.figure if a.figure in _CONTENDERS_FIGURES else APPEND, a.contender, a.batch, a.data)
    if case.figure == RECOVERY:
        case = case._replace(figure=CRASH)
    options = arguments_of(case, "", sizes)
    found = {
        "records": int(options[options.index("--records") + 1]),
        "reads": int(options[options.index("--reads") + 1]),
        "bytes": sizes.large_bytes,
        "seconds": sizes.codec_seconds,
        "least_records": sizes.large_least_records,
        "partitions": sizes.partitions,
        "segments": sizes.segments,
    }
    special: dict[str, dict[str, Any]] = {
        MAP: {"records": sizes.map_keys},
        "lag": {"reads": sizes.lags},
        "import": {"reads": sizes.imports},
        "first-use": {"reads": sizes.imports},
        "large": {"reads": sizes.large_reads},
        "large-recovery": {"bytes": sizes.recovered_bytes},
        "prepare-large-recovery": {"bytes": sizes.recovered_bytes},
        SCAN: {"bytes": sizes.scanned_bytes},
        _PREPARE_SCAN: {"bytes": sizes.scanned_bytes},
    }
    return found | special.get(a.figure, {})


def _format_options(a: Arguments, contender: str) -> list[str]:
    """The options again as text, all numbers settled, for a process of its own."""
    options = ["--contender", contender, "--batch", str(a.batch), "--data", a.data]
    for name in (*_NUMBERS, "seconds"):
        options += [f"--{name}", str(getattr(a, name.replace("-", "_")))]
    return options


if __name__ == "__main__":
    main()
