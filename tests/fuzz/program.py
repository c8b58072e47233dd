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
    options = parser.parse_args()
    if options.module:
        load_module(options.module)
    if options.case:
        run_case(*options.case, options.seed)
        return
    log = os.open(options.log, os.O_CREAT | os.O_WRONLY, 0o600) if options.log else -1
    print(json.dumps(run_for(options.seconds, options.seed, options.targets, log)))


if __name__ == "__main__":
    main()
