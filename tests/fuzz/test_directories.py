"""Directories with changed files: nothing but errors of logstore, no record that was not written, nothing
lost without a word, and the same in a second open and in plain code."""

from __future__ import annotations

import os
import random
import time

import pytest

from tests.figures import report
from tests.fuzz.directories import EDITS, check_directory, originals
from tests.fuzz.engines import ENGINES, HERE
from tests.fuzz.make_corpus import CORPUS
from tests.fuzz.readers import is_refused
from tests.fuzz.stores import check_store
from tests.rotation import seed_of_turn

pytestmark = pytest.mark.damaged

PIECES = (b"\0" * 8, b"\xff" * 8, b"\x7f" + b"\xff" * 7, b"0\n", b"9" * 19, b"-1", b" ", b"\n1 1\n")
MOST_SECONDS = 30


def chosen_input(rng):
    """An input of one to three edits, most of them one."""
    data = bytearray([rng.randrange(256)])
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        kind = rng.randrange(EDITS)
        data += bytes([rng.randrange(256), kind]) + rng.randbytes(3)
        if kind in (1, 3, 9):
            payload = rng.choice((*PIECES, rng.randbytes(rng.randrange(20))))
            data += bytes([len(payload)]) + payload
        else:
            data.append(rng.randrange(256))
    return bytes(data)


def run(count, seed, engines=ENGINES):
    """How many of the directories were read whole, in part, or refused."""
    outcomes = {"whole": 0, "in part": 0, "refused": 0}
    for number in range(count):
        data = chosen_input(random.Random(f"{seed}/{number}"))
        began = time.process_time()
        try:
            result = check_directory(data, engines)
        except Exception as error:
            raise AssertionError(f"seed {seed}, number {number}: {data.hex()}") from error
        assert time.process_time() - began < MOST_SECONDS, f"seed {seed}, number {number}: {data.hex()}"
        outcomes["refused" if is_refused(result[0]) else "in part" if result[1] else "whole"] += 1
    return outcomes


def test_some_changed_directories():
    assert run(40, 1)["whole"] >= 10


def test_the_corpus_of_directories():
    for path in sorted((CORPUS / "directory").iterdir()):
        check_directory(path.read_bytes(), ENGINES)


def test_unchanged_directories_are_read_whole():
    for number, original in enumerate(originals()):
        rows, fault, *_ = check_directory(bytes([number]), ENGINES)
        assert fault is None
        assert rows == list(original.records.values())
        assert len(rows) > 20


@pytest.mark.slow
def test_many_changed_directories():
    began, count, seed = time.monotonic(), 400, seed_of_turn()
    outcomes = run(count, seed)
    assert min(outcomes.values()) >= count // 100, outcomes
    seconds = time.monotonic() - began
    report("fuzz/directory", count=count, failures=0, seconds=seconds, detail=f"seed {seed}: {outcomes}")


@pytest.mark.soak
@pytest.mark.parametrize("engines", [ENGINES, [HERE]], ids=["both", "one"])
def test_changed_directories_at_random(engines):
    began, count = time.monotonic(), int(os.environ.get("LOGSTORE_FUZZ_DIRECTORIES", "20000"))
    seed = os.urandom(4).hex()
    outcomes = run(count, seed, engines)
    seconds = time.monotonic() - began
    report("fuzz/directory", count=count, failures=0, seconds=seconds, detail=f"seed {seed}: {outcomes}")


def run_stores(count, seed):
    """How many stores were refused, and how many were opened with all partitions as they were."""
    refused = whole = 0
    for number in range(count):
        try:
            found = check_store(random.Random(f"{seed}/{number}"))
        except Exception as error:
            raise AssertionError(f"seed {seed}, store {number}") from error
        refused += found is None
        whole += found == 3
    return refused, whole


@pytest.mark.parametrize(
    "count", [pytest.param(30, id="quick"), pytest.param(600, id="slow", marks=pytest.mark.slow)]
)
def test_changed_stores(count):
    began = time.monotonic()
    refused, whole = run_stores(count, 1 if count == 30 else seed_of_turn())
    assert refused > count // 20
    assert whole > count // 2
    report("fuzz/store", count=count, failures=0, seconds=time.monotonic() - began)


@pytest.mark.soak
def test_changed_stores_at_random():
    began, seed = time.monotonic(), os.urandom(4).hex()
    count = int(os.environ.get("LOGSTORE_FUZZ_DIRECTORIES", "20000"))
    run_stores(count, seed)
    seconds = time.monotonic() - began
    report("fuzz/store", count=count, failures=0, seconds=seconds, detail=f"seed {seed}")
