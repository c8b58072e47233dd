"""Leader epochs in a handover: what clients have seen of the source is not later than what they see then."""

from __future__ import annotations

import shutil

import pytest

import logstore
from logstore import ProducerIdentity
from logstore.broker.offsets.replay import replay
from logstore.broker.offsets.table import OffsetTable
from logstore.exchange.committed import forget_later_epochs
from logstore.format.messages.group_records import decode_offset_value
from logstore.model import OffsetAndMetadata, TopicPartition
from logstore.partition.state.home import LEADER_EPOCH_NAME
from tests.exchange.brokers import make_broker


def killed(path, copy):
    """A copy of an open store, as a kill leaves it."""
    with logstore.open(path) as store:
        store.require_topic("kept", partitions=1)[0].extend([b"v"], flush=True)
        shutil.copytree(path, copy)
    return copy


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_store_goes_on_where_the_other_was(tmp_path, is_clean):
    source = killed(tmp_path / "open", tmp_path / "source")
    if is_clean:
        with logstore.open(source) as store:
            assert store["kept"][0].leader_epoch == 1
    logstore.handover(source, tmp_path / "target")
    with logstore.open(tmp_path / "target") as store:
        assert store["kept"][0].leader_epoch == 1
    assert not (tmp_path / "target" / "kept-0" / LEADER_EPOCH_NAME).exists()


def test_a_later_epoch_of_the_target_stays(tmp_path):
    target = killed(tmp_path / "open", tmp_path / "target")
    with logstore.open(target) as store:
        store.delete_topic("kept")  # which begins another one
    with logstore.open(tmp_path / "source") as store:
        store.create_topic("kept").append(b"v")
    logstore.handover(tmp_path / "source", target)
    with logstore.open(target) as store:
        assert store["kept"][0].leader_epoch == 2


def test_a_broker_gets_no_epoch_of_ours(tmp_path):
    """Also where a transaction is aborted in the copy of a store that was killed."""
    path, source = tmp_path / "open", tmp_path / "source"
    with logstore.open(path) as store:
        log = store.create_topic("kept")[0]
        log.extend([b"a"], producer=ProducerIdentity(7, 0, 0, True))
        log.append_end_marker(7, 0, committed=True, coordinator_epoch=3)
        log.extend([b"b"], producer=ProducerIdentity(7, 0, 1, True), flush=True)
        shutil.copytree(path, source)
    broker = make_broker(tmp_path / "broker")
    report = logstore.handover(source, broker, accept_settings=True, abort_transactions=True)
    (kept,) = report.partitions
    assert (kept.log_end_offset, len(kept.aborted)) == (4, 1)
    assert not (broker / "kept-0" / LEADER_EPOCH_NAME).exists()
    with logstore.open(broker, read_only=True) as store:
        assert [each.epoch for each in store["kept"][0].stored_state().epochs] == [0]
        assert [record.leader_epoch for record in store["kept"][0].read()] == [0, 0]


def test_committed_offsets_lose_epochs_that_the_broker_does_not_know(tmp_path):
    there = {TopicPartition("t", number): number for number in range(3)}
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("t", partitions=3)
        committed = {at: OffsetAndMetadata(0, f"{at}", epoch) for at, epoch in there.items()}
        store.offsets("g").commit(committed)
        log = store["__consumer_offsets"][0]
        limits = {TopicPartition("t", 0): 0, TopicPartition("t", 1): 0}
        assert forget_later_epochs(log, limits) == 2
        table = OffsetTable()
        replay(log, table, 0, log.log_end_offset)
        found = {at: decode_offset_value(data) for at, data in table.offsets_of("g").items()}
        assert {at: value.leader_epoch for at, value in found.items()} == dict(
            zip(there, (0, -1, -1), strict=True)
        )
        assert {(value.offset, value.metadata) for value in found.values()} == {(0, f"{at}") for at in there}
        assert forget_later_epochs(log, limits) == 0
