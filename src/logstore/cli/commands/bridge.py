"""``logstore bridge``: topics copied from a cluster into a store, and from a store into a cluster."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from logstore.cli.commands import Command
from logstore.cli.ending import until_told
from logstore.cli.errors import WRONG, CommandError
from logstore.cli.login import Authorities, Certificate, Login, Mechanism, Password, Tls, User
from logstore.cli.opening import check_store
from logstore.cli.options import Json, Key, Quiet
from logstore.cli.output import OnBytes, Output, Shape
from logstore.errors import LogstoreError, RetriableError, UsageError
from logstore.format.metadata import encode_base64_uuid
from logstore.store import Store, open_store
from logstore.turns import SafeEvent

if TYPE_CHECKING:
    from logstore.bridge import PullBridge, PullProgress, PushBridge, PushProgress
    from logstore.connected import RemoteStore

REPORT: Final = Shape(
    "the end of a copy (`bridge`)",
    direction="`pull` or `push`",
    batches="batches that were copied; null for `push`",
    records="records that were committed at the cluster; null for `pull`",
    transactions="transactions at the cluster; null for `pull`",
    size_bytes="of the batches; for `push` of keys and values",
    truncated="offsets that were cut off here, as the cluster has lost them; null for `push`",
    skipped="offsets that were deleted before they were copied",
    partitions="a list, each as below",
)
PARTITION: Final = Shape(
    "a partition (in `bridge`)",
    topic="the topic",
    partition="its number",
    position="the next offset to copy",
    end_offset="where the side that was copied from ended",
    lag="how many offsets are left",
)

_PROGRESS_SECONDS: Final = 0.2
_FIRST_WAIT_SECONDS: Final = 0.5
_LONGEST_WAIT_SECONDS: Final = 30.0


class Direction(Enum):
    PULL = "pull"
    PUSH = "push"


DirectionName = Annotated[Direction, typer.Argument(metavar="pull|push", show_default=False)]
From = Annotated[
    str, typer.Argument(metavar="FROM", help="pull: HOST:PORT of a broker; push: a store", show_default=False)
]
To = Annotated[
    str,
    typer.Argument(
        metavar="TO",
        help="pull: a store, made if it does not exist; push: HOST:PORT of a broker",
        show_default=False,
    ),
]
Topics = Annotated[list[str], typer.Argument(metavar="TOPIC...", show_default=False)]
Follow = Annotated[bool, typer.Option("--follow", "-f", help="go on until Ctrl-C, SIGTERM or SIGHUP")]
Name = Annotated[
    str | None,
    typer.Option("--name", help="push: who pushes; by default the id of the store's directory"),
]
DeletePushed = Annotated[
    bool, typer.Option("--delete-pushed", help="push: delete records here when they are there")
]
Compression = Annotated[str, typer.Option("--compression", metavar="CODEC", help="push: of the batches")]


def bridge(
    direction: DirectionName,
    source: From,
    target: To,
    topics: Topics,
    follow: Follow = False,
    name: Name = None,
    delete_pushed: DeletePushed = False,
    compression: Compression = "none",
    tls: Tls = False,
    ca: Authorities = None,
    certificate: Certificate = None,
    key: Key = None,
    user: User = None,
    password: Password = None,
    mechanism: Mechanism = "SCRAM-SHA-256",
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Copy topics of a cluster into a store, or of a store into a cluster.

    pull keeps offsets and bytes, push brings each record once. Both go on where they ended, however
    that was. No other process may have the store open. docs/bridge.md says more.
    """
    from logstore.bridge import pull, push  # the clients and the protocol: other commands need neither

    out = Output(json=json, quiet=quiet)
    settings = Login(tls, ca, certificate, key, user, password, mechanism).settings()
    ended = until_told() if follow else SafeEvent()
    if direction is Direction.PULL:
        if name is not None or delete_pushed or compression != "none":
            raise CommandError("--name, --delete-pushed and --compression are for push", WRONG)
        with open_store(target) as store, _connected(source, settings, ended, out, follow=follow) as cluster:
            if cluster is not None:
                _run(pull(cluster, store, *topics), ended, out, follow=follow)
        return
    check_store(source)
    with (
        open_store(source, create=False) as store,
        _connected(target, settings, ended, out, follow=follow) as cluster,
    ):
        if cluster is not None:
            bridged = push(
                store,
                cluster,
                *topics,
                name=name or _name_of(store),
                delete_pushed=delete_pushed,
                compression=compression,
            )
            _run(bridged, ended, out, follow=follow)


def _name_of(store: Store) -> str:
    """A name that no other store has.

    Raises:
        CommandError: the directory has no id, as those of old brokers.
    """
    found = store.directory.identity.directory_id
    if found is None:
        raise CommandError(f"{store.path} has no id of its own: give --name", WRONG)
    return encode_base64_uuid(found)


@contextmanager
def _connected(
    address: str, settings: dict[str, Any], ended: SafeEvent, out: Output, *, follow: bool
) -> Iterator[RemoteStore | None]:
    """The cluster; with ``follow`` it may come later. None if the command is to end before.

    Raises:
        CommandError: the brokers do not let us in.
    """
    from logstore.connected import prepare_connection  # as above

    wait, is_there = _FIRST_WAIT_SECONDS, False
    with prepare_connection(address, **settings) as cluster:
        while not is_there and not ended.is_set():
            try:
                is_there = _answers(cluster, ended)
            except UsageError as error:
                raise CommandError(str(error)) from error
            except RetriableError as error:
                if not follow:
                    raise
                out.remark(f"{error}. Trying again")
                ended.wait(wait)
                wait = min(2 * wait, _LONGEST_WAIT_SECONDS)
        yield cluster if is_there else None


def _answers(cluster: RemoteStore, ended: SafeEvent) -> bool:
    """Whether a broker does. False if the command is told to end before that is known.

    Raises:
        LogstoreError: as :meth:`.RemoteStore.check`.
    """
    failed: list[LogstoreError] = []

    def check() -> None:
        try:
            cluster.check()
        except LogstoreError as error:
            failed.append(error)

    checking = threading.Thread(target=check, daemon=True)  # it may take half a minute
    checking.start()
    while checking.is_alive() and not ended.is_set():
        checking.join(_PROGRESS_SECONDS)
    for error in failed:
        raise error
    return not checking.is_alive()


def _run(bridged: PullBridge | PushBridge, ended: SafeEvent, out: Output, *, follow: bool) -> None:
    """Copy, and show how far it is."""
    is_over = threading.Event()
    with out.progress("copying") as on_bytes:
        watching = threading.Thread(target=_watch, args=(bridged, ended, is_over, on_bytes), daemon=True)
        watching.start()
        try:
            progress = bridged.run(until_end=not follow)
        finally:
            is_over.set()
            watching.join()
    _tell(progress, out)


def _watch(
    bridged: PullBridge | PushBridge,
    ended: SafeEvent,
    is_over: threading.Event,
    on_bytes: OnBytes | None,
) -> None:
    """Stop the bridge when the command is told to end, and move the bar."""
    while not is_over.wait(_PROGRESS_SECONDS):
        if ended.is_set():
            bridged.stop()
        if on_bytes is not None:
            done = bridged.progress.byte_count
            on_bytes(done, done)


def _tell(progress: PullProgress | PushProgress, out: Output) -> None:
    is_pull = hasattr(progress, "batch_count")
    if out.is_json:
        partitions = [
            PARTITION(**each._asdict() | each.partition._asdict() | {"lag": each.lag})
            for each in progress.partitions
        ]
        out.json(
            REPORT(
                direction="pull" if is_pull else "push",
                batches=getattr(progress, "batch_count", None),
                records=getattr(progress, "record_count", None),
                transactions=getattr(progress, "transaction_count", None),
                size_bytes=progress.byte_count,
                truncated=getattr(progress, "truncated_count", None),
                skipped=progress.skipped_count,
                partitions=partitions,
            )
        )
        return
    out.table(
        ("topic", "partition", "position", "end", "lag"),
        [(*each.partition, each.position, each.end_offset, each.lag) for each in progress.partitions],
    )
    out.remark(str(progress))


COMMANDS: Final = (Command("bridge", bridge, (REPORT, PARTITION)),)
