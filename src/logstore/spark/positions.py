"""Which partitions a read covers, and from where to where: the options that name offsets and times.

``subscribe``, ``subscribePattern`` or ``assign`` name the partitions; offsets are given directly, or by time.
The options mean the same as in Spark's Kafka connector: ``startingTimestamp`` takes precedence over
``startingOffsetsByTimestamp``, and that over ``startingOffsets``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from logstore.errors import OffsetOutOfRangeError, UnknownTopicError
from logstore.logdir.held import not_held_reason
from logstore.model import Isolation, TopicPartition
from logstore.spark.ledger import RESERVED_TOPICS
from logstore.spark.options import Options, wrong_option
from logstore.spark.ranges import Span
from logstore.warning import warn

if TYPE_CHECKING:
    from logstore.spark.origins.origin import Bounds, Origin

EARLIEST: Final = -2
"""In JSON: the first existing offset."""
LATEST: Final = -1
"""In JSON: the offset after the last existing one."""

_WORDS: Final = {"earliest": EARLIEST, "latest": LATEST}


class Subscription:
    """The topics or partitions that were asked for. Can be pickled."""

    def __init__(self, options: Options) -> None:
        """
        Raises:
            InvalidConfigError: none of the three options is given, or more than one, or its value is wrong.
        """
        given = [name for name in ("subscribe", "subscribePattern", "assign") if name in options]
        if len(given) != 1:
            named = " and ".join(given) or "none"
            raise wrong_option(
                f"give exactly one of the options subscribe, subscribePattern and assign; there is {named}"
            )
        self._options = options
        self._topics: frozenset[str] = frozenset()
        self._pattern: str | None = None
        self._assigned: frozenset[TopicPartition] = frozenset()
        if given == ["subscribe"]:
            self._topics = self._parse_topics()
        elif given == ["subscribePattern"]:
            self._pattern = self._parse_pattern()
        else:
            self._assigned = self._parse_assigned()

    def _parse_topics(self) -> frozenset[str]:
        names = [name.strip() for name in (self._options.text("subscribe") or "").split(",")]
        if not all(names):
            self._options.refuse("subscribe", "it must be topic names separated by commas")
        return frozenset(names)

    def _parse_pattern(self) -> str:
        pattern = self._options.text("subscribePattern") or ""
        try:
            re.compile(pattern)
        except re.error as error:
            self._options.refuse("subscribePattern", f"it is not a regular expression ({error})")
        return pattern

    def _parse_assigned(self) -> frozenset[TopicPartition]:
        parsed = self._options.json("assign")
        well_formed = isinstance(parsed, dict) and all(
            isinstance(numbers, list)
            and numbers
            and all(type(number) is int and number >= 0 for number in numbers)
            for numbers in parsed.values()
        )
        if not parsed or not well_formed:
            self._options.refuse("assign", 'it must be JSON like {"topic": [0, 1]}')
        return frozenset(TopicPartition(topic, number) for topic in parsed for number in parsed[topic])

    def partitions(self, origin: Origin) -> list[TopicPartition]:
        """The existing partitions, in order. A pattern must match the whole name, and may match none; it
        never matches an internal topic of Kafka or logstore.

        Raises:
            UnknownTopicError: a named topic or partition does not exist.
        """
        found, missing = self.find(origin)
        if missing:
            raise UnknownTopicError(missing[0])
        return found

    def find(self, origin: Origin) -> tuple[list[TopicPartition], list[str]]:
        """The existing partitions, in order; and for each named one that does not exist, a sentence."""
        there = origin.partitions()
        if self._assigned:
            found = sorted(
                p for p in self._assigned if p.topic in there and p.partition in there[p.topic].held
            )
            return found, [_missing(p, origin) for p in sorted(self._assigned - set(found))]
        if self._pattern is not None:
            topics = [topic for topic in there if self._fits(topic)]
        else:
            topics = [topic for topic in self._topics if topic in there]
        found = [TopicPartition(topic, number) for topic in sorted(topics) for number in there[topic].held]
        return found, [_no_topic(topic, origin) for topic in sorted(self._topics) if topic not in there]

    def covers(self, partition: TopicPartition) -> bool:
        """Whether a partition is asked for, even if it does not exist."""
        if self._pattern is not None:
            return self._fits(partition.topic)
        return partition.topic in self._topics or partition in self._assigned

    def _fits(self, topic: str) -> bool:
        assert self._pattern is not None
        return topic not in RESERVED_TOPICS and re.fullmatch(self._pattern, topic) is not None


def _no_topic(topic: str, origin: Origin) -> str:
    return f"there is no topic {topic!r} in {origin}"


def _missing(partition: TopicPartition, origin: Origin) -> str:
    """Why a missing partition cannot be read."""
    topic, number = partition
    there = origin.partitions().get(topic)
    if there is None:
        return _no_topic(topic, origin)
    if number < there.partition_count:
        return not_held_reason(topic, number, there.held, there.partition_count, str(origin))
    return f"topic {topic!r} in {origin} has {there.partition_count} partitions; there is no {number}"


def _is_elsewhere(partition: TopicPartition, origin: Origin) -> bool:
    """Whether the topic has such a partition, but another directory holds it."""
    there = origin.partitions().get(partition.topic)
    return (
        there is not None
        and partition.partition < there.partition_count
        and partition.partition not in there.held
    )


class Limit(NamedTuple):
    """Where a read begins or ends according to the options. Can be pickled."""

    option: str
    """The name of the option that says so, as users spell it."""
    of_all: int | None
    """For all partitions: an offset, or :data:`EARLIEST` or :data:`LATEST`, or a time."""
    of_each: Mapping[TopicPartition, int]
    """The same by partition; used if ``of_all`` is None."""
    is_time: bool
    is_lenient: bool
    """Whether a time after the last record means the end; otherwise it is an error."""

    def wanted(self, partitions: Iterable[TopicPartition], origin: Origin) -> dict[TopicPartition, int]:
        """
        Raises:
            InvalidConfigError: a named partition is not read, or one that is read is not named.
        """
        if self.of_all is not None:
            return dict.fromkeys(partitions, self.of_all)
        read, named = set(partitions), set(self.of_each)
        for wrong, reason in (
            (named - read, "is not read"),
            (read - named, "is missing; name all partitions that are read"),
        ):
            if wrong:
                first = min(wrong)
                text = f"partition {first} {reason}"
                if first not in read and _is_elsewhere(first, origin):
                    text = _missing(first, origin)
                raise wrong_option(f"option {self.option}: {text}")
        return dict(self.of_each)


def starting_limit(options: Options, *, default: int) -> Limit:
    """Where a read begins. ``default`` is :data:`EARLIEST` or :data:`LATEST`.

    Raises:
        InvalidConfigError: an option is wrong.
    """
    strategy = options.choice("startingOffsetsByTimestampStrategy", ("error", "latest"), default="error")
    return _limit(options, "starting", default, is_lenient=strategy == "latest")


def ending_limit(options: Options) -> Limit:
    """Where a batch read ends.

    Raises:
        InvalidConfigError: as for :func:`starting_limit`.
    """
    return _limit(options, "ending", LATEST, is_lenient=True)


def _limit(options: Options, side: str, default: int, *, is_lenient: bool) -> Limit:
    name = f"{side}Timestamp"
    if name in options:
        return Limit(name, options.number(name, least=0), {}, True, is_lenient)
    name = f"{side}OffsetsByTimestamp"
    if name in options:
        return Limit(name, None, _parse_each(options, name, least=0), True, is_lenient)
    name = f"{side}Offsets"
    text = options.text(name)
    if text is None:
        return Limit(name, default, {}, False, is_lenient)
    word = _WORDS.get(text.strip().lower())
    if word is not None:
        return Limit(name, word, {}, False, is_lenient)
    return Limit(name, None, _parse_each(options, name, least=EARLIEST), False, is_lenient)


def _parse_each(options: Options, name: str, *, least: int) -> dict[TopicPartition, int]:
    """Parse ``{"topic": {"0": 23, "1": -2}}``."""
    parsed = options.json(name)
    found: dict[TopicPartition, int] = {}
    try:
        for topic, numbers in parsed.items():
            for partition, value in numbers.items():
                found[TopicPartition(topic, _number(partition, 0))] = _number(value, least)
    except (AttributeError, ValueError):
        words = "earliest, latest or " if least < 0 else ""
        options.refuse(name, f'it must be {words}JSON like {{"topic": {{"0": 23, "1": 45}}}}')
    return found


def _number(value: Any, least: int) -> int:
    number = value if type(value) is int else int(str(value))
    if isinstance(value, bool | float) or not least <= number < 2**63:
        raise ValueError(value)
    return number


# Offsets ----------------------------------------------------------------------------------------------------


def resolve_spans(
    origin: Origin, subscription: Subscription, options: Options, isolation: Isolation
) -> list[Span]:
    """The offsets that a batch read covers, for each partition.

    Raises:
        InvalidConfigError: options contradict each other, or do not fit the partitions.
        OffsetOutOfRangeError: an offset does not exist, or a read would begin after its end.
        UnknownTopicError: a topic does not exist.
    """
    start_limit, end_limit = starting_limit(options, default=EARLIEST), ending_limit(options)
    _check_batch(options, start_limit, LATEST, "it begins at earliest (-2) or at offsets")
    _check_batch(options, end_limit, EARLIEST, "it ends at latest (-1) or at offsets")
    partitions = subscription.partitions(origin)
    starts, ends = start_limit.wanted(partitions, origin), end_limit.wanted(partitions, origin)
    fails = options.flag("failOnDataLoss", default=True)
    known = bounds_of_all(origin, partitions, isolation)
    return [
        _span(
            origin,
            partition,
            (start_limit, starts[partition]),
            (end_limit, ends[partition]),
            known[partition],
            fails,
        )
        for partition in partitions
    ]


def bounds_of_all(
    origin: Origin, partitions: Iterable[TopicPartition], isolation: Isolation
) -> dict[TopicPartition, Bounds]:
    """The readable offsets of partitions that must all exist.

    Raises:
        UnknownTopicError: one does not exist, such as one that was deleted just now.
    """
    wanted = list(partitions)
    known = origin.bounds_of(wanted, isolation)
    for partition in wanted:
        if partition not in known:
            raise UnknownTopicError(f"there is no {partition} in {origin}")
    return known


def _check_batch(options: Options, limit: Limit, wrong: int, right: str) -> None:
    if limit.is_time:
        return
    if limit.of_all == wrong:
        options.refuse(limit.option, f"a batch read would be empty; {right}")
    for partition, offset in sorted(limit.of_each.items()):
        if offset == wrong:
            options.refuse(
                limit.option, f"a batch read of {partition}, which has {wrong}, would be empty; {right}"
            )


def _span(
    origin: Origin,
    partition: TopicPartition,
    start: tuple[Limit, int],
    end: tuple[Limit, int],
    bounds: Bounds,
    fails: bool,
) -> Span:
    first = resolve(origin, partition, *start, bounds)
    stop = resolve(origin, partition, *end, bounds)
    for (limit, _), offset in ((start, first), (end, stop)):
        if bounds.start <= offset <= bounds.end:
            continue
        gone = (
            f"option {limit.option}: offset {offset} of {partition} does not exist: {origin} has "
            f"{bounds.start} to {bounds.end}"
        )
        if fails:
            raise OffsetOutOfRangeError(f"{gone}; failOnDataLoss=false would read the existing ones")
        warn("%s; the existing ones are read (failOnDataLoss=false)", gone)
    first, stop = (min(max(each, bounds.start), bounds.end) for each in (first, stop))
    if first > stop:
        raise OffsetOutOfRangeError(
            f"options {start[0].option} and {end[0].option}: the read of {partition} begins at offset "
            f"{first} and ends before it, at {stop}"
        )
    return Span(partition, first, stop)


def resolve(origin: Origin, partition: TopicPartition, limit: Limit, wanted: int, bounds: Bounds) -> int:
    """The offset that a limit means for a partition: as asked for, even if it does not exist. ``bounds`` are
    the readable offsets.

    Raises:
        OffsetOutOfRangeError: the time is after the last record, and the limit is not lenient.
    """
    if not limit.is_time and wanted >= 0:
        return wanted
    if not limit.is_time:
        return bounds.start if wanted == EARLIEST else bounds.end
    offset = origin.offset_at(partition, wanted)
    if offset is not None and offset < bounds.end:
        return offset
    if limit.is_lenient:
        return bounds.end
    raise OffsetOutOfRangeError(
        f"option {limit.option}: {partition} has no record at or after {wanted} ms; with "
        "startingOffsetsByTimestampStrategy=latest the read would begin at its end"
    )
