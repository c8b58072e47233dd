"""What precedes a message in its frame: which request it is, and which request it answers.

Two rules differ from all others. The client's id in a request has a length of two bytes in every version,
because a broker has to read it in requests of versions that it does not know. And the response to ApiVersions
has the oldest header in every version, because its client does not know yet what the broker can do; clients
that get the flexible one there drop the connection or end their process.

Bytes after a message are passed over: librdkafka asks for all topics with three bytes too many.
"""

from __future__ import annotations

import struct
from typing import Annotated, Any, Final, NamedTuple

from logstore.errors import CorruptionError
from logstore.format.messages.fields import ClassicString, Int16, Int32, since
from logstore.format.messages.message import Message
from logstore.model import Bytes
from logstore.wire.apis import ApiKey, api_of, find_api


class RequestHeader(NamedTuple):
    """Before a request."""

    api_key: Int16 = 0
    api_version: Int16 = 0
    correlation_id: Int32 = 0
    """The response has the same."""
    client_id: Annotated[ClassicString | None, since(1)] = None
    """The name that the client gives itself."""


class ResponseHeader(NamedTuple):
    """Before a response."""

    correlation_id: Int32 = 0


REQUEST_HEADER: Final = Message(RequestHeader, 0, 2, flexible=2)
"""Version 0 is that of one request between brokers, which Kafka 4 has dropped."""
RESPONSE_HEADER: Final = Message(ResponseHeader, 0, 1, flexible=1)

_START: Final = struct.Struct(">hh")
"""The key and the version, in every version of the header."""
_PLAIN: Final = 1


def request_header_version(key: int, version: int) -> int:
    """The version of the header of a request, also of a request's version that is not known.

    Raises:
        UnsupportedVersionError: no request has the key.
    """
    return 2 if api_of(key).is_flexible(version) else _PLAIN


def response_header_version(key: int, version: int) -> int:
    """The version of the header of a response. Raises as :func:`request_header_version`."""
    return 1 if api_of(key).is_flexible(version) and key != ApiKey.API_VERSIONS else 0


def decode_request_header(frame: Bytes) -> tuple[RequestHeader, int]:
    """The header of a request, and the position of the request. Keys and versions may be ones that are not
    known: the broker answers, or hangs up.

    Raises:
        CorruptionError: the frame is too short for it.
    """
    key, version = _START.unpack_from(frame) if len(frame) >= _START.size else (-1, 0)
    api = find_api(key)
    is_flexible = api is not None and api.is_flexible(version)
    return REQUEST_HEADER.decode(frame, 2 if is_flexible else _PLAIN)


def decode_request(frame: Bytes) -> tuple[RequestHeader, Any]:
    """A request, and its header.

    Raises:
        UnsupportedVersionError: no request has the key, or it has no such version.
        CorruptionError: the frame ends early, or a length is out of bounds, or text is not UTF-8.
    """
    header, position = decode_request_header(frame)
    return header, api_of(header.api_key).request.decode(frame, header.api_version, position)[0]


def encode_request(
    request: Any, key: int, version: int, *, correlation_id: int, client_id: str | None = None
) -> list[Bytes]:
    """A request and its header, in pieces.

    Raises:
        UnsupportedVersionError: no request has the key, or it has no such version, or not with what is set.
        UsageError: a field does not fit.
    """
    header = RequestHeader(key, version, correlation_id, client_id)
    parts = REQUEST_HEADER.encode_parts(header, request_header_version(key, version))
    return parts + api_of(key).request.encode_parts(request, version)


def decode_response(frame: Bytes, key: int, version: int, *, correlation_id: int) -> Any:
    """The response to the request that had these.

    Raises:
        UnsupportedVersionError: no request has the key, or it has no such version.
        CorruptionError: it answers another request, or the frame ends early, or a length is out of bounds, or
            text is not UTF-8.
    """
    header, position = RESPONSE_HEADER.decode(frame, response_header_version(key, version))
    if header.correlation_id != correlation_id:
        raise CorruptionError(
            f"a response has the correlation id {header.correlation_id}; {correlation_id} is awaited"
        )
    return api_of(key).response.decode(frame, version, position)[0]


def encode_response(response: Any, key: int, version: int, *, correlation_id: int) -> list[Bytes]:
    """A response and its header, in pieces. Raises as :func:`encode_request`."""
    header = ResponseHeader(correlation_id)
    parts = RESPONSE_HEADER.encode_parts(header, response_header_version(key, version))
    return parts + api_of(key).response.encode_parts(response, version)
