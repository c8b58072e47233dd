"""Headers: which version precedes which message, and the two exceptions."""

from __future__ import annotations

import pytest

from logstore.errors import CorruptionError, UnsupportedVersionError, UsageError
from logstore.wire.apis import APIS, ApiKey, api_of
from logstore.wire.headers import (
    RESPONSE_HEADER,
    ResponseHeader,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
    request_header_version,
    response_header_version,
)
from logstore.wire.messages.cluster.api_versions import ApiVersionsRequest, ApiVersionsResponse
from logstore.wire.messages.cluster.metadata import MetadataRequest, MetadataResponse
from logstore.wire.messages.groups.heartbeat import HeartbeatRequest


def joined(parts):
    return b"".join(parts)


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_flexible_versions_have_flexible_headers(api):
    for version in range(api.first, api.last + 1):
        is_flexible = api.is_flexible(version)
        assert request_header_version(api.key, version) == (2 if is_flexible else 1)
        is_exception = api.key is ApiKey.API_VERSIONS
        assert response_header_version(api.key, version) == (1 if is_flexible and not is_exception else 0)


def test_the_bytes_of_headers():
    heartbeat = HeartbeatRequest("g", 1, "m")
    body = b"\0\1g" + b"\0\0\0\1" + b"\0\1m"
    assert joined(encode_request(heartbeat, ApiKey.HEARTBEAT, 0, correlation_id=9, client_id="me")) == (
        b"\0\x0c\0\0\0\0\0\x09\0\2me" + body
    )
    flexible = b"\2g" + b"\0\0\0\1" + b"\2m" + b"\0" + b"\0"
    assert joined(encode_request(heartbeat, ApiKey.HEARTBEAT, 4, correlation_id=9)) == (
        b"\0\x0c\0\4\0\0\0\x09\xff\xff\0" + flexible
    )


def test_the_answer_to_api_versions_has_no_tags_in_its_header():
    """librdkafka ends its process over one byte more."""
    parts = encode_response(ApiVersionsResponse(), ApiKey.API_VERSIONS, 3, correlation_id=5)
    assert joined(parts) == b"\0\0\0\5" + b"\0\0" + b"\1" + b"\0\0\0\0" + b"\0"
    parts = encode_response(MetadataResponse(), ApiKey.METADATA, 9, correlation_id=5)
    assert joined(parts).startswith(b"\0\0\0\5" + b"\0" + b"\0\0\0\0")


@pytest.mark.parametrize("correlation_id", [0, 5, -1, 2**31 - 1, -(2**31)])
@pytest.mark.parametrize("version", [8, 9])
def test_the_header_of_a_response_is_the_declared_one(version, correlation_id):
    parts = encode_response(MetadataResponse(), ApiKey.METADATA, version, correlation_id=correlation_id)
    declared = ResponseHeader(correlation_id)
    assert parts[0] == RESPONSE_HEADER.encode(declared, response_header_version(ApiKey.METADATA, version))


def test_the_header_of_a_version_that_is_not_known_can_be_read():
    """A client begins with the newest ApiVersions that it knows, and is told the versions in its answer."""
    frame = joined(encode_request(ApiVersionsRequest("c", "1"), ApiKey.API_VERSIONS, 4, correlation_id=3))
    later = frame[:2] + b"\0\x63" + frame[4:]
    header, position = decode_request_header(later)
    assert (header.api_key, header.api_version, header.correlation_id) == (18, 99, 3)
    assert later[position:] == b"\2c" + b"\x021" + b"\0"
    with pytest.raises(UnsupportedVersionError, match="ApiVersionsRequest has version 99; 0 to 4 are known"):
        decode_request(later)


def test_a_key_that_is_not_known():
    frame = b"\x7f\xff" + b"\0\0" + b"\0\0\0\1" + b"\xff\xff"
    assert decode_request_header(frame)[0].api_key == 32_767
    with pytest.raises(UnsupportedVersionError, match="no request has the key 32767"):
        decode_request(frame)
    with pytest.raises(UnsupportedVersionError, match="no request has the key -1"):
        api_of(-1)


@pytest.mark.parametrize("size", range(10))
def test_a_frame_that_is_too_short_for_a_header(size):
    frame = b"\0\x0c\0\0\0\0\0\x09\0\2me"
    with pytest.raises(CorruptionError, match="RequestHeader version"):
        decode_request_header(frame[:size])


def test_bytes_after_a_request_are_passed_over():
    """librdkafka asks for all topics in flexible versions with three bytes too many."""
    frame = joined(encode_request(MetadataRequest(None), ApiKey.METADATA, 9, correlation_id=1))
    assert decode_request(frame + b"\1\0\0") == decode_request(frame)
    assert decode_request(frame)[1] == MetadataRequest(None)


def test_an_answer_to_another_request():
    frame = joined(encode_response(MetadataResponse(), ApiKey.METADATA, 9, correlation_id=5))
    assert decode_response(frame, ApiKey.METADATA, 9, correlation_id=5) == MetadataResponse()
    with pytest.raises(CorruptionError, match="a response has the correlation id 5; 6 is awaited"):
        decode_response(frame, ApiKey.METADATA, 9, correlation_id=6)


def test_what_does_not_fit_a_request():
    with pytest.raises(UsageError, match="RequestHeader version 1 cannot be encoded"):
        encode_request(HeartbeatRequest(), ApiKey.HEARTBEAT, 0, correlation_id=2**31)
    with pytest.raises(UnsupportedVersionError, match="HeartbeatRequest version 2 has no group_instance_id"):
        encode_request(HeartbeatRequest(group_instance_id="a"), ApiKey.HEARTBEAT, 2, correlation_id=0)
