"""The states of share-partitions between us and a stock Kafka.

Its classes encode the records as we do, its tools decode what we write, its coordinator goes on with our
states, and we with its.
"""

from __future__ import annotations

import json
import random
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore.broker.share.states import RecordState
from logstore.broker.share.stored import ShareChange, ShareState, combine
from logstore.broker.storing.shares import ShareStorage, coordinator_key
from logstore.config import StoreConfig
from logstore.errors import UsageError
from logstore.format.messages.share_records import (
    ShareBatch,
    ShareKey,
    decode_share_key,
    decode_share_snapshot,
    decode_share_update,
    encode_share_key,
    encode_share_snapshot,
    encode_share_update,
)
from logstore.format.names import SHARE_STATE_TOPIC
from tests.interop import clients
from tests.interop.clients import NewRecord
from tests.interop.dump import dump_log
from tests.interop.kafka import KafkaBroker, require_kafka, run_program

pytestmark = pytest.mark.interop

GOLDEN = Path(__file__).parents[1] / "format" / "messages" / "share_records.txt"
KEY = ShareKey("billing", uuid.UUID("01234567-89ab-cdef-1122-334455667788"), 3)
BROKER = {
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    # So that there are updates after a snapshot, and snapshots after updates.
    "share.coordinator.snapshot.update.records.per.snapshot": 2,
}
LONG_AGO_MS = 1_700_000_000_000
AVAILABLE, _, ACKNOWLEDGED, _, ARCHIVED = RecordState


def test_the_golden_records_are_what_kafka_prints() -> None:
    require_kafka()
    assert run_program("ShareRecords.java") == GOLDEN.read_text()


def test_the_dump_tool_decodes_what_we_write(tmp_path: Path) -> None:
    require_kafka()
    config = StoreConfig(share_coordinator_snapshot_update_records_per_snapshot=1)
    with logstore.open(tmp_path / "store", config=config) as store:
        storage = ShareStorage(store._directory)
        storage.write_snapshot(KEY, ShareState(2, 5, 10, (ShareBatch(12, 14, ACKNOWLEDGED, 1),)))
        batches = (ShareBatch(10, 11, ARCHIVED, 2), ShareBatch(15, 15, AVAILABLE, 1, 1_700_000_000_123))
        storage.write_update(KEY, ShareChange(-1, batches, 6, 5))
        storage.write_update(KEY, ShareChange(13))
        storage.delete(KEY)
    snapshot, update, second, tombstone = dumped_records(tmp_path / "store" / f"{SHARE_STATE_TOPIC}-0")
    key = {"groupId": "billing", "topicId": "ASNFZ4mrze8RIjNEVWZ3iA", "partition": 3}
    times = {name: snapshot[1]["data"].pop(name) for name in ("createTimestamp", "writeTimestamp")}
    assert len(set(times.values())) == 1
    assert snapshot == (
        {"type": "0", "data": key},
        {
            "version": "0",
            "data": {
                "snapshotEpoch": 0,
                "stateEpoch": 2,
                "leaderEpoch": 5,
                "startOffset": 10,
                "deliveryCompleteCount": 3,
                "stateBatches": [shown(12, 14, ACKNOWLEDGED, 1)],
            },
        },
    )
    assert update == (
        {"type": "1", "data": key},
        {
            "version": "0",
            "data": {
                "snapshotEpoch": 0,
                "leaderEpoch": 6,
                "startOffset": -1,
                "deliveryCompleteCount": 5,
                "stateBatches": [shown(10, 11, ARCHIVED, 2), shown(15, 15, AVAILABLE, 1)],
            },
        },
    )
    assert second[1]["data"]["snapshotEpoch"] == 1
    assert second[1]["data"]["stateBatches"] == [shown(13, 14, ACKNOWLEDGED, 1), shown(15, 15, AVAILABLE, 1)]
    assert tombstone == ({"type": "0", "data": key}, None)


def dumped_records(partition: Path) -> list[tuple[Any, Any]]:
    """Keys and values, as the tool decodes them."""
    found = []
    for file in dump_log(partition, decoder="--share-group-state-decoder").values():
        for record in file.records:
            key, value = record.text.removeprefix("key: ").split(" payload: ")
            found.append((json.loads(key), json.loads(value) if value.startswith("{") else None))
    return found


def shown(first: int, last: int, state: RecordState, count: int) -> dict[str, int]:
    return {
        "firstOffset": first,
        "lastOffset": last,
        "deliveryState": int(state),
        "deliveryCount": count,
    }


def test_batches_are_combined_as_kafka_does() -> None:
    """As long as offsets go on to higher delivery counts and states, by which Kafka decides. Takes 2 s."""
    require_kafka()
    rng = random.Random(1)
    cases = [draw_case(rng) for _ in range(3_000)]
    given = "".join(f"{start}|{written(old)}|{written(new)}\n" for start, old, new in cases)
    printed = run_program("ShareCombiner.java", stdin=given).splitlines()
    assert printed == [written(combine(*case)) for case in cases]


Case = tuple[int, tuple[ShareBatch, ...], tuple[ShareBatch, ...]]


def draw_case(rng: random.Random) -> Case:
    """Some batches that are there, and some that come."""
    known: dict[int, tuple[int, int]] = {}

    def draw() -> ShareBatch:
        first = rng.randrange(60)
        offsets = range(first, first + rng.randint(1, 15))
        least = max(known.get(offset, (1, 0)) for offset in offsets)
        count = least[0] + rng.choice((0, 0, 1))
        states = [state for state in (AVAILABLE, ACKNOWLEDGED, ARCHIVED) if (count, state) >= least]
        state = rng.choice(states)
        known.update(dict.fromkeys(offsets, (count, int(state))))
        return ShareBatch(offsets[0], offsets[-1], int(state), count)

    old = combine(-1, (), [draw() for _ in range(rng.randint(0, 8))])
    return rng.choice((-1, 0, rng.randrange(70))), old, tuple(draw() for _ in range(rng.randint(0, 6)))


def written(batches: Iterable[ShareBatch]) -> str:
    return " ".join(",".join(str(int(number)) for number in each[:4]) for each in batches)


def test_share_groups_are_handed_over_to_a_broker_and_back(tmp_path: Path) -> None:
    """Takes 30 s: two starts of a broker, and its share consumer."""
    require_kafka()
    source, back = tmp_path / "store", tmp_path / "back"
    with logstore.open(source) as store:
        store.create_topic("orders")[0].extend([b"%d" % number for number in range(12)])
        with store.queue("orders", group="billing", linger_ms=0) as queue:
            jobs = queue.poll(0, max_jobs=9)
            for number in (0, 1, 3, 4, 7):
                jobs[number].accept()
            jobs[2].release()
            jobs[5].reject("no")
    topics = ["orders", SHARE_STATE_TOPIC]
    with KafkaBroker(tmp_path / "kafka", config=BROKER) as broker:
        broker.create_topic("orders", config={"retention.ms": -1})
        assert broker.stop()
        with pytest.raises(UsageError, match="the broker does not know share group 'billing' in orders-0"):
            logstore.handover(source, broker.log_dir, topics=topics)
        broker.start()
        assert take(broker) == {}
        assert broker.stop()
        report = logstore.handover(source, broker.log_dir, topics=topics)
        assert report.share_groups == ("billing",)
        broker.start()
        assert take(broker, "..A...A.AAAA") == {
            2: [2],
            6: [2],
            8: [2],
            9: [1],
            10: [1],
            11: [1],
        }
        clients.produce(broker.bootstrap, "orders", [[NewRecord(None, b"12")]])
        assert broker.stop()
        assert logstore.handover(broker.log_dir, back, topics=topics).share_groups == ("billing",)
    with logstore.open(back) as store, store.queue("orders", group="billing") as queue:
        assert [(job.offset, job.delivery_count) for job in queue.drain()] == [(12, 1)]


def test_a_broker_goes_on_with_our_states_and_we_with_its(tmp_path: Path) -> None:
    """Takes 30 s: three starts of a broker."""
    require_kafka()
    with KafkaBroker(tmp_path / "kafka", config=BROKER) as broker:
        broker.create_topic("orders")
        records = [NewRecord(None, b"%d" % number) for number in range(20)]
        clients.produce(broker.bootstrap, "orders", [records])
        assert take(broker, "RAAAXRAAAAXXRRAAAAAA", "R....A......RX") == {
            offset: [1, 2] if offset in (0, 5, 12, 13) else [1] for offset in range(20)
        }
        assert broker.stop()
        with logstore.open(broker.log_dir) as store:
            storage = ShareStorage(store._directory)
            ((key, state),) = storage.load().items()
            check_what_the_broker_stored(broker, key, state)
            check_codecs(store)
            alter(storage, key, state)
        broker.start()
        clients.produce(broker.bootstrap, "orders", [[NewRecord(None, b"20")]])
        assert take(broker, "." * 12 + "A.XA....A") == {12: [4], 14: [2], 15: [2], 20: [1]}
        assert broker.stop()
        with logstore.open(broker.log_dir) as store:
            ((key_after, after),) = ShareStorage(store._directory).load().items()
            assert (key_after, after.state_epoch) == (key, state.state_epoch)
            done = by_offset(after.batches)
            assert all(
                done[offset][0] in (ACKNOWLEDGED, ARCHIVED) for offset in range(after.start_offset, 21)
            )
            for offset, expected in {14: (ARCHIVED, 2), 15: (ACKNOWLEDGED, 2)}.items():
                assert offset < after.start_offset or done[offset] == expected
            check_codecs(store)


def take(broker: KafkaBroker, *words: str) -> dict[int, list[int]]:
    """What ``ShareReader`` was given: offset -> the delivery counts. Without words, the group begins."""
    found: dict[int, list[int]] = {}
    for line in run_program("ShareReader.java", broker.bootstrap, "orders", "billing", *words).splitlines():
        offset, count = map(int, line.split())
        found.setdefault(offset, []).append(count)
    return found


def by_offset(batches: Iterable[ShareBatch]) -> Mapping[int, tuple[int, int]]:
    return {
        offset: (each.state, each.delivery_count)
        for each in batches
        for offset in range(each.first_offset, each.last_offset + 1)
    }


def check_what_the_broker_stored(broker: KafkaBroker, key: ShareKey, state: ShareState) -> None:
    metadata = (broker.partition_dir("orders") / "partition.metadata").read_text()
    assert coordinator_key(key) == "billing:" + metadata.split("topic_id: ")[1].strip() + ":0"
    assert state.start_offset == 0
    expected = {
        **dict.fromkeys((*range(1, 4), *range(6, 10), *range(14, 20)), (ACKNOWLEDGED, 1)),
        **dict.fromkeys((4, 10, 11), (ARCHIVED, 1)),
        5: (ACKNOWLEDGED, 2),
        13: (ARCHIVED, 2),
    }
    found = dict(by_offset(state.batches))
    for offset in (0, 12):  # the client may have had them a third time when it ended
        assert found.pop(offset) in ((AVAILABLE, 2), (AVAILABLE, 3))
    assert found == expected


def check_codecs(store: logstore.Store) -> None:
    """What the broker has written is what we write of the same."""
    kinds = []
    for record in store[SHARE_STATE_TOPIC][0].read():
        assert record.key is not None
        assert record.value is not None
        decoded = decode_share_key(record.key)
        assert decoded is not None
        assert encode_share_key(decoded.key, is_snapshot=decoded.is_snapshot) == record.key
        if decoded.is_snapshot:
            assert encode_share_snapshot(decode_share_snapshot(record.value)) == record.value
        else:
            assert encode_share_update(decode_share_update(record.value)) == record.value
        kinds.append(decoded.is_snapshot)
    assert len(set(kinds)) == 2, "snapshots and updates"


def alter(storage: ShareStorage, key: ShareKey, state: ShareState) -> None:
    """What lies below 12 is done, 14 and 15 wait again, and 12 was delivered a third time."""
    batches = combine(12, state.batches, (ShareBatch(14, 15, AVAILABLE, 1, LONG_AGO_MS),))
    storage.write_snapshot(key, state._replace(start_offset=12, batches=batches))
    storage.write_update(key, ShareChange(-1, (ShareBatch(12, 12, AVAILABLE, 3, LONG_AGO_MS),)))
