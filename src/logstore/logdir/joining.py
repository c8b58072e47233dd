"""The records of a topic's partitions as one sequence: all that there are, or as they come.

Each partition's records stay in the order of their offsets. Between partitions the order is that of the
timestamps, or one partition comes after the other. Knows logs as readers do; takes no lock.
"""

from __future__ import annotations

import heapq
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack
from datetime import datetime
from itertools import chain
from operator import attrgetter
from typing import Any, Final, Literal

from logstore.arguments import shown
from logstore.errors import UsageError
from logstore.model import Isolation, Record
from logstore.partition.log import Log
from logstore.partition.reading.readable import ReadableLog
from logstore.partition.reading.times import OffsetOrTime

Order = Literal["timestamp", "partition"]
Start = Literal["earliest", "latest"] | datetime | Mapping[int, OffsetOrTime]
"""Where a reader of several partitions begins: at their beginnings, at their ends, at a time, or at an offset
or a time for each. A partition that a mapping leaves out is read from its beginning."""
Stop = datetime | Mapping[int, OffsetOrTime]
"""Where one ends. A partition that a mapping leaves out is read to its end."""

_LOOK_EVERY_SECONDS: Final = 1.0
"""How long a follower waits at most before it asks for new partitions."""
_FIRST_PAUSE_SECONDS: Final = 0.002
_LONGEST_PAUSE_SECONDS: Final = 0.02
"""Between the looks of a follower that nobody tells of changes."""

Logs = Mapping[int, ReadableLog]
"""By partition."""


def check_order(order: Any) -> bool:
    """Whether partitions are merged by timestamp.

    Raises:
        UsageError: it is not one of the two.
    """
    if isinstance(order, str) and order in ("timestamp", "partition"):
        return order == "timestamp"
    raise UsageError(f"order is {shown(order)}; it must be 'timestamp' or 'partition'")


def check_start(start: Any, partition_count: int) -> Start:
    """
    Raises:
        UsageError: it is no :data:`Start`, or names a partition that the topic does not have.
    """
    if isinstance(start, str) and start in ("earliest", "latest"):
        return "earliest" if start == "earliest" else "latest"
    return _check_place(start, "start", "'earliest', 'latest', a datetime", partition_count)


def check_stop(stop: Any, partition_count: int) -> Stop:
    """
    Raises:
        UsageError: it is neither a time nor a mapping from the topic's partitions.
    """
    return _check_place(stop, "stop", "a datetime", partition_count)


def _check_place(place: Any, name: str, choices: str, partition_count: int) -> Stop:
    if isinstance(place, datetime):
        return place
    if not isinstance(place, Mapping):
        raise UsageError(
            f"{name} is {shown(place)}; it must be {choices}, or a mapping from partition to offset "
            "(in one partition offsets are numbers: topic[0].read(5))"
        )
    plain = dict(place.items())
    for number in plain:
        if type(number) is not int or not 0 <= number < partition_count:
            raise UsageError(
                f"{name} names partition {shown(number)}; there are {partition_count}, from 0 on"
            )
    return plain


def offset_of(start: Start, number: int) -> OffsetOrTime | Literal["earliest", "latest"]:
    """Where to begin in one partition."""
    if isinstance(start, Mapping):
        return start.get(number, "earliest")
    return start


def join(found: Iterable[Iterator[Record]], *, by_timestamp: bool) -> Iterator[Record]:
    """The records of several partitions, each in its order. Cost: merging takes 0.4 µs per record."""
    if by_timestamp:
        return heapq.merge(*found, key=attrgetter("timestamp_ms"))
    return chain.from_iterable(found)


def read_logs(
    logs: Logs,
    start: Start,
    stop: Stop | None,
    isolation: Isolation,
    *,
    by_timestamp: bool,
    on_demand: bool,
) -> Iterator[Record]:
    """See :meth:`.Topic.read`."""
    found = []
    for number, log in logs.items():
        first = offset_of(start, number)
        last = stop.get(number) if isinstance(stop, Mapping) else stop
        if first == "latest":
            continue
        begin = None if first == "earliest" else first
        found.append(log.read(begin, last, isolation=isolation, on_demand=on_demand))
    return join(found, by_timestamp=by_timestamp)


def follow_logs(
    held: Callable[[], Logs],
    start: Start,
    isolation: Isolation,
    timeout: float | None,
    *,
    by_timestamp: bool,
) -> Iterator[Record]:
    """See :meth:`.Topic.follow`. ``held`` gives the logs that there are now. What is wrong about the start is
    said at once."""
    logs = held()
    positions = {number: log.position_at(offset_of(start, number), isolation) for number, log in logs.items()}
    return _follow(held, logs, positions, isolation, timeout, by_timestamp)


def _follow(
    held: Callable[[], Logs],
    logs: Logs,
    positions: dict[int, int],
    isolation: Isolation,
    timeout: float | None,
    by_timestamp: bool,
) -> Iterator[Record]:
    with ExitStack() as stack:
        growth = _Growth(stack)
        for number, log in logs.items():
            growth.watch(number, log)
        waited_since = time.monotonic()
        while True:
            found = []
            for number in growth.take():
                position = positions[number]
                records, positions[number] = growth.logs[number].advance(position, isolation=isolation)
                if positions[number] > position:
                    found.append(records)
            if found:
                yield from join(found, by_timestamp=by_timestamp)
                growth.pause_seconds = _FIRST_PAUSE_SECONDS
                waited_since = time.monotonic()
                continue
            left = _LOOK_EVERY_SECONDS if timeout is None else waited_since + timeout - time.monotonic()
            if left <= 0:
                return
            growth.wait(min(left, _LOOK_EVERY_SECONDS))
            for number, log in held().items():
                if growth.logs.get(number) is not log:  # it is new, or was reopened
                    positions.setdefault(number, log.log_start_offset)
                    growth.watch(number, log)


class _Growth:
    """Which of several logs may have grown. A log that is open for writing says so; the others have to be
    looked at."""

    def __init__(self, stack: ExitStack) -> None:
        self.logs: dict[int, ReadableLog] = {}
        self.pause_seconds = _FIRST_PAUSE_SECONDS
        self._stack = stack
        self._looked_at: set[int] = set()
        self._grown: set[int] = set()
        self._changed = threading.Event()

    def watch(self, number: int, log: ReadableLog) -> None:
        self.logs[number] = log
        if isinstance(log, Log):
            self._stack.callback(log.on_change(lambda: self._tell(number)))
        else:
            self._looked_at.add(number)
        self._tell(number)

    def _tell(self, number: int) -> None:
        """Called in the thread that changes the log."""
        self._grown.add(number)
        self._changed.set()

    def take(self) -> list[int]:
        """The logs to look at. One that grows from now on is in the next list."""
        self._changed.clear()
        grown, self._grown = self._grown, set()
        return sorted(grown | self._looked_at)

    def wait(self, seconds: float) -> None:
        """Until a log has grown, or may have."""
        if self._looked_at:
            seconds = min(seconds, self.pause_seconds)
            self.pause_seconds = min(self.pause_seconds * 1.5, _LONGEST_PAUSE_SECONDS)
        self._changed.wait(seconds)
