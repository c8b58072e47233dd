"""The consumer groups of a broker elsewhere, for those who look after them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeVar

from logstore.broker.broker import Broker
from logstore.broker.codes import ErrorCode
from logstore.broker.failures import error_of
from logstore.broker.pending import Pending
from logstore.broker.requests import (
    EARLIEST,
    LATEST,
    NO_OFFSET,
    ListedOffset,
    ListOffsetsPartition,
    ListOffsetsRequest,
    MetadataRequest,
)
from logstore.clients.asking import HasTimeout, ask
from logstore.clients.elsewhere.offsets import commit_offsets, fetch_offsets
from logstore.clients.groups.administered import AdministeredGroups
from logstore.clients.groups.status import Described, GroupStatus, status_of
from logstore.clock import Clock
from logstore.model import OffsetAndMetadata, TopicPartition

T = TypeVar("T")

_NAMED: Final = {"earliest": EARLIEST, "latest": LATEST}


class RemoteGroups(AdministeredGroups):
    """The consumer groups of a cluster: a mapping from name to
    :class:`~logstore.clients.groups.status.GroupStatus`. Made by :meth:`.RemoteStore.groups`.

    Each call looks at what is there now; a status that was returned stays as it is. ``items()`` and
    ``values()`` describe all groups with one look.

    Cost: a few round trips, and one more for the offsets of each group.
    """

    def __init__(self, broker: Broker, config: HasTimeout, clock: Clock) -> None:
        self._broker = broker
        self._config = config
        self._clock = clock

    # Where they are

    def _coordinator(self) -> Broker:
        return self._broker

    def _ask(self, pending: Pending[T], what: str) -> T:
        return ask(pending, what, self._config)

    def _place(self) -> None:
        return None

    def _logs(self) -> _LogsElsewhere:
        return _LogsElsewhere(self._broker, self._config, self._clock)

    # Offsets

    def _statuses(self, described: Sequence[Described]) -> list[GroupStatus]:
        committed = {each.group_id: self._committed_of(each.group_id, None) for each in described}
        partitions = sorted({name for offsets in committed.values() for name in offsets})
        listed = self._logs().listed(partitions, LATEST)
        ends: dict[TopicPartition, int | None] = {
            each.partition: each.offset for each in listed if each.error is ErrorCode.NONE
        }
        return [status_of(each, committed[each.group_id], ends) for each in described]

    def _committed_of(
        self, group: str, partitions: Iterable[TopicPartition] | None
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        return dict(sorted(fetch_offsets(self._broker, group, partitions, self._config).items()))

    def _deletable(
        self, wanted: tuple[TopicPartition, ...], known: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> tuple[TopicPartition, ...]:
        self._logs().check([each for each in wanted if each not in known])
        return tuple(known)

    def _commit(self, group: str, planned: dict[TopicPartition, OffsetAndMetadata]) -> None:
        commit_offsets(self._broker, group, planned, self._config)


class _LogsElsewhere:
    """Those of brokers elsewhere."""

    def __init__(self, broker: Broker, config: HasTimeout, clock: Clock) -> None:
        self._broker = broker
        self._config = config
        self._clock = clock

    def now_ms(self) -> int:
        return self._clock.now_ms()

    def check(self, partitions: Iterable[TopicPartition]) -> None:
        self._offsets_at(list(partitions), EARLIEST)

    def partitions_of(self, topics: Iterable[str]) -> Iterator[TopicPartition]:
        request = MetadataRequest(tuple(topics))
        for topic in ask(self._broker.metadata(request), "tell of the topics", self._config).topics:
            if topic.error is not ErrorCode.NONE:
                raise error_of(topic.error, topic.message or f"topic {topic.name!r}: {topic.error.name}")
            for each in topic.partitions:
                yield TopicPartition(topic.name, each.partition)

    def find(self, partitions: Sequence[TopicPartition], when: str | int) -> dict[TopicPartition, int]:
        found = self._offsets_at(partitions, when if isinstance(when, int) else _NAMED[when])
        missing = [each for each, offset in found.items() if offset == NO_OFFSET]
        return found | self._offsets_at(missing, LATEST)

    def spans(self, partitions: Sequence[TopicPartition]) -> Iterator[tuple[TopicPartition, int, int]]:
        starts, ends = (self._offsets_at(partitions, when) for when in (EARLIEST, LATEST))
        return ((each, starts[each], ends[each]) for each in partitions)

    def _offsets_at(self, partitions: Sequence[TopicPartition], when: int) -> dict[TopicPartition, int]:
        """
        Raises:
            LogstoreError: one could not be looked up.
        """
        found = {}
        for each in self.listed(partitions, when):
            if each.error is not ErrorCode.NONE:
                raise error_of(each.error, f"{each.partition}: {each.message or each.error.name}")
            found[each.partition] = each.offset
        return found

    def listed(self, partitions: Iterable[TopicPartition], when: int) -> Sequence[ListedOffset]:
        """What is at ``when`` in each, or why that is not known."""
        wanted = tuple(ListOffsetsPartition(each, when) for each in partitions)
        if not wanted:
            return ()
        request = ListOffsetsRequest(wanted)
        return ask(self._broker.list_offsets(request), "look up offsets", self._config).partitions
