"""Makes the view of a cluster from the texts of a tree, as they change.

A topic is there when its marker below ``/logstore/topics`` is, which is written last and removed first. A
text that cannot be read is logged, and counts as missing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from logstore.errors import CorruptionError
from logstore.replica.coordination import layout
from logstore.replica.coordination.interface import (
    TEXTS,
    ControllerSeat,
    LivingNode,
    Text,
    Topic,
    TopicPartition,
    View,
    ViewChange,
)
from logstore.replica.coordination.tree import Changed, Stored
from logstore.replica.rules.partition_state import PartitionState
from logstore.warning import warn

EMPTY = View({}, None, {}, {})

_T = TypeVar("_T")


class ViewMaker:
    """One thread at a time changes it; ``view`` may be looked at by any."""

    def __init__(self) -> None:
        self.view = EMPTY
        self._texts: dict[str, Stored] = {}

    def apply(self, changed: Changed) -> ViewChange:
        before = self.view
        if not changed:
            return ViewChange(before, False, False, frozenset(), frozenset(), frozenset())
        ended = self._ended(changed)
        for path, stored in changed.items():
            if stored is None:
                self._texts.pop(path, None)
            else:
                self._texts[path] = stored
        living = self._living(changed)
        controller = self._controller() if layout.CONTROLLER in changed else before.controller
        names = self._names_of(changed) | ended
        topics = self._topics(names)
        partitions, changed_partitions = self._partitions(changed, names, topics)
        texts = self._shared_texts(changed)
        self.view = View(living, controller, topics, partitions, self._groups(changed), texts)
        return ViewChange(
            self.view,
            living != before.living,
            controller != before.controller,
            frozenset(name for name in names if topics.get(name) != before.topics.get(name)),
            frozenset(changed_partitions),
            frozenset(name for name in TEXTS if texts.get(name) != before.texts.get(name)),
        )

    def all_of_it(self) -> ViewChange:
        """As for somebody who knows nothing yet."""
        view = self.view
        texts = frozenset(view.texts)
        return ViewChange(view, True, True, frozenset(view.topics), frozenset(view.partitions), texts)

    def _living(self, changed: Changed) -> dict[int, LivingNode]:
        living = dict(self.view.living)
        for path, stored in changed.items():
            folder, _, name = path.rpartition("/")
            if folder != layout.IDS or not name.isdecimal():
                continue
            found = _readable(layout.decode_registration, path, None if stored is None else stored.data)
            node_id = int(name)
            if found is None:
                living.pop(node_id, None)
            else:
                living[node_id] = found.node
        return living

    def _groups(self, changed: Changed) -> Mapping[str, Mapping[str, str]]:
        own = {path: name for path in changed if (name := layout.group_of(path)) is not None}
        if not own:
            return self.view.groups
        groups = dict(self.view.groups)
        for path, name in own.items():
            stored = changed[path]
            settings = _readable(layout.decode_config, path, None if stored is None else stored.data)
            if settings:
                groups[name] = settings
            else:
                groups.pop(name, None)
        return groups

    def _shared_texts(self, changed: Changed) -> Mapping[str, Text]:
        paths = layout.TEXT_PATHS.keys() & changed.keys()
        if not paths:
            return self.view.texts
        texts = dict(self.view.texts)
        for path in paths:
            stored = changed[path]
            if stored is None:
                texts.pop(layout.TEXT_PATHS[path], None)
            else:
                texts[layout.TEXT_PATHS[path]] = Text(*stored)
        return texts

    def _controller(self) -> ControllerSeat | None:
        stored = self._texts.get(layout.CONTROLLER)
        return _readable(
            lambda _, data: layout.decode_controller(data), layout.CONTROLLER, stored and stored.data
        )

    def _names_of(self, changed: Changed) -> set[str]:
        """The topics of which anything but a partition's state has changed."""
        names = set()
        for path, stored in changed.items():
            folder, _, name = path.rpartition("/")
            if folder in (layout.TOPICS, layout.CONFIGS):
                names.add(name)
            elif folder == layout.TOPIC_IDS and stored is not None:
                names.add(stored.data)
        return names

    def _ended(self, changed: Changed) -> set[str]:
        """The topics whose marker goes. It says whose it is; if it is damaged, it may be anybody's."""
        markers = [
            self._texts[path]
            for path, stored in changed.items()
            if stored is None and path.startswith(layout.TOPIC_IDS) and path in self._texts
        ]
        names, known = {each.data for each in markers}, self.view.topics
        return names if names <= known.keys() else names | known.keys()

    def _topics(self, names: set[str]) -> dict[str, Topic]:
        topics = dict(self.view.topics)
        for name in names:
            topic = self._topic(name)
            if topic is None:
                topics.pop(name, None)
            else:
                topics[name] = topic
        return topics

    def _topic(self, name: str) -> Topic | None:
        path = layout.topic_path(name)
        described, config = self._texts.get(path), self._texts.get(layout.config_path(name))
        topic_id = _readable(layout.decode_topic_id, path, described and described.data)
        if topic_id is None or layout.topic_id_path(topic_id) not in self._texts:
            return None
        settings = _readable(layout.decode_config, layout.config_path(name), config and config.data)
        return Topic(topic_id, settings or {})

    def _partitions(
        self, changed: Changed, names: set[str], topics: Mapping[str, Topic]
    ) -> tuple[dict[TopicPartition, PartitionState], set[TopicPartition]]:
        """All of them, and those that have changed."""
        before = self.view.partitions
        again = {partition for path in changed if (partition := layout.partition_of(path)) is not None}
        again.update(partition for partition in before if partition[0] in names)
        for name in names:
            described = self._texts.get(layout.topic_path(name))
            count = _readable(layout.partition_count, layout.topic_path(name), described and described.data)
            again.update((name, at) for at in range(count or 0))
        partitions = dict(before)
        for partition in again:
            state = self._state(partition) if partition[0] in topics else None
            if state is None:
                partitions.pop(partition, None)
            else:
                partitions[partition] = state
        return partitions, {each for each in again if partitions.get(each) != before.get(each)}

    def _state(self, partition: TopicPartition) -> PartitionState | None:
        path = layout.state_path(partition)
        stored = self._texts.get(path)
        if stored is None:
            return None
        return _readable(lambda path, _: layout.decode_state(path, stored), path, stored.data)


def _readable(decode: Callable[[str, str], _T], path: str, data: str | None) -> _T | None:
    if data is None:
        return None
    try:
        return decode(path, data)
    except CorruptionError as error:
        warn("what the coordinator keeps is damaged: %s", error)
        return None
