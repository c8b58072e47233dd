"""Changes that are too large to be made at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from logstore.replica.coordination.tree import Create, Step, Tree, Write

T = TypeVar("T")

_EXTRA_STEPS = 3
"""That are made with each batch: see :mod:`.session` and :mod:`.control`."""


def step_bytes(step: Step) -> int:
    return len(step.path) + (len(step.data) if isinstance(step, Create | Write) else 0)


def batches(tree: Tree, steps: Sequence[Step]) -> Iterator[list[Step]]:
    """The steps in their order, as many at a time as the tree takes."""
    return together(tree, steps, lambda step: (step,))


def together(tree: Tree, changes: Iterable[T], steps_of: Callable[[T], Sequence[Step]]) -> Iterator[list[T]]:
    """Changes in their order, as many at a time as the tree takes; one that is too large is alone."""
    batch: list[T] = []
    step_count = size_bytes = 0
    for change in changes:
        steps = steps_of(change)
        own_bytes = sum(map(step_bytes, steps))
        has_room = step_count + len(steps) + _EXTRA_STEPS <= tree.most_steps
        if batch and not (has_room and size_bytes + own_bytes <= tree.most_bytes):
            yield batch
            batch, step_count, size_bytes = [], 0, 0
        batch.append(change)
        step_count, size_bytes = step_count + len(steps), size_bytes + own_bytes
    if batch:
        yield batch
