"""Transactions that have an epoch each (KIP-890): the same story at a stock broker and here. 15 s."""

from __future__ import annotations

import pytest

import logstore
from logstore.connected import connect
from tests.interop.kafka import KafkaBroker, require_kafka
from tests.wire.raw_client import RawClient
from tests.wire.transactions_v2 import Teller, tell

pytestmark = pytest.mark.interop


def read(store):
    with store.consumer("t", isolation=logstore.Isolation.COMMITTED) as consumer:
        return sorted((each.partition, each.value) for each in consumer.drain())


def test_the_same_answers_as_kafkas(tmp_path):
    require_kafka()
    tellers = []
    found = []
    with (
        KafkaBroker(tmp_path / "kafka") as kafka,
        logstore.open(tmp_path / "store") as store,
        store.listen() as listener,
    ):
        for address in (kafka.bootstrap, listener.address):
            with connect(address) as shop, RawClient(address) as client:
                shop.create_topic("t", partitions=2)
                teller = Teller(client)
                tell(teller)
                tellers.append(teller)
                found.append((read(shop), shop.offsets("g")["t", 0].offset))
    theirs, ours = tellers
    assert ours.answers == theirs.answers
    assert found[0] == found[1]
    assert found[0] == ([(0, b"a"), (0, b"d"), (0, b"e"), (1, b"b")], 7)
