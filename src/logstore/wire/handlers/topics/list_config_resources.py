"""ListConfigResources."""

from __future__ import annotations

from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.requests import MetadataRequest, MetadataResult
from logstore.logdir.acls import Operation
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.then import then
from logstore.wire.handlers.topics import resources
from logstore.wire.messages.topics.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

_WITH_TYPES: Final = 1
"""Before it clients ask for those of client metrics alone."""
_TYPES: Final = frozenset(resources.ConfigResource)


def answer(
    call: Call, request: ListConfigResourcesRequest, version: int
) -> Pending[ListConfigResourcesResponse]:
    """The topics, the brokers, and the groups that were given settings. Client metrics have none here."""
    if not call.allows_cluster(Operation.DESCRIBE_CONFIGS):
        return Answered(refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, version))
    wanted = frozenset(request.resource_types) or _TYPES
    if version < _WITH_TYPES:
        return Answered(ListConfigResourcesResponse())
    if not wanted <= _TYPES:
        return Answered(refuse(request, ErrorCode.UNSUPPORTED_VERSION, version))
    topic = resources.ConfigResource.TOPIC
    asked = MetadataRequest(None if topic in wanted else ())
    return then(call.node.broker.metadata(asked), lambda found: _listed(call, wanted, found))


def _listed(call: Call, wanted: frozenset[int], found: MetadataResult) -> ListConfigResourcesResponse:
    kinds = resources.ConfigResource
    names = {
        kinds.TOPIC: [each.name for each in found.topics],
        kinds.BROKER: [str(each.node_id) for each in call.node.brokers()],
        kinds.BROKER_LOGGER: [],
        kinds.CLIENT_METRICS: [],
        kinds.GROUP: call.node.group_settings.names(),
    }
    return ListConfigResourcesResponse(
        config_resources=tuple(
            [ConfigResource(name, kind) for kind in kinds if kind in wanted for name in names[kind]]
        )
    )


def refuse(request: ListConfigResourcesRequest, code: ErrorCode, version: int) -> ListConfigResourcesResponse:
    """The error."""
    return ListConfigResourcesResponse(error_code=code)
