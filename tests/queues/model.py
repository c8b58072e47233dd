"""What a group may get, by the rules: of each record whether it is available, who has it, and how often it
was delivered. Knows no files and no broker."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from logstore.model import TopicPartition


class Place(NamedTuple):
    """A record of a topic, which may have been made again under its name."""

    life: int
    """Which of the topics of that name."""
    partition: TopicPartition
    offset: int


@dataclass
class Known:
    """What the group knows of a record."""

    delivery_count: int = 0
    worker: int | None = None
    """Who has it."""
    deadline_ms: int = 0
    available_at_ms: int = 0
    is_over: bool = False
    """Accepted, or dead."""


@dataclass
class Group:
    """The records of one group."""

    delivery_count_limit: int
    lock_ms: int
    records: dict[Place, Known] = field(default_factory=dict)
    starts: dict[tuple[int, TopicPartition], int] = field(default_factory=dict)
    """Where the group begins, in each partition that it has taken up."""
    dead: list[Place] = field(default_factory=list)
    """What has gone to the dead-letter topic."""
    gone: set[Place] = field(default_factory=set)
    """What retention or compaction has taken: if it dies, there is no letter."""

    def known(self, place: Place) -> Known:
        return self.records.setdefault(place, Known())

    def is_available(self, place: Place, monotonic_ms: int, now_ms: int) -> bool:
        start = self.starts.get((place.life, place.partition))
        if start is None or place.offset < start:
            return False
        known = self.records.get(place)
        return known is None or not (
            known.is_over or known.worker is not None or known.available_at_ms > now_ms
        )

    def pass_time(self, monotonic_ms: int) -> None:
        """Locks run out."""
        for place, known in self.records.items():
            if known.worker is not None and known.deadline_ms <= monotonic_ms:
                self.give_back(place)

    def take(self, place: Place, worker: int, monotonic_ms: int) -> Known:
        known = self.known(place)
        known.delivery_count += 1
        known.worker, known.deadline_ms, known.available_at_ms = worker, monotonic_ms + self.lock_ms, 0
        return known

    def has(self, place: Place, worker: int, delivery_count: int) -> bool:
        known = self.known(place)
        return known.worker == worker and known.delivery_count == delivery_count

    def accept(self, place: Place) -> None:
        known = self.known(place)
        known.worker, known.is_over = None, True

    def give_back(self, place: Place, available_at_ms: int = 0) -> None:
        known = self.known(place)
        known.worker = None
        if known.delivery_count >= self.delivery_count_limit:
            self.reject(place)
        else:
            known.available_at_ms = available_at_ms

    def reject(self, place: Place) -> None:
        self.accept(place)
        if place not in self.gone:
            self.dead.append(place)

    def leave(self, worker: int | None = None) -> None:
        """One worker leaves, or all of them."""
        for place, known in self.records.items():
            if known.worker is not None and worker in (None, known.worker):
                self.give_back(place)

    def lowest_undone(self, places: list[Place]) -> int | None:
        """The lowest offset of these that is not over."""
        undone = [each.offset for each in places if not self.known(each).is_over]
        return min(undone, default=None)
