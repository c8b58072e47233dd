"""``logstore lag``: how far the groups are behind."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Annotated, Any, Final

import typer

from logstore.cli import streams
from logstore.cli.commands import Command
from logstore.cli.errors import CANNOT, FINE, FOUND, explain
from logstore.cli.opening import reading, told_of_queue
from logstore.cli.options import Directory, Json, Quiet
from logstore.cli.output import Output, Shape
from logstore.errors import CorruptionError, UnknownTopicError
from logstore.store import Store
from logstore.topic import Topic

LAG: Final = Shape(
    "a committed offset (`lag DIR`)",
    group="the group",
    topic="the topic",
    partition="its number",
    committed_offset="the next offset that the group reads",
    high_watermark="the offset that it reads up to; null where the directory does not hold the partition",
    lag="how many offsets it is behind; null likewise",
)

GroupName = Annotated[
    str | None, typer.Argument(metavar="[GROUP]", help="one group only", show_default=False)
]


def lag(directory: Directory, group: GroupName = None, json: Json = False, quiet: Quiet = False) -> int:
    """Show how far groups are behind, by the offsets that they have committed."""
    out = Output(json=json, quiet=quiet)
    with reading(directory) as store:
        metrics = store.metrics()
        code = _code_of(store) if metrics.incomplete else FINE
        known = {name for name, _, _ in metrics["logstore_group_committed_offset"]}
        told = None
        if group is not None and group not in known:
            told = told_of_queue(store, group)
            if told is None and not metrics.incomplete:
                _ = store.groups()[group]  # or there is no such group: a script that misspells it is told
    lags, ends = metrics["logstore_group_lag"], metrics["logstore_log_high_watermark"]
    rows: list[dict[str, Any]] = [
        LAG(
            group=name,
            topic=topic,
            partition=partition,
            committed_offset=offset,
            high_watermark=ends.get((topic, partition)),
            lag=lags.get((name, topic, partition)),
        )
        for (name, topic, partition), offset in sorted(metrics["logstore_group_committed_offset"].items())
        if group in (None, name)
    ]
    if out.is_json:
        for row in rows:
            out.json(row)
    else:
        headings = ("GROUP", "TOPIC", "PARTITION", "COMMITTED", "HIGH WATERMARK", "LAG")
        out.table(headings, (tuple(row.values()) for row in rows))
    if group is not None and not rows:
        out.remark(told or f"group {group!r} has committed no offset")
    for missing in metrics.incomplete:
        streams.tell(f"error: {missing}")
    return code


def _code_of(store: Store) -> int:
    """The exit code for what could not be read: damage says more than a missing permission."""
    codes: set[int] = set()
    for name in store:
        with suppress(UnknownTopicError):  # deleted meanwhile
            codes.update(_codes_of(store[name]))
    return CANNOT if codes == {CANNOT} else FOUND


def _codes_of(topic: Topic) -> Iterator[int]:
    for number in topic.held_partitions:
        try:
            _ = topic[number].log_end_offset  # looks at the files
        except (CorruptionError, OSError) as error:
            yield explain(error)[0]


COMMANDS: Final = (Command("lag", lag, (LAG,)),)
"""How far groups are behind."""
