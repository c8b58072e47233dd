"""Staged files before they go into the logs: held against the rules, and given their places.

A large file with one target can become a segment of its log as it is: its batches get their places right in
the file, which then gets the segment's name. Nothing of that shows in a log yet, and for whoever reads the
file as a staged one nothing changes. Small files are for copying, or a log would be of too many segments.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from logstore.clock import Clock
from logstore.config import TopicConfig
from logstore.errors import LogstoreError, StorageError
from logstore.files import File, Files
from logstore.format.header import HEADER_BYTES, BatchHeader
from logstore.model import ProducerIdentity
from logstore.partition.encoding.adopting import check_adopted, place_adopted
from logstore.partition.log import Log
from logstore.spark.ledger import Place
from logstore.spark.staging import StagedBatch, StagedFile, Target, read_staged

MOVED_FROM_BYTES: Final = 8 * 1024 * 1024
"""A smaller file is copied in the time of the fsyncs that moving it takes."""
_SEGMENTS_FOR_ONE: Final = 64
"""Moving makes at most so many segments of what would fill one."""

_FIRST_PRODUCER_ID: Final = 2**62
"""Brokers count theirs from 0."""
NOT_OURS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
"""What refuses a file that another user made."""

Placed = dict[str, int]
"""The base offsets of files whose batches have their places, by the files' names."""


def producer_id_of(sink: str) -> int:
    """The id of the idempotent producer that a sink is in the logs."""
    number = int.from_bytes(hashlib.sha256(sink.encode()).digest()[:8])
    return _FIRST_PRODUCER_ID | number % _FIRST_PRODUCER_ID


def is_to_move(staged: StagedFile, config: TopicConfig) -> bool:
    """Whether a file becomes a segment of a topic of these settings, if the disk lets it. ``LogAppendTime``
    replaces what only the file has."""
    least_bytes = max(MOVED_FROM_BYTES, config.segment_bytes // _SEGMENTS_FOR_ONE)
    return (
        len(staged.parts) == 1
        and least_bytes <= staged.size_bytes <= config.segment_bytes
        and config.message_timestamp_type == "CreateTime"
    )


class Placing:
    """The staged files in a directory."""

    def __init__(self, files: Files, directory: str, clock: Clock) -> None:
        self._files = files
        self._directory = directory
        self._clock = clock

    def path_of(self, staged: StagedFile) -> str:
        return f"{self._directory}/{staged.name}"

    def read(self, staged: StagedFile, *, lets_go: bool = False) -> Iterator[list[StagedBatch]]:
        """:func:`read_staged`."""
        return read_staged(self._files, self._directory, staged, lets_go=lets_go)

    def check(self, staged: StagedFile, logs: Mapping[Target, Log]) -> None:
        """Hold the batches of a file against the rules of their topics.

        Raises:
            CorruptionError: the file is not what its task wrote.
            InvalidRecordError, InvalidTimestampError, RecordTooLargeError: a rule refuses a batch; names file
                and partition.
        """
        for piece in self.read(staged):
            for each in piece:
                self._check(staged, [each], logs[staged.parts[each.number].target])

    def _check(
        self, staged: StagedFile, piece: Sequence[StagedBatch], log: Log, *, by_rules: bool = True
    ) -> list[BatchHeader]:
        batches = [each.batch for each in piece]
        try:
            return check_adopted(batches, log.config, self._clock.now_ms(), by_rules=by_rules)
        except LogstoreError as error:
            raise type(error)(f"{staged.name} for {log.partition}: {error}") from error

    def place(
        self, staged: StagedFile, log: Log, place: Place, sink: str, *, was_checked: bool = False
    ) -> bool:
        """Give the batches of a file with one target, in the file, the offsets and sequences from ``place``
        on, durably. False if the file may not be written to, being another user's.

        Raises:
            LogstoreError: as :meth:`check`; by the rules only unless it ``was_checked``.
            StorageError: the disk refused.
        """
        try:
            file = self._files.open(self.path_of(staged), write=True)
        except StorageError as error:
            if error.errno in NOT_OURS:
                return False
            raise
        try:
            for piece in self.read(staged):
                checked = self._check(staged, piece, log, by_rules=not was_checked)
                for planned in place_adopted(
                    [each.batch for each in piece],
                    checked,
                    config=log.config,
                    producer=ProducerIdentity(producer_id_of(sink), 0, place.sequence),
                    base_offset=place.end_offset,
                    leader_epoch=log.leader_epoch,
                    now_ms=self._clock.now_ms(),
                ):
                    place = place.behind(planned.last_offset + 1 - place.end_offset)
                _write_headers(file, piece)
            file.flush()
        finally:
            file.close()
        return True


def _write_headers(file: File, piece: Sequence[StagedBatch]) -> None:
    for each in piece:
        file.write_at(each.position, [each.batch[:HEADER_BYTES]])
