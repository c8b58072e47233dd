"""``topic.reopen(n)`` of a log that nothing was wrong with threw away the appends that still gathered, whose
offsets had been returned, and gave these offsets to others."""

from __future__ import annotations

import pytest
from tests.logdir.helpers import values

import logstore
from logstore.errors import DiskFullError
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles


@pytest.fixture
def files():
    return FaultyFiles(MemoryFiles())


@pytest.fixture
def topic(files):
    with logstore.open("/s", files=files, clock=ManualClock()) as store:
        topic = store.create_topic("t")
        assert topic[0].append(b"gathered") == 0
        yield topic


def test_appends_that_gather_are_written_first(topic):
    log = topic.reopen(0)
    assert values(log) == [b"gathered"]
    assert log.append(b"next") == 1


def test_a_full_disk_keeps_the_log_open(topic, files):
    files.fail(FAULTS["ENOSPC"], kinds=["write"], path=".log", times=None)
    with pytest.raises(DiskFullError):
        topic.reopen(0)
    files.heal()
    topic[0].flush()
    assert values(topic[0]) == [b"gathered"]
    assert values(topic.reopen(0)) == [b"gathered"]


def test_an_accepted_loss_takes_them(topic, files):
    files.fail(FAULTS["EIO"], kinds=["write"], path=".log", times=1)
    assert values(topic.reopen(0, accept_loss=True)) == []
