"""Which broker coordinates a group, a transactional id, or a share group.

Lock: ``_lock`` guards the table.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from enum import IntEnum
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.wire.apis import ApiKey
from logstore.wire.messages.groups.find_coordinator import Coordinator, FindCoordinatorRequest
from logstore.wire.remote.connections.codes import code_of_number, why_of_number
from logstore.wire.remote.connections.nodes import Node
from logstore.wire.remote.connections.questions import Reply
from logstore.wire.remote.routing.attempt import Attempt, Target
from logstore.wire.remote.routing.cluster import AnyNode, Cluster

_FIRST_VERSION: Final = 4
"""From it on one request asks for many."""


class Kind(IntEnum):
    """What is coordinated; the numbers are the protocol's."""

    GROUP = 0
    """Also a share group."""
    TRANSACTION = 1


class Coordinators:
    """Of one client."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._lock = threading.Lock()
        self._known: dict[tuple[Kind, str], Node] = {}

    def of(self, kind: Kind, key: str) -> Target:
        """The coordinator of one."""
        return _Coordinator(self, kind, key)

    def known(self, kind: Kind, key: str) -> Node | None:
        """The coordinator, if it was looked up before."""
        with self._lock:
            return self._known.get((kind, key))

    def forget(self, kind: Kind, keys: Sequence[str]) -> None:
        """They have moved, or may have."""
        with self._lock:
            for key in keys:
                self._known.pop((kind, key), None)

    def find(
        self, kind: Kind, keys: Sequence[str], then: Callable[[dict[str, Node | Reply]], object]
    ) -> None:
        """Call ``then`` with the coordinator of each key, or with why it has none."""
        with self._lock:
            found: dict[str, Node | Reply] = {
                key: self._known[kind, key] for key in keys if (kind, key) in self._known
            }
        missing = tuple(key for key in dict.fromkeys(keys) if key not in found)
        if not missing:
            then(found)
            return
        request = FindCoordinatorRequest(key_type=kind, keys=missing)
        Attempt(
            self._cluster,
            AnyNode(self._cluster),
            ApiKey.FIND_COORDINATOR,
            lambda _: request,
            lambda reply: then(found | self._take(kind, missing, reply)),
            client_id=self._cluster.dialer.client_id,
            timeout_ms=self._cluster.config.request_timeout_ms,
            first=_FIRST_VERSION,
            judge=_first_code,
        ).begin()

    def _take(self, kind: Kind, keys: Sequence[str], reply: Reply) -> dict[str, Node | Reply]:
        if reply.error is not ErrorCode.NONE:
            return dict.fromkeys(keys, reply)
        answers: dict[str, Coordinator] = {each.key: each for each in reply.response.coordinators}
        found: dict[str, Node | Reply] = {}
        for key in keys:
            answer = answers.get(key)
            if answer is None or answer.error_code:
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
                message = "the broker does not name a coordinator"
                if answer is not None:
                    code = code_of_number(answer.error_code)
                    message = why_of_number(answer.error_code, answer.error_message) or code.name
                found[key] = Reply(error=code, message=message)
            else:
                node = self._cluster.node_at(answer.node_id, answer.host, answer.port)
                found[key] = node
                with self._lock:
                    self._known[kind, key] = node
        return found


def _first_code(reply: Reply) -> ErrorCode:
    codes = [code_of_number(each.error_code) for each in reply.response.coordinators]
    return next((code for code in codes if code), ErrorCode.NONE)


class _Coordinator(Target):
    def __init__(self, coordinators: Coordinators, kind: Kind, key: str) -> None:
        self._coordinators = coordinators
        self._kind = kind
        self._key = key

    def find(self, then: Callable[[Node | Reply], object]) -> None:
        known = self._coordinators.known(self._kind, self._key)
        if known is not None:
            then(known)
        else:
            self._coordinators.find(self._kind, (self._key,), lambda found: then(found[self._key]))

    def forget(self) -> None:
        self._coordinators.forget(self._kind, (self._key,))
