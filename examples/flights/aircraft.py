"""The last known state of each aircraft: a compacted topic that is a table."""

from __future__ import annotations

import json
from collections.abc import Iterator

import logstore
from report import Compacted, segments_of

CONFIG = logstore.TopicConfig(
    cleanup_policy="compact",
    compression_type="zstd",
    segment_bytes=512 * 1024,
    segment_ms=400 * 86_400_000,  # as for the flights
)
_CHUNK_RECORDS = 5_000


def append_states(flights: logstore.Topic, aircraft: logstore.Topic) -> int:
    """Append what each flight that arrived says of its aircraft, in the order of each partition: where it is,
    and since when. Returns how many."""
    count = 0
    for log, states in zip(flights, aircraft, strict=True):
        chunk = []
        for state in _states(log):
            chunk.append(state)
            if len(chunk) == _CHUNK_RECORDS:
                count += len(states.extend(chunk))
                chunk = []
        count += len(states.extend(chunk))
    return count


def _states(log: logstore.Log) -> Iterator[logstore.NewRecord]:
    for record in log.read():
        flight = json.loads(record.value or b"{}")
        if record.key is not None and flight["arr_time"] is not None:
            state = {
                "at": flight["dest"],
                "by": f"{flight['carrier']} {flight['flight']}",
                "day": f"2013-{flight['month']:02}-{flight['day']:02}",
                "landed": flight["arr_time"],
                "delay": flight["arr_delay"],
            }
            value = json.dumps(state, separators=(",", ":")).encode()
            yield logstore.NewRecord(key=record.key, value=value, timestamp_ms=record.timestamp_ms)


def compact(aircraft: logstore.Topic) -> Compacted:
    """Let compaction run, and hold what is left against every record that there was."""
    table = {record.key: (record.offset, record.value) for log in aircraft for record in log.read()}
    before, segments = sum(1 for log in aircraft for _ in log.read()), segments_of(aircraft)
    reports = aircraft.compact(now=True)
    after = [record for log in aircraft for record in log.read()]
    if {record.key: (record.offset, record.value) for record in after} != table or len(after) != len(table):
        raise SystemExit("compaction has not left the last record of each aircraft")
    if {record.key: record.value for view in aircraft.latest() for record in view} != {
        key: value for key, (_, value) in table.items()
    }:
        raise SystemExit("the table view is not what the records say")
    seconds = sum(report.elapsed_ms for report in reports.values()) / 1000
    return Compacted(before, len(after), segments, segments_of(aircraft), seconds)
