"""``make mutants``: see :mod:`tests.mutants`."""

from __future__ import annotations

import argparse
import random
import shutil
import subprocess
import tempfile
import time
from pathlib import Path

from tests.mutants.c import try_c
from tests.mutants.python import try_python
from tests.mutants.rooms import ROOT, copy_checkout, python_modules


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--minutes", type=float, default=10, help="for all of it; half for each language")
    parser.add_argument("--seed", help="what the sample depends on; the commit unless given")
    parser.add_argument("--only", help="files whose path has this in it")
    parser.add_argument("--language", choices=["python", "c"], help="only this one")
    options = parser.parse_args()
    head = subprocess.run(
        ["git", "rev-parse", "HEAD"], cwd=ROOT, capture_output=True, text=True
    ).stdout.strip()
    seed = options.seed or head or "none"
    print(f"sample {seed}, {options.minutes:g} minutes", flush=True)
    languages = [options.language] if options.language else ["python", "c"]
    noticed, senseless, survivors = 0, 0, []
    for number, language in enumerate(languages):
        until = time.monotonic() + options.minutes * 60 / len(languages)
        rng = random.Random(f"{seed} {number}")
        copy = Path(tempfile.mkdtemp(prefix="mutants-"))
        try:
            copy_checkout(copy)
            if language == "c":
                found = try_c(copy, rng, until, options.only)
            else:
                modules = [path for path in python_modules() if (options.only or "") in str(path)]
                rng.shuffle(modules)
                found = try_python(copy, modules, rng, until)
        finally:
            shutil.rmtree(copy, ignore_errors=True)
        noticed, senseless, survivors = noticed + found[0], senseless + found[1], [*survivors, *found[2]]
    tried = noticed + len(survivors)
    rate = f"{100 * noticed / tried:.1f} %" if tried else "nothing"
    print(f"{tried} mutants, {noticed} noticed ({rate}), {len(survivors)} survived; {senseless} left out")


if __name__ == "__main__":
    main()
