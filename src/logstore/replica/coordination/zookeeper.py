"""A coordinator for several machines: ZooKeeper, through the package ``kazoo``.

Everything is below one path, which may be ZooKeeper's root, as with Kafka. ``docs/coordination.md`` lists the
znodes.

**The lease.** ZooKeeper takes a client for dead when its leader has not heard of it for the session's time. A
server that answers a read may have lost its leader. So a sign of life is a change, of nothing: only a
majority can answer it, and the leader has checked the session. The leader hears of a client on another server
by that server's pings, which come twice per tick, and a session lasts two ticks at least. So when a sign that
was sent at time t is answered, the leader has heard of what was sent a quarter of the session before t. The
lease lasts nine tenths of the session from then; the last tenth is for clocks that go differently.

**Watching.** Watches tell once, and that something has changed, not what. So a thread reads what has changed,
sets the watches again in the same calls, and tells the difference. After each interruption it reads
everything again.

**Unknown outcomes.** If the connection breaks, a change may have been made or not, or be made later. Commits
say so; :mod:`.session` finds it out.

kazoo calls back in threads of its own. There, nothing waits: things are noted, and an event is set.

Locks: ``_Follower._lock`` and ``_SignsOfLife._lock`` guard what is noted, for single looks.
"""

from __future__ import annotations

import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from logstore._version import how_to_install
from logstore.arguments import check_least, shown
from logstore.clock import BootClock, Clock
from logstore.errors import RetriableError, UsageError, of_place
from logstore.lock import ForkFlag
from logstore.replica.coordination import layout
from logstore.replica.coordination.coordinator import TreeCoordinator
from logstore.replica.coordination.fresh_look import FreshLook
from logstore.replica.coordination.interface import SESSION_MS
from logstore.replica.coordination.tree import (
    Changed,
    Check,
    Create,
    Delete,
    Lease,
    Refusal,
    Step,
    Stored,
    Why,
    Write,
)
from logstore.warning import inform, warn

try:
    from kazoo.client import KazooClient
    from kazoo.exceptions import (
        BadVersionError,
        ConnectionClosedError,
        ConnectionLoss,
        KazooException,
        NoAuthError,
        NodeExistsError,
        NoNodeError,
        NotEmptyError,
        OperationTimeoutError,
        RolledBackError,
        SessionExpiredError,
        SessionMovedError,
    )
    from kazoo.handlers.threading import KazooTimeoutError
    from kazoo.hosts import collect_hosts
    from kazoo.protocol.paths import normpath
    from kazoo.protocol.states import KazooState
    from kazoo.security import make_digest_acl
except ImportError as error:
    raise ImportError(
        f"a coordinator in ZooKeeper needs the package kazoo: {how_to_install('zookeeper')}"
    ) from error

_KAZOO_LOGGER: Final = f"{__name__}.kazoo"
_ANY_VERSION: Final = -1
_MOST_STEPS: Final = 500
_MOST_BYTES: Final = 400_000
_LARGEST_BYTES: Final = 1_000_000
"""ZooKeeper takes requests up to a megabyte, and hangs up if one is larger."""
_SIGNS_PER_SESSION: Final = 10
_KEPT_SIGNS: Final = 4 * _SIGNS_PER_SESSION
_LEAST_SESSION_MS: Final = 1_000
_RETRY_SECONDS: Final = 0.05
_LONGEST_RETRY_SECONDS: Final = 1.0
_REASONS: Final = {
    NoNodeError: Why.MISSING,
    NodeExistsError: Why.EXISTS,
    BadVersionError: Why.CHANGED,
    NotEmptyError: Why.CHANGED,
}
_UNKNOWN: Final = (
    ConnectionLoss,
    ConnectionClosedError,
    OperationTimeoutError,
    SessionExpiredError,
    SessionMovedError,
    KazooTimeoutError,
)
"""The request was sent, or may have been."""


def _check_hosts(hosts: str) -> list[tuple[str, int]]:
    """The host and the port of each server."""
    try:
        servers, root = collect_hosts(hosts)
        normpath(root or "/")
    except ValueError as error:
        raise UsageError(
            f"hosts is {shown(hosts)}; it must be text such as 'host1:2181,host2:2181/path': {error}"
        ) from None
    return [(host, int(port)) for host, port in servers]


class ZooKeeperTree:
    """See :class:`~logstore.replica.coordination.tree.Tree`."""

    most_steps = _MOST_STEPS
    most_bytes = _MOST_BYTES

    def __init__(
        self,
        hosts: str,
        session_ms: int,
        clock: Clock,
        client_options: dict[str, Any],
        *,
        create: bool = True,
    ) -> None:
        self.name = f"zookeeper://{hosts}"
        self.clock = clock
        self.patience_ms = session_ms
        client_options.setdefault("logger", _quiet_logger())
        servers = _check_hosts(hosts)
        self._client = KazooClient(
            hosts,
            timeout=session_ms / 1000,
            connection_retry={"max_tries": -1, "delay": _RETRY_SECONDS, "max_delay": _LONGEST_RETRY_SECONDS},
            **client_options,
        )
        self._fresh_look = FreshLook(self.name, servers, session_ms, lambda: int(self._client.last_zxid))
        self._is_closed = False
        self._fork_flag = ForkFlag.watch()
        self._is_connected = threading.Event()
        self._is_away = False
        """Whether it was there before, and somebody was told that it is not now."""
        self._follower: _Follower | None = None
        self._signs = _SignsOfLife(self._client, clock, session_ms)
        self._client.add_listener(self._on_state)
        self._connect(create=create)

    def _connect(self, *, create: bool) -> None:
        self._client.start_async()
        try:
            self._wait_for_connection()
            if create:
                self._make_path()
        except BaseException as error:
            self.close()
            if isinstance(error, _UNKNOWN):
                raise RetriableError(f"{self.name} does not answer: {error!r}") from None
            if isinstance(error, KazooException):
                raise _refusal(self.name, error) from error
            raise
        self._signs.start()

    def _make_path(self) -> None:
        """With all above it, as Kafka does; kazoo sees nothing above its root. Nothing is asked meanwhile."""
        client = self._client
        root, client.chroot = client.chroot, ""
        try:
            client.ensure_path_async(root or "/").get(timeout=self.patience_ms / 1000)
        finally:
            client.chroot = root

    def _wait_for_connection(self) -> None:
        if not self._is_connected.wait(self.patience_ms / 1000):
            raise RetriableError(
                f"{self.name} does not answer within session_ms ({self.patience_ms}): see whether it runs, "
                "and whether this machine knows its name and reaches its port"
            )

    def _on_state(self, state: str) -> None:
        """Runs in kazoo's thread."""
        is_connected = state == KazooState.CONNECTED
        if is_connected:
            if self._is_away:
                inform("%s answers again", self.name)
            self._is_away = False
            self._signs.on_connected()
            self._is_connected.set()
            self._fresh_look.end()
        else:
            if self._is_connected.is_set() and not self._is_closed:
                self._is_away = True
                warn("%s does not answer: this process leads nothing once its lease is over", self.name)
                self._fresh_look.begin()
            self._is_connected.clear()
            if state == KazooState.LOST:
                self._signs.on_lost()
        if self._follower is not None:
            self._follower.on_state(is_connected=is_connected)

    def _check_usable(self) -> None:
        self._fork_flag.check_usable(self.name, is_closed=self._is_closed)

    def commit(self, steps: Sequence[Step]) -> Refusal | None:
        self._check_usable()
        for step in steps:
            if isinstance(step, Create | Write) and len(step.data) > _LARGEST_BYTES:
                raise UsageError(
                    f"{step.path} would have {len(step.data):,} bytes; ZooKeeper takes a megabyte"
                )
        self._is_connected.wait(self.patience_ms / 2000)
        transaction = self._client.transaction()
        for step in steps:
            _add(transaction, step)
        try:
            results = transaction.commit_async().get(timeout=self.patience_ms / 2000)
        except _UNKNOWN:
            return Refusal(Why.UNKNOWN)
        except KazooException as error:
            raise _refusal(self.name, error) from error
        for at, result in enumerate(results):
            if isinstance(result, Exception) and not isinstance(result, RolledBackError):
                why = _REASONS.get(type(result))
                if why is not None:
                    return Refusal(why, at)
                if isinstance(result, _UNKNOWN):
                    return Refusal(Why.UNKNOWN)
                raise _refusal(self.name, result, steps[at].path)
        return None

    def read(self, path: str) -> Stored | None:
        deadline = time.monotonic() + self.patience_ms / 1000
        while True:
            self._check_usable()
            try:
                self._client.sync_async(path)  # of what this server has not heard yet; answered in order
                data, stat = self._client.get_async(path).get(timeout=self.patience_ms / 1000)
                return _stored(data, stat.version)
            except NoNodeError:
                return None
            except _UNKNOWN as error:
                self._is_connected.wait(max(0, deadline - time.monotonic()))
                if time.monotonic() > deadline:
                    raise RetriableError(f"{self.name} does not answer: {error!r}") from None
            except KazooException as error:
                raise _refusal(self.name, error, path) from error

    def begin_session(self, on_lost: Callable[[], None]) -> Lease:
        self._check_usable()
        self._wait_for_connection()
        return self._signs.begin(on_lost)

    def end_session(self) -> None:
        self._signs.end()

    def bury(self) -> None:
        """ZooKeeper does."""

    def follow(self, tell: Callable[[Changed], None]) -> None:
        self._follower = _Follower(self._client, tell, self.patience_ms, self.name)
        self._follower.on_state(is_connected=self._client.connected)
        self._follower.start()

    def wake(self) -> None:
        if self._follower is not None:
            self._follower.wake()

    def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._fresh_look.end()
        self._signs.close()
        if self._follower is not None:
            self._follower.close()
        self._client.stop()
        self._client.close()


def _quiet_logger() -> logging.Logger:
    """For kazoo, which says of each attempt to connect that it has failed, several times a second."""
    logger = logging.getLogger(_KAZOO_LOGGER)
    if logger.level == logging.NOTSET:
        logger.setLevel(logging.ERROR)
    return logger


def _refusal(name: str, error: Exception, path: str = "") -> UsageError:
    """What a server does not let this client do, as the error that a caller gets."""
    advice = ""
    if isinstance(error, NoAuthError):
        advice = (
            "; it was made with another login: give that one ([zookeeper] in a node's file, or login=), or "
            "another path"
        )
    return of_place(UsageError(f"{name}{path} refuses this: {error!r}{advice}"))


def _add(transaction: Any, step: Step) -> None:
    if isinstance(step, Create):
        transaction.create(step.path, step.data.encode(), ephemeral=step.is_bound)
        return
    version = _ANY_VERSION if step.version is None else step.version
    if isinstance(step, Write):
        transaction.set_data(step.path, step.data.encode(), version)
    elif isinstance(step, Delete):
        transaction.delete(step.path, version)
    elif isinstance(step, Check):
        transaction.check(step.path, version)


def _stored(data: bytes | None, version: int) -> Stored:
    return Stored((data or b"").decode(errors="backslashreplace"), version)


class _SignsOfLife:
    """Keeps the lease of the present session, from a thread of its own."""

    def __init__(self, client: Any, clock: Clock, session_ms: int) -> None:
        self._client = client
        self._clock = clock
        self._agreed_ms = session_ms
        """What ZooKeeper has agreed to."""
        self._heard_ms: deque[int] = deque(maxlen=_KEPT_SIGNS)
        """When signs of life were sent that were answered, in this session of ZooKeeper's."""
        self._began_ms = clock.monotonic_ms()
        """A time before the present session of ZooKeeper's was asked for."""
        self._session_id: int | None = None
        self._lease: Lease | None = None
        self._unanswered = 0
        self._lock = threading.Lock()
        self._bell = threading.Event()
        self._is_closed = False
        self._thread = threading.Thread(target=self._run, name="logstore-coordination-lease", daemon=True)
        self._note_agreed()

    def _note_agreed(self) -> None:
        """kazoo keeps to itself which time of the session the server has agreed to; it is in the first answer
        of each connection."""
        connection = self._client._connection
        invoke = connection._invoke

        def noting(*args: Any, **named: Any) -> Any:
            answer = invoke(*args, **named)
            agreed_ms = getattr(answer[0], "time_out", 0) if isinstance(answer, tuple) else 0
            if agreed_ms > 0:
                self._agreed_ms = agreed_ms
            return answer

        connection._invoke = noting

    def start(self) -> None:
        self._thread.start()

    def on_connected(self) -> None:
        session_id = self._client.client_id[0]
        with self._lock:
            if session_id != self._session_id:
                self._session_id = session_id
                self._heard_ms.clear()
                self._heard_ms.append(self._began_ms)
                self._extend_locked()
        self._bell.set()

    def on_lost(self) -> None:
        with self._lock:
            self._began_ms = self._clock.monotonic_ms()
            self._session_id = None
            self._heard_ms.clear()
            if self._lease is not None:
                self._lease.lose()

    def begin(self, on_lost: Callable[[], None]) -> Lease:
        lease = Lease(self._clock, on_lost, self._bell.set)
        with self._lock:
            self._lease = lease
            self._extend_locked()
        self._bell.set()
        return lease

    def end(self) -> None:
        with self._lock:
            if self._lease is not None:
                self._lease.end()

    def _run(self) -> None:
        while not self._is_closed:
            self._bell.wait(self._agreed_ms / _SIGNS_PER_SESSION / 1000)
            self._bell.clear()
            lease = self._lease
            try:
                if lease is not None:
                    lease.tell()
                if self._client.connected and self._unanswered < _KEPT_SIGNS:
                    self._send()
            except Exception as error:
                warn("ZooKeeper cannot be told that this process lives: %s: %s", type(error).__name__, error)

    def _send(self) -> None:
        session_id, sent_ms = self._session_id, self._clock.monotonic_ms()
        transaction = self._client.transaction()
        transaction.check("/", _ANY_VERSION)
        with self._lock:
            self._unanswered += 1
        transaction.commit_async().rawlink(lambda answer: self._on_answer(answer, session_id, sent_ms))

    def _on_answer(self, answer: Any, session_id: int | None, sent_ms: int) -> None:
        """Runs in kazoo's thread."""
        with self._lock:
            self._unanswered -= 1
            is_good = answer.successful() and answer.get_nowait() == [True]
            if is_good and session_id is not None and session_id == self._session_id:
                self._heard_ms.append(sent_ms)
                self._extend_locked()

    def _extend_locked(self) -> None:
        """See the module's page."""
        if not self._heard_ms or self._lease is None or self._lease.is_lost:
            return
        sure_ms = self._heard_ms[-1] - self._agreed_ms // 4
        base_ms = max((each for each in self._heard_ms if each <= sure_ms), default=self._heard_ms[0])
        if base_ms <= sure_ms or base_ms == self._began_ms:
            self._lease.extend(base_ms + self._agreed_ms * 9 // 10)

    def close(self) -> None:
        self._is_closed = True
        self.end()
        self._bell.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()


class _Follower:
    """Reads what is followed, and tells what has changed, from a thread of its own."""

    def __init__(self, client: Any, tell: Callable[[Changed], None], patience_ms: int, name: str) -> None:
        self._client = client
        self._tell = tell
        self._patience_seconds = patience_ms / 1000
        self._name = name
        self._lock = threading.Lock()
        self._bell = threading.Event()
        self._connections = 0
        """How often the client was connected. What was read through an earlier connection has no watches."""
        self._rung: set[str] = set()
        """What has changed."""
        self._is_closed = False
        # The rest belongs to the thread.
        self._connection_read = 0
        self._fresh: set[str] = set()
        """What was read, and has a watch."""
        self._names: dict[str, set[str]] = {}
        self._texts: dict[str, Stored] = {}
        self._told: dict[str, Stored] = {}
        self._is_unreadable = False
        """Whether a warning has said so."""
        self._first_told = threading.Event()
        self._thread = threading.Thread(target=self._run, name="logstore-coordination-watch", daemon=True)

    def start(self) -> None:
        """
        Raises:
            RetriableError: it cannot be read.
        """
        self._thread.start()
        if not self._first_told.wait(self._patience_seconds):
            raise RetriableError(f"{self._name} did not tell its state in time")

    def on_state(self, *, is_connected: bool) -> None:
        """Runs in kazoo's thread."""
        with self._lock:
            self._connections += is_connected
        self._bell.set()

    def _on_event(self, event: Any) -> None:
        """Runs in kazoo's thread."""
        if event.path is not None:  # else the connection is lost, and all is read again later
            with self._lock:
                self._rung.add(event.path)
            self._bell.set()

    def wake(self) -> None:
        self._bell.set()

    def _run(self) -> None:
        while not self._is_closed:
            self._bell.wait()
            self._bell.clear()
            try:
                self._read()
                self._tell(self._difference())
                self._first_told.set()
                self._is_unreadable = False
            except _UNKNOWN:
                self._try_again()  # or at the next connection
            except Exception as error:
                if not self._is_closed:
                    self._warn(error)
                    self._try_again()

    def _warn(self, error: Exception) -> None:
        """Once, until it can be read again: it is tried each second."""
        if self._is_unreadable:
            return
        self._is_unreadable = True
        if isinstance(error, NoNodeError):
            warn(
                "%s lacks what the nodes keep there: somebody has removed it, and changes are not seen any "
                "more. Put it back; if it is lost, stop all nodes, and begin another cluster with the one "
                "that has everything (--new-cluster)",
                self._name,
            )
        else:
            warn("%s cannot be read: %s: %s", self._name, type(error).__name__, error)

    def _try_again(self) -> None:
        self._fresh.clear()
        threading.Event().wait(_LONGEST_RETRY_SECONDS)
        if self._client.connected:
            self._bell.set()

    def _read(self) -> None:
        """Read what is not fresh, and what that leads to."""
        with self._lock:
            connection, rung, self._rung = self._connections, self._rung, set()
        if connection != self._connection_read:
            self._fresh.clear()
            self._connection_read = connection
        self._fresh -= rung
        while True:
            wanted = layout.FOLDERS | layout.wanted(self._names, self._texts)
            stale = wanted - self._fresh
            if not stale:
                break
            self._read_folders(stale & layout.FOLDERS)
            self._read_texts(stale - layout.FOLDERS)
        for path in self._texts.keys() - wanted:
            del self._texts[path]
        self._fresh &= wanted

    def _read_folders(self, paths: Iterable[str]) -> None:
        asked = {path: self._client.get_children_async(path, watch=self._on_event) for path in paths}
        for path, answer in asked.items():
            self._names[path] = set(answer.get(timeout=self._patience_seconds))
            self._fresh.add(path)

    def _read_texts(self, paths: Iterable[str]) -> None:
        asked = {path: self._client.get_async(path, watch=self._on_event) for path in paths}
        missing = []
        for path, answer in asked.items():
            try:
                data, stat = answer.get(timeout=self._patience_seconds)
            except NoNodeError:
                self._texts.pop(path, None)
                missing.append(path)
                continue
            self._texts[path] = _stored(data, stat.version)
            self._fresh.add(path)
        asked = {path: self._client.exists_async(path, watch=self._on_event) for path in missing}
        for path, answer in asked.items():
            if answer.get(timeout=self._patience_seconds) is None:  # else it has come meanwhile
                self._fresh.add(path)

    def _difference(self) -> Changed:
        """What has changed since the last time."""
        texts, told = self._texts, self._told
        changed: dict[str, Stored | None] = dict.fromkeys(told.keys() - texts.keys())
        changed.update((path, stored) for path, stored in texts.items() if told.get(path) != stored)
        self._told = dict(texts)
        return changed

    def close(self) -> None:
        self._is_closed = True
        self._bell.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(self._patience_seconds)


class ZooKeeperCoordinator(TreeCoordinator):
    """A coordinator in ZooKeeper, for nodes on several machines. Each node has one of its own, and
    ``docs/coordination.md`` says what it keeps."""

    def __init__(
        self,
        hosts: str,
        *,
        cluster_id: str | None = None,
        create: bool = True,
        session_ms: int = SESSION_MS,
        clock: Clock | None = None,
        login: tuple[str, str] | None = None,
        **client_options: Any,
    ) -> None:
        """
        Args:
            hosts: ``"host1:2181,host2:2181/path"``. The path is made if it is not there, and all above it.
            cluster_id: what the cluster's id has to be. If there is no cluster yet, it gets this one, or
                without one an id of its own.
            create: whether to begin a cluster if there is none. False for a node that has a cluster already:
                if that is not here, nothing is made.
            session_ms: after how long a node of which nothing is heard is dead; 10 s. The server has bounds,
                by default 4 s and 40 s.
            login: a name and a password (ZooKeeper's ``digest``). Nobody else may then read or change what
                this coordinator creates.
            client_options: for kazoo's client, such as ``sasl_options``, ``use_ssl`` and ``default_acl``.

        Raises:
            ImportError: there is no kazoo.
            RetriableError: no server answers.
            UsageError: it is another cluster's, or there is no cluster, or the server refuses this client.
        """
        check_least("session_ms", session_ms, _LEAST_SESSION_MS)
        if type(hosts) is not str or not hosts:
            raise UsageError(f"hosts is {shown(hosts)}; it must be text such as 'localhost:2181'")
        if login is not None:
            client_options["auth_data"] = [("digest", ":".join(login))]
            client_options["default_acl"] = [make_digest_acl(*login, all=True)]
        tree = ZooKeeperTree(hosts, session_ms, clock or BootClock(), client_options, create=create)
        super().__init__(tree, cluster_id, create=create)
