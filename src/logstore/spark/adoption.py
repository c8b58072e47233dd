"""Puts prepared batches into the logs, by copying staged files or moving them.

A file that is large enough becomes a segment; one that is small, or must not be moved, is copied batch by
batch. Records that are already in a log are left out. :mod:`~logstore.spark.commits` decides when a batch may
go into the logs.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from logstore.errors import CorruptionError, StorageError
from logstore.format.loops import scan_batches
from logstore.model import Isolation, ProducerIdentity
from logstore.partition.log import Log
from logstore.spark.ledger import SEQUENCE_COUNT, Place, Prepared
from logstore.spark.placing import NOT_OURS, Placed, Placing, is_to_move, producer_id_of
from logstore.spark.staging import StagedBatch, StagedFile, StagedPart, Target

_NOT_LINKED: Final = NOT_OURS | {errno.EXDEV, errno.EMLINK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP}
"""Errors of a file that cannot have a second name."""


class Adoption:
    """Puts the files of a prepared batch into the logs, without records that are already there."""

    def __init__(
        self,
        prepared: Prepared,
        logs: Mapping[Target, Log],
        placing: Placing,
        placed: Placed | None = None,
    ) -> None:
        """
        Args:
            logs: the logs of the batch's targets that still exist.
            placed: the files whose batches have got their places, for a batch that was prepared just now:
                none of its records is in a log, and its other files are copied. None for one that an earlier
                commit has left prepared.
        """
        self._sink = prepared.sink
        self._producer_id = producer_id_of(prepared.sink)
        self._placing = placing
        self._placed = placed
        self._places = {place.target: place for place in prepared.places}
        self._logs = logs
        self._there = {
            target: self._count_there(log, self._places[target]) if placed is None else 0
            for target, log in logs.items()
        }
        self._passed = dict.fromkeys(logs, 0)

    @property
    def is_untouched(self) -> bool:
        """Whether no record of the batch is in a log yet."""
        return not any(self._there.values())

    def _count_there(self, log: Log, place: Place) -> int:
        """How many of the batch's records a log has.

        Raises:
            CorruptionError: it cannot be determined: the log was truncated, or its beginning deleted.
        """
        last = log.last_of_producer(self._producer_id)
        if last is None:  # the log has forgotten the producer, or never knew it
            found = self._next_sequence_in(log, place)
        else:
            found = last.next_sequence if last.last_offset >= place.end_offset else place.sequence
        count = (found - place.sequence) % SEQUENCE_COUNT
        if count > place.record_count or log.log_end_offset < place.end_offset:
            raise CorruptionError(
                f"{log.partition} has changed since {place.record_count} records were prepared for offset "
                f"{place.end_offset}: it ends at {log.log_end_offset}, and the next sequence is {found} "
                f"instead of {place.sequence}",
                path=log.directory,
            )
        return count

    def _next_sequence_in(self, log: Log, place: Place) -> int:
        """The producer's next sequence according to the batches after the place."""
        found, offset = place.sequence, place.end_offset
        if log.log_start_offset > offset:
            raise CorruptionError(
                f"{log.partition} begins at {log.log_start_offset} and has forgotten its producers: it is "
                f"unknown which of {place.record_count} records from offset {offset} on it had",
                path=log.directory,
            )
        while offset < log.log_end_offset:
            fetched = log.fetch(offset, isolation=Isolation.LOG_END)
            for _, header in scan_batches(fetched.data, 0, len(fetched.data), check=False)[0]:
                if header.producer_id == self._producer_id:
                    found = (header.last_sequence + 1) % SEQUENCE_COUNT
            offset = fetched.next_offset
        return found

    def adopt(self, staged: StagedFile) -> Iterator[int]:
        """Put the missing records of a file into its logs, in steps. Each step yields how many bytes must
        still become durable: 0 for a file that was moved.

        Raises:
            CorruptionError: the file is not what its task wrote.
            StorageError: the file does not exist, or the disk failed.
        """
        if self._are_there(staged.parts):
            for target, _, record_count in staged.parts:
                self._passed[target] = self._passed.get(target, 0) + record_count
        elif self._move(staged):
            yield 0
        else:
            for piece in self._placing.read(staged, lets_go=True):
                yield self._copy(staged.parts, piece)

    def _are_there(self, parts: Sequence[StagedPart]) -> bool:
        """Whether the logs that still exist have all records of a file."""
        return all(
            self._passed[part.target] + part.record_count <= self._there[part.target]
            for part in parts
            if part.target in self._logs
        )

    def _move(self, staged: StagedFile) -> bool:
        """Make a file a segment; False if it must be copied instead."""
        if self._placed is not None and staged.name not in self._placed:
            return False
        target, _, record_count = staged.parts[0]
        log = self._logs.get(target)
        if log is None or not is_to_move(staged, log.config) or self._passed[target] < self._there[target]:
            return False
        if self._placed is None or self._placed[staged.name] != log.log_end_offset:
            place = Place(target, log.log_end_offset, self._sequence_of_next(target), record_count)
            if not self._placing.place(staged, log, place, self._sink, was_checked=True):
                return False
        try:
            log.adopt_file(self._placing.path_of(staged))
        except StorageError as error:
            if error.errno in _NOT_LINKED:
                return False
            raise
        self._passed[target] += record_count
        return True

    def _sequence_of_next(self, target: Target) -> int:
        return self._places[target].behind(self._passed[target]).sequence

    def _copy(self, parts: Sequence[StagedPart], piece: Sequence[StagedBatch]) -> int:
        """Append the batches of a piece that are not in their logs yet. Returns their size."""
        wanted: dict[Target, list[memoryview]] = {}
        sequences: dict[Target, int] = {}
        for _, number, record_count, batch in piece:
            target = parts[number].target
            if target not in self._logs:
                continue
            if self._passed[target] >= self._there[target]:
                sequences.setdefault(target, self._sequence_of_next(target))
                wanted.setdefault(target, []).append(batch)
            self._passed[target] += record_count
        for target, batches in wanted.items():
            producer = ProducerIdentity(self._producer_id, 0, sequences[target])
            self._logs[target].adopt(batches, producer=producer, was_checked=True)
        return sum(len(batch) for batches in wanted.values() for batch in batches)
