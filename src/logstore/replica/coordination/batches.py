"""Changes that are too large to be made at once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from logstore.replica.coordination.tree import Create, Step, Tree, Write

_EXTRA_STEPS = 3
"""That are made with each batch: see :mod:`.session` and :mod:`.control`."""


def step_bytes(step: Step) -> int:
    return len(step.path) + (len(step.data) if isinstance(step, Create | Write) else 0)


def batches(tree: Tree, steps: Sequence[Step]) -> Iterator[list[Step]]:
    """The steps in their order, as many at a time as the tree takes."""
    batch: list[Step] = []
    size_bytes = 0
    for step in steps:
        size_bytes += step_bytes(step)
        if batch and (len(batch) + _EXTRA_STEPS >= tree.most_steps or size_bytes > tree.most_bytes):
            yield batch
            batch, size_bytes = [], step_bytes(step)
        batch.append(step)
    if batch:
        yield batch
