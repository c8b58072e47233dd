"""Random requests of producers with a name."""

from __future__ import annotations

from typing import Any, Final

from logstore.wire.apis import ApiKey
from logstore.wire.messages.transactions import (
    add_partitions_to_txn,
    describe_producers,
    txn_offset_commit,
)
from tests.interop.drawn.choices import Choices, Value
from tests.interop.request_steps import Party, Step

_OPEN_ENDED: Final = 60_000


class Transactions(Choices):
    """Epochs, partitions, offsets and ends."""

    def _init(self) -> Step:
        version, producer = self._version(ApiKey.INIT_PRODUCER_ID), self._producer()
        name = producer if "x" in producer.split("-")[0] else None
        name = "" if self._seldom(0.03) else name
        timeout_ms = self._mostly(_OPEN_ENDED, 0, -1, 10**9)
        goes_on = version >= 3 and self._seldom(0.5)
        its_id = self._id_of(producer)
        epoch: Value = lambda side: side.known.get(f"epoch {producer}", 0)  # noqa: E731

        def fields(side: Party) -> dict[str, Any]:
            found = {
                "transactional_id": name,
                "transaction_timeout_ms": max(timeout_ms, 1) if timeout_ms == 1 else timeout_ms,
            }
            if goes_on:
                found |= {"producer_id": its_id(side), "producer_epoch": epoch(side)}
            return found

        return Step(
            f"{producer}:{name} {timeout_ms} goes_on={goes_on}", ApiKey.INIT_PRODUCER_ID, version, fields
        )

    def _add_partitions(self) -> Step:
        version, producer = self._version(ApiKey.ADD_PARTITIONS_TO_TXN), self._transactional()
        name = self._mostly(producer, self._named("x1"), self._named("none"))
        its_id, epoch = self._id_of(producer), self._epoch_of(producer)
        topics = (
            add_partitions_to_txn.Topic(
                self._mostly(self._transactional_topic(), self._named("nope")),
                self._one((0,), (0, 1), (9,), (0, 9)),
            ),
        )
        verify = False

        def fields(side: Party) -> dict[str, Any]:
            one = {"transactional_id": name, "producer_id": its_id(side), "producer_epoch": epoch(side)}
            if version < 4:
                return {**one, "topics": topics}
            return {
                "transactions": (add_partitions_to_txn.Transaction(**one, verify_only=verify, topics=topics),)
            }

        return Step(f"{name} {topics} {verify}", ApiKey.ADD_PARTITIONS_TO_TXN, version, fields)

    def _add_offsets(self) -> Step:
        producer, group = self._transactional(), self._group()
        name = self._mostly(producer, self._named("none"), "")
        its_id, epoch = self._id_of(producer), self._epoch_of(producer)

        def fields(side: Party) -> dict[str, Any]:
            return {
                "transactional_id": name,
                "producer_id": its_id(side),
                "producer_epoch": epoch(side),
                "group_id": group,
            }

        return Step(
            f"{name} {group}", ApiKey.ADD_OFFSETS_TO_TXN, self._version(ApiKey.ADD_OFFSETS_TO_TXN), fields
        )

    def _commit_in_transaction(self) -> Step:
        producer, group = self._transactional(), self._mostly(self._named("g"), self._named("h"))
        version, name = self._version_of(producer, ApiKey.TXN_OFFSET_COMMIT, 5), producer
        its_id, epoch = self._id_of(producer), self._epoch_of(producer)
        part = txn_offset_commit.Partition(
            self._part(), self._mostly(3, 0, -1, 10**9), -1, self._mostly("m", None, "x" * 5000)
        )
        topics = (txn_offset_commit.Topic(self._topic(), (part,)),)
        member = self._member_id(group) if version >= 3 and self._seldom(0.5) else None
        generation = self._near(f"generation {group}", -1)

        def fields(side: Party) -> dict[str, Any]:
            found = {
                "transactional_id": name,
                "producer_id": its_id(side),
                "producer_epoch": epoch(side),
                "group_id": group,
                "topics": topics,
            }
            if member is not None:
                found |= {"member_id": member(side), "generation_id": generation(side)}
            return found

        return Step(
            f"{name} {group} {topics[0].name} {part.offset}", ApiKey.TXN_OFFSET_COMMIT, version, fields
        )

    def _end(self) -> Step:
        producer = self._transactional()
        version = self._version_of(producer, ApiKey.END_TXN, 5)
        name = self._mostly(producer, producer, producer, self._named("none"), "")
        its_id, epoch, committed = self._id_of(producer), self._epoch_of(producer), self._one(True, False)

        def fields(side: Party) -> dict[str, Any]:
            return {
                "transactional_id": name,
                "producer_id": its_id(side),
                "producer_epoch": epoch(side),
                "committed": committed,
            }

        return Step(f"{name} {committed}", ApiKey.END_TXN, version, fields)

    def _look_at_producers(self) -> Step:
        if self._seldom(0.4):
            topics = (describe_producers.Topic(self._transactional_topic(), self._one((0,), (0, 1), (9, 0))),)
            return Step(f"{topics}", ApiKey.DESCRIBE_PRODUCERS, None, lambda side: {"topics": topics})
        if self._seldom(0.5):
            names = self._one(self._transactional(), self._named("none"), "")
            return Step(
                f"{names}", ApiKey.DESCRIBE_TRANSACTIONS, None, lambda side: {"transactional_ids": (names,)}
            )
        version, states = (
            self._version(ApiKey.LIST_TRANSACTIONS),
            (
                "Empty",
                "Ongoing",
                "CompleteCommit",
                "CompleteAbort",
                "bogus",
                "ongoing",
                "Dead",
                "PrepareEpochFence",
            ),
        )
        found: dict[str, Any] = {"state_filters": tuple(self._random.sample(states, self._one(0, 1, 2)))}
        its_id = self._id_of(self._producer())
        by_id = self._seldom(0.3)
        if version >= 1:
            found["duration_ms"] = self._one(-1, -1, -5)
        if version >= 2:
            found["transactional_id_pattern"] = self._one(
                None, "", f"x.-{self.seed}", "x0", f".*{self.seed}", "[", "(?i)X0.*"
            )

        def fields(side: Party) -> dict[str, Any]:
            return {**found, "producer_id_filters": (its_id(side),) if by_id else ()}

        return Step(f"{found}", ApiKey.LIST_TRANSACTIONS, version, fields)
