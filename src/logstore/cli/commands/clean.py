"""``logstore compact`` and ``logstore retain``: remove what the topics' settings let go."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import asdict
from typing import Annotated, Any, Final

import typer

from logstore.cli.commands import Command
from logstore.cli.errors import WRONG, CommandError, tell_all
from logstore.cli.opening import Settings, reading, topics_of, writing
from logstore.cli.options import Directory, DryRun, Json, OptionalTopic, Quiet, TopicName
from logstore.cli.output import Output, Shape
from logstore.errors import CorruptionError, UnknownTopicError
from logstore.partition.cleaning.reports import CompactionReport
from logstore.partition.log import Log
from logstore.partition.watching.read_only import ReadOnlyLog
from logstore.topic import Topic

COMPACTED: Final = Shape(
    "a compacted partition (`compact`)",
    topic="the topic",
    partition="number of the partition",
    is_dry_run="whether nothing was changed",
    round_count="how often the log was gone over; 0: there was nothing to do, or not enough",
    key_count="keys that were looked for",
    first_dirty_offset_before="what lies below was compacted before",
    first_dirty_offset_after="and now",
    segment_count_before="segments of the log",
    segment_count_after="and after",
    size_bytes_before="of the log",
    size_bytes_after="and after",
    read_bytes="of the segments that were cleaned",
    kept_bytes="what is left of them",
    written_bytes="what had to be written for that",
    read_batch_count="batches of the segments that were cleaned",
    kept_batch_count="those that are left",
    rewritten_batch_count="kept with fewer records, with a delete horizon, or emptied",
    joined_batch_count="small ones of which larger ones were made",
    read_record_count="records of the segments that were cleaned",
    kept_record_count="those that are left",
    kept_tombstone_count="of these, tombstones",
    removed_tombstone_count="tombstones whose time was over",
    removed_marker_count="transaction markers",
    removed_keyless_count="records without a key",
    removed_aborted_count="records of aborted transactions",
    elapsed_ms="milliseconds that it took",
)
RETAINED: Final = Shape(
    "a partition that loses segments (`retain`)",
    topic="the topic",
    partition="number of the partition",
    is_dry_run="whether nothing was deleted",
    segment_count="segments that go",
    size_bytes="of their `.log` files",
    log_start_offset="the first offset that can be read behind them",
)

Now = Annotated[
    bool, typer.Option("--now", help="however little there is to gain, and the active segment too")
]


def compact(
    directory: Directory,
    topic: TopicName,
    now: Now = False,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Compact a topic: keep the last record of each key.

    No other process may have the store open for writing, for a dry run either. Without --now, partitions that
    are not dirty enough stay as they are.
    """
    out = Output(json=json, quiet=quiet)
    with writing(directory) as store, out.progress("compacting") as on_bytes:
        found = store[topic]
        if not found.config.compacts:
            raise _not_compacted(directory, found)
        reports = found.compact(
            now=now,
            dry_run=dry_run,
            on_progress=None
            if on_bytes is None
            else lambda progress: on_bytes(progress.done_bytes, progress.total_bytes),
        )
        damaged = [error for partition, error in store.damaged.items() if partition.topic == topic]
    if json:
        for report in reports.values():
            out.json(_compacted_object(report))
    else:
        _show_compacted(out, reports.values())
        if dry_run:
            out.remark("dry run: nothing was changed")
        elif reports and not any(report.round_count for report in reports.values()):
            out.remark("nothing to compact yet; --now does not wait until it is worth it")
    return tell_all(damaged)


def _not_compacted(directory: str, topic: Topic) -> CommandError:
    if Settings(directory).is_brokers:
        return CommandError(
            f"topic {topic.name} is a broker's, which compacts and deletes by its settings when it runs; "
            "here all of it is kept. `logstore handover` takes it, with its settings, to a store of your own"
        )
    policy = topic.config.cleanup_policy
    return CommandError(
        f"topic {topic.name} is not compacted: its cleanup.policy is {policy or 'empty'}", WRONG
    )


def _show_compacted(out: Output, reports: Iterable[CompactionReport]) -> None:
    out.table(
        ("PARTITION", "ROUNDS", "RECORDS READ", "RECORDS KEPT", "BYTES BEFORE", "BYTES AFTER"),
        (
            (
                report.partition.partition,
                report.round_count,
                report.read_record_count,
                report.kept_record_count,
                report.size_bytes_before,
                report.size_bytes_after,
            )
            for report in reports
        ),
    )


def _compacted_object(report: CompactionReport) -> dict[str, Any]:
    values = asdict(report)
    return COMPACTED(**values | report.partition._asdict())


def retain(
    directory: Directory,
    topic: OptionalTopic = None,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int:
    """Delete what is behind the limits of its topic.

    Whole segments, by retention.ms, retention.bytes and the log start. A dry run works beside a writer.
    Partitions that are damaged are told, and keep none of the others from it.
    """
    out = Output(json=json, quiet=quiet)
    with (reading if dry_run else writing)(directory) as store:
        failures: list[Exception] = []
        topics = topics_of(store) if topic is None else [store[topic]]
        rows = list(_retained(topics, _planned if dry_run else _deleted, failures))
    if json:
        for row in rows:
            out.json(row)
    elif rows:
        out.table(
            ("TOPIC", "PARTITION", "SEGMENTS", "BYTES", "LOG START"),
            (
                [
                    row[name]
                    for name in ("topic", "partition", "segment_count", "size_bytes", "log_start_offset")
                ]
                for row in rows
            ),
        )
    if not rows and not failures:
        out.remark("nothing to delete: no segment is behind the limits of its topic")
    elif dry_run:
        out.remark("dry run: nothing was deleted")
    return tell_all(failures)


def _retained(
    topics: Iterable[Topic], retain_log: Callable[[Any], dict[str, Any] | None], failures: list[Exception]
) -> Iterator[dict[str, Any]]:
    """``failures``: gets what is wrong with partitions that cannot be opened or read."""
    for topic in topics:
        for number in topic.held_partitions:
            try:
                with suppress(UnknownTopicError):  # deleted just now
                    row = retain_log(topic[number])
                    if row is not None:
                        yield row
            except (CorruptionError, OSError) as error:
                failures.append(error)


def _planned(log: ReadOnlyLog) -> dict[str, Any] | None:
    plan = log.plan_retention()
    if not plan.segment_count:
        return None
    return RETAINED(**log.partition._asdict(), is_dry_run=True, **plan._asdict())


def _deleted(log: Log) -> dict[str, Any] | None:
    size_bytes = log.size_bytes
    count = log.enforce_retention()
    if not count:
        return None
    return RETAINED(
        **log.partition._asdict(),
        is_dry_run=False,
        segment_count=count,
        size_bytes=size_bytes - log.size_bytes,
        log_start_offset=log.log_start_offset,
    )


COMMANDS: Final = (Command("compact", compact, (COMPACTED,)), Command("retain", retain, (RETAINED,)))
