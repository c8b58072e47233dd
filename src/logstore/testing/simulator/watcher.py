"""Sees everything that happens to a simulated partition, and reports what must not happen.

* What was below the high watermark of a leader stays, with the same records at the same offsets, on whichever
  node it is read.
* A leader has all of it when it begins, unless the election has said that it may not.
* What was acknowledged to a client is part of it.
* A leader that was not heard of takes nothing any more when another has begun. One that is to hand over may
  not have heard of it yet: what it takes meanwhile is acknowledged to nobody.
"""

from __future__ import annotations

from collections import Counter

from logstore.replica.rules.electing import Choice
from logstore.testing.simulator.model_log import SimulatedLog


class ViolationError(AssertionError):
    """Something did not hold."""


class Watcher:
    """Is told of everything as it happens."""

    def __init__(self) -> None:
        self.committed: list[int] = []
        """The value at each offset below the highest high watermark."""
        self.acknowledged: dict[int, int] = {}
        """Offsets by value."""
        self.counts: Counter[str] = Counter()
        self._newest_epoch = -1
        self._may_lose = False
        self._lost: list[tuple[int, list[int]]] = []
        """The epochs that began with a loss that was announced, and what was committed before."""
        self._seen: dict[int, int] = {}
        """Up to where each node's log was compared."""

    def note_election(self, choice: Choice) -> None:
        """The controller decides."""
        self.counts[f"elections: {choice.value}"] += 1
        self._may_lose |= choice in (Choice.LAST, Choice.UNCLEAN)

    def note_leader(self, node_id: int, epoch: int, log: SimulatedLog, *, was_handed_over: bool) -> None:
        """A term begins. ``was_handed_over``: it was ended while its leader lived. One that has not heard of
        that yet may begin it once more, after a pause in which its lease ran out."""
        self.counts["terms"] += 1
        if was_handed_over:
            return
        self._newest_epoch = max(self._newest_epoch, epoch)
        self._seen.clear()
        have = log.values(0, len(self.committed))
        if have != self.committed:
            if not self._may_lose:
                raise ViolationError(f"node {node_id} leads in epoch {epoch} without all that was committed")
            self._forget_from(_common(have, self.committed))
        self._may_lose = False

    def _forget_from(self, offset: int) -> None:
        self.counts["losses that were announced"] += 1
        self._lost.append((self._newest_epoch, self.committed.copy()))
        for value in self.committed[offset:]:
            self.acknowledged.pop(value, None)
        del self.committed[offset:]

    def note_append(self, node_id: int, epoch: int, *, was_handed_over: bool) -> None:
        """A leader takes a record. ``was_handed_over``: its term was ended while it lived."""
        self.counts["appends"] += 1
        if epoch < self._newest_epoch and not was_handed_over:
            raise ViolationError(
                f"node {node_id} still writes in epoch {epoch}, and {self._newest_epoch} has begun"
            )

    def note_high_watermark(self, log: SimulatedLog, offset: int) -> None:
        """A leader moves it."""
        self.committed += log.values(len(self.committed), offset)

    def note_acknowledged(self, value: int, offset: int) -> None:
        """A client was told that its record is there."""
        self.counts["acknowledged"] += 1
        if len(self.committed) <= offset or self.committed[offset] != value:
            raise ViolationError(f"value {value} was acknowledged at {offset}, and is not committed there")
        self.acknowledged[value] = offset

    def note_cut(self, node_id: int, offset: int) -> None:
        """A log was cut there."""
        self._seen[node_id] = min(self._seen.get(node_id, 0), offset)

    def check_readable(self, node_id: int, log: SimulatedLog) -> None:
        """What a node shows. What was compared before is not compared again.

        Raises:
            ViolationError: that is not what was committed.
        """
        end, seen = log.high_watermark, self._seen.get(node_id, 0)
        committed = self._committed_for(log)
        if end > len(committed):
            raise ViolationError(f"node {node_id} shows offsets up to {end}, which are not committed")
        if log.values(seen, end) != committed[seen:end]:
            raise ViolationError(f"node {node_id} shows other records than were committed")
        self._seen[node_id] = max(seen, end)

    def _committed_for(self, log: SimulatedLog) -> list[int]:
        """A node that has not heard of a loss yet shows what was committed before."""
        epoch = log.last_epoch()
        return next((before for lost_in, before in self._lost if epoch < lost_in), self.committed)


def _common(have: list[int], wanted: list[int]) -> int:
    """Up to where both are the same."""
    pairs = zip(have, wanted, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(have), len(wanted)))
