"""How followers wait for a log to grow: as futures, without a thread.

A log that this process writes tells of its changes, in one callback for all who wait. The files of another
process's log are looked at every 20 ms while somebody waits, once for all.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

from logstore.aio.shell import Shell
from logstore.errors import LogstoreError
from logstore.model import Isolation
from logstore.partition.log import Log

_LOOK_SECONDS: Final = 0.02
_PATIENCE_SECONDS: Final = 1.0
"""How long files are still looked at after the last one has left."""


class Growth:
    """Of one log. Used by the loop alone."""

    def __init__(self, shell: Shell, log: Log, *, is_told: bool) -> None:
        """``is_told``: whether the log tells of its changes."""
        self._shell = shell
        self._log = log
        self._is_told = is_told
        self._waiting: set[asyncio.Future[None]] = set()
        self._stop: Callable[[], None] | None = None
        self._is_noted = False
        self._looker: asyncio.Task[None] | None = None

    def __len__(self) -> int:
        """How many wait."""
        return len(self._waiting)

    def join(self) -> asyncio.Future[None]:
        """A future that is done when the log may have changed since this call. Join first, then look, and
        wait if there is nothing: so no change is missed. :meth:`leave` afterwards.

        Raises:
            ClosedError, ForkedError: the log cannot be used.
        """
        if self._is_told and self._stop is None:
            self._stop = self._log.on_change(self._note)
        future = self._shell.loop.create_future()
        self._waiting.add(future)
        if not self._is_told and self._looker is None:
            self._looker = self._shell.loop.create_task(self._look())
        return future

    def leave(self, future: asyncio.Future[None]) -> None:
        """Wait no more."""
        future.cancel()
        self._waiting.discard(future)
        if not self._waiting:
            self._end_calls()

    def _end_calls(self) -> None:
        stop, self._stop = self._stop, None
        if stop is not None:
            stop()

    def _note(self) -> None:
        """Called in the thread that changes the log, under the log's lock."""
        if not self._is_noted:
            self._is_noted = True
            self._shell.call_soon(self._wake)

    def _wake(self) -> None:
        self._is_noted = False
        self._end_calls()
        waiting, self._waiting = self._waiting, set()
        for future in waiting:
            if not future.done():
                future.set_result(None)

    async def _look(self) -> None:
        """Look at the files until nobody has waited for a while."""
        seen: object = None
        needed_at = time.monotonic()
        try:
            while time.monotonic() - needed_at < _PATIENCE_SECONDS:
                now = await self._shell.run(self._state)
                if now != seen:
                    seen = now
                    self._wake()
                await asyncio.sleep(_LOOK_SECONDS)
                if self._waiting:
                    needed_at = time.monotonic()
        except LogstoreError:  # those who wait look themselves, and learn why
            await asyncio.sleep(_LOOK_SECONDS)
        finally:
            self._looker = None
            with contextlib.suppress(RuntimeError):
                self._wake()

    def _state(self) -> tuple[range, ...]:
        return tuple(self._log.written_offsets(each) for each in Isolation)
