"""What the controller does on a tree.

``/controller_epoch`` is replaced by each new controller, as Kafka does it, and each change that a controller
makes checks its version. So one that does not know yet that it is no longer the controller changes nothing.

Lock: ``TreeControl._lock`` is held while topics are created, grown and deleted: what one thread has made half
of is not to be swept up by another as if a controller had died.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import NamedTuple, NoReturn, Protocol
from uuid import UUID

from logstore.errors import (
    CorruptionError,
    FencedError,
    LogstoreError,
    RetriableError,
    TopicExistsError,
    UnknownTopicError,
    UsageError,
    without_frames,
)
from logstore.format.names import check_topic_name
from logstore.replica.coordination import layout
from logstore.replica.coordination.batches import batches, together
from logstore.replica.coordination.interface import NewTopic, Outcome, TopicPartition, View
from logstore.replica.coordination.tree import Check, Create, Delete, Refusal, Step, Tree, Write
from logstore.replica.rules.partition_state import PartitionState, Registration


class Changes(Protocol):
    """What a session does for its controller: see :class:`.session.TreeSession`."""

    @property
    def registration(self) -> Registration: ...

    def commit(self, steps: Sequence[Step]) -> Refusal | None: ...

    def change_states(
        self, changes: Mapping[TopicPartition, PartitionState], checks: Sequence[Step], controller_epoch: int
    ) -> dict[TopicPartition, Outcome] | None: ...


class _Creation(NamedTuple):
    at: int
    name: str
    topic_id: UUID
    steps: list[Step]


def read_state(tree: Tree, partition: TopicPartition) -> PartitionState | None:
    """What the tree has of a partition.

    Raises:
        CorruptionError: it cannot be read.
    """
    path = layout.state_path(partition)
    stored = tree.read(path)
    return None if stored is None else layout.decode_state(path, stored)


class TreeControl:
    """See :class:`~logstore.replica.coordination.interface.Control`."""

    def __init__(
        self, tree: Tree, session: Changes, epoch: int, check: Check, view: Callable[[], View]
    ) -> None:
        self._tree = tree
        self._session = session
        self._check = check
        self._view = view
        self._lock = threading.Lock()
        self.epoch = epoch

    def _commit(self, steps: Sequence[Step]) -> Refusal | None:
        refusal = self._session.commit([self._check, *steps])
        if refusal is not None and refusal.at == 0:
            self._be_fenced()
        return None if refusal is None else Refusal(refusal.why, refusal.at - 1)

    def _be_fenced(self) -> NoReturn:
        seat = self._view().controller
        now = f"; node {seat.member.node_id} is the controller, in epoch {seat.epoch}" if seat else ""
        node_id = self._session.registration.node_id
        raise FencedError(f"node {node_id}: the controller epoch {self.epoch} is over{now}")

    def change(self, changes: Mapping[TopicPartition, PartitionState]) -> dict[TopicPartition, Outcome]:
        outcomes = self._session.change_states(changes, [self._check], self.epoch)
        if outcomes is None:
            self._be_fenced()
        return outcomes

    def create_topic(
        self,
        name: str,
        states: Sequence[PartitionState],
        *,
        topic_id: UUID | None = None,
        config: Mapping[str, str] | None = None,
    ) -> UUID:
        (made,) = self.create_topics([NewTopic(name, states, config or {}, topic_id)])
        if isinstance(made, LogstoreError):
            raise made
        return made

    def create_topics(self, topics: Sequence[NewTopic]) -> list[UUID | LogstoreError]:
        outcomes: dict[int, UUID | LogstoreError] = {}
        wanted: list[_Creation] = []
        least = self._least_epoch()
        for at, topic in enumerate(topics):
            try:
                wanted.append(self._creation(at, topic, least))
                outcomes[at] = wanted[-1].topic_id
            except LogstoreError as error:
                outcomes[at] = without_frames(error)
        with self._lock:
            for some in together(self._tree, wanted, lambda each: each.steps):
                outcomes |= self._refused(some)
        return [outcomes[at] for at in range(len(topics))]

    def _least_epoch(self) -> int:
        """The leader epoch in which new partitions begin: later than those of topics that were deleted, whose
        names they may get. Clients that stay take an earlier one for outdated: librdkafka reads nothing any
        more."""
        stored = self._tree.read(layout.LEADER_EPOCH)
        return 0 if stored is None else layout.decode_number(layout.LEADER_EPOCH, stored.data)

    def _raise_least_epoch(self, name: str, partition_count: int) -> list[Step]:
        """For the deletion of a topic. The view may not have heard of it yet; else it spares a call for each
        partition."""
        known = self._view().partitions
        states = [known.get((name, at)) or self._stored_state(name, at) for at in range(partition_count)]
        epochs = [state.leader_epoch for state in states if state is not None]
        least, before = max(epochs, default=-1) + 1, self._least_epoch()
        if least <= before:
            return []
        text = layout.encode_number(least)
        return [Write(layout.LEADER_EPOCH, text) if before else Create(layout.LEADER_EPOCH, text)]

    def _stored_state(self, name: str, partition: int) -> PartitionState | None:
        with suppress(CorruptionError):
            return read_state(self._tree, (name, partition))
        return None

    def _creation(self, at: int, topic: NewTopic, least: int) -> _Creation:
        name, states = topic.name, _not_before(topic.states, least)
        check_topic_name(name)
        _check_replicas(states)
        topic_id = topic.topic_id or uuid.uuid4()
        path = layout.topic_path(name)
        steps: list[Step] = [
            Create(path, layout.encode_topic(topic_id, dict(enumerate(each.replicas for each in states)))),
            Create(f"{path}/partitions", ""),
            Create(layout.config_path(name), layout.encode_config(topic.config)),
        ]
        for number, state in enumerate(states):
            folder, state_path = layout.partition_paths(name, number)
            steps += [Create(folder, ""), Create(state_path, layout.encode_state(state, self.epoch))]
        steps.append(Create(layout.topic_id_path(topic_id), name))  # with it the topic is there
        return _Creation(at, name, topic_id, steps)

    def _refused(self, creations: Sequence[_Creation]) -> dict[int, LogstoreError]:
        """Make topics that fit into one change, or one that is larger. Returns why some were not made."""
        refused: dict[int, LogstoreError] = {}
        left = list(creations)
        try:
            if len(left) > 1 and self._commit(_steps_of(left)) is None:
                return {}
            left = [each for each in creations if self._is_free(each, refused)]
            for batch in batches(self._tree, _steps_of(left)):
                if self._commit(batch) is not None:
                    return refused | {each.at: _in_the_way(each.name) for each in left}
        except LogstoreError as error:
            refused.update(dict.fromkeys([each.at for each in left], without_frames(error)))
        return refused

    def _is_free(self, creation: _Creation, refused: dict[int, LogstoreError]) -> bool:
        try:
            self._sweep(creation.name)
        except (TopicExistsError, CorruptionError) as error:
            refused[creation.at] = without_frames(error)
        return creation.at not in refused

    def _sweep(self, name: str) -> None:
        """Remove what was left by a controller that was creating or deleting the topic.

        Raises:
            TopicExistsError: the topic is whole.
        """
        path = layout.topic_path(name)
        described = self._tree.read(path)
        if described is None:
            return
        if self._tree.read(layout.topic_id_path(layout.decode_topic_id(path, described.data))) is not None:
            raise TopicExistsError(f"topic {name!r} exists already")
        self._remove(name, described.data)

    def _remove(self, name: str, described: str) -> None:
        """All but the marker."""
        path = layout.topic_path(name)
        paths: list[str] = []
        for at in range(layout.partition_count(path, described)):
            folder, state_path = layout.partition_paths(name, at)
            paths += [state_path, folder]
        paths += [f"{path}/partitions", layout.config_path(name), path]
        for batch in batches(self._tree, [Delete(each) for each in paths]):
            if self._commit(batch) is not None:
                for step in batch:  # some are gone already
                    self._commit([step])

    def delete_topic(self, name: str) -> None:
        with self._lock:
            self._delete(name)

    def _delete(self, name: str) -> None:
        path = layout.topic_path(name)
        described = self._tree.read(path)
        marker = described and layout.topic_id_path(layout.decode_topic_id(path, described.data))
        if described is None or marker is None:
            raise UnknownTopicError(f"there is no topic {name!r}")
        topic_id = layout.decode_topic_id(path, described.data)
        count = layout.partition_count(path, described.data)
        steps: list[Step] = [Delete(marker), Create(layout.deleted_path(topic_id), name)]
        steps += self._raise_least_epoch(name, count)
        if self._commit(steps) is not None:
            raise UnknownTopicError(f"there is no topic {name!r}")
        self._remove(name, described.data)

    def add_partitions(self, name: str, first: int, states: Sequence[PartitionState]) -> None:
        _check_replicas(states)
        with self._lock:
            self._grow(name, first, states)

    def _grow(self, name: str, first: int, states: Sequence[PartitionState]) -> None:
        path = layout.topic_path(name)
        described = self._tree.read(path)
        if described is None:
            raise UnknownTopicError(f"there is no topic {name!r}")
        known = layout.decode_replicas(path, described.data)
        if len(known) != first:
            raise RetriableError(f"topic {name!r} has {len(known)} partitions, not {first}; look again")
        topic_id = layout.decode_topic_id(path, described.data)
        marker = Check(layout.topic_id_path(topic_id))
        steps: list[Step] = []
        for at, state in enumerate(_not_before(states, self._least_epoch()), first):
            folder, state_path = layout.partition_paths(name, at)
            if self._tree.read(folder) is None:  # else a controller that died has left it
                steps.append(Create(folder, ""))
            if self._tree.read(state_path) is None:
                steps.append(Create(state_path, layout.encode_state(state, self.epoch)))
            else:
                steps.append(Write(state_path, layout.encode_state(state, self.epoch)))
        for batch in batches(self._tree, steps):
            if self._commit([marker, *batch]) is not None:
                raise RetriableError(f"topic {name!r} is being changed or deleted; try again")
        more = dict(enumerate((each.replicas for each in states), first))
        grown = layout.encode_topic(topic_id, {**known, **more})
        if self._commit([marker, Write(path, grown, described.version)]) is not None:  # now they are there
            raise RetriableError(f"topic {name!r} is being changed or deleted; try again")

    def configure_topic(self, name: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]) -> None:
        path, config_path = layout.topic_path(name), layout.config_path(name)
        while True:
            described, stored = self._tree.read(path), self._tree.read(config_path)
            if described is None or stored is None:
                break
            marker = Check(layout.topic_id_path(layout.decode_topic_id(path, described.data)))
            after = layout.encode_config(change(layout.decode_config(config_path, stored.data)))
            refusal = self._commit([marker, Write(config_path, after, stored.version)])
            if refusal is None:
                return
            if refusal.at == 0:  # it is not whole
                break
        raise UnknownTopicError(f"there is no topic {name!r}")

    def resign(self) -> None:
        if self._commit([Delete(layout.CONTROLLER)]) is not None:
            self._be_fenced()


def _steps_of(creations: Sequence[_Creation]) -> list[Step]:
    return [step for each in creations for step in each.steps]


def _not_before(states: Iterable[PartitionState], least: int) -> list[PartitionState]:
    return [each._replace(leader_epoch=max(each.leader_epoch, least)) for each in states]


def _in_the_way(name: str) -> RetriableError:
    return RetriableError(f"topic {name!r} is being created or deleted; try again")


def _check_replicas(states: Sequence[PartitionState]) -> None:
    if not states or not all(each.replicas for each in states):
        raise UsageError("a topic needs a partition, and each of them a replica")
