"""Topics that are deleted, and made again under the same name: which leader epoch clients are told."""

from __future__ import annotations

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import (
    CreateTopicsRequest,
    EpochPartition,
    MetadataRequest,
    NewTopic,
    OffsetsForLeaderEpochRequest,
)
from tests.broker.rig import T0, Rig


@pytest.fixture
def rig():
    return Rig(partitions=1)


def log_of(rig):
    return rig.directory.log(T0)


def told(rig):
    """The leader epoch in the metadata."""
    return rig.now(rig.broker.metadata(MetadataRequest(("t",)))).topics[0].partitions[0].leader_epoch


def end_of(rig, epoch):
    asked = OffsetsForLeaderEpochRequest((EpochPartition(T0, epoch),))
    found = rig.now(rig.broker.offsets_for_leader_epoch(asked)).partitions[0]
    assert found.error is ErrorCode.NONE
    return found.epoch, found.end_offset


def make_again(rig):
    rig.directory.delete_topic("t")
    topics = CreateTopicsRequest((NewTopic("t", 1),))
    assert not rig.now(rig.broker.create_topics(topics)).topics[0].error


@pytest.mark.parametrize("is_open", [True, False])
def test_a_topic_that_is_made_again_begins_in_a_later_epoch(rig, is_open):
    """librdkafka takes metadata with an earlier one for outdated, and reads nothing any more."""
    log_of(rig).assign_leader_epoch(5)
    log_of(rig).extend([b"of the old one"])
    if not is_open:
        rig.directory.close()
        rig = Rig(partitions=None, files=rig.files)
    make_again(rig)
    assert told(rig) == 6
    assert end_of(rig, 5) == (5, 0), "who has read of the old one is told"
    rig.directory.context.home.load()  # what a crash would leave
    assert rig.directory.context.home.latest_epoch == 6


def test_a_topic_without_records_leaves_its_epoch(rig):
    """So programs that make and delete topics write no more."""
    make_again(rig)
    assert told(rig) == 0
    assert not rig.files.is_file("/data/leader-epoch")
