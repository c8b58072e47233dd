"""Single segment files: open a ``.log`` file, an offset index or a time index by its path.

For files without a log around them: in a broker's data directory, a copy in a bug report, a file that
recovery kept. Built on the engine's own segments and indexes, which know locks, caches and how a log grows;
nothing here is needed to read or write a log.
"""

from logstore.segment_files.batches import SegmentBatch
from logstore.segment_files.indexes import OffsetIndex, TimeIndex
from logstore.segment_files.segment import Segment

__all__ = ["OffsetIndex", "Segment", "SegmentBatch", "TimeIndex"]
