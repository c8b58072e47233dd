"""A look at a ZooKeeper that does not let this process in: how far is it?

A server hangs up on a client that has seen a later change than the server knows: one that came back without
its data, or with an older copy of it, does so until as many changes were made again, and says why only in its
own log. To the client that looks like a server that is down. Asked with ``srvr``, the word that servers
answer by default, it tells its newest change. That takes no session, which would be a change itself.
"""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final

from logstore.warning import warn

_WORD: Final = b"srvr"
_MOST_BYTES: Final = 64 * 1024
_NEWEST: Final = re.compile(rb"^Zxid: 0x([0-9a-f]{1,16})$", re.MULTILINE)
_DECIDES: Final = re.compile(rb"^Mode: (leader|standalone)$", re.MULTILINE)
"""Other servers may not have heard of the newest change yet."""
_LOST: Final = (
    "%s runs, but it has lost changes that this process has seen: it came back without its data, or with an "
    "older copy. Put back the newest data that there are, and restart the nodes, those first that were in "
    "sync last. If nothing is left, stop all nodes, and begin another cluster with the one that has "
    "everything (--new-cluster)"
)


class FreshLook:
    """Looks again and again while the client of a process is not let in, and warns once if that is because
    of what was lost. In a thread of its own, which runs only then."""

    def __init__(
        self, name: str, servers: Iterable[tuple[str, int]], patience_ms: int, newest: Callable[[], int]
    ) -> None:
        """
        Args:
            servers: the host and the port of each.
            patience_ms: how long the client is away before the first look, and between looks.
            newest: the newest change that this process has seen.
        """
        self._name = name
        self._servers = tuple(servers)
        self._patience_seconds = patience_ms / 1000
        self._newest = newest
        self._ended: threading.Event | None = None
        """Ends the thread that looks, if there is one."""
        self._lock = threading.Lock()

    def begin(self) -> None:
        """The client is not connected any more. Does not wait."""
        with self._lock:
            if self._ended is None:
                self._ended = threading.Event()
                name = "logstore-coordination-fresh-look"
                threading.Thread(target=self._run, args=(self._ended,), name=name, daemon=True).start()

    def end(self) -> None:
        """It is connected, or closed. Does not wait."""
        with self._lock:
            if self._ended is not None:
                self._ended.set()
            self._ended = None

    def _run(self, ended: threading.Event) -> None:
        while not ended.wait(self._patience_seconds):
            if self._has_lost() and not ended.is_set():
                warn(_LOST, self._name)
                return

    def _has_lost(self) -> bool:
        """Whether the server that decides knows less than this process has seen."""
        for host, port in self._servers:
            told = _ask(host, port, self._patience_seconds)
            newest = _NEWEST.search(told)
            if newest is not None and _DECIDES.search(told) is not None:
                return int(newest[1], 16) < self._newest()
        return False


def _ask(host: str, port: int, patience_seconds: float) -> bytes:
    """What a server says; nothing if it does not answer, or is not asked without TLS."""
    told = b""
    with suppress(OSError), socket.create_connection((host, port), timeout=patience_seconds) as connection:
        connection.sendall(_WORD)
        while len(told) < _MOST_BYTES and (part := connection.recv(4096)):
            told += part
    return told
