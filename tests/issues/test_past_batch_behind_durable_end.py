"""A power cut may leave a batch from the file's own past behind the durable end. Recovery took the last
durable batch for the wrong one of the two, and refused to open the log."""

from __future__ import annotations

from tests.partition.helpers import Partition


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
