"""Steps of producers with a name, before KIP-890 and in any order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

from logstore.wire.apis import ApiKey
from logstore.wire.messages.records import list_offsets
from logstore.wire.messages.transactions import (
    add_partitions_to_txn,
    describe_producers,
    txn_offset_commit,
    write_txn_markers,
)
from tests.broker.rig import batch_of
from tests.interop.request_steps import NOW_MS, Party, Step, known, step, write

ME: Final = known("producer tx")
_OTHER: Final = 54_321


def steps() -> Iterator[Step]:
    """All of them, in order."""
    yield from _starts()
    yield from _writes()
    yield from _offsets()
    yield from _told()
    yield from _ends()
    yield from _markers()


def _start(name: str, transactional_id: str | None, timeout_ms: int = 60_000, **options: Any) -> Step:
    fields = {"transactional_id": transactional_id, "transaction_timeout_ms": timeout_ms, **options}
    return step(name, ApiKey.INIT_PRODUCER_ID, fields.pop("version", 4), **fields)


def _add(name: str, producer: Any, epoch: int, *numbers: int, **options: Any) -> Step:
    topics = (add_partitions_to_txn.Topic(options.pop("topic", "t"), numbers),)
    fields = {"transactional_id": "tx", "producer_id": producer, "producer_epoch": epoch, **options}
    return step(f"{name} {numbers}", ApiKey.ADD_PARTITIONS_TO_TXN, 3, **fields, topics=topics)


def _end(name: str, producer: Any, epoch: int, *, committed: bool = True, **options: Any) -> Step:
    fields = {"transactional_id": "tx", "producer_id": producer, "producer_epoch": epoch, **options}
    return step(f"{name} {committed}", ApiKey.END_TXN, 3, **fields, committed=committed)


def _write(
    name: str,
    epoch: int,
    sequence: int,
    producer: Any = ME,
    topic: str = "t",
    by: str = "tx",
    version: int = 11,
) -> Step:
    def data(side: Party) -> bytes:
        number = producer(side) if callable(producer) else producer
        stamp = {"producer_id": number, "producer_epoch": epoch, "base_sequence": sequence}
        return batch_of([b"v"], NOW_MS, transactional=True, **stamp)

    return write(f"{name}, epoch {epoch}, sequence {sequence}", data, topic, version=version, acks=-1, by=by)


def _starts() -> Iterator[Step]:
    yield _start("no name", None)
    yield _start("an empty name", "")
    for timeout_ms in (0, -1, 10**9):
        yield _start("", "tx", timeout_ms)
    yield _start("anew", "tx")
    yield _start("anew again", "tx")
    yield _start("goes on", "tx", producer_id=ME, producer_epoch=1)
    yield _start("goes on again", "tx", producer_id=ME, producer_epoch=1)
    yield _start("of an old epoch", "tx", producer_id=ME, producer_epoch=0)
    yield _start("of a later epoch", "tx", producer_id=ME, producer_epoch=9)
    yield _start("of another", "tx", producer_id=_OTHER, producer_epoch=0)
    yield _start("without its epoch", "tx", producer_id=ME)
    yield _start("without its id", "tx", producer_epoch=3)
    yield _start("as another has not begun", "new", producer_id=555, producer_epoch=3)
    for epoch in range(4):
        yield _end("nothing", ME, epoch)
    yield _start("for all that follows", "again")


AGAIN: Final = known("producer again")
_BY: Final = {"transactional_id": "again"}


def _writes() -> Iterator[Step]:
    yield _add("an unknown name", ME, 0, 0, transactional_id="nope")
    yield _add("another id", _OTHER, 0, 0, **_BY)
    yield _add("no epoch", AGAIN, -1, 0, **_BY)
    yield _add("a later epoch", AGAIN, 5, 0, **_BY)
    yield _add("both", AGAIN, 0, 0, 1, **_BY)
    yield _add("again", AGAIN, 0, 0, **_BY)
    yield _add("one that is not there", AGAIN, 0, 0, 9, **_BY)
    yield _add("none", AGAIN, 0, **_BY)
    yield _add("nowhere", AGAIN, 0, 0, topic="nope", **_BY)
    yield _write("not added", 0, 0, AGAIN, "u", "again")
    yield _write("without the first", 0, 1, AGAIN, "other", "again", version=12)
    yield _write("added", 0, 0, AGAIN, by="again")
    yield _write("the same", 0, 0, AGAIN, by="again")
    yield _write("too far", 0, 9, AGAIN, by="again")
    yield _write("no epoch", -1, 0, AGAIN, by="again")
    yield _write("the next epoch", 1, 0, AGAIN, by="again")
    yield _write("another producer", 0, 0, _OTHER, by="again")


def _offsets() -> Iterator[Step]:
    def add(name: str, epoch: int, group: str = "g") -> Step:
        fields = {**_BY, "producer_id": AGAIN, "producer_epoch": epoch, "group_id": group}
        return step(name, ApiKey.ADD_OFFSETS_TO_TXN, 3, **fields)

    def commit(name: str, *parts: Any, **options: Any) -> Step:
        where = txn_offset_commit.Topic(
            options.pop("topic", "t"), tuple(txn_offset_commit.Partition(*each) for each in parts)
        )
        fields = {**_BY, "group_id": "g", "producer_id": AGAIN, "producer_epoch": 0, **options}
        return step(f"{name} {parts}", ApiKey.TXN_OFFSET_COMMIT, 3, **fields, topics=(where,))

    yield commit("too early", (0, 5))
    yield add("a later epoch", 7)
    yield add("as it is", 0)
    yield commit("as it is", (0, 5))
    yield commit("a member", (0, 5), generation_id=3, member_id="x")
    yield commit("a generation", (0, 5), generation_id=3)
    yield commit("nowhere", (0, 5), topic="nope")
    yield commit("no such partition", (9, 5))
    yield commit("below zero", (0, -1))
    yield commit("much", (1, 1, -1, "x" * 5000))
    yield commit("a later epoch", (0, 5), producer_epoch=5)
    yield commit("of nobody", (0, 5), group_id="")
    yield commit("another id", (0, 5), producer_id=99)


def _told() -> Iterator[Step]:
    for names in (("again",), ("nope",), ("",)):
        yield step("", ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=names)
    for topic, numbers in (("t", (0, 1, 9)), ("nope", (0,))):
        wanted = (describe_producers.Topic(topic, numbers),)
        if topic == "nope":
            yield step("", ApiKey.DESCRIBE_PRODUCERS, topics=wanted)
    for options in ({}, {"state_filters": ("Ongoing", "bogus")}, {"transactional_id_pattern": "a[g]ain"}):
        yield step("", ApiKey.LIST_TRANSACTIONS, 2, **options)
    yield step("no pattern", ApiKey.LIST_TRANSACTIONS, 2, transactional_id_pattern="t[")
    yield _last_stable()


def _last_stable() -> Step:
    parts = tuple(list_offsets.Partition(number, -1, -1) for number in (0, 1))
    fields: dict[str, Any] = {"replica_id": -1, "isolation_level": 1}
    return step("", ApiKey.LIST_OFFSETS, 8, **fields, topics=(list_offsets.Topic("t", parts),))


def _ends() -> Iterator[Step]:
    yield _end("a later epoch", AGAIN, 5, **_BY)
    yield _end("another id", _OTHER, 0, **_BY)
    for committed in (True, True, False):
        yield _end("", AGAIN, 0, committed=committed, **_BY)
    yield _last_stable()
    yield _write("after the end", 0, 1, AGAIN, by="again")
    yield _add("the next", AGAIN, 0, 0, **_BY)
    yield _write("the next", 0, 1, AGAIN, by="again")
    for committed in (False, False, True):
        yield _end("", AGAIN, 0, committed=committed, **_BY)
    yield _add("one more", AGAIN, 0, 0, **_BY)
    yield _start("which another ends", "again")
    yield _add("shut out", AGAIN, 0, 0, **_BY)
    yield _end("shut out", AGAIN, 0, **_BY)
    yield _write("shut out", 0, 2, AGAIN, by="again")
    yield _last_stable()


def _markers() -> Iterator[Step]:
    def mark(name: str, producer: Any, epoch: int, topic: str = "t", number: int = 0) -> Step:
        wanted: Callable[[Party], Any] = lambda side: (  # noqa: E731
            write_txn_markers.Marker(
                producer(side) if callable(producer) else producer,
                epoch,
                True,
                (write_txn_markers.Topic(topic, (number,)),),
            ),
        )
        return step(f"{name} {topic}-{number}", ApiKey.WRITE_TXN_MARKERS, 1, markers=wanted)

    yield mark("unknown", 999, 0)
    yield mark("nowhere", 999, 0, "nope")
    yield mark("no such partition", 999, 0, number=9)
    yield mark("an old epoch", AGAIN, 0)
