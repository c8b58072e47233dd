"""The reference topic: what the register says of each aircraft, compacted, so that it is a table.

The table of the package is appended as it is, and then what is known better, as further records of the same
keys. So it matters which record of a key is read: in the table some makers go by several names, and some
two-seaters and helicopters bear the number of an airliner.
"""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from typing import NamedTuple

import logstore
from flights_demo import data_folder, midnight_ms

TOPIC = "planes"
PARTITIONS = 2
CONFIG = logstore.TopicConfig(cleanup_policy="compact", compression_type="zstd")
MAKERS = {
    "AIRBUS INDUSTRIE": "AIRBUS",
    "BOMBARDIER INC": "BOMBARDIER",
    "CANADAIR": "BOMBARDIER",
    "CANADAIR LTD": "BOMBARDIER",
    "DOUGLAS": "MCDONNELL DOUGLAS",
    "MCDONNELL DOUGLAS AIRCRAFT CO": "MCDONNELL DOUGLAS",
    "MCDONNELL DOUGLAS CORPORATION": "MCDONNELL DOUGLAS",
}
"""Names in the table, and what they became."""
FEWEST_SEATS = 20
"""An entry with fewer is of another aircraft, and taken back."""

_ENTERED_MS, _CORRECTED_MS = midnight_ms(1, 1), midnight_ms(1, 2)


class Appended(NamedTuple):
    """What went into the topic."""

    entries: int
    corrections: int
    withdrawals: int


def append_planes(topic: logstore.Topic) -> Appended:
    """All entries, then the corrections, then a tombstone for each entry that is withdrawn."""
    rows = list(_rows())
    entries = [_record(row, _ENTERED_MS) for row in rows]
    corrections = [
        _record(row | {"manufacturer": MAKERS[row["manufacturer"]]}, _CORRECTED_MS)
        for row in rows
        if row["manufacturer"] in MAKERS
    ]
    withdrawals = [
        logstore.NewRecord(key=row["tailnum"].encode(), value=None, timestamp_ms=_CORRECTED_MS)
        for row in rows
        if int(row["seats"]) < FEWEST_SEATS
    ]
    for records in (entries, corrections, withdrawals):
        topic.extend(records)
    return Appended(len(entries), len(corrections), len(withdrawals))


def _rows() -> Iterator[dict[str, str]]:
    return csv.DictReader((data_folder() / "planes.csv").read_text().splitlines())


def _record(row: dict[str, str], timestamp_ms: int) -> logstore.NewRecord:
    value = {
        "manufacturer": row["manufacturer"],
        "model": row["model"],
        "seats": int(row["seats"]),
        "built": None if row["year"] == "NA" else int(row["year"]),
    }
    return logstore.NewRecord(
        key=row["tailnum"].encode(),
        value=json.dumps(value, separators=(",", ":")).encode(),
        timestamp_ms=timestamp_ms,
    )
