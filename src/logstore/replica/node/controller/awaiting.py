"""When a change is over for who has asked for it: this node answers the next question by it."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from logstore.replica.coordination.interface import View

_VIEW_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.002


def await_view(view: Callable[[], View], has: Callable[[View], bool]) -> None:
    """Wait until the node was told of what it has stored with the coordinator; for two seconds at most, since
    it is stored already. With files that takes a millisecond or two."""
    deadline = time.monotonic() + _VIEW_SECONDS
    while not has(view()) and time.monotonic() < deadline:
        time.sleep(_LOOK_SECONDS)
