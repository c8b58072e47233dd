"""Devices that refuse writes for a while, under a live store: what a log that was reopened has called durable
is there when the file system is mounted anew. Needs root, a loop device and mkfs; skipped elsewhere.

An fsync that failed leaves pages that the system takes for clean. ext4 goes further: the same pages written
once more are reported to be on the disk, and read as zeros after the next mount.
"""

from __future__ import annotations

import os
import random

import pytest

from tests.figures import report
from tests.kernel.disks import missing_for_failing
from tests.kernel.programs import memory_directory, run_program

SOAK_ROUNDS = int(os.environ.get("LOGSTORE_SOAK_FAILING_DISKS", "200"))


@pytest.fixture(params=["ext4", "xfs"])
def kind(request):
    missing = missing_for_failing(request.param)
    if missing:
        pytest.skip(f"no failing device with {request.param} here: {missing}")
    return request.param


def fail(kind, rounds, seed):
    with memory_directory() as path:
        tried = run_program("failing_disk", kind, rounds, seed, f"{path}/failing", within=["unshare", "-m"])
    assert not tried["lost"], "\n".join(tried["lost"])
    assert tried["refused"] >= rounds // 2  # fsyncs that failed
    assert tried["stuck"] <= rounds // 4  # rounds in which the file system itself gave up
    detail = f"{tried['refused']} fsyncs failed, {tried['durable']} records called durable"
    report(f"failing devices, {kind}", count=rounds, failures=0, seconds=tried["seconds"], detail=detail)
    return tried


@pytest.mark.slow
def test_what_a_reopened_log_calls_durable_is_there_after_a_new_mount(kind):
    fail(kind, {"ext4": 3, "xfs": 2}[kind], 1)


@pytest.mark.soak
def test_very_many_failing_devices(kind):
    tried = fail(kind, SOAK_ROUNDS // 2, random.randrange(2**32))
    assert min(tried["sizes"].values()) > 0
