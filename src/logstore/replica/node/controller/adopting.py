"""A store that becomes the first node of a cluster takes its topics along."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from logstore.errors import (
    CorruptionError,
    FencedError,
    LogstoreError,
    RetriableError,
    StorageError,
    TopicExistsError,
    UsageError,
)
from logstore.format.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC
from logstore.logdir.catalogue import TopicEntry
from logstore.logdir.directory import LogDirectory
from logstore.logdir.followed import read_followed
from logstore.logdir.group_settings import read_group_settings
from logstore.model import Role, TopicPartition
from logstore.partition.log import Log
from logstore.replica.coordination.interface import Control, Coordinator, Session, View
from logstore.replica.node.assigning import own_settings
from logstore.replica.rules.partition_state import Member, PartitionState
from logstore.store import Store
from logstore.warning import inform, warn

_WITH_ONE_PARTITION: Final = frozenset({OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC})
"""A node coordinates all groups or none, all transactions or none, and all queues or none."""
_MOST_REFUSALS: Final = 20
"""Of one topic, half a second apart: what is in its way for longer does not go by itself."""


def cluster_id_for(store: Store) -> str | None:
    """The id that a new cluster needs for the store to be its first node. None if any will do, or if the
    store was a node already: then its cluster is there, and another one must not take its place.

    Raises:
        UsageError: as :func:`check_no_copies` says.
        ReadOnlyError, ClosedError: the store cannot be changed.
    """
    check_no_copies(store)
    return None if was_node(store) or not store.directory.topic_names() else store.cluster_id


def was_node(store: Store) -> bool:
    """Whether the directory is that of a node, which has a cluster."""
    return store.directory.context.home.is_of_node


def check_no_copies(store: Store) -> None:
    """See whether what the store would bring into a cluster is its own.

    Raises:
        UsageError: a topic is the copy of a leader's. The cluster would not know it, and nobody could use it.
    """
    directory = store.directory
    if was_node(store):
        return
    try:
        followed = read_followed(directory.context.files, directory.path)
    except CorruptionError:
        return  # then all topics count as the store's own
    copies = {log.partition.topic for log in directory.logs() if log.role is Role.FOLLOWER}
    for name in sorted(copies & followed.keys()):
        leader = followed[name].leader
        addresses = ", ".join(map(repr, leader))
        how = (
            f"replica.follow(store, {addresses}).promote() makes the copies the store's own, also if nobody "
            "answers there"
            if leader
            else "log.set_role(logstore.model.Role.ALONE) of each log makes it the store's own"
        )
        raise UsageError(
            f"topic {name!r} of {directory.path} is a copy of a leader's, and would not come along into the "
            f"cluster: {how}"
        )


@contextmanager
def _at_coordinator() -> Iterator[None]:
    """
    Raises:
        RetriableError: the coordinator's disk has no room, say. What is left behind now would stay so.
    """
    try:
        yield
    except StorageError as error:
        raise RetriableError(f"the coordinator takes no changes now: {error}") from error


class Adoption:
    """Makes the topics of a directory those of the cluster: with their ids, settings and leader epochs, and
    one replica, which is here. Only those of which no other node ever had a replica."""

    def __init__(self, directory: LogDirectory, coordinator: Coordinator) -> None:
        self._directory = directory
        self._coordinator = coordinator
        self._refusals: Counter[str] = Counter()

    def adopt(self, control: Control, session: Session, view: View, member: Member) -> bool:
        """What cannot be taken along is told, and stays as it is. Returns whether a topic was taken along.

        Raises:
            FencedError: the node is not the controller any more.
            RetriableError: the coordinator cannot be reached, or takes no changes now. Call it again: a topic
                that stays in the way of one is told of then, so that others get their leaders.
        """
        has_adopted = False
        if not view.topics:
            self._adopt_group_settings(session, view)
        strays = [name for name in self._directory.topic_names() if name not in view.topics]
        for name in sorted(strays, key=lambda name: (name not in _WITH_ONE_PARTITION, name)):
            try:
                entry = self._directory.topic(name)
                if not self.is_own(name):
                    continue
                if name in _WITH_ONE_PARTITION and entry.partition_count > 1:
                    why = f"it has {entry.partition_count} partitions, and in a cluster one"
                    warn("topic %r stays as it is, unused: %s", name, why)
                    continue
                self._create(control, entry, member)
                has_adopted = True
            except TopicExistsError:
                continue  # it was told of just now; if it is another one, that will be said
            except FencedError:
                raise
            except LogstoreError as error:
                self._refusals[name] += 1
                if isinstance(error, RetriableError) and self._refusals[name] < _MOST_REFUSALS:
                    raise
                warn("topic %r cannot be taken into the cluster: %s", name, error)
        return has_adopted

    def _adopt_group_settings(self, session: Session, view: View) -> None:
        try:
            found = read_group_settings(self._directory.files, self._directory.path)
            for group, settings in found.items():
                if group not in view.groups:
                    with _at_coordinator():
                        session.configure_group(group, lambda own, settings=settings: own or settings)  # type: ignore[misc]
        except (FencedError, RetriableError):
            raise
        except LogstoreError as error:
            warn("the settings of groups cannot be taken into the cluster: %s", error)

    def is_own(self, name: str) -> bool:
        """Whether no other node ever had a replica of the topic. False if that cannot be told."""
        try:
            entry = self._directory.topic(name)
            is_whole = len(entry.held_partitions) == entry.partition_count
            return (
                is_whole
                and all(log.role is Role.ALONE for log in self._logs(entry))
                and not self._coordinator.was_deleted(entry.topic_id)
            )
        except LogstoreError:
            return False

    def _logs(self, entry: TopicEntry) -> list[Log]:
        return [
            self._directory.log(TopicPartition(entry.name, number)) for number in range(entry.partition_count)
        ]

    def _create(self, control: Control, entry: TopicEntry, member: Member) -> None:
        epochs = [max(log.leader_epoch, 0) for log in self._logs(entry)]
        config = own_settings(self._directory, entry.config)
        with _at_coordinator():
            control.create_topic(
                entry.name,
                [PartitionState((member.node_id,), None, epoch, (member,)) for epoch in epochs],
                topic_id=entry.topic_id,
                config=config,
            )
        inform("topic %r is one of the cluster now, with a replica on this node", entry.name)
