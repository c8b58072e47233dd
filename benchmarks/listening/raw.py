"""What the raw client does. Its requests are encoded before the clock starts, and of the answers it reads
what it must: errors, and how far a fetch has come."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable
from typing import Any, Final

from benchmarks.clients.measuring import percentile
from benchmarks.listening.frames import FrameConnection, frame_of
from benchmarks.listening.measuring import ACKS_ONE, SHAPE_OF, Found, Shape
from benchmarks.records import WrongDataError
from logstore.wire.apis import ApiKey
from logstore.wire.messages.cluster.api_versions import ApiVersionsRequest
from logstore.wire.messages.records import fetch, produce

IN_FLIGHT: Final = 5
"""Produce requests that wait for their answers: as many as the Java client allows itself."""
CONSUMERS: Final = 2
"""Connections that fetch, in one thread: while one answer is read the other is made."""
_PARTITION_BYTES: Final = 1_048_576
"""That a fetch asks for: the default of librdkafka and of the Java client."""
_FETCH_BYTES: Final = 50 * 2**20
_ACKS_TIMEOUT_MS: Final = 30_000
_WAIT_MS: Final = 5_000
_PATIENCE_SECONDS: Final = 120.0
_PARKED_SECONDS: Final = 0.002
"""After which a long poll waits in the server."""
_BATCH_START: Final = struct.Struct(">qi")
_LAST_DELTA: Final = struct.Struct(">i")
_LAST_DELTA_AT: Final = 23
_BATCH_OVERHEAD: Final = 12


def produce_frame(topic: str, batch: bytes, acks: int, partition: int = 0) -> bytes:
    """A request with one batch."""
    parts = (produce.Topic(topic, partitions=(produce.Partition(partition, batch),)),)
    return frame_of(produce.ProduceRequest(None, acks, _ACKS_TIMEOUT_MS, parts), ApiKey.PRODUCE)


def await_partitions(address: str, topic: str, *, partitions: int) -> Found:
    """Ask for all of them until none has an error: a broker tells of a topic before it leads it.

    Raises:
        WrongDataError: it takes too long.
    """
    wanted = tuple(fetch.Partition(number, max_bytes=1) for number in range(partitions))
    request = fetch.FetchRequest(topics=(fetch.Topic(topic, partitions=wanted),))  # gives what is there
    deadline = time.monotonic() + _PATIENCE_SECONDS
    with FrameConnection(address) as connection:
        while True:
            found = connection.ask(request, ApiKey.FETCH)
            codes = {each.error_code for part in found.topics for each in part.partitions} - {0}
            if not codes:
                return {}
            if time.monotonic() > deadline:
                raise WrongDataError(
                    f"{topic} has the errors {sorted(codes)}, {_PATIENCE_SECONDS} s after its making"
                )
            time.sleep(0.01)


def fetch_frame(topic: str, offset: int, *, max_wait_ms: int = 0, partition: int = 0) -> bytes:
    """A request for one partition, without a session."""
    wanted = fetch.Partition(partition, fetch_offset=offset, max_bytes=_PARTITION_BYTES)
    return frame_of(
        fetch.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            topics=(fetch.Topic(topic, partitions=(wanted,)),),
        ),
        ApiKey.FETCH,
    )


def measure_produce(address: str, topic: str, *, shape: str, acks: int, seconds: float, most: int) -> Found:
    """Bytes of values that were acknowledged, with five requests in flight."""
    each = SHAPE_OF[shape]
    frame = produce_frame(topic, each.batch(), acks)
    limit = max(most // each.batch_bytes, IN_FLIGHT + 1)
    with FrameConnection(address) as connection:
        _produce_one(connection, frame)
        started = time.perf_counter()
        sent = answered = 0
        while answered < sent or sent == 0:
            while sent - answered < IN_FLIGHT and sent < limit and time.perf_counter() - started < seconds:
                connection.send(frame)
                sent += 1
            _check_produced(connection.answer_to(ApiKey.PRODUCE))
            answered += 1
        elapsed = time.perf_counter() - started
    return {"bytes": answered * each.batch_bytes, "requests": answered, "seconds": elapsed}


def fill(address: str, topic: str, *, shape: str, most: int) -> Found:
    """Store so many bytes of values, however long it takes."""
    return measure_produce(address, topic, shape=shape, acks=ACKS_ONE, seconds=600, most=most)


def measure_fetch(address: str, topic: str, *, shape: str, seconds: float) -> Found:
    """Bytes of values that came, from the beginning to the end and again."""
    each = SHAPE_OF[shape]
    connections = [FrameConnection(address) for _ in range(CONSUMERS)]
    first = fetch_frame(topic, 0)
    frames: dict[int, bytes] = {}
    batches = requests = 0
    started = time.perf_counter()
    for connection in connections:
        connection.send(first)
    waiting = list(connections)
    while waiting:
        connection = waiting.pop(0)
        count, next_offset = _read_batches(_partition_of(connection.answer_to(ApiKey.FETCH)))
        batches += count
        requests += 1
        if time.perf_counter() - started < seconds:
            frame = first if not count else frames.get(next_offset)
            if frame is None:
                frame = frames[next_offset] = fetch_frame(topic, next_offset)
            connection.send(frame)
            waiting.append(connection)
    elapsed = time.perf_counter() - started
    for connection in connections:
        connection.close()
    if not batches:
        raise WrongDataError(f"nothing is in {topic}")
    return {"bytes": batches * each.batch_bytes, "requests": requests, "seconds": elapsed}


def _read_batches(records: memoryview) -> tuple[int, int]:
    """How many whole batches these are, and the offset after them."""
    at = count = next_offset = 0
    while at + _LAST_DELTA_AT + _LAST_DELTA.size <= len(records):
        base_offset, length = _BATCH_START.unpack_from(records, at)
        if at + _BATCH_OVERHEAD + length > len(records):
            break
        next_offset = base_offset + _LAST_DELTA.unpack_from(records, at + _LAST_DELTA_AT)[0] + 1
        at += _BATCH_OVERHEAD + length
        count += 1
    return count, next_offset


def _partition_of(response: Any) -> memoryview:
    if response.error_code:
        raise WrongDataError(f"a fetch failed with the code {response.error_code}")
    for topic in response.topics:
        for each in topic.partitions:
            if each.error_code:
                raise WrongDataError(f"a fetch failed with the code {each.error_code}")
            return memoryview(each.records or b"")
    return memoryview(b"")


def _produce_one(connection: FrameConnection, frame: bytes) -> None:
    connection.send(frame)
    _check_produced(connection.answer_to(ApiKey.PRODUCE))


def _check_produced(response: Any) -> None:
    for topic in response.topics:
        for each in topic.partitions:
            if each.error_code:
                raise WrongDataError(f"a batch was refused with the code {each.error_code}")


# Latencies --------------------------------------------------------------------------------------------------


def _percentiles(name: str, found: list[float]) -> Found:
    found.sort()
    return {f"{name}_p50_seconds": percentile(found, 0.5), f"{name}_p99_seconds": percentile(found, 0.99)}


def measure_latency(address: str, topic: str, *, produces: int, polls: int) -> Found:
    """A record from its sending to its acknowledgement; and to its receipt by another connection, whose long
    poll has waited for it."""
    frame = produce_frame(topic, Shape(100, 1).batch(), ACKS_ONE)
    with FrameConnection(address) as producer, FrameConnection(address) as consumer:
        acknowledged = [_timed(lambda: _produce_one(producer, frame)) for _ in range(produces)]
        offset = _end_of(consumer, topic)
        received = []
        for number in range(polls):
            poll = fetch_frame(topic, offset + number, max_wait_ms=_WAIT_MS)
            consumer.send(poll)
            time.sleep(_PARKED_SECONDS)
            started = time.perf_counter()
            producer.send(frame)
            count, _ = _read_batches(_partition_of(consumer.answer_to(ApiKey.FETCH)))
            received.append(time.perf_counter() - started)
            _check_produced(producer.answer_to(ApiKey.PRODUCE))
            if count != 1:
                raise WrongDataError(f"{count} batches came instead of one")
    return _percentiles("produce", acknowledged) | _percentiles("poll", received)


def _timed(action: Callable[[], object]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def _end_of(connection: FrameConnection, topic: str) -> int:
    connection.send(fetch_frame(topic, 0))
    response = connection.answer_to(ApiKey.FETCH)
    return int(response.topics[0].partitions[0].high_watermark)


# Connections ------------------------------------------------------------------------------------------------


def greet(address: str) -> FrameConnection:
    """A connection on which the versions were asked for, as every client does first."""
    connection = FrameConnection(address)
    connection.ask(ApiVersionsRequest("bench", "1"), ApiKey.API_VERSIONS)
    return connection


# Fetch sessions ---------------------------------------------------------------------------------------------


def measure_session(address: str, topic: str, *, partitions: int, seconds: float) -> Found:
    """A consumer of many partitions: how often per second it asks in its session, where nothing is new and
    nothing is waited for; and how often it waits for a record in one of them, and gets it."""
    with FrameConnection(address) as connection, FrameConnection(address) as producer:
        start = offset = _end_of(connection, topic)
        session, epoch = _begin_session(connection, topic, partitions, start), 1
        started = time.perf_counter()
        while (empty_seconds := time.perf_counter() - started) < seconds or epoch == 1:
            connection.send(_session_frame(session, epoch, max_wait_ms=0))
            _partition_of(connection.answer_to(ApiKey.FETCH))
            epoch += 1
        empty = epoch - 1
        started = time.perf_counter()
        frame = produce_frame(topic, Shape(100, 1).batch(), ACKS_ONE)
        while (full_seconds := time.perf_counter() - started) < seconds or offset == start:
            changed = fetch.Partition(0, fetch_offset=offset, max_bytes=_PARTITION_BYTES)
            moved = (fetch.Topic(topic, partitions=(changed,)),) if offset > start else ()
            connection.send(_session_frame(session, epoch, max_wait_ms=_WAIT_MS, topics=moved))
            _produce_one(producer, frame)
            count, offset = _read_batches(_partition_of(connection.answer_to(ApiKey.FETCH)))
            if count != 1:
                raise WrongDataError(f"{count} batches came instead of one")
            epoch += 1
    rounds = epoch - 1 - empty
    return {
        "empty": empty,
        "empty_seconds": empty_seconds,
        "records": rounds,
        "record_seconds": full_seconds,
        "partitions": partitions,
    }


def _begin_session(connection: FrameConnection, topic: str, partitions: int, start: int) -> int:
    """Partition 0 is read from an offset on; the others are empty."""
    wanted = tuple(
        fetch.Partition(number, fetch_offset=0 if number else start, max_bytes=_PARTITION_BYTES)
        for number in range(partitions)
    )
    response = connection.ask(
        fetch.FetchRequest(session_epoch=0, topics=(fetch.Topic(topic, partitions=wanted),)), ApiKey.FETCH
    )
    if response.error_code or not response.session_id:
        raise WrongDataError(f"no session was begun: code {response.error_code}")
    return int(response.session_id)


def _session_frame(
    session: int, epoch: int, *, max_wait_ms: int, topics: tuple[fetch.Topic, ...] = ()
) -> bytes:
    return frame_of(
        fetch.FetchRequest(
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=_FETCH_BYTES,
            session_id=session,
            session_epoch=epoch,
            topics=topics,
        ),
        ApiKey.FETCH,
    )
