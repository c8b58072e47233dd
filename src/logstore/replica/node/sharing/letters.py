"""Failed records of share groups on their way to a dead-letter topic, whichever nodes lead that."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final, NamedTuple

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.requests import ACKS_ALL, ProducePartition, ProduceRequest, ProduceResult
from logstore.broker.share.dead_letters import Failed, Outcomes, ended, letter_of, records_of
from logstore.broker.share.partition import Span
from logstore.config import TopicConfig
from logstore.errors import InvalidRecordError, LogstoreError, RetriableError, UnknownTopicError
from logstore.logdir.directory import LogDirectory
from logstore.logdir.placement import Placement
from logstore.model import Isolation, NewRecord, TopicPartition
from logstore.partition.encoding.row_encoder import RowEncoder
from logstore.replica.coordination.interface import View
from logstore.replica.node.peers import Peers
from logstore.replica.node.sharing.asking import follow
from logstore.replica.node.telling import TopicsOfCluster, leader_of
from logstore.schedule import Scheduler, Task
from logstore.wire.handlers.then import gather, then, then_ask
from logstore.wire.remote.translate.records import PRODUCE

_MOST_LETTERS: Final = 100
_MOST_BYTES: Final = 256 * 1024
"""As many are on their way at a time, of one partition; a single one may be larger."""
_TIMEOUT_MS: Final = 5_000
_GIVE_UP_MS: Final = 10_000
_OF_A_RECORD: Final = {
    ErrorCode.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE,
    ErrorCode.INVALID_RECORD,
    ErrorCode.INVALID_TIMESTAMP,
}
"""Refusals that do not concern the others."""


class _Letter(NamedTuple):
    """A record for the topic."""

    span: Span
    """Of the records that it stands for: itself, and offsets in front of it that are not there any more."""
    record: NewRecord | None
    """None: there is nothing else."""


class LetterBox:
    """See :class:`~logstore.broker.share.dead_letters.Letters`. What not all in-sync replicas have
    acknowledged in time does not count as taken, and may be there all the same."""

    def __init__(
        self,
        directory: LogDirectory,
        node_id: int,
        view: Callable[[], View],
        produce: Callable[[ProduceRequest], Pending[ProduceResult]],
        peers: Peers,
        topic_config: Callable[[str], TopicConfig | None],
    ) -> None:
        """``produce``: appends to what this node leads. ``topic_config``: None if there is no such topic."""
        self._directory = directory
        self._node_id = node_id
        self._view = view
        self._produce = produce
        self._peers = peers
        self._topic_config = topic_config
        self._scheduler = Scheduler(directory.context.clock)
        self._topics = TopicsOfCluster(view)
        self._placement = Placement(directory.config.batch_bytes)

    def close(self) -> None:
        """Take nothing any more."""
        self._scheduler.stop()

    def bury(self, failed: Failed, done: Callable[[Outcomes], object]) -> Outcomes | None:
        """See :class:`.Letters`."""
        name = failed.topic
        if name is None:
            return ended(failed, None)
        self.later(0, lambda: self._begin(name, failed, _Once(done)))
        return None

    def later(self, delay_ms: int, action: Callable[[], object]) -> None:
        """See :class:`.Letters`."""
        self._scheduler.promptly(delay_ms, Task("take failed jobs to their topic", action, None))

    def _begin(self, name: str, failed: Failed, done: _Once) -> None:
        late = ended(failed, "its leaders have not answered in time")
        self.later(_GIVE_UP_MS, lambda: done(late))
        try:
            topic, known = self._topic_config(name), self._topics().get(name)
            if topic is None or known is None or not known.partition_count:
                raise UnknownTopicError("there is no such topic")
            letters = list(_first_of(failed))
            if not letters:
                raise RetriableError("it cannot be read yet")
            encoder = RowEncoder(self._directory.config, topic)
            pending = self._send(name, known.partition_count, encoder, letters)
        except LogstoreError as error:
            done(ended(failed, str(error)))
            return
        follow(self._scheduler, pending, done)

    def _send(
        self, name: str, count: int, encoder: RowEncoder, letters: Sequence[_Letter]
    ) -> Pending[Outcomes]:
        by_number: dict[int, list[_Letter]] = {}
        parts: list[Pending[Outcomes]] = []
        for each in letters:
            if each.record is None:
                parts.append(Answered(((each.span, None),)))
                continue
            number = self._placement.choose(each.record.key, each.record.value, count)
            by_number.setdefault(number, []).append(each)
        for number, some in by_number.items():
            parts.append(self._send_to(TopicPartition(name, number), encoder, some))
        return _all(parts)

    def _send_to(
        self, partition: TopicPartition, encoder: RowEncoder, letters: Sequence[_Letter]
    ) -> Pending[Outcomes]:
        def singly() -> Pending[Outcomes]:
            return _all([self._send_to(partition, encoder, [each]) for each in letters])

        def tell(why: str | None) -> Outcomes:
            return tuple([(each.span, why) for each in letters])

        try:
            batches = encoder.encode(
                [each.record for each in letters], self._directory.context.clock.now_ms()
            )
        except InvalidRecordError as error:
            return Answered(tell(str(error))) if len(letters) == 1 else singly()
        if len(batches) > 1:
            return singly()
        sent = ProducePartition(partition, batches[0])

        def answered(result: ProduceResult) -> Pending[Outcomes]:
            outcome = result.partitions[0]
            if outcome.error in _OF_A_RECORD and len(letters) > 1:
                return singly()
            code = outcome.error
            return Answered(tell(None if code is NONE else outcome.message or code.name))

        return then_ask(self._ask(ProduceRequest(ACKS_ALL, _TIMEOUT_MS, (sent,))), answered)

    def _ask(self, request: ProduceRequest) -> Pending[ProduceResult]:
        node_id = leader_of(self._view(), request.partitions[0].partition)
        if node_id == self._node_id:
            return self._produce(request)
        if node_id is None:
            return Answered(PRODUCE.refuse(request, ErrorCode.LEADER_NOT_AVAILABLE, "nobody leads it"))
        return self._peers.ask(node_id, PRODUCE, request)


class _Once:
    """Told once."""

    def __init__(self, done: Callable[[Outcomes], object]) -> None:
        self._done: Callable[[Outcomes], object] | None = done

    def __call__(self, outcomes: Outcomes) -> None:
        done, self._done = self._done, None
        if done is not None:
            done(outcomes)


def _first_of(failed: Failed) -> Iterator[_Letter]:
    """As many as may be on their way. What is not replicated again yet, after a change of leaders, has to
    wait."""
    log = failed.log
    end = log.last_stable_offset if failed.config.isolation is Isolation.COMMITTED else log.high_watermark
    count = size_bytes = 0
    for span in failed.spans:
        if span.last >= end:
            return
        at = span.first
        for record in records_of(failed, span):
            letter = letter_of(record, span, failed)
            count, size_bytes = count + 1, size_bytes + len(letter.value or b"") + len(letter.key or b"")
            if count > 1 and (count > _MOST_LETTERS or size_bytes > _MOST_BYTES):
                return
            yield _Letter(span._replace(first=at, last=record.offset), letter)
            at = record.offset + 1
        if at <= span.last:
            yield _Letter(span._replace(first=at), None)


def _all(parts: Sequence[Pending[Outcomes]]) -> Pending[Outcomes]:
    return then(gather(parts), lambda found: tuple([each for part in found for each in part]))
