"""Requests of a node to other nodes, about what they coordinate or lead.

Lock: ``_lock`` guards which links there are.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeVar

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.errors import LogstoreError
from logstore.replica.coordination.interface import Endpoint
from logstore.wire.remote.translate.translation import Translation

Q = TypeVar("Q")
R = TypeVar("R")


class PeerLink(Protocol):
    """A connection to one node."""

    def ask(self, translation: Translation[Q, R], request: Q) -> Pending[R]: ...

    def close(self) -> None: ...


class Peers:
    """The other nodes. Each has one link, which is made when it is first asked."""

    def __init__(
        self, endpoint_of: Callable[[int], Endpoint | None], connect: Callable[[Endpoint], PeerLink]
    ) -> None:
        self._endpoint_of = endpoint_of
        self._connect = connect
        self._lock = threading.Lock()
        self._links: dict[int, tuple[Endpoint, PeerLink]] = {}

    def ask(self, node_id: int, translation: Translation[Q, R], request: Q) -> Pending[R]:
        """What the node answers; a refusal if it is not there."""
        endpoint = self._endpoint_of(node_id)
        if endpoint is None:
            why = f"node {node_id} is not there"
            return Answered(translation.refuse(request, ErrorCode.BROKER_NOT_AVAILABLE, why))
        try:
            link = self._link_to(node_id, endpoint)
        except LogstoreError as error:
            return Answered(translation.refuse(request, ErrorCode.BROKER_NOT_AVAILABLE, str(error)))
        return link.ask(translation, request)

    def _link_to(self, node_id: int, endpoint: Endpoint) -> PeerLink:
        gone = None
        with self._lock:
            known = self._links.get(node_id)
            if known is None or known[0] != endpoint:
                gone, known = known, (endpoint, self._connect(endpoint))
                self._links[node_id] = known
        if gone is not None:
            gone[1].close()
        return known[1]
