"""What any broker answers, of one that another end of a socket has: our client, our listener.

Time runs by itself here: tests of the seam that set a clock, or look behind the broker, are left out. 4 s.
"""

from __future__ import annotations

import pytest

from logstore.broker.local import LocalBroker
from logstore.broker.requests import DescribeConfigsRequest, MetadataRequest
from logstore.config import StoreConfig, TopicConfig
from logstore.logdir.directory import LogDirectory
from logstore.testing import MemoryFiles
from logstore.wire.remote.broker import RemoteBroker
from tests.broker import test_conformance as conformance
from tests.broker import test_conformance_groups as group_conformance
from tests.broker.elsewhere import ElsewhereRig, chosen

listener = pytest.importorskip("logstore.wire.listener.listener")


class ListeningRig(ElsewhereRig):
    """Both ends in this process."""

    def __init__(self, address: str, **settings) -> None:
        config = StoreConfig(topic=TopicConfig(**settings))
        self.directory = LogDirectory("/data", files=MemoryFiles(), seed=1, config=config)
        self._local = LocalBroker(self.directory)
        self._listener = listener.Listener(self._local, address)
        super().__init__(RemoteBroker(self._listener.address), topics=(("t", 2), ("u", 1)))

    def _clean(self) -> None:
        """Nothing was left: the directory is new."""

    def close(self) -> None:
        self.broker.close()
        self._listener.close()
        self._local.close()
        self.directory.close()


@pytest.fixture(params=["port", "socket"])
def rig(request, tmp_path):
    made = ListeningRig("127.0.0.1:0" if request.param == "port" else str(tmp_path / "s"))
    yield made
    made.close()


TestProduce = chosen(
    conformance.TestProduce,
    "test_offsets_follow_one_another",
    "test_each_partition_has_its_own_outcome",
    "test_acks_that_kafka_does_not_have",
    "test_a_batch_that_is_sent_again_is_in_the_log_once",
)
TestFetch = chosen(
    conformance.TestFetch,
    "test_what_is_there_comes_at_once",
    "test_a_topic_that_was_made_again_is_another",
    "test_no_wait_is_asked_for",
    "test_an_error_in_one_partition_ends_the_wait",
    "test_an_expected_leader_epoch",
    "test_no_partitions_are_asked_for",
)
TestLookups = chosen(
    conformance.TestLookups,
    "test_the_latest_of_committed_readers_is_the_last_stable_offset",
    "test_ends_of_leader_epochs",
    "test_producer_ids_are_all_different",
)
TestTopics = chosen(conformance.TestTopics, "test_settings", "test_records_are_deleted")
TestListAndDescribe = chosen(
    group_conformance.TestListAndDescribe,
    "test_groups_with_members_and_groups_with_offsets",
    "test_what_an_open_transaction_has_committed",
)
TestDeleteGroups = chosen(
    group_conformance.TestDeleteGroups,
    "test_what_a_transaction_has_committed_before_goes_too",
    "test_offsets_go_with_their_topic",
)
TestOffsetDelete = chosen(
    group_conformance.TestOffsetDelete,
    "test_of_a_group_without_members",
    "test_not_of_topics_that_members_subscribe_to",
    "test_before_members_have_an_assignment",
    "test_not_of_members_that_are_no_consumers",
    "test_of_a_group_that_is_not_there",
    "test_what_a_transaction_is_about_to_commit",
)
TestShareGroups = chosen(
    conformance.TestShareGroups,
    "test_a_record_is_one_member_s_at_a_time",
    "test_the_bytes_hold_what_was_acquired",
    "test_members_that_are_not_known",
)


def test_what_a_broker_says_of_itself(rig):
    """The socket of a single broker leads to it, whatever address it says that it has."""
    assert [each.name for each in rig.now(rig.broker.metadata(MetadataRequest())).topics] == ["t", "u"]
    (described,) = rig.now(rig.broker.describe_configs(DescribeConfigsRequest(("t",)))).topics
    assert {each.name for each in described.settings} >= {"retention.ms", "cleanup.policy"}
    rig.produce(b"a")
