"""What the two answer to drawn steps: what is learned of it, and where they differ."""

from __future__ import annotations

import re
import struct
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final

from logstore.broker.codes import ErrorCode
from logstore.wire.apis import APIS, ApiKey
from logstore.wire.messages.cluster import describe_topic_partitions
from logstore.wire.messages.groups import (
    consumer_group_heartbeat,
    offset_commit,
)
from logstore.wire.messages.records import (
    list_offsets,
)
from tests.interop import steps_of_shares
from tests.interop.drawn.choices import TOPICS
from tests.interop.drawn.steps import Drawn
from tests.interop.request_steps import Party, Step, told

_SETTLES_S: Final = 5.0


def begin(side: Party, drawn: Drawn) -> None:
    """Make the topics, and wait for their leaders."""
    made = side.ask(ApiKey.CREATE_TOPICS, topics=tuple(drawn.topics())).topics
    assert not any(each.error_code for each in made), made
    for each in made:
        side.ids[each.name] = each.topic_id
        _settle_topic(side, each.name)
    side.known |= {f"member {each}": each for each in ("x", "y")}
    for group in ("g", "h", "n", "gone"):  # with an offset it stays when it is empty
        kept = offset_commit.Topic(f"made-{drawn.seed}", partitions=(offset_commit.Partition(0, 1),))
        side.patiently(ApiKey.OFFSET_COMMIT, 9, {"group_id": f"{group}-{drawn.seed}", "topics": (kept,)})
    # A broker tells of a leader before its log is there.
    for name, (count, _) in TOPICS.items():
        for number in range(count):
            _settle_log(side, f"{name}-{drawn.seed}", number)
    steps_of_shares.begin(side, drawn.sharing(), f"shared-{drawn.seed}", tuple((at, 1) for at in range(16)))


def _settle_log(side: Party, topic: str, number: int) -> None:
    fields = {
        "replica_id": -1,
        "topics": (list_offsets.Topic(topic, (list_offsets.Partition(number, -1, -1),)),),
    }
    side.patiently(ApiKey.LIST_OFFSETS, 8, fields)
    _until(lambda: side.ask(ApiKey.LIST_OFFSETS, 8, **fields).topics[0].partitions[0].error_code == 0)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _SETTLES_S
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.01)


def _settle_topic(side: Party, name: str, count: int = -1, *, there: bool = True) -> None:
    """Wait until the side tells everybody of a change to a topic."""
    wanted = {"topics": (describe_topic_partitions.TopicWanted(name),)}

    def is_settled() -> bool:
        (found,) = side.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, None, **wanted).topics
        if not there:
            return bool(found.error_code)
        parts = found.partitions
        return not found.error_code and len(parts) >= count and all(each.leader_id >= 0 for each in parts)

    _until(is_settled)


def _settle_transaction(side: Party, name: str) -> None:
    """Wait until what has ended is marked in all partitions."""

    def is_settled() -> bool:
        (found,) = side.ask(ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=(name,)).transactions
        return not found.transaction_state.startswith("Prepare")

    _until(is_settled)


def _learn(side: Party, step: Step, fields: dict[str, Any], response: Any) -> None:
    """Keep what later steps are drawn near of, and wait for what a broker does later."""
    known = side.known
    match step.key:
        case ApiKey.PRODUCE:
            _learn_produced(side, fields, response)
        case ApiKey.FETCH if response.session_id:
            known["session"] = response.session_id
            known["epoch of session"] = 1 if fields["session_epoch"] <= 0 else fields["session_epoch"] + 1
        case ApiKey.SHARE_FETCH | ApiKey.SHARE_ACKNOWLEDGE if not response.error_code:
            known["next epoch"] = fields["share_session_epoch"] + 1
        case ApiKey.SHARE_GROUP_HEARTBEAT if not response.error_code:
            known["member epoch of shares"] = response.member_epoch
        case ApiKey.DELETE_RECORDS:
            for topic in response.topics:
                for part in topic.partitions:
                    if not part.error_code:
                        known[f"start {topic.name} {part.partition}"] = part.low_watermark
        case ApiKey.INIT_PRODUCER_ID | ApiKey.END_TXN:
            name = fields["transactional_id"]
            if name:
                _settle_transaction(side, name)
            if not response.error_code and getattr(response, "producer_id", -1) >= 0:
                name = name or re.findall(r"i\d-\d+", step.name)[:1] or "i0"
                name = name if isinstance(name, str) else name[0]
                known[f"producer {name}"] = response.producer_id
                known[f"epoch {name}"] = response.producer_epoch
        case ApiKey.LEAVE_GROUP:
            left = [response, *response.members] if step.version < 3 else response.members
            if not response.error_code and any(not each.error_code for each in left):
                known.pop(f"member {fields['group_id']}", None)
        case ApiKey.JOIN_GROUP if response.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
            if fields["member_id"] != "x":
                known.pop(f"member {fields['group_id']}", None)
        case ApiKey.JOIN_GROUP if response.member_id and fields["member_id"] != "x":
            known[f"member {fields['group_id']}"] = response.member_id
            if not response.error_code:
                known[f"generation {fields['group_id']}"] = response.generation_id
        case ApiKey.CONSUMER_GROUP_HEARTBEAT if not response.error_code:
            at = f"{fields['group_id']} {fields['member_id'][0]}"
            known[f"epoch {at}"] = response.member_epoch
            if response.assignment is not None:
                known[f"owned {at}"] = tuple(
                    consumer_group_heartbeat.TopicPartitions(*each)
                    for each in response.assignment.topic_partitions
                )
        case ApiKey.CREATE_TOPICS if not fields["validate_only"]:
            for each in response.topics:
                if not each.error_code:
                    side.ids[each.name] = each.topic_id
                    _settle_topic(side, each.name)
        case ApiKey.DELETE_TOPICS:
            for each in response.topics:
                if not each.error_code and each.name:
                    _settle_topic(side, each.name, there=False)
        case ApiKey.CREATE_PARTITIONS if not fields["validate_only"]:
            for asked, each in zip(fields["topics"], response.topics, strict=True):
                if not each.error_code:
                    _settle_topic(side, each.name, asked.partition_count)
        case ApiKey.INCREMENTAL_ALTER_CONFIGS if not fields["validate_only"]:
            time.sleep(0.05)  # the broker's own view of them lags


def _learn_produced(side: Party, fields: dict[str, Any], response: Any) -> None:
    names = {value: name for name, value in side.ids.items()}
    for asked, topic in zip(fields["topics"], response.topics, strict=True):
        name = topic.name or names.get(topic.topic_id, "")
        results = {each.partition: each for each in topic.partitions}
        for part in asked.partitions:
            result, data = results[part.partition], part.records
            if result.error_code or data is None or len(data) < 61:
                continue
            producer_id, epoch, sequence, count = struct.unpack_from(">qhii", data, 43)
            end, at = f"end {name} {part.partition}", f"next {producer_id} {epoch} {name} {part.partition}"
            side.known[end] = max(side.known.get(end, 0), result.base_offset + count)
            side.known[at] = max(side.known.get(at, 0), sequence + count)


HUNG_UP: Final = "hung up"


def answer(side: Party, step: Step) -> Any:
    """What is compared of it."""
    fields = step.fields(side)
    if step.key is ApiKey.PRODUCE and fields["acks"] == 0:
        return _unanswered(side, step, fields)
    try:
        response = side.patiently(step.key, step.version, fields)
    except TimeoutError:
        side.reconnect()
        return "timeout"
    except (EOFError, ConnectionError):
        side.reconnect()
        return HUNG_UP
    _learn(side, step, fields, response)
    if step.name.split("/")[-1].startswith("all of"):
        return [
            (
                _headers(bytes(part.records or b"")),
                [each.first_offset for each in part.aborted_transactions or ()],
            )
            for topic in response.topics
            for part in topic.partitions
        ]
    found = told(side, response)
    if step.key is ApiKey.DESCRIBE_CONFIGS:
        return [(each["error_code"], each["resource_name"]) for each in found["resources"]]
    if step.key is ApiKey.CONSUMER_GROUP_DESCRIBE:
        return [each["error_code"] for each in found["groups"]]
    if step.key is ApiKey.CONSUMER_GROUP_HEARTBEAT:
        found.pop("assignment", None)
    if step.key is ApiKey.DESCRIBE_GROUPS:
        for group in found["groups"]:
            for member in group["members"]:
                del member["member_assignment"]  # a broker keeps that of the last generation
    if step.key is ApiKey.SHARE_FETCH:
        _join_acquired(found)
    if step.key is ApiKey.SHARE_GROUP_HEARTBEAT:
        return found["error_code"]
    if step.key is ApiKey.LIST_TRANSACTIONS:
        end = f"-{step.name.split('/')[0]}"
        found["transactions"] = [
            each for each in found["transactions"] if each["transactional_id"].endswith(end)
        ]
    if step.key is ApiKey.FETCH:
        found["topics"] = _joined(found["topics"])
    if step.key is ApiKey.CREATE_TOPICS:
        for each in found["topics"]:
            del each["configs"], each["topic_id"]
    elif step.key is ApiKey.DELETE_TOPICS:
        for each in found["topics"]:
            del each["topic_id"]
    elif step.key is ApiKey.FIND_COORDINATOR and step.version >= 4:
        del found["node_id"]
    return found


def _joined(topics: list[Any]) -> list[Any]:
    """By partition: a topic may come twice. Aborted transactions are told of more than what is read."""
    return sorted(
        (str(topic["topic_id"] or topic["name"]), str({**part, "aborted_transactions": None}))
        for topic in topics
        for part in topic["partitions"]
    )


def _join_acquired(found: dict[str, Any]) -> None:
    """In place of stretches, the offsets: a broker cuts by the size of a batch. A partition of which there is
    nothing to say is left out: a broker names some."""
    for topic in found["topics"]:
        for part in topic["partitions"]:
            part["acquired_records"] = sorted(
                (offset, each["delivery_count"])
                for each in part["acquired_records"]
                for offset in range(each["first_offset"], each["last_offset"] + 1)
            )
        topic["partitions"] = [part for part in topic["partitions"] if not _says_nothing(part)]
    found["topics"] = [topic for topic in found["topics"] if topic["partitions"]]


def _says_nothing(part: dict[str, Any]) -> bool:
    are_errors = {part["error_code"], part["acknowledge_error_code"]} != {"NONE"}
    return not (are_errors or part["records"] or part["acquired_records"])


def _unanswered(side: Party, step: Step, fields: dict[str, Any]) -> Any:
    """Whether the connection is still there."""
    try:
        side.client.send(step.key, APIS[step.key].request.kind(**fields), step.version)
        side.ask(ApiKey.API_VERSIONS, 0)
    except (EOFError, ConnectionError):
        side.reconnect()
        return HUNG_UP, _end(side, fields)
    return None, _end(side, fields)


def _end(side: Party, fields: dict[str, Any]) -> list[int]:
    """Where the partitions end."""
    (topic,) = fields["topics"]
    wanted = tuple(list_offsets.Partition(each.partition, -1, -1) for each in topic.partitions)
    asked = {"replica_id": -1, "topics": (list_offsets.Topic(_name_of(side, topic), wanted),)}
    found = side.ask(ApiKey.LIST_OFFSETS, 8, **asked).topics
    return sorted((each.partition, each.offset) for one in found for each in one.partitions)


def _name_of(side: Party, topic: Any) -> str:
    return topic.name or next((name for name, its_id in side.ids.items() if its_id == topic.topic_id), "")


def _headers(data: bytes) -> list[Any]:
    """Of the batches: all but checksums, times and ids."""
    found = []
    while len(data) >= 61:
        offset, size, epoch, magic = struct.unpack_from(">qiib", data)
        attributes, delta = struct.unpack_from(">Hi", data, 21)
        producer, its_epoch, sequence, count = struct.unpack_from(">qhii", data, 43)
        found.append(
            (
                offset,
                size,
                epoch,
                magic,
                attributes & ~8 if attributes & 0x20 else attributes,
                delta,
                producer >= 0,
                its_epoch,
                sequence,
                count,
            )
        )
        data = data[12 + size :]
    return found


ON_PURPOSE: Final = (
    ("INVALID_RECORD_STATE", "NONE"),  # a record of a share group that was accepted, and lies below its start
    ("DUPLICATE_SEQUENCE_NUMBER", "OUT_OF_ORDER_SEQUENCE_NUMBER"),
    ("ILLEGAL_GENERATION", "GROUP_ID_NOT_FOUND"),
    ("NONE", "UNRELEASED_INSTANCE_ID"),  # a static member whose first answer was lost joins again
    ("GROUP_SUBSCRIBED_TO_TOPIC", "UNKNOWN_TOPIC_OR_PARTITION"),
    ("session", 0),  # a session without partitions goes on
    ("INVALID_RECORD_STATE", "INVALID_REQUEST"),  # records that the worker does not have
    ("INVALID_RECORD_STATE", "UNKNOWN_TOPIC_OR_PARTITION"),  # of a session without the partition
    ("OFFSET_OUT_OF_RANGE", "POLICY_VIOLATION"),  # both are wrong: an offset, and the topic to delete from
    ("INVALID_PRODUCER_ID_MAPPING", "INVALID_PRODUCER_EPOCH"),  # both are wrong: the name, and the epoch
    ("GROUP_ID_NOT_FOUND", "NONE"),  # an empty group without offsets
    (-1, 0),  # the epoch of a log that has had no record yet
)
"""What is said here, and by Kafka. An answer with one of these pairs is not looked at further."""


def differences(ours: Any, theirs: Any) -> Iterator[tuple[Any, Any]]:
    """Where the two differ: what each has."""
    if isinstance(ours, dict) and isinstance(theirs, dict) and ours.keys() == theirs.keys():
        for name, value in ours.items():
            yield from differences(value, theirs[name])
    elif isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        for one, other in zip(ours, theirs, strict=True):
            yield from differences(one, other)
    elif ours != theirs:
        yield ours, theirs


def differing(theirs: Party, ours: Party, steps: Iterable[Step]) -> Iterator[str]:
    """Ask both: each difference in words. Where Kafka fails by itself (UNKNOWN_SERVER_ERROR), it does not
    count. Shares stop being compared after the first difference on purpose: one has accepted more."""
    passed_over: set[ApiKey] = set()
    for each in steps:
        if each.key in passed_over:
            continue
        expected, found = answer(theirs, each), answer(ours, each)
        pairs = list(differences(found, expected))
        if any(other == "UNKNOWN_SERVER_ERROR" or (one, other) in ON_PURPOSE for one, other in pairs):
            passed_over |= _OF_SHARES if each.key in _OF_SHARES else {each.key} & {ApiKey.FETCH}
        elif pairs:
            asked = each.fields(ours)
            what = f"{each.key.name} {each.version} {each.name}"
            yield f"{what}\n  Kafka: {expected}\n  ours:  {found}\n  asked: {asked}"


_OF_SHARES: Final = {ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE}
