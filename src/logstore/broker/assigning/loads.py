"""How many partitions of each topic each member gets, made even where members subscribe different topics.

The partitions of a topic are as good as each other here; which ones a member gets is settled afterwards. So
a member that gets as many as it owned keeps all of those, however many have moved in between.

Two theorems say when it is done. The loads are the most even that there are (no others have a lower sum of
squares, or of the differences of all pairs) when no path leads from a member to one with at least two fewer,
on which each gives a partition to the next (Harvey, Ladner, Lovász, Tamir: Semi-matchings for bipartite
graphs and load balancing, 2003). And of all assignments that are as even, one keeps the most when there is no
cycle of such steps that gains (Klein: A primal method for minimal cost flows, 1967).
"""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Literal, NamedTuple

OwnedCounts = Mapping[str, Mapping[str, int]]
"""How many partitions a member owns, by member and topic."""


class _Step(NamedTuple):
    giver: str
    topic: str
    taker: str


class _Place(NamedTuple):
    """A node of the graph of swaps."""

    kind: Literal["member", "topic", "load"]
    name: str | int


class _Swap(NamedTuple):
    source: _Place
    target: _Place
    cost: int
    """How many partitions fewer are kept."""


class Loads:
    """Begins with what members own: ``counts`` by member and topic, and ``totals`` by member."""

    def __init__(self, subscribers: Mapping[str, Sequence[str]], owned: OwnedCounts) -> None:
        self._subscribers = subscribers
        self._owned = owned
        self.counts = {member: dict(by_topic) for member, by_topic in owned.items()}
        self.totals = {member: sum(by_topic.values()) for member, by_topic in owned.items()}

    def add(self, member: str, topic: str, number: int = 1) -> None:
        """Give a member a partition of a topic, or take it with -1."""
        counts = self.counts[member]
        counts[topic] = counts.get(topic, 0) + number
        self.totals[member] += number

    def least(self, topic: str) -> str:
        """The first subscriber of those that have the least."""
        return min(self._subscribers[topic], key=self.totals.__getitem__)

    def even_out(self) -> None:
        """Move partitions along paths until there is none.

        The members with the most are served first. If no path begins at them, then none does at any member
        that they reach: those have at most as much, and reach no others. They are left out from then on.
        """
        open_members = dict.fromkeys(self.totals)
        while open_members:
            most = max(self.totals[member] for member in open_members)
            path, reached = self._path(most, open_members)
            for giver, topic, taker in path:
                self.add(giver, topic, -1)
                self.add(taker, topic)
            if not path:
                for member in reached:
                    del open_members[member]

    def _path(self, most: int, open_members: Mapping[str, None]) -> tuple[list[_Step], Collection[str]]:
        """The path on which the fewest give what they owned, or an empty one; and the members reached.

        Steps in which the giver keeps all that it owned are searched first.
        """
        starts = [member for member in open_members if self.totals[member] == most]
        steps: dict[str, _Step | None] = dict.fromkeys(starts)  # by taker
        seen: set[str] = set()
        givers, costly = deque(starts), deque[tuple[str, str]]()
        while givers or costly:
            if givers:
                giver = givers.popleft()
                offers = [(giver, topic) for topic in self.counts[giver] if not self._give_cost(giver, topic)]
                costly.extend((giver, topic) for topic, count in self.counts[giver].items() if count)
            else:
                offers = [costly.popleft()]
            for giver, topic in offers:
                if topic in seen:
                    continue
                seen.add(topic)
                takers = [m for m in self._subscribers[topic] if m in open_members and m not in steps]
                steps.update((taker, _Step(giver, topic, taker)) for taker in takers)
                least = min(takers, key=self.totals.__getitem__, default=giver)
                if self.totals[least] <= most - 2:
                    return _path_to(least, steps), steps
                givers.extend(takers)
        return [], steps

    def keep_more(self) -> None:
        """Swap partitions in cycles, which leaves the loads as even as they are, until none gains.

        To be called when the loads are even: with no path down by two, no cycle changes more than who has one
        more than others.
        """
        while cycle := _gaining_cycle(list(self._swaps())):
            for source, target in cycle:
                if source.kind == "topic":
                    self.add(str(target.name), str(source.name))
                elif target.kind == "topic":
                    self.add(str(source.name), str(target.name), -1)

    def _swaps(self) -> Iterator[_Swap]:
        """The ways of a partition: from a member to its topic, and from there to a subscriber.

        A member may also end with one more if another, which had one more than it, ends with one fewer: that
        leaves the loads as even. The two are connected by way of the load that they exchange.
        """
        for member, counts in self.counts.items():
            place = _Place("member", member)
            for topic, count in counts.items():
                if count:
                    yield _Swap(place, _Place("topic", topic), self._give_cost(member, topic))
            yield _Swap(place, _Place("load", self.totals[member]), 0)
            yield _Swap(_Place("load", self.totals[member] - 1), place, 0)
        for topic, subscribers in self._subscribers.items():
            for member in subscribers:
                gain = self.counts[member].get(topic, 0) < self._owned[member].get(topic, 0)
                yield _Swap(_Place("topic", topic), _Place("member", member), -gain)

    def _give_cost(self, member: str, topic: str) -> int:
        """1 if a member that gives a partition of the topic gives one that it owned, otherwise 0."""
        return int(self.counts[member][topic] <= self._owned[member].get(topic, 0))


def _path_to(taker: str, steps: Mapping[str, _Step | None]) -> list[_Step]:
    path = []
    step = steps[taker]
    while step is not None:
        path.append(step)
        step = steps[step.giver]
    return path


def _gaining_cycle(swaps: Iterable[_Swap]) -> list[tuple[_Place, _Place]]:
    """A cycle of negative cost, as pairs of places, or nothing: Bellman's and Ford's algorithm."""
    costs: defaultdict[_Place, int] = defaultdict(int)
    before: dict[_Place, _Place] = {}
    is_changed = True
    while is_changed:
        is_changed = False
        for source, target, cost in swaps:
            if costs[source] + cost < costs[target]:
                costs[target] = costs[source] + cost
                before[target] = source
                is_changed = True
        cycle = _cycle_in(before)
        if cycle:
            return cycle
    return []


def _cycle_in(before: Mapping[_Place, _Place]) -> list[tuple[_Place, _Place]]:
    """A cycle of the places that come before each other, or nothing."""
    seen: set[_Place] = set()
    for start in before:
        walked: dict[_Place, None] = {}
        place = start
        while place in before and place not in seen:
            seen.add(place)
            walked[place] = None
            place = before[place]
        if place in walked:
            places = list(walked)
            return [(before[each], each) for each in places[places.index(place) :]]
    return []
