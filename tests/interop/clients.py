"""The ordinary clients of the tests: kafka-python for topics, producing and consuming.

Knows the client package and its quirks, and turns its records into `SeenRecord`, the form in which the
committed data keeps what a client saw. Does not know the broker's process or files.
"""

from __future__ import annotations

import socket
import struct
import time
import warnings
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

# The suite turns warnings into errors, and the package warns while it is imported (it reads its schemas
# through a deprecated function of importlib). Nothing else of ours imports it.
with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from kafka import KafkaConsumer, KafkaProducer, TopicPartition
    from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient, NewTopic
    from kafka.structs import OffsetAndMetadata

Isolation = Literal["read_uncommitted", "read_committed"]
Codec = Literal["gzip", "snappy", "lz4", "zstd"]

# timestampType of the wire, in the words of Kafka's tools.
TIMESTAMP_TYPES = {-1: "NoTimestampType", None: "NoTimestampType", 0: "CreateTime", 1: "LogAppendTime"}


class SeenRecord(NamedTuple):
    """A record as a client hands it out. `leader_epoch` is -1 where the client has none (old formats)."""

    offset: int
    timestamp_ms: int
    timestamp_type: str
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    leader_epoch: int = -1


class NewRecord(NamedTuple):
    """A record to produce; without a timestamp the client takes the clock's."""

    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...] = ()
    timestamp_ms: int | None = None


def create_topics(
    bootstrap: str, partitions: Mapping[str, int], config: Mapping[str, Mapping[str, object]]
) -> None:
    """Create topics with their numbers of partitions, and the settings that some have."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        settings = {
            topic: {name: str(value) for name, value in config.get(topic, {}).items()} for topic in partitions
        }
        admin.create_topics(
            [NewTopic(topic, count, 1, topic_configs=settings[topic]) for topic, count in partitions.items()]
        )
    finally:
        admin.close()


def alter_topics(bootstrap: str, topics: Iterable[str], config: Mapping[str, object]) -> None:
    """Change some settings of topics, and leave the others."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        settings = {name: str(value) for name, value in config.items()}
        admin.alter_configs([ConfigResource(ConfigResourceType.TOPIC, topic, settings) for topic in topics])
    finally:
        admin.close()


class Produced(NamedTuple):
    """A broker's answer to a batch."""

    error_code: int
    base_offset: int


OUT_OF_ORDER_SEQUENCE = 45


def produce_batch(bootstrap: str, topic: str, batch: bytes, *, partition: int = 0) -> Produced:
    """Send a batch as it stands, under the producer id and sequence that it has. No client package lets
    another continue an idempotent producer, so this speaks version 3 of the produce request itself."""
    body = struct.pack(">hii", -1, 30_000, 1) + _string(topic)
    body += struct.pack(">iii", 1, partition, len(batch)) + batch
    head = struct.pack(">hhi", 0, 3, 1) + _string("interop") + struct.pack(">h", -1)
    host, port = bootstrap.split(":")
    with socket.create_connection((host, int(port)), timeout=30) as connection:
        connection.sendall(struct.pack(">i", len(head + body)) + head + body)
        with connection.makefile("rb") as stream:
            (size,) = struct.unpack(">i", stream.read(4))
            answer = stream.read(size)
    # Correlation id, one topic with its name, one partition: its number, then what is wanted.
    return Produced(*struct.unpack_from(">hq", answer, 4 + 4 + len(_string(topic)) + 4 + 4))


def _string(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()


def delete_records(bootstrap: str, topic: str, partition: int, before_offset: int) -> None:
    """Move the log start offset of a partition up to `before_offset`."""
    admin = KafkaAdminClient(bootstrap_servers=bootstrap)
    try:
        admin.delete_records({TopicPartition(topic, partition): before_offset})
    finally:
        admin.close()


def produce(
    bootstrap: str,
    topic: str,
    batches: Iterable[Sequence[NewRecord]],
    *,
    partition: int = 0,
    codec: Codec | None = None,
    idempotent: bool = True,
) -> list[int]:
    """Produce each sequence as one batch and return the offsets of all records.

    The client sends a batch plain when `codec` does not make it smaller, and refuses null header values.
    """
    producer = _producer(bootstrap, codec=codec, idempotent=idempotent)
    try:
        return [offset for batch in batches for offset in _send_batch(producer, topic, partition, batch)]
    finally:
        producer.close()


def produce_transactions(
    bootstrap: str,
    topic: str,
    transactions: Iterable[tuple[Sequence[NewRecord], bool]],
    *,
    transactional_id: str,
    partition: int = 0,
) -> list[int]:
    """One transaction per (records, commit) pair, aborted where `commit` is false; returns all offsets."""
    producer = _producer(bootstrap, transactional_id=transactional_id)
    offsets: list[int] = []
    try:
        producer.init_transactions()
        for records, commit in transactions:
            producer.begin_transaction()
            offsets += _send_batch(producer, topic, partition, records)
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
    finally:
        producer.close()
    return offsets


def _producer(
    bootstrap: str,
    *,
    codec: Codec | None = None,
    idempotent: bool = True,
    transactional_id: str | None = None,
) -> Any:
    # A linger that no test reaches and a batch size above every test's batch: only flush ends a batch.
    return KafkaProducer(
        bootstrap_servers=bootstrap,
        acks="all",
        compression_type=codec,
        enable_idempotence=idempotent,
        transactional_id=transactional_id,
        linger_ms=60_000,
        batch_size=900_000,
    )


def _send_batch(producer: Any, topic: str, partition: int, records: Sequence[NewRecord]) -> list[int]:
    futures = [
        producer.send(
            topic,
            key=record.key,
            value=record.value,
            headers=list(record.headers),
            partition=partition,
            timestamp_ms=record.timestamp_ms,
        )
        for record in records
    ]
    producer.flush()
    return [future.get(timeout=30).offset for future in futures]


def consume(
    bootstrap: str,
    topic: str,
    *,
    partition: int = 0,
    isolation: Isolation = "read_uncommitted",
    from_offset: int | None = None,
    timeout_s: float = 30,
) -> list[SeenRecord]:
    """Every record from the log start (or `from_offset`) to the end that the isolation level allows.

    Checksums are verified by the client. Raises TimeoutError when the end is not reached.
    """
    at = TopicPartition(topic, partition)
    consumer = _consumer(bootstrap, isolation)
    try:
        consumer.assign([at])
        if from_offset is None:
            consumer.seek_to_beginning(at)
        else:
            consumer.seek(at, from_offset)
        end = consumer.end_offsets([at])[at]
        seen: list[SeenRecord] = []
        deadline = time.monotonic() + timeout_s
        # The position, not the last record, tells the end: markers and aborted records are passed over.
        while consumer.position(at) < end:
            if time.monotonic() > deadline:
                raise TimeoutError(
                    f"{topic}-{partition}: at {consumer.position(at)} of {end} after {timeout_s} s"
                )
            for records in consumer.poll(timeout_ms=200).values():
                seen += [_seen(record) for record in records]
        return seen
    finally:
        consumer.close()


def offset_range(
    bootstrap: str, topic: str, *, partition: int = 0, isolation: Isolation = "read_uncommitted"
) -> tuple[int, int]:
    """The log start offset and the end: the high watermark, or the last stable offset for read_committed."""
    at = TopicPartition(topic, partition)
    consumer = _consumer(bootstrap, isolation)
    try:
        return consumer.beginning_offsets([at])[at], consumer.end_offsets([at])[at]
    finally:
        consumer.close()


def offset_for_time(bootstrap: str, topic: str, timestamp_ms: int, *, partition: int = 0) -> int | None:
    """The first offset with a timestamp at or above `timestamp_ms`, or None: asks the broker's time index."""
    at = TopicPartition(topic, partition)
    consumer = _consumer(bootstrap, "read_uncommitted")
    try:
        found = consumer.offsets_for_times({at: timestamp_ms})[at]
        return None if found is None else found.offset
    finally:
        consumer.close()


def commit_group_offsets(bootstrap: str, group: str, offsets: Mapping[tuple[str, int], int]) -> None:
    """Commit offsets for a consumer group without joining it, as an administrator would."""
    consumer = KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    try:
        targets = {TopicPartition(*at): OffsetAndMetadata(offset, "", -1) for at, offset in offsets.items()}
        consumer.assign(list(targets))
        consumer.commit(targets)
    finally:
        consumer.close()


def _consumer(bootstrap: str, isolation: Isolation) -> Any:
    return KafkaConsumer(
        bootstrap_servers=bootstrap,
        group_id=None,
        enable_auto_commit=False,
        auto_offset_reset="none",
        isolation_level=isolation,
        check_crcs=True,
        exclude_internal_topics=False,
        max_poll_records=10_000,
    )


def _seen(record: Any) -> SeenRecord:
    timestamp_type = TIMESTAMP_TYPES[record.timestamp_type]
    return SeenRecord(
        offset=record.offset,
        timestamp_ms=-1 if record.timestamp is None else record.timestamp,
        timestamp_type=timestamp_type,
        key=record.key,
        value=record.value,
        headers=tuple(record.headers or ()),
        leader_epoch=-1 if record.leader_epoch is None else record.leader_epoch,
    )
