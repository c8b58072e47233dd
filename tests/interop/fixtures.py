"""The committed partition directories that a stock Kafka wrote, and what its consumer saw of them.

A case is a folder of `data/`, laid out as a log directory: partition directories and, beside them,
`expected.json`. `make_data` writes cases, tests read them through `load_case`; both use the encoding declared
here.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.interop.clients import SeenRecord

DATA = Path(__file__).resolve().parent / "data"
EXPECTED_FILE = "expected.json"
CLEANER_ROUNDS = DATA / "cleaner-rounds"
"""What Kafka's cleaner found and left; `cleaner_rounds` reads it."""

# A longer value is stored as a repeated piece when it is one; this keeps the codec cases small.
REPEAT_ABOVE = 1024


@dataclass(frozen=True, kw_only=True)
class ExpectedPartition:
    """What Kafka's consumer saw of one partition directory.

    `records` is the read_uncommitted view, `committed` the read_committed one. `log_end_offset` is where the
    former ends, `last_stable_offset` where the latter does.
    """

    directory: Path
    topic: str
    partition: int
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int
    records: tuple[SeenRecord, ...]
    committed: tuple[SeenRecord, ...]


@dataclass(frozen=True, kw_only=True)
class Case:
    """A folder of `data/`: `directory` can be copied and used as a log directory."""

    name: str
    directory: Path
    kafka_version: str
    partitions: tuple[ExpectedPartition, ...]


def case_names(prefix: str = "") -> list[str]:
    """The names of all cases, or of those with a prefix ("codec-", "legacy-"), sorted; for parametrize."""
    return sorted(path.parent.name for path in DATA.glob(f"{prefix}*/{EXPECTED_FILE}"))


def load_case(name: str) -> Case:
    directory = DATA / name
    stored = json.loads((directory / EXPECTED_FILE).read_text())
    return Case(
        name=name,
        directory=directory,
        kafka_version=stored["kafka_version"],
        partitions=tuple(_decode_partition(directory, each) for each in stored["partitions"]),
    )


def store_expected(directory: Path, kafka_version: str, partitions: Sequence[ExpectedPartition]) -> None:
    """Write expected.json, one record per line so that a change shows as changed records."""
    head = {"kafka_version": kafka_version, "partitions": []}
    text = json.dumps(head)[: -len("]}")]
    text += ",".join("\n" + _encode_partition(each) for each in partitions)
    (directory / EXPECTED_FILE).write_text(text + "\n]}\n")


def _encode_partition(seen: ExpectedPartition) -> str:
    head = {
        "topic": seen.topic,
        "partition": seen.partition,
        "log_start_offset": seen.log_start_offset,
        "log_end_offset": seen.log_end_offset,
        "last_stable_offset": seen.last_stable_offset,
        "read_committed": [record.offset for record in seen.committed],
        "records": [],
    }
    lines = ",".join("\n" + json.dumps(encode_record(record)) for record in seen.records)
    return json.dumps(head)[: -len("]}")] + lines + "]}"


def _decode_partition(directory: Path, stored: dict[str, Any]) -> ExpectedPartition:
    records = tuple(decode_record(each) for each in stored["records"])
    committed = set(stored["read_committed"])
    return ExpectedPartition(
        directory=directory / f"{stored['topic']}-{stored['partition']}",
        topic=stored["topic"],
        partition=stored["partition"],
        log_start_offset=stored["log_start_offset"],
        log_end_offset=stored["log_end_offset"],
        last_stable_offset=stored["last_stable_offset"],
        records=records,
        committed=tuple(record for record in records if record.offset in committed),
    )


def encode_record(record: SeenRecord) -> dict[str, Any]:
    return {
        "offset": record.offset,
        "timestamp": record.timestamp_ms,
        "timestamp_type": record.timestamp_type,
        "leader_epoch": record.leader_epoch,
        "key": encode_bytes(record.key),
        "value": encode_bytes(record.value),
        "headers": [[name, encode_bytes(value)] for name, value in record.headers],
    }


def decode_record(stored: dict[str, Any]) -> SeenRecord:
    return SeenRecord(
        offset=stored["offset"],
        timestamp_ms=stored["timestamp"],
        timestamp_type=stored["timestamp_type"],
        leader_epoch=stored["leader_epoch"],
        key=decode_bytes(stored["key"]),
        value=decode_bytes(stored["value"]),
        headers=tuple((name, decode_bytes(value)) for name, value in stored["headers"]),
    )


def encode_bytes(value: bytes | None) -> str | dict[str, Any] | None:
    """base64, or {"repeat": base64, "times": n} for a long value that repeats one piece."""
    if value is None:
        return None
    if len(value) > REPEAT_ABOVE:
        # A value equals itself rotated by its period, and by nothing shorter.
        period = (value + value).index(value, 1)
        if period < len(value):
            return {"repeat": _base64(value[:period]), "times": len(value) // period}
    return _base64(value)


def decode_bytes(stored: str | dict[str, Any] | None) -> bytes | None:
    if stored is None:
        return None
    if isinstance(stored, dict):
        return base64.b64decode(stored["repeat"]) * int(stored["times"])
    return base64.b64decode(stored)


def _base64(value: bytes) -> str:
    return base64.b64encode(value).decode("ascii")
