"""``logstore ls``: the topics of a store, or the partitions of a topic."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from typing import Any, Final

from logstore.cli import streams
from logstore.cli.commands import Command
from logstore.cli.errors import FINE, FOUND, explain
from logstore.cli.opening import Settings, logs_of, reading, told_of_elsewhere
from logstore.cli.options import Directory, Json, OptionalTopic, Quiet
from logstore.cli.output import Output, Shape
from logstore.cli.times import format_time
from logstore.errors import CorruptionError, UnknownTopicError
from logstore.partition.reading.readable import known_view
from logstore.partition.watching.read_only import ReadOnlyLog
from logstore.topic import Topic

TOPIC: Final = Shape(
    "a topic (`ls DIR`)",
    topic="the topic",
    partitions="how many it has, here and elsewhere",
    held="how many of them the directory holds",
    offsets="offsets from the log starts to the ends: the records, and the gaps that compaction and "
    "transactions leave",
    size_bytes="of the `.log` files",
    newest_ms="the largest timestamp, milliseconds since 1970; null where no record has one",
    cleanup_policy="`delete`, `compact`, both, or neither; null where it is the default of a broker",
    errors="what is wrong with partitions that cannot be read",
)
PARTITION: Final = Shape(
    "a partition (`ls DIR TOPIC`)",
    topic="the topic",
    partition="its number",
    log_start_offset="the first offset that can be read; null where the partition cannot be read",
    log_end_offset="the offset of the next record; null likewise, as all below",
    high_watermark="below it records are replicated; without replicas the log end",
    last_stable_offset="below it every transaction is decided",
    segments="how many there are",
    size_bytes="of the `.log` files",
    newest_ms="the largest timestamp, milliseconds since 1970",
    error="what is wrong where the partition cannot be read; else null",
)


def ls(directory: Directory, topic: OptionalTopic = None, json: Json = False, quiet: Quiet = False) -> int:
    """List the topics of a store, or the partitions of a topic."""
    out = Output(json=json, quiet=quiet)
    with reading(directory) as store:
        if topic is not None:
            return _list_partitions(out, store[topic])
        settings, rows, codes = Settings(directory), [], [FINE]
        for name in store:
            with suppress(UnknownTopicError):  # deleted just now
                rows.append(_topic_row(store[name], settings, codes))
        return _list_topics(out, rows, codes)


def _list_topics(out: Output, rows: list[dict[str, Any]], codes: list[int]) -> int:
    if out.is_json:
        for row in rows:
            out.json(row)
    else:
        out.table(
            ("TOPIC", "PARTITIONS", "OFFSETS", "BYTES", "NEWEST", "CLEANUP"),
            (
                (
                    row["topic"],
                    row["partitions"],
                    row["offsets"],
                    row["size_bytes"],
                    format_time(row["newest_ms"]),
                    row["cleanup_policy"],
                )
                for row in rows
            ),
        )
    return _tell([error for row in rows for error in row["errors"]], codes)


def _topic_row(topic: Topic, settings: Settings, codes: list[int]) -> dict[str, Any]:
    rows = list(_partition_rows(topic, codes))
    readable = [row for row in rows if row["error"] is None]
    times = [row["newest_ms"] for row in readable if row["newest_ms"] is not None]
    return TOPIC(
        topic=topic.name,
        partitions=len(topic),
        held=len(topic.held_partitions),
        offsets=sum(row["log_end_offset"] - row["log_start_offset"] for row in readable),
        size_bytes=sum(row["size_bytes"] for row in readable),
        newest_ms=max(times, default=None),
        cleanup_policy=settings.cleanup_policy_of(topic),
        errors=[row["error"] for row in rows if row["error"] is not None],
    )


def _list_partitions(out: Output, topic: Topic) -> int:
    codes = [FINE]
    rows = list(_partition_rows(topic, codes))
    if out.is_json:
        for row in rows:
            out.json(row)
    else:
        shown = (
            "partition",
            "log_start_offset",
            "log_end_offset",
            "high_watermark",
            "last_stable_offset",
            "segments",
            "size_bytes",
        )
        out.table(
            ("PARTITION", "START", "END", "HIGH WATERMARK", "LAST STABLE", "SEGMENTS", "BYTES", "NEWEST"),
            ((*(row[name] for name in shown), format_time(row["newest_ms"])) for row in rows),
        )
    elsewhere = told_of_elsewhere(topic)
    if elsewhere:
        out.remark(elsewhere)
    return _tell([row["error"] for row in rows if row["error"] is not None], codes)


def _partition_rows(topic: Topic, codes: list[int]) -> Iterator[dict[str, Any]]:
    """``codes``: gets the exit codes of the errors."""
    for number in topic.held_partitions:
        found: dict[str, Any] = dict.fromkeys(PARTITION.fields)
        try:
            found |= _facts_of(logs_of(topic, [number])[0])
        except (CorruptionError, OSError) as error:
            found["error"] = str(error)
            codes.append(explain(error)[0])
        yield PARTITION(**found | {"topic": topic.name, "partition": number})


def _facts_of(log: ReadOnlyLog) -> dict[str, Any]:
    """As of one moment: each look at a log asks for changes of its files, and there may be thousands."""
    newest = log.find_max_timestamp()
    view = known_view(log)
    return {
        "log_start_offset": view.log_start_offset,
        "log_end_offset": view.log_end_offset,
        "high_watermark": view.high_watermark,
        "last_stable_offset": view.last_stable_offset,
        "segments": len(view.segments),
        "size_bytes": sum(view.size_of(number) for number in range(len(view.segments))),
        "newest_ms": None if newest is None else newest.timestamp_ms,
    }


def _tell(errors: list[str], codes: list[int]) -> int:
    """Damage says more than what could not be read."""
    for error in errors:
        streams.tell(f"error: {error}")
    return FOUND if FOUND in codes else max(codes)


COMMANDS: Final = (Command("ls", ls, (TOPIC, PARTITION)),)
