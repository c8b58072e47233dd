"""Requests of clients as steps, for a broker of Kafka and for a store, and what of the answers is compared:
all of them but what each side numbers, times and words as it likes."""

from __future__ import annotations

import re
import struct
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from logstore.broker.codes import ErrorCode
from logstore.format.batch import encode_batch
from logstore.wire.apis import ApiKey
from logstore.wire.messages.records import fetch, produce
from logstore.wire.messages.topics import create_topics
from tests.interop.admin_steps import LOST, Side

NOW_MS: Final = int(time.time() * 1000)
TOPICS: Final[Mapping[str, tuple[tuple[str, str], ...]]] = {
    "stamped": (("message.timestamp.type", "LogAppendTime"),),
    "small": (("max.message.bytes", "200"),),
    "lz4": (("compression.type", "lz4"),),
    "recent": (("message.timestamp.before.max.ms", "1000"),),
    "compacted": (("cleanup.policy", "compact"),),
    "other": (),
}
"""Beside those of :mod:`~tests.interop.admin_steps`, ``t`` with two partitions and ``u`` with one."""

_LATER: Final = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
}
"""Codes that go away."""
_TRIES: Final = 200
_OF_EACH_ITS_OWN: Final = {
    "throttle_time_ms",
    "error_message",
    "acknowledge_error_message",
    "host",
    "port",
    "client_host",
    "high_watermark",
    "log_append_time_ms",
    "current_leader",
    "node_endpoints",
    "brokers",
    "cluster_id",
    "coordinator_epoch",
    "last_timestamp_ms",
    "transaction_start_time_ms",
    "member_epoch",
    "group_epoch",
    "assignment_epoch",
    "acquisition_lock_timeout_ms",
}
"""Fields that nobody compares. A broker counts epochs of groups from 2 on."""


_IF_REFUSED: Final = {
    "log_start_offset",
    "last_stable_offset",
    "aborted_transactions",
    "current_txn_start_offset",
}
"""Fields that say nothing then."""


class Party(Side):
    """One of the two, and what it calls things. ``known``: ids by the names that the steps have for them."""

    def __init__(self, bootstrap: str, node_id: int) -> None:
        super().__init__(bootstrap, node_id)
        self.known: dict[str, Any] = {}

    def prepare(self) -> None:
        super().prepare()
        wanted = tuple(
            create_topics.Topic(name, 1, 1, (), tuple(create_topics.Config(*each) for each in settings))
            for name, settings in TOPICS.items()
        )
        for each in self.ask(ApiKey.CREATE_TOPICS, topics=wanted).topics:
            assert each.error_code == 0
            self.ids[each.name] = each.topic_id
        for name, number in [("t", 0), ("t", 1), *((name, 0) for name in ("u", *TOPICS))]:
            self._begin(name, number)
        for kind in (0, 1):
            asked = {"key_type": kind, "keys": ("g", "tx")}
            self.patiently(ApiKey.FIND_COORDINATOR, 4, asked)

    def _begin(self, topic: str, number: int) -> None:
        """The first record, once there is a leader."""
        for _ in range(_TRIES):
            time_ms = int(time.time() * 1000) if topic == "recent" else NOW_MS
            fields = fields_of_produce(bytes(encode_batch([b"k"], [b"v"], time_ms)), topic, number)
            if not any(_codes(self.ask(ApiKey.PRODUCE, 12, **fields))):
                return
            time.sleep(0.05)
        raise AssertionError(f"{topic}-{number} has no leader")

    def patiently(self, key: ApiKey, version: int | None, fields: dict[str, Any]) -> Any:
        """The response, once nothing in it goes away by itself."""
        for _ in range(_TRIES):
            response = self.ask(key, version, **fields)
            if not _LATER & set(_codes(response)):
                break
            time.sleep(0.05)
        return response

    def called(self, kind: str, value: Any) -> str:
        """What the steps call an id: the name that it has, or its number among those of its kind."""
        for name, each in self.known.items():
            if each == value and name.startswith(kind):
                return name
        name = f"{kind} {sum(each.startswith(kind) for each in self.known)}"
        self.known[name] = value
        return name


def _codes(value: object) -> Iterator[int]:
    if isinstance(value, tuple):
        for name, each in zip(getattr(value, "_fields", value), value, strict=True):
            if name == "error_code":
                yield each
            else:
                yield from _codes(each)


def told(side: Party, value: Any, field: str = "") -> Any:
    """An answer, without what each side has of its own. Lists are sorted: brokers have no order."""
    if hasattr(value, "_fields"):
        is_refused = getattr(value, "error_code", 0) != 0
        left_out = _OF_EACH_ITS_OWN | (_IF_REFUSED if is_refused else set())
        return {
            name: told(side, each, name)
            for name, each in zip(value._fields, value, strict=True)
            if name not in left_out
        }
    match field:
        case "error_code" | "acknowledge_error_code":
            return ErrorCode(value).name
        case "node_id" | "leader_id" | "controller_id" | "replicas" | "isr" if isinstance(value, int):
            return value - side.node_id if value >= 0 else value
        case "member_id" | "leader" if value:
            return side.called("member", value)
        case "session_id" if value:
            return side.called("session", value)
        case "producer_id":
            return value >= 0
        case "timestamp_ms" if value > NOW_MS:
            return "later"
        case "records":
            return None if value is None else _batches(bytes(value))
    if isinstance(value, uuid.UUID):
        return next((name for name, each in side.ids.items() if each == value), value.int)
    if isinstance(value, (tuple, list)):
        return sorted((told(side, each, field) for each in value), key=str)
    return bytes(value) if isinstance(value, memoryview) else value


def _batches(data: bytes) -> list[tuple[int, int]]:
    """The offsets and sizes of the whole batches: a broker cuts the last one, a store does not."""
    found = []
    while len(data) >= 12:
        offset, size = struct.unpack_from(">qi", data)
        if 12 + size <= len(data):
            found.append((offset, size))
        data = data[12 + size :]
    return found


class Step(NamedTuple):
    """A request. ``fields`` is asked for when its turn has come: it may need what was answered before."""

    name: str
    key: ApiKey
    version: int | None
    fields: Callable[[Party], dict[str, Any]]


def seen(side: Party, step: Step) -> Any:
    """The answer."""
    fields = step.fields(side)
    response = side.patiently(step.key, step.version, fields)
    if step.key is ApiKey.INIT_PRODUCER_ID and response.error_code == 0:
        side.known[f"producer {fields['transactional_id']}"] = response.producer_id
    if step.key is ApiKey.JOIN_GROUP and fields.get("group_instance_id") and response.error_code == 0:
        side.known[f"member of {fields['group_instance_id']}"] = response.member_id
    return told(side, response)


def step(name: str, key: ApiKey, version: int | None = None, /, **fields: Any) -> Step:
    """Fields that are functions are called with the side."""
    given = " ".join(f"{name}={value}" for name, value in fields.items() if not callable(value))
    return Step(
        f"{key.name.lower()} {version or ''} {name}: {given}",
        key,
        version,
        lambda side: {at: value(side) if callable(value) else value for at, value in fields.items()},
    )


def known(name: str, or_else: Any = 77_777) -> Callable[[Party], Any]:
    """What the side has given a name to."""
    return lambda side: side.known.get(name, or_else)


# Records


def fields_of_produce(
    data: bytes | None, topic: str = "t", partition: int = 0, *, acks: int = 1, by: str | None = None
) -> dict[str, Any]:
    """Of a version that names topics."""
    topics = (produce.Topic(topic, partitions=(produce.Partition(partition, data),)),)
    return {"transactional_id": by, "acks": acks, "timeout_ms": 5000, "topics": topics}


def write(
    name: str,
    data: bytes | Callable[[Party], bytes] | None,
    topic: str = "t",
    partition: int = 0,
    *,
    version: int = 12,
    **options: Any,
) -> Step:
    """``data``: a batch."""

    def fields(side: Party) -> dict[str, Any]:
        found = data(side) if callable(data) else data
        wanted = fields_of_produce(found, topic, partition, **options)
        if version > 12:
            (one,) = wanted["topics"]
            wanted["topics"] = (one._replace(name="", topic_id=side.ids.get(topic, LOST)),)
        return wanted

    return Step(f"produce {version} {name} {topic}-{partition} {options}", ApiKey.PRODUCE, version, fields)


def read(name: str, *parts: fetch.Partition, topic: str = "t", version: int = 12, **options: Any) -> Step:
    """Of a topic; without partitions, what the session has."""

    def fields(side: Party) -> dict[str, Any]:
        by = {"name": topic} if version < 13 else {"topic_id": side.ids.get(topic, LOST)}
        topics = (fetch.Topic(partitions=parts, **by),) if parts else ()
        given = {at: value(side) if callable(value) else value for at, value in options.items()}
        return {"topics": topics, "max_wait_ms": 0, **given}

    return Step(f"fetch {version} {name} {topic} {parts}", ApiKey.FETCH, version, fields)


class Compared(NamedTuple):
    """Steps that the two answer differently, and how; and the codes that Kafka has answered with."""

    differ: dict[str, str]
    codes: set[str]


def compare(theirs: Party, ours: Party, steps: Iterable[Step]) -> Compared:
    """Ask both."""
    compared = Compared({}, set())
    for each in steps:
        expected, found = seen(theirs, each), seen(ours, each)
        compared.codes.update(re.findall(r"error_code': '(\w+)'", str(expected)))
        if found != expected:
            compared.differ[each.name] = f"{each.name}:\n  Kafka: {expected}\n  ours:  {found}"
    return compared
