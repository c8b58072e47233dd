"""The groups of the newer protocol of a directory: their coordinator, and the topic that it keeps them in."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from logstore.broker.consumer_groups.config import ConsumerGroupConfig
from logstore.broker.consumer_groups.coordinator import ConsumerGroupCoordinator
from logstore.broker.consumer_groups.describing import describe
from logstore.broker.consumer_groups.group import Group
from logstore.broker.consumer_groups.requests import DescribedConsumerGroup
from logstore.broker.consumer_groups.states import GroupState
from logstore.broker.consumer_groups.stored import Row, group_of
from logstore.broker.consumer_groups.topics import Topics
from logstore.broker.groups.requests import LeaveGroup, LeavingMember
from logstore.broker.offsets.committed import CommittedOffsets
from logstore.broker.storing.groups import ends_with_process
from logstore.broker.timers import BackgroundTimers
from logstore.format.messages.consumer_group_records import GROUP_KIND
from logstore.logdir.catalogue import TopicEntry, TopicState
from logstore.logdir.directory import LogDirectory
from logstore.logdir.watched import WatchedDirectory


class ConsumerGroupsInTopic:
    """See :class:`~logstore.broker.consumer_groups.active.ConsumerGroupStorage`."""

    def __init__(self, committed: CommittedOffsets) -> None:
        self._committed = committed

    def store(self, group_id: str, rows: Sequence[Row]) -> None:
        self._committed.store_consumer_group(group_id, rows)

    def delete(self, group_id: str) -> None:
        self._committed.delete_group(group_id)

    def forget(self, group_id: str) -> None:
        self._committed.forget_consumer_group(group_id)


class TopicsOfDirectory:
    """The topics of a directory, as one object for as long as they stay as they are."""

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory
        self._entries: Mapping[str, TopicEntry] = {}
        self._live: Topics = {}

    def __call__(self) -> Topics:
        """Cost: 1 µs, unless a topic has changed."""
        entries = self._directory.catalogue
        if entries is not self._entries:
            self._live = {name: entry for name, entry in entries.items() if entry.state is TopicState.LIVE}
            self._entries = entries
        return self._live


def open_consumer_groups(
    committed: CommittedOffsets,
    topics: Callable[[], Topics],
    config_of: Callable[[str], ConsumerGroupConfig],
    on_only_classic: Callable[[str], object],
) -> ConsumerGroupCoordinator:
    """The coordinator, with the groups that are stored. Members that ran in a process of the directory have
    ended with it, except static ones. ``config_of``, ``on_only_classic``: see
    :class:`~logstore.broker.consumer_groups.coordinator.ConsumerGroupCoordinator`.

    Raises:
        CorruptionError, UnsupportedVersionError: they cannot be read.
    """
    context = committed.context
    timers = BackgroundTimers(context.scheduler, context.clock)
    coordinator = ConsumerGroupCoordinator(
        ConsumerGroupsInTopic(committed),
        timers,
        topics,
        config_of=config_of,
        on_only_classic=on_only_classic,
    )
    groups = _stored_groups(committed)
    coordinator.restore(groups.values())
    for group in groups.values():
        gone = tuple(
            LeavingMember(member.member_id)
            for member in group.members.values()
            if ends_with_process(member.client_host, member.instance_id)
        )
        if gone:
            coordinator.leave_group(LeaveGroup(group.group_id, gone))
    return coordinator


def _stored_groups(committed: CommittedOffsets) -> dict[str, Group]:
    """Those whose own record is there."""
    return {
        name: group_of(name, rows)
        for name, rows in committed.load_consumer_groups().items()
        if any(about.kind == GROUP_KIND for about in rows)
    }


def stored_consumer_states(committed: CommittedOffsets) -> dict[str, GroupState]:
    """The groups that are stored, for those who have no coordinator. Raises as
    :func:`open_consumer_groups`."""
    return {name: group.state for name, group in _stored_groups(committed).items()}


def describe_stored_consumer_group(
    directory: LogDirectory | WatchedDirectory, committed: CommittedOffsets, name: str
) -> DescribedConsumerGroup | None:
    """A group as it is stored; None if there is none of the newer protocol. Raises as
    :func:`open_consumer_groups`."""
    rows = committed.load_consumer_group(name)
    if not any(about.kind == GROUP_KIND for about in rows):
        return None
    topics = {each: directory.topic(each) for each in directory.topic_names()}
    return describe(group_of(name, rows), topics)
