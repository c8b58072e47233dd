"""Random requests of those who produce, fetch, look up and delete records."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final

from logstore.format.batch import encode_batch
from logstore.format.compression import Codec
from logstore.wire.apis import ApiKey
from logstore.wire.messages.records import (
    delete_records,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from tests.interop.drawn.choices import TOPICS, Choices, Value
from tests.interop.request_steps import LOST, NOW_MS, Party, Step
from tests.interop.steps_of_records import HOUR_MS, changed

_CODECS: Final = (Codec.NONE, Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD)


class Records(Choices):
    """Batches right and wrong, and reads at the borders."""

    def _batch(self, version: int, *, right: bool) -> Value:
        r = self._random
        values = [b"v" * self._mostly(9, 0, 300) for _ in range(r.randint(1, 3))]
        keys = [self._mostly(b"k", None)] * len(values)
        time_ms = (
            NOW_MS
            if right or None in keys
            else self._mostly(NOW_MS, -1, 0, NOW_MS - 2 * HOUR_MS, NOW_MS + 2 * HOUR_MS, 2**62)
        )
        fields = {"codec": self._one(*_CODECS[: 6 if version >= 7 else 5])}
        plain = bytes(encode_batch(keys, values, time_ms, **fields))
        wrong = self._wrong(plain) if not right and self._seldom(0.12) else None
        return lambda side: plain if wrong is None else wrong

    def _wrong(self, data: bytes) -> bytes:
        flipped = bytearray(data)
        flipped[self._random.randrange(17, len(data))] ^= 1 << self._random.randrange(8)
        place, layout = self._one(
            ("last delta", ">i"),
            ("count", ">i"),
            ("attributes", ">H"),
            ("first time", ">q"),
            ("last time", ">q"),
        )
        value = self._one(0, 1, 2, 5, 0x10, 0x20, 0x30, 0x40, *((-1, -2) if layout != ">H" else (0x8000,)))
        return self._one(
            b"",
            bytes(self._random.randrange(1, 12)),
            data[: self._random.randrange(1, len(data))],
            data + bytes(self._random.randrange(1, 12)),
            data + data,
            bytes(flipped),
            data[:16] + bytes([self._one(0, 1, 3, 255)]) + data[17:],
            struct.pack(">q", self._one(-1, 7, 2**62)) + data[8:],
            data[:8] + struct.pack(">i", self._one(-1, 0, 10, 49, len(data), 2**31 - 1)) + data[12:],
            data[:12] + struct.pack(">i", self._one(0, 7, -2)) + data[16:],
            changed(data, place, layout, value),
        )

    def _stamped(self, batch: Value, producer: str, topic: str, part: int) -> Value:
        """With a producer's numbers."""
        its_id, epoch = self._id_of(producer), self._epoch_of(producer)
        is_named = producer.startswith("x")
        by = self._random.choices(
            (0, 1, 5, -1, -3, -10), (60, 3, 2, *((0, 0, 0) if is_named else (4, 2, 1)))
        )[0]
        anew = not is_named and self._seldom(0.06)
        is_transactional = is_named

        def data(side: Party) -> bytes:
            plain = batch(side)
            if len(plain) < 61:
                return plain
            number, its_epoch = its_id(side), max(epoch(side), 0)
            counted = side.known.get(f"epoch {producer}", 0) if is_named else its_epoch
            sequence = max(
                0 if anew else side.known.get(f"next {number} {counted} {topic} {part}", 0) + by, 0
            )
            plain = changed(plain, "producer", ">q", number)
            plain = changed(plain, "epoch", ">h", its_epoch)
            plain = changed(plain, "sequence", ">i", sequence)
            bits = struct.unpack_from(">H", plain, 21)[0] | (0x10 if is_transactional else 0)
            return changed(plain, "attributes", ">H", bits)

        return data

    def _produce(self) -> Step:
        topic, part, version = self._topic(), self._part(), self._version(ApiKey.PRODUCE)
        producer = self._producer() if self._seldom(0.6) else None
        if producer is not None and producer.startswith("x"):
            version = self._version_of(producer, ApiKey.PRODUCE, 12)
            topic = topic if topic == self._named("nope") else self._transactional_topic()
        second = 1 - part if part in (0, 1) and self._seldom(0.08) else None
        batch = self._batch(
            version,
            right=second is not None
            or producer is not None
            or part not in range(TOPICS.get(topic.split("-")[0], (0,))[0])
            or topic.startswith("small"),
        )
        if producer is not None:
            batch = self._stamped(batch, producer, topic, part)
        by = producer if producer and "x" in producer.split("-")[0] else None
        by = by if not self._seldom(0.03) else self._one(None, self._named("x1"))
        acks = (
            self._random.choices((1, -1, 0), (12, 12, 2))[0]
            if by
            else self._random.choices((1, -1, 0, 2), (12, 12, 2, 0))[0]
        )

        def fields(side: Party) -> dict[str, Any]:
            data = batch(side)
            parts = (produce.Partition(part, data),)
            if second is not None:
                parts += (produce.Partition(second, data),)
            named = {"name": topic} if version < 13 else {"topic_id": side.ids.get(topic, LOST)}
            topics = (produce.Topic(**named, partitions=parts),)
            return {"transactional_id": by, "acks": acks, "timeout_ms": 5000, "topics": topics}

        return Step(f"acks={acks} by={producer} {topic} {part} {second}", ApiKey.PRODUCE, version, fields)

    def _fetch_part(self, topic: str, part: int) -> Callable[[Party, int], fetch.Partition]:
        offset = self._one(
            lambda side: 0,
            self._near(f"end {topic} {part}", 0, -3, 10**6),
            self._near(f"start {topic} {part}", 0, -3),
            self._near(f"end {topic} {part}", 0, -5),
        )
        most = self._mostly(10_000, 0, 1, 100, 300)
        current, last = self._mostly(-1, 0, 1, 7), self._mostly(-1, 1)

        def made(side: Party, version: int) -> fetch.Partition:
            extra = {"current_leader_epoch": current} if version >= 9 else {}
            extra |= {"last_fetched_epoch": last} if version >= 12 else {}
            return fetch.Partition(part, fetch_offset=max(offset(side), 0), max_bytes=most, **extra)

        return made

    def _fetch(self) -> Step:
        topic, version = self._topic(), self._version(ApiKey.FETCH)
        parts = [self._fetch_part(topic, part) for part in self._one((0,), (0, 1), (0, 9), (1,))]
        rest = {"isolation_level": self._one(0, 1), "max_bytes": self._mostly(10**6, 0, 1, 150)}

        def fields(side: Party) -> dict[str, Any]:
            named = {"name": topic} if version < 13 else {"topic_id": side.ids.get(topic, LOST)}
            topics = (fetch.Topic(**named, partitions=tuple(each(side, version) for each in parts)),)
            return {"topics": topics, "max_wait_ms": 0, **rest}

        return Step(f"{topic} {rest}", ApiKey.FETCH, version, fields)

    def _fetch_in_session(self) -> Step:
        """Of version 13 or later: a session is all names, or all ids."""
        topic, version = self._topic(), self._version(ApiKey.FETCH, 13)
        part = self._one(0, 0, 1)
        is_new, wanted = self._seldom(0.2), self._seldom(0.4)
        made = self._fetch_part(topic, part)
        session = self._mostly(lambda side: side.known.get("session", 0), lambda side: 5, lambda side: 0)
        epoch = self._near("epoch of session", 1, 3, -9)
        closes, forgets = self._seldom(0.05), None
        level = self._one(0, 1)

        def fields(side: Party) -> dict[str, Any]:
            its_id = side.ids.get(topic, LOST)
            topics = (fetch.Topic(topic_id=its_id, partitions=(made(side, version),)),)
            gone = (
                ()
                if forgets is None
                else (fetch.ForgottenTopic(topic_id=side.ids.get(forgets, LOST), partitions=(0,)),)
            )
            return {
                "topics": topics if is_new or wanted else (),
                "forgotten_topics": () if is_new else gone,
                "max_wait_ms": 0,
                "isolation_level": level,
                "session_id": 0 if is_new else session(side),
                "session_epoch": 0 if is_new else -1 if closes else epoch(side),
            }

        return Step(
            f"session new={is_new} {wanted} {topic} forgets {forgets} {closes}", ApiKey.FETCH, version, fields
        )

    def _list_offsets(self) -> Step:
        topic, version = self._topic(), self._version(ApiKey.LIST_OFFSETS)
        newer = [time_ms for time_ms, first in ((-3, 7), (-4, 8), (-5, 9), (-6, 11)) if version >= first]
        time_ms = self._one(-1, -2, *newer, 0, NOW_MS, NOW_MS - 1, NOW_MS + 1, 2**62)
        if time_ms >= 0 or time_ms == -3:
            topic = self._named(self._one("small", "lz4", "near", "compacted"))
        parts = tuple(
            list_offsets.Partition(part, self._mostly(-1, 0, 1) if version >= 4 else -1, time_ms)
            for part in self._one((0,), (0, 1), (9,))
        )
        fields = {"replica_id": -1, "topics": (list_offsets.Topic(topic, parts),)}
        if version >= 2:
            fields["isolation_level"] = self._one(0, 1)
        return Step(f"{fields}", ApiKey.LIST_OFFSETS, version, lambda side: fields)

    def _epoch_end(self) -> Step:
        topic, version = self._topic(), self._version(ApiKey.OFFSET_FOR_LEADER_EPOCH)
        part = offset_for_leader_epoch.Partition(self._part(), self._mostly(-1, 0, 1), self._one(-1, 0, 1, 7))
        fields = {"topics": (offset_for_leader_epoch.Topic(topic, (part,)),)}
        return Step(f"{fields}", ApiKey.OFFSET_FOR_LEADER_EPOCH, version, lambda side: fields)

    def _delete_records(self) -> Step:
        topic, part = self._topic(), self._part()
        offset = self._one(
            self._near(f"start {topic} {part}", 0, 1),
            self._near(f"end {topic} {part}", 0, -3),
            lambda side: self_one,
        )
        self_one = self._one(-1, -2, 0)

        def fields(side: Party) -> dict[str, Any]:
            parts = (delete_records.Partition(part, offset(side)),)
            return {"topics": (delete_records.Topic(topic, parts),), "timeout_ms": 1000}

        return Step(f"{topic} {part}", ApiKey.DELETE_RECORDS, self._version(ApiKey.DELETE_RECORDS), fields)
