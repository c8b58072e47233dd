"""Hostile clients: each connects, does one bad thing, and comes again.

Run as ``python -m tests.wire.hostile.clients ADDRESS COUNT SEED``: ``COUNT`` of them at any time, until the
input ends; then prints how often each thing was done, as JSON. They speak through plain sockets, with no
client library that would do things properly.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import random
import socket
import struct
import sys
from collections import Counter
from collections.abc import Awaitable, Callable

from logstore.wire.apis import ApiKey
from logstore.wire.messages.cluster.api_versions import ApiVersionsRequest
from logstore.wire.messages.cluster.metadata import MetadataRequest, TopicWanted
from logstore.wire.messages.groups.join_group import JoinGroupRequest, Protocol
from logstore.wire.messages.records import fetch, list_offsets, produce
from tests.wire.raw_client import frame_of

HOSTILE_TOPIC = "h"
FOREIGN = (
    b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    bytes.fromhex("160301020001000001fc0303") + bytes(100),  # TLS
    b"\x03\x00\x00\x13\x0e\xe0\x00\x00\x00\x00\x00\x01\x00\x08\x00\x03\x00\x00\x00",  # RDP
    struct.pack(">i", 2**31 - 1),
    struct.pack(">i", -1),
    struct.pack(">i", 99_000_000) + bytes(1000),  # a request that never ends
    struct.pack(">ihhihi", 14, ApiKey.METADATA, 1, 1, -1, 2**31 - 1),
)
_REPLY_SECONDS = 0.5
_LONGEST_STALL_SECONDS = 6.0


def fetch_of(max_wait_ms: int) -> bytes:
    part = fetch.Partition(0, fetch_offset=0, max_bytes=1 << 20)
    topic = fetch.Topic(HOSTILE_TOPIC, partitions=(part,))
    return frame_of(
        fetch.FetchRequest(max_wait_ms=max_wait_ms, min_bytes=2**30 if max_wait_ms else 1, topics=(topic,)),
        ApiKey.FETCH,
        12,
    )


def valid_requests() -> list[bytes]:
    """Requests that would be answered."""
    part = produce.Partition(0, b"\0" * 61)
    return [
        frame_of(ApiVersionsRequest("x", "1"), ApiKey.API_VERSIONS, 3),
        frame_of(MetadataRequest((TopicWanted(name=HOSTILE_TOPIC),)), ApiKey.METADATA, 12),
        frame_of(MetadataRequest(None), ApiKey.METADATA, 12),
        frame_of(list_offsets.ListOffsetsRequest(-1, 0, ()), ApiKey.LIST_OFFSETS, 7),
        frame_of(
            produce.ProduceRequest(
                acks=-1, timeout_ms=1000, topics=(produce.Topic(HOSTILE_TOPIC, partitions=(part,)),)
            ),
            ApiKey.PRODUCE,
            9,
        ),
        frame_of(
            JoinGroupRequest(
                group_id="h",
                session_timeout_ms=6_000,
                rebalance_timeout_ms=6_000,
                protocol_type="consumer",
                protocols=(Protocol("range", b"\0\0\0\0\0\0\xff\xff\xff\xff"),),
            ),
            ApiKey.JOIN_GROUP,
            3,  # makes a member at once, who is never heard of again
        ),
        fetch_of(0),
        fetch_of(30_000),
    ]


class Hostile:
    """What the clients do. Each coroutine has a connected socket, and leaves it as it is."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.valid = valid_requests()

    async def stall(self, sock: socket.socket) -> None:
        """Say nothing, or a part of something, and wait."""
        if self.chance.random() < 0.7:
            data = self.chance.choice(self.valid)
            await send(sock, data[: self.chance.randrange(len(data))])
        await asyncio.sleep(self.chance.uniform(0.5, _LONGEST_STALL_SECONDS))

    async def ask_and_go(self, sock: socket.socket) -> None:
        """Ask for much, and go before the answers."""
        for _ in range(self.chance.randrange(1, 8)):
            await send(sock, self.chance.choice(self.valid))
        await asyncio.sleep(self.chance.choice((0, 0, 0.001, 0.05, 1)))

    async def take_a_little(self, sock: socket.socket) -> None:
        """Ask for much, take some bytes of the answers, and go."""
        for _ in range(5):
            await send(sock, fetch_of(0))
        await receive(sock, self.chance.randrange(1, 200_000))

    async def be_deaf(self, sock: socket.socket) -> None:
        """Ask for much, and never take an answer."""
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        for _ in range(20):
            await send(sock, fetch_of(0))
        await asyncio.sleep(self.chance.uniform(0.5, _LONGEST_STALL_SECONDS))

    async def send_garbage(self, sock: socket.socket) -> None:
        """Bytes of no protocol, of another one, or requests with changed bytes."""
        kind = self.chance.randrange(3)
        if kind == 0:
            data = bytearray(self.chance.randbytes(self.chance.choice((3, 60, 5_000))))
        elif kind == 1:
            data = bytearray(self.chance.choice(FOREIGN))
        else:
            data = bytearray(self.chance.choice(self.valid))
            for _ in range(self.chance.randrange(1, 5)):
                data[self.chance.randrange(len(data))] = self.chance.randrange(256)
        await send(sock, bytes(data))
        await receive(sock, 1_000)

    async def half_close(self, sock: socket.socket) -> None:
        """Ask, and say that nothing more will come."""
        await send(sock, self.chance.choice(self.valid))
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_WR)
        await receive(sock, 1_000)

    def things(self) -> list[Callable[[socket.socket], Awaitable[None]]]:
        return [
            self.stall,
            self.ask_and_go,
            self.take_a_little,
            self.be_deaf,
            self.send_garbage,
            self.half_close,
        ]


async def send(sock: socket.socket, data: bytes) -> None:
    """All of it, or as much as the other side takes for a while."""
    with contextlib.suppress(OSError, TimeoutError):
        await asyncio.wait_for(asyncio.get_running_loop().sock_sendall(sock, data), _REPLY_SECONDS)


async def receive(sock: socket.socket, size: int) -> None:
    """So many bytes, if they come soon."""
    loop = asyncio.get_running_loop()
    with contextlib.suppress(OSError, TimeoutError):
        while size > 0:
            data = await asyncio.wait_for(loop.sock_recv(sock, min(size, 65_536)), _REPLY_SECONDS)
            if not data:
                return
            size -= len(data)


async def come_again(
    address: tuple[str, int], hostile: Hostile, done: Counter[str], over: asyncio.Event
) -> None:
    chance, things = hostile.chance, hostile.things()
    while not over.is_set():
        thing = chance.choice(things)
        sock = socket.socket()
        sock.setblocking(False)
        try:
            await asyncio.get_running_loop().sock_connect(sock, address)
            await thing(sock)
            done[thing.__name__] += 1
            if chance.random() < 0.5:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                done["reset"] += 1
        except OSError:
            done["not let in"] += 1
            await asyncio.sleep(0.05)
        finally:
            sock.close()


async def run(address: str, count: int, seed: int) -> Counter[str]:
    host, _, port = address.rpartition(":")
    over, done = asyncio.Event(), Counter[str]()
    hostile = Hostile(seed)
    clients = [asyncio.create_task(come_again((host, int(port)), hostile, done, over)) for _ in range(count)]
    print("coming", flush=True)
    await asyncio.to_thread(sys.stdin.read)
    over.set()
    await asyncio.gather(*clients)
    return done


if __name__ == "__main__":
    print(json.dumps(asyncio.run(run(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))))
