"""Which partitions of a topic a directory holds: checks of callers' arguments, and error messages.

Knows numbers and catalogue entries; no directories.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

from logstore.arguments import shown
from logstore.errors import UnknownTopicError, UsageError
from logstore.logdir.catalogue import TopicEntry
from logstore.model import how_to_make_int

_MOST_SHOWN: Final = 8
"""The most runs of numbers in a message."""


def check_numbers(given: Any, name: str, among: range, *, may_be_empty: bool = False) -> tuple[int, ...]:
    """The partition numbers that a caller gives, sorted.

    Args:
        name: the argument's name, for the message.
        among: the allowed numbers.

    Raises:
        UsageError: it is not a list of distinct numbers ``among`` these.
    """
    numbers = _listed(given, len(among) + 1)
    if numbers is None:
        raise UsageError(f"{name} is {shown(given)}; it must be a list of partition numbers")
    for number in numbers:
        if type(number) is not int:
            raise UsageError(
                f"{name} has {shown(number)} among its partition numbers; each must be an int"
                f"{how_to_make_int(number)}"
            )
        if number not in among:
            raise UsageError(f"{name} has {shown(number)}; it must have {_allowed(among)}")
    if len(set(numbers)) < len(numbers):
        raise UsageError(f"{name} has a partition twice: {shown(numbers)}")
    if not numbers and not may_be_empty:
        raise UsageError(f"{name} is empty; name at least one partition")
    return tuple(sorted(numbers))


def _listed(given: Any, most: int) -> list[Any] | None:
    """The first ``most`` items; None if it cannot be listed."""
    try:
        return None if isinstance(given, bytes | str) else list(islice(given, most))
    except MemoryError:
        raise
    except Exception:
        return None


def _allowed(among: range) -> str:
    if not among:
        return "no number"
    return f"numbers from {among[0]} to {among[-1]}" if len(among) > 1 else f"the number {among[0]} alone"


def shown_numbers(numbers: Iterable[int]) -> str:
    """Partition numbers for a message, in runs: ``0 to 3, 7``."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    texts = [str(run[0]) if len(run) == 1 else f"{run[0]} to {run[1]}" for run in runs[:_MOST_SHOWN]]
    return ", ".join(texts) + (", ..." if len(runs) > _MOST_SHOWN else "")


def not_held(topic: TopicEntry, number: int, path: str) -> UnknownTopicError:
    """The error for a call about a partition that the topic has but the directory does not hold."""
    return UnknownTopicError(
        not_held_reason(topic.name, number, topic.held_partitions, topic.partition_count, path)
    )


def not_held_reason(name: str, number: int, held: Sequence[int], partition_count: int, path: str) -> str:
    return (
        f"{path} does not hold partition {number} of topic {name!r}: it has {shown_numbers(held)} of "
        f"{partition_count}, and another directory has this one. Open that directory; or, if the store is "
        f"yours and not a broker's, topic.hold([{number}]) creates the partition here"
    )
