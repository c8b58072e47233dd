"""What Kafka's own producers are to do: the steps of one run of Writer.java."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable
from typing import Any

from tests.interop.clients import NewRecord
from tests.interop.kafka import run_program


class Plan:
    """The steps of one run of Writer.java."""

    def __init__(self) -> None:
        self._producers: dict[str, dict[str, str]] = {}
        self._steps: list[list[Any]] = []

    def producer(self, name: str, **settings: str) -> str:
        """Declare a producer; setting names are written with underscores for dots."""
        self._producers[name] = {key.replace("_", "."): value for key, value in settings.items()}
        return name

    def transactional(self, name: str) -> str:
        """Declare a producer with a transactional id, long enough alive for the whole run."""
        self.producer(name, transactional_id=name, transaction_timeout_ms="600000")
        self.do("init", name)
        return name

    def do(self, verb: str, name: str) -> None:
        self._steps.append([verb, name])

    def batch(self, name: str, topic: str, records: Iterable[NewRecord], partition: int = 0) -> None:
        """Send the records as one batch."""
        for record in records:
            headers = [[key, _base64(value)] for key, value in record.headers]
            key, value = _base64(record.key), _base64(record.value)
            self._steps.append(["send", name, topic, partition, record.timestamp_ms, key, value, headers])
        self.do("flush", name)

    def offset(self, name: str, group: str, topic: str, partition: int, offset: int) -> None:
        """Commit an offset with the open transaction."""
        self._steps.append(["offset", name, group, topic, partition, offset])

    def run(self, bootstrap: str) -> None:
        plan = {"bootstrap": bootstrap, "producers": self._producers, "steps": self._steps}
        run_program("Writer.java", stdin=json.dumps(plan))


def _base64(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode("ascii")
