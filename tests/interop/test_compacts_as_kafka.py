"""Logs that a broker's own cleaner went over, compacted by logstore from the same files: the same is left.

A second and a third round begin with what Kafka's cleaner left of the one before, so logstore goes on over a
log that another has cleaned. What a cleaner may do as it likes is told in `cleaned`.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from logstore import Log, TopicConfig
from logstore.format.control import ControlType
from logstore.partition.compaction_report import CompactionReport
from logstore.testing import ManualClock
from tests.interop.cleaned import Left, left_in
from tests.interop.cleaner_rounds import (
    CLEANER_OFFSETS_FILE,
    ROUNDS,
    SEGMENT_BYTES,
    CleanerRound,
    load_rounds,
    run_rounds,
)
from tests.interop.fixtures import CLEANER_ROUNDS
from tests.interop.kafka import require_kafka, write_checkpoint
from tests.interop.ours import add_checkpoints

every_round = pytest.mark.parametrize(
    ("topic", "turn"), [(topic, turn) for turn, topics in ROUNDS.items() for topic in topics]
)

Rounds = Mapping[tuple[str, int], CleanerRound]


@pytest.fixture(scope="module")
def rounds() -> Rounds:
    return load_rounds(CLEANER_ROUNDS)


def compact(round_: CleanerRound, directory: Path) -> tuple[Left, CompactionReport]:
    """Compact a copy of the log, at the time when the broker's cleaner did, and see what is left."""
    config = TopicConfig(
        cleanup_policy="compact",
        segment_bytes=SEGMENT_BYTES,
        min_cleanable_dirty_ratio=0,
        delete_retention_ms=round_.delete_retention_ms,
        file_delete_delay_ms=0,
        message_timestamp_type=str(round_.config.get("message.timestamp.type", "CreateTime")),
    )
    copy = directory / round_.before.name
    shutil.copytree(round_.before, copy)
    # As if closed: a recovery would build the transaction indexes anew, from what is left of a transaction.
    add_checkpoints(copy, 0, round_.log_end_offset)
    if round_.offset_before is not None:
        write_checkpoint(copy / CLEANER_OFFSETS_FILE, {(round_.topic, 0): round_.offset_before})
    with Log.open(str(copy), config=config, clock=ManualClock(clock_of(round_))) as log:
        assert log.recovery.was_clean
        report = log.compact()
        assert log.verify()
    return left_in(copy), report


def clock_of(round_: CleanerRound) -> int:
    """When the broker's cleaner was there, to the millisecond: the horizons that it has set say so."""
    new_ms = left_in(round_.after).horizons_ms - left_in(round_.before).horizons_ms
    assert len(new_ms) <= 1
    return new_ms.pop() - round_.delete_retention_ms if new_ms else round_.now_ms


def check_round(round_: CleanerRound, directory: Path) -> None:
    """Compact and compare."""
    theirs = left_in(round_.after)
    ours, report = compact(round_, directory)
    if report.first_dirty_offset_after > round_.offset_after:
        check_further(ours, theirs, report.first_dirty_offset_after)
        return
    assert report.first_dirty_offset_after == round_.offset_after
    assert ours.records == theirs.records
    assert ours.tombstones == theirs.tombstones
    assert ours.markers == theirs.markers
    assert ours.producers == theirs.producers
    assert ours.aborted == theirs.aborted
    assert ours.base_offsets == theirs.base_offsets


def check_further(ours: Left, theirs: Left, end: int) -> None:
    """Kafka's cleaner stops in front of the segment that has the last stable offset, and we at that offset,
    ``end``: the keys in between supersede more records."""
    assert end not in theirs.base_offsets
    latest = {record.key: record.offset for record in theirs.records if record.offset < end}
    left = [each for each in theirs.records if each.offset >= end or latest[each.key] == each.offset]
    assert ours.records == tuple(left)
    assert len(left) < len(theirs.records)
    assert ours.markers == theirs.markers
    assert ours.aborted == theirs.aborted
    assert ours.base_offsets == theirs.base_offsets


@every_round
def test_what_is_left_is_what_kafkas_cleaner_leaves(
    rounds: Rounds, topic: str, turn: int, tmp_path: Path
) -> None:
    check_round(rounds[topic, turn], tmp_path)


def test_the_rounds_hold_what_there_is_to_decide(rounds: Rounds) -> None:
    """The broker's cleaner has met every case: nothing above is equal because it is empty."""
    befores = {name: left_in(round_.before) for name, round_ in rounds.items()}
    afters = {name: left_in(round_.after) for name, round_ in rounds.items()}
    for name, round_ in rounds.items():
        before, after = befores[name], afters[name]
        assert len(after.records) < len(before.records), name
        # What is above the round's end stays.
        kept = [record for record in before.records if record.offset >= round_.offset_after]
        assert kept == [record for record in after.records if record.offset >= round_.offset_after]
    for topic in ("codecs", "transactions"):
        # A tombstone whose time is over goes, though it is the latest of its key; until then it stays.
        assert b"gone-1" in keys_of(afters[f"{topic}-short", 1])
        assert b"gone-1" not in keys_of(afters[f"{topic}-short", 2])
        assert {b"gone-1", b"gone-2"} <= keys_of(afters[f"{topic}-long", 2])
    for kind in (ControlType.ABORT, ControlType.COMMIT):
        # So does a marker; it has its horizon from the first round that meets no data of its transaction.
        short, long = (
            markers_with_horizon(afters[f"transactions-{name}", 2], kind) for name in ("short", "long")
        )
        assert short
        assert not short <= offsets_of_markers(afters["transactions-short", 3])
        assert long
        assert long <= offsets_of_markers(afters["transactions-long", 3])
    assert afters["transactions-long", 1].aborted
    assert afters["transactions-long", 2].aborted
    assert len(afters["producers", 1].emptied) >= 3
    assert len(afters["producers", 2].emptied) >= 3
    keyless = [each for each in befores["codecs-long", 1].records if each.key is None]
    assert set(keyless) - set(afters["codecs-long", 1].records)
    assert {each.timestamp_type for each in afters["append-time", 2].records} == {"LogAppendTime"}
    assert any(each.headers for each in afters["codecs-long", 2].records)


def keys_of(left: Left) -> set[bytes | None]:
    return {record.key for record in left.records}


def offsets_of_markers(left: Left) -> set[int]:
    return {marker.offset for marker in left.markers}


def markers_with_horizon(left: Left, kind: ControlType) -> set[int]:
    return {marker.offset for marker in left.markers if marker.kind is kind and marker.delete_horizon_ms}


@pytest.mark.interop
def test_the_cleaner_of_a_broker_that_runs_agrees(tmp_path: Path) -> None:
    """The same with other records: the committed ones may be lucky."""
    require_kafka()
    seed = random.randrange(1000)
    print(f"seed {seed}")
    run_rounds(tmp_path / "kafka", tmp_path / "rounds", seed=seed)
    for (topic, turn), round_ in load_rounds(tmp_path / "rounds").items():
        check_round(round_, tmp_path / f"ours-{turn}-{topic}")
