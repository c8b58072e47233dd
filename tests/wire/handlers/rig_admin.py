"""A broker behind its handlers: requests go through their bytes, to a directory in memory and back."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logstore.broker.codes import ErrorCode
from logstore.broker.quotas.precedence import Client
from logstore.logdir.acls import CLUSTER_NAME, Operation, ResourceType
from logstore.wire.apis import APIS, ApiKey
from logstore.wire.handlers.call import Call, Endpoint, Node
from logstore.wire.handlers.settings import ListenerConfig
from logstore.wire.handlers.table import answers_of
from logstore.wire.security.security import Security
from tests.broker.rig import Rig
from tests.wire.drawn import Case, differs_at, fields_in

CLUSTER = (ResourceType.CLUSTER, CLUSTER_NAME)


class Rights(Security):
    """Everything is allowed but what is denied."""

    def __init__(self) -> None:
        super().__init__()
        self.denied: set[tuple[Operation, ResourceType, str]] = set()
        self.denies_all = False
        self.noted: list[tuple[Operation, ResourceType, str]] = []
        """What the audit has: what was refused."""

    def allows_any(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool:
        return not self.denies_all

    def deny(self, *operations: Operation, topic: str | None = None, group: str | None = None) -> None:
        """Of a topic or group, or else of the cluster."""
        resource = CLUSTER
        if topic is not None:
            resource = (ResourceType.TOPIC, topic)
        if group is not None:
            resource = (ResourceType.GROUP, group)
        self.denied |= {(each, *resource) for each in operations}

    def allows(
        self,
        principal: str,
        host: str,
        operation: Operation,
        resource_type: ResourceType,
        name: str,
        *,
        is_noted: bool = True,
    ) -> bool:
        asked = operation, resource_type, name
        is_allowed = not self.denies_all and asked not in self.denied
        if is_noted and not is_allowed:
            self.noted.append(asked)
        return is_allowed


class AdminRig(Rig):
    """The topic ``t`` of two partitions, and a client that may do everything until something is denied."""

    def __init__(self, *, partitions: int = 2, listener: ListenerConfig | None = None, **settings: Any):
        super().__init__(partitions=partitions, **settings)
        broker: Any = self.broker
        self.rights = Rights()
        node = Node(
            node_id=broker.node_id,
            cluster_id=broker.cluster_id,
            endpoint=Endpoint("here", 9092),
            topics=broker.topics,
            config=listener or ListenerConfig(num_partitions=3),
            broker=broker,
            security=self.rights,
            group_settings=broker.group_settings,
        )
        self.call = Call(node, broker.as_client(Client()), "User:alice", "host")

    def send(self, key: ApiKey, version: int | None = None, **fields: Any) -> Any:
        """The response, as a client of that version reads it; of the last, if none is given."""
        return self.send_message(key, APIS[key].request.kind(**fields), version)

    def send_message(self, key: ApiKey, request: Any, version: int | None = None) -> Any:
        """The same, of a whole request."""
        api = APIS[key]
        version = api.last if version is None else version
        encoded = api.request.encode(request, version)
        arrived, end = api.request.decode(encoded, version)
        assert end == len(encoded)
        found = answers_of(key).answer(self.call, arrived, version)
        response = self.soon(found) if hasattr(found, "poll") else found
        return through_bytes(key, response, version)

    def refuse(self, key: ApiKey, request: Any, code: ErrorCode, version: int) -> Any:
        """How a request is refused, as a client of that version reads it."""
        return through_bytes(key, answers_of(key).refuse(request, code, version), version)


def through_bytes(key: ApiKey, response: Any, version: int) -> Any:
    """The response as it is read. Older versions leave fields out; the last one has all."""
    api = APIS[key]
    encoded = api.response.encode(response, version)
    read, end = api.response.decode(encoded, version)
    assert end == len(encoded)
    assert api.response.encode(read, version) == encoded
    if version == api.last:
        assert differs_at(response, read) is None
    return read


def codes_in(case: Case, response: Any) -> list[int]:
    """Every error code that the response to a case's request has a place for."""
    return list(_codes(Case(case.key, APIS[case.key].response, case.version), response))


def _codes(case: Case, part: Any) -> Iterator[int]:
    for field, has_place in fields_in(case, type(part)):
        value = getattr(part, field.name)
        if has_place and field.name == "error_code":
            yield value
        elif isinstance(value, tuple):
            for each in value:
                if hasattr(each, "_fields"):
                    yield from _codes(case, each)
