"""The end of a command that runs until it is told to end."""

from __future__ import annotations

import signal
from typing import Final

from logstore.turns import SafeEvent

LOOK_SECONDS: Final = 1.0
"""How often what runs until it is told to end looks whether it still can."""


def until_told() -> SafeEvent:
    """Is set by Ctrl-C, by SIGTERM, and by SIGHUP, unless that is ignored, as under ``nohup``: a clean end in
    all cases."""
    ended = SafeEvent()

    def end(*_: object) -> None:
        ended.set()

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
        signal.signal(signal.SIGHUP, end)
    return ended
