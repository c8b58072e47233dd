"""A broker that got a store's directory stopped loading ``__transaction_state`` at the first transaction that
had ended: its record had no list of partitions, where a broker's has an empty one.

It forgot the transactional ids behind it, left what was decided there without markers, and decided the last
transaction that it had read once more. Only an id without a transaction has no list.
"""

from __future__ import annotations

import logstore
from logstore.format.messages.transaction_records import decode_transaction_value
from logstore.format.names import TRANSACTIONS_TOPIC

EMPTY = 0


def test_every_state_but_the_first_has_a_list_of_partitions(tmp_path):
    for is_committed in (True, False):
        with (
            logstore.open(tmp_path / "store") as store,  # closing it stores that the transaction is over
            store.producer(transactional_id="x") as producer,
        ):
            store.require_topic("a")
            with producer.transaction() as transaction:
                producer.send("a", b"1").result()
                if not is_committed:
                    transaction.abort()
    with logstore.open(tmp_path / "store", read_only=True) as store:
        values = [decode_transaction_value(record.value) for record in store[TRANSACTIONS_TOPIC][0].read()]
    assert {value.status for value in values} == {0, 1, 2, 3, 4, 5}
    assert all((value.partitions is None) == (value.status == EMPTY) for value in values)
