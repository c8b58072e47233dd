"""What requests are drawn of: names, numbers near those that a side has told, versions."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any, Final

from logstore.wire.apis import APIS, ApiKey
from tests.interop.request_steps import Party
from tests.interop.steps_of_records import HOUR_MS

TOPICS: Final = {
    "t": (2, {}),
    "u": (1, {}),
    "stamped": (1, {"message.timestamp.type": "LogAppendTime"}),
    "small": (1, {"max.message.bytes": "200"}),
    "lz4": (1, {"compression.type": "lz4"}),
    "near": (1, {"message.timestamp.before.max.ms": str(HOUR_MS)}),
    "compacted": (1, {"cleanup.policy": "compact"}),
    "made": (1, {}),
    "shared": (1, {}),
}
"""Partitions and settings."""
Value = Callable[[Party], Any]


class Choices:
    """Names are of the seed, so that many sequences may come one after the other to the same two."""

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self._random = Random(seed)

    def _named(self, name: str) -> str:
        return f"{name}-{self.seed}"

    def _one(self, *options: Any) -> Any:
        return self._random.choice(options)

    def _seldom(self, share: float = 0.1) -> bool:
        return self._random.random() < share

    def _mostly(self, usual: Any, *odd: Any) -> Any:
        return self._one(*odd) if self._seldom(0.2) else usual

    def _version(self, key: ApiKey, first: int = 0, last: int = 99) -> int:
        return self._random.randint(max(first, APIS[key].first), min(last, APIS[key].last))

    def _topic(self) -> str:
        name = self._random.choices((*TOPICS, "nope", "a b", ""), (20, 8, 3, 3, 3, 3, 3, 0, 0, 1, 0.3, 0.3))[
            0
        ]
        return self._named(name) if name in TOPICS or name == "nope" else name

    def _version_of(self, producer: str, key: ApiKey, newer: int) -> int:
        """``x0`` has an epoch for each transaction (KIP-890), and adds partitions by writing to them."""
        is_newer = producer.startswith("x0")
        return self._version(key, newer if is_newer else 0, 99 if is_newer else newer - 1)

    def _part(self) -> int:
        return self._random.choices((0, 1, 9, -1), (20, 8, 1, 0.5))[0]

    def _near(self, name: str, otherwise: int = 0, *odd: int) -> Value:
        """What the side has learned, or a little beside it."""
        by = self._mostly(0, -1, 1, *odd)
        return lambda side: side.known.get(name, otherwise) + by

    def _producer(self) -> str:
        return self._named(self._one("i0", "i1", "x0", "x0", "x1"))

    def _id_of(self, producer: str) -> Value:
        nobody = 77_000 + 10 * self.seed + ("i0", "i1", "x0", "x1").index(producer.split("-")[0])
        if self._seldom(0.04):
            return lambda side: nobody
        return lambda side: side.known.get(f"producer {producer}", nobody)

    def _epoch_of(self, producer: str) -> Value:
        by = self._random.choices((0, -1, 1, 5), (30, 2, 2, 1))[0]
        return lambda side: side.known.get(f"epoch {producer}", 0) + by

    def _group(self) -> str:
        return self._mostly(self._named(self._one("g", "h")), self._named("n"), self._named("none"))

    def _member_id(self, group: str) -> Value:
        odd = self._mostly(None, "", "x")
        return lambda side: side.known.get(f"member {group}", "") if odd is None else odd

    def _transactional(self) -> str:
        return self._named(self._one("x0", "x0", "x1"))

    def _transactional_topic(self) -> str:
        """Lookups by time find markers with Kafka, and none here: these are not looked up by time."""
        return self._named(self._one("t", "t", "u", "stamped"))
