"""Sockets that are this process's alone: a forked child closes its copies of them at once.

The system ends a connection, and refuses new ones, only when no process has the socket any more. With a copy
in a child, the death of its parent would stay unknown to the other side for as long as the child lives:
clients of a listener would wait for answers, and a broker for what its client no longer does.
"""

from __future__ import annotations

import contextlib
import os
import socket
import weakref
from typing import Final

_OWN: Final[weakref.WeakSet[socket.socket]] = weakref.WeakSet()


def keep_from_children(own: socket.socket) -> None:
    """Let no child have this socket that is forked from now on. One that is closed is forgotten by itself;
    one that TLS wraps is another one from then on."""
    _OWN.add(own)


def _close_in_child() -> None:
    for each in list(_OWN):
        with contextlib.suppress(OSError):
            each.close()  # and no more: the parent goes on with its own
    _OWN.clear()


os.register_at_fork(after_in_child=_close_in_child)
