"""Fetches that wait while the end of the log is cut off."""

from __future__ import annotations

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import FetchPartition
from tests.broker.rig import T0, Rig


@pytest.fixture
def rig():
    return Rig(partitions=1)


CUTS = {
    "truncate_to": lambda log: log.truncate_to(2),
    "start_at": lambda log: log.truncate_fully_and_start_at(1),
}


@pytest.mark.parametrize("cut", CUTS)
def test_a_fetch_that_waits_when_the_log_is_cut_is_fenced(rig, cut):
    """Its client then asks where its epoch ended. Out of range would send it to the start, or to the end."""
    rig.log.extend([b"0", b"1"])
    rig.log.extend([b"2"])
    pending = rig.fetch(FetchPartition(T0, 3, leader_epoch=0), max_wait_ms=500)
    assert pending.poll() is None
    found = []
    pending.on_wake(lambda: found.append(pending.poll()))
    CUTS[cut](rig.log)
    assert [each.partitions[0].error for each in found] == [ErrorCode.FENCED_LEADER_EPOCH]
