"""The password of a connected program was changed. Its consumer said "group 'g' does not take the consumer:
SASL_AUTHENTICATION_FAILED", which sends the reader to the group. The error names the broker and the user, as
that of ``connect()`` does."""

from __future__ import annotations

import pytest

import logstore
from logstore.connected import Sasl
from logstore.errors import UsageError


def test_a_consumer_says_who_is_refused_and_where(tmp_path):
    with logstore.open(tmp_path) as store:
        store.create_topic("t")
        store.users.set_password("alice", "old")
        listener = store.listen("127.0.0.1:0", sasl_enabled_mechanisms="PLAIN")
        alice = Sasl(username="alice", password="old", mechanism="PLAIN")
        with logstore.connect(listener.address, sasl=alice) as shop:
            consumer = shop.consumer("t", group="g")
            store.users.set_password("alice", "new")
            with pytest.raises(UsageError, match=f"{listener.address}: the broker refuses user 'alice'"):
                consumer.poll(timeout=5)
