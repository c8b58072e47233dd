"""Clients that know of a leader epoch that the log has never heard of: its directory is an older copy."""

from __future__ import annotations

import logging

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import (
    FetchPartition,
)
from logstore.model import Role
from tests.broker.rig import T0, Rig


@pytest.fixture
def rig():
    return Rig(partitions=1)


def fetch(rig, offset, **epochs):
    return rig.now(rig.fetch(FetchPartition(T0, offset, **epochs), max_wait_ms=0)).partitions[0]


def test_a_client_that_was_told_of_a_later_epoch_is_heard(rig, caplog):
    """As Java's do: it takes metadata with an earlier epoch for outdated, and would wait without end."""
    rig.log.extend([b"0", b"1"])
    rig.log.extend([b"2"])
    rig.directory.close()
    rig = Rig(partitions=None, files=rig.files)  # as a copy of the directory would be
    rig.log.extend([b"other 3", b"other 4"])
    with caplog.at_level(logging.WARNING):
        assert fetch(rig, 5, leader_epoch=2).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert "a client has seen it in leader epoch 2" in caplog.text
    assert rig.told_epoch() > 2
    assert [rig.epoch_end(epoch) for epoch in (0, 2, rig.told_epoch())] == [
        (0, 5),
        (0, 3),
        (rig.told_epoch(), 5),
    ]
    assert fetch(rig, 3, leader_epoch=rig.told_epoch()).error is ErrorCode.NONE
    found = rig.directory.context.home.latest_epoch
    assert found == rig.told_epoch()


def test_what_such_a_client_has_read_is_told_by_the_epoch_of_that(rig):
    """As of consumers of our own, which do not say in which epoch they take the log to be."""
    rig.log.extend([b"0"])
    rig.directory.close()
    rig = Rig(partitions=None, files=rig.files)
    rig.log.extend([b"other"])
    found = fetch(rig, 2, last_fetched_epoch=3)
    assert (found.error, found.diverging) == (ErrorCode.NONE, (0, 1))
    assert fetch(rig, 1, last_fetched_epoch=0).diverging is None


def test_epochs_that_a_client_makes_up_do_not_use_up_those_that_there_are(rig):
    rig.log.extend([b"0"])
    for epoch in (2**31 - 1, 2**30, 2_000_000):
        assert fetch(rig, 1, leader_epoch=epoch).error is ErrorCode.UNKNOWN_LEADER_EPOCH
        assert rig.told_epoch() == 0
    for epoch in (7, 5_000, 50_000):
        assert fetch(rig, 1, leader_epoch=epoch).error is not ErrorCode.NONE
    assert rig.told_epoch() < 2_000, "once"


@pytest.mark.parametrize("role", [Role.LEADER, Role.FOLLOWER])
def test_replicas_have_their_epochs_from_their_cluster(rig, role):
    rig.log.extend([b"0"])
    rig.log.set_role(role)
    assert fetch(rig, 1, leader_epoch=2).error is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert rig.epoch_end(2) == (-1, -1)
    assert rig.told_epoch() == 0
