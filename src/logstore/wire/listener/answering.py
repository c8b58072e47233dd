"""From a frame that has come to the frame that goes back."""

from __future__ import annotations

import traceback
from typing import Any, Final, NamedTuple

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.logdir.acls import ResourceType
from logstore.model import Bytes
from logstore.warning import warn
from logstore.wire.apis import ApiKey, api_of
from logstore.wire.frames import encode_frame
from logstore.wire.handlers.call import Answers, Call
from logstore.wire.handlers.cluster import api_versions
from logstore.wire.handlers.table import answers_of
from logstore.wire.headers import RequestHeader, decode_request_header, encode_response
from logstore.wire.listener.wording import for_clients

_OLDEST: Final = 0
_REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""With which error it counts that a client may not use a resource."""
_COUNTED_AS: Final = {
    "offset_for_leader_epoch": "offsets_for_leader_epoch",
    "add_partitions_to_txn": "add_partitions_to_transaction",
    "add_offsets_to_txn": "add_offsets_to_transaction",
    "end_txn": "end_transaction",
    "write_txn_markers": "write_transaction_markers",
    "txn_offset_commit": "offset_commit",
    "incremental_alter_configs": "alter_configs",
    "consumer_group_describe": "describe_consumer_groups",
    "share_group_describe": "describe_share_groups",
    "describe_share_group_offsets": "share_group_offsets",
}
"""Requests that the broker counts under another name."""


class Asked(NamedTuple):
    """A request that was read."""

    header: RequestHeader
    key: ApiKey
    """Which request it is."""
    answers: Answers
    request: Any


class Answer(NamedTuple):
    """A request that is being answered."""

    header: RequestHeader
    pending: Pending[Any]
    version: int
    """Of the response: that of the request, but for requests of unknown versions."""


def read(call: Call, frame: Bytes) -> Asked | Answer:
    """The request in a frame; or its answer, if the client asks what is served in a version that is not known
    yet (KIP-511).

    Raises:
        UnsupportedVersionError: it is not served.
        CorruptionError: it cannot be read.
    """
    header, position = decode_request_header(frame)
    key, version = header.api_key, header.api_version
    api = api_of(key)
    if key == ApiKey.API_VERSIONS and not api.first <= version <= api.last:
        return Answer(header, Answered(_unknown_version(call)), _OLDEST)
    return Asked(header, api.key, answers_of(api.key), api.request.decode(frame, version, position)[0])


def answer(call: Call, asked: Asked) -> Answer:
    """Carry a request out. What its answer waits for does not wait here."""
    version = asked.header.api_version
    call.refused = None
    try:
        found = asked.answers.answer(call, asked.request, version)
    except Exception as error:
        warn("%s failed: %s\n%s", asked.key.name, error, traceback.format_exc())
        return refuse(asked, ErrorCode.UNKNOWN_SERVER_ERROR)
    if call.refused is not None:
        _count_refused(call, asked.key, call.refused)
    if hasattr(found, "poll"):
        return Answer(asked.header, found, version)
    return Answer(asked.header, Answered(found), version)


def _count_refused(call: Call, key: ApiKey, resource_type: ResourceType) -> None:
    api = key.name.lower()
    code = _REFUSALS.get(resource_type, ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    call.node.requests.note_refused(_COUNTED_AS.get(api, api), code)


def refuse(asked: Asked, code: ErrorCode) -> Answer:
    """Answer with an error."""
    version = asked.header.api_version
    return Answer(asked.header, Answered(asked.answers.refuse(asked.request, code, version)), version)


def refuse_instead(call: Call, asked: Asked, code: ErrorCode) -> Answer:
    """Answer with an error, as a test wants it, what could be carried out: with all that clients need to take
    the error in."""
    if asked.key == ApiKey.API_VERSIONS and code == ErrorCode.UNSUPPORTED_VERSION:
        return Answer(asked.header, Answered(_unknown_version(call)), _OLDEST)
    refuse_all = getattr(asked.answers, "refuse_all", None)
    if refuse_all is None:
        return refuse(asked, code)
    version = asked.header.api_version
    return Answer(asked.header, Answered(refuse_all(call, asked.request, code, version)), version)


def encode(answer: Answer, response: Any, throttle_time_ms: int, store_path: str) -> list[Bytes]:
    """The pieces of the frame that answers, without what is not for clients.

    Raises:
        LogstoreError: the response does not fit the version: a fault of ours.
    """
    header = answer.header
    if throttle_time_ms and "throttle_time_ms" in response._fields:
        response = response._replace(throttle_time_ms=throttle_time_ms)
    response = for_clients(response, store_path)
    return encode_frame(
        encode_response(response, header.api_key, answer.version, correlation_id=header.correlation_id)
    )


def _unknown_version(call: Call) -> Any:
    """The error, with what is served: the client asks again in a version that it finds there."""
    response = api_versions.refuse(None, ErrorCode.UNSUPPORTED_VERSION, _OLDEST)
    return response._replace(apis=api_versions.served())
