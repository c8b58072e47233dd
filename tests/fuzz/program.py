"""Runs the targets for some seconds, or one case again: see ``python -m tests.fuzz.program --help``.

Prints, as JSON, how many cases each target had and in how many the compiled code did the work. ``--log`` is
where the name of the case stands that a sanitizer ended.
"""

import argparse
import importlib.util
import json
import os
import sys
import time

INPUTS = 20
"""What a reader gets at a time."""


def load_module(path):
    """The compiled module of that file takes the place of the installed one."""
    spec = importlib.util.spec_from_file_location("logstore._compiled", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    sys.modules["logstore._compiled"] = module


def run_case(name, number, seed):
    from tests.fuzz.chance import Chance
    from tests.fuzz.targets import TARGETS

    return TARGETS[name](Chance(f"{seed}/{name}/{number}"))


def run_inputs(name, number, seed):
    """Some changed files of a reader's corpus; see readers.py."""
    from tests.fuzz.engines import HERE
    from tests.fuzz.mutations import Mutator
    from tests.fuzz.readers import check

    mutator = Mutator(name, f"{seed}/{number}")
    for _ in range(INPUTS):
        check(name, mutator.next(), (HERE,))
    return True


def run_readers(seconds, seed, log):
    """The compiled code alone: it is held against plain code where no sanitizer takes its time."""
    from tests.fuzz.readers import READERS

    counts = {name: [0, 0] for name in READERS}
    deadline = time.monotonic() + seconds
    number = 0
    while time.monotonic() < deadline:
        for name, count in counts.items():
            if log >= 0:
                os.pwrite(log, f"--seed {seed} --inputs {name} {number}".ljust(100).encode(), 0)
            run_inputs(name, number, seed)
            count[0] += INPUTS
            count[1] += INPUTS
        number += 1
    return counts


def run_for(seconds, seed, names, log):
    from tests.fuzz.targets import TARGETS

    counts = {name: [0, 0] for name in names or TARGETS}
    deadline = time.monotonic() + seconds
    number = 0
    while time.monotonic() < deadline:
        for name, count in counts.items():
            if log >= 0:
                os.pwrite(log, f"--seed {seed} --case {name} {number}".ljust(100).encode(), 0)
            try:
                is_done = run_case(name, number, seed)
            except BaseException:
                print(f"--seed {seed} --case {name} {number}", file=sys.stderr)
                raise
            count[0] += 1
            count[1] += bool(is_done)
        number += 1
    return counts


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--module")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--seed", default="0")
    parser.add_argument("--log")
    parser.add_argument("--targets", nargs="+", help="only these")
    parser.add_argument("--case", nargs=2)
    parser.add_argument("--readers", action="store_true", help="readers of foreign bytes instead of targets")
    parser.add_argument("--inputs", nargs=2, help="again: a reader and a number")
    options = parser.parse_args()
    if options.module:
        load_module(options.module)
    if options.case:
        run_case(*options.case, options.seed)
        return
    if options.inputs:
        run_inputs(*options.inputs, options.seed)
        return
    log = os.open(options.log, os.O_CREAT | os.O_WRONLY, 0o600) if options.log else -1
    if options.readers:
        counts = run_readers(options.seconds, options.seed, log)
    else:
        counts = run_for(options.seconds, options.seed, options.targets, log)
    print(json.dumps(counts))


if __name__ == "__main__":
    main()
