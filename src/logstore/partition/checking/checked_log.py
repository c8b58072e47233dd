"""The state of a check of a log: what the next batch must follow, and the findings so far.

The check of the log and the checks of its segments share it, one after the other. It knows what a gap between
two segments means. It reads no file of the log except producer snapshots.
"""

from __future__ import annotations

from collections.abc import Callable

from logstore.files import File
from logstore.partition.checking.epochs import EpochCheck
from logstore.partition.checking.facts import LogFacts, SegmentToCheck
from logstore.partition.checking.findings import Finding, FindingKind, Findings
from logstore.partition.checking.producers import ProducerCheck
from logstore.partition.recovery.leftovers import snapshot_offsets
from logstore.partition.segments.walk import ReadAt


class CheckedLog:
    """The state of one pass over a log."""

    def __init__(self, facts: LogFacts, reader_of: Callable[[File], ReadAt] | None = None) -> None:
        """``reader_of``: how to read a segment's file, if not in the usual way."""
        self.facts = facts
        self.findings = Findings()
        self.reader_of = reader_of or (lambda file: file.read_at)
        self.segments = [segment for segment in facts.segments if not _is_deleted(segment, facts)]
        """The segments to check."""
        self.end_offset = self.segments[0].base_offset if self.segments else facts.log_start_offset
        """The offset after the last batch that was met."""
        self.is_behind_damage = False
        """Whether batches in front of this place could not be read."""
        self.has_ended = False
        """Whether the log ends here: anything that follows is not part of it, or not yet."""
        self.epochs = EpochCheck(facts.epochs, facts.log_start_offset, facts.epochs_complete_to)
        self._bases = frozenset(segment.base_offset for segment in facts.segments)
        self._snapshots = snapshot_offsets(facts.names)
        last = facts.trusted_end if facts.log_end_offset is None else facts.log_end_offset
        self.producers = ProducerCheck(
            self.findings,
            facts.files,
            facts.directory,
            self.end_offset,
            [offset for offset in self._snapshots if offset <= min(last, facts.trusted_end)],
        )

    def begin_segment(self, base_offset: int, path: str) -> None:
        """Go on with the batches of the segment with this base offset."""
        start = self.end_offset
        if start < base_offset and not self.is_behind_damage:
            self._meet_gap(start, base_offset, path)
        if not self.has_ended:
            self.end_offset = base_offset
        self.is_behind_damage = False

    def _meet_gap(self, start: int, stop: int, path: str) -> None:
        """Report a gap between two segments. A truncation inside a batch leaves a gap. So does a lost
        segment, but that also leaves its producer snapshot, or the beginning of its leader's epoch."""
        self.producers.is_complete = False
        offsets = f"offsets {start} to {stop - 1} are in no segment"
        if start >= self.facts.trusted_end and self.is_dense_at(stop):
            self._end_in_front_of(f"{offsets}, above the recovery point", path, start)
            return
        if self.is_dense_at(stop):
            kind, reason = FindingKind.GAP, f"{offsets}, above the recovery point"
        elif self.facts.notes_gaps and self._was_segment(start, stop):
            kind, reason = FindingKind.MISSING_SEGMENT, f"{offsets}, but other files show that there was one"
        else:
            if self.facts.notes_gaps:
                self.findings.note(Finding(kind=FindingKind.GAP, path=path, reason=offsets))
            return
        self.findings.problem(
            Finding(kind=kind, path=path, base_offset=start, last_offset=stop - 1, reason=reason)
        )

    def _end_in_front_of(self, reason: str, path: str, end: int) -> None:
        """Note that the log ends before this segment. A power cut took the unflushed end of a segment and
        left the next one: the next open for writing ends the log there and keeps the rest aside."""
        self.has_ended, self.end_offset = True, end
        self.findings.note(Finding(kind=FindingKind.TORN_END, path=path, base_offset=end, reason=reason))

    def _was_segment(self, start: int, stop: int) -> bool:
        if any(start <= offset < stop and offset not in self._bases for offset in self._snapshots):
            return True
        # Deleting the log's beginning moves the beginning of an epoch too: an entry there proves nothing.
        start = max(start, self.facts.log_start_offset)
        entries = self.facts.epochs.entries if self.facts.epochs is not None else ()
        return any(start < entry.start_offset < stop for entry in entries)

    def is_dense_at(self, offset: int) -> bool:
        """Whether a gap right below ``offset`` means loss."""
        return self.facts.dense_from is not None and offset > self.facts.dense_from


def _is_deleted(segment: SegmentToCheck, facts: LogFacts) -> bool:
    """Whether it lies wholly below the log start: it cannot be read any more, and recovery skips it too."""
    return segment.next_base is not None and segment.next_base <= facts.log_start_offset
