"""Compares the promises of writers that died with what is found.

The rules are those of the crash explorer (:mod:`tests.crash.history`). Added here: data that the kernel has
survives the death of a process, records from several threads, and the topics of a store.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NamedTuple

from tests.crash.history import Deleted, Deleting, Durable, Found, History, Truncated

NOTHING = Found(0, ())


class Stored(NamedTuple):
    """A call has returned: records below ``written`` are in the kernel, those below ``durable`` on disk."""

    written: int
    durable: int


class Begun(NamedTuple):
    """A thread is about to append its record ``number``."""

    lane: bytes
    number: int


class Returned(NamedTuple):
    """An append of a thread has returned this offset; the record is durable."""

    lane: bytes
    number: int
    offset: int


def lane_value(lane: bytes, number: int) -> bytes:
    return b"%b#%d" % (lane, number)


class Ledger(History):
    """One partition: its contents at the last check, and what its writer said since.

    ``survives_kernel``: the power failed. Otherwise only the process died.
    """

    def __init__(self, before: Found, durable: int, said: Iterable[Any], *, survives_kernel: bool) -> None:
        super().__init__(())
        self._survives_kernel = survives_kernel
        self._begun: dict[bytes, int] = {}
        self._returned: dict[bytes, dict[int, int]] = {}
        self.end = before.end
        self.start_low = self.start_high = self.durable = before.start
        for offset, value in enumerate(before.values, before.start):
            self.line[offset] = value
            self._allowed[offset] = {value}
        self._fold(Durable(max(durable, before.start) if survives_kernel else before.end))
        for note in said:
            self._fold(note)

    def _fold(self, note: Any) -> None:
        if isinstance(note, Begun):
            self._begun[note.lane] = note.number + 1
        elif isinstance(note, Returned):
            self._returned.setdefault(note.lane, {})[note.number] = note.offset
        elif isinstance(note, Stored):
            super()._fold(Durable(note.durable if self._survives_kernel else note.written))
        else:
            super()._fold(note)

    def check(self, found: Found) -> None:
        if self._begun:
            self._check_lanes(found)
            found = Found(found.start, found.values[: max(self.end - found.start, 0)])
        super().check(found)

    @staticmethod
    def _check_line(values: Sequence[bytes]) -> None:
        """A record of a thread does not name the one before it."""
        for first, second in pairwise(values):
            if b"#" not in second:
                History._check_line((first, second))

    def _check_lanes(self, found: Found) -> None:
        """Check that the old records are followed by those of each thread in order, with all whose append
        returned."""
        counts = dict.fromkeys(self._begun, 0)
        for value in found.values[max(self.end - found.start, 0) :]:
            lane = value.partition(b"#")[0]
            assert lane in counts, f"WRONG: {value[:30]!r} was appended by no thread"
            assert value == lane_value(lane, counts[lane]), (
                f"MIXED: {value[:30]!r} is not record {counts[lane]} of its thread"
            )
            counts[lane] += 1
        for lane, begun in self._begun.items():
            assert counts[lane] <= begun, f"WRONG: {lane!r} began {begun} appends, {counts[lane]} are there"
        for lane, offsets in self._returned.items():
            for number, offset in offsets.items():
                assert offset < found.end, f"LOST: record {number} of {lane!r}, offset {offset}"
                assert found.values[offset - found.start] == lane_value(lane, number), (
                    f"WRONG: record {number} of {lane!r} is not at its offset {offset}"
                )


# Topics


class At(NamedTuple):
    """Something said about one partition."""

    topic: str
    partition: int
    said: Any


class Making(NamedTuple):
    """A topic is about to be created."""

    topic: str
    count: int


class Made(NamedTuple):
    topic: str


class Growing(NamedTuple):
    """A topic is about to have ``count`` partitions."""

    topic: str
    count: int


class Grown(NamedTuple):
    topic: str
    count: int


class Dropping(NamedTuple):
    """A topic is about to be deleted."""

    topic: str


class Dropped(NamedTuple):
    topic: str


class Seen(NamedTuple):
    """A partition as it is found."""

    found: Found
    durable: int


def is_promise(said: Any) -> bool:
    """Whether it says that something is done, and not that it may happen."""
    inner = said.said if isinstance(said, At) else said
    return isinstance(inner, Stored | Durable | Returned | Deleted | Truncated | Made | Grown | Dropped)


class _Topic:
    """What may exist of one topic."""

    def __init__(self, counts: set[int], partitions: list[Seen], *, may_be_absent: bool) -> None:
        self.counts = counts
        self.partitions = partitions
        self.may_be_absent = may_be_absent
        self.said: dict[int, list[Any]] = {}


class StoreLedger:
    """A whole store: which topics may exist, and what each partition may contain.

    ``has_retention``: background work may delete from the beginning at any time, without saying so.
    """

    def __init__(
        self,
        before: Mapping[str, list[Seen]],
        said: Iterable[Any],
        *,
        survives_kernel: bool,
        has_retention: bool,
    ) -> None:
        self._survives_kernel = survives_kernel
        self._by_itself = [Deleting(2**62)] if has_retention else []
        self._topics = {
            name: _Topic({len(partitions)}, partitions, may_be_absent=False)
            for name, partitions in before.items()
        }
        for note in said:
            self._fold(note)

    def _fold(self, note: Any) -> None:
        if isinstance(note, At):
            self._topics[note.topic].said.setdefault(note.partition, []).append(note.said)
        elif isinstance(note, Making):
            self._topics[note.topic] = _Topic({note.count}, [], may_be_absent=True)
        elif isinstance(note, Made):
            self._topics[note.topic].may_be_absent = False
        elif isinstance(note, Growing):
            self._topics[note.topic].counts.add(note.count)
        elif isinstance(note, Grown):
            self._topics[note.topic].counts = {note.count}
        elif isinstance(note, Dropping):
            self._topics[note.topic].may_be_absent = True
        elif isinstance(note, Dropped):
            del self._topics[note.topic]

    def check(self, found: Mapping[str, list[Seen]]) -> None:
        for name, topic in self._topics.items():
            assert name in found or topic.may_be_absent, f"LOST: topic {name}"
        for name, partitions in found.items():
            assert name in self._topics, f"WRONG: topic {name} was never made, or was deleted"
            self._check_topic(name, self._topics[name], partitions)

    def _check_topic(self, name: str, topic: _Topic, partitions: list[Seen]) -> None:
        assert len(partitions) in topic.counts, (
            f"WRONG: topic {name} has {len(partitions)} partitions; it may have {topic.counts}"
        )
        for number, seen in enumerate(partitions):
            known = number < len(topic.partitions)
            before, durable = topic.partitions[number] if known else Seen(NOTHING, 0)
            said = [*self._by_itself, *topic.said.get(number, [])]
            try:
                Ledger(before, durable, said, survives_kernel=self._survives_kernel).check(seen.found)
            except AssertionError as error:
                raise AssertionError(f"{name}-{number}: {error}") from error
