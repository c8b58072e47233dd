"""The catalogue of a store: which topics it has, with how many partitions and which settings.

Kafka keeps this in its cluster metadata; a log directory by itself has only partition directories. Ours is
one small JSON file, ``topics.json``, beside them. Kafka ignores it, and a directory that a broker wrote works
without it: the topics then come from the partition directories. They have default settings, except that
nothing is deleted: no record may disappear because of a default. An entry always states the deletion rules,
even if they are the default, so that another version of logstore, with another default, keeps and deletes the
same records.

A topic is created and deleted in steps that a crash may separate, so an entry has a state. ``creating``: some
partition directories may be missing, and the next open finishes or undoes it. ``deleting``: some may be left,
and the next open removes them. ``live``: a missing directory is damage; but if none is there, and one was
renamed to a deleted one, the topic was deleted while there was no room to store it.

A directory may hold only some partitions of a topic: the others are in the directories of other brokers. The
entry then lists the partitions ``held`` here and, until they are removed, those it is ``letting_go``. An
older logstore would take the others for damaged, and start empty ones if it was told to accept the loss. So a
catalogue with such an entry has version 2, which an older logstore refuses; every other catalogue has version
1 as before.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any

from logstore.config import TopicConfig
from logstore.errors import CorruptionError, LogstoreError, UnsupportedVersionError
from logstore.files import Files, read_small_file, write_small_file
from logstore.format.metadata import decode_base64_uuid, encode_base64_uuid
from logstore.format.names import check_topic_name
from logstore.partition.state.home import CATALOGUE_NAME

VERSION = 2
"""The highest known version: that of a catalogue with a topic that is held in part."""
_VERSION_OF_WHOLE_TOPICS = 1
MAX_CATALOGUE_BYTES = 64 * 1024 * 1024
MAX_PARTITIONS = 100_000
"""Per topic."""


class TopicState(Enum):
    CREATING = "creating"
    LIVE = "live"
    DELETING = "deleting"


@dataclass(frozen=True, kw_only=True, slots=True)
class TopicEntry:
    """One topic of the catalogue."""

    name: str
    topic_id: uuid.UUID
    partition_count: int
    config: TopicConfig
    state: TopicState = TopicState.LIVE
    has_implied_retention: bool = False
    """Whether an older logstore wrote the entry without a time limit. It meant its default of seven days."""
    held: tuple[int, ...] | None = None
    """The partitions that the directory holds, rising; None if it holds all."""
    letting_go: tuple[int, ...] = ()
    """Partitions that are no longer held, but whose directories may still exist under their names."""

    def in_state(self, state: TopicState) -> TopicEntry:
        return replace(self, state=state)

    @property
    def held_partitions(self) -> Sequence[int]:
        """The numbers of the partitions that the directory holds, rising."""
        return range(self.partition_count) if self.held is None else self.held

    def holds(self, number: int) -> bool:
        """Whether the directory holds the partition of this number."""
        return number in self.held_partitions

    def holding(self, numbers: Iterable[int], partition_count: int | None = None) -> TopicEntry:
        """The topic with exactly these partitions held; ``partition_count``, if given, is the new total."""
        count = self.partition_count if partition_count is None else partition_count
        held = tuple(sorted(set(numbers)))
        return replace(self, partition_count=count, held=None if len(held) == count else held)


_RETENTION = "retention.ms"
_WHAT_TO_DO = "Restore the file, or move it away: the topics are then there without their settings"


def read_catalogue(files: Files, directory: str) -> dict[str, TopicEntry] | None:
    """The topics by name, or None if there is no catalogue.

    Raises:
        CorruptionError: the file is damaged. The partitions are not touched; restore the file, or remove it
            to go on with the topics that the partition directories name.
        UnsupportedVersionError: a newer logstore wrote it.
    """
    path = f"{directory}/{CATALOGUE_NAME}"
    data = read_small_file(files, path, MAX_CATALOGUE_BYTES)
    if data is None:
        return None
    try:
        return decode_catalogue(data)
    except CorruptionError as error:
        raise CorruptionError(f"{error.reason}. {_WHAT_TO_DO}").located(path) from None
    except UnsupportedVersionError as error:
        from logstore.logdir.small_json import of_newer_version  # which is for files that few stores have

        raise of_newer_version(path, error) from None


class CatalogueWriter:
    """Writes the catalogue of a directory, which each change of a topic replaces. What is written of a topic
    is kept: with thousands of topics, encoding all of them again would take longer than the change itself."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._path = f"{directory}/{CATALOGUE_NAME}"
        self._written: dict[str, tuple[TopicEntry, str]] = {}

    def write(self, topics: Iterable[TopicEntry]) -> None:
        """Replace the catalogue, durably and atomically."""
        self._written = {topic.name: (topic, self._encoded(topic)) for topic in topics}
        write_small_file(self._files, self._path, _joined(self._written))

    def _encoded(self, topic: TopicEntry) -> str:
        written, text = self._written.get(topic.name, (None, ""))
        return text if written is topic else _encode_entry(topic)


def encode_catalogue(topics: Iterable[TopicEntry]) -> bytes:
    return _joined({topic.name: (topic, _encode_entry(topic)) for topic in topics})


def _joined(encoded: Mapping[str, tuple[TopicEntry, str]]) -> bytes:
    """The catalogue of topics, each with its part of the file: what ``json.dumps(indent=1, sort_keys=True)``
    makes of them."""
    is_in_part = any(topic.held is not None for topic, _ in encoded.values())
    entries = ",\n".join(encoded[name][1] for name in sorted(encoded))
    topics = f"{{\n{entries}\n }}" if entries else "{}"
    version = VERSION if is_in_part else _VERSION_OF_WHOLE_TOPICS
    return f'{{\n "topics": {topics},\n "version": {version}\n}}\n'.encode()


def _encode_entry(topic: TopicEntry) -> str:
    import json  # here and below: only programs that open a store need it

    described = {
        "id": encode_base64_uuid(topic.topic_id),
        "partitions": topic.partition_count,
        "config": _deletion_rules(topic.config) | topic.config.to_properties(),
        "state": topic.state.value,
    } | _parts(topic)
    text = json.dumps({topic.name: described}, indent=1, sort_keys=True)
    return " " + text.removeprefix("{\n").removesuffix("\n}").replace("\n", "\n ")


def _parts(topic: TopicEntry) -> dict[str, list[int]]:
    """The fields of an entry for a topic that is held in part."""
    if topic.held is None:
        return {}
    letting_go = {"letting_go": list(topic.letting_go)} if topic.letting_go else {}
    return {"held": list(topic.held), **letting_go}


def _deletion_rules(config: TopicConfig) -> dict[str, str]:
    return {
        "cleanup.policy": config.cleanup_policy,
        _RETENTION: str(config.retention_ms),
        "retention.bytes": str(config.retention_bytes),
    }


def decode_catalogue(data: bytes) -> dict[str, TopicEntry]:
    """
    Raises:
        CorruptionError: not JSON, or not of the form that :func:`encode_catalogue` writes; names the topic.
        UnsupportedVersionError: a newer logstore wrote it.
    """
    import json

    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptionError(f"is not JSON: {error}") from None
    version = _field(content, "version", int, "the catalogue")
    if version > VERSION:
        raise UnsupportedVersionError(f"{CATALOGUE_NAME} has version {version}; only {VERSION} is known")
    topics = _field(content, "topics", dict, "the catalogue")
    return {name: _decode_entry(name, described) for name, described in topics.items()}


def _decode_entry(name: str, described: Any) -> TopicEntry:
    where = f"topic {name!r}"
    partition_count = _field(described, "partitions", int, where)
    if not 1 <= partition_count <= MAX_PARTITIONS:
        raise CorruptionError(f"{where} has {partition_count} partitions")
    held = _numbers(described, "held", partition_count, where)
    letting_go = _numbers(described, "letting_go", partition_count, where)
    if held == () or (letting_go and (held is None or not set(held).isdisjoint(letting_go))):
        raise CorruptionError(f"{where} holds no partition, or one that it lets go")
    properties = _field(described, "config", dict, where)
    for key in properties:
        _field(properties, key, str, where)
    try:
        check_topic_name(name)
        config = TopicConfig.from_properties(properties)
        entry = TopicEntry(
            name=name,
            topic_id=decode_base64_uuid(_field(described, "id", str, where)),
            partition_count=partition_count,
            config=config,
            state=TopicState(_field(described, "state", str, where)),
            has_implied_retention=_RETENTION not in properties and config.deletes,
            letting_go=letting_go or (),
        )
    except (LogstoreError, ValueError, AttributeError) as error:
        if unknown := sorted(properties.keys() - TopicConfig.setting_names()):
            raise CorruptionError(
                f"{where}: unknown setting {', '.join(map(repr, unknown))}. If a newer logstore wrote it, "
                "open the store with that"
            ) from None
        raise CorruptionError(f"{where}: {error}") from None
    return entry if held is None else entry.holding(held)


def _numbers(
    described: Mapping[str, Any], name: str, partition_count: int, where: str
) -> tuple[int, ...] | None:
    """The partition numbers of a list, or None if there is no such list."""
    if name not in described:
        return None
    numbers = _field(described, name, list, where)
    if not all(type(number) is int and 0 <= number < partition_count for number in numbers):
        raise CorruptionError(f"{where} has no {name} of partition numbers below {partition_count}")
    if len(set(numbers)) < len(numbers):
        raise CorruptionError(f"{where} has a partition in {name} twice")
    return tuple(sorted(numbers))


def _field(content: Any, name: str, kind: type, where: str) -> Any:
    value = content.get(name) if isinstance(content, Mapping) else None
    if not isinstance(value, kind) or isinstance(value, bool):
        raise CorruptionError(f"{where} has no {name} of type {kind.__name__}")
    return value
