"""What the headers of a record in a dead-letter topic say."""

from __future__ import annotations

from typing import Final

REASON_HEADER: Final = "logstore.error"
"""Why nothing came of the record."""
TOPIC_HEADER: Final = "logstore.topic"
PARTITION_HEADER: Final = "logstore.partition"
OFFSET_HEADER: Final = "logstore.offset"
"""Where it was: a number in digits, as the partition."""
GROUP_HEADER: Final = "logstore.group"
"""Of a queue: its group."""
DELIVERIES_HEADER: Final = "logstore.delivery_count"
"""Of a queue: how often a worker had it, in digits."""
