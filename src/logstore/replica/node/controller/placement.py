"""Which nodes get the replicas of a new topic.

As Kafka places them: the first replicas go round, from a node that chance chooses, so that each node leads
about as many partitions; the others follow at a distance that grows with each round. If all nodes tell a
rack, no rack has a second replica of a partition before each rack has one.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence

from logstore.errors import UsageError


def place(
    racks: Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    chance: random.Random,
    *,
    first_partition: int = 0,
) -> list[tuple[int, ...]]:
    """The replicas of each new partition, in the order of preference.

    Args:
        racks: node id -> rack, of the living nodes.
        first_partition: the number of the first new one, if the topic has some already.

    Raises:
        UsageError: there are fewer nodes than replicas.
    """
    if not 1 <= replication_factor <= len(racks):
        raise UsageError(
            f"the replication factor is {replication_factor}; it must be from 1 to the number of living "
            f"nodes, {len(racks)}"
        )
    nodes = _in_turn(racks)
    knows_racks = all(rack is not None for rack in racks.values())
    start, shift = chance.randrange(len(nodes)), chance.randrange(len(nodes))
    placed = []
    for number in range(first_partition, first_partition + partition_count):
        if number and number % len(nodes) == 0:
            shift += 1
        order = _from(nodes, (start + number) % len(nodes), shift)
        placed.append(
            _choose(order, racks, replication_factor) if knows_racks else order[:replication_factor]
        )
    return placed


def _in_turn(racks: Mapping[int, str | None]) -> list[int]:
    """The nodes, one of each rack, then the next one of each."""
    of_rack: dict[str, list[int]] = {}
    for node_id in sorted(racks):
        of_rack.setdefault(racks[node_id] or "", []).append(node_id)
    columns = [of_rack[rack] for rack in sorted(of_rack)]
    longest = max(map(len, columns))
    return [column[row] for row in range(longest) for column in columns if row < len(column)]


def _from(nodes: Sequence[int], first: int, shift: int) -> tuple[int, ...]:
    """All nodes, the first one and then those at a distance from it."""
    count = len(nodes)
    if count == 1:
        return tuple(nodes)
    rest = [nodes[(first + 1 + (shift + step) % (count - 1)) % count] for step in range(count - 1)]
    return (nodes[first], *rest)


def _choose(order: Sequence[int], racks: Mapping[int, str | None], count: int) -> tuple[int, ...]:
    chosen: list[int] = []
    left = list(order)
    while len(chosen) < count:
        used = {racks[each] for each in chosen}
        if used == set(racks.values()):
            used = set()
        taken = next((each for each in left if racks[each] not in used), left[0])
        chosen.append(taken)
        left.remove(taken)
    return tuple(chosen)
