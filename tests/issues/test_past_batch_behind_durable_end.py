"""A power cut may leave a batch from the file's own past behind the durable end. Recovery took the last
durable batch for the wrong one of the two, and refused to open the log."""

from __future__ import annotations

import pytest
from tests.partition.helpers import Partition, batch_of


def test_a_batch_from_the_past_behind_the_durable_end_is_a_torn_tail(tmp_path):
    partition = Partition(tmp_path / "t-0", index_interval_bytes=100)
    partition.write(4)
    partition.log.checkpoint()
    partition.write(1)
    partition.crash()
    (log,) = (tmp_path / "t-0").glob("*.log")
    data = log.read_bytes()
    durable_bytes = len(data) * 4 // 5
    log.write_bytes(data[:durable_bytes] + data[: len(data) - durable_bytes])
    partition.open()
    assert partition.read() == [0, 1, 2, 3]
    partition.close()


@pytest.mark.parametrize("start", ["the beginning", "the last batch", "an older epoch"])
def test_nor_does_one_behind_a_gap_that_a_leader_sent(tmp_path, start):
    """Flushed, but not yet known to the recovery point: the gap in front of the last batch let recovery doubt
    the offset of that one. Its past may begin with any of the file's batches, or with one that the leader of
    another epoch took back."""
    partition = Partition(tmp_path / "t-0")
    last = batch_of(7, 1, epoch=3)
    partition.log.append_replicated(bytes(batch_of(0, 3, epoch=2)))
    partition.log.append_replicated(bytes(last))
    partition.log.flush()
    partition.crash()
    past = {
        "the beginning": batch_of(0, 3),
        "the last batch": last,
        "an older epoch": batch_of(5, 2, epoch=2),
    }
    file = partition.file()
    file.write_bytes(file.read_bytes() + past[start])
    partition.open()
    assert partition.read() == [0, 1, 2, 7]
    partition.close()
