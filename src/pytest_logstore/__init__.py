"""The fixture that pytest finds by itself where logstore is installed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from logstore.testing.kafka_servers import KafkaServers


@pytest.fixture
def logstore_kafka() -> Iterator[KafkaServers]:
    """A broker for one test: see :func:`logstore.testing.kafka`."""
    from logstore.testing.kafka_servers import kafka  # a run of tests that does not use it pays nothing

    with kafka() as servers:
        yield servers
