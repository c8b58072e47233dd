"""A single segment file without its log: copied out of a broker, kept aside, or in the directory of a log
that another process has open.

It may have any name, its indexes may be missing, and no log says where it ends. Nothing is written: a missing
or wrong index is built in memory from the log file. The file may grow meanwhile.
"""

from __future__ import annotations

import errno
import re
from typing import NamedTuple, Self

from logstore.errors import CorruptionError, StorageError
from logstore.files import File, Files, read_small_file
from logstore.format.header import HEADER_BYTES, PREFIX_BYTES, check_batch, decode_header
from logstore.format.index import used_bytes
from logstore.format.names import (
    INDEX_SUFFIX,
    LOG_SUFFIX,
    TIME_INDEX_SUFFIX,
    parse_segment_file_name,
)
from logstore.partition.segments.indexes import MAX_INDEX_BYTES, OffsetIndex, TimeIndex
from logstore.partition.segments.segment import OpenFiles, OpenSegments, Segment
from logstore.partition.segments.walk import PIECE_BYTES, Walk

_LOG_NAME = re.compile(r"(?P<stem>.*)\.log(?P<state>\.[^./]+)?", re.DOTALL)


class LoneNames(NamedTuple):
    """The names of the files of one segment: ``<stem><suffix><state>``, as in ``00000000000000000042.log``
    and ``00000000000000000042.index.deleted``."""

    path: str
    """The path of the log."""
    stem: str
    state: str

    @classmethod
    def of(cls, path: str) -> Self:
        """The names, by the path of the log. If it is not named ``.log``, its indexes have its name with
        their suffix appended."""
        parts = _LOG_NAME.fullmatch(path)
        return cls(path, path, "") if parts is None else cls(path, parts["stem"], parts["state"] or "")

    def path_of(self, suffix: str) -> str:
        return self.path if suffix == LOG_SUFFIX else f"{self.stem}{suffix}{self.state}"

    @property
    def directory(self) -> str:
        return self.path.rpartition("/")[0] or "/"

    @property
    def base_offset(self) -> int | None:
        """The base offset in the name; None if the name has none."""
        stem = self.stem.rpartition("/")[2]
        parsed = parse_segment_file_name(f"{stem}{LOG_SUFFIX}")
        return None if parsed is None else parsed.base_offset


class SegmentEnd(NamedTuple):
    """Where the whole batches of a file end."""

    position: int
    offset: int
    """The offset after the last record of the last batch."""
    file_bytes: int
    """The size of the file when this was found."""
    reason: str
    """Why no batch begins at the position; empty if the file ends there."""

    @property
    def trailing_bytes(self) -> int:
        """The number of bytes behind the last whole batch."""
        return self.file_bytes - self.position


class LoneSegment(Segment):
    """The engine's segment over such a file. The file stays open."""

    def __init__(self, files: Files, names: LoneNames, base_offset: int, log: File) -> None:
        self._names = names
        self._log = log
        self._end: SegmentEnd | None = None
        super().__init__(files, names.directory, base_offset, OpenSegments(1), is_read_only=True)
        self.leave_cache()  # a cached one would keep the file open until the next garbage collection

    def path_of(self, suffix: str) -> str:
        return self._names.path_of(suffix)

    @property
    def size_bytes(self) -> int:
        return self._log.size_bytes()

    def _open(self) -> OpenFiles:
        entries = [self._entries(suffix) for suffix in (INDEX_SUFFIX, TIME_INDEX_SUFFIX)]
        if entries[0] is None or entries[1] is None:
            return self._rebuild_indexes(self._log)
        offset_index = OffsetIndex(self._files, self.path_of(INDEX_SUFFIX), self.base_offset)
        time_index = TimeIndex(self._files, self.path_of(TIME_INDEX_SUFFIX), self.base_offset)
        offset_index.extend(entries[0])
        time_index.extend(entries[1])
        return OpenFiles(self._log, offset_index, time_index)

    def _entries(self, suffix: str) -> bytes | None:
        """The usable entries of an index file. None if there is no file or it cannot be read for any reason:
        the log has the same information."""
        layout = (OffsetIndex if suffix == INDEX_SUFFIX else TimeIndex).layout
        try:
            data = read_small_file(self._files, self.path_of(suffix), MAX_INDEX_BYTES)
        except (StorageError, CorruptionError) as error:
            if isinstance(error, StorageError) and error.errno in (errno.EMFILE, errno.ENFILE):
                raise
            return None
        if data is None or len(data) % layout.size_bytes:
            return None
        return data[: used_bytes(data, layout)]

    def find_end(self) -> SegmentEnd:
        """Where the whole batches end now. Cost: it reads the batches behind the last one in the index;
        without an index, the headers of all batches once. Later calls read only what was added."""
        size_bytes, known = self.size_bytes, self._end
        if known is None or size_bytes < known.file_bytes:
            known = self._end_from_index(size_bytes)
        elif size_bytes > known.file_bytes:
            known = self._end_from(known.position, known.offset, size_bytes)
        self._end = known
        return known

    def _end_from_index(self, size_bytes: int) -> SegmentEnd:
        start = self.position_before(self.offset_index.last_offset)
        return self._end_from(start if self._is_sound(start) else 0, self.base_offset, size_bytes)

    def _is_sound(self, position: int) -> bool:
        """Whether a sound batch begins at a position that an index names."""
        try:
            header = decode_header(self.read_at(position, HEADER_BYTES))
            if position + header.size_bytes > self.size_bytes:
                return False
            check_batch(self.read_at(position, header.size_bytes), 0, header)
        except CorruptionError:
            return False
        return True

    def _end_from(self, position: int, offset: int, size_bytes: int) -> SegmentEnd:
        walk = self.walk(position, size_bytes, check=False, piece_bytes=PIECE_BYTES)
        for piece in walk:
            offset = piece.batches[-1][1].next_offset
        return end_of(walk, offset, size_bytes)

    def goes_on(self, end: SegmentEnd) -> bool:
        """Whether the file has grown, and a whole batch now begins where it ended."""
        size_bytes = self.size_bytes
        walk = self.walk(end.position, size_bytes, check=False)
        return size_bytes > end.file_bytes and next(iter(walk), None) is not None


def end_of(walk: Walk, offset: int, size_bytes: int) -> SegmentEnd:
    """Where a walk up to the end of a file stopped; ``offset`` is the offset after its last batch."""
    if walk.position == size_bytes:
        reason = ""
    elif walk.fault is not None:
        reason = walk.fault.reason
    elif size_bytes - walk.position < PREFIX_BYTES:
        reason = "too short for a batch header"
    else:
        reason = "the batch is incomplete"
    return SegmentEnd(walk.position, offset, size_bytes, reason)
