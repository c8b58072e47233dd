"""Single appends on their way to becoming a batch.

Each record gets its offset at once; the rows wait here until there are enough of them, or until the linger
time is over. Every row was checked before it came here: the batch of any of them can be encoded and is not
too large, so that only the disk can refuse it. Guarded by the log's lock.
"""

from __future__ import annotations

from logstore.format.header import HEADER_BYTES
from logstore.model import Header
from logstore.partition.columns import Columns


class Gathering:
    """The rows of the next batch."""

    __slots__ = ("_headers", "add_key", "add_timestamp", "add_value", "count", "keys", "size_bytes", "timestamps", "values")
