"""Holds what was noted of jobs, and what a directory has, against what was promised."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import NamedTuple

from tests.queues.lives import DELIVERY_LIMIT, POISON, Seen

Place = tuple[int, int]
"""Partition and offset."""


class _Given(NamedTuple):
    """The last delivery of a record."""

    life: int
    worker: str
    delivery_count: int
    began_ms: int
    """When its lock began, at the earliest."""
    is_free: bool = False
    """Whether the worker has given it back."""


class Effects:
    """Of all processes that have worked on one directory so far."""

    def __init__(self, lock_ms: int) -> None:
        self.lock_ms = lock_ms
        self.kills = 0
        self.deliveries = 0
        self.again = 0
        """Deliveries of what was delivered before."""
        self.taken_over = 0
        """Deliveries of what another worker of the process had for too long."""
        self.finished: set[Place] = set()
        """The work was done."""
        self.sent: set[Place] = set()
        """And it was said to the group: never again."""
        self._begun: Counter[Place] = Counter()
        self._given: dict[Place, _Given] = {}
        self._last_life: dict[Place, int] = {}
        self._unsent: dict[str, set[Place]] = defaultdict(set)
        self._letters: Counter[Place] = Counter()
        self._sent_before: set[Place] = set()
        self._size_bytes = 0

    def read(self, path: str) -> None:
        """What one process has noted, which was killed then.

        Raises:
            AssertionError: a record was with two workers, its count is wrong, or it came after it was done.
        """
        with open(path, encoding="utf-8") as file:
            file.seek(self._size_bytes)
            text = file.read()
            self._size_bytes = file.tell()
        for line in text.splitlines():
            what, worker, *numbers = line.split(" ")
            self._note(what, worker, list(map(int, numbers)))
        self._unsent.clear()
        self.kills += 1

    def _note(self, what: str, worker: str, numbers: list[int]) -> None:
        if what == "given":
            partition, first, last, count, began_ms, now_ms = numbers
            for offset in range(first, last + 1):
                self._give((partition, offset), worker, count, began_ms, now_ms)
        elif what == "sent":
            self.sent |= self._unsent.pop(worker, set())
        elif what == "lost":
            self._unsent.pop(worker, None)
        elif what == "leave":
            for place, given in self._given.items():
                if given.worker == worker:
                    self._given[place] = given._replace(is_free=True)
        else:
            self._say(what, worker, (numbers[0], numbers[1]), numbers[2])

    def _give(self, place: Place, worker: str, count: int, began_ms: int, now_ms: int) -> None:
        before = self._given.get(place)
        told = f"{place} to {worker}, delivery {count}; before: {before}"
        assert place not in self.sent, f"DONE, and given again: {told}"
        known = 0 if before is None else before.delivery_count
        unheard = self.kills if before is None else self.kills - before.life
        # A process may be killed when it has stored a delivery, and has not noted it yet.
        assert known + 1 <= count <= known + 1 + unheard, f"WRONG COUNT: {told}"
        assert count <= DELIVERY_LIMIT, f"TOO OFTEN: {told}"
        if before is not None and before.life == self.kills and not before.is_free:
            assert now_ms >= before.began_ms + self.lock_ms, f"TWO HAVE IT at {now_ms}: {told}"
            self.taken_over += 1
        self.deliveries += 1
        self.again += before is not None
        self._given[place] = _Given(self.kills, worker, count, began_ms)

    def _say(self, what: str, worker: str, place: Place, now_ms: int) -> None:
        given = self._given[place]
        if what == "begin":
            self._begun[place] += 1
            return
        if what == "end":
            self.finished.add(place)
            self._unsent[worker].add(place)
        if given.worker != worker:
            return  # it had it for too long, and hears of it when it says so
        if what == "renew":
            self._given[place] = given._replace(began_ms=now_ms)
        elif what in ("release", "reject"):
            self._given[place] = given._replace(is_free=True)

    def check(self, seen: Seen) -> None:
        """Raises AssertionError unless what the group has passed over was done, or is in the dead-letter
        topic."""
        dead = {(partition, offset) for partition, offset, _, _ in seen.letters}
        for partition, start in enumerate(seen.starts):
            for offset in range(start):
                place = partition, offset
                assert place in self.finished or place in dead, f"LOST: {place}; the group is at {start}"
        letters = Counter((partition, offset) for partition, offset, _, _ in seen.letters)
        for place, count in letters.items():
            assert count <= 1 + self.kills, f"{count} letters of {place}"
            is_late = place in self._sent_before and count > self._letters[place]
            assert not is_late, f"{place} was accepted, and then came to the dead-letter topic"
        self._letters, self._sent_before = letters, set(self.sent)
        for partition, offset, count, reason in seen.letters:
            is_poison = seen.records[partition][offset].startswith(POISON)
            assert reason == "bad" or count == DELIVERY_LIMIT, (partition, offset, count, reason)
            assert reason, f"no reason is given for {(partition, offset)}"
            assert not is_poison or reason != "bad"

    def check_all_done(self, seen: Seen) -> None:
        """At the end: nothing was left out."""
        ends = [len(values) for values in seen.records]
        assert seen.starts == ends, f"NOT ALL DONE: the group is at {seen.starts}; {self.kills} kills"
        dead = {(partition, offset) for partition, offset, _, _ in seen.letters}
        for partition, values in enumerate(seen.records):
            for offset, value in enumerate(values):
                place = partition, offset
                if value.startswith(POISON):
                    assert place in dead
                    assert place not in self.finished
                    assert self._begun[place] <= DELIVERY_LIMIT
