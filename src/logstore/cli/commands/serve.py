"""``logstore serve``: a process that owns a store, and lets Kafka's clients in."""

from __future__ import annotations

from typing import Annotated, Final

import typer

from logstore.cli import serving
from logstore.cli.commands import Command
from logstore.cli.errors import WRONG, CommandError
from logstore.cli.options import Json, Key, Metrics, Quiet
from logstore.cli.output import Shape
from logstore.cli.serving import DEFAULT_ADDRESS, Serving

SERVED: Final = Shape(
    "a listener that is ready (`serve DIR`)",
    address="what clients take as `bootstrap.servers`",
    path="the store",
    metrics="where Prometheus finds the metrics; null without `--metrics`",
)

StorePath = Annotated[
    str | None, typer.Argument(metavar="DIR", help="a store; made if it does not exist", show_default=False)
]
ConfigFile = Annotated[
    str | None,
    typer.Option(
        "--config", metavar="FILE", help="be the node of a cluster that a TOML file describes, instead of DIR"
    ),
]
NewCluster = Annotated[
    bool,
    typer.Option(
        "--new-cluster",
        help="with --config, if the coordinator was lost: begin another cluster with what this node has",
    ),
]
Addresses = Annotated[
    list[str] | None,
    typer.Option(
        "--listen",
        metavar="HOST:PORT|PATH",
        help=f"where; port 0 is any free one; may be repeated  [default: {DEFAULT_ADDRESS}]",
        show_default=False,
    ),
]
Advertised = Annotated[
    str | None,
    typer.Option("--advertised", metavar="HOST:PORT", help="the address that clients are told"),
]
AllowAnonymous = Annotated[
    bool, typer.Option("--allow-anonymous", help="let everybody in who can reach it from other machines")
]
Audit = Annotated[
    bool,
    typer.Option("--audit", help="tell on standard error of calls that are refused and logins that fail"),
]
Certificate = Annotated[
    str | None, typer.Option("--certificate", metavar="FILE", help="ours, in PEM: clients connect with TLS")
]
ClientCa = Annotated[
    str | None,
    typer.Option(
        "--client-ca", metavar="FILE", help="clients have to show a certificate of these authorities"
    ),
]
SettingTexts = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="NAME=VALUE",
        help="a setting in Kafka's spelling, of the listener, the store, or new topics; may be repeated",
    ),
]


def serve(
    directory: StorePath = None,
    listen: Addresses = None,
    advertised: Advertised = None,
    allow_anonymous: AllowAnonymous = False,
    certificate: Certificate = None,
    key: Key = None,
    client_ca: ClientCa = None,
    settings: SettingTexts = None,
    config: ConfigFile = None,
    new_cluster: NewCluster = False,
    audit: Audit = False,
    metrics: Metrics = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Open a store, and be a Kafka broker until Ctrl-C, SIGTERM or SIGHUP.

    When clients can connect, a line says where.
    """
    if config is not None:
        security = (allow_anonymous, certificate, key, client_ca)
        if any((directory, listen, advertised, settings, metrics, *security)):
            raise CommandError("--config goes alone: the file says all the rest", WRONG)
        serving.serve(
            Serving(
                config=config,
                is_new_cluster=new_cluster,
                is_audited=audit,
                is_json=json,
                is_quiet=quiet,
            )
        )
        return
    if new_cluster:
        raise CommandError("--new-cluster needs --config FILE", WRONG)
    if directory is None:
        raise CommandError("give the directory of a store, or --config FILE", WRONG)
    addresses = listen or [DEFAULT_ADDRESS]
    if advertised is not None and len(addresses) > 1:
        raise CommandError("--advertised is for one address; give --listen once", WRONG)
    if certificate is None and (key is not None or client_ca is not None):
        raise CommandError("--key and --client-ca need --certificate FILE", WRONG)
    for text in settings or []:
        if "=" not in text:
            raise CommandError(f"--set {text}: give a name and a value, as in --set num.partitions=3", WRONG)
    serving.serve(
        Serving(
            directory,
            addresses,
            advertised,
            allow_anonymous=allow_anonymous,
            settings=settings or (),
            is_audited=audit,
            is_json=json,
            is_quiet=quiet,
            certificate=certificate,
            key=key,
            client_ca=client_ca,
            metrics=metrics,
        )
    )


COMMANDS: Final = (Command("serve", serve, (SERVED,)),)
