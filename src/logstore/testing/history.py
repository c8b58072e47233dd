"""What clients did and saw, and what must not be in it: for tests that break a system while it is used.

::

    history = History()
    history.sent("producer 1", b"17")
    history.acknowledged(b"17", "orders-0", 4)
    history.read("consumer 1", "orders-0", 4, b"17")
    assert not history.check({"orders-0": [(4, b"17")]})

Each value is sent once, so it identifies its record everywhere. The log in the end is the order of all
things, so nothing has to be searched for: checking sorts, and goes through once. Cost: 2 µs for each event.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping
from enum import StrEnum
from itertools import accumulate, chain, pairwise
from operator import index, itemgetter
from typing import NamedTuple

Client = Hashable
Partition = Hashable


class Kind(StrEnum):
    """What is wrong."""

    LOST = "lost"
    """It was acknowledged, and is not there."""
    PHANTOM = "phantom"
    """It is there, or was read, and was never sent, or was refused or aborted."""
    DUPLICATE = "duplicate"
    """It is there twice, or shares its offset with another one."""
    MOVED = "moved"
    """It was acknowledged or read at another offset than it has in the end."""
    REORDERED = "reordered"
    """It was sent when another was acknowledged already, and is in front of that."""
    OUT_OF_ORDER = "out of order"
    """One client has sent it before another one, and it is behind that."""
    SKIPPED = "skipped"
    """A reader has read what is in front of it and what is behind it, and not this."""
    BACKWARDS = "backwards"
    """A reader has read it after what is behind it, without having been set back."""


class Anomaly(NamedTuple):
    """One thing that is wrong."""

    kind: Kind
    """A text: ``lost``, ``phantom`` (never sent, or refused), ``duplicate`` (twice, or where another one is),
    ``moved`` (is elsewhere than was told), ``reordered`` (in front of what was acknowledged before it was
    sent), ``out of order`` (of one client), ``skipped`` or ``backwards`` (by a reader)."""
    what: str
    """In words: which value, and where."""

    def __str__(self) -> str:
        return f"{self.kind.value}: {self.what}"


class _Place(NamedTuple):
    partition: Partition
    offset: int


class _Read(NamedTuple):
    partition: Partition
    offset: int
    value: Hashable


class History:
    """Is told what happens, from any thread.

    Lock: ``_lock`` guards everything.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._time = 0
        self._sent: dict[Hashable, tuple[int, Client]] = {}
        self._acknowledged: dict[Hashable, tuple[tuple[int, _Place], ...]] = {}
        """When it was first told of each place that was told; nearly always one."""
        self._refused: set[Hashable] = set()
        self._reads: defaultdict[Client, list[list[_Read]]] = defaultdict(lambda: [[]])

    def sent(self, client: Client, value: Hashable) -> None:
        """A client is about to send a value.

        Raises:
            ValueError: it was sent before.
        """
        with self._lock:
            if value in self._sent:
                raise ValueError(f"{value!r} was sent before; each value can be sent once")
            self._time += 1
            self._sent[value] = self._time, client

    def acknowledged(self, value: Hashable, partition: Partition, offset: int) -> None:
        """It was told that the value is there. What is told again counts from the first time on.

        Raises:
            ValueError: the offset is no whole number.
        """
        place = _Place(partition, _checked(offset, partition, value))
        with self._lock:
            self._time += 1
            told = self._acknowledged.get(value, ())
            if not any(place == at for _, at in told):
                self._acknowledged[value] = *told, (self._time, place)

    def refused(self, value: Hashable) -> None:
        """It was told that the value is not there, and will not be. Of what nothing was told, both may be."""
        with self._lock:
            self._refused.add(value)

    def read(self, reader: Client, partition: Partition, offset: int, value: Hashable) -> None:
        """A reader has read a value, in the order in which it reads.

        Raises:
            ValueError: the offset is no whole number.
        """
        found = _Read(partition, _checked(offset, partition, value), value)
        with self._lock:
            self._reads[reader][-1].append(found)

    def set_back(self, reader: Client) -> None:
        """The reader goes on elsewhere: it was restarted, or has other partitions now."""
        with self._lock:
            self._reads[reader].append([])

    @property
    def acknowledged_count(self) -> int:
        """How many values were acknowledged. A test with too few of them has tested nothing."""
        return len(self._acknowledged)

    def check(
        self,
        logs: Mapping[Partition, Iterable[tuple[int, Hashable]]],
        *,
        is_once: bool = True,
        is_in_order: bool = True,
    ) -> list[Anomaly]:
        """What is wrong, with what is there in the end: of each partition the offsets and the values.

        Args:
            is_once: no value may be there twice.
            is_in_order: what one client sends to a partition is there in that order.

        Raises:
            ValueError: ``logs`` is something else.
        """
        final = _sorted_logs(logs)
        with self._lock:
            places: dict[Hashable, list[_Place]] = defaultdict(list)
            for partition, log in final.items():
                for offset, value in log:
                    places[value].append(_Place(partition, offset))
            found = [
                *_check_offsets(final),
                *self._check_writes(places, is_once=is_once),
                *self._check_real_time(places),
                *self._check_reads(final, places),
            ]
            return [*found, *self._check_clients(places)] if is_in_order else found

    def _check_writes(self, places: Mapping[Hashable, list[_Place]], *, is_once: bool) -> Iterator[Anomaly]:
        yield from self._check_told(places)
        for value, there in places.items():
            if value not in self._sent:
                yield Anomaly(Kind.PHANTOM, f"{value!r} at {_shown(*there)} was never sent")
            elif value in self._refused:
                yield Anomaly(Kind.PHANTOM, f"{value!r} at {_shown(*there)} was refused")
            if is_once and len(there) > 1:
                yield Anomaly(Kind.DUPLICATE, f"{value!r} at {_shown(*there)}")

    def _check_told(self, places: Mapping[Hashable, list[_Place]]) -> Iterator[Anomaly]:
        """Whether each value is in each place that was told of it."""
        for value, told in self._acknowledged.items():
            ats = [at for _, at in told]
            if value not in places:
                yield Anomaly(Kind.LOST, f"{value!r}, which was acknowledged at {_shown(*ats)}")
                continue
            for at in ats:
                if at not in places[value]:
                    what = f"{value!r} was acknowledged at {_shown(at)}, and is at {_shown(*places[value])}"
                    yield Anomaly(Kind.MOVED, what)

    def _check_real_time(self, places: Mapping[Hashable, list[_Place]]) -> Iterator[Anomaly]:
        acknowledged: defaultdict[Partition, list[tuple[int, int]]] = defaultdict(list)
        for time, at in chain.from_iterable(self._acknowledged.values()):
            acknowledged[at.partition].append((time, at.offset))
        highest = {}
        for partition, known in acknowledged.items():
            known.sort()
            highest[partition] = list(accumulate((offset for _, offset in known), max))
        for value, there in places.items():
            if value not in self._sent:
                continue
            time, _ = self._sent[value]
            for at in there:
                before = bisect_left(acknowledged.get(at.partition, []), (time, -1))
                if before and highest[at.partition][before - 1] > at.offset:
                    last = highest[at.partition][before - 1]
                    yield Anomaly(
                        Kind.REORDERED,
                        f"{value!r} at {_shown(at)} was sent when {last} was acknowledged already",
                    )

    def _check_clients(self, places: Mapping[Hashable, list[_Place]]) -> Iterator[Anomaly]:
        by_client: defaultdict[tuple[Client, Partition], list[tuple[int, int, Hashable]]] = defaultdict(list)
        for value, (time, client) in self._sent.items():
            for at in places.get(value, [])[:1]:
                by_client[client, at.partition].append((time, at.offset, value))
        for (client, partition), sent in by_client.items():
            for (_, offset, value), (_, later_offset, later) in pairwise(sorted(sent, key=lambda e: e[0])):
                if later_offset < offset:
                    there, in_front = _Place(partition, later_offset), _Place(partition, offset)
                    what = f"{client} sent {value!r} before {later!r}, which is at {_shown(there)}"
                    yield Anomaly(Kind.OUT_OF_ORDER, f"{what}, in front of {_shown(in_front)}")

    def _check_reads(
        self, final: Mapping[Partition, list[tuple[int, Hashable]]], places: Mapping[Hashable, list[_Place]]
    ) -> Iterator[Anomaly]:
        logs = {partition: _Log(log) for partition, log in final.items()}
        for reader, runs in self._reads.items():
            for run in runs:
                right = []
                for each in run:
                    anomaly = self._check_read(reader, each, places)
                    if anomaly is None:
                        right.append(_Place(each.partition, each.offset))
                    else:
                        yield anomaly
                yield from _check_run(reader, right, logs)

    def _check_read(
        self, reader: Client, read: _Read, places: Mapping[Hashable, list[_Place]]
    ) -> Anomaly | None:
        at, value = _Place(read.partition, read.offset), read.value
        if value not in self._sent or value in self._refused:
            return Anomaly(Kind.PHANTOM, f"{reader} has read {value!r} at {_shown(at)}")
        if at not in places.get(value, []):
            have = _shown(*places[value]) if value in places else "nowhere"
            return Anomaly(Kind.MOVED, f"{reader} has read {value!r} at {_shown(at)}, and it is at {have}")
        return None


def _checked(offset: int, partition: Partition, value: Hashable) -> int:
    """A text is never the offset that is found in the end, and looks like it."""
    try:
        return index(offset)
    except TypeError:
        raise ValueError(
            f"offset of {value!r} in {partition} is {offset!r}; it must be a whole number"
        ) from None


def _sorted_logs(
    logs: Mapping[Partition, Iterable[tuple[int, Hashable]]],
) -> dict[Partition, list[tuple[int, Hashable]]]:
    try:
        return {
            partition: sorted(((index(offset), value) for offset, value in log), key=itemgetter(0))
            for partition, log in logs.items()
        }
    except (AttributeError, TypeError, ValueError) as error:
        raise ValueError(
            "logs must be a dict of each partition's offsets and values, "
            f"such as {{'orders-0': [(0, b'first')]}}: {error}"
        ) from error


def _check_offsets(final: Mapping[Partition, list[tuple[int, Hashable]]]) -> Iterator[Anomaly]:
    """Whether each offset has one value."""
    for partition, log in final.items():
        for (offset, value), (next_offset, next_value) in pairwise(log):
            if offset == next_offset and value != next_value:
                at = _shown(_Place(partition, offset))
                yield Anomaly(Kind.DUPLICATE, f"{value!r} and {next_value!r} are both at {at}")


class _Log:
    """The offsets of a partition in the end."""

    def __init__(self, log: Iterable[tuple[int, Hashable]]) -> None:
        self.offsets = [offset for offset, _ in log]
        self.numbers = {offset: number for number, offset in enumerate(self.offsets)}


def _check_run(reader: Client, places: Iterable[_Place], logs: Mapping[Partition, _Log]) -> Iterator[Anomaly]:
    """Whether one comes after the other, and none is left out."""
    last: dict[Partition, int] = {}
    for at in places:
        log = logs[at.partition]
        number = log.numbers[at.offset]
        before = last.get(at.partition, number - 1)
        last[at.partition] = number
        if number <= before:
            yield Anomaly(Kind.BACKWARDS, f"{reader} has read {_shown(at)} again, or too late")
        elif number > before + 1:
            skipped = _Place(at.partition, log.offsets[before + 1])
            yield Anomaly(Kind.SKIPPED, f"{reader} has read {_shown(at)}, and not {_shown(skipped)}")


def _shown(*places: _Place) -> str:
    return ", ".join(f"{each.partition}:{each.offset}" for each in places)
