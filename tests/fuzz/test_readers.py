"""Changed files of the corpus, a million of them: read alike by the compiled and the plain code, or refused
with an error of logstore. ``LOGSTORE_FUZZ_EXECUTIONS`` sets another number for `make soak`."""

from __future__ import annotations

import os
import time

import pytest

from tests.figures import report
from tests.fuzz.mutations import Mutator
from tests.fuzz.readers import READERS, check
from tests.rotation import seed_of_turn

EXECUTIONS = dict.fromkeys(READERS, 50_000) | {
    "part_of_batch": 12_000,
    "batches": 40_000,
    "segment": 5_000,
    "legacy": 10_000,
    "records": 70_000,
    "gzip": 70_000,
    "offset_index": 12_000,
    "meta_properties": 11_000,
    "catalogue": 30_000,
    "transaction_index": 70_000,
    "producer_snapshot": 70_000,
    "names": 70_000,
}
"""Of each reader: the slow ones get fewer."""
TOTAL = 1_000_000
MOST_SECONDS = 5
"""For one input of at most some kilobytes."""


def run(name, count, seed):
    """``count`` inputs; a failure names the input."""
    mutator, clock = Mutator(name, seed), time.process_time
    began = time.monotonic()
    last = clock()
    for number in range(count):
        data = mutator.next()
        try:
            check(name, data)
        except Exception as error:
            raise AssertionError(f"{name}, seed {seed}, number {number}: {data!r}") from error
        if not number % 100:
            now = clock()
            assert now - last < MOST_SECONDS * 2, f"{name}: {now - last:.1f} s up to number {number}"
            last = now
    return time.monotonic() - began


@pytest.mark.parametrize("name", READERS)
def test_some_changed_files(name):
    run(name, 300, 1)


def test_there_are_a_million():
    assert sum(EXECUTIONS.values()) >= TOTAL
    assert set(EXECUTIONS) == set(READERS)


@pytest.mark.slow
@pytest.mark.parametrize("name", READERS)
def test_many_changed_files(name):
    """A quarter of them, others with each commit."""
    count, seed = EXECUTIONS[name] // 4, seed_of_turn()
    seconds = run(name, count, seed)
    report(f"fuzz/reader/{name}", count=count, failures=0, seconds=seconds, detail=f"seed {seed}")


@pytest.mark.soak
@pytest.mark.parametrize("name", READERS)
def test_changed_files_at_random(name):
    count = int(os.environ.get("LOGSTORE_FUZZ_EXECUTIONS", "100000000")) * EXECUTIONS[name] // TOTAL
    seed = os.urandom(4).hex()
    seconds = run(name, count, seed)
    report(f"fuzz/reader/{name}", count=count, failures=0, seconds=seconds, detail=f"seed {seed}")
