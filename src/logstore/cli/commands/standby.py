"""``logstore standby``: a store that copies another one, and takes over when somebody says so."""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from logstore.cli import remarks, streams
from logstore.cli.commands import Command
from logstore.cli.ending import LOOK_SECONDS, until_told
from logstore.cli.errors import CANNOT, WRONG, CommandError, explain
from logstore.cli.login import Authorities, Certificate, Login, Mechanism, Password, Tls, User
from logstore.cli.opening import check_store
from logstore.cli.options import Json, Key, Metrics, Quiet
from logstore.cli.output import Output, Shape
from logstore.cli.ready import metrics_at
from logstore.errors import UsageError
from logstore.store import Store, open_store

if TYPE_CHECKING:
    from logstore.replica.standby import Standby

FOLLOWING: Final = Shape(
    "a copy that has begun (`standby`)",
    path="the store that copies",
    leader="the addresses of the one that is copied, separated by commas",
    addresses="a list: where readers of the copy can connect; empty without `--listen`",
    metrics="where Prometheus finds the metrics; null without `--metrics`",
)
PROMOTED: Final = Shape(
    "the end of a copy (`standby --promote`)",
    path="the store",
    topics="a list: the topics that are its own now",
)

StorePath = Annotated[
    str, typer.Argument(metavar="DIR", help="a store; made if it does not exist", show_default=False)
]
Leader = Annotated[
    list[str],
    typer.Argument(metavar="HOST:PORT...", help="the leader; of a cluster several", show_default=False),
]
TopicNames = Annotated[
    list[str] | None,
    typer.Option("--topic", "-t", metavar="TOPIC", help="this one only; may be repeated"),
]
Promote = Annotated[
    bool, typer.Option("--promote", help="copy nothing more, and make the copied topics the store's own")
]
Addresses = Annotated[
    list[str] | None,
    typer.Option(
        "--listen", metavar="HOST:PORT|PATH", help="where readers of the copy connect; may be repeated"
    ),
]


def standby(
    directory: StorePath,
    leader: Leader,
    topic: TopicNames = None,
    promote: Promote = False,
    listen: Addresses = None,
    metrics: Metrics = None,
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
    """Copy all topics of a leader into a store, until Ctrl-C, SIGTERM or SIGHUP.

    To take over, end that, and run it again with --promote: the leader need not answer. Then serve the
    store. docs/replication.md says more.
    """
    from logstore.replica.standby import follow  # the clients and the protocol: other commands need neither

    out = Output(json=json, quiet=quiet)
    settings = Login(tls, ca, certificate, key, user, password, mechanism).settings()
    if promote and (listen or metrics):
        raise CommandError("--listen and --metrics are for a copy that goes on", WRONG)
    if promote:
        check_store(directory)
    ended = until_told()
    with ExitStack() as stack:
        on_progress = None if quiet or json else remarks.of_opening(directory)
        store = stack.enter_context(open_store(directory, create=not promote, on_progress=on_progress))
        if promote:
            _promote(store, leader, topic, settings, out)
            return
        # before anything is copied: what is refused here leaves no copies
        addresses = [stack.enter_context(store.listen(each)).address for each in listen or []]
        url = stack.enter_context(metrics_at(store, metrics))
        copy = stack.enter_context(follow(store, *leader, topics=topic, **settings))
        _tell_following(store, leader, addresses, url, out)
        while not ended.wait(LOOK_SECONDS):
            store.directory.check_lock()
            _check_copies(copy)
        out.remark(str(copy.progress))


def _check_copies(copy: Standby) -> None:
    """
    Raises:
        CommandError: it copies nothing any more.
    """
    failure = copy.failure
    if failure is not None:  # whatever it is, the command line was not wrong
        raise CommandError(explain(failure)[1], CANNOT)


def _promote(
    store: Store, leader: list[str], topics: list[str] | None, settings: dict[str, Any], out: Output
) -> None:
    """Only what the store has: what is new at the leader is not copied any more.

    Raises:
        CommandError: the store has no copies of a leader, nor has had any.
    """
    from logstore.replica.promotion import copies_of, was_promoted
    from logstore.replica.standby import follow

    copies = copies_of(store, leader, topics)
    if not copies and not was_promoted(store, topics):
        what = "topics" if topics is None else ", ".join(map(repr, topics))
        raise CommandError(
            f"{store.path} has no copies of {what} of {', '.join(leader)}, so nothing was promoted; "
            f"`logstore ls {store.path}` shows which topics it has",
            CANNOT,
        )
    names: list[str] = []
    if copies:
        with follow(store, *leader, topics=copies, **settings) as copy:
            try:
                names = copy.promote()
            except UsageError as error:  # they are another leader's
                raise CommandError(explain(error)[1], CANNOT) from None
    missing = [name for name in dict.fromkeys(topics or ()) if name not in store]
    if missing:
        listed, were = ", ".join(map(repr, missing)), "was" if len(missing) == 1 else "were"
        topic_is, it_is = ("topic", "it is") if len(missing) == 1 else ("topics", "they are")
        out.remark(f"warning: {topic_is} {listed} {were} not promoted: {it_is} not in {store.path}")
    _tell_promoted(store, names, out)


def _tell_following(
    store: Store, leader: list[str], addresses: list[str], metrics: str | None, out: Output
) -> None:
    if out.is_json:
        out.json(FOLLOWING(path=store.path, leader=",".join(leader), addresses=addresses, metrics=metrics))
    else:
        served = "" if not addresses else f", and is read at {', '.join(addresses)}"
        also = "" if metrics is None else f", its metrics at {metrics}"
        out.line(f"{store.path} copies {', '.join(leader)}{served}{also}")
    streams.flush()


def _tell_promoted(store: Store, names: list[str], out: Output) -> None:
    if out.is_json:
        out.json(PROMOTED(path=store.path, topics=names))
        return
    for name in names:
        out.line(name)
    count = len(names)
    out.remark(f"{count} {'topic is' if count == 1 else 'topics are'} {store.path}'s own now")


COMMANDS: Final = (Command("standby", standby, (FOLLOWING, PROMOTED)),)
