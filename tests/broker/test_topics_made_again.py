"""Topics that are deleted, and made again under the same name: which leader epoch clients are told."""

from __future__ import annotations

import pytest

from logstore.broker.requests import (
    CreateTopicsRequest,
    NewTopic,
)
from tests.broker.rig import Rig


@pytest.fixture
def rig():
    return Rig(partitions=1)


def make_again(rig):
    rig.directory.delete_topic("t")
    topics = CreateTopicsRequest((NewTopic("t", 1),))
    assert not rig.now(rig.broker.create_topics(topics)).topics[0].error


@pytest.mark.parametrize("is_open", [True, False])
def test_a_topic_that_is_made_again_begins_in_a_later_epoch(rig, is_open):
    """librdkafka takes metadata with an earlier one for outdated, and reads nothing any more."""
    rig.log.assign_leader_epoch(5)
    rig.log.extend([b"of the old one"])
    if not is_open:
        rig.directory.close()
        rig = Rig(partitions=None, files=rig.files)
    make_again(rig)
    assert rig.told_epoch() == 6
    assert rig.epoch_end(5) == (5, 0), "who has read of the old one is told"
    rig.directory.context.home.load()  # what a crash would leave
    assert rig.directory.context.home.latest_epoch == 6


def test_a_topic_without_records_leaves_its_epoch(rig):
    """So programs that make and delete topics write no more."""
    make_again(rig)
    assert rig.told_epoch() == 0
    assert not rig.files.is_file("/data/leader-epoch")
