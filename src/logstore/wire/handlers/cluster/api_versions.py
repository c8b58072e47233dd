"""ApiVersions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.wire.apis import APIS
from logstore.wire.handlers.call import Call
from logstore.wire.messages.cluster.api_versions import (
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeature,
    ServedApi,
    SupportedFeature,
)

FEATURES: Final[Mapping[str, int]] = {"group.version": 1, "share.version": 1, "transaction.version": 2}
"""The features of a cluster that are on here, and always are: the newer group protocol (KIP-848), share
groups (KIP-932), and an epoch for each transaction, which takes in partitions unasked (KIP-890). Clients that
know the last one ask in versions that say so; all others go on as before."""
_FEATURES_EPOCH: Final = 0
"""Rises when they change."""
_FROM_0: Final = 4
"""Clients of older versions cannot read a feature that may be off (KAFKA-17011)."""


def answer(call: Call, request: ApiVersionsRequest, version: int) -> ApiVersionsResponse:
    """Which requests are served here, in which versions."""
    call.software = request.client_software_name
    return ApiVersionsResponse(
        ErrorCode.NONE,
        served(),
        supported_features=tuple(
            [SupportedFeature(name, 0, level) for name, level in FEATURES.items()]
            if version >= _FROM_0
            else []
        ),
        finalized_features_epoch=_FEATURES_EPOCH,
        finalized_features=tuple([FinalizedFeature(name, level, level) for name, level in FEATURES.items()]),
    )


def served() -> tuple[ServedApi, ...]:
    """The same as rows of the response."""
    return tuple(ServedApi(key, api.first_advertised, api.last) for key, api in APIS.items())


def refuse(request: ApiVersionsRequest | None, code: ErrorCode, version: int) -> ApiVersionsResponse:
    """The error."""
    return ApiVersionsResponse(code)
