"""Partitions that logstore wrote, under Kafka's dump tool: it finds no fault and lists what we wrote.

The tool runs once over every topic, closed and recovered after a crash; that it raises nothing is the first
promise kept, for all tests here.
"""

from __future__ import annotations

from pathlib import Path
from unittest.mock import ANY

import pytest

from tests.interop.clients import SeenRecord
from tests.interop.dump import DUMPED_SUFFIXES, DumpedFile, DumpedRecord, dump_log
from tests.interop.kafka import require_kafka
from tests.interop.ours import Written
from tests.interop.scripts import CLOSED, CODECS, RECOVERED, TOPICS, write_topics

pytestmark = pytest.mark.interop

Dumped = dict[Path, DumpedFile]

every_topic = pytest.mark.parametrize("topic", TOPICS)
closed_or_recovered = pytest.mark.parametrize("variant", [CLOSED, RECOVERED], ids=["closed", "recovered"])


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    require_kafka()
    return write_topics(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def dumped(topics: dict[str, Written]) -> Dumped:
    """Gaps are allowed because followers' logs have them; the offsets are compared below."""
    directories = [written.directories[n] for written in topics.values() for n in (CLOSED, RECOVERED)]
    return dump_log(directories, allow_gaps=True)


def files_of(dumped: Dumped, directory: Path, suffix: str) -> list[DumpedFile]:
    return [dumped[path] for path in sorted(dumped) if path.parent == directory and path.suffix == suffix]


@every_topic
@closed_or_recovered
def test_the_tool_lists_our_records(
    topics: dict[str, Written], dumped: Dumped, topic: str, variant: int
) -> None:
    written = topics[topic]
    listed = [
        record
        for file in files_of(dumped, written.directories[variant], ".log")
        for record in file.records
        if "endTxnMarker" not in record.text and record.offset >= written.log_start_offset
    ]
    sequences = written.sequences
    assert listed == [as_listed(record, sequences.get(record.offset, -1)) for record in written.records]


def as_listed(record: SeenRecord, sequence: int) -> DumpedRecord:
    """A record as the tool prints it. It prints in the JVM's encoding, so other letters than ASCII differ."""
    parts = [
        f"{name}: {content.decode()}"
        for name, content in (("key", record.key), ("payload", record.value))
        if content is not None
    ]
    return DumpedRecord(
        offset=record.offset,
        timestamp_ms=record.timestamp_ms,
        timestamp_type=record.timestamp_type,
        key_size=-1 if record.key is None else len(record.key),
        value_size=-1 if record.value is None else len(record.value),
        sequence=sequence,
        header_keys=tuple(name if name.isascii() else ANY for name, _ in record.headers),
        text=" ".join(parts).strip(),
    )


@closed_or_recovered
@pytest.mark.parametrize("codec", CODECS)
def test_batches_have_the_topics_codec(
    topics: dict[str, Written], dumped: Dumped, codec: str, variant: int
) -> None:
    [log] = files_of(dumped, topics[f"codec-{codec}"].directories[variant], ".log")
    assert {batch["compresscodec"] for batch in log.batches} == {codec}
    assert all(batch["isvalid"] == "true" for batch in log.batches)


@every_topic
@closed_or_recovered
def test_the_tool_lists_our_aborted_transactions(
    topics: dict[str, Written], dumped: Dumped, topic: str, variant: int
) -> None:
    written = topics[topic]
    listed = [
        tuple(int(entry[name]) for name in ("producerId", "firstOffset", "lastOffset", "lastStableOffset"))
        for file in files_of(dumped, written.directories[variant], ".txnindex")
        for entry in file.entries
    ]
    assert listed == list(written.aborted)


@every_topic
@closed_or_recovered
def test_the_last_snapshot_has_our_producers(
    topics: dict[str, Written], dumped: Dumped, topic: str, variant: int
) -> None:
    written = topics[topic]
    path = written.directories[variant] / f"{written.log_end_offset:020d}.snapshot"
    if topic == "empty":  # which needs none
        assert path not in dumped
        return
    snapshot = dumped[path]
    last_sequences = {int(entry["producerId"]): int(entry["lastSequence"]) for entry in snapshot.entries}
    assert last_sequences == written.last_sequences


@closed_or_recovered
def test_the_snapshot_knows_the_open_transaction(
    topics: dict[str, Written], dumped: Dumped, variant: int
) -> None:
    written = topics["open-transaction"]
    [entry] = dumped[written.directories[variant] / f"{written.log_end_offset:020d}.snapshot"].entries
    assert str(written.last_stable_offset) in entry["currentTxnFirstOffset"]


@closed_or_recovered
@pytest.mark.parametrize("topic", ["segments", "segments-indexed", "idempotent", "transactions-segments"])
def test_the_indexes_of_every_full_segment_are_filled(
    topics: dict[str, Written], dumped: Dumped, topic: str, variant: int
) -> None:
    directory = topics[topic].directories[variant]
    for suffix in (".index", ".timeindex"):
        *full, _ = files_of(dumped, directory, suffix)
        assert full
        assert all(file.entries for file in full)


@every_topic
@closed_or_recovered
def test_the_tool_saw_every_file(
    topics: dict[str, Written], dumped: Dumped, topic: str, variant: int
) -> None:
    directory = topics[topic].directories[variant]
    bases = {path.stem for path in directory.glob("*.log")}
    for suffix in (".index", ".timeindex"):
        assert {path.stem for path in directory.glob(f"*{suffix}")} == bases
    ours = {path for path in directory.iterdir() if path.suffix in DUMPED_SUFFIXES}
    assert ours == {path for path in dumped if path.parent == directory}
