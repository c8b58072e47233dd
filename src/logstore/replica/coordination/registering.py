"""What a node still has from its earlier lives, as found out when it registers."""

from __future__ import annotations

from typing import NamedTuple

from logstore.replica.coordination.interface import Node


class NodeRecord(NamedTuple):
    """What is kept of a node for ever, also while it is away."""

    life: int = 0
    """Its last one. Its disk knows of it."""
    whole_since: int = 0
    durable_since: int = 0
    disk_id: str | None = None
    disk_since: int = 0


def begin_life(record: NodeRecord, node: Node, life: int) -> NodeRecord:
    """The record of a node that registers.

    With another disk, or an older copy of its own, which does not know of the last life, it has lost
    everything. If it was stopped without flushing, it has lost what it had not flushed. If its disk is
    damaged, it may have lost anything, but not everything.
    """
    is_other_disk = record.disk_id is not None and node.disk_id != record.disk_id
    if is_other_disk or node.last_life < record.life:
        return NodeRecord(life, life, life, node.disk_id, life)
    whole_since = record.whole_since if node.is_whole else life
    durable_since = record.durable_since if node.keeps_flushed else life
    return NodeRecord(life, whole_since, durable_since, node.disk_id, record.disk_since)
