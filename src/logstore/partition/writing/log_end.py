"""The log end: every append passes here. Batches get their offsets and are written."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from logstore.format.batch import NewBatch, place_batch
from logstore.model import AppendOrigin
from logstore.partition.encoding.row_encoder import place_batches
from logstore.partition.segments.planned import PlannedAppend
from logstore.partition.writing.core import LogCore
from logstore.partition.writing.growth import AppendResult
from logstore.partition.writing.waits import Waits


class LogEnd:
    """The end of one log. Callers hold its lock."""

    __slots__ = ("_core", "_waits", "flush_soon")

    def __init__(self, core: LogCore, waits: Waits) -> None:
        self._core = core
        self._waits = waits
        self.flush_soon: Callable[[], None]
        """Schedules the flush. Set by the writer, whose parts know each other."""

    def write(self, batches: Sequence[NewBatch], now_ms: int) -> AppendResult:
        """Place encoded batches at the log end and write them, a segment's worth at a time."""
        core = self._core
        if len(batches) == 1:
            header = place_batch(batches[0], core.log_end_offset, core.leader_epoch)
            written = core.write(PlannedAppend(batches, [header]), AppendOrigin.CLIENT, now_ms)
            self.after_append()
            return written
        result: AppendResult | None = None
        for planned in place_batches(
            batches, core.log_end_offset, core.leader_epoch, core.config.segment_bytes
        ):
            written = core.write(planned, AppendOrigin.CLIENT, now_ms)
            result = written if result is None else written._replace(base_offset=result.base_offset)
        assert result is not None
        self.after_append()
        return result

    def write_planned(self, planned: PlannedAppend, origin: AppendOrigin, now_ms: int) -> AppendResult:
        """Write batches that already have their offsets."""
        result = self._core.write(planned, origin, now_ms)
        self.after_append()
        return result

    def after_append(self) -> None:
        """Wake the threads that wait for records, and schedule the flush."""
        if self._waits.is_watched:
            self._waits.notify(self._core.view)
        self.flush_soon()

    def note_gathering(self) -> None:
        """Rows begin to gather: the next reader writes them."""
        self._waits.note_gathering()
