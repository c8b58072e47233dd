"""Transactions of a cluster: the node that leads the partition of ``__transaction_state`` coordinates them. A
state counts once all in-sync replicas have it.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.storing.transactions import TopicStorage
from logstore.broker.transactions.requests import Done
from logstore.broker.transactions.transaction import Transaction
from logstore.format.names import TRANSACTIONS_TOPIC
from logstore.logdir.directory import LogDirectory
from logstore.model import TopicPartition
from logstore.replica.node.partition import PartitionReplica
from logstore.replica.node.replicated import why_not_written

TRANSACTIONS: Final = TopicPartition(TRANSACTIONS_TOPIC, 0)
"""The topic of a cluster has one partition: a node coordinates all transactions or none."""


class ReplicatedStorage:
    """Keeps transactions of one term; see
    :class:`~logstore.broker.transactions.coordinator.TransactionStorage`. Nothing is told of a state before
    it is certain in this term: if the term ends first, the next coordinator reads what has come of it."""

    def __init__(self, directory: LogDirectory, replica: PartitionReplica, epoch: int) -> None:
        self._topic = TopicStorage(directory)
        self._replica = replica
        self._epoch = epoch

    def load(self) -> list[Transaction]:
        """See :meth:`.TopicStorage.load`."""
        return self._topic.load()

    def store(self, transaction: Transaction, done: Done[ErrorCode], *, durable: bool) -> None:
        code = why_not_written(self._replica, self._epoch)
        if code is not NONE:
            done(code)
            return

        def appended(code: ErrorCode) -> None:
            if code is NONE:
                end = self._replica.log.log_end_offset
                self._replica.when_replicated(end, self._epoch, replicated)
            else:
                done(code)

        def replicated(code: ErrorCode) -> None:
            done(NONE if code is NONE else ErrorCode.NOT_COORDINATOR)

        self._topic.store(transaction, appended, durable=False)

    def store_all(self, transactions: Collection[Transaction]) -> frozenset[str]:
        if why_not_written(self._replica, self._epoch) is not NONE:
            return frozenset(each.transactional_id for each in transactions)
        return self._topic.store_all(transactions)
