"""AlterConfigs."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.requests import ConfigChange
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.then import then
from logstore.wire.handlers.topics.altering import alter
from logstore.wire.handlers.topics.resources import Refusal, invalid
from logstore.wire.messages.topics.alter_configs import (
    AlterConfigsRequest,
    AlterConfigsResponse,
    Resource,
    ResourceResult,
)


def answer(call: Call, request: AlterConfigsRequest, version: int) -> Pending[AlterConfigsResponse]:
    """Replace all settings of topics: those that are not named get their defaults again."""
    return then(
        alter(call, request.resources, _change, validate_only=request.validate_only),
        lambda outcomes: _response(request, outcomes),
    )


def _change(resource: Resource) -> ConfigChange | Refusal:
    settings = {}
    for each in resource.configs:
        if each.value is None:
            return invalid(f"{each.name} has no value; leave it out to give it its default")
        settings[each.name] = each.value
    return ConfigChange(resource.resource_name, settings, replaces=True)


def _response(request: AlterConfigsRequest, outcomes: list[Refusal]) -> AlterConfigsResponse:
    return AlterConfigsResponse(
        resources=tuple(
            ResourceResult(*outcome, each.resource_type, each.resource_name)
            for each, outcome in zip(request.resources, outcomes, strict=True)
        )
    )


def refuse(request: AlterConfigsRequest, code: ErrorCode, version: int) -> AlterConfigsResponse:
    """The same error for every resource."""
    return _response(request, [Refusal(code)] * len(request.resources))
