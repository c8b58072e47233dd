"""A connection that sends frames that were encoded before, and reads answers into one buffer: the least that
a client can do."""

from __future__ import annotations

import socket
from typing import Any, Final

from logstore.wire.apis import ApiKey
from logstore.wire.frames import encode_frame
from logstore.wire.headers import decode_response, encode_request

CORRELATION: Final = 1
"""Of all requests: answers come in order."""
BY_NAME: Final = {ApiKey.PRODUCE: 12, ApiKey.FETCH: 12, ApiKey.API_VERSIONS: 3}
"""The newest versions that name topics, and need no id."""
_PATIENCE_SECONDS: Final = 60


def frame_of(request: Any, key: ApiKey) -> bytes:
    """A request as it is sent."""
    parts = encode_request(request, key, BY_NAME[key], correlation_id=CORRELATION, client_id="bench")
    return b"".join(encode_frame(parts))


class FrameConnection:
    """See the module."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), _PATIENCE_SECONDS)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._buffer = bytearray(65_536)
        self._head = bytearray(4)

    def send(self, frame: bytes) -> None:
        """All of it."""
        self.socket.sendall(frame)

    def receive(self) -> memoryview:
        """The next answer, until the one after it.

        Raises:
            EOFError: the server has hung up.
        """
        self._fill(memoryview(self._head))
        size = int.from_bytes(self._head, "big")
        if size > len(self._buffer):
            self._buffer = bytearray(size)
        view = memoryview(self._buffer)[:size]
        self._fill(view)
        return view

    def _fill(self, view: memoryview) -> None:
        at = 0
        while at < len(view):
            count = self.socket.recv_into(view[at:])
            if not count:
                raise EOFError(f"the server hung up within an answer, after {at} of {len(view)} bytes")
            at += count

    def answer_to(self, key: ApiKey) -> Any:
        """The next answer, decoded."""
        return decode_response(self.receive(), key, BY_NAME[key], correlation_id=CORRELATION)

    def ask(self, request: Any, key: ApiKey) -> Any:
        """Send and receive."""
        self.send(frame_of(request, key))
        return self.answer_to(key)

    def close(self) -> None:
        """Hang up."""
        self.socket.close()

    def __enter__(self) -> FrameConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
