"""Virtual time, and a network on which anything may happen. One seed decides all of it.

::

    world = World(seed=7)
    world.network.connect("a", print)
    world.network.send("b", "a", "hello")
    world.run(until_ms=1_000)

Nothing here knows what the messages are about. Cost: 3 µs for each of them.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Hashable, Iterable
from typing import Any, NamedTuple

Place = Hashable
"""Where messages are sent from and to."""


class NetworkFaults(NamedTuple):
    """How bad the network is. Times are in ms."""

    least_delay_ms: int = 1
    most_delay_ms: int = 30
    loss: float = 0.0
    """The share of messages that do not arrive, from 0 to 1."""
    duplication: float = 0.0
    """The share that arrives twice."""


def _check_callable(value: object, name: str) -> None:
    if not callable(value):
        raise ValueError(f"{name} is {value!r}; it must be a function, or something else to call")


class World:
    """Time, chance, and a network."""

    def __init__(self, seed: int | str, faults: NetworkFaults | None = None) -> None:
        """
        Raises:
            ValueError: the seed is neither a whole number nor a text: the run could not be repeated; the
                delays are below 0, or the least one is above the most; or a share is none.
        """
        if type(seed) not in (int, str):
            raise ValueError(f"seed is {seed!r}; it must be a whole number or a text, to repeat the run with")
        if faults is not None and not isinstance(faults, NetworkFaults):
            raise ValueError(
                f"faults is {faults!r}; it must be NetworkFaults, such as NetworkFaults(loss=0.1)"
            )
        self.rng = random.Random(seed)
        """Take all random choices from it: then the seed decides them, too."""
        self.now_ms = 0
        """The time, since the beginning."""
        self.network = Network(self, faults or NetworkFaults())
        """Between the places of this world."""
        self._events: list[tuple[int, int, Callable[[], object]]] = []
        self._next = 0

    def call_later(self, delay_ms: int, action: Callable[[], object]) -> None:
        """Do something after a while; below 0 counts as 0.

        Raises:
            ValueError: the delay is no number, or the action is nothing to call: later nothing would tell
                where it came from.
        """
        _check_callable(action, "action")
        if not isinstance(delay_ms, int | float) or delay_ms != delay_ms:
            raise ValueError(f"delay_ms is {delay_ms!r}; it must be a number of milliseconds")
        self._next += 1
        heapq.heappush(self._events, (self.now_ms + max(delay_ms, 0), self._next, action))

    def run(self, until_ms: int) -> None:
        """Let time pass up to then; nothing if it is later already."""
        events = self._events
        while events and events[0][0] <= until_ms:
            self.now_ms, _, action = heapq.heappop(events)
            action()
        self.now_ms = max(self.now_ms, until_ms)


class Network:
    """Messages between places. They overtake each other, get lost, arrive twice, and do not arrive while a
    way is cut: one direction of it, or both."""

    def __init__(self, world: World, faults: NetworkFaults) -> None:
        least_ms, most_ms = faults.least_delay_ms, faults.most_delay_ms
        if not 0 <= least_ms <= most_ms:
            raise ValueError(
                f"least_delay_ms is {least_ms} and most_delay_ms {most_ms}; it must be 0 <= least <= most"
            )
        for name, share in (("loss", faults.loss), ("duplication", faults.duplication)):
            if not 0 <= share <= 1:
                raise ValueError(f"{name} is {share}; it must be a share from 0 to 1, such as 0.3")
        self._world = world
        self.faults = faults
        self._places: dict[Place, Callable[[Any], object]] = {}
        self._cut: set[tuple[Place, Place]] = set()
        self._cut_counts: dict[tuple[Place, Place], int] = {}
        """How often each way was cut: what was under way then is lost, although the way may be open again."""

    def connect(self, place: Place, receive: Callable[[Any], object]) -> None:
        """What arrives at a place goes there from now on.

        Raises:
            ValueError: ``receive`` is nothing to call.
        """
        _check_callable(receive, "receive")
        self._places[place] = receive

    def disconnect(self, place: Place) -> None:
        """What arrives there is lost."""
        self._places.pop(place, None)

    def cut(self, source: Place, target: Place) -> None:
        """Nothing arrives from one place at the other, also of what is sent until :meth:`heal`; the other way
        round it does."""
        way = (source, target)
        self._cut.add(way)
        self._cut_counts[way] = self._cut_counts.get(way, 0) + 1

    def isolate(self, place: Place, others: Iterable[Place]) -> None:
        """Cut a place off, in both directions."""
        for other in others:
            self.cut(place, other)
            self.cut(other, place)

    def heal(self) -> None:
        """Cut nothing any more."""
        self._cut.clear()

    def send(self, source: Place, target: Place, message: object) -> None:
        """A message that arrives or does not. What is under way when a way is cut is lost, and so is what is
        sent while it is cut."""
        rng, faults = self._world.rng, self.faults
        cut_count = self._cut_counts.get((source, target), 0)
        is_cut = (source, target) in self._cut
        copies = 2 if faults.duplication and rng.random() < faults.duplication else 1
        for _ in range(copies):
            if faults.loss and rng.random() < faults.loss:
                continue
            delay_ms = rng.randint(faults.least_delay_ms, faults.most_delay_ms)
            if not is_cut:  # chance decides as much on a way that is cut: it changes nothing elsewhere
                self._world.call_later(delay_ms, lambda: self._arrive(source, target, message, cut_count))

    def _arrive(self, source: Place, target: Place, message: object, cut_count: int) -> None:
        receive, way = self._places.get(target), (source, target)
        if receive is not None and self._cut_counts.get(way, 0) == cut_count:
            receive(message)
