"""How far share groups have come in the topics of a handover.

Their states name topics by their ids, which are others in the target: they are read in the source, and
written in the target as its own. A broker must know the groups already: which topics a group has is in other
records, those of its coordinator, and a coordinator begins the states of a topic again that is not there.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from logstore.broker.share.stored import ShareState, cut_back
from logstore.broker.storing.shares import ShareStorage
from logstore.clock import Clock
from logstore.exchange.place import Place
from logstore.files import Files
from logstore.format.messages.share_records import ShareKey
from logstore.logdir.directory import LogDirectory
from logstore.model import TopicPartition


class CarriedState(NamedTuple):
    """How far a group is in a partition."""

    group: str
    partition: TopicPartition
    state: ShareState

    def is_like(self, other: ShareState) -> bool:
        """Whether the target says the same already, as after an earlier call."""
        return self.state[2:] == other[2:]


def plan_share_groups(
    source: Place,
    target: Place | None,
    ends: Mapping[TopicPartition, int],
    created_topics: Iterable[str],
) -> tuple[list[CarriedState], list[str]]:
    """What is to be written, and what is against it.

    Args:
        target: None if it does not exist yet.
        ends: the partitions that are handed over, with the ends of their logs.
        created_topics: what the target does not have yet.

    Raises:
        CorruptionError, UnsupportedVersionError: the states of one side cannot be read.
    """
    names = {source.topic(name).topic_id: name for name in {each.topic for each in ends}}
    created = set(created_topics)
    theirs = {} if target is None else target.share_states()
    carried: list[CarriedState] = []
    problems: list[str] = []
    for key, state in sorted(source.share_states().items()):
        partition = TopicPartition(names.get(key.topic_id, ""), key.partition)
        if partition not in ends or state.start_offset < 0:
            continue  # not handed over, or the group has not begun there
        each = CarriedState(key.group_id, partition, cut_back(state, ends[partition]))
        carried.append(each)
        if target is not None and partition.topic not in created:
            topic_id = target.topic(partition.topic).topic_id
            problem = _why_not(each, theirs.get(_key(each, topic_id)), is_brokers=target.is_brokers)
            problems += [problem] if problem else []
    return carried, problems


def _why_not(carried: CarriedState, known: ShareState | None, *, is_brokers: bool) -> str | None:
    group, partition = carried.group, carried.partition
    if known is None:
        if not is_brokers:
            return None
        return (
            f"the broker does not know share group {group!r} in {partition}: start it, let a share consumer "
            f"of the group subscribe to {partition.topic!r} for a moment (kafka-console-share-consumer.sh "
            f"--group {group} --topic {partition.topic} --timeout-ms 10000), and stop it"
        )
    if (known.start_offset > 0 or known.batches) and not carried.is_like(known):
        return f"share group {group!r} has begun in {partition} of the target: its state is not replaced"
    return None


def _key(carried: CarriedState, topic_id: uuid.UUID) -> ShareKey:
    return ShareKey(carried.group, topic_id, carried.partition.partition)


def write_share_groups(files: Files, clock: Clock, path: str, carried: Iterable[CarriedState]) -> None:
    """Write the states, durably. A call that is killed leaves all of them, or some.

    Raises:
        LogstoreError: the target cannot be opened, or the disk refused.
    """
    directory = LogDirectory(path, files=files, clock=clock)
    try:
        storage = ShareStorage(directory)
        theirs = storage.load()
        changes: list[tuple[ShareKey, ShareState]] = []
        for each in carried:
            key = _key(each, directory.topic(each.partition.topic).topic_id)
            known = theirs.get(key)
            if known is None:
                changes.append((key, each.state._replace(state_epoch=0, leader_epoch=0)))
            elif not each.is_like(known):  # a broker holds each writer to its own epochs
                state_epoch, leader_epoch, *_ = known
                changes.append((key, each.state._replace(state_epoch=state_epoch, leader_epoch=leader_epoch)))
        if changes:
            storage.write(changes, flush=True)
    finally:
        directory.close()
