"""What this node is to hold, by what the coordinator says, held in its store."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from uuid import UUID

from logstore.broker.requests import ConfigSource, Setting
from logstore.broker.settings import settings_of
from logstore.config import TopicConfig
from logstore.errors import LogstoreError, UnknownTopicError
from logstore.logdir.catalogue import TopicEntry, TopicState
from logstore.logdir.directory import LogDirectory
from logstore.logdir.topics import NewTopic
from logstore.model import Role, TopicPartition
from logstore.replica.coordination.interface import Coordinator, Topic, View
from logstore.replica.rules.partition_state import PartitionState
from logstore.warning import inform, warn


def config_of(directory: LogDirectory, topic: Topic) -> TopicConfig:
    """The settings of a topic: those of the store where the topic has none of its own. Those that this
    version does not know are left out: newer nodes may be in the cluster, and a topic is not to stand still.

    Raises:
        InvalidConfigError: one is wrong.
    """
    return TopicConfig.from_properties(
        {**directory.config.topic.to_properties(), **known_settings(topic.config)}
    )


def known_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Those that this version knows."""
    known = TopicConfig.setting_names()
    return {name: value for name, value in settings.items() if name in known}


def own_settings(directory: LogDirectory, config: TopicConfig) -> dict[str, str]:
    """What the cluster keeps of the settings of a topic that one store has made: those that differ from every
    store's, and those that this store gives topics by default, which other nodes need not have."""
    names = config.to_properties().keys() | directory.config.topic.to_properties().keys()
    return {each.name: each.value for each in settings_of(config) if each.name in names}


def described(own: Mapping[str, str], settings: Iterable[Setting]) -> tuple[Setting, ...]:
    """The settings of a topic with where they come from: those that somebody has given it are its own, also
    if they are what every store has; the others are the node's."""

    def with_source(setting: Setting) -> Setting:
        if setting.name in own:
            return setting._replace(is_default=False)
        return setting if setting.is_default else setting._replace(source=ConfigSource.STATIC_BROKER)

    return tuple([with_source(each) for each in settings])


def live_entry(directory: LogDirectory, name: str) -> TopicEntry | None:
    """A topic that the directory has: none that a full disk has kept from being made, or undone."""
    entry = directory.catalogue.get(name)
    return entry if entry is not None and entry.state is TopicState.LIVE else None


class Assignment:
    """The topics of the cluster in one directory. Used by one thread."""

    def __init__(self, directory: LogDirectory, node_id: int, coordinator: Coordinator) -> None:
        self._directory = directory
        self._node_id = node_id
        self._coordinator = coordinator
        self._ids: dict[str, UUID] = {}
        """Of the cluster's topics, as it was told last."""
        self._troubles: dict[str, str] = {}
        """Of the topics with which not all was done, why."""
        self._unknown: dict[str, list[str]] = {}
        """Settings of topics that were told of as unknown."""
        self._leaving: set[TopicPartition] = set()
        """What could not be deleted when it was let go."""

    @property
    def undone(self) -> frozenset[str]:
        """The topics to :meth:`apply` again: the disk was full, say, when they came."""
        return frozenset(self._troubles)

    def remade(self, view: View, names: Iterable[str]) -> frozenset[str]:
        """Those of the topics that were told of as others before: deleted, and made again."""
        return frozenset(
            name
            for name in names
            if (topic := view.topics.get(name)) is not None
            and self._ids.get(name, topic.topic_id) != topic.topic_id
        )

    def note_topics(self, view: View, names: Iterable[str]) -> list[str]:
        """Those of the topics of which somebody has deleted what was known by the name."""
        deleted = []
        for name in names:
            topic, known = view.topics.get(name), self._ids.pop(name, None)
            if topic is not None:
                self._ids[name] = topic.topic_id
            if known is not None and (topic is None or topic.topic_id != known) and self._was_deleted(known):
                deleted.append(name)
        return deleted

    def _was_deleted(self, topic_id: UUID) -> bool:
        try:
            return self._coordinator.was_deleted(topic_id)
        except LogstoreError:
            return False  # nobody can say

    def coming(self, view: View, names: Iterable[str]) -> list[str]:
        """Those of the topics that are to be made here, in the order in which :meth:`apply` makes them."""
        return sorted(name for name in names if name in view.topics and self._entry(name) is None)

    def apply(self, view: View, names: frozenset[str]) -> None:
        """Hold what these topics have here, and no longer what they had. What cannot be done is told once,
        and is :attr:`undone`."""
        numbers = _numbers_by_topic(view, names)
        new: list[NewTopic] = []

        def change(name: str) -> bool:
            topic = view.topics.get(name)
            if topic is None:
                self._drop(name)
                return True
            wanted = self._hold(name, topic, view, numbers.get(name, []))
            if wanted is not None:
                new.append(wanted)
            return wanted is None

        for name in sorted(names):
            self._note(name, partial(change, name))
        self._create(new)

    def _create(self, topics: Sequence[NewTopic]) -> None:
        """What is stored for many is stored once: of hundreds that come at once, one after the other would
        keep the last from its first record for half a minute. What is refused for others is tried alone."""
        made = self._directory.create_topics(topics, Role.FOLLOWER) if topics else {}
        for topic in topics:
            if isinstance(made[topic.name], LogstoreError):
                self._note(topic.name, partial(self._create_alone, topic))
            else:
                self._troubles.pop(topic.name, None)

    def _create_alone(self, topic: NewTopic) -> bool:
        made = self._directory.create_topics([topic], Role.FOLLOWER)[topic.name]
        if isinstance(made, LogstoreError):
            raise made
        return True

    def _note(self, name: str, change: Callable[[], bool]) -> None:
        """``change`` tells whether nothing is left to do."""
        is_done = False
        try:
            is_done = change()
        except LogstoreError as error:
            if self._troubles.get(name) != str(error):
                warn("topic %r cannot be held here: %s", name, error)
            self._troubles[name] = str(error)
        if is_done:
            self._troubles.pop(name, None)

    def drop_deleted(self, view: View) -> list[str]:
        """Drop what was deleted while the node was away. Returns what the cluster does not know."""
        strays = [name for name in self._directory.topic_names() if name not in view.topics]
        self.apply(view, frozenset(strays))
        return [name for name in strays if self._entry(name) is not None]

    def _drop(self, name: str) -> None:
        """Delete the topic here if somebody has deleted it in the cluster."""
        entry = self._entry(name)
        if entry is not None and self._coordinator.was_deleted(entry.topic_id):
            self._directory.delete_topic(name)

    def _hold(self, name: str, topic: Topic, view: View, numbers: list[int]) -> NewTopic | None:
        """Returns the topic if it is to be created."""
        mine = [each for each in numbers if self._node_id in view.partitions[name, each].replicas]
        entry = self._entry(name)
        if entry is not None and entry.topic_id != topic.topic_id:
            self._drop(name)  # it was made again
            entry = self._entry(name)
            if entry is not None:
                raise UnknownTopicError(
                    f"the directory has another topic of this name, with id {entry.topic_id}; the cluster's "
                    f"has {topic.topic_id}. Stop this node, move its directory away, and start it with an "
                    "empty one: it copies from the others what they have"
                )
        if mine:
            self._tell_unknown(name, topic)
        count = max(numbers, default=-1) + 1
        if entry is None:
            if not mine:
                return None
            config = config_of(self._directory, topic)
            return NewTopic(
                name=name, partition_count=count, config=config, held=mine, topic_id=topic.topic_id
            )
        if entry.partition_count < count:
            new = [each for each in mine if each >= entry.partition_count]
            entry = self._directory.add_partitions(name, count, held=new, role=Role.FOLLOWER)
        missing = [each for each in mine if not entry.holds(each)]
        if missing:
            self._directory.hold(name, missing, Role.FOLLOWER)
        config = config_of(self._directory, topic)
        if config != entry.config:
            self._directory.configure(name, config)
        return None

    def _tell_unknown(self, name: str, topic: Topic) -> None:
        """Warn once of each setting that has no effect on this node."""
        unknown = sorted(topic.config.keys() - TopicConfig.setting_names())
        if unknown and self._unknown.get(name) != unknown:
            warn(
                "topic %r has settings that this version of logstore does not know, and which have no effect "
                "on this node: %s. Update it",
                name,
                ", ".join(unknown),
            )
        self._unknown[name] = unknown

    def _entry(self, name: str) -> TopicEntry | None:
        return live_entry(self._directory, name)

    def let_go(self, partition: TopicPartition, view: View) -> None:
        """Other nodes have the partition now: somebody has asked for that. What cannot be done is told once,
        and tried again by :meth:`let_go_again`."""
        was_told = partition in self._leaving
        self._leaving.discard(partition)
        entry, topic = self._entry(partition.topic), view.topics.get(partition.topic)
        if entry is None or topic is None or not entry.holds(partition.partition):
            return
        try:
            if entry.topic_id == topic.topic_id and self._may_go(partition, view.partitions[partition]):
                inform("%s is on other nodes now, and is deleted here", partition)
                self._delete(partition, entry)
        except LogstoreError as error:
            if not was_told:
                warn("%s is on other nodes now, and cannot be deleted here: %s", partition, error)
            self._leaving.add(partition)

    def let_go_again(self, view: View) -> None:
        """Delete what could not be deleted when it was let go."""
        for partition in tuple(self._leaving):
            state = view.partitions.get(partition)
            if state is None or self._node_id in state.replicas:
                self._leaving.discard(partition)
            else:
                self.let_go(partition, view)

    def _may_go(self, partition: TopicPartition, state: PartitionState) -> bool:
        """Unless the node knows of later times than the coordinator."""
        epochs = self._directory.log(partition).epoch_entries
        if not epochs or epochs[-1].epoch <= state.leader_epoch:
            return True
        warn(
            "%s is on the nodes %s in leader epoch %d, and this one has records of epoch %d: they are kept. "
            "Has the coordinator lost what it had?",
            partition,
            list(state.replicas),
            state.leader_epoch,
            epochs[-1].epoch,
        )
        return False

    def _delete(self, partition: TopicPartition, entry: TopicEntry) -> None:
        if len(entry.held_partitions) == 1:
            self._directory.delete_topic(partition.topic)
        else:
            self._directory.let_go(*partition)


def _numbers_by_topic(view: View, names: frozenset[str]) -> dict[str, list[int]]:
    found: dict[str, list[int]] = {}
    for name, number in view.partitions:
        if name in names:
            found.setdefault(name, []).append(number)
    return {name: sorted(numbers) for name, numbers in found.items()}
