"""A log that leads for now: what is stored, and what is not."""

from __future__ import annotations

import pytest

from logstore.errors import LeaderFencedError, UsageError
from logstore.format.batch import encode_batch
from logstore.model import Isolation, Role
from tests.partition.helpers import Partition, batch_of


@pytest.fixture
def replica(tmp_path):
    partition = Partition(tmp_path / "t-0")
    partition.log.set_role(Role.FOLLOWER)
    yield partition
    partition.close()


def test_it_leads_until_it_is_opened_again(replica):
    log = replica.log
    log.append_replicated(bytes(batch_of(0, 3, epoch=2)))
    log.lead(4)
    assert (log.role, log.leader_epoch) == (Role.LEADER, 4)
    log.append(b"x")
    assert log.high_watermark == 0
    log.update_high_watermark(4)
    assert [record.leader_epoch for record in log.read()] == [2, 2, 2, 4]
    log.stop_leading()
    assert (log.role, log.high_watermark) == (Role.FOLLOWER, 4)
    log.lead(5)
    replica.crash()
    replica.open()
    assert replica.log.role is Role.FOLLOWER
    assert replica.log.end_offset_for_epoch(4) == (4, 4)
    assert len(list(replica.log.read(isolation=Isolation.LOG_END))) == 4


def test_no_file_is_written(replica):
    files = {file.name: file.stat().st_mtime_ns for file in replica.path.iterdir()}
    replica.log.lead(4)
    replica.log.stop_leading()
    assert files == {file.name: file.stat().st_mtime_ns for file in replica.path.iterdir()}


def test_who_expects_an_earlier_epoch_is_fenced(replica):
    replica.log.lead(4)
    replica.log.lead(6)
    batch = bytes(encode_batch([None], [b"x"], 0))
    with pytest.raises(LeaderFencedError):
        replica.log.append_batch(batch, leader_epoch=4)
    assert replica.log.append_batch(batch, leader_epoch=6).base_offset == 0


def test_gaps_of_an_earlier_leader_are_no_loss_while_it_leads(replica):
    log = replica.log
    log.append_replicated(bytes(batch_of(0, 2) + batch_of(10, 2)))
    log.lead(3)
    log.append(b"x")
    assert log.verify(), str(log.verify())
    replica.recover()
    assert [record.offset for record in replica.log.read(isolation=Isolation.LOG_END)] == [0, 1, 10, 11, 12]


def test_a_stored_role_takes_its_place(replica):
    replica.log.lead(3)
    replica.log.append(b"x")
    replica.log.set_role(Role.LEADER)
    replica.recover()
    assert replica.log.role is Role.LEADER


def test_only_a_replica_leads_for_now(tmp_path, replica):
    replica.log.lead(4)
    for epoch in (3, -1, "5", 2**31):
        with pytest.raises(UsageError, match="epoch"):
            replica.log.lead(epoch)
    alone = Partition(tmp_path / "u-0")
    for call in (lambda: alone.log.lead(1), alone.log.stop_leading):
        with pytest.raises(UsageError, match="no replica"):
            call()
    alone.close()
