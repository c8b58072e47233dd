"""Logs that a broker's own cleaner went over, compacted by logstore from the same files: the same is left.

A second and a third round begin with what Kafka's cleaner left of the one before, so logstore goes on over a
log that another has cleaned. What a cleaner may do as it likes is told in `cleaned`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from logstore.format.control import ControlType
from tests.interop.cleaned import Left, check_round, left_in
from tests.interop.cleaner_rounds import ROUNDS, CleanerRound, load_rounds, run_rounds
from tests.interop.fixtures import CLEANER_ROUNDS
from tests.interop.kafka import require_kafka
from tests.rotation import in_turn, seed_of_turn

every_round = pytest.mark.parametrize(
    ("topic", "turn"), [(topic, turn) for turn, topics in ROUNDS.items() for topic in topics]
)

Rounds = Mapping[tuple[str, int], CleanerRound]


@pytest.fixture(scope="module")
def rounds() -> Rounds:
    return load_rounds(CLEANER_ROUNDS)


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
    assert any(
        batch.producer_id < 0 for batch in afters["codecs-long", 1].emptied
    )  # for where the round ended
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
@in_turn(5, 8)
def test_the_cleaner_of_a_broker_that_runs_agrees(tmp_path: Path) -> None:
    """The same with other records: the committed ones may be lucky."""
    require_kafka()
    run_rounds(tmp_path / "kafka", tmp_path / "rounds", seed=seed_of_turn())
    for (topic, turn), round_ in load_rounds(tmp_path / "rounds").items():
        check_round(round_, tmp_path / f"ours-{turn}-{topic}")
