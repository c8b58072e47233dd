"""Where records go that no worker could do: the dead-letter topic of a share group (KIP-1191)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, Protocol

from logstore.arguments import shown
from logstore.broker.letters import (
    DELIVERIES_HEADER,
    GROUP_HEADER,
    OFFSET_HEADER,
    PARTITION_HEADER,
    REASON_HEADER,
    TOPIC_HEADER,
)
from logstore.broker.records.looking_up import INTERNAL_TOPICS
from logstore.broker.share.partition import Span
from logstore.broker.share.requests import ShareGroupConfig
from logstore.config import TopicConfig
from logstore.errors import InvalidConfigError, InvalidRecordError, LogstoreError, UsageError
from logstore.logdir.directory import LogDirectory
from logstore.model import NewRecord, Record, TopicPartition
from logstore.partition.log import Log
from logstore.partition.reading.readable import published_view
from logstore.topic import Topic
from logstore.warning import warn

_MINUTE_MS: Final = 60_000
_MOST_LINES: Final = 20

Outcomes = Sequence[tuple[Span, "str | None"]]
"""Of failed records: why the dead-letter topic could not take them; None if it has them."""


class Failed(NamedTuple):
    """Records of one partition that no worker of a group could do."""

    log: Log
    spans: Sequence[Span]
    group: str
    config: ShareGroupConfig

    @property
    def topic(self) -> str | None:
        """Where they go; None: nowhere."""
        return topic_of(self.config, self.log.partition)


class Letters(Protocol):
    """Takes failed records to the group's dead-letter topic, with their own keys, values, headers and
    timestamps; further headers say where each was, and why it failed. Without such a topic they are passed
    over."""

    def bury(self, failed: Failed, done: Callable[[Outcomes], object]) -> Outcomes | None:
        """Take some of them, the first ones. Returns what came of that; or None at once, and calls ``done``
        later, in another thread."""
        ...

    def later(self, delay_ms: int, action: Callable[[], object]) -> None:
        """Call ``action`` in that thread, too, in a while."""


def ended(failed: Failed, why: str | None) -> Outcomes:
    """All alike: refused, or done with."""
    return [(span, why) for span in failed.spans]


def check_is_not_internal(name: str) -> None:
    """
    Raises:
        UsageError: the topic is a coordinator's own.
    """
    if name in INTERNAL_TOPICS:
        raise UsageError(
            f"dead_letter_topic {name!r} is the store's own, which nobody else may write; create a topic for "
            "failed jobs"
        )


def check_takes_letters(name: str, config: TopicConfig | None) -> None:
    """Whether clients may name a topic as a group's dead-letter topic. ``config``: None if there is no such
    topic.

    Raises:
        InvalidConfigError: it is not; says what to do.
    """
    if name in INTERNAL_TOPICS:
        raise InvalidConfigError(f"topic {name!r} is the coordinators' own; create one for dead letters")
    if config is None:
        raise InvalidConfigError(
            f"there is no topic {name!r} for dead letters; create it first, with "
            "errors.deadletterqueue.group.enable=true"
        )
    if config.compacts:
        raise InvalidConfigError(
            f"topic {name!r} is compacted, which keeps one record for each key: failed jobs would be lost; "
            "choose one with cleanup.policy=delete"
        )
    if not config.errors_deadletterqueue_group_enable:
        raise InvalidConfigError(
            f"topic {name!r} does not take dead letters; set its errors.deadletterqueue.group.enable to true"
        )


def topic_of(config: ShareGroupConfig, partition: TopicPartition) -> str | None:
    """Where failed records of a partition go. Not into their own topic: they would go round and round."""
    return None if config.dead_letter_topic == partition.topic else config.dead_letter_topic


class OwnLetters:
    """See :class:`Letters`: into a topic of the directory itself, durably, before a call returns."""

    def __init__(self, directory: LogDirectory) -> None:
        self._directory = directory

    def bury(self, failed: Failed, done: Callable[[Outcomes], object]) -> Outcomes:
        if failed.topic is None:
            return ended(failed, None)
        try:
            readable, hidden = _by_readable(failed)
        except LogstoreError as error:
            return ended(failed, str(error))
        found = self._bury(failed._replace(spans=readable)) if readable else ()
        return [*found, *((span, "it cannot be read yet") for span in hidden)]

    def _bury(self, failed: Failed) -> Outcomes:
        name = failed.topic
        assert name is not None
        try:
            letters = [letter for span in failed.spans for letter in _letters_of(failed, span)]
            Topic(self._directory, name).extend(letters, flush=True)
        except InvalidRecordError as error:
            alone = [
                span._replace(first=n, last=n)
                for span in failed.spans
                for n in range(span.first, span.last + 1)
            ]
            if len(alone) == 1:
                return ended(failed, str(error))
            return [outcome for each in alone for outcome in self._bury(failed._replace(spans=[each]))]
        except LogstoreError as error:
            return ended(failed, str(error))
        return ended(failed, None)

    def later(self, delay_ms: int, action: Callable[[], object]) -> None:
        """Who asks for jobs next tries again."""


def _by_readable(failed: Failed) -> tuple[list[Span], list[Span]]:
    """What the group may see now, and what it may not see yet. That happens with a copy that was just opened
    and does not know how far it is replicated; and with an open transaction, if the group's settings were
    changed to committed records only.

    Raises:
        LogstoreError: the log cannot be used.
    """
    end = published_view(failed.log).limit_of(failed.config.isolation)
    readable = [span._replace(last=min(span.last, end - 1)) for span in failed.spans if span.first < end]
    hidden = [span._replace(first=max(span.first, end)) for span in failed.spans if span.last >= end]
    return readable, hidden


class FailedLines:
    """Warns of what became of the records of one partition that are done with. A client elsewhere may reject
    thousands a second, so there are at most 20 lines a minute; the first one later says how many lack one."""

    __slots__ = ("_began_ms", "_count", "_untold_count")

    def __init__(self) -> None:
        self._began_ms = -_MINUTE_MS
        self._count = self._untold_count = 0

    def tell(
        self,
        partition: TopicPartition,
        failed: Iterable[Span],
        group: str,
        config: ShareGroupConfig,
        now_ms: int,
    ) -> None:
        """Records that are done with. ``now_ms``: by the monotonic clock."""
        topic = topic_of(config, partition)
        where = "passed over, as there is no dead_letter_topic" if topic is None else f"to topic {topic!r}"
        for span in failed:
            if now_ms - self._began_ms >= _MINUTE_MS:
                if self._untold_count:
                    warn("queue %r: %s: %d more have failed; %s", group, partition, self._untold_count, where)
                self._began_ms, self._count, self._untold_count = now_ms, 0, 0
            self._count += 1
            if self._count > _MOST_LINES:
                self._untold_count += span.last - span.first + 1
                continue
            warn(
                "queue %r: %s offset %s failed (delivery %d: %s); %s",
                group,
                partition,
                span.first if span.first == span.last else f"{span.first} to {span.last}",
                span.delivery_count,
                shown(span.reason) if span.reason else "no reason given",
                where,
            )
            if self._count == _MOST_LINES:
                warn("queue %r: %s: what else fails in this minute is counted", group, partition)


def records_of(failed: Failed, span: Span) -> Iterable[Record]:
    """Those of one of its spans that are still there.

    Raises:
        LogstoreError: they cannot be read.
    """
    log = failed.log
    return log.read(max(span.first, log.log_start_offset), span.last + 1, isolation=failed.config.isolation)


def _letters_of(failed: Failed, span: Span) -> Iterable[NewRecord]:
    return (letter_of(record, span, failed) for record in records_of(failed, span))


def letter_of(record: Record, span: Span, failed: Failed) -> NewRecord:
    """What the dead-letter topic gets for one."""
    partition = failed.log.partition
    told = (
        (REASON_HEADER, span.reason.encode(errors="replace")),
        (TOPIC_HEADER, partition.topic.encode()),
        (PARTITION_HEADER, b"%d" % partition.partition),
        (OFFSET_HEADER, b"%d" % record.offset),
        (GROUP_HEADER, failed.group.encode(errors="replace")),
        (DELIVERIES_HEADER, b"%d" % span.delivery_count),
    )
    if not failed.config.copies_dead_letters:
        return NewRecord(None, None, told, record.timestamp_ms)
    return NewRecord(record.value, record.key, (*record.headers, *told), record.timestamp_ms)
