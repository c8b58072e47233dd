"""A record of a transaction cannot be delivered, so that ``commit()`` aborts; and the abort has no answer.

The transaction was in doubt then, and a second ``commit()``, which is how one asks for the outcome, committed
what was left of it: without the record. ``store.transform`` did so by itself, and left a record out.
"""

from __future__ import annotations

import pytest

import logstore
from logstore import Isolation
from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered
from logstore.broker.requests import ProducedPartition, ProduceResult
from logstore.broker.transactions.requests import EndTransactionResult
from logstore.clients.producer import Producer
from logstore.clients.settings import ProducerConfig
from logstore.errors import InvalidRecordError, InvalidTransactionStateError, RetriableError


class Refusing:
    """Takes no record for partition 1, and answers no end."""

    def __init__(self, broker):
        self._broker = broker
        self.answers_ends = False

    def __getattr__(self, name):
        return getattr(self._broker, name)

    def produce(self, request):
        partition = request.partitions[0].partition
        if partition.partition == 1:
            return Answered(ProduceResult((ProducedPartition(partition, ErrorCode.INVALID_RECORD),)))
        return self._broker.produce(request)

    def end_transaction(self, request):
        if self.answers_ends:
            return self._broker.end_transaction(request)
        return Answered(EndTransactionResult(ErrorCode.REQUEST_TIMED_OUT))


def test_it_can_only_be_aborted(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        topic = store.create_topic("a", partitions=2)
        broker = Refusing(store._open_broker(store._directory))
        producer = Producer(broker, config=ProducerConfig(transactional_id="x"))
        transaction = producer.transaction().__enter__()
        producer.send("a", b"1", partition=0)
        producer.send("a", b"2", partition=1)
        with pytest.raises(InvalidRecordError):
            transaction.commit()
        assert transaction.is_in_doubt
        assert transaction.is_aborting
        with pytest.raises(RetriableError):
            transaction.abort()
        broker.answers_ends = True
        with pytest.raises(InvalidTransactionStateError, match=r"is being aborted.*call abort\(\) again"):
            transaction.commit()
        transaction.abort()
        assert not transaction.is_in_doubt
        assert list(topic.read(isolation=Isolation.COMMITTED)) == []
        with producer.transaction():
            producer.send("a", b"3", partition=0)
        assert [record.value for record in topic.read(isolation=Isolation.COMMITTED)] == [b"3"]
        producer.close()
