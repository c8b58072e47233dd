"""Changes of the cluster's topics, made by the controller.

Lock: ``ClusterTopics._lock`` guards the names of topics that are on their way into the view.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TypeVar
from uuid import UUID

from logstore.broker.administering import (
    changed_settings,
    check_assignments,
    check_count,
    check_more,
    outcome_of,
)
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
    LogstoreError,
    RetriableError,
    StorageError,
    TopicExistsError,
    UnknownTopicError,
    without_frames,
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
from logstore.replica.coordination.interface import NewTopic as CreatedTopic
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

    def _each(
        self,
        names: Sequence[str],
        change: Callable[[Control, int], TopicOutcome | object],
        has: Callable[[View, TopicOutcome], bool] = lambda view, done: True,
    ) -> TopicsResult:
        """Change one after the other. ``has``: whether a view has what was changed."""

        def change_all(control: Control) -> list[TopicOutcome]:
            return [
                outcome_of(name, partial(_at_coordinator, partial(change, control, number)))
                for number, name in enumerate(names)
            ]

        return self._as_controller(
            names, change_all, lambda view, done: done.error is not ErrorCode.NONE or has(view, done)
        )

    def _as_controller(
        self,
        names: Sequence[str],
        change: Callable[[Control], Sequence[TopicOutcome]],
        has: Callable[[View, TopicOutcome], bool],
    ) -> TopicsResult:
        """``has``: whether a view has what an outcome tells."""
        control = self._control()
        if control is None:
            why = "this node is not the controller; ask the one that metadata names"
            return TopicsResult(tuple(TopicOutcome(name, ErrorCode.NOT_CONTROLLER, why) for name in names))
        outcomes = change(control)
        await_view(self._view, lambda view: all(has(view, each) for each in outcomes))
        return TopicsResult(tuple(outcomes))

    # Topics

    def create_topics(self, request: CreateTopicsRequest) -> TopicsResult:
        names = [each.name for each in request.topics]
        return self._as_controller(names, lambda control: self._create_all(control, request), _has_topic)

    def _create_all(self, control: Control, request: CreateTopicsRequest) -> list[TopicOutcome]:
        """All that can be made are stored together: a change takes the coordinator some milliseconds, and
        each node much more."""
        view = self._view()
        outcomes: list[TopicOutcome] = []
        new: dict[int, CreatedTopic] = {}

        def plan(topic: NewTopic) -> TopicOutcome:
            config = self._config_of_new(view, topic)
            if topic.name in _OF_COORDINATORS:
                return self._create_internal(control, view, topic.name, is_trial=request.validate_only)
            missing = self._missing_nodes(view, topic)
            if missing is not None:
                return TopicOutcome(topic.name, ErrorCode.INVALID_REPLICATION_FACTOR, missing)
            replicas = self._placed(view, topic)
            if not request.validate_only:
                self._claim(topic.name)
                states = _led(replicas, view.registrations, config.min_insync_replicas)
                new[len(outcomes)] = CreatedTopic(topic.name, states, dict(topic.settings))
            return TopicOutcome(
                topic.name,
                ErrorCode.NONE,
                partition_count=len(replicas),
                replication_factor=len(replicas[0]),
                settings=described(
                    topic.settings, settings_of(config, for_new_topics=self._directory.config.topic)
                ),
            )

        for topic in request.topics:
            outcomes.append(outcome_of(topic.name, partial(_at_coordinator, partial(plan, topic))))
        made = self._make(control, view, list(new.values()))
        for at, found in zip(new, made, strict=True):
            told = partial(_with_id, outcomes[at], found)
            outcomes[at] = outcome_of(outcomes[at].name, partial(_at_coordinator, told))
        return outcomes

    def _config_of_new(self, view: View, topic: NewTopic) -> TopicConfig:
        """
        Raises:
            LogstoreError: there can be no such topic beside those that there are.
        """
        defaults = self._directory.config.topic.to_properties()
        config = TopicConfig.from_properties({**defaults, **topic.settings})
        check_new_topic_name(topic.name)
        if topic.name in view.topics:
            raise TopicExistsError(f"topic {topic.name!r} exists")
        _check_clash(topic.name, view.topics)
        return config

    def _make(
        self, control: Control, view: View, topics: Sequence[CreatedTopic]
    ) -> Sequence[UUID | LogstoreError]:
        try:
            if topics:
                self.ensure_coordinators(control, view)
        except LogstoreError as error:
            return [without_frames(error)] * len(topics)
        return control.create_topics(topics)

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
        new = [
            self._internal(view, name, is_compacted=is_compacted)
            for name, is_compacted in _OF_COORDINATORS.items()
            if name not in view.topics
        ]
        for made in control.create_topics(new) if new else ():
            if isinstance(made, LogstoreError) and not isinstance(made, TopicExistsError):
                raise made

    def _internal(self, view: View, name: str, *, is_compacted: bool) -> CreatedTopic:
        replicas = place(_racks(view), 1, self._possible_factor(view), self._chance)
        config = internal_config(self._directory.config, is_compacted=is_compacted)
        states = _led(replicas, view.registrations, config.min_insync_replicas)
        return CreatedTopic(name, states, own_settings(self._directory, config))

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
            check_assignments(topic.name, topic.assignments, view.living)
            return topic.assignments
        check_count(topic.partition_count)
        factor = topic.replication_factor
        if factor == _NO_FACTOR:
            factor = self._possible_factor(view)
        return place(_racks(view), topic.partition_count, factor, self._chance)

    def delete_topics(self, request: DeleteTopicsRequest) -> TopicsResult:
        names, before = request.names, self._view().topics
        return self._each(
            names,
            lambda control, at: self._delete(control, names[at]),
            lambda view, gone: _is_another(before.get(gone.name), view.topics.get(gone.name)),
        )

    def create_partitions(self, request: CreatePartitionsRequest) -> TopicsResult:
        topics = request.topics
        counts = {each.name: each.partition_count for each in topics}
        return self._each(
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
            check_assignments(wanted.name, wanted.assignments, view.living)
            replicas: Sequence[tuple[int, ...]] = wanted.assignments
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
        return self._each(
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
    """Whether it has a topic that was made, with all its partitions, or that another client has just made."""
    if made.error is ErrorCode.TOPIC_ALREADY_EXISTS:
        return made.name in view.topics
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


def _with_id(outcome: TopicOutcome, made: UUID | LogstoreError) -> TopicOutcome:
    if isinstance(made, LogstoreError):
        raise made
    return outcome._replace(topic_id=made)


def _at_coordinator(change: Callable[[], T]) -> T:
    """
    Raises:
        RetriableError: the coordinator's disk has no room, or its directory is gone: not this node's.
    """
    try:
        return change()
    except StorageError as error:
        raise RetriableError("the coordinator takes no changes now") from error


def _check_clash(name: str, others: Iterable[str]) -> None:
    """
    Raises:
        InvalidTopicError: another name differs only in ``.`` and ``_``, which Kafka treats as the same.
    """
    if "." not in name and "_" not in name:
        return  # no name is like it, however many there are
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


def _is_another(before: Topic | None, now: Topic | None) -> bool:
    """Whether a topic that was deleted is gone; somebody may have made another one by its name."""
    return now is None or before is None or now.topic_id != before.topic_id
