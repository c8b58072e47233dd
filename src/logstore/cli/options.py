"""Arguments and options that commands share, with one spelling and one help text each."""

from __future__ import annotations

from enum import Enum
from typing import Annotated

import typer

from logstore.cli.times import Place, parse_place

Directory = Annotated[
    str, typer.Argument(metavar="DIR", help="a store, or one of a broker's log.dirs", show_default=False)
]
TopicName = Annotated[str, typer.Argument(metavar="TOPIC", help="its name", show_default=False)]
OptionalTopic = Annotated[
    str | None, typer.Argument(metavar="[TOPIC]", help="one topic only", show_default=False)
]
Partitions = Annotated[
    list[int] | None,
    typer.Option("--partition", "-p", metavar="N", help="this partition only; may be repeated", min=0),
]
Json = Annotated[bool, typer.Option("--json", help="JSON, one object a line")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="no progress and no remarks")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="FILE", help="of --certificate, if it is in another file")
]
Metrics = Annotated[
    str | None,
    typer.Option(
        "--metrics", metavar="HOST:PORT", help="where Prometheus finds the metrics, by HTTP and for everybody"
    ),
]
DryRun = Annotated[bool, typer.Option("--dry-run", help="change nothing, and say what would be done")]


class Format(Enum):
    """How records are written."""

    TEXT = "text"
    JSON = "json"
    RAW = "raw"


RecordFormat = Annotated[
    Format, typer.Option("--format", help="lines of text, JSON lines, or the bytes of the values")
]
From = Annotated[
    Place | None,
    typer.Option("--from", metavar="OFFSET|TIME", parser=parse_place, help="the first record"),
]
To = Annotated[
    Place | None,
    typer.Option("--to", metavar="OFFSET|TIME", parser=parse_place, help="end in front of this one"),
]
