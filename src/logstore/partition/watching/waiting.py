"""How a follower waits for files that another process writes.

If possible, the file system notifies the follower of changes: a waiting thread then costs nothing. But the
follower does not rely on it. Once a second it looks anyway. If that finds a change without a notification
(another machine writes, or the file system does not notify), it looks every 2 milliseconds from then on,
until a notification comes. It does the same if the system gives no watch.

This module knows nothing about logs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from logstore.errors import StorageError
from logstore.files import DirectoryWatch, Files

POLL_MS: Final = 2
"""How often a follower looks that gets no notifications. One that gets many looks no more often either."""
PATIENCE_MS: Final = 20
"""How long a follower looks like this before it asks for notifications. Linux takes 15 ms to end a process's
last watch, longer than most waits for a busy log."""
SAFETY_MS: Final = 1_000
"""How often a follower with notifications looks anyway, and how often a refused one asks again."""


class Waiting:
    """The waiting of one follower. One thread waits; any thread may wake it."""

    def __init__(self, files: Files, directories: Sequence[str]) -> None:
        """``directories``: the directories to watch for changes."""
        self._files = files
        self._directories = directories
        self._watch: DirectoryWatch | None = None
        self._asks_at = 0.0
        self._is_told = True
        """Whether changes here are notified, as far as seen."""

    def wait(self, has_news: Callable[[], bool], timeout_ms: int) -> None:
        """Return when ``has_news`` says so, or after the timeout."""
        began = time.monotonic()
        deadline = began + timeout_ms / 1000
        was_told = True
        while True:
            if has_news():
                self._is_told = self._is_told and was_told
                return
            now = time.monotonic()
            if now >= deadline:
                return
            if self._watch is None and now >= max(self._asks_at, began + PATIENCE_MS / 1000):
                self._ask(now)  # and look again: earlier changes are not notified
            else:
                was_told = self._pause(deadline - now)

    def _ask(self, now: float) -> None:
        self._asks_at = now + SAFETY_MS / 1000
        try:
            self._watch = self._files.watch(self._directories)
        except StorageError:
            self._watch = None

    def _pause(self, seconds: float) -> bool:
        """Wait for a notification, or a while. Returns whether one came; True if there is no watch."""
        watch, poll_seconds = self._watch, min(POLL_MS / 1000, seconds)
        if watch is None:
            time.sleep(poll_seconds)
            return True
        if not self._is_told:
            self._is_told = watch.wait(POLL_MS)
            return self._is_told
        began = time.monotonic()
        was_told = watch.wait(min(SAFETY_MS, int(seconds * 1000) + 1))
        if was_told:
            time.sleep(max(began + poll_seconds - time.monotonic(), 0))
        return was_told

    def wake(self) -> None:
        """Make the waiting thread look at once. Call it from any thread."""
        watch = self._watch
        if watch is not None:
            watch.wake()

    def end(self) -> None:
        """Stop waiting. Call it from the waiting thread."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
