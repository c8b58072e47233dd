"""IncrementalAlterConfigs."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.requests import ConfigChange
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.then import then
from logstore.wire.handlers.topics.altering import alter
from logstore.wire.handlers.topics.resources import Refusal, invalid
from logstore.wire.messages.topics.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
    Resource,
    ResourceResult,
)


class _Operation(IntEnum):
    """What is done with a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


_OPERATIONS: Final = frozenset(_Operation)


def answer(
    call: Call, request: IncrementalAlterConfigsRequest, version: int
) -> Pending[IncrementalAlterConfigsResponse]:
    """Change single settings of topics; all others stay."""
    return then(
        alter(call, request.resources, _change, validate_only=request.validate_only),
        lambda outcomes: _response(request, outcomes),
    )


def _change(resource: Resource) -> ConfigChange | Refusal:
    settings: dict[str, str | None] = {}
    appended: dict[str, str] = {}
    subtracted: dict[str, str] = {}
    for name, operation, value in resource.configs:
        if operation == _Operation.DELETE:
            settings[name] = None
        elif operation not in _OPERATIONS:
            return invalid(f"{name} has the operation {operation}; there are 0 to 3")
        elif value is None:
            return invalid(f"{name} has no value; delete it to give it its default")
        elif operation == _Operation.SET:
            settings[name] = value
        else:
            (appended if operation == _Operation.APPEND else subtracted)[name] = value
    return ConfigChange(resource.resource_name, settings, appended, subtracted)


def _response(
    request: IncrementalAlterConfigsRequest, outcomes: list[Refusal]
) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        resources=tuple(
            ResourceResult(*outcome, each.resource_type, each.resource_name)
            for each, outcome in zip(request.resources, outcomes, strict=True)
        )
    )


def refuse(
    request: IncrementalAlterConfigsRequest, code: ErrorCode, version: int
) -> IncrementalAlterConfigsResponse:
    """The same error for every resource."""
    return _response(request, [Refusal(code)] * len(request.resources))
