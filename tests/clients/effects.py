"""Holds what a directory has, and what was done with its records, against what was promised."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from tests.clients.lives import (
    LEAST,
    MOST,
    PARTITION_COUNT,
    Committed,
    Committing,
    Delivered,
    Done,
    Origin,
    Seen,
)

GROUPS = (LEAST, MOST)
_NOWHERE = -1


class Effects:
    """Of all processes that have worked on one directory so far."""

    def __init__(self) -> None:
        self.delivered: dict[tuple[int, int], bytes] = {}
        self.done_count = 0
        self.again_count = 0
        """How often the work on a record was done once more, after a crash or a rebalance."""
        self._done: dict[str, list[list[bytes | None]]] = {
            group: [[] for _ in range(PARTITION_COUNT)] for group in GROUPS
        }
        """For each offset the value that was worked on; None for one that was left out."""
        self._promised: dict[str, list[int]] = {group: [0] * PARTITION_COUNT for group in GROUPS}
        self._possible: dict[str, list[set[int]]] = {
            group: [{0} for _ in range(PARTITION_COUNT)] for group in GROUPS
        }
        self._records: list[list[bytes]] = [[] for _ in range(PARTITION_COUNT)]

    def add(self, said: Iterable[Any]) -> None:
        """What a process has said.

        Raises:
            AssertionError: the order of the work on a partition is wrong, or an offset went back.
        """
        for note in said:
            if isinstance(note, Delivered):
                place = note.partition, note.offset
                assert place not in self.delivered, f"two records at {place}: {note}"
                self.delivered[place] = note.value
            elif isinstance(note, Committing):
                for partition, offset in note.offsets.items():
                    self._possible[note.group][partition].add(offset)
            elif isinstance(note, Committed):
                for partition, offset in note.offsets.items():
                    before = self._promised[note.group][partition]
                    assert offset > before, f"{note.group!r} went back from {before}: {note}"
                    self._promised[note.group][partition] = offset
            elif isinstance(note, Done):
                self._do(note)

    def _do(self, note: Done) -> None:
        done = self._done[note.group][note.partition]
        self.done_count += 1
        if note.group == MOST:
            assert note.offset >= len(done), f"TWICE: {note}"
            done += [None] * (note.offset - len(done))
        else:
            assert note.offset <= len(done), f"LEFT OUT: all between {len(done)} and {note}"
        if note.offset < len(done):
            self.again_count += 1
            assert done[note.offset] == note.value, f"another record than before: {note}"
        else:
            done.append(note.value)

    def check(self, seen: Seen) -> None:
        """Raises AssertionError unless all is there that must be."""
        self._check_records(seen.records)
        for group in GROUPS:
            for partition in range(PARTITION_COUNT):
                self._check_group(group, partition, seen)
            assert seen.states[group] in ("Empty", "Stable", "Dead"), seen.states
            assert seen.states[group] != "Dead" or not seen.committed[group], seen.states
        self._records = seen.records

    def _check_records(self, records: list[list[bytes]]) -> None:
        for (partition, offset), value in self.delivered.items():
            found = records[partition][offset : offset + 1]
            assert found == [value], (
                f"LOST: {value!r} at {partition}/{offset} was acknowledged; there is {found}"
            )
        next_numbers: dict[Origin, int] = defaultdict(int)
        for partition, values in enumerate(records):
            earlier = self._records[partition]
            assert values[: len(earlier)] == earlier, f"partition {partition} has lost what was there before"
            for offset, value in enumerate(values):
                origin = Origin.of(value)
                lane = origin._replace(number=0)
                assert origin.number == next_numbers[lane], (
                    f"{origin} at {partition}/{offset}; the next of its key is {next_numbers[lane]}"
                )
                next_numbers[lane] += 1

    def _check_group(self, group: str, partition: int, seen: Seen) -> None:
        offset = seen.committed[group].get(partition, 0)
        what = f"{group!r} has committed {offset} for partition {partition}"
        assert offset >= self._promised[group][partition], (
            f"{what}; it was {self._promised[group][partition]}"
        )
        assert offset in self._possible[group][partition], f"{what}, which nobody did"
        assert offset <= len(seen.records[partition]), f"{what}, above the end"
        self._promised[group][partition] = offset
        done = self._done[group][partition]
        for at, value in enumerate(done):
            assert value is None or seen.records[partition][at] == value, (
                f"work was done on {value!r} at {partition}/{at}, which is {seen.records[partition][at]!r}"
            )
        if group == LEAST:
            assert len(done) >= offset, f"{what}, and work was done on {len(done)} only"
        else:
            assert len(done) <= offset, f"{what}, and work was done on more: {len(done)}"

    def check_all_done(self) -> None:
        """At the end: nothing was left out."""
        for partition, values in enumerate(self._records):
            assert self._done[LEAST][partition] == values

    @property
    def record_count(self) -> int:
        return sum(map(len, self._records))
