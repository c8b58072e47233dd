"""How the members of a group divide partitions: Kafka's four assignors, and those of your own.

=======================  =========================================================================
``range``                each topic in ranges; topics that are partitioned alike are divided alike
``roundrobin``           all partitions dealt out in turn
``sticky``               even, and near to the last assignment
``cooperative-sticky``   the same without a stop: what changes its owner rests for one round
=======================  =========================================================================

Members with these and with Kafka's own can share a group: the metadata is the same, and so are the
assignments, with one difference. Where members subscribe different topics, the sticky assignors here find the
most even assignment, and Kafka's sometimes stop before.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Final

from logstore.arguments import plain_text, shown
from logstore.clients.assignors.assignor import Assignor, RebalanceProtocol, Subscription
from logstore.clients.assignors.range import RangeAssignor
from logstore.clients.assignors.round_robin import RoundRobinAssignor
from logstore.clients.assignors.sticky import CooperativeStickyAssignor, StickyAssignor
from logstore.errors import InvalidConfigError

__all__ = [
    "ASSIGNORS",
    "Assignor",
    "CooperativeStickyAssignor",
    "RangeAssignor",
    "RebalanceProtocol",
    "RoundRobinAssignor",
    "StickyAssignor",
    "Subscription",
    "choose_assignors",
    "common_protocol",
]

_KAFKAS: tuple[Assignor, ...] = (
    RangeAssignor(),
    RoundRobinAssignor(),
    StickyAssignor(),
    CooperativeStickyAssignor(),
)

ASSIGNORS: Final[Mapping[str, Assignor]] = MappingProxyType({each.name: each for each in _KAFKAS})
"""Kafka's assignors by their names."""


def choose_assignors(choice: Iterable[str | Assignor]) -> tuple[Assignor, ...]:
    """The assignors that a consumer offers, in the order of its preference.

    Args:
        choice: names of Kafka's assignors, and assignors of your own.

    Raises:
        InvalidConfigError: a name is unknown or is given twice, there is no assignor, or they have no
            rebalance protocol in common.
    """
    chosen: dict[str, Assignor] = {}
    if isinstance(choice, str):
        choice = (choice,)
    try:
        offered = [plain_text(each) for each in choice]
    except (TypeError, ValueError):
        raise InvalidConfigError(
            f"assignors is {shown(choice)}; give names such as 'cooperative-sticky'"
        ) from None
    for each in offered:
        if not isinstance(each, str) and (
            isinstance(each, type) or not callable(getattr(each, "assign", None))
        ):
            raise InvalidConfigError(f"{shown(each)} is no assignor; there are {', '.join(ASSIGNORS)}")
        if isinstance(each, str) and each not in ASSIGNORS:
            raise InvalidConfigError(f"there is no assignor {each!r}; there are {', '.join(ASSIGNORS)}")
        assignor = ASSIGNORS[each] if isinstance(each, str) else each
        if assignor.name in chosen:
            raise InvalidConfigError(
                f"there are two assignors with the name {assignor.name!r}; leave one out"
            )
        chosen[assignor.name] = assignor
    common_protocol(chosen.values())
    return tuple(chosen.values())


def common_protocol(assignors: Iterable[Assignor]) -> RebalanceProtocol:
    """The newest rebalance protocol that all of them support: what a consumer that offers them follows.

    Raises:
        InvalidConfigError: there is none, or no assignor.
    """
    offered = list(assignors)
    if not offered:
        raise InvalidConfigError("a consumer needs at least one assignor, such as cooperative-sticky")
    common = set.intersection(*(set(each.protocols) for each in offered))
    if not common:
        names = ", ".join(each.name for each in offered)
        raise InvalidConfigError(f"the assignors {names} have no rebalance protocol in common; offer fewer")
    return max(common)
