"""Real file systems whose power is cut under a live writer: what was promised as durable is there.

The file system is told to throw away the end of its journal, which is as far as software can go; it then
replays the journal as after a power cut. Needs root, a loop device and mkfs; skipped elsewhere.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.figures import report
from tests.kernel.disks import missing_for
from tests.kernel.programs import memory_directory, run_program
from tests.kernel.writers import KINDS

KINDS_OF_DISK = ("ext4", "xfs")
SOAK_CUTS = int(os.environ.get("LOGSTORE_SOAK_CUTS", "10000"))


@pytest.fixture(params=KINDS_OF_DISK)
def kind(request):
    missing = missing_for(request.param)
    if missing:
        pytest.skip(f"no power cuts of {request.param} here: {missing}")
    return request.param


def cut(kind, count, seed, *options):
    with memory_directory() as path:
        arguments = ("--kind", kind, "--cuts", count, "--seed", seed, *options, f"{path}/cuts")
        return run_program("power", *arguments, within=["unshare", "-m"])


def report_cuts(kind, tried):
    detail = f"{tried['torn_ends']} torn ends repaired"
    report(f"power cuts, {kind}", count=tried["kills"], failures=0, seconds=tried["seconds"], detail=detail)


@pytest.mark.slow
def test_power_cuts_lose_nothing_that_was_durable(kind):
    count = {"ext4": 120, "xfs": 50}[kind]
    tried = cut(kind, count, seed=5)
    assert tried["kills"] == count
    assert min(tried["moments"].values()) >= count // 4
    report_cuts(kind, tried)
    assert tried["torn_ends"] > 0 or kind == "xfs"  # which never gives a file a size before its bytes


@pytest.mark.slow
def test_a_library_that_lies_about_its_flushes_is_found_out(kind):
    """The check of the check: without fsync the same cuts lose what was promised."""
    assert cut(kind, 60, 6, "--lying")["lost"]


@pytest.mark.soak
def test_very_many_power_cuts_lose_nothing_that_was_durable(kind):
    tried = cut(kind, SOAK_CUTS // len(KINDS_OF_DISK), random.randrange(2**32))
    assert set(tried["kinds"]) == {*KINDS, "store"}
    report_cuts(kind, tried)


@pytest.mark.slow
def test_a_record_that_a_power_cut_took_does_not_come_back_after_a_second_one(kind):
    values = run_program("stale_block", kind, within=["unshare", "-m"])["values"]
    assert values in (["kept"], ["kept", "lost 2"])  # whether the last one reached the disk does not matter
