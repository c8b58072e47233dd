"""A node of a cluster, served until the process is told to end; and the file that says which node it is."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final, NamedTuple

from logstore.cli import remarks, streams
from logstore.cli.ending import LOOK_SECONDS, until_told
from logstore.cli.ready import metrics_at, tell_ready
from logstore.config import StoreConfig, TopicConfig, parse_settings
from logstore.errors import (
    CorruptionError,
    InvalidConfigError,
    LockedError,
    RetriableError,
    StorageError,
    UsageError,
    is_of_place,
)
from logstore.files import OsFiles, parent_of, read_small_file
from logstore.replica.coordination.coordinator import TreeCoordinator
from logstore.replica.coordination.interface import SESSION_MS, Coordinator
from logstore.replica.leaving import leave_cluster
from logstore.replica.node.controller.adopting import cluster_id_for, was_node
from logstore.replica.node.node import Node
from logstore.store import Store, open_store
from logstore.turns import SafeEvent
from logstore.warning import warn
from logstore.wire.handlers.settings import ListenerConfig
from logstore.wire.remote.connections.settings import RenewedSasl, Sasl
from logstore.wire.security.tls import ClientTls, ServerTls

_MAX_BYTES: Final = 1024 * 1024
_ZOOKEEPER: Final = "zookeeper://"
_KINDS: Final[dict[str, type]] = {
    "directory": str,
    "node_id": int,
    "coordinator": str,
    "listener": str,
    "advertised": str,
    "rack": str,
    "allow_anonymous": bool,
    "replication_factor": int,
    "replica_lag_time_max_ms": int,
    "leader_imbalance_check_interval_seconds": int,
    "follower_replication_throttled_rate": int,
    "read_from_followers": bool,
    "session_ms": int,
    "metrics": str,
    "settings": dict,
    "tls": dict,
    "peers": dict,
    "zookeeper": dict,
}
_TLS_KINDS: Final[dict[str, type]] = {
    "certificate": str,
    "key": str,
    "ca": str,
    "require_client_certificate": bool,
}
_PEER_KINDS: Final[dict[str, type]] = {"username": str, "password_file": str, "mechanism": str}
_ZOOKEEPER_KINDS: Final[dict[str, type]] = {"username": str, "password_file": str}
_NEEDED: Final = ("directory", "node_id", "coordinator", "listener")
_OF_NODE: Final = (
    "listener",
    "advertised",
    "rack",
    "allow_anonymous",
    "replication_factor",
    "replica_lag_time_max_ms",
    "leader_imbalance_check_interval_seconds",
    "follower_replication_throttled_rate",
    "read_from_followers",
)


class NodeFile(NamedTuple):
    """What the file says. Paths in it are relative to it."""

    directory: str
    node_id: int
    coordinator: str
    options: dict[str, Any]
    """Of the node."""
    settings: dict[str, str]
    """Of the listener, the store and new topics, by Kafka's names."""
    session_ms: int
    zookeeper_login: tuple[str, str] | None = None
    """As whom ZooKeeper knows the nodes, and the password."""
    metrics: str | None = None
    """Where Prometheus finds them."""


def read_node_file(path: str) -> NodeFile:
    """
    Raises:
        UsageError: the file cannot be read, or something in it is missing, unknown or of the wrong type.
    """
    files = OsFiles()
    if files.is_directory(path):
        raise UsageError(
            f"{path} is a directory; --config names the file of a node, such as {path}/node.toml"
        )
    data = read_small_file(files, path, _MAX_BYTES)
    if data is None:
        raise UsageError(f"there is no file {path}")
    try:
        found = tomllib.loads(data.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{path} is no TOML: {error}") from None
    _check_kinds(path, found, _KINDS, _NEEDED)
    base = parent_of(files.absolute(path))
    coordinator, login = found["coordinator"], None
    directory = _below(base, found["directory"])
    if not coordinator.startswith(_ZOOKEEPER):
        if "://" in coordinator:
            raise UsageError(
                f"{path}: coordinator is {coordinator!r}; it must be {_ZOOKEEPER}host:2181/path, or the "
                "path of a directory"
            )
        coordinator = _below(base, coordinator)
        if files.absolute(coordinator) == files.absolute(directory):
            raise UsageError(
                f"{path}: the coordinator is in the node's own directory, {directory}; give it one of its "
                "own, which all nodes share"
            )
    if (zookeeper := found.get("zookeeper")) is not None:
        if not coordinator.startswith(_ZOOKEEPER):
            raise UsageError(f"{path}: [zookeeper] needs a coordinator such as {_ZOOKEEPER}host:2181/path")
        _check_kinds(path, zookeeper, _ZOOKEEPER_KINDS, ("username", "password_file"), "zookeeper.")
        login = zookeeper["username"], _password(path, _below(base, zookeeper["password_file"]))
        if not all(login) or ":" in login[0]:
            raise UsageError(f"{path}: [zookeeper] needs a username without a colon, and a password")
    settings = found.get("settings", {})
    for name, value in settings.items():
        if isinstance(value, dict):  # TOML takes a name with dots for tables
            raise UsageError(f'{path}: [settings] has {name!r} without quotes; write "retention.ms" = 1000')
    return NodeFile(
        directory,
        found["node_id"],
        coordinator,
        {name: found[name] for name in _OF_NODE if name in found} | _security(path, base, found),
        {name: _text_of(value) for name, value in settings.items()},
        found.get("session_ms", SESSION_MS),
        login,
        found.get("metrics"),
    )


def _check_kinds(
    path: str, found: dict[str, Any], kinds: dict[str, type], needed: tuple[str, ...], within: str = ""
) -> None:
    for name, value in found.items():
        kind = kinds.get(name)
        if kind is None:
            raise UsageError(f"{path}: there is no {within + name!r}; there are {', '.join(kinds)}")
        if type(value) is not kind:
            raise UsageError(f"{path}: {within}{name} is {value!r}; it must be of type {kind.__name__}")
    missing = [within + name for name in needed if name not in found]
    if missing:
        raise UsageError(f"{path}: {' and '.join(missing)} must be given")


def _security(path: str, base: str, found: dict[str, Any]) -> dict[str, Any]:
    """How clients and nodes know each other: what :class:`.Node` is given for it."""
    options: dict[str, Any] = {}
    tls, peers = found.get("tls"), found.get("peers")
    if tls is not None:
        _check_kinds(path, tls, _TLS_KINDS, ("certificate", "key", "ca"), "tls.")
        certificate, key, ca = (_below(base, tls[name]) for name in ("certificate", "key", "ca"))
        options["tls"] = ServerTls(
            certificate,
            key,
            client_ca=ca,
            require_client_certificate=tls.get("require_client_certificate", False),
        )
        options["peer_tls"] = ClientTls(ca, certificate, key)
    if peers is not None:
        _check_kinds(path, peers, _PEER_KINDS, ("username", "password_file"), "peers.")
        file, username = _below(base, peers["password_file"]), peers["username"]
        mechanism = {"mechanism": peers["mechanism"]} if "mechanism" in peers else {}
        options["peer_sasl"] = RenewedSasl(
            lambda: Sasl(username=username, password=_password(path, file), **mechanism)
        )
    return options


def _password(path: str, file: str) -> str:
    """What the file says that is named in another."""
    password = read_small_file(OsFiles(), file, _MAX_BYTES)
    if password is None:
        raise UsageError(f"{path}: there is no file {file}")
    try:
        return password.decode().rstrip("\r\n")
    except UnicodeDecodeError:
        raise UsageError(f"{file} is no text in UTF-8") from None


def _below(base: str, path: str) -> str:
    return path if path.startswith("/") else f"{base}/{path}"


def _text_of(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def open_coordinator(
    name: str,
    session_ms: int,
    cluster_id: str | None = None,
    zookeeper_login: tuple[str, str] | None = None,
    *,
    create: bool = True,
) -> Coordinator:
    """
    Args:
        name: ``zookeeper://host:2181/path``, or the path of a directory.
        cluster_id: what the cluster has to have.
        zookeeper_login: see :class:`.ZooKeeperCoordinator`.
        create: whether to begin a cluster if there is none.
    """
    kind, options = _kind_of(name, session_ms, zookeeper_login)
    return kind(**options, cluster_id=cluster_id, create=create)


def _kind_of(
    name: str, session_ms: int, zookeeper_login: tuple[str, str] | None
) -> tuple[type[TreeCoordinator], dict[str, Any]]:
    """The class of a coordinator, and what it is given."""
    if name.startswith(_ZOOKEEPER):
        from logstore.replica.coordination.zookeeper import ZooKeeperCoordinator  # kazoo is an extra

        hosts = name.removeprefix(_ZOOKEEPER)
        return ZooKeeperCoordinator, {"hosts": hosts, "session_ms": session_ms, "login": zookeeper_login}
    from logstore.replica.coordination.files import FileCoordinator

    return FileCoordinator, {"path": name, "session_ms": session_ms}


def _leave_lost_cluster(wanted: NodeFile) -> None:
    """The coordinator is lost: make the node's directory one that can begin another cluster.

    Raises:
        UsageError: the coordinator has a cluster, or the directory is no node's.
        StorageError: it is damaged.
    """
    kind, options = _kind_of(wanted.coordinator, wanted.session_ms, wanted.zookeeper_login)
    with _damage_of(wanted.coordinator):
        is_there = kind.exists(**options)
    if is_there:
        raise UsageError(
            f"{wanted.coordinator} has a cluster; --new-cluster is for a coordinator that has lost its own. "
            "Start the node without it"
        )
    if not OsFiles().is_directory(wanted.directory):
        raise UsageError(
            f"there is no directory {wanted.directory}, and --new-cluster is for a node that has topics. "
            "Start the node without --new-cluster if it is the first of a cluster"
        )
    leave_cluster(wanted.directory)


@contextmanager
def _said_in(path: str, settings: Iterable[str] = ()) -> Iterator[None]:
    """What is refused is told with the file that says it, and with the names that settings have there."""
    try:
        yield
    except UsageError as error:
        if is_of_place(error):  # the file may be right
            raise StorageError(None, f"{path}: {error}") from None
        if type(error) not in (UsageError, InvalidConfigError) or str(error).startswith(f"{path}:"):
            raise
        told = str(error)
        for name in settings:
            if told.startswith(f"{name.replace('.', '_')} is "):
                told = name + told[len(name) :]
        raise type(error)(f"{path}: {told}") from None


@contextmanager
def _damage_of(coordinator: str) -> Iterator[None]:
    """What is wrong with the coordinator is told with what to do about that: it is no store, which could be
    verified."""
    try:
        yield
    except CorruptionError as error:
        if error.path is None or not error.path.startswith(coordinator):
            raise
        raise StorageError(
            None,
            f"{error}. Put back what was there; if that is lost, move {coordinator} away, and the node that "
            "has everything can begin a new cluster: logstore serve --config FILE --new-cluster",
        ) from None


def serve_node(path: str, *, is_new_cluster: bool = False, is_json: bool, is_quiet: bool) -> None:
    """Be the node that a file describes, until Ctrl-C, SIGTERM or SIGHUP. When clients can connect, a line
    says where. What the node leads is handed over in the end. A node that has a cluster waits for a
    coordinator that does not answer yet.

    Args:
        is_new_cluster: begin another cluster with what the node has, since the coordinator has lost its own.

    Raises:
        LogstoreError: as :func:`logstore.open` and :class:`.Node`; or the node's disk has failed. What is
            wrong in the file is told with the file's name.
        StorageError: the coordinator is damaged.
        FencedError: the directory was moved, removed or replaced.
        OSError: standard output cannot be written.
    """
    wanted = read_node_file(path)
    ended = until_told()
    with ExitStack() as stack:
        with _said_in(path, wanted.settings):
            config, listening = _configs_of(wanted)
            if is_new_cluster:
                _leave_lost_cluster(wanted)
            on_progress = None if is_quiet or is_json else remarks.of_opening(wanted.directory)
            store = stack.enter_context(open_store(wanted.directory, config=config, on_progress=on_progress))
            coordinator = _reach_coordinator(wanted, store, ended)
            if coordinator is None:
                return
            stack.callback(coordinator.close)
            node = _start(path, wanted, store, listening, stack, coordinator)
            metrics = stack.enter_context(metrics_at(store, wanted.metrics))
        told = f"node {node.node_id} of {node.cluster_id}: {store.path} is served"
        tell_ready(told, node.address, store.path, metrics, is_json=is_json)
        while node.failure is None and not ended.wait(LOOK_SECONDS):
            store.directory.check_lock()
        if node.failure is not None:
            raise node.failure
        if not is_quiet:
            streams.tell("handing over, and closing")


def _configs_of(wanted: NodeFile) -> tuple[StoreConfig, ListenerConfig]:
    found = parse_settings((ListenerConfig, StoreConfig, TopicConfig), wanted.settings)
    config = StoreConfig(**found[StoreConfig], topic=TopicConfig(**found[TopicConfig]))
    return config, ListenerConfig(**found[ListenerConfig])


def _reach_coordinator(wanted: NodeFile, store: Store, ended: SafeEvent) -> Coordinator | None:
    """A node that has a cluster waits for a coordinator that does not answer: after a power cut all machines
    start at once. One that has none may have a wrong name, and is told so.

    Returns:
        None if the process is told to end meanwhile.
    """
    had_cluster, is_told = was_node(store), False
    while True:
        try:
            with _damage_of(wanted.coordinator):
                return open_coordinator(
                    wanted.coordinator,
                    wanted.session_ms,
                    cluster_id_for(store),
                    wanted.zookeeper_login,
                    create=not had_cluster,
                )
        except RetriableError as error:
            if not had_cluster:
                raise
            if not is_told:
                warn("%s. The node waits for it, and serves nobody until then", error)
                is_told = True
        if ended.wait(LOOK_SECONDS):
            return None
        store.directory.check_lock()


def _start(
    path: str,
    wanted: NodeFile,
    store: Store,
    listening: ListenerConfig,
    stack: ExitStack,
    coordinator: Coordinator,
) -> Node:
    """The node that a file describes; the stack closes it."""
    try:
        with _damage_of(wanted.coordinator):
            node = Node(store, wanted.node_id, coordinator=coordinator, **wanted.options, config=listening)
    except LockedError as error:  # another process has the node id, and not the directory
        raise RetriableError(f"{error.held}. Stop that node, or give another node_id in {path}") from None
    return stack.enter_context(node)
