"""A random sequence of requests as steps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from logstore.wire.apis import ApiKey
from logstore.wire.messages.records import (
    fetch,
    list_offsets,
)
from logstore.wire.messages.topics import (
    create_topics,
)
from tests.interop.drawn.choices import TOPICS, Value
from tests.interop.drawn.groups import Groups
from tests.interop.drawn.records import Records
from tests.interop.drawn.topics import Topics
from tests.interop.drawn.transactions import Transactions
from tests.interop.request_steps import Party, Step


class Drawn(Records, Transactions, Groups, Topics):
    """A sequence of steps: the same for the same seed."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self._kinds = (
            (self._produce, 30),
            (self._fetch, 12),
            (self._fetch_in_session, 8),
            (self._list_offsets, 6),
            (self._epoch_end, 3),
            (self._delete_records, 3),
            (self._init, 8),
            (self._add_partitions, 8),
            (self._add_offsets, 4),
            (self._commit_in_transaction, 5),
            (self._end, 10),
            (self._look_at_producers, 4),
            (self._join, 6),
            (self._sync, 6),
            (self._beat, 4),
            (self._leave, 3),
            (self._beat_newer, 8),
            (self._commit, 8),
            (self._fetch_offsets, 5),
            (self._forget_offsets, 3),
            (self._look_at_groups, 4),
            (self._metadata, 3),
            (self._administer, 8),
            (self._share, 8),
            (self._beat_sharing, 2),
        )

    def topics(self) -> list[create_topics.Topic]:
        """To be made before."""
        return [
            create_topics.Topic(
                self._named(name),
                count,
                1,
                (),
                tuple(create_topics.Config(*each) for each in configs.items()),
            )
            for name, (count, configs) in TOPICS.items()
        ]

    def steps(self, count: int) -> Iterator[Step]:
        """So many, and what is in the logs at the end."""
        kinds, weights = zip(*self._kinds, strict=True)
        for number in range(count):
            (kind,) = self._random.choices(kinds, weights)
            drawn = kind()
            yield drawn._replace(name=f"{self.seed}/{number} {drawn.name}")
        yield from self._ends()

    def _ends(self) -> Iterator[Step]:
        for name, (count, _) in TOPICS.items():
            topic = self._named(name)
            numbers = range(count)
            for time_ms in (-1, -2):
                for level in (0, 1):
                    wanted = tuple(list_offsets.Partition(number, -1, time_ms) for number in numbers)
                    fields = {
                        "replica_id": -1,
                        "isolation_level": level,
                        "topics": (list_offsets.Topic(topic, wanted),),
                    }
                    yield Step(
                        f"{self.seed}/end {topic} {time_ms} {level}",
                        ApiKey.LIST_OFFSETS,
                        8,
                        lambda side, fields=fields: fields,
                    )
            for number in numbers:
                yield Step(
                    f"{self.seed}/all of {topic} {number}", ApiKey.FETCH, 12, self._all_of(topic, number)
                )

    def _all_of(self, topic: str, number: int) -> Value:
        def fields(side: Party) -> dict[str, Any]:
            start = side.known.get(f"start {topic} {number}", 0)
            part = fetch.Partition(number, fetch_offset=start, max_bytes=10**7)
            return {
                "topics": (fetch.Topic(topic, partitions=(part,)),),
                "isolation_level": 1,
                "max_wait_ms": 0,
                "max_bytes": 10**7,
            }

        return fields
