"""Committed offsets in a copy that a broker gets.

Each may say in which leader epoch the record in front of it was written. A client that finds there a later
one than its cluster tells of takes the cluster's word for outdated, and waits for a newer one without end.
"""

from __future__ import annotations

from collections.abc import Mapping

from logstore.broker.offsets.replay import replay
from logstore.broker.offsets.table import OffsetTable
from logstore.format.header import NO_EPOCH
from logstore.format.messages.group_records import (
    decode_offset_value,
    encode_offset_key,
    encode_offset_value,
)
from logstore.model import NewRecord, TopicPartition
from logstore.partition.log import Log


def forget_later_epochs(log: Log, limits: Mapping[TopicPartition, int]) -> int:
    """Commit those offsets once more without their epoch that have a later one than the broker does.

    Args:
        log: a partition of ``__consumer_offsets``, without open transactions.
        limits: the broker's epochs; it has none of other partitions.

    Returns:
        How many.

    Raises:
        CorruptionError, UnsupportedVersionError: a record cannot be read.
        StorageError: the disk refused.
    """
    table = OffsetTable()
    replay(log, table, log.log_start_offset, log.log_end_offset)
    records: list[NewRecord] = []
    for group in table.groups_with_offsets():
        for partition, data in table.offsets_of(group).items():
            value = decode_offset_value(data)
            if value.leader_epoch > limits.get(partition, NO_EPOCH):
                told = encode_offset_value(value._replace(leader_epoch=NO_EPOCH))
                records.append(NewRecord(told, key=encode_offset_key(group, partition)))
    if records:
        log.extend(records)
    return len(records)
