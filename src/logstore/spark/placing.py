"""Prepares staged files for the logs: checks them against the rules, and gives batches their places.

A large file with one target can become a segment of its log as it is: its batches get their places directly
in the file, which later gets the segment's name. Until then no log shows any of this, and reading the file as
a staged one gives the same. Small files are copied: otherwise a log would have too many segments.
"""

from __future__ import annotations

import errno
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
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
"""Copying a smaller file takes no longer than the fsyncs of moving it."""
_SEGMENTS_FOR_ONE: Final = 64
"""Moving makes at most this many segments of records that would fill one."""

_FIRST_PRODUCER_ID: Final = 2**62
"""The first producer id of sinks; brokers count theirs from 0."""
NOT_OURS: Final = frozenset({errno.EACCES, errno.EPERM, errno.EROFS})
"""The errors for a file that another user created."""

Placed = dict[str, int]
"""The base offset of each file whose batches have their places, by the file's name."""


@lru_cache(maxsize=64)
def producer_id_of(sink: str) -> int:
    """The id of a sink's idempotent producer in the logs. Remembered, as each log of a batch asks for it."""
    number = int.from_bytes(hashlib.sha256(sink.encode()).digest()[:8])
    return _FIRST_PRODUCER_ID | number % _FIRST_PRODUCER_ID


def is_to_move(staged: StagedFile, config: TopicConfig) -> bool:
    """Whether a file becomes a segment of a topic with these settings, if the disk allows it. Not with
    ``LogAppendTime``, which would replace the timestamps."""
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
        """Check the batches of a file against the rules of their topics.

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
        """Write the offsets and sequences from ``place`` on into the batches of a file with one target,
        durably. False if the file cannot be written because it belongs to another user.

        Raises:
            LogstoreError: as for :meth:`check`; the rules are not checked again if the file ``was_checked``.
            StorageError: the disk failed.
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
