"""No hostile input makes the compiled module touch memory that it must not, or say what plain code does not.

The module is built for this with sanitizers, which end the process at the first fault. In `make soak` the
environment variable ``LOGSTORE_FUZZ_SECONDS`` sets how long, and every run takes a seed of its own.
"""

import json
import os
import re
import shutil

import pytest

from logstore.build import compiled
from tests.figures import report
from tests.fuzz import sanitized
from tests.fuzz.targets import COVERED, public_names
from tests.rotation import rotating, seed_of_turn

FUZZ = ("-m", "tests.fuzz.program")


@pytest.fixture(scope="module")
def gcc():
    found, reason = sanitized.compiler()
    if found is None:
        pytest.skip(reason)
    return found


@pytest.fixture(scope="module")
def library(gcc):
    return sanitized.compiler()[1]


@pytest.fixture(scope="module")
def module(gcc, tmp_path_factory):
    return sanitized.build(gcc, tmp_path_factory.mktemp("sanitized") / "_compiled.abi3.so")


def fuzz(library, module, log, seconds, *more, seed="1"):
    options = ("--module", module, "--seconds", seconds, "--seed", seed, "--log", log, *more)
    return sanitized.run(library, *FUZZ, *map(str, options), timeout=seconds * 2 + 120)


def story(done, log):
    """What a failure prints: the case to run again, and what was said about it."""
    case = log.read_text().strip() if log.exists() else "no case"
    return f"python -m tests.fuzz.program {case}\n{done.stdout[-1000:]}\n{done.stderr[-6000:]}"


def check_run(done, log, what, seconds):
    assert done.returncode == 0, story(done, log)
    counts = json.loads(done.stdout)
    for name, (cases, taken) in counts.items():
        assert cases > 20, f"{name}: {cases} cases"
        assert taken > cases // 200, f"{name}: the compiled code did {taken} of {cases} cases itself"
    count = sum(cases for cases, _ in counts.values())
    report(
        f"fuzz/sanitized/{what}", count=count, failures=0, seconds=seconds, detail=f"{len(counts)} of them"
    )


@pytest.mark.slow
def test_hostile_input_for_some_seconds(library, module, tmp_path):
    log = tmp_path / "case"
    check_run(fuzz(library, module, log, 12, seed=str(seed_of_turn())), log, "functions", 12)


@pytest.mark.slow
def test_changed_files_for_some_seconds(library, module, tmp_path):
    log = tmp_path / "case"
    check_run(fuzz(library, module, log, 5, "--readers", seed=str(seed_of_turn())), log, "readers", 5)


@pytest.mark.soak
def test_hostile_input_for_long(library, module, tmp_path):
    log = tmp_path / "case"
    seconds = float(os.environ.get("LOGSTORE_FUZZ_SECONDS", "600"))
    check_run(fuzz(library, module, log, seconds, seed=os.urandom(4).hex()), log, "functions", seconds)


@pytest.mark.soak
def test_changed_files_for_long(library, module, tmp_path):
    log = tmp_path / "case"
    seconds = float(os.environ.get("LOGSTORE_FUZZ_SECONDS", "600"))
    done = fuzz(library, module, log, seconds, "--readers", seed=os.urandom(4).hex())
    check_run(done, log, "readers", seconds)


BUGS = {
    "a varint is read past the end": (
        "reader.h",
        "        if (p >= end)\n            return -1;\n",
        "        if (p > end)\n            return -1;\n",
        "heap-buffer-overflow",
    ),
    "a payload may be one byte longer than what is left": (
        "reader.h",
        "if (span->size > end - *at)",
        "if (span->size > end - *at + 1)",
        "heap-buffer-overflow|AssertionError",
    ),
    "a timestamp overflows": (
        "reader.h",
        "return (int64_t)((uint64_t)base + (uint64_t)delta);",
        "return base + delta;",
        "signed integer overflow",
    ),
    "the last group of the offset map goes on behind it": (
        "offset_map.c",
        "return group + 1 == table->group_count ? 0 : group + 1;",
        "return group == table->group_count ? 0 : group + 1;",
        "heap-buffer-overflow|SEGV|AssertionError",
    ),
}
"""Faults that a careless change would bring, and that the run must find: file, code, code with the fault, and
what is said about it."""


@pytest.mark.slow
@pytest.mark.parametrize("bug", rotating(BUGS, 8))
def test_a_fault_in_the_code_is_found(gcc, library, tmp_path, bug):
    file, right, wrong, said = BUGS[bug]
    sources = tmp_path / "compiled"
    shutil.copytree(sanitized.SOURCES, sources)
    code = (sources / file).read_text()
    assert code.count(right) == 1
    (sources / file).write_text(code.replace(right, wrong))
    module = sanitized.build(gcc, tmp_path / "_compiled.abi3.so", sources)
    log = tmp_path / "case"
    done = fuzz(library, module, log, 120, "--targets", "decode_records", "offset_map")
    assert done.returncode != 0, "not found"
    assert re.search(said, done.stderr), story(done, log)


@pytest.mark.skipif(compiled is None, reason="no compiled module here")
def test_every_function_of_the_module_has_its_row():
    assert public_names(compiled) - COVERED == set()
