"""Changes of the cluster's topics, made by the controller.

Lock: ``ClusterTopics._lock`` guards the names of topics that are on their way into the view.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TypeVar

from logstore.broker.administering import changed_settings, check_count, check_more, outcome_of
from logstore.broker.codes import ErrorCode
from logstore.broker.internal_topic import internal_config
from logstore.broker.requests import (
    AlterConfigsRequest,
    ConfigChange,
    CreatePartitionsRequest,
    CreateTopicsRequest,
    DeleteTopicsRequest,
    MorePartitions,
    NewTopic,
    TopicOutcome,
    TopicsResult,
)
from logstore.broker.settings import settings_of
from logstore.config import TopicConfig
from logstore.errors import (
    InvalidTopicError,
    RetriableError,
    StorageError,
    TopicExistsError,
    UnknownTopicError,
    UsageError,
)
from logstore.format.names import (
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TRANSACTIONS_TOPIC,
    check_new_topic_name,
    has_name_clash,
)
from logstore.logdir.directory import LogDirectory
from logstore.replica.coordination.interface import Control, Topic, View
from logstore.replica.node.assigning import config_of, described, known_settings, own_settings
from logstore.replica.node.controller.awaiting import await_view
from logstore.replica.node.controller.placement import place
from logstore.replica.rules.electing import elect
from logstore.replica.rules.partition_state import PartitionState, Registration
from logstore.replica.rules.reassigning import target

T = TypeVar("T")

_NO_FACTOR = -1
_MOST_BY_ITSELF = 3
"""Replicas of a partition, if nobody says how many: what production clusters have."""
_COMING_SECONDS = 5.0
"""In which the view has a topic that was made, or does not get it any more."""
_THROTTLED = frozenset({"leader.replication.throttled.replicas", "follower.replication.throttled.replicas"})
"""Kafka's tool names so what it moves slowly. Here a node's limit is for all that is not in sync."""
_OF_COORDINATORS = {OFFSETS_TOPIC: True, TRANSACTIONS_TOPIC: True, SHARE_STATE_TOPIC: False}
"""Each with whether it is compacted."""


class ClusterTopics:
    """See the module. Calls wait for the coordinator."""

    def __init__(
        self,
        directory: LogDirectory,
        view: Callable[[], View],
        control: Callable[[], Control | None],
        replication_factor: int | None,
    ) -> None:
        """``replication_factor``: see :class:`~logstore.replica.node.node.Node`."""
        self._directory = directory
        self._view = view
        self._control = control
        self._replication_factor = replication_factor
        self._chance = random.Random()  # noqa: S311 - no secret
        self._lock = threading.Lock()
        self._coming: dict[str, float] = {}
        """Names of topics that this controller makes, and until when the view may not have them yet."""

    def _as_controller(
        self,
        names: Sequence[str],
        change: Callable[[Control, int], TopicOutcome | object],
        has: Callable[[View, TopicOutcome], bool] = lambda view, done: True,
    ) -> TopicsResult:
        """``has``: whether a view has what was changed."""
        control = self._control()
        if control is None:
            why = "this node is not the controller; ask the one that metadata names"
            return TopicsResult(tuple(TopicOutcome(name, ErrorCode.NOT_CONTROLLER, why) for name in names))
        outcomes = tuple(
            outcome_of(name, lambda number=number: _at_coordinator(change, control, number))  # type: ignore[misc]
            for number, name in enumerate(names)
        )
        changed = [each for each in outcomes if each.error is ErrorCode.NONE]
        await_view(self._view, lambda view: all(has(view, each) for each in changed))
        return TopicsResult(outcomes)

    # Topics

    def create_topics(self, request: CreateTopicsRequest) -> TopicsResult:
        topics = request.topics
        return self._as_controller(
            [each.name for each in topics],
            lambda control, at: self._create(control, topics[at], is_trial=request.validate_only),
            _has_topic,
        )

    def _create(self, control: Control, topic: NewTopic, *, is_trial: bool) -> TopicOutcome:
        view = self._view()
        defaults = self._directory.config.topic.to_properties()
        config = TopicConfig.from_properties({**defaults, **topic.settings})
        check_new_topic_name(topic.name)
        if topic.name in view.topics:
            raise TopicExistsError(f"topic {topic.name!r} exists")
        _check_clash(topic.name, view.topics)
        if topic.name in _OF_COORDINATORS:
            return self._create_internal(control, view, topic.name, is_trial=is_trial)
        missing = self._missing_nodes(view, topic)
        if missing is not None:
            return TopicOutcome(topic.name, ErrorCode.INVALID_REPLICATION_FACTOR, missing)
        replicas = self._placed(view, topic)
        if not is_trial:
            self.ensure_coordinators(control, view)
        topic_id = None
        if not is_trial:
            self._claim(topic.name)
            states = _led(replicas, view.registrations, config.min_insync_replicas)
            topic_id = control.create_topic(topic.name, states, config=dict(topic.settings))
        return TopicOutcome(
            topic.name,
            ErrorCode.NONE,
            topic_id=topic_id,
            partition_count=len(replicas),
            replication_factor=len(replicas[0]),
            settings=described(topic.settings, settings_of(config)),
        )

    def _claim(self, name: str) -> None:
        """Of two topics whose names clash only one is made, however quickly they follow each other: no node
        could hold the other.

        Raises:
            InvalidTopicError: the name clashes with one that was claimed.
        """
        with self._lock:
            now, known = time.monotonic(), self._view().topics
            self._coming = {each: until for each, until in self._coming.items() if until > now}
            _check_clash(name, [*known, *self._coming])
            self._coming[name] = now + _COMING_SECONDS

    def _delete(self, control: Control, name: str) -> None:
        control.delete_topic(name)
        with self._lock:
            self._coming.pop(name, None)

    def _create_internal(self, control: Control, view: View, name: str, *, is_trial: bool) -> TopicOutcome:
        """As the cluster makes it, whatever is asked for: somebody wants to join a group, say, before there
        is a topic. Not with few replicas: clients may be faster than the nodes of a new cluster."""
        wanted, living = self._replication_factor or _MOST_BY_ITSELF, len(_racks(view))
        if living < wanted and not view.topics:
            return TopicOutcome(
                name,
                ErrorCode.INVALID_REPLICATION_FACTOR,
                f"topic {name!r} is made with the first topic, or when {wanted} nodes live; {living} do",
            )
        if not is_trial:
            self.ensure_coordinators(control, view)
        return TopicOutcome(name, ErrorCode.NONE)

    def ensure_coordinators(self, control: Control, view: View) -> None:
        """Who has topics has groups, transactions and queues: their topics are made with the first one."""
        for name, is_compacted in _OF_COORDINATORS.items():
            if name not in view.topics:
                self._make_internal(control, view, name, is_compacted=is_compacted)

    def _make_internal(self, control: Control, view: View, name: str, *, is_compacted: bool) -> None:
        replicas = place(_racks(view), 1, self._possible_factor(view), self._chance)
        config = internal_config(self._directory.config, is_compacted=is_compacted)
        states = _led(replicas, view.registrations, config.min_insync_replicas)
        own = own_settings(self._directory, config)
        with suppress(TopicExistsError):
            control.create_topic(name, states, config=own)

    def _possible_factor(self, view: View) -> int:
        """How many replicas a partition has, of which nobody has said it, or fewer if fewer nodes live."""
        return min(self._replication_factor or _MOST_BY_ITSELF, len(_racks(view)))

    def _missing_nodes(self, view: View, topic: NewTopic) -> str | None:
        """Why the topic cannot have as many replicas as the node was told to give it, as a broker of Kafka
        says it; None if it can. It would have fewer for good."""
        wanted, living = self._replication_factor, len(_racks(view))
        is_default = topic.assignments is None and topic.replication_factor == _NO_FACTOR
        if not is_default or wanted is None or wanted <= living:
            return None
        return (
            f"topic {topic.name!r} is to have {wanted} replicas, by the node's replication_factor, and "
            f"{living} nodes live; start more, or create it with a replication factor of its own"
        )

    def _placed(self, view: View, topic: NewTopic) -> Sequence[tuple[int, ...]]:
        if topic.assignments is not None:
            return _checked(view, topic.assignments)
        check_count(topic.partition_count)
        factor = topic.replication_factor
        if factor == _NO_FACTOR:
            factor = self._possible_factor(view)
        return place(_racks(view), topic.partition_count, factor, self._chance)

    def delete_topics(self, request: DeleteTopicsRequest) -> TopicsResult:
        names, before = request.names, self._view().topics
        return self._as_controller(
            names,
            lambda control, at: self._delete(control, names[at]),
            lambda view, gone: (
                gone.name not in view.topics or view.topics[gone.name] is not before.get(gone.name)
            ),
        )

    def create_partitions(self, request: CreatePartitionsRequest) -> TopicsResult:
        topics = request.topics
        counts = {each.name: each.partition_count for each in topics}
        return self._as_controller(
            [each.name for each in topics],
            lambda control, at: self._grow(control, topics[at], is_trial=request.validate_only),
            lambda view, grown: (
                request.validate_only or (grown.name, counts[grown.name] - 1) in view.partitions
            ),
        )

    def _grow(self, control: Control, wanted: MorePartitions, *, is_trial: bool) -> TopicOutcome:
        view = self._view()
        topic = self._topic(view, wanted.name)
        states = [state for (name, _), state in view.partitions.items() if name == wanted.name]
        more = check_more(wanted.name, len(states), wanted)
        if wanted.assignments is not None:
            replicas: Sequence[tuple[int, ...]] = _checked(view, wanted.assignments)
        else:
            factor = len(target(states[0])) if states else self._possible_factor(view)
            living = len(_racks(view))
            if factor > living:  # as Kafka: they would have fewer for good
                return TopicOutcome(
                    wanted.name,
                    ErrorCode.INVALID_REPLICATION_FACTOR,
                    f"topic {wanted.name!r} has {factor} replicas, and {living} nodes live; start "
                    "more, or say which nodes are to have the new partitions",
                )
            replicas = place(_racks(view), more, factor, self._chance, first_partition=len(states))
        if not is_trial:
            config = config_of(self._directory, topic)
            new = _led(replicas, view.registrations, config.min_insync_replicas)
            control.add_partitions(wanted.name, len(states), new)
        return TopicOutcome(wanted.name, ErrorCode.NONE)

    @staticmethod
    def _topic(view: View, name: str) -> Topic:
        topic = view.topics.get(name)
        if topic is None:
            raise UnknownTopicError(f"there is no topic {name!r}")
        return topic

    def alter_configs(self, request: AlterConfigsRequest) -> TopicsResult:
        changes = request.changes
        return self._as_controller(
            [each.name for each in changes],
            lambda control, at: self._configure(control, changes[at], is_trial=request.validate_only),
        )

    def _configure(self, control: Control, wanted: ConfigChange, *, is_trial: bool) -> None:
        given = {name: value for name, value in wanted.settings.items() if name not in _THROTTLED}
        wanted = wanted._replace(settings=given)
        defaults = self._directory.config.topic.to_properties()

        def change(before: Mapping[str, str]) -> dict[str, str]:
            known = known_settings(before)
            now = TopicConfig.from_properties({**defaults, **known})
            settings = changed_settings(defaults, now, wanted)
            TopicConfig.from_properties(settings)
            own = _given(known, wanted, settings)
            TopicConfig.from_properties({**defaults, **own})
            newer = {} if wanted.replaces else {name: before[name] for name in before.keys() - known.keys()}
            kept = {name: value for name, value in newer.items() if name not in wanted.settings}
            return {**kept, **own}  # what newer nodes have set stays, unless it is deleted

        if is_trial:
            change(self._topic(self._view(), wanted.name).config)
        else:  # the view may not have the last change yet
            control.configure_topic(wanted.name, change)


def _has_topic(view: View, made: TopicOutcome) -> bool:
    """Whether it has a topic that was made, with all its partitions."""
    if made.topic_id is None:  # not made: tried, or one of the cluster's own
        return True
    topic = view.topics.get(made.name)
    is_there = topic is not None and topic.topic_id == made.topic_id
    return is_there and (made.name, made.partition_count - 1) in view.partitions


def _given(before: Mapping[str, str], change: ConfigChange, after: Mapping[str, str]) -> dict[str, str]:
    """The settings that somebody has given a topic, after a change: also those that this node has by default.
    Others have other defaults, and so may this one some day."""
    own = {} if change.replaces else dict(before)
    own |= {name: after[name] for name in (*change.appended, *change.subtracted)}
    own |= {name: value for name, value in change.settings.items() if value is not None}
    removed = {name for name, value in change.settings.items() if value is None}
    return {name: value for name, value in own.items() if name not in removed}


def _at_coordinator(change: Callable[[Control, int], T], control: Control, number: int) -> T:
    """
    Raises:
        RetriableError: the coordinator's disk has no room, or its directory is gone: not this node's.
    """
    try:
        return change(control, number)
    except StorageError as error:
        raise RetriableError("the coordinator takes no changes now") from error


def _check_clash(name: str, others: Iterable[str]) -> None:
    """
    Raises:
        InvalidTopicError: another name differs only in ``.`` and ``_``, which Kafka treats as the same.
    """
    clash = next((each for each in others if each != name and has_name_clash(each, name)), None)
    if clash is not None:
        raise InvalidTopicError(f"topic {name!r} differs only in '.' and '_' from {clash!r}")


def _racks(view: View) -> dict[int, str | None]:
    return {node_id: each.rack for node_id, each in view.registrations.items() if not each.is_leaving}


def _led(
    replicas: Iterable[Sequence[int]], living: Mapping[int, Registration], min_isr: int
) -> list[PartitionState]:
    """New partitions, led from the start: clients ask for them as soon as they hear that there is a topic."""
    new = (
        PartitionState(tuple(each), None, 0, tuple(living[one].member for one in each if one in living))
        for each in replicas
    )
    return [elect(each, living, min_isr=min_isr).state for each in new]


def _checked(view: View, assignments: Sequence[Sequence[int]]) -> list[tuple[int, ...]]:
    """
    Raises:
        UsageError: a replica is named twice, or no living node has its number.
    """
    placed = []
    for each in assignments:
        if not each or len(set(each)) != len(each):
            raise UsageError(f"the replicas {list(each)} must be some nodes, each once")
        missing = [node_id for node_id in each if node_id not in view.living]
        if missing:
            raise UsageError(f"no living node has the number {missing[0]}")
        placed.append(tuple(each))
    return placed
