"""A way to a broker that breaks: each connection through it is cut after a number of bytes that chance
decides, in the middle of whatever goes by."""

from __future__ import annotations

import contextlib
import random
import socket
import struct
import threading

_RESET = struct.pack("ii", 1, 0)
"""SO_LINGER: closing resets the connection, and what was not read is lost."""


class CuttingProxy:
    """Listens on loopback, and passes on to ``target_port``. Cuts nothing while ``is_calm``."""

    def __init__(self, seed: int, *, longest_bytes: int) -> None:
        self.target_port = 0
        self.is_calm = True
        self.cut_count = 0
        self._chance = random.Random(seed)
        self._longest_bytes = longest_bytes
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def close(self) -> None:
        self.is_calm = True
        for each in (self._listening, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                try:
                    broker = socket.create_connection(("127.0.0.1", self.target_port))
                except OSError:
                    client.close()
                    continue
                self._sockets += [client, broker]
                left = [self._chance.randint(1, self._longest_bytes)]
                for source, target in ((client, broker), (broker, client)):
                    thread = threading.Thread(target=self._copy, args=(source, target, left))
                    self._threads.append(thread)
                    thread.start()

    def _copy(self, source: socket.socket, target: socket.socket, left: list[int]) -> None:
        """Both ways count together."""
        with contextlib.suppress(OSError):
            while data := source.recv(16_384):
                if not self.is_calm:
                    left[0] -= len(data)
                if left[0] < 0:
                    target.sendall(data[: self._chance.randrange(len(data))])
                    self.cut_count += 1
                    break
                target.sendall(data)
        for each in (source, target):
            with contextlib.suppress(OSError):
                each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
                each.shutdown(socket.SHUT_RDWR)
            each.close()
