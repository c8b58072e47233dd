"""A cut that takes the end of a transaction, and leaves its first records, is told."""

from __future__ import annotations

from contextlib import suppress

import pytest

import logstore
from logstore import Isolation
from logstore.testing import ManualClock, MemoryFiles


@pytest.mark.parametrize("is_committed", [False, True])
def test_a_transaction_whose_marker_is_cut_off_is_open_again(is_committed, caplog):
    """And the way out that is named works. 0.05 s."""
    with logstore.open("/store", files=MemoryFiles(), clock=ManualClock()) as store:
        log = store.create_topic("t")[0]
        producer = store.producer(transactional_id="x")
        with producer.transaction():
            producer.send("t", b"kept")
        with suppress(KeyError), producer.transaction():
            producer.send("t", b"cut")
            producer.flush()
            if not is_committed:
                raise KeyError
        (identity,) = log.active_producers()
        log.truncate_to(3)
        assert f"those of the producers {identity.producer_id} are open again" in caplog.text
        assert [record.value for record in log.read(isolation=Isolation.COMMITTED)] == [b"kept"]
        log.append_end_marker(identity.producer_id, identity.producer_epoch, committed=is_committed)
        expected = [b"kept", b"cut"] if is_committed else [b"kept"]
        assert [record.value for record in log.read(isolation=Isolation.COMMITTED)] == expected
        producer.close()


def test_one_that_goes_as_a_whole_is_not(caplog):
    """0.05 s."""
    with logstore.open("/store", files=MemoryFiles(), clock=ManualClock()) as store:
        log = store.create_topic("t")[0]
        with store.producer(transactional_id="x") as producer, producer.transaction():
            producer.send("t", b"cut")
        log.truncate_to(0)
    assert "open again" not in caplog.text
