"""Batches of transactions, where a partition is led: the first one of a transaction goes in only after the
transaction's coordinator, at another node maybe, has said that the transaction has the partition (KIP-890).

Between that word and the batch a marker may come: then the transaction is over, and the word is worth
nothing. What a partition has admitted therefore counts until the producer's next marker in it, and the batch
is checked and appended under the same lock as markers.

Lock: one for each partition, taken before that of its replica; ``_lock`` guards what is admitted, and is held
while nothing is called.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import NamedTuple

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.records.producing import transactional_producer
from logstore.broker.requests import ProduceRequest
from logstore.broker.transactions.requests import AddPartitionsResult, TransactionalProducer
from logstore.errors import LogstoreError
from logstore.model import TopicPartition
from logstore.replica.node.partition import PartitionReplica
from logstore.wire.handlers.then import then

Refused = dict[TopicPartition, ErrorCode]


class _Ticket(NamedTuple):
    """What lets the batches of one transaction into one partition."""

    producer_epoch: int
    leader_epoch: int
    approved: threading.Event
    """Set once the coordinator has said so."""


class Admission:
    """What the partitions of one node let in; see :class:`~logstore.broker.records.producing.Doorkeeper`."""

    def __init__(self, replicas: Mapping[TopicPartition, PartitionReplica]) -> None:
        self._replicas = replicas
        self._lock = threading.Lock()
        self._locks: dict[TopicPartition, threading.RLock] = {}
        self._tickets: dict[TopicPartition, dict[int, _Ticket]] = {}
        """By partition and producer id."""

    def lock_of(self, partition: TopicPartition) -> threading.RLock:
        """Held while a batch is checked and appended, and while a marker is."""
        with self._lock:
            return self._locks.setdefault(partition, threading.RLock())

    def writing(self, transactional_id: str, partition: TopicPartition) -> threading.RLock:
        return self.lock_of(partition)

    def check_batch(self, producer: TransactionalProducer, partition: TopicPartition) -> ErrorCode:
        """A marker may have come since the coordinator was asked: the producer is to try again."""
        return NONE if self._lets_in(producer, partition) else ErrorCode.CONCURRENT_TRANSACTIONS

    def _lets_in(self, producer: TransactionalProducer, partition: TopicPartition) -> bool:
        """Whether the partition has records of the transaction already, or its coordinator has said so."""
        replica = self._replicas.get(partition)
        if replica is None:
            return True  # that it is not led here says more
        try:
            epoch = replica.log.writer.appending.open_transaction_epoch(producer.producer_id)
        except LogstoreError:
            return True  # the log says why it takes nothing
        if epoch == producer.producer_epoch:
            return True
        ticket = self._tickets.get(partition, {}).get(producer.producer_id)
        return (
            ticket is not None
            and ticket.producer_epoch == producer.producer_epoch
            and ticket.leader_epoch == replica.leader_epoch
            and ticket.approved.is_set()
        )

    def missing(self, request: ProduceRequest) -> dict[TransactionalProducer, tuple[TopicPartition, ...]]:
        """The partitions of which a coordinator is to be asked, by producer."""
        found: dict[TransactionalProducer, list[TopicPartition]] = {}
        if request.transactional_id is None:
            return {}
        for each in request.partitions:
            identity = transactional_producer(each.data)
            if identity is None:
                continue
            producer = TransactionalProducer(request.transactional_id, *identity)
            if not self._lets_in(producer, each.partition):
                found.setdefault(producer, []).append(each.partition)
        return {producer: tuple(partitions) for producer, partitions in found.items()}

    def admit(
        self,
        producer: TransactionalProducer,
        partitions: tuple[TopicPartition, ...],
        ask: Callable[[], Pending[AddPartitionsResult]],
    ) -> Pending[AddPartitionsResult]:
        """Let the transaction into the partitions that the coordinator, which ``ask`` asks, does not
        refuse."""
        tickets = {each: self._ticket(producer, each) for each in partitions}

        def take(result: AddPartitionsResult) -> AddPartitionsResult:
            return AddPartitionsResult(
                {
                    each: self._approve(each, producer.producer_id, ticket, result.errors[each])
                    for each, ticket in tickets.items()
                }
            )

        return then(ask(), take)

    def _ticket(self, producer: TransactionalProducer, partition: TopicPartition) -> _Ticket | None:
        """Before the coordinator is asked: a marker that comes meanwhile withdraws it. None if the partition
        is not led here."""
        replica = self._replicas.get(partition)
        if replica is None:
            return None
        leader_epoch = replica.leader_epoch
        with self._lock:
            tickets = self._tickets.setdefault(partition, {})
            known = tickets.get(producer.producer_id)
            if known is None or known[:2] != (producer.producer_epoch, leader_epoch):
                known = _Ticket(producer.producer_epoch, leader_epoch, threading.Event())
                tickets[producer.producer_id] = known
        return known

    def _approve(
        self, partition: TopicPartition, producer_id: int, ticket: _Ticket | None, code: ErrorCode
    ) -> ErrorCode:
        with self._lock:
            tickets = self._tickets.get(partition, {})
            is_here = ticket is not None and tickets.get(producer_id) is ticket
            if is_here and ticket is not None and code is NONE:
                ticket.approved.set()
            elif is_here and ticket is not None and not ticket.approved.is_set():
                del tickets[producer_id]
        if code is NONE and ticket is not None and not is_here:
            return ErrorCode.CONCURRENT_TRANSACTIONS  # a marker has come
        return code

    def withdraw(self, partition: TopicPartition, producer_id: int) -> None:
        """A marker is about to end what the producer has in the partition. Called with the partition's
        lock."""
        with self._lock:
            tickets = self._tickets.get(partition)
            if tickets is not None:
                tickets.pop(producer_id, None)

    def forget(self, partition: TopicPartition) -> None:
        """The node does not hold it any more."""
        with self._lock:
            self._tickets.pop(partition, None)
            self._locks.pop(partition, None)
