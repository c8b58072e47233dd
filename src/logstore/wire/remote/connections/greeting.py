"""How a connection begins: what the broker serves (ApiVersions), then who we are (SASL). Bytes in, bytes out.

ApiVersions is asked in our newest version. A broker that does not know that answers in version 0 with an
error, and most often with the versions that it does know; then it is asked once more (KIP-511).
"""

from __future__ import annotations

import struct
from collections.abc import Generator
from typing import Any, Final

from logstore import _version
from logstore.errors import CorruptionError, UsageError
from logstore.model import Bytes
from logstore.wire.apis import APIS, ApiKey
from logstore.wire.frames import encode_frame
from logstore.wire.headers import decode_response, encode_request
from logstore.wire.messages.cluster.api_versions import SOFTWARE, ApiVersionsRequest, ApiVersionsResponse
from logstore.wire.messages.security.sasl_authenticate import SaslAuthenticateRequest
from logstore.wire.messages.security.sasl_handshake import SaslHandshakeRequest
from logstore.wire.remote.connections.peer import Peer
from logstore.wire.remote.connections.scram import ScramClient
from logstore.wire.remote.connections.settings import Sasl

_UNSUPPORTED: Final = 35
_BAD_MECHANISM: Final = 33
_ERROR_CODE: Final = struct.Struct(">ih")
"""The correlation id, which is the whole header of this response, and the error code, which is the first
field in every version."""

_Steps = Generator[tuple[int, int, Any], Bytes, None]
"""Gives requests with their keys and versions, and is sent the frames that answer them."""


class Greeting:
    """Of one connection."""

    def __init__(self, client_id: str, sasl: Sasl | None) -> None:
        self._client_id = client_id
        self._sasl = sasl
        self._correlation_id = 0
        self._asked = (ApiKey.API_VERSIONS, 0)
        self.peer = Peer({})
        """What the broker serves, when it is over."""
        self.lifetime_ms = 0
        """After so long the broker wants to know again who we are (KIP-368); 0: never."""
        self.is_over = False
        self._steps = self._run()

    def begin(self) -> list[Bytes]:
        """The first frame to send."""
        return self._frame_of(next(self._steps))

    def take(self, frame: Bytes) -> list[Bytes]:
        """What to send next; nothing, if it is over.

        Raises:
            UsageError: the broker does not let us in: the same would happen again.
            CorruptionError: it does not speak as a broker.
        """
        try:
            return self._frame_of(self._steps.send(frame))
        except StopIteration:
            self.is_over = True
            return []

    def _frame_of(self, step: tuple[int, int, Any]) -> list[Bytes]:
        key, version, request = step
        self._correlation_id -= 1  # never one of a request that comes later
        return encode_frame(
            encode_request(
                request, key, version, correlation_id=self._correlation_id, client_id=self._client_id
            )
        )

    def _answer(self, frame: Bytes, key: int, version: int) -> Any:
        return decode_response(frame, key, version, correlation_id=self._correlation_id)

    def _run(self) -> _Steps:
        yield from self._ask_versions()
        if self._sasl is not None:
            yield from self._authenticate(self._sasl)

    def _ask_versions(self) -> _Steps:
        key, version = ApiKey.API_VERSIONS, APIS[ApiKey.API_VERSIONS].last
        request = ApiVersionsRequest(SOFTWARE, _version.VERSION)
        frame = yield key, version, request
        if _error_in(frame) == _UNSUPPORTED:
            version = _version_to_ask(self._answer(frame, key, 0))
            frame = yield key, version, request
        found: ApiVersionsResponse = self._answer(frame, key, version)
        if found.error_code:
            raise CorruptionError(f"the broker answers ApiVersions with error {found.error_code}")
        self.peer = Peer(
            {each.api_key: (each.min_version, each.max_version) for each in found.apis},
            {each.name: each.max_version_level for each in found.finalized_features},
        )

    def _authenticate(self, sasl: Sasl) -> _Steps:
        key = ApiKey.SASL_HANDSHAKE
        version = self.peer.common(key, 1, 1)
        frame = yield key, version, SaslHandshakeRequest(sasl.mechanism)
        shaken = self._answer(frame, key, version)
        if shaken.error_code:
            offered = ", ".join(shaken.mechanisms) or "none"
            raise UsageError(
                f"the broker does not take the SASL mechanism {sasl.mechanism}; it takes {offered}"
                if shaken.error_code == _BAD_MECHANISM
                else f"the broker wants no SASL here (error {shaken.error_code})"
            )
        if sasl.mechanism == "PLAIN":
            yield from self._prove(f"\0{sasl.username}\0{sasl.password}".encode())
            return
        scram = ScramClient(sasl.mechanism, sasl.username, sasl.password)
        challenge = yield from self._prove(scram.first())
        outcome = yield from self._prove(scram.final(challenge))
        scram.check(outcome)

    def _prove(self, data: bytes) -> Generator[tuple[int, int, Any], Bytes, bytes]:
        key = ApiKey.SASL_AUTHENTICATE
        version = self.peer.common(key, 0, 2)
        frame = yield key, version, SaslAuthenticateRequest(data)
        answer = self._answer(frame, key, version)
        if answer.error_code:
            raise UsageError(
                f"the broker refuses user {self._sasl.username if self._sasl else ''!r}: "
                f"{answer.error_message or f'error {answer.error_code}'}"
            )
        self.lifetime_ms = answer.session_lifetime_ms
        return bytes(answer.auth_bytes)


def _error_in(frame: Bytes) -> int:
    if len(frame) < _ERROR_CODE.size:
        raise CorruptionError(f"an answer to ApiVersions has {len(frame)} bytes")
    return int(_ERROR_CODE.unpack_from(frame)[1])


def _version_to_ask(refusal: ApiVersionsResponse) -> int:
    """The newest that both know; 0 if the broker does not say."""
    for each in refusal.apis:
        if each.api_key == ApiKey.API_VERSIONS:
            return max(0, min(each.max_version, APIS[ApiKey.API_VERSIONS].last))
    return 0
