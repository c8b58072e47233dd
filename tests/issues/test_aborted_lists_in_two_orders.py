"""A pinned range, and so Spark, gave records of aborted transactions to a committed reader.

The transaction index lists aborted transactions by their markers, and a search in it may stop early only in
that order. What was pinned listed them by first offsets and was searched in the same way: of two transactions
that overlapped and were both aborted, the one that began first and ended last stopped the search in front of
the other. And only the first segment of a pinned range knew the list: a reader that passed over damage there
went on in the next without it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.logdir.helpers import open_store

import logstore
from logstore.config import TopicConfig
from logstore.errors import CorruptionError
from logstore.format.index import AbortedTransactions
from logstore.model import AbortedTransaction, Isolation, ProducerIdentity
from logstore.partition.reading import arrow
from logstore.partition.state.context import make_context
from logstore.partition.watching.pinned import Damage, PinnedReader
from logstore.partition.watching.read_only import ReadOnlyLog
from logstore.store import Store

PLAN = arrow.plan_columns(["offset", "value"], 100, 1 << 20)
COMMITTED = Isolation.COMMITTED


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with open_store(tmp_path / "store") as opened:
        opened.create_topic("t", config=TopicConfig(retention_ms=-1))
        yield opened


class Producers:
    """Transactions of several producers in one log."""

    def __init__(self, store: Store) -> None:
        self.log = store["t"][0]
        self._sequences: dict[int, int] = {}

    def add(self, producer: int, value: bytes = b"v") -> None:
        sequence = self._sequences.get(producer, 0)
        self._sequences[producer] = sequence + 1
        self.log.extend([value], producer=ProducerIdentity(producer, 0, sequence, True))

    def end(self, producer: int, *, committed: bool = False) -> None:
        self.log.append_end_marker(producer, 0, committed=committed)


def pinned_offsets(
    store: Store, start: int, stop: int, damage: list[Damage] | None = None, *, flip: int | None = None
) -> list[int]:
    """What a committed reader of a pinned range gets. ``flip``: the segment that is damaged."""
    if flip is not None:
        path = Path(store["t"][0].directory, f"{flip:020}.log")
        path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    with logstore.open(store.path, read_only=True) as reader:
        log = reader["t"][0]
        assert isinstance(log, ReadOnlyLog)
        pinned = log.pin(start, stop, isolation=COMMITTED)

    def pin_anew(position: int) -> None:
        raise AssertionError("nothing was replaced")

    on_damage = None if damage is None else damage.append
    reading = PinnedReader(pinned, make_context(store.path), pin_anew, on_damage)  # type: ignore[arg-type]
    return [offset for batch in reading.columns(PLAN) for offset in batch.column("offset").to_pylist()]


def test_of_two_aborted_transactions_the_first_to_begin_ends_last(store: Store) -> None:
    producers = Producers(store)
    producers.add(1)
    producers.add(2)
    producers.end(2)
    producers.add(1)
    producers.end(1)
    producers.log.extend([b"after"])
    assert [record.offset for record in producers.log.read(isolation=COMMITTED)] == [5]
    assert pinned_offsets(store, 0, 6) == [5]
    for start in range(6):
        for stop in range(start, 6):
            assert pinned_offsets(store, start, stop) == []


@pytest.mark.damaged
def test_behind_damage_in_another_segment_what_was_aborted_is_still_left_out(store: Store) -> None:
    producers = Producers(store)
    producers.log.extend([b"damaged"])
    producers.log.roll()
    producers.add(1)
    producers.log.extend([b"kept"])
    producers.end(1)
    damage: list[Damage] = []
    assert pinned_offsets(store, 0, 4, damage, flip=0) == [2]
    assert [(each.start, each.stop) for each in damage] == [(0, 1)]


@pytest.mark.parametrize("seed", range(4))
def test_interleaved_producers(store: Store, seed: int) -> None:
    chance, producers, open_now = random.Random(seed), Producers(store), set()
    for _ in range(60):
        producer = chance.randrange(5)
        if producer in open_now and chance.random() < 0.4:
            producers.end(producer, committed=chance.random() < 0.2)
            open_now.discard(producer)
        else:
            producers.add(producer)
            open_now.add(producer)
        if chance.random() < 0.1:
            producers.log.roll()
    log = producers.log
    for stop in range(1, log.last_stable_offset + 1, 3):
        start = chance.randrange(stop)
        expected = [record.offset for record in log.read(start, stop, isolation=COMMITTED)]
        assert pinned_offsets(store, start, stop) == expected


def test_a_list_in_any_other_order_is_refused() -> None:
    first_to_begin, first_to_end = AbortedTransaction(1, 0, 9, 10), AbortedTransaction(2, 3, 5, 0)
    assert AbortedTransactions((first_to_end, first_to_begin)).overlapping(4, 5)[0] == (
        first_to_end,
        first_to_begin,
    )
    for wrong in ((first_to_begin, first_to_end), (first_to_end, first_to_end)):
        with pytest.raises(CorruptionError, match="after offset"):
            AbortedTransactions(wrong)
