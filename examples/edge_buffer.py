"""An edge device that buffers on disk and forwards when it can.

Readings are appended whether or not the line is up. What the other side has acknowledged is deleted. When
the line stays down for long, the oldest go, to bound the size. Run: python examples/edge_buffer.py
"""

import os
import tempfile
from itertools import islice

import logstore

CONFIG = logstore.TopicConfig(
    segment_bytes=16 * 1024,  # space is freed in steps of a segment
    retention_bytes=64 * 1024,
    retention_ms=-1,
)
UPLOAD_RECORDS = 500


class Line:
    """The way out: a stand-in for an HTTP or MQTT client."""

    is_up = True
    received = 0

    def upload(self, records: list[logstore.Record]) -> bool:
        """Whether the other side has acknowledged them."""
        self.received += len(records) * self.is_up
        return self.is_up


def forward(log: logstore.Log, line: Line) -> None:
    """Upload from the oldest record on. After a crash before delete_before, that part is sent once more."""
    while records := list(islice(log.read(), UPLOAD_RECORDS)):
        if not line.upload(records):
            return
        log.delete_before(records[-1].offset + 1)


def show(title: str, log: logstore.Log) -> None:
    waiting = log.log_end_offset - log.log_start_offset
    print(f"{title:20} {waiting:6,} readings wait; {log.size_bytes:7,} bytes in {log.segment_count} segments")


if __name__ == "__main__":
    line = Line()
    with tempfile.TemporaryDirectory() as directory, logstore.open(directory) as store:
        log = store.create_topic("readings", config=CONFIG)[0]
        phases = [("line up", 700), ("line down", 700), ("line down for long", 5000), ("line up again", 100)]
        for title, count in phases:
            line.is_up = "up" in title
            log.extend([(b"sensor-1", os.urandom(40)) for _ in range(count)])
            forward(log, line)
            log.enforce_retention()  # the store does it by itself, each half minute
            show(title, log)
        print(f"received {line.received:,} of {log.log_end_offset:,}; the others had to make room")
