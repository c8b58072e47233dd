"""Serving a store until the process is told to end; and the plain command lines of it, which are read without
Typer: to import that, and what it needs, takes as long as all else of a start.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from logstore.cli import remarks, streams
from logstore.cli.ending import LOOK_SECONDS, until_told
from logstore.cli.ready import metrics_at, tell_ready
from logstore.config import StoreConfig, TopicConfig, parse_settings
from logstore.errors import LogstoreError
from logstore.store import open_store
from logstore.wire.handlers.settings import ListenerConfig
from logstore.wire.listener.spare_memory import share_pools

if TYPE_CHECKING:
    from logstore.wire.security.tls import ServerTls

DEFAULT_ADDRESS: Final = "127.0.0.1:9092"

_INTERRUPTED: Final = 130
_PIPE_CLOSED: Final = 141
_CANNOT: Final = 3


class Serving(NamedTuple):
    """What is asked for."""

    directory: str = ""
    addresses: Sequence[str] = (DEFAULT_ADDRESS,)
    advertised: str | None = None
    allow_anonymous: bool = False
    settings: Sequence[str] = ()
    """Each a name, an equals sign and a value."""
    is_json: bool = False
    is_quiet: bool = False
    is_audited: bool = False
    """Whether standard error tells of calls that are refused, and of logins that fail."""
    config: str | None = None
    """The file of a node, which says all the rest."""
    is_new_cluster: bool = False
    """Whether the node begins another cluster, since the coordinator has lost its own."""
    certificate: str | None = None
    key: str | None = None
    """None: it is in the same file."""
    metrics: str | None = None
    """Where Prometheus finds the metrics; None: nowhere."""
    client_ca: str | None = None
    """Whose certificates clients have to show; None if they need none."""


def serve(wanted: Serving) -> None:
    """Open a store, and be a Kafka broker until Ctrl-C, SIGTERM or SIGHUP.

    When clients can connect, a line says where.

    Raises:
        LogstoreError: as :func:`logstore.open` and :meth:`.Store.listen`.
        FencedError: the directory was moved, removed or replaced: nothing can be written any more.
        InvalidConfigError: there is no such setting, or its value is no such value.
        OSError: standard output cannot be written.
    """
    share_pools()
    with remarks.with_audit() if wanted.is_audited else nullcontext():
        if wanted.config is None:
            _serve_store(wanted)
            return
        from logstore.cli.nodes import serve_node  # few processes are one

        serve_node(
            wanted.config,
            is_new_cluster=wanted.is_new_cluster,
            is_json=wanted.is_json,
            is_quiet=wanted.is_quiet,
        )


def _serve_store(wanted: Serving) -> None:
    found = _settings(wanted.settings)
    tls = _tls_of(wanted)
    store_config = StoreConfig(**found[StoreConfig], topic=TopicConfig(**found[TopicConfig]))
    listener_config = ListenerConfig(**found[ListenerConfig])
    ended = until_told()
    with ExitStack() as stack:
        on_progress = None if wanted.is_quiet or wanted.is_json else remarks.of_opening(wanted.directory)
        store = stack.enter_context(
            open_store(wanted.directory, config=store_config, on_progress=on_progress)
        )
        listeners = [
            stack.enter_context(
                store.listen(
                    each,
                    advertised=wanted.advertised,
                    allow_anonymous=wanted.allow_anonymous,
                    tls=None if "/" in each else tls,  # a Unix socket is for the same user alone
                    config=listener_config,
                )
            )
            for each in wanted.addresses
        ]
        metrics = stack.enter_context(metrics_at(store, wanted.metrics))
        for listener in listeners:
            tell_ready(
                f"{store.path} is served", listener.address, store.path, metrics, is_json=wanted.is_json
            )
        while not ended.wait(LOOK_SECONDS):
            store.directory.check_lock()
        if not wanted.is_quiet:
            streams.tell("closing")


def _tls_of(wanted: Serving) -> ServerTls | None:
    """
    Raises:
        UsageError: the files have something else.
        StorageError: they cannot be read.
    """
    if wanted.certificate is None:
        return None
    from logstore.wire.security.tls import ServerTls  # most have none

    return ServerTls(
        wanted.certificate,
        wanted.key,
        client_ca=wanted.client_ca,
        require_client_certificate=wanted.client_ca is not None,
    )


def _settings(texts: Sequence[str]) -> dict[type[Any], dict[str, Any]]:
    """The settings of each kind."""
    properties = {}
    for text in texts:
        name, _, value = text.partition("=")
        properties[name.strip()] = value.strip()
    return parse_settings((ListenerConfig, StoreConfig, TopicConfig), properties)


# Plain command lines ----------------------------------------------------------------------------------------

_FLAGS: Final = {
    "--json": "is_json",
    "--quiet": "is_quiet",
    "-q": "is_quiet",
    "--allow-anonymous": "allow_anonymous",
    "--audit": "is_audited",
}
_TEXTS: Final = {
    "--advertised": "advertised",
    "--config": "config",
    "--metrics": "metrics",
    "--certificate": "certificate",
    "--key": "key",
    "--client-ca": "client_ca",
}
_LISTS: Final = {"--listen": "addresses", "--set": "settings"}


def parse_plain(words: Sequence[str]) -> Serving | None:
    """What is behind ``serve`` on a command line. None for all that is wrong, or is spelt in a less usual
    way, or asks for help: Typer reads that."""
    found: dict[str, Any] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if word in _FLAGS:
            found[_FLAGS[word]] = True
        elif word in _LISTS or word in _TEXTS:
            if not rest or rest[0].startswith("-"):
                return None
            if word in _LISTS:
                found.setdefault(_LISTS[word], []).append(rest.pop(0))
            else:
                found[_TEXTS[word]] = rest.pop(0)
        elif word.startswith("-") or "directory" in found:
            return None
        else:
            found["directory"] = word
    if "config" in found:
        return Serving(**found) if found.keys() <= {"config", "is_json", "is_quiet", "is_audited"} else None
    is_whole = "directory" in found and all("=" in text for text in found.get("settings", ()))
    is_one = "advertised" not in found or len(found.get("addresses", ())) < 2
    has_tls = "certificate" in found or not found.keys() & {"key", "client_ca"}
    return Serving(**found) if is_whole and is_one and has_tls else None


def run_plain(wanted: Serving) -> int:
    """Serve; returns the exit code, as of any other command."""
    streams.prepare()
    with remarks.on_standard_error():
        try:
            serve(wanted)
            streams.flush()
            return 0
        except KeyboardInterrupt:
            return _INTERRUPTED
        except BrokenPipeError:
            streams.abandon()
            return _PIPE_CLOSED
        except (LogstoreError, OSError) as error:
            code, message = _explained(error)
            streams.tell(f"error: {message}")
            return code


def _explained(error: Exception) -> tuple[int, str]:
    try:
        from logstore.cli.errors import explain  # Typer is imported only if there is an error to tell of
    except ImportError:
        return _CANNOT, str(error)
    return explain(error)
