"""How a follower waits for files that another process writes.

The file system tells when they change, where it can: a thread that waits then costs nothing. It need not be
believed. Once a second the follower looks all the same, and where that finds something of which nothing was
told (another machine writes, or the file system does not tell) it looks every 2 milliseconds from then on,
until something is told. It does so as well where the system gives no watch.

Knows nothing of logs.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Final

from logstore.errors import StorageError
from logstore.files import DirectoryWatch, Files

POLL_MS: Final = 2
"""How often a follower looks that is told nothing. One that is told much looks no more often, either."""
PATIENCE_MS: Final = 20
"""How long a follower looks like this before it asks to be told. Linux takes 15 ms to end a process's last
watch, longer than most waits for a busy log are."""
SAFETY_MS: Final = 1_000
"""How often a follower looks that is told what changes. Also how often one asks again that was refused."""


class Waiting:
    """Of one follower. One thread waits; any may wake it."""

    def __init__(self, files: Files, directories: Sequence[str]) -> None:
        """``directories``: where something changes when there is news."""
        self._files = files
        self._directories = directories
        self._watch: DirectoryWatch | None = None
        self._asks_at = 0.0
        self._is_told = True
        """Whether what changes here is told, as far as anybody has seen."""

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
                self._ask(now)  # and look again: of what came before, nothing is told
            else:
                was_told = self._pause(deadline - now)

    def _ask(self, now: float) -> None:
        self._asks_at = now + SAFETY_MS / 1000
        try:
            self._watch = self._files.watch(self._directories)
        except StorageError:
            self._watch = None

    def _pause(self, seconds: float) -> bool:
        """Wait for something to be told; whether it was, as far as there is somebody to tell."""
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
        """Let the thread that waits look at once. From any thread."""
        watch = self._watch
        if watch is not None:
            watch.wake()

    def end(self) -> None:
        """Wait no more. By the thread that waits."""
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()
