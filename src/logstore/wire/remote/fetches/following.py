"""Links of a node to others: one broker each, at an address that is known. Nothing is looked up. Fetches
have one session, and one connection.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable
from typing import Final, TypeVar

from logstore.broker.codes import ErrorCode
from logstore.broker.requests import FetchPartition, FetchRequest
from logstore.model import TopicPartition
from logstore.wire.addresses import Address
from logstore.wire.apis import ApiKey
from logstore.wire.remote.connections.dialing import Tls
from logstore.wire.remote.connections.loop import Loop
from logstore.wire.remote.connections.nodes import Dialer, Lane, Node
from logstore.wire.remote.connections.questions import (
    ANY_VERSION,
    Question,
    RemotePending,
    Reply,
    throttle_of,
)
from logstore.wire.remote.connections.settings import RemoteConfig, RenewedSasl, Sasl
from logstore.wire.remote.fetches.following_session import FetchNews, FollowingSession
from logstore.wire.remote.fetches.messages import LAST_BY_NAME
from logstore.wire.remote.translate.translation import Translation

Q = TypeVar("Q")
R = TypeVar("R")

_FIRST_VERSION: Final = 12
"""In which a follower tells the epoch of what it has."""


class Links:
    """The links of one follower. They share a thread."""

    def __init__(
        self,
        client_id: str,
        *,
        tls: Tls | None = None,
        sasl: Sasl | RenewedSasl | None = None,
        config: RemoteConfig | None = None,
    ) -> None:
        self._loop = Loop(f"logstore-links-{client_id}")
        self._dialer = Dialer(self._loop, config or RemoteConfig(), client_id=client_id, tls=tls, sasl=sasl)
        self._links: weakref.WeakSet[LeaderLink] = weakref.WeakSet()

    def to(self, address: Address) -> LeaderLink:
        """A link to the broker there. Nothing is sent before the first fetch."""
        link = LeaderLink(self._dialer, address)
        self._links.add(link)
        return link

    def close(self) -> None:
        """End all connections. What waits ends with an error."""
        for link in list(self._links):
            link.close()
        self._loop.close()


class LeaderLink:
    """To one broker. One fetch is under way at a time."""

    def __init__(self, dialer: Dialer, address: Address) -> None:
        self._dialer = dialer
        self._node = Node(dialer, address)
        self._session = FollowingSession()

    def change(self, rows: Iterable[FetchPartition], forgotten: Iterable[TopicPartition] = ()) -> None:
        """Ask for these, and for those no more, from the next fetch on."""
        self._session.change(rows, forgotten)

    def fetch(self, request: FetchRequest) -> RemotePending[FetchNews]:
        """News of what stands. The partitions of the request do not count. After a connection broke, or the
        broker gave the session up, the next request begins another one, with all that stands."""
        pending: RemotePending[FetchNews] = RemotePending()
        self._ask(request, pending, is_repeated=False)
        return pending

    def _ask(self, request: FetchRequest, pending: RemotePending[FetchNews], *, is_repeated: bool) -> None:
        session = self._session

        def answered(reply: Reply) -> None:
            news = session.news_of(reply)
            if news is not None:
                pending.complete_throttled(news, throttle_of(reply))
            elif not is_repeated:
                self._ask(request, pending, is_repeated=True)
            else:
                why = "the broker gives each session up at once"
                pending.complete(FetchNews((), ErrorCode.FETCH_SESSION_ID_NOT_FOUND, why))

        self._node.ask(
            Lane.WAITS,
            Question(
                ApiKey.FETCH,
                lambda version: session.build(request, version),
                answered,
                client_id=self._dialer.client_id,
                timeout_ms=self._dialer.config.request_timeout_ms + request.max_wait_ms,
                first=_FIRST_VERSION,
                last=ANY_VERSION if session.has_ids else LAST_BY_NAME,
            ),
        )

    def ask(self, translation: Translation[Q, R], request: Q) -> RemotePending[R]:
        """Anything else, once. What waits at the broker holds up nothing else."""
        pending: RemotePending[R] = RemotePending()
        config = self._dialer.config
        self._node.ask(
            translation.lane,
            Question(
                translation.key,
                lambda version: translation.build(request, version),
                lambda reply: pending.complete_throttled(
                    translation.result_of(request, reply), throttle_of(reply)
                ),
                client_id=self._dialer.client_id,
                timeout_ms=config.request_timeout_ms + translation.wait_ms(request),
                first=translation.first,
                last=translation.last,
            ),
        )
        return pending

    def close(self) -> None:
        """End the connections."""
        self._node.close()
