"""The listener: Kafka's protocol on a socket, for clients of every kind.

One thread waits for all connections, and a few work for those on which something is asked. Neither an idle
client nor a long poll takes a thread.

Lock: ``_lock`` guards the connections. Nothing is called with it held.
"""

from __future__ import annotations

import socket
import threading
import time
from contextlib import suppress
from typing import Final, Protocol, Self

from logstore import unix_sockets
from logstore.broker.broker import Broker
from logstore.broker.counting import ConnectionCounts, RequestCounts
from logstore.broker.quotas.precedence import ANONYMOUS, Client
from logstore.broker.share.kept import ShareStates
from logstore.errors import RetriableError, UsageError
from logstore.lock import ForkFlag
from logstore.model import BoundToProcess
from logstore.own_sockets import keep_from_children
from logstore.warning import inform, is_due, warn
from logstore.wire.addresses import Address, parse_address
from logstore.wire.handlers.answer_memory import AnswerMemory
from logstore.wire.handlers.call import Call, ClusterNodes, Endpoint, GroupSettings, Node, TopicIds
from logstore.wire.handlers.fetch_sessions import FetchSessions
from logstore.wire.handlers.settings import ListenerConfig
from logstore.wire.handlers.share_sessions import ShareSessions
from logstore.wire.handlers.shares.said import release_rest
from logstore.wire.listener.connection import Connection
from logstore.wire.listener.intercepting import Intercept
from logstore.wire.listener.sockets import bound_address, open_socket, refused
from logstore.wire.listener.spare_memory import SpareMemory
from logstore.wire.listener.transport import PlainTransport, TlsTransport, Transport
from logstore.wire.listener.watch import Watch
from logstore.wire.listener.workers import Workers
from logstore.wire.security.acl_index import address_of
from logstore.wire.security.security import Security

_NEWS_SECONDS: Final = 0.5
"""How long a listener that is closed waits for what may never come. Consumers ask for so much."""
_DRAIN_SECONDS: Final = 5.0
_ACCEPTED_AT_ONCE: Final = 64


class ServedBroker(Broker, Protocol):
    """What a listener makes reachable: a broker, and who it is."""

    @property
    def topics(self) -> TopicIds:
        """The topics' names and ids."""
        ...

    @property
    def group_settings(self) -> GroupSettings:
        """The settings that groups were given."""
        ...

    @property
    def node_id(self) -> int:
        """Its number in the cluster."""
        ...

    @property
    def cluster_id(self) -> str:
        """Which cluster it is of."""
        ...

    @property
    def path(self) -> str:
        """Where its files are."""
        ...

    @property
    def cluster(self) -> ClusterNodes | None:
        """The other nodes of its cluster; None if it is alone."""
        ...

    @property
    def share_states(self) -> ShareStates | None:
        """The states of queues, for other nodes; None if there are none."""
        ...

    @property
    def requests(self) -> RequestCounts:
        """The requests that were answered."""
        ...

    @property
    def follower_sign_seconds(self) -> float:
        """How often it wants to hear of a follower that asks for the same again."""
        ...

    def as_client(self, client: Client) -> Broker:
        """The broker, for one client, with its quotas."""
        ...


class Listener(BoundToProcess):
    """Clients connect here. Use it in a ``with`` statement, or call :meth:`close`.

    Cost: one thread, and up to ``num_request_threads`` while there is work; about 4 KiB for an idle client.
    """

    def __init__(
        self,
        broker: ServedBroker,
        address: str,
        *,
        advertised: str | None = None,
        allow_anonymous: bool = False,
        config: ListenerConfig | None = None,
        security: Security | None = None,
        intercept: Intercept | None = None,
    ) -> None:
        wanted = parse_address(address, to_listen=True)
        named = None if advertised is None else parse_address(advertised, to_listen=True)
        if named is not None and named.is_any:
            raise UsageError(f"advertised is {advertised!r}; give a host that clients can connect to")
        self._security = security or Security()
        if not (wanted.is_local or allow_anonymous or self._security.knows_clients):
            raise UsageError(
                f"{wanted} can be reached from other machines, and clients need not say who they are; set "
                "sasl_enabled_mechanisms, or require certificates, or say allow_anonymous=True"
            )
        self._config = config or ListenerConfig()
        self._broker = broker
        self._intercept = intercept
        self._socket = open_socket(wanted)
        self._socket.setblocking(False)
        keep_from_children(self._socket)
        self._address = bound_address(wanted, self._socket)
        self._socket_file = unix_sockets.file_at(wanted.path) if wanted.path else None
        self._advertised = self._advertise(named)
        self._is_guess = named is None and self._address.is_any
        self._node = Node(
            node_id=broker.node_id,
            cluster_id=broker.cluster_id,
            endpoint=Endpoint(self._advertised.path or self._advertised.host, self._advertised.port),
            topics=broker.topics,
            config=self._config,
            broker=broker,
            cluster=broker.cluster,
            share_states=broker.share_states,
            store_path=broker.path,
            group_settings=broker.group_settings,
            security=self._security,
            requests=broker.requests,
            fetch_sessions=FetchSessions(
                self._config.max_incremental_fetch_session_cache_slots,
                sign_seconds=broker.follower_sign_seconds,
            ),
            share_sessions=ShareSessions(self._config.group_share_max_share_sessions),
            answer_memory=AnswerMemory(self._config.fetch_memory_bytes),
        )
        self._fork_flag = ForkFlag.watch()
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        self._warned_at: dict[str, float] = {}
        self._is_closed = False
        self._spare_memory = SpareMemory()
        self._workers = Workers(self._config.num_request_threads, f"logstore-requests-{self._address}")
        try:
            self._watch = Watch(f"logstore-listener-{self._address}", self._sweep)
            self._watch.add_listening(self._socket, self._accept)
            self._watch.start()
        except OSError as error:
            self._socket.close()
            raise refused(self._address, error) from error
        except RetriableError:
            self._socket.close()
            raise

    def _advertise(self, named: Address | None) -> Address:
        if named is not None:
            return named if named.port or named.path else named._replace(port=self._address.port)
        if self._address.is_any:
            return self._address._replace(host=socket.getfqdn())
        return self._address

    @property
    def address(self) -> str:
        """Where it listens, with the port that the system has chosen: what clients take as
        ``bootstrap.servers``."""
        return str(self._advertised if self._address.is_any else self._address)

    @property
    def advertised(self) -> Address:
        """Where clients are told to connect to."""
        return self._advertised

    @property
    def is_advertised_by_guess(self) -> bool:
        """Whether that is the machine's own name for itself: it listens at all addresses, and was not
        told which of them clients reach."""
        return self._is_guess

    @property
    def protocol(self) -> str:
        """Kafka's name of what clients speak here, such as ``SASL_SSL``."""
        return self._security.protocol

    @property
    def is_name_gone(self) -> bool:
        """Whether it listens at a path where nothing is any more, so that no client finds it."""
        return bool(self._address.path) and unix_sockets.file_at(self._address.path) is None

    @property
    def is_closed(self) -> bool:
        """Whether nobody is let in any more."""
        return self._is_closed

    @property
    def counts(self) -> ConnectionCounts:
        """Who has come so far."""
        return self._node.connections

    @property
    def connection_count(self) -> int:
        """How many clients are connected."""
        return len(self._connections)

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                connected, peer = self._socket.accept()
            except BlockingIOError:
                return
            except OSError as error:
                if not self._is_closed:  # no descriptor is left, say: those that wait go on waiting
                    if is_due(self._warned_at, "not let in"):
                        warn("a client could not be let in: %s", error)
                    time.sleep(0.01)
                return
            if len(self._connections) >= self._config.max_connections:
                if is_due(self._warned_at, "turned away"):
                    count = len(self._connections)
                    warn("a client is turned away: %d are connected (max_connections)", count)
                self.counts.turned_away_count += 1
                connected.close()
                continue
            self.counts.accepted_count += 1
            self._welcome(connected, peer)

    def _welcome(self, connected: socket.socket, peer: object) -> None:
        connected.setblocking(False)
        host = "localhost"
        if connected.family != socket.AF_UNIX:
            with suppress(OSError):  # it is gone already
                connected.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            host = address_of(str(peer[0])) if isinstance(peer, tuple) else host  # as ACLs name it
        call = Call(
            node=self._node,
            broker=self._broker.as_client(Client()),
            principal=f"User:{ANONYMOUS}",
            host=host,
            sasl=self._security.sasl_server(),
        )
        tls = self._security.tls
        transport: Transport
        if tls is not None and connected.family != socket.AF_UNIX:
            connected = tls.context().wrap_socket(connected, server_side=True, do_handshake_on_connect=False)
            transport = TlsTransport(connected)
        else:
            transport = PlainTransport(connected)
        keep_from_children(connected)
        connection = Connection(
            connected,
            transport,
            call,
            as_client=self._as_client,
            intercept=self._intercept,
            watch=self._watch,
            workers=self._workers,
            on_close=self._forget,
        )
        with self._lock:  # to close() it is there, and watched, or not let in
            if self._is_closed:
                connected.close()
                return
            self._connections.add(connection)
            self._watch.add(connected.fileno(), connection.resume)
        connection.resume()

    def _as_client(self, call: Call) -> None:
        user = call.principal.removeprefix("User:")
        call.broker = self._broker.as_client(Client(user, call.client_id))

    def _forget(self, connection: Connection) -> None:
        for member in self._node.share_sessions.end_of(connection.call):
            release_rest(connection.call, member)
        with self._lock:
            self._connections.discard(connection)

    def _sweep(self) -> None:
        now = time.monotonic()
        for connection in self._all():
            why = connection.overdue(now)
            if why is not None:
                inform("the connection of %s is closed: %s", connection.call.host, why)
                connection.abort()
        self._spare_memory.sweep(now)

    def _all(self) -> list[Connection]:
        with self._lock:
            return list(self._connections)

    def close(self, timeout: float = _DRAIN_SECONDS) -> None:
        """Take no more clients, answer what was asked, and close all connections; those on which an answer
        takes longer than ``timeout`` seconds without it. Clients that wait for records, or for the other
        members of a group, wait for half a second of that. You may call it again. In a forked child it does
        nothing: the sockets are the parent's, too."""
        if self._fork_flag.is_forked:
            return
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self._watch.remove_listening(self._socket)
        self._socket.close()
        if self._address.path:
            unix_sockets.remove(self._address.path, self._socket_file)
        began = time.monotonic()
        deadline = began + timeout
        for connection in self._all():
            connection.end()
        self._wait_until_closed(min(began + _NEWS_SECONDS, deadline))
        for connection in self._all():
            if connection.waits_for_news:
                connection.abort()
        self._wait_until_closed(deadline)
        for connection in self._all():
            connection.abort()
        self._wait_until_closed(deadline + 1)
        self._watch.close()
        self._workers.close()
        self._node.fetch_sessions.close()

    def _wait_until_closed(self, deadline: float) -> None:
        while self._connections and time.monotonic() < deadline:
            time.sleep(0.005)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self.connection_count} clients"
        return f"<Listener {self.address}: {state}>"
