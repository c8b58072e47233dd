"""Reads what a broker's directory says about its cluster's topics: ids, partitions, replicas and settings.

A KRaft broker keeps a copy of the cluster's metadata log beside its topics, in ``__cluster_metadata-0``: the
newest snapshot (``<offset>-<epoch>.checkpoint``) and the log after it. Both are read, nothing is written. The
end of the log may be torn, or not committed by the cluster yet; neither happens with a broker that was
stopped properly. Damage is an error: starting the broker repairs what it can.
"""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from logstore.config import TopicConfig
from logstore.errors import CorruptionError
from logstore.files import Files
from logstore.format.batch import decode_batch
from logstore.format.cluster_records import (
    ABORT_TRANSACTION_RECORD,
    BEGIN_TRANSACTION_RECORD,
    CONFIG_RECORD,
    END_TRANSACTION_RECORD,
    PARTITION_CHANGE_RECORD,
    PARTITION_RECORD,
    REMOVE_TOPIC_RECORD,
    TOPIC_RECORD,
    TOPIC_RESOURCE,
    ClusterRecord,
    decode_cluster_record,
)
from logstore.format.names import LOG_SUFFIX, segment_file_name
from logstore.partition.recovery.leftovers import list_segment_files, segment_bases
from logstore.partition.segments.walk import PIECE_BYTES, Walk

_SNAPSHOT = re.compile(r"([0-9]{20})-([0-9]{10})\.checkpoint")
_SNAPSHOT_SUFFIX = ".checkpoint"
_NO_LEADER_CHANGE = -2


def broker_settings(told: ClusterTopic | None, base: TopicConfig) -> tuple[TopicConfig, list[str]]:
    """A topic's settings: ``base``, changed by the settings made for the topic in its broker. Also the names
    of settings that logstore does not have.

    Raises:
        InvalidConfigError: the values contradict each other, or are out of range here.
    """
    settings = told.settings if told is not None else {}
    known = {key: value for key, value in settings.items() if key in TopicConfig.setting_names()}
    config = TopicConfig.from_properties({**base.to_properties(), **known})
    return config, sorted(set(settings) - set(known))


@dataclass(slots=True)
class ClusterTopic:
    """A topic according to the cluster's metadata."""

    name: str
    topic_id: uuid.UUID
    replicas: dict[int, tuple[int, ...]] = field(default_factory=dict)
    """The ids of the nodes that have a replica, by partition number."""
    leader_epochs: dict[int, int] = field(default_factory=dict)
    settings: dict[str, str] = field(default_factory=dict)
    """Settings made for the topic itself, in Kafka's spelling; without the broker's defaults."""

    @property
    def partition_count(self) -> int:
        return len(self.replicas)


def read_cluster_topics(files: Files, directory: str) -> dict[str, ClusterTopic] | None:
    """The topics by name from the metadata log in ``directory``; None if there is no such log.

    Cost: reads the newest snapshot and the log after it; both are bounded by the broker's
    ``metadata.log.max.record.bytes.between.snapshots`` (20 MiB).

    Raises:
        CorruptionError: a snapshot is damaged, or a record does not decode; names the file.
        UnsupportedVersionError: a newer Kafka wrote records about topics.
    """
    if not files.is_directory(directory):
        return None
    state = _ClusterState()
    start = 0
    snapshot = _newest_snapshot(files, directory)
    if snapshot is not None:
        start, path = snapshot
        _replay(state, files, path, 0, is_snapshot=True)
    bases = segment_bases(list_segment_files(files, directory))
    if snapshot is None and (not bases or bases[0] > 0):
        raise CorruptionError("begins after offset 0, and there is no snapshot", path=directory)
    for number, base in enumerate(bases):
        if number + 1 < len(bases) and bases[number + 1] <= start:
            continue
        path = f"{directory}/{segment_file_name(base, LOG_SUFFIX)}"
        _replay(state, files, path, start, is_snapshot=False)
    return state.topics()


class WatchedCluster:
    """The topics of a metadata log, read again when its files have changed."""

    def __init__(self, files: Files, directory: str) -> None:
        self._files = files
        self._directory = directory
        self._read: tuple[object, dict[str, ClusterTopic]] | None = None
        """Replaced in one assignment."""

    def current(self) -> dict[str, ClusterTopic]:
        """The topics by name; none if there is no such log.

        Raises the errors of :func:`read_cluster_topics`.
        """
        if not self._files.is_directory(self._directory):
            return {}
        entries = self._files.list_directory(self._directory)
        names = sorted(each.name for each in entries if each.name.endswith((LOG_SUFFIX, _SNAPSHOT_SUFFIX)))
        stamps = [(name, self._files.stamp(f"{self._directory}/{name}")) for name in names]
        read = self._read
        if read is None or read[0] != stamps:
            read = self._read = stamps, read_cluster_topics(self._files, self._directory) or {}
        return read[1]


def _newest_snapshot(files: Files, directory: str) -> tuple[int, str] | None:
    """(end offset, path) of the newest complete snapshot."""
    found = [
        (int(match[1]), int(match[2]), entry.name)
        for entry in files.list_directory(directory)
        if (match := _SNAPSHOT.fullmatch(entry.name)) and not entry.is_directory
    ]
    if not found:
        return None
    end_offset, _, name = max(found)
    return end_offset, f"{directory}/{name}"


def _replay(state: _ClusterState, files: Files, path: str, start: int, *, is_snapshot: bool) -> None:
    try:
        for value in _values(files, path, start, is_snapshot=is_snapshot):
            record = decode_cluster_record(value)
            if record is not None:
                state.apply(record)
    except CorruptionError as error:
        raise error.located(path) from None


def _values(files: Files, path: str, start: int, *, is_snapshot: bool) -> Iterator[bytes]:
    """The values of the data records from offset ``start`` on. A log may end in the middle of a batch. A
    snapshot may not: it was complete when it got its name."""
    file = files.open(path)
    try:
        walk = Walk(file.read_at, 0, file.size_bytes(), check=True, piece_bytes=PIECE_BYTES)
        for piece in walk:
            for position, header in piece.batches:
                if header.is_control or header.last_offset < start:
                    continue
                for record in decode_batch(piece.buffer, position, header):
                    if record.value is not None and (is_snapshot or record.offset >= start):
                        yield record.value
        if walk.fault is not None:
            raise walk.fault
        if is_snapshot and walk.position < file.size_bytes():
            raise CorruptionError("ends early", position=walk.position)
    finally:
        file.close()


class _ClusterState:
    """The topics while records are applied. Records in a metadata transaction take effect when it ends."""

    def __init__(self) -> None:
        self._by_id: dict[uuid.UUID, ClusterTopic] = {}
        self._settings: dict[str, dict[str, str]] = {}
        self._pending: list[ClusterRecord] | None = None

    def topics(self) -> dict[str, ClusterTopic]:
        for topic in self._by_id.values():
            topic.settings = dict(self._settings.get(topic.name, {}))
        return {topic.name: topic for topic in self._by_id.values()}

    def apply(self, record: ClusterRecord) -> None:
        layout = record.layout
        if layout is BEGIN_TRANSACTION_RECORD:
            self._pending = []
        elif layout is ABORT_TRANSACTION_RECORD:
            self._pending = None
        elif layout is END_TRANSACTION_RECORD:
            pending, self._pending = self._pending or [], None
            for each in pending:
                self._apply_now(each)
        elif self._pending is not None:
            self._pending.append(record)
        else:
            self._apply_now(record)

    def _apply_now(self, record: ClusterRecord) -> None:
        layout, fields = record
        if layout is TOPIC_RECORD:
            topic_id = fields["topic_id"]
            self._by_id[topic_id] = ClusterTopic(fields["name"], topic_id)
        elif layout is PARTITION_RECORD:
            topic = self._topic(fields["topic_id"])
            topic.replicas[fields["partition"]] = tuple(fields["replicas"])
            topic.leader_epochs[fields["partition"]] = fields["leader_epoch"]
        elif layout is PARTITION_CHANGE_RECORD:
            self._change_partition(fields)
        elif layout is REMOVE_TOPIC_RECORD:
            gone = self._by_id.pop(fields["topic_id"], None)
            if gone is not None:
                self._settings.pop(gone.name, None)
        elif layout is CONFIG_RECORD and fields["resource_type"] == TOPIC_RESOURCE:
            settings = self._settings.setdefault(fields["resource_name"], {})
            if fields["value"] is None:
                settings.pop(fields["name"], None)
            else:
                settings[fields["name"]] = fields["value"]

    def _change_partition(self, fields: Mapping[str, Any]) -> None:
        topic, number = self._topic(fields["topic_id"]), fields["partition"]
        if number not in topic.replicas:
            raise CorruptionError(f"a change of partition {topic.name}-{number}, which was never created")
        if fields["replicas"] is not None:
            topic.replicas[number] = tuple(fields["replicas"])
        if fields["leader"] != _NO_LEADER_CHANGE:
            topic.leader_epochs[number] += 1

    def _topic(self, topic_id: uuid.UUID) -> ClusterTopic:
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise CorruptionError(f"a record about topic id {topic_id}, which was never created")
        return topic
