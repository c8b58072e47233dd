"""``logstore backup``: copy a store, and bring the copy up to date."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Final

import typer

from logstore.cli.commands import Command
from logstore.cli.errors import FINE, FOUND, CommandError
from logstore.cli.opening import writing
from logstore.cli.options import Directory, Json, Quiet
from logstore.cli.output import Output, Shape
from logstore.errors import UsageError
from logstore.files import OsFiles
from logstore.logdir.identity import is_brokers_directory

REPORT: Final = Shape(
    "the report (`backup`)",
    path="the absolute path of the backup",
    is_incremental="whether there was an earlier backup, from which unchanged files were taken",
    size_bytes="of all `.log` files of the backup; the next three add up to it",
    copied_bytes="that were copied",
    linked_bytes="that the store and the backup have in common",
    kept_bytes="that the earlier backup had",
    verified_bytes="that were read and checked: all that is new",
    partitions="a list, each as below",
    damaged="what is damaged in the store, in words; empty without --accept-damage",
    elapsed_ms="milliseconds that it took",
)
PARTITION: Final = Shape(
    "a partition (in `backup`)",
    topic="the topic",
    partition="its number",
    log_start_offset="the first offset that can be read",
    log_end_offset="the first offset that the backup does not have",
    segment_count="its segments",
    copied_bytes="as above, as are the next three",
    linked_bytes="of `.log` files",
    kept_bytes="of `.log` files",
    verified_bytes="of `.log` files",
)

Target = Annotated[
    str,
    typer.Argument(metavar="PATH", help="the backup: not there, empty, or an earlier backup of this store"),
]
NoLinks = Annotated[bool, typer.Option("--no-links", help="copy sealed segments, where they could be linked")]
AcceptDamage = Annotated[bool, typer.Option("--accept-damage", help="even if the store is damaged")]


def backup(
    directory: Directory,
    path: Target,
    no_links: NoLinks = False,
    accept_damage: AcceptDamage = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Copy a store, or bring its copy up to date.

    The copy is a store, and verified. docs/backup.md says what holds. No other process may have the
    store open for writing: a program that has makes its backups by store.backup().
    """
    out = Output(json=json, quiet=quiet)
    with writing(directory) as store, out.progress("backing up") as on_bytes:
        try:
            report = store.backup(
                path,
                links=not no_links,
                accept_damage=accept_damage,
                on_progress=None
                if on_bytes is None
                else lambda progress: on_bytes(progress.done_bytes, progress.total_bytes),
            )
        except UsageError as error:  # the path holds something else, or lies in the store
            raise CommandError(str(error)) from None
    if json:
        partitions = [PARTITION(**asdict(each) | each.partition._asdict()) for each in report.partitions]
        out.json(
            REPORT(
                path=report.path,
                is_incremental=report.is_incremental,
                size_bytes=report.size_bytes,
                copied_bytes=report.copied_bytes,
                linked_bytes=report.linked_bytes,
                kept_bytes=report.kept_bytes,
                verified_bytes=report.verified_bytes,
                partitions=partitions,
                damaged=[str(finding) for finding in report.damaged],
                elapsed_ms=report.elapsed_ms,
            )
        )
    else:
        for line in str(report).splitlines():
            out.line(line)
    if report.linked_bytes and is_brokers_directory(OsFiles(), directory):
        out.remark(
            "the linked segments are the broker's, which may cut its own in place when it runs, and so those "
            "of the backup: --no-links to another path copies them"
        )
    return FOUND if report.damaged else FINE


COMMANDS: Final = (Command("backup", backup, (REPORT, PARTITION)),)
