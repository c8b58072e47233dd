"""Checks one segment: each batch in order, its place among the others, its records, and its indexes.

The check is a generator that reads a piece at a time, so that the caller can do other things between two
pieces, pause it or drop it. Damage is noted and passed over if the next batch can be found: by the damaged
one's size, or else by the offset index.
"""

from __future__ import annotations

from collections.abc import Iterator

from logstore.errors import CorruptionError, LogstoreError, StorageError, is_denied
from logstore.files import File, read_small_file
from logstore.format.batch import decode_batch, newest_timestamp
from logstore.format.header import (
    HEADER_BYTES,
    MAGIC,
    TIMESTAMP_TYPE_BIT,
    UNKNOWN_COUNT,
    BatchHeader,
    decode_header,
)
from logstore.format.index import decode_aborted_transactions, used_bytes
from logstore.format.layout import OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from logstore.format.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    SWAP_SUFFIX,
    TIME_INDEX_SUFFIX,
    TRANSACTION_INDEX_SUFFIX,
    segment_file_name,
)
from logstore.partition.checking.checked_log import CheckedLog
from logstore.partition.checking.facts import EVERYTHING, SegmentToCheck
from logstore.partition.checking.findings import Finding, FindingKind
from logstore.partition.checking.indexes import OffsetIndexCheck, StoredIndex, TimeIndexCheck
from logstore.partition.segments.indexes import (
    MAX_INDEX_BYTES,
    MAX_RELATIVE_OFFSET,
    IndexEntries,
)
from logstore.partition.segments.transaction_index import MAX_TRANSACTION_INDEX_BYTES
from logstore.partition.segments.walk import PIECE_BYTES, Piece, Walk

_NO_INTERVAL = 2**62
_DEFAULT_INTERVAL_BYTES = 4096


class SegmentCheck:
    """The check of one segment. Used once."""

    def __init__(self, log: CheckedLog, segment: SegmentToCheck) -> None:
        self._log = log
        self._findings = log.findings
        self._segment = segment
        self._path = self._path_of(LOG_SUFFIX)
        self._end = segment.size_bytes or 0
        self._index: OffsetIndexCheck
        self._times: TimeIndexCheck
        self._gap_count = self._gap_offsets = 0
        self._is_behind_damage = False
        self._is_cut = False
        self._has_met_index = self._has_met_times = False
        """Whether :meth:`_meet_indexes` has already checked the batches of the current piece."""

    def _path_of(self, suffix: str) -> str:
        if self._segment.alone is not None:
            return self._segment.alone.path_of(suffix)
        name = segment_file_name(self._segment.base_offset, suffix)
        if name + SWAP_SUFFIX in self._log.facts.swapped:
            name += SWAP_SUFFIX
        return f"{self._log.facts.directory}/{name}"

    def steps(self) -> Iterator[int]:
        """Check the segment; yields the number of bytes read, piece by piece. Sets ``has_ended`` of the log
        if anything that follows is not part of it, or not yet."""
        self._findings.segment_count += 1
        try:
            file = self._log.facts.files.open(self._path)
        except LogstoreError as error:
            if is_denied(error):
                raise
            self._lose_segment(error)
            return
        try:
            self._begin(file.size_bytes())
            if self._log.has_ended:
                return
            yield from self._walk(file)
            if not self._log.has_ended:
                self._finish()
        finally:
            file.close()
            self._note_gaps()

    def _lose_segment(self, error: LogstoreError) -> None:
        self._problem(FindingKind.MISSING_SEGMENT, f"the segment cannot be opened: {error}")
        self._log.is_behind_damage = True
        self._log.producers.is_complete = False
        if self._segment.next_base is not None:
            self._log.end_offset = self._segment.next_base

    # The batches

    def _begin(self, file_bytes: int) -> None:
        wanted = self._segment.size_bytes
        if wanted is None:
            self._end = file_bytes
        elif file_bytes < wanted or (self._segment.next_base is not None and file_bytes > wanted):
            self._problem(
                FindingKind.SIZE, f"the file has {file_bytes} bytes; it had {wanted}", position=file_bytes
            )
            self._end = min(wanted, file_bytes)
            self._is_cut = file_bytes < wanted
        self._log.begin_segment(self._segment.base_offset, self._path)
        self._open_indexes()

    def _walk(self, file: File) -> Iterator[int]:
        position, end = 0, self._end
        while position < end:
            walk = Walk(self._log.reader_of(file), position, end, check=True, piece_bytes=PIECE_BYTES)
            reason: LogstoreError | None = None
            try:
                for piece in walk:
                    self._meet_indexes(piece)
                    for at, header in piece.batches:
                        self._meet(header, piece.buffer, at, piece.position + at)
                    self._findings.log_bytes += piece.end
                    yield piece.end
            except StorageError as error:
                reason = error
            if walk.position < end:
                following = self._pass_damage(file, walk.position, reason or walk.fault)
                if following is None:
                    self._log.has_ended = True
                    return
                self._findings.log_bytes += following - walk.position
                yield following - walk.position
                walk.position = following
            position = walk.position

    def _meet_indexes(self, piece: Piece) -> None:
        """Check the batches of a piece against the indexes at once. If they do not agree, :meth:`_meet`
        checks them one by one."""
        is_known = not self._is_behind_damage
        self._has_met_index = is_known and self._index.agrees(piece.batches, piece.position)
        self._has_met_times = is_known and self._times.agrees(piece.batches)

    def _meet(self, header: BatchHeader, buffer: bytes, at: int, position: int) -> None:
        """Check a batch whose checksum and structure are right."""
        log, index, times = self._log, self._index, self._times
        if header.base_offset != log.end_offset or self._is_behind_damage:
            self._meet_elsewhere(header, position)
        log.end_offset = header.next_offset
        if header.last_offset > log.epochs.valid_to or header.partition_leader_epoch != log.epochs.epoch:
            self._check_epoch(header, position)
        if not self._has_met_index:
            if position >= index.next_position:
                index.meet(header, position)
            elif position > index.sparse_position:
                index.lack(position)
            if index.is_waiting:
                index.meet_wide(header)
        if not self._has_met_times:
            if header.max_timestamp_ms > times.kept_ms:
                times.note_largest(header)
            if header.last_offset >= times.next_offset:
                times.meet(header)
        self._findings.batch_count += 1
        self._check_records(header, buffer, at, position)
        if header.base_offset >= log.producers.next_snapshot:
            log.producers.meet_snapshots(header.base_offset)
        if header.producer_id >= 0:
            self._replay(header, buffer, at, position)

    def _meet_elsewhere(self, header: BatchHeader, position: int) -> None:
        """Report a batch that does not begin where the last one ended."""
        end = self._log.end_offset
        if self._is_behind_damage:
            self._is_behind_damage = False
            self._times.skip_to(header.base_offset)
        elif header.base_offset < end:
            self._problem(
                FindingKind.OFFSETS,
                f"a batch of offsets {header.base_offset} to {header.last_offset} follows offset {end - 1}",
                position=position,
                header=header,
            )
            self._log.producers.is_complete = False
        elif header.record_count != UNKNOWN_COUNT:
            self._meet_gap(end, header.base_offset, position)

    def _meet_gap(self, start: int, stop: int, position: int) -> None:
        self._log.producers.is_complete = False
        if self._log.is_dense_at(stop):
            self._problem(
                FindingKind.GAP,
                f"offset {stop} follows {start - 1}, above the recovery point, in a topic without gaps",
                position=position,
                offsets=(start, stop - 1),
            )
        self._gap_count += 1
        self._gap_offsets += stop - start

    def _note_gaps(self) -> None:
        if self._gap_count and self._log.facts.notes_gaps:
            self._findings.note(
                Finding(
                    kind=FindingKind.GAP,
                    path=self._path,
                    reason=f"{self._gap_count} gaps of {self._gap_offsets} offsets in all",
                )
            )

    def _check_epoch(self, header: BatchHeader, position: int) -> None:
        reason = self._log.epochs.meet(header)
        if reason is not None:
            self._problem(FindingKind.LEADER_EPOCH, reason, position=position, header=header)

    def _check_records(self, header: BatchHeader, buffer: bytes, at: int, position: int) -> None:
        """Decode all records, without keeping any."""
        try:
            if header.magic < MAGIC:
                self._findings.record_count += len(decode_batch(buffer, at, header))
                return
            newest_ms = newest_timestamp(buffer, at, header)
        except CorruptionError as error:
            self._problem(FindingKind.RECORDS, error.reason, position=position, header=header)
            return
        self._findings.record_count += header.record_count
        if header.record_count != header.last_offset_delta + 1:
            self._log.producers.is_complete = False  # the batch was compacted
        if (
            newest_ms != header.max_timestamp_ms
            and header.record_count
            and not header.attributes & TIMESTAMP_TYPE_BIT
        ):
            self._problem(
                FindingKind.RECORDS,
                f"the largest timestamp is {newest_ms}; the header says {header.max_timestamp_ms}",
                position=position,
                header=header,
            )

    def _replay(self, header: BatchHeader, buffer: bytes, at: int, position: int) -> None:
        try:
            self._log.producers.meet(header, buffer, at)
        except LogstoreError as error:
            reason = error.reason if isinstance(error, CorruptionError) else str(error)
            self._problem(FindingKind.RECORDS, reason, position=position, header=header)
            self._log.producers.is_complete = False

    # Damage

    def _pass_damage(self, file: File, position: int, fault: LogstoreError | None) -> int | None:
        """Report the damage that begins at ``position``; returns where to go on, or the segment's end if that
        is unknown. None if it is just the end of the log, as left by a crash or an append under way."""
        log = self._log
        reason = (
            fault.reason if isinstance(fault, CorruptionError) else str(fault or "the batch is incomplete")
        )
        if log.end_offset >= log.facts.trusted_end:
            self._findings.note(
                Finding(
                    kind=FindingKind.TORN_END,
                    path=self._path,
                    position=position,
                    base_offset=log.end_offset,
                    reason=f"{self._end - position} bytes: {reason}",
                )
            )
            return None
        following = None
        if not isinstance(fault, StorageError):
            following = self._position_by_size(file, position)
        if following is None:
            following = self._index.position_behind(position) or self._end
        kind = FindingKind.UNREADABLE if isinstance(fault, StorageError) else FindingKind.BATCH
        whole = "" if following < self._end else "; nothing behind it in the segment could be checked"
        if following == self._end and self._ends_here(file, position):
            whole = ""
        last = fault.last_offset if isinstance(fault, CorruptionError) else None
        is_named = last is not None and last >= log.end_offset
        self._problem(
            kind,
            f"{reason}{whole}",
            position=position,
            offsets=(log.end_offset, last if is_named and last is not None else log.end_offset),
        )
        self._is_behind_damage = log.is_behind_damage = True
        log.producers.is_complete = False
        self._index.skip_to(following)
        return following

    def _position_by_size(self, file: File, position: int) -> int | None:
        """Where the damaged batch ends by its size, if another batch follows there or the segment ends."""
        try:
            size_bytes = decode_header(file.read_at(position, HEADER_BYTES)).size_bytes
            after = position + size_bytes
            if after == self._end:
                return after
            following = decode_header(file.read_at(after, HEADER_BYTES))
        except LogstoreError:
            return None
        next_base = self._segment.next_base
        is_plausible = following.base_offset >= self._log.end_offset and (
            next_base is None or following.last_offset < next_base
        )
        return after if after < self._end and is_plausible else None

    def _ends_here(self, file: File, position: int) -> bool:
        return self._position_by_size(file, position) == self._end

    # The end

    def _finish(self) -> None:
        log, segment = self._log, self._segment
        if self._is_behind_damage and segment.next_base is not None:
            log.end_offset = segment.next_base
        elif segment.next_base is not None and log.end_offset > segment.next_base:
            self._problem(
                FindingKind.OFFSETS,
                f"the segment ends with offset {log.end_offset - 1}; the next begins at {segment.next_base}",
                position=self._end,
                offsets=(segment.next_base, log.end_offset - 1),
            )
        elif segment.alone is not None and log.end_offset - segment.base_offset > MAX_RELATIVE_OFFSET + 1:
            self._problem(
                FindingKind.OFFSETS,
                f"the segment ends with offset {log.end_offset - 1}, out of reach of its base offset "
                f"{segment.base_offset}",
                position=self._end,
            )
        self._finish_indexes()
        log.is_behind_damage = self._is_behind_damage
        self._check_transactions()

    def _finish_indexes(self) -> None:
        """Check the index entries behind the last batch, which may name lost batches. Not behind damage."""
        if self._is_behind_damage:
            return
        end_offset, next_base = self._log.end_offset, self._segment.next_base
        may_be_lost = next_base is None or end_offset < next_base
        trusted_end = self._log.facts.trusted_end
        # Not with the next segment only begun: a roll that is under way stores the last entry afterwards.
        is_trusted = trusted_end == EVERYTHING if next_base is None else trusted_end > next_base
        is_closed = is_trusted and self._segment.time_index is None and self._segment.alone is None
        lost = max(
            self._index.finish(self._end, end_offset, may_be_lost=may_be_lost),
            self._times.finish(end_offset, may_be_lost=may_be_lost, is_closed=is_closed),
        )
        if lost >= 0 and not self._is_cut:
            self._problem(
                FindingKind.BATCH,
                f"the segment lost its end: its indexes name offset {lost}",
                position=self._end,
                offsets=(end_offset, lost),
            )

    # Indexes

    def _open_indexes(self) -> None:
        log, segment = self._log, self._segment
        facts = log.facts
        end = segment.next_base
        is_whole = facts.trusted_end >= (EVERYTHING if end is None else end)
        offset_entries = self._entries(INDEX_SUFFIX, segment.offset_index)
        time_entries = self._entries(TIME_INDEX_SUFFIX, segment.time_index)
        self._index = OffsetIndexCheck(
            self._findings,
            StoredIndex(self._path_of(INDEX_SUFFIX), segment.base_offset, offset_entries or b"", is_whole),
            trusted_end=facts.trusted_end,
            end_position=2**62 if segment.offset_index is None else self._segment.size_bytes or 0,
            interval_bytes=self._interval_bytes(offset_entries, time_entries) if is_whole else _NO_INTERVAL,
        )
        end_offset = facts.trusted_end
        if end is None and facts.log_end_offset is not None:
            end_offset = min(end_offset, facts.log_end_offset)
        self._times = TimeIndexCheck(
            self._findings,
            StoredIndex(self._path_of(TIME_INDEX_SUFFIX), segment.base_offset, time_entries or b"", is_whole),
            end_offset=end_offset,
        )
        if time_entries is None:
            self._times.has_faults = True

    def _interval_bytes(self, offset_entries: bytes | None, time_entries: bytes | None) -> int:
        """How far a batch may lie behind the last index entry: by the builder's rule, with the larger of the
        topic's interval and that of a rebuilt index. No limit if an index is full or missing."""
        facts = self._log.facts
        largest_bytes = max(len(offset_entries or b"") + 12, len(time_entries or b"") + 24)
        if offset_entries is None or largest_bytes > facts.index_limit_bytes:
            return _NO_INTERVAL
        return max(facts.index_interval_bytes, _DEFAULT_INTERVAL_BYTES)

    def _entries(self, suffix: str, in_memory: IndexEntries | None) -> bytes | None:
        """The entries of an index; None if there is no such file."""
        kind = FindingKind.OFFSET_INDEX if suffix == INDEX_SUFFIX else FindingKind.TIME_INDEX
        path = self._path_of(suffix)
        try:
            data = read_small_file(self._log.facts.files, path, MAX_INDEX_BYTES)
        except LogstoreError as error:
            if is_denied(error):
                raise
            self._findings.problem(Finding(kind=kind, path=path, reason=str(error)))
            return None if in_memory is None else in_memory.entries
        if in_memory is not None:
            stored = in_memory.stored
            if stored is not None and (data or b"")[: len(stored)] != stored:
                self._findings.problem(
                    Finding(kind=kind, path=path, reason="the file does not hold what was written to it")
                )
            return in_memory.entries
        if data is None:
            self._findings.note(
                Finding(kind=FindingKind.MISSING_INDEX, path=path, reason="there is no such file")
            )
        if data and self._segment.alone is not None:  # it may be copied from a running broker
            return data[
                : used_bytes(data, OFFSET_INDEX_ENTRY if suffix == INDEX_SUFFIX else TIME_INDEX_ENTRY)
            ]
        return data

    def _check_transactions(self) -> None:
        log, path = self._log, self._path_of(TRANSACTION_INDEX_SUFFIX)
        wanted = [
            entry for entry in log.producers.take_aborted() if entry.last_offset < log.facts.trusted_end
        ]
        try:
            data = read_small_file(log.facts.files, path, MAX_TRANSACTION_INDEX_BYTES)
            entries = decode_aborted_transactions(data or b"", self._segment.base_offset)
        except LogstoreError as error:
            if is_denied(error):
                raise
            self._transactions_problem(
                error.reason if isinstance(error, CorruptionError) else str(error),
                error.position if isinstance(error, CorruptionError) else None,
            )
            return
        if data is None and wanted and self._segment.alone is not None:
            reason = f"there is no such file, and {len(wanted)} transactions of the segment were aborted"
            self._findings.note(Finding(kind=FindingKind.MISSING_INDEX, path=path, reason=reason))
            return
        end = min(log.facts.trusted_end, log.end_offset)
        stored = [entry for entry in entries if entry.last_offset < end]
        if log.producers.is_complete and stored != wanted:
            number = next(
                (n for n, pair in enumerate(zip(stored, wanted, strict=False)) if pair[0] != pair[1]),
                min(len(stored), len(wanted)),
            )
            said = tuple(stored[number]) if number < len(stored) else "missing"
            real = tuple(wanted[number]) if number < len(wanted) else "no aborted transaction"
            self._transactions_problem(f"entry {number} is {said}; the markers say {real}", number * 34)

    def _transactions_problem(self, reason: str, position: int | None) -> None:
        self._findings.problem(
            Finding(
                kind=FindingKind.TRANSACTION_INDEX,
                path=self._path_of(TRANSACTION_INDEX_SUFFIX),
                position=position,
                reason=reason,
            )
        )

    def _problem(
        self,
        kind: FindingKind,
        reason: str,
        *,
        position: int | None = None,
        header: BatchHeader | None = None,
        offsets: tuple[int | None, int | None] = (None, None),
    ) -> None:
        if header is not None:
            offsets = header.base_offset, header.last_offset
        self._findings.problem(
            Finding(
                kind=kind,
                path=self._path,
                position=position,
                base_offset=offsets[0],
                last_offset=offsets[1],
                reason=reason,
            )
        )
