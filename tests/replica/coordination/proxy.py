"""Stands between a client and a server, and breaks connections where it hurts."""

from __future__ import annotations

import contextlib
import selectors
import socket
import threading


class Proxy:
    """Passes on what both say, until :meth:`cut`."""

    def __init__(self, port):
        self._port = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._lock = threading.Lock()
        self._pairs = set()
        self.cuts = None
        """Which way the next message does not go any more: "to" the server, or "from" it."""
        self.cut_count = 0
        self._is_closed = False
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while not self._is_closed:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection(("127.0.0.1", self._port))
            except OSError:
                client.close()
                continue
            threading.Thread(target=self._pass_on, args=(client, server), daemon=True).start()

    def _pass_on(self, client, server):
        with self._lock:
            self._pairs.add((client, server))
        with contextlib.suppress(OSError, ValueError), selectors.DefaultSelector() as selector:
            selector.register(client, selectors.EVENT_READ, (server, "to"))
            selector.register(server, selectors.EVENT_READ, (client, "from"))
            while True:
                for key, _ in selector.select():
                    data = key.fileobj.recv(1 << 16)
                    other, way = key.data
                    if not data or self._is_cut(way):
                        raise OSError
                    other.sendall(data)
        for each in (client, server):
            each.close()

    def _is_cut(self, way):
        with self._lock:
            is_cut = self.cuts == way
            if is_cut:
                self.cuts = None
                self.cut_count += 1
            return is_cut

    def close(self):
        self._is_closed = True
        self._listener.close()
        with self._lock:
            for pair in self._pairs:
                for each in pair:
                    with contextlib.suppress(OSError):
                        each.shutdown(socket.SHUT_RDWR)
