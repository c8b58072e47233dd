"""Requests that come a moment before their time: the coordinator has said that this node leads a partition,
clients have heard of it, and the node is about to begin.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from logstore.broker.pending import Pending, Promise
from logstore.schedule import Scheduler, Task

_LOOK_MS: Final = 5
_PATIENCE_MS: Final = 100
"""A client that is refused waits as long before it asks again: Kafka's ``retry.backoff.ms``."""


def when_so(is_so: Callable[[], bool], scheduler: Scheduler) -> Pending[bool]:
    """There is a result as soon as it is so, or after a tenth of a second. ``is_so`` is called in any thread,
    and may not wait."""
    promise: Promise[bool] = Promise()
    looks_left = _PATIENCE_MS // _LOOK_MS

    def look() -> None:
        nonlocal looks_left
        looks_left -= 1
        if is_so() or not looks_left:
            promise.complete(True)
        else:
            look_later()

    def look_later() -> None:
        scheduler.promptly(_LOOK_MS, Task("look whether the node leads", look, None))

    look_later()
    return promise
