"""What the commits topic says about each sink: its last batch, and whether that is done.

It is a compacted topic with one partition in the same store. The key of a record is the sink's id; the value
is JSON. The last record of a sink counts::

    {"version": 1, "state": "prepared", "batch": 7, "files": [...], "places": [...]}
    {"version": 1, "state": "done", "batch": 7, "at_ms": ..., "is_job": false, "records": 120}

``prepared`` is the point of no return: from then on the batch consists of these files, and is appended after
these places of the logs. Does not know how that is done.
"""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from logstore.broker.records.looking_up import INTERNAL_TOPICS
from logstore.clock import Clock
from logstore.config import TopicConfig
from logstore.errors import CorruptionError, UnsupportedVersionError
from logstore.model import Isolation
from logstore.partition.log import Log
from logstore.spark.staging import StagedFile, StagedPart, Target
from logstore.store import Store

COMMITS_TOPIC: Final = "__spark_commits"
RESERVED_TOPICS: Final = INTERNAL_TOPICS | {COMMITS_TOPIC}
"""Read only if they are named, and not written; Kafka does the same with the internal ones."""
VERSION: Final = 1
SEQUENCE_COUNT: Final = 2**31
"""How many sequences a producer has before they begin again at 0."""
COMPACT_ABOVE_BYTES: Final = 1024 * 1024
"""Each commit reads the topic: this size takes about 2 ms to read, and about 20 ms to compact."""
FORGET_JOBS_MS: Final = 7 * 24 * 3600 * 1000
"""How long a batch job's id is remembered. A stream's id is remembered forever."""

_CONFIG = TopicConfig(
    cleanup_policy="compact", max_message_bytes=64 * 1024 * 1024, segment_bytes=128 * 1024 * 1024
)


class Place(NamedTuple):
    """Where a batch, or the rest of one, is appended in one log."""

    target: Target
    end_offset: int
    """The log's durable end when the batch was prepared. No record of the batch is below it."""
    sequence: int
    """The sequence of the batch's first record."""
    record_count: int

    def behind(self, record_count: int) -> Place:
        """The place of the rest of the batch after ``record_count`` records."""
        sequence = (self.sequence + record_count) % SEQUENCE_COUNT
        return Place(self.target, self.end_offset + record_count, sequence, self.record_count - record_count)


class Prepared(NamedTuple):
    """A batch that will be committed, and may be in the logs in part."""

    sink: str
    batch_id: int
    is_job: bool
    files: tuple[StagedFile, ...]
    places: tuple[Place, ...]


class Done(NamedTuple):
    """A batch that is completely in the logs."""

    sink: str
    batch_id: int
    is_job: bool
    at_ms: int
    record_count: int | None = None
    """None if that is not known."""


class Ledger:
    """The commits topic of a store that is open for writing or reading."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.states: dict[str, Prepared | Done] = {}
        """The last state of each sink."""
        self._log: Log | None = None
        """None while there is no commits topic."""
        topic = store.get(COMMITS_TOPIC)
        if topic is not None:
            self._log = topic[0]
            for record in self._log.read(isolation=Isolation.LOG_END):
                sink = bytes(record.key or b"").decode()
                if record.value is None:
                    self.states.pop(sink, None)
                else:
                    self.states[sink] = _decode(sink, bytes(record.value), record.offset)

    def ensure_topic(self) -> Log:
        """The topic's log. Creates the topic if it does not exist, and sets its settings again if they were
        lost."""
        if self._log is None:
            self._log = self._store.create_topic(COMMITS_TOPIC, config=_CONFIG)[0]
        elif not self._log.config.compacts:
            self._store[COMMITS_TOPIC].configure(_CONFIG)
        return self._log

    def prepared(self) -> list[Prepared]:
        """The batches that must still be finished."""
        return [state for state in self.states.values() if isinstance(state, Prepared)]

    def staged_names(self) -> set[str]:
        """The files that these batches need."""
        return {staged.name for state in self.prepared() for staged in state.files}

    def note(self, state: Prepared | Done) -> None:
        """Append a sink's new state, durably.

        Raises:
            StorageError: it failed; the state may be on disk nevertheless.
        """
        log = self._log or self.ensure_topic()
        log.extend([(state.sink.encode(), _encode(state))], flush=True)
        self.states[state.sink] = state

    def forget(self, sink: str) -> None:
        """Append a tombstone for a sink."""
        if self._log is not None and self.states.pop(sink, None) is not None:
            self._log.extend([(sink.encode(), None)], flush=True)

    def tidy(self, clock: Clock) -> None:
        """Forget old jobs and compact the topic, if it has grown."""
        log = self._log
        if log is None or log.written_bytes < COMPACT_ABOVE_BYTES:
            return
        forgotten_ms = clock.now_ms() - FORGET_JOBS_MS
        for state in list(self.states.values()):
            if isinstance(state, Done) and state.is_job and state.at_ms < forgotten_ms:
                self.forget(state.sink)
        log.compact(now=True)


def _encode(state: Prepared | Done) -> bytes:
    value: dict[str, Any] = {"version": VERSION, "batch": state.batch_id, "is_job": state.is_job}
    if isinstance(state, Done):
        value |= {"state": "done", "at_ms": state.at_ms}
        if state.record_count is not None:
            value["records"] = state.record_count
    else:
        numbers = {place.target: number for number, place in enumerate(state.places)}
        value |= {
            "state": "prepared",
            "places": [[*place.target, *place[1:]] for place in state.places],
            "files": [
                [*staged[:3], [[numbers[part.target], *part[1:]] for part in staged.parts]]
                for staged in state.files
            ],
        }
    return json.dumps(value, separators=(",", ":")).encode()


def _decode(sink: str, encoded: bytes, offset: int) -> Prepared | Done:
    try:
        value = json.loads(encoded)
        if value["version"] != VERSION:
            raise UnsupportedVersionError(
                f"{COMMITS_TOPIC} has a record of version {value['version']} at offset {offset}; "
                f"this logstore knows only version {VERSION}"
            )
        if value["state"] == "done":
            return Done(sink, value["batch"], value["is_job"], value["at_ms"], value.get("records"))
        places = tuple([Place(Target(*place[:3]), *place[3:]) for place in value["places"]])
        files = [
            StagedFile(
                name, size, crc, tuple([StagedPart(places[part[0]].target, *part[1:]) for part in parts])
            )
            for name, size, crc, parts in value["files"]
        ]
        return Prepared(sink, value["batch"], value["is_job"], tuple(files), places)
    except (ValueError, LookupError, TypeError) as error:
        raise CorruptionError(
            f"{COMMITS_TOPIC} has a record that no commit wrote: {error!r}", base_offset=offset
        ) from None
