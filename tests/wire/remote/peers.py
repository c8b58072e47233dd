"""Brokers that answer by script: what a test says they send, byte for byte if it likes."""

from __future__ import annotations

import contextlib
import socket
import threading
import uuid
from collections.abc import Callable, Sequence
from typing import Any

from logstore.errors import CorruptionError
from logstore.wire.apis import APIS, ApiKey
from logstore.wire.frames import FrameReader, encode_frame
from logstore.wire.headers import decode_request, encode_response
from logstore.wire.messages.cluster import api_versions, metadata
from logstore.wire.remote.connections.settings import RemoteConfig

HASTY = RemoteConfig(
    request_timeout_ms=5_000, retry_backoff_ms=1, reconnect_backoff_ms=1, reconnect_backoff_max_ms=4
)

Answer = Callable[[Any, int], Any]
"""From a request and its version to the response; bytes are sent as they are, None hangs up."""


def hang_up(request: Any, version: int) -> None:
    """The answer to what no test has thought of."""


class Silence:
    """An answer that does not come."""


class Peer:
    """One broker on loopback. Knows how to begin a conversation; the rest is the test's."""

    def __init__(self, node_id: int = 0) -> None:
        self.node_id = node_id
        self.asked: list[tuple[ApiKey, int, Any]] = []
        """What was asked, with versions."""
        self.connection_count = self.open_count = 0
        self.answers: dict[ApiKey, Answer] = {
            ApiKey.API_VERSIONS: lambda request, version: versions_response(),
        }
        self.chop: Callable[[bytes], Sequence[bytes] | None] | None = None
        """How the bytes of an answer are sent; None hangs up after what was sent."""
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept)]
        self._threads[0].start()

    def __enter__(self) -> Peer:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def count(self, key: ApiKey) -> int:
        """How often it was asked."""
        return sum(each[0] is key for each in self.asked)

    def close(self) -> None:
        for each in (self._listening, *self._sockets):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = self._listening.accept()
                self.connection_count += 1
                self._sockets.append(sock)
                thread = threading.Thread(target=self._serve, args=(sock,))
                self._threads.append(thread)
                thread.start()

    def _serve(self, sock: socket.socket) -> None:
        reader = FrameReader()
        self.open_count += 1
        try:
            with contextlib.suppress(OSError, CorruptionError), sock:
                while data := sock.recv(65_536):
                    for frame in reader.feed(data):
                        if not self._answer(sock, bytes(frame)):
                            return
        finally:
            self.open_count -= 1

    def _answer(self, sock: socket.socket, frame: bytes) -> bool:
        header, request = decode_request(frame)
        key = ApiKey(header.api_key)
        self.asked.append((key, header.api_version, request))
        answer = self.answers.get(key, hang_up)(request, header.api_version)
        if answer is None:
            return False
        if isinstance(answer, Silence):
            return True
        if not isinstance(answer, bytes):
            correlation_id = header.correlation_id
            answer = framed(encode_response(answer, key, header.api_version, correlation_id=correlation_id))
        if self.chop is None or key is ApiKey.API_VERSIONS:
            sock.sendall(answer)
            return True
        for piece in (pieces := self.chop(answer)) or ():
            sock.sendall(piece)
        return pieces is not None and sum(map(len, pieces)) == len(answer)


def framed(parts: list[Any]) -> bytes:
    return b"".join(map(bytes, encode_frame(parts)))


def versions_response(**limits: tuple[int, int]) -> api_versions.ApiVersionsResponse:
    """Everything that is known here; of some only these versions."""
    served = []
    for key, api in APIS.items():
        first, last = limits.get(key.name, (api.first, api.last))
        served.append(api_versions.ServedApi(key, first, last))
    return api_versions.ApiVersionsResponse(apis=tuple(served))


def topic_id_of(name: str) -> uuid.UUID:
    """Each name has one."""
    return uuid.uuid5(uuid.NAMESPACE_OID, name)


def metadata_response(peers: Sequence[Peer], leaders: dict[str, Sequence[int]]) -> metadata.MetadataResponse:
    """Topics, each with the ids of the leaders of its partitions."""
    topics = tuple(
        metadata.Topic(
            name=name,
            topic_id=topic_id_of(name),
            partitions=tuple(
                metadata.Partition(0, number, leader, 0, (leader,), (leader,))
                for number, leader in enumerate(ids)
            ),
        )
        for name, ids in leaders.items()
    )
    brokers = tuple(metadata.Broker(each.node_id, "127.0.0.1", each.port) for each in peers)
    return metadata.MetadataResponse(0, brokers, "cluster", peers[0].node_id, topics)


def tell_of(peers: Sequence[Peer], leaders: dict[str, Sequence[int]]) -> None:
    """Each of the peers answers Metadata so: of the topics that are asked for."""

    def answer(request: metadata.MetadataRequest, version: int) -> metadata.MetadataResponse:
        wanted = list(leaders) if request.topics is None else [each.name for each in request.topics]
        there = {name: leaders[name] for name in wanted if name in leaders}
        found = metadata_response(peers, there)
        missing = tuple(metadata.Topic(3, name) for name in wanted if name not in leaders)
        return found._replace(topics=found.topics + missing)

    for each in peers:
        each.answers[ApiKey.METADATA] = answer
