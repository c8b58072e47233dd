"""Steps of produce, fetch and look up: what is right, what is wrong, and what is odd."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from typing import Any, Final

from logstore.format import checksum
from logstore.format.batch import encode_batch
from logstore.format.compression import Codec
from logstore.format.messages.fields import NO_UUID
from logstore.wire.apis import ApiKey
from logstore.wire.messages.cluster import metadata
from logstore.wire.messages.records import fetch, list_offsets, produce
from tests.broker.rig import batch_of
from tests.interop.request_steps import LOST, NOW_MS, Party, Step, known, read, step, write

ONE: Final = batch_of([b"x"], NOW_MS)
HOUR_MS: Final = 3_600_000
PLACES: Final = {"leader epoch": 12, "magic": 16, "attributes": 21, "last delta": 23, "first time": 27}
PLACES_BEHIND: Final = {"last time": 35, "producer": 43, "epoch": 51, "sequence": 53, "count": 57}


def changed(data: bytes, what: str, layout: str, value: int) -> bytes:
    """With one field changed, and sealed again."""
    copy = bytearray(data)
    struct.pack_into(layout, copy, {**PLACES, **PLACES_BEHIND}[what], value)
    struct.pack_into(">I", copy, 17, checksum.crc32c(bytes(copy[21:])))
    return bytes(copy)


def keyed(*rows: tuple[bytes | None, bytes | None]) -> bytes:
    keys, values = zip(*rows, strict=True)
    return bytes(encode_batch(keys, values, NOW_MS))


def with_header(key: bytes) -> bytes:
    """A record with a header whose key has these bytes, with their size in front: three in all."""
    batch = bytes(encode_batch([b"k"], [b"v"], NOW_MS, [[("~~", b"x")]])).replace(b"\x04~~", key)
    return changed(batch, "magic", ">B", 2)


def steps() -> Iterator[Step]:
    """All of them, in order."""
    yield from _writes()
    yield from _made_wrong()
    yield from _compressed()
    yield from _at_odd_times()
    yield from _idempotent()
    yield from _looked_up()
    yield from _described()
    yield from _reads()
    yield from _in_a_session()


def _writes() -> Iterator[Step]:
    for version in (3, 7, 9, 11, 12, 13):
        yield write("two records", batch_of([b"a", b"b"], NOW_MS), version=version)
    for acks in (-1, 2, -2):
        yield write("acks", ONE, acks=acks)
    for version in (12, 13):
        yield write("nowhere", ONE, "nope", version=version)
        yield write("no such partition", ONE, partition=9, version=version)
        yield write("below zero", ONE, partition=-1, version=version)
    yield write("an empty name", ONE, by="")
    yield from _named_twice()


def _named_twice() -> Iterator[Step]:
    """The last batch for a partition counts."""
    two, broken = batch_of([b"a", b"b"], NOW_MS), ONE[:-1] + bytes([ONE[-1] ^ 1])
    for first, last in ((ONE, two), (ONE, broken), (broken, ONE)):
        parts = tuple(produce.Partition(0, bytes(each)) for each in (first, last))
        yield _produced("a partition twice", produce.Topic("t", partitions=parts))
        yield _produced("a topic twice", *(produce.Topic("t", partitions=(each,)) for each in parts))
    apart = (produce.Topic("t", partitions=(produce.Partition(number, bytes(ONE)),)) for number in (0, 1))
    yield _produced("a topic twice, another partition", *apart)
    parts = tuple(produce.Partition(9, bytes(ONE)) for _ in range(2))
    yield _produced("no such partition, twice", produce.Topic("t", partitions=parts))


def _produced(name: str, *topics: produce.Topic) -> Step:
    return step(name, ApiKey.PRODUCE, 12, acks=1, timeout_ms=5000, topics=topics)


def _made_wrong() -> Iterator[Step]:
    broken = bytearray(ONE)
    broken[-1] ^= 1
    for name, data in (
        ("nothing", b""),
        ("five zeros", bytes(5)),
        ("a header of zeros", bytes(61)),
        ("all ones", b"\xff" * 99),
        ("cut", ONE[:-1]),
        ("more behind it", ONE + bytes(3)),
        ("two batches", ONE + ONE),
        ("a changed byte", bytes(broken)),
        ("base offset 7", struct.pack(">q", 7) + ONE[8:]),
        ("base offset -1", struct.pack(">q", -1) + ONE[8:]),
        ("small size", ONE[:8] + struct.pack(">i", 10) + ONE[12:]),
        ("size below zero", ONE[:8] + struct.pack(">i", -1) + ONE[12:]),
        ("size beyond the end", ONE[:8] + struct.pack(">i", 99_999) + ONE[12:]),
        ("another leader epoch", ONE[:12] + struct.pack(">i", 99) + ONE[16:]),
        *((f"magic {number}", ONE[:16] + bytes([number]) + ONE[17:]) for number in (0, 1, 3, 255)),
    ):
        yield write(name, data)
    for bits in (0x08, 0x10, 0x20, 0x30, 0x40, 0x80, 0x4000):
        yield write(f"attributes {bits:#x}", changed(ONE, "attributes", ">H", bits))
    yield write("codec 5", changed(ONE, "attributes", ">H", 5))
    for count in (0, 5, -1):
        yield write(f"count {count}", changed(ONE, "count", ">i", count))
    for delta in (5, -1):
        yield write(f"last delta {delta}", changed(ONE, "last delta", ">i", delta))
    yield write("six of one", changed(changed(ONE, "last delta", ">i", 5), "count", ">i", 6))
    yield write("small", batch_of([b"y"], NOW_MS), "small")
    yield write("large", batch_of([b"y" * 300], NOW_MS), "small")
    yield write("a key, later a tombstone", keyed((b"k", b"v"), (b"k", None)), "compacted")
    for topic in ("t", "lz4"):
        yield write("a header key that is no UTF-8", with_header(b"\x04\xff\xed"), topic)
        yield write("a header key that is null", with_header(b"\x01~~"), topic)
    for rows in (((None, b"v"),), ((None, b"v"), (None, b"w")), ((b"k", b"v"), (None, b"w"))):
        yield write(f"without a key {rows}", keyed(*rows), "compacted")


def _compressed() -> Iterator[Step]:
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        data = bytes(encode_batch([None] * 2, [b"a" * 100, b"b" * 100], NOW_MS, codec=codec))
        for version in (3, 6, 7, 12):
            yield write(codec.name, data, "other", version=version)
        yield write(f"{codec.name}, stored otherwise", data, "lz4")
        yield write(f"{codec.name}, small", data, "small")
        yield write(f"{codec.name}, last delta", changed(data, "last delta", ">i", 5))
        yield write(f"{codec.name}, count", changed(data, "count", ">i", 3))
        torn = bytearray(data)
        torn[70:73] = b"\x55\x55\x55"
        yield write(f"{codec.name}, torn", changed(bytes(torn), "count", ">i", 2))
        for version in (4, 9, 10, 12):
            yield read(codec.name, fetch.Partition(0, max_bytes=10_000), topic="other", version=version)


def _at_odd_times() -> Iterator[Step]:
    times = {
        "none": -1,
        "1970": 0,
        "long ago": NOW_MS - 10**10,
        "in three hours": NOW_MS + 3 * HOUR_MS,
        "in years": NOW_MS + 10**11,
        "in ages": 2**62,
    }
    for name, time_ms in times.items():
        for topic in ("t", "recent", "stamped"):
            yield write(f"at {name}", batch_of([b"x"], time_ms), topic)
    yield write("another last time", changed(ONE, "last time", ">q", NOW_MS + 5))
    yield write("no last time", changed(ONE, "last time", ">q", -1))
    yield write("first time below none", changed(ONE, "first time", ">q", -5))
    yield write("another last time", changed(ONE, "last time", ">q", NOW_MS + 5), "stamped")


def _idempotent() -> Iterator[Step]:
    yield step("of one run", ApiKey.INIT_PRODUCER_ID, transactional_id=None, transaction_timeout_ms=1000)
    known_id = known("producer None")

    def send(name: str, sequence: int, epoch: int = 0, count: int = 1, producer: Any = known_id) -> Step:
        def data(side: Party) -> bytes:
            number = producer(side) if callable(producer) else producer
            values = [b"i"] * count
            return batch_of(values, NOW_MS, producer_id=number, producer_epoch=epoch, base_sequence=sequence)

        return write(f"{name}, sequence {sequence}, epoch {epoch}", data)

    yield send("the first", 0)
    yield send("the same", 0)
    yield send("too far", 5)
    yield send("three more", 1, count=3)
    yield send("more than these", 1, count=4)
    yield send("of these", 2)
    yield send("the next", 4)
    yield send("an epoch from the middle", 3, epoch=1)
    yield send("an epoch", 0, epoch=1)
    yield send("the old epoch", 5)
    yield send("no epoch", 0, epoch=-1)
    yield send("no sequence", -1)
    for sequence in (5, 9, 6, 4):
        yield send("never heard of", sequence, producer=123_456)
    yield send("the last number", 2**31 - 1, producer=777)
    yield send("from the beginning", 0, producer=777)
    for sequence in range(6):
        yield send("one of six", sequence, producer=900)
    yield send("the second of six again", 1, producer=900)
    yield send("the first of six again", 0, producer=900)
    of_transaction = batch_of([b"t"], NOW_MS, producer_id=900, producer_epoch=0, base_sequence=6)
    yield write("a transaction without a name", changed(of_transaction, "attributes", ">H", 0x10))


def _looked_up() -> Iterator[Step]:
    def look(*parts: tuple[int, ...], topic: str = "t", version: int = 10, **options: Any) -> Step:
        topics = (list_offsets.Topic(topic, tuple(list_offsets.Partition(*each) for each in parts)),)
        fields = {"replica_id": -1, **options, "topics": topics}
        return step("", ApiKey.LIST_OFFSETS, version, **fields)

    for time_ms in (-1, -2, -3, -4, -5, 0, NOW_MS - 1, NOW_MS, NOW_MS + 1, NOW_MS + 5, 2**62):
        for isolation in (0, 1):
            yield look((0, -1, time_ms), isolation_level=isolation)
    for time_ms in (-6, -1):
        yield look((0, -1, time_ms), (9, -1, time_ms), version=11)
    for version in range(1, 11):
        yield look((0, -1, -1), (1, -1, -2), version=version)
    for epoch in (0, 5):
        yield look((0, epoch, -1))
    for time_ms in (-1, -4, -5):
        yield look((9, -1, time_ms))
    yield look((-1, -1, -1))
    yield look((0, -1, -1), topic="nope")
    for topic in ("u", "stamped", "compacted", "small"):
        yield look((0, -1, -3), topic=topic)
        yield look((0, -1, 0), topic=topic)


def _described() -> Iterator[Step]:
    def ask(name: str, version: int, *topics: Any, **options: Any) -> Step:
        def wanted(side: Party) -> tuple[metadata.TopicWanted, ...]:
            return tuple(
                metadata.TopicWanted(name=name, topic_id=NO_UUID if its is None else side.ids.get(its, LOST))
                for its, name in topics
            )

        quiet = {"allow_auto_topic_creation": False} if version >= 4 else {}
        return step(f"{name} {topics}", ApiKey.METADATA, version, topics=wanted, **quiet, **options)

    for version in range(14):
        yield ask("a topic", version, (None, "t"), (None, "u"))
        if version >= 4:
            yield ask("what is not there", version, (None, "nope"), (None, "t"), (None, "t"))
        if version >= 1:
            yield ask("nothing", version)
            for name in ("a b", "", ".", "x" * 250):
                yield ask("no name of a topic", version, (None, name))
        if version >= 8:
            yield ask("its rights", version, (None, "t"), include_topic_authorized_operations=True)
        if version >= 12:
            for its in ("t", "nope"):
                yield ask("by id", version, (its, None))
            yield ask("by id with a name", version, ("t", "u"))


def _reads() -> Iterator[Step]:
    def part(number: int = 0, offset: int = 0, most: int = 300, **fields: int) -> fetch.Partition:
        return fetch.Partition(number, fetch_offset=offset, max_bytes=most, **fields)

    for version in (4, 5, 7, 11, 12, 13, 15, 16, 17, 18):
        yield read("from the start", part(), version=version)
        yield read("nowhere", part(), topic="nope", version=version)
        yield read("no such partition", part(9), version=version)
        yield read("beyond the end", part(0, 10**6), version=version)
        if version >= 9:
            yield read("a later epoch", part(current_leader_epoch=9), version=version)
            yield read("the epoch", part(current_leader_epoch=0), version=version)
    for offset in (1, 2, 5, 10, -1, 2**62):
        yield read("from there", part(0, offset))
    for most in (0, 1, 100):
        yield read("at most", part(most=most))
        yield read("at most of all", part(), part(1), max_bytes=most)
    for epoch in (0, 5):
        yield read("after an epoch", part(0, 3, last_fetched_epoch=epoch))
    yield read("no bytes at least", part(), min_bytes=-5)
    yield read("by a debugger", part(), replica_id=-2)


def _in_a_session() -> Iterator[Step]:
    def part(number: int = 0, offset: int = 0) -> fetch.Partition:
        return fetch.Partition(number, fetch_offset=offset, max_bytes=100)

    def go_on(epoch: int, *parts: fetch.Partition, **options: Any) -> Step:
        return read(f"epoch {epoch}", *parts, session_id=known("session 0"), session_epoch=epoch, **options)

    yield read("a session", part(), part(1), session_epoch=0)
    yield go_on(1)
    yield go_on(1)
    yield go_on(5)
    yield go_on(2, part(0, 10**6))
    yield go_on(3)
    yield go_on(4, part())
    forgotten: Callable[[int], fetch.ForgottenTopic] = lambda number: fetch.ForgottenTopic(  # noqa: E731
        "t", partitions=(number, 9)
    )
    yield go_on(5, forgotten_topics=(forgotten(0),))
    yield go_on(6)
    yield go_on(-1)
    yield go_on(7)
    for session, epoch in ((99, 1), (99, 0), (99, -1), (0, 5), (0, -5), (-4, 1)):
        yield read(f"of session {session}, {epoch}", part(), session_id=session, session_epoch=epoch)
    yield read("a session of nothing", session_epoch=0)
