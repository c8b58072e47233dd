"""A store with a listener."""

from __future__ import annotations

import pytest

import logstore
from tests.wire.raw_client import RawClient


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        yield store


@pytest.fixture
def listener(store):
    with store.listen() as listener:
        yield listener


@pytest.fixture
def client(listener):
    with RawClient(listener.address) as client:
        yield client
