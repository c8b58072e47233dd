"""Who comes to a listener is counted, and who is not let in. 0.5 s."""

import socket
import time

import pytest

import logstore
from logstore.errors import UsageError
from tests.metrics.test_each_moves import log_in, turned_away


def shown(store, name):
    return dict(store.metrics()[f"logstore_listener_{name}"])


def test_connections_and_failed_logins_count(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        store.users.set_password("alice", "pw")
        assert shown(store, "connections") == {}
        with store.listen(sasl_enabled_mechanisms="PLAIN", max_connections=1) as listener:
            at = (listener.address,)
            with pytest.raises(UsageError, match="refuses user"), log_in(listener, "wrong") as shop:
                shop.check()
            assert shown(store, "failed_logins") == {at: 1}
            while shown(store, "connections") != {at: 0}:
                time.sleep(0.001)
            with turned_away(listener):
                assert shown(store, "refused_connections") == {at: 1}
            while shown(store, "connections") != {at: 0}:
                time.sleep(0.001)
            before = shown(store, "accepted_connections")[at]
            with log_in(listener, "pw") as shop:
                shop.check()
                assert shown(store, "connections") == {at: 1}
            assert shown(store, "accepted_connections") == {at: before + 1}
            assert shown(store, "failed_logins") == {at: 1}
        assert shown(store, "connections") == {}, "it listens no more"


def test_each_listener_has_its_own(tmp_path):
    with logstore.open(tmp_path / "store") as store, store.listen() as one, store.listen() as other:
        host, port = one.address.split(":")
        with socket.create_connection((host, int(port))):
            while shown(store, "connections") != {(one.address,): 1, (other.address,): 0}:
                time.sleep(0.001)
