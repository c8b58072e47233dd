"""A client that sends exactly what a test says, byte for byte."""

from __future__ import annotations

import socket
import struct

from logstore.model import Bytes
from logstore.wire.apis import APIS
from logstore.wire.frames import encode_frame
from logstore.wire.headers import decode_response, encode_request


def frame_of(request, key, version, *, correlation_id=1, client_id="raw"):
    """The bytes of a request."""
    parts: list[Bytes] = encode_request(
        request, key, version, correlation_id=correlation_id, client_id=client_id
    )
    return b"".join(encode_frame(parts))


class RawClient:
    """Blocking, one request at a time or several at once."""

    def __init__(self, address: str, *, timeout: float = 10.0, client_id: str = "raw") -> None:
        if "/" in address:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            self.socket.connect(address)
        else:
            host, _, port = address.rpartition(":")
            self.socket = socket.create_connection((host.strip("[]"), int(port)), timeout)
        self.client_id = client_id
        self.last_id = 0

    def ask(self, key, request, version=None):
        """The response."""
        version = APIS[key].last if version is None else version
        self.send(key, request, version)
        return self.receive(key, version)

    def send(self, key, request, version):
        self.last_id += 1
        self.socket.sendall(
            frame_of(request, key, version, correlation_id=self.last_id, client_id=self.client_id)
        )

    def receive(self, key, version, correlation_id=None):
        frame = self.receive_frame()
        return decode_response(
            frame, key, version, correlation_id=self.last_id if correlation_id is None else correlation_id
        )

    def receive_frame(self) -> bytes:
        (size,) = struct.unpack(">i", self._exactly(4))
        return self._exactly(size)

    def _exactly(self, size):
        found = bytearray()
        while len(found) < size:
            data = self.socket.recv(size - len(found))
            if not data:
                raise EOFError(f"hung up after {len(found)} of {size} bytes")
            found += data
        return bytes(found)

    def is_hung_up(self) -> bool:
        """Whether the other side closes the connection, instead of saying anything more."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()
