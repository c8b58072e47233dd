"""A connection's bytes, in and out, without waiting; plain or through TLS."""

from __future__ import annotations

import select
import socket
import ssl
from collections import deque
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Final, Protocol, TypeVar

from logstore.model import Bytes

_MOST_PIECES: Final = 512
"""In one call: the system takes 1,024."""
NO_TLS: Final = frozenset({"WRONG_VERSION_NUMBER", "HTTP_REQUEST"})
"""What OpenSSL says of a client that speaks without TLS. It sends no alert then."""
_ALERT: Final = bytes.fromhex("15 0303 0002 0250")
"""What a broker of Kafka sends such a client: fatal, internal error. Some clients know by it what is
wrong."""
_UNREAD_BYTES: Final = 64 * 1024
_MOST_UNREAD: Final = 16
"""How often that much is received at the end, at most: what a client has sent and nobody will read."""


T = TypeVar("T")


class Transport(Protocol):
    """Bytes from and to a client."""

    def receive(self, size_bytes: int) -> bytes | None:
        """Up to so many bytes; none at the end; None if there are none yet.

        Raises:
            OSError: the connection is broken.
        """
        ...

    def receive_into(self, room: memoryview) -> int | None:
        """The same, to where it belongs: how many bytes came."""
        ...

    def send(self, pieces: deque[memoryview]) -> tuple[int, bool]:
        """Send what can be sent, and take it from the pieces; returns how many bytes that were, and whether
        they were all.

        Raises:
            OSError: the connection is broken.
        """
        ...

    def wait(self, milliseconds: int) -> bool:
        """Wait for bytes to come; returns whether there are some."""
        ...

    def wait_to_send(self, milliseconds: int) -> bool:
        """Wait until something can be sent; returns whether that is so."""
        ...

    def certificate(self) -> bytes | None:
        """The one that the client has shown (DER), once something was received; None if it has none."""
        ...

    @property
    def wants_write(self) -> bool:
        """Whether ``receive`` waits until something can be sent, as TLS may."""
        ...

    def end(self) -> None:
        """Say that nothing more comes, where there are words for that. The socket is to be closed next."""
        ...


def pieces_of(parts: Iterable[Bytes]) -> deque[memoryview]:
    """What is to be sent."""
    return deque([memoryview(each) for each in parts if len(each)])


class PlainTransport:
    """Without TLS."""

    __slots__ = ("_poll", "_poll_out", "_socket")

    wants_write = False

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._poll = _poll_for(connected, select.POLLIN)
        self._poll_out = _poll_for(connected, select.POLLOUT)

    def receive(self, size_bytes: int) -> bytes | None:
        try:
            return self._socket.recv(size_bytes)
        except BlockingIOError:
            return None

    def receive_into(self, room: memoryview) -> int | None:
        try:
            return self._socket.recv_into(room)
        except BlockingIOError:
            return None

    def send(self, pieces: deque[memoryview]) -> tuple[int, bool]:
        total = 0
        while pieces:
            try:
                if len(pieces) == 1:
                    sent = self._socket.send(pieces[0])
                else:
                    sent = self._socket.sendmsg([pieces[n] for n in range(min(len(pieces), _MOST_PIECES))])
            except BlockingIOError:
                return total, False
            _take(pieces, sent)
            total += sent
        return total, True

    def wait(self, milliseconds: int) -> bool:
        return bool(self._poll.poll(milliseconds))

    def wait_to_send(self, milliseconds: int) -> bool:
        return bool(self._poll_out.poll(milliseconds))

    def certificate(self) -> bytes | None:
        return None

    def end(self) -> None:
        return None


class TlsTransport:
    """With TLS. The handshake happens within the first calls."""

    __slots__ = ("_is_plain", "_poll", "_poll_out", "_socket", "wants_write")

    def __init__(self, connected: ssl.SSLSocket) -> None:
        self._socket = connected
        self._poll = _poll_for(connected, select.POLLIN)
        self._poll_out = _poll_for(connected, select.POLLOUT)
        self.wants_write = False
        self._is_plain = False
        """Whether the client speaks without TLS."""

    def receive(self, size_bytes: int) -> bytes | None:
        return self._receiving(lambda: self._socket.recv(size_bytes), b"")

    def receive_into(self, room: memoryview) -> int | None:
        return self._receiving(lambda: self._socket.recv_into(room), 0)

    def _receiving(self, receive: Callable[[], T], at_end: T) -> T | None:
        self.wants_write = False
        try:
            return receive()
        except ssl.SSLWantReadError:
            return None
        except ssl.SSLWantWriteError:
            self.wants_write = True
            return None
        except ssl.SSLEOFError:
            return at_end
        except ssl.SSLError as error:
            self._is_plain = error.reason in NO_TLS and self._socket.version() is None
            raise

    def send(self, pieces: deque[memoryview]) -> tuple[int, bool]:
        total = 0
        while pieces:
            try:
                sent = self._socket.send(pieces[0])
            except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                return total, False
            _take(pieces, sent)
            total += sent
        return total, True

    def wait(self, milliseconds: int) -> bool:
        return self._socket.pending() > 0 or bool(self._poll.poll(milliseconds))

    def wait_to_send(self, milliseconds: int) -> bool:
        return bool(self._poll_out.poll(milliseconds))

    def certificate(self) -> bytes | None:
        return self._socket.getpeercert(binary_form=True)

    def end(self) -> None:
        with suppress(OSError, ValueError):  # the connection is broken, or there has been no handshake
            self._socket.unwrap()
        with suppress(OSError):
            if self._is_plain:
                socket.socket.send(self._socket, _ALERT)  # as it is, not through TLS
            # The system resets a connection that is closed with bytes unread. The client might then see that
            # in place of what was sent last, and some take it for a fault of the network.
            for _ in range(_MOST_UNREAD):
                if not socket.socket.recv(self._socket, _UNREAD_BYTES):
                    break


def _poll_for(connected: socket.socket, events: int) -> select.poll:
    poll = select.poll()
    poll.register(connected, events)
    return poll


def _take(pieces: deque[memoryview], size_bytes: int) -> None:
    while pieces and size_bytes >= len(pieces[0]):
        size_bytes -= len(pieces.popleft())
    if size_bytes:
        pieces[0] = pieces[0][size_bytes:]
