"""What a bridge asks of a cluster, and waits for."""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable, Container, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from logstore.arguments import shown
from logstore.bridge.trouble import check_answer
from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Pending, wait_for
from logstore.broker.records.looking_up import INTERNAL_TOPICS
from logstore.broker.requests import (
    EARLIEST,
    LATEST,
    DescribeConfigsRequest,
    EpochPartition,
    FetchedPartition,
    FetchPartition,
    FetchRequest,
    ListOffsetsPartition,
    ListOffsetsRequest,
    MetadataRequest,
    NewTopic,
    OffsetFetchRequest,
    OffsetsForLeaderEpochRequest,
)
from logstore.clients.asking import create_topics, late
from logstore.connected import RemoteStore
from logstore.errors import LogstoreError, RetriableError, UsageError
from logstore.model import OffsetAndMetadata, TopicPartition
from logstore.turns import SafeEvent

T = TypeVar("T")

MAX_FETCH_BYTES = 50 * 1024 * 1024
"""Of one answer, as Kafka's consumers and followers ask for."""
MAX_PARTITION_BYTES = 4 * 1024 * 1024
"""Of one partition in it. Kafka: 1 MiB; larger answers are fewer."""
_REACH_SECONDS: Final = 2.0
"""How long a broker may take to answer for the first time before a warning says that none does."""
LATE_SECONDS: Final = 1.0
"""How long after a topic was made or has grown at the cluster a broker of it may not know of that yet."""
_LOOK_SECONDS: Final = 0.2
"""How often who waits for an answer looks whether the bridge is told to end."""
_MOOT_SECONDS: Final = 0.05
"""The same for whether an answer is moot: less than it takes until the question is asked again."""
_LAST_SECONDS: Final = 1.0
"""How long it waits on then: an answer that is on its way is worth that."""
_PARTITION_MS: Final = 5_000
"""How long the answer to a question about one partition may take: the others wait for it."""


class ClusterTopic(NamedTuple):
    """A topic of a cluster."""

    name: str
    topic_id: uuid.UUID | None
    leader_epochs: tuple[int, ...]
    """Of each partition; -1 if it is not known."""
    is_led: tuple[bool, ...]
    """Whether somebody leads each partition."""


class ClusterTopics(NamedTuple):
    """Topics of a cluster, by name; those that it does not have are left out."""

    cluster_id: str
    topics: dict[str, ClusterTopic]
    refused: dict[str, LogstoreError]
    """Those of which the cluster does not allow to know."""

    def lacks(self, name: str, count: int, is_needed: bool) -> bool:
        """Whether a topic has fewer partitions, or is not there although it is needed."""
        topic = self.topics.get(name)
        if topic is None:
            return is_needed and name not in self.refused
        return len(topic.leader_epochs) < count

    def check(self) -> None:
        """
        Raises:
            UsageError: one is refused.
        """
        for error in self.refused.values():
            raise error


class EpochEnd(NamedTuple):
    """The largest leader epoch that is not above another, and where it ended; -1 if there is none."""

    epoch: int
    end_offset: int


class ClusterQuestions:
    """Questions to a cluster. Each raises ``RetriableError`` if there is no answer, and what
    :func:`~logstore.bridge.trouble.check_answer` makes of a refusal."""

    def __init__(self, store: RemoteStore, stopping: SafeEvent) -> None:
        """
        Args:
            stopping: once it is set, answers are waited for a second longer at most.

        Raises:
            UsageError: it is no connection.
        """
        if not isinstance(store, RemoteStore):
            raise UsageError(f"{shown(store)} is no cluster; give what logstore.connect() returns")
        self._store = store
        self._stopping = stopping
        self._broker = store.broker
        self.config = store.config
        self.most_fetch_bytes = min(MAX_FETCH_BYTES, store.config.max_response_bytes // 2)
        """Of one answer; there is something around its batches."""
        self._of_one_ms = min(_PARTITION_MS, store.config.request_timeout_ms)
        self._fetch_at = 0.0

    @property
    def delay(self) -> float:
        """For how long the brokers want no fetch, in seconds: a quota is exceeded."""
        return max(self._fetch_at - time.monotonic(), 0.0)

    @property
    def broken_count(self) -> int:
        """Grows when a connection to a broker breaks. One that has restarted may have lost records."""
        return self._broker.broken_count

    def _wait(
        self, pending: Pending[T], seconds: float, is_moot: Callable[[], bool] | None = None
    ) -> T | None:
        """None if there is no answer in time, or nobody wants it any more (``is_moot``)."""
        deadline, is_told = time.monotonic() + seconds, False
        look_seconds = _LOOK_SECONDS if is_moot is None else _MOOT_SECONDS
        while True:
            left = deadline - time.monotonic()
            found = wait_for(pending, min(left, look_seconds))
            if found is not None or left <= 0 or (is_moot is not None and is_moot()):
                return found
            if self._stopping.is_set() and not is_told:
                is_told, deadline = True, min(deadline, time.monotonic() + _LAST_SECONDS)

    def _ask(self, pending: Pending[T], what: str) -> T:
        """The answer; ``what`` says in an error what the broker did not do."""
        found = self._wait(pending, self.config.request_timeout_ms / 1000)
        if found is None:
            raise late(what, self.config)
        return found

    def reach(self) -> None:
        """See whether a broker answers; if none does, that is told before a question's time is up."""
        pending = self._broker.reach()
        if self._wait(pending, min(_REACH_SECONDS, self.config.request_timeout_ms / 1000)) is None:
            pending.cancel()
            raise RetriableError(self._broker.trouble)

    def topics(self, names: Sequence[str] | None) -> ClusterTopics:
        """What is known of topics; None: of all but internal ones."""
        request = MetadataRequest(None if names is None else tuple(names))
        found = self._ask(self._broker.metadata(request), "tell of its topics")
        if not found.cluster_id:  # no broker has answered; this tells why
            self._store.check()
            raise RetriableError("no broker of the cluster has answered")
        topics: dict[str, ClusterTopic] = {}
        refused: dict[str, LogstoreError] = {}
        for each in found.topics:
            is_left_out = names is None and (each.is_internal or each.name in INTERNAL_TOPICS)
            if each.error is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and not is_left_out:
                try:
                    check_answer(each.error, f"topic {each.name!r}", each.message)
                except UsageError as error:
                    refused[each.name] = error
                    continue
                parts = sorted(each.partitions)
                epochs = tuple(part.leader_epoch for part in parts)
                is_led = tuple(part.leader_id >= 0 for part in parts)
                topics[each.name] = ClusterTopic(each.name, each.topic_id, epochs, is_led)
        return ClusterTopics(found.cluster_id, topics, refused)

    def topics_now(
        self,
        names: Sequence[str] | None,
        counts: Mapping[str, int],
        needed: Container[str] = (),
    ) -> ClusterTopics:
        """As :meth:`topics`; asked a second time a little later if something is missing: a broker may not
        know yet what another one has told.

        Args:
            counts: how many partitions topics have at least, if they are there.
            needed: those of them that should be there.
        """
        found = self.topics(names)
        if any(found.lacks(name, count, name in needed) for name, count in counts.items()):
            self._stopping.wait(LATE_SECONDS)
            found = self.topics(names)
        return found

    def settings(self, topic: str) -> dict[str, str]:
        """The settings of a topic, in Kafka's spelling; those of the cluster where the topic has no own."""
        request = DescribeConfigsRequest((topic,))
        (found,) = self._ask(self._broker.describe_configs(request), "tell of settings").topics
        check_answer(found.error, f"the settings of topic {topic!r}", found.message)
        return {each.name: each.value for each in found.settings}

    def create_topics(self, topics: Sequence[NewTopic]) -> dict[str, uuid.UUID]:
        """Make topics, some with each request; one that another has made meanwhile is as good. Returns their
        ids, of those of which that is told."""
        found = {}
        for result in create_topics(self._broker, topics, self.config):
            for made in result.topics:
                if made.error is not ErrorCode.TOPIC_ALREADY_EXISTS:
                    check_answer(made.error, f"creating topic {made.name!r}", made.message)
                if made.topic_id is not None:
                    found[made.name] = made.topic_id
        return found

    def bounds(self, partition: TopicPartition) -> tuple[int, int]:
        """The log start offset and the high watermark."""
        found = []
        for which in (EARLIEST, LATEST):
            request = ListOffsetsRequest((ListOffsetsPartition(partition, which),))
            (listed,) = self._ask_of_one(self._broker.list_offsets(request), "tell of offsets").partitions
            check_answer(listed.error, f"the offsets of {partition}", listed.message)
            found.append(listed.offset)
        return found[0], found[1]

    def epoch_end(self, partition: TopicPartition, epoch: int) -> EpochEnd:
        """Where a leader epoch ended (KIP-101, KIP-279)."""
        request = OffsetsForLeaderEpochRequest((EpochPartition(partition, epoch),))
        pending = self._broker.offsets_for_leader_epoch(request)
        (found,) = self._ask_of_one(pending, "tell of leader epochs").partitions
        check_answer(found.error, f"the leader epochs of {partition}", found.message)
        return EpochEnd(found.epoch, found.end_offset)

    def _ask_of_one(self, pending: Pending[T], what: str) -> T:
        """The answer to a question about one partition, which is waited for less long."""
        found = self._wait(pending, self._of_one_ms / 1000)
        if found is None:
            raise RetriableError(
                f"the broker did not {what} within {self._of_one_ms} ms: {self._broker.trouble}"
            )
        return found

    def fetch(
        self,
        partitions: Sequence[FetchPartition],
        max_wait_ms: int,
        max_bytes: int,
        is_moot: Callable[[], bool] | None = None,
    ) -> tuple[FetchedPartition, ...]:
        """Batches of partitions, as they are in their logs. Each partition has its own error.

        Args:
            is_moot: whether nobody wants the answer any more.

        Raises:
            RetriableError: there was no answer in time, or before it was moot.
        """
        request = FetchRequest(tuple(partitions), max_wait_ms, max_bytes=max_bytes)
        pending = self._broker.fetch(request)
        try:
            found = self._wait(pending, self.config.request_timeout_ms / 1000, is_moot)
            if found is None:
                raise RetriableError(
                    f"the brokers did not answer a fetch within request_timeout_ms: {self._broker.trouble}"
                )
        except BaseException:
            pending.cancel()
            raise
        self._fetch_at = time.monotonic() + pending.throttle_time_ms / 1000
        return found.partitions

    def fetch_one(self, wanted: FetchPartition) -> FetchedPartition:
        """
        Raises:
            RetriableError: and if the broker has not looked at the partition, as a quota is exceeded.
        """
        (found,) = self.fetch([wanted], 0, self.most_fetch_bytes)
        if found.error is ErrorCode.NONE and found.high_watermark < 0:
            raise RetriableError(
                f"the broker has not looked at {wanted.partition} yet: a quota may be exceeded"
            )
        return found

    def batch_at(self, partition: TopicPartition, offset: int) -> bytes:
        """The batches from the one on that holds an offset; none if there is none, or no longer."""
        found = self.fetch_one(FetchPartition(partition, offset, 1))
        if found.error is ErrorCode.OFFSET_OUT_OF_RANGE:
            return b""
        check_answer(found.error, f"fetching {partition} from offset {offset}", found.message)
        return bytes(found.data)

    def committed(
        self, group: str, partitions: Sequence[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata]:
        """What a group has committed, when no transaction is about to change it."""
        request = OffsetFetchRequest(group, tuple(partitions), require_stable=True)
        found = self._ask(self._broker.offset_fetch(request), "tell of committed offsets")
        if found.error is not ErrorCode.GROUP_ID_NOT_FOUND:
            check_answer(found.error, f"the offsets of group {group!r}", found.message)
        if found.unstable:
            raise RetriableError(f"group {group!r} has offsets that are about to be committed")
        return found.offsets
