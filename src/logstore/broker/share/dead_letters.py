"""Where records go that no worker could do: the dead-letter topic of a share group."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from logstore.broker.letters import (
    DELIVERIES_HEADER,
    GROUP_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    REASON_HEADER,
    TOPIC_HEADER,
)
from logstore.broker.share.partition import Span
from logstore.broker.share.requests import ShareGroupConfig
from logstore.logdir.directory import LogDirectory
from logstore.model import NewRecord, Record
from logstore.partition.log import Log
from logstore.topic import Topic
from logstore.warning import warn


def bury(
    directory: LogDirectory, log: Log, failed: Sequence[Span], group: str, config: ShareGroupConfig
) -> None:
    """Append the records to the group's dead-letter topic, durably, with their own keys, values, headers and
    timestamps; further headers say where each was, and why it failed. Without such a topic they are passed
    over, with a warning.

    Raises:
        LogstoreError: the records cannot be read, or the topic does not take them.
    """
    name = config.dead_letter_topic
    if name is not None:
        Topic(directory, name).extend(list(_letters(log, failed, group, config)), flush=True)
    for span in failed:
        warn(
            "queue %r: %s offset %s failed (delivery %d: %s); %s",
            group,
            log.partition,
            span.first if span.first == span.last else f"{span.first} to {span.last}",
            span.delivery_count,
            span.reason or "no reason given",
            "passed over, as there is no dead_letter_topic" if name is None else f"to topic {name!r}",
        )


def _letters(log: Log, failed: Iterable[Span], group: str, config: ShareGroupConfig) -> Iterable[NewRecord]:
    for span in failed:
        start = max(span.first, log.log_start_offset)
        for record in log.read(start, span.last + 1, isolation=config.isolation):
            yield _letter(record, span, log, group)


def _letter(record: Record, span: Span, log: Log, group: str) -> NewRecord:
    told = [
        (REASON_HEADER, span.reason.encode(errors="replace")),
        (TOPIC_HEADER, log.partition.topic.encode()),
        (PARTITION_HEADER, b"%d" % log.partition.partition),
        (OFFSET_HEADER, b"%d" % record.offset),
        (GROUP_HEADER, group.encode(errors="replace")),
        (DELIVERIES_HEADER, b"%d" % span.delivery_count),
    ]
    return NewRecord(record.value, record.key, (*record.headers, *told), record.timestamp_ms)
