"""``logstore handover``: topics to a broker's log directory, from one, or between stores."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Final

import typer

from logstore.cli.commands import Command
from logstore.cli.errors import CommandError
from logstore.cli.options import Json, Quiet
from logstore.cli.output import Output, Shape
from logstore.errors import UsageError
from logstore.exchange.handover import handover as hand_over

REPORT: Final = Shape(
    "the report (`handover`)",
    source="the path that was given",
    target="likewise",
    is_to_broker="whether the target is a broker's log directory",
    is_dry_run="whether nothing was copied",
    size_bytes="that were copied, or would be",
    partitions="a list, each as below",
    created_topics="topics that the target did not have",
    share_groups="share groups that go on where they are",
    notes="what is not handed over, and what to know of it",
)
PARTITION: Final = Shape(
    "a partition (in `handover`)",
    topic="the topic",
    partition="its number",
    log_start_offset="the first offset that can be read",
    log_end_offset="the offset of the next record",
    size_bytes="what there was to copy",
    lowered_epoch="the broker's leader epoch, where later ones are lowered to it; or null",
    aborted="producers whose open transactions are aborted in the copy",
    was_placed="whether the target had all its records already, as after an earlier call",
)

Source = Annotated[
    str,
    typer.Argument(
        metavar="SOURCE", help="a store, or one of a broker's log.dirs; it must not be open anywhere"
    ),
]
Target = Annotated[
    str, typer.Argument(metavar="TARGET", help="the same; a path that does not exist becomes a store")
]
Topics = Annotated[list[str] | None, typer.Option("--topic", metavar="NAME", help="may be repeated")]
Plan = Annotated[bool, typer.Option("--dry-run", help="check, change nothing, and show the plan")]
Abort = Annotated[bool, typer.Option("--abort-transactions", help="abort open ones in the copy")]
Accept = Annotated[bool, typer.Option("--accept-settings", help="even if the broker soon deletes")]
SourceMetadata = Annotated[
    str | None,
    typer.Option("--source-metadata", metavar="DIR", help="metadata.log.dir of the source's broker"),
]
TargetMetadata = Annotated[
    str | None,
    typer.Option("--target-metadata", metavar="DIR", help="metadata.log.dir of the target's broker"),
]


def handover(
    source: Source,
    target: Target,
    topic: Topics = None,
    dry_run: Plan = False,
    abort_transactions: Abort = False,
    accept_settings: Accept = False,
    source_metadata: SourceMetadata = None,
    target_metadata: TargetMetadata = None,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """Copy topics to a broker, from one, or to a store.

    Neither directory may be open anywhere. docs/handover.md says what to do before and after.
    """
    out = Output(json=json, quiet=quiet)
    with out.progress("handing over") as on_bytes:
        try:
            report = hand_over(
                source,
                target,
                topics=topic or None,
                dry_run=dry_run,
                abort_transactions=abort_transactions,
                accept_settings=accept_settings,
                source_metadata=source_metadata,
                target_metadata=target_metadata,
                on_progress=None
                if on_bytes is None
                else lambda progress: on_bytes(progress.done_bytes, progress.total_bytes),
            )
        except UsageError as error:  # what speaks against it: the command line may be as good as any
            raise CommandError(str(error)) from None
    if not json:
        for line in str(report).splitlines():
            out.line(line)
        return
    values = {name: value for name, value in asdict(report).items() if name != "partitions"}
    partitions = [PARTITION(**asdict(each) | each.partition._asdict()) for each in report.partitions]
    out.json(REPORT(**values, size_bytes=report.size_bytes, partitions=partitions))


COMMANDS: Final = (Command("handover", handover, (REPORT, PARTITION)),)
