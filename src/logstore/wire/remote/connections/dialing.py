"""How a socket gets connected: the name is looked up, the addresses are tried one after the other, and TLS
shakes hands. All of it without waiting, in the loop's thread; but names are looked up in a thread of their
own, as the system's call waits.
"""

from __future__ import annotations

import errno
import socket
import ssl
import threading
from collections import deque
from collections.abc import Callable
from typing import Any, Final, NamedTuple, Protocol

from logstore.format.names import SHARED_NAME
from logstore.own_sockets import keep_from_children
from logstore.unix_sockets import short_name
from logstore.wire.addresses import Address
from logstore.wire.remote.connections.loop import READ, WRITE, Loop

_UNDER_WAY: Final = frozenset({errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EALREADY, errno.EINTR})

_NO_ADDRESS: Final = (OSError, ValueError, OverflowError)  # a name that is no text, a port that is none
_NOT_SHARED: Final = (
    "there is no such socket: no process has this directory open, or the one that has does not let "
    "others in, as store.share() and open_or_connect() do"
)
_REASONS: Final = {
    errno.ECONNREFUSED: "the connection is refused: no broker listens there",
    errno.ENOENT: "there is no such socket",
    errno.ETIMEDOUT: "no answer comes from there",
    errno.EHOSTUNREACH: "there is no way there",
    errno.ENETUNREACH: "there is no way there",
    errno.EACCES: "this user may not use the socket",
    errno.EAGAIN: "too many wait to be let in",
}


class _Target(NamedTuple):
    """One address of a name."""

    family: int
    kind: int
    protocol: int
    where: Any


class TlsFiles(Protocol):
    """Makes a context from files: another one when they have changed."""

    def context(self) -> ssl.SSLContext:
        """For a new connection."""
        ...


Tls = ssl.SSLContext | TlsFiles
"""How to check who answers, and what to show."""


class Dialing:
    """Of one connection. Calls one of ``done`` and ``failed``, once."""

    def __init__(
        self,
        loop: Loop,
        address: Address,
        tls: Tls | None,
        done: Callable[[socket.socket], object],
        failed: Callable[[str], object],
    ) -> None:
        self._loop = loop
        self._address = address
        self._tls = tls
        self._done = done
        self._failed = failed
        self._targets: deque[_Target] = deque()
        self._sock: socket.socket | None = None
        self._is_over = False
        self._why = "the name has no address"

    def begin(self) -> None:
        """Start."""
        address = self._address
        if address.path:
            self._targets.append(_Target(socket.AF_UNIX, socket.SOCK_STREAM, 0, address.path))
            self._try_next()
            return
        try:
            self._found(_addresses(address, socket.AI_NUMERICHOST))
        except _NO_ADDRESS:
            threading.Thread(target=self._look_up, name="logstore-name", daemon=True).start()

    def cancel(self) -> None:
        """Neither ``done`` nor ``failed`` is called any more."""
        self._is_over = True
        self._drop()

    def _look_up(self) -> None:
        """In a thread of its own."""
        try:
            targets = _addresses(self._address, 0)
        except _NO_ADDRESS as error:
            why = getattr(error, "strerror", None) or str(error)
            self._loop.call_soon(lambda: self._fail(f"the name cannot be looked up: {why}"))
        else:
            self._loop.call_soon(lambda: self._found(targets))

    def _found(self, targets: list[_Target]) -> None:
        self._targets.extend(targets)
        self._try_next()

    def _try_next(self) -> None:
        if self._is_over:
            return
        if not self._targets:
            self._fail(self._why)
            return
        target = self._targets.popleft()
        try:
            sock = socket.socket(target.family, target.kind, target.protocol)
        except OSError as error:
            self._next_because(error.strerror or str(error))
            return
        self._sock = sock
        keep_from_children(sock)
        sock.setblocking(False)
        if target.family != socket.AF_UNIX:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            if target.family == socket.AF_UNIX:
                with short_name(target.where) as name:
                    code = sock.connect_ex(name)
            else:
                code = sock.connect_ex(target.where)
        except (OSError, ValueError) as error:  # there is no such directory, for one
            self._next_because(str(error))
            return
        if code == 0:
            self._connected()
        elif code in _UNDER_WAY and target.family != socket.AF_UNIX:
            self._loop.watch(sock, WRITE, lambda _: self._look())
        else:
            is_of_directory = code == errno.ENOENT and self._address.path.endswith(f"/{SHARED_NAME}")
            self._next_because(_NOT_SHARED if is_of_directory else _why(code))

    def _look(self) -> None:
        """The connection stands, or has failed."""
        if self._sock is None:
            return
        self._loop.forget(self._sock)
        code = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._next_because(_why(code))
        else:
            self._connected()

    def _connected(self) -> None:
        assert self._sock is not None
        if self._tls is None or self._address.path:  # a listener has no TLS on a Unix socket
            self._hand_over()
            return
        try:
            tls = self._tls if isinstance(self._tls, ssl.SSLContext) else self._tls.context()
            self._sock = tls.wrap_socket(
                self._sock,
                server_hostname=self._address.host or None,
                do_handshake_on_connect=False,
            )
            keep_from_children(self._sock)
        except (OSError, ValueError) as error:
            self._fail(f"TLS: {error}")
            return
        self._shake_hands()

    def _shake_hands(self) -> None:
        sock = self._sock
        if not isinstance(sock, ssl.SSLSocket):
            return
        try:
            sock.do_handshake()
        except ssl.SSLWantReadError:
            self._loop.watch(sock, READ, lambda _: self._shake_hands())
        except ssl.SSLWantWriteError:
            self._loop.watch(sock, WRITE, lambda _: self._shake_hands())
        except (OSError, ValueError) as error:
            self._fail(f"TLS: {error}{_guess(error)}")
        else:
            self._hand_over()

    def _hand_over(self) -> None:
        sock, self._sock = self._sock, None
        assert sock is not None
        self._loop.forget(sock)
        self._is_over = True
        self._done(sock)

    def _next_because(self, why: str) -> None:
        self._why = why
        self._drop()
        self._try_next()

    def _fail(self, why: str) -> None:
        self._drop()
        if not self._is_over:
            self._is_over = True
            self._failed(why)

    def _drop(self) -> None:
        sock, self._sock = self._sock, None
        if sock is not None:
            self._loop.forget(sock)
            sock.close()


def _addresses(address: Address, flags: int) -> list[_Target]:
    found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=flags)
    return [_Target(each[0], each[1], each[2], each[4]) for each in found]


def _why(code: int) -> str:
    """What the system's number of an error means."""
    return _REASONS.get(code) or f"the connection failed ({errno.errorcode.get(code, code)})"


def _guess(error: Exception) -> str:
    """Who does not speak TLS hangs up, or answers with something else."""
    is_else = getattr(error, "reason", None) in ("WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE")
    return (
        "; it may not speak TLS" if is_else or isinstance(error, (ssl.SSLEOFError, ConnectionError)) else ""
    )
