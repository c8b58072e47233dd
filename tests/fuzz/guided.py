"""A fuzzer that is guided by coverage: ``python -m tests.fuzz.guided READER --seconds 60``.

It needs atheris (``pip install 'embedded-logstore[fuzz]'``). What it looks at are the branches of the Python
code: those of the plain loops lead it to inputs that the compiled loops get as well. In a directory it sees
the layers above the formats only, so that it cannot learn to write checksums and call that rot.

The corpus is where it begins, and what it finds goes to ``--found``. At the end it says how many inputs it
has tried (``stat::number_of_executed_units``).
"""

from __future__ import annotations

import argparse
import logging
import os
import sys
import tempfile

MOST_INPUT_BYTES = 2000
MOST_MEMORY_MIB = 1500
MOST_SECONDS = 20


def load(name):
    """The function to call with each input, with its code instrumented."""
    import atheris

    seen = ["logstore"] if name != "directory" else ["logstore.partition", "logstore.logdir"]
    with atheris.instrument_imports(include=seen):
        from tests.fuzz import engines
    from tests.fuzz import directories, readers

    if name == "directory":
        directories.originals()
        return lambda data: directories.check_directory(data, engines.ENGINES)
    return lambda data: readers.check(name, data)


def main():
    import atheris

    parser = argparse.ArgumentParser()
    parser.add_argument("reader")
    parser.add_argument("--seconds", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--found", help="a directory for inputs that reach something new, and for failures")
    options = parser.parse_args()
    logging.getLogger("logstore").setLevel(logging.CRITICAL)
    check = load(options.reader)
    from tests.fuzz.make_corpus import CORPUS

    found = options.found or tempfile.mkdtemp(prefix="fuzz-")
    os.makedirs(found, exist_ok=True)
    arguments = [
        sys.argv[0],
        f"-max_total_time={options.seconds}",
        f"-seed={options.seed}",
        f"-max_len={MOST_INPUT_BYTES}",
        f"-timeout={MOST_SECONDS}",
        f"-rss_limit_mb={MOST_MEMORY_MIB}",
        f"-artifact_prefix={found}/failed-",
        "-print_final_stats=1",
        found,
        str(CORPUS / options.reader),
    ]
    atheris.Setup(arguments, check, enable_python_coverage=True)
    atheris.Fuzz()


if __name__ == "__main__":
    main()
