"""Logs that logstore wrote and compacted, under a stock broker: its tools find no fault, clients read from it
what logstore reads, its producers and its own cleaner go on.

The broker starts uncleanly. Of the partitions that we closed it is told where the end is: of those it takes
sealed segments, which is what compaction wrote, as they are, with our indexes, snapshots and transaction
indexes. All the others it checks and rebuilds by itself; among them are some as they were while compaction
was under way.
"""

from __future__ import annotations

import functools
import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import logstore
from logstore import Log, TopicConfig
from logstore.format.compression import Codec
from logstore.model import Isolation, ProducerIdentity
from logstore.testing import ManualClock
from tests.interop import clients
from tests.interop.cleaned import check_round, left_in
from tests.interop.cleaner_rounds import CLEANABLE, CLEANER_OFFSETS_FILE, clean, load_round
from tests.interop.clients import OUT_OF_ORDER_SEQUENCE, NewRecord, Produced
from tests.interop.compacted_scripts import (
    CLOSED,
    CONFIG,
    IDLE,
    IDLE_COUNT,
    KILLED,
    LEFT,
    RETENTION_MS,
    TOPICS,
    Compacted,
    write_compacted,
)
from tests.interop.dump import DumpError, dump_log
from tests.interop.fixtures import decode_record, load_case
from tests.interop.kafka import (
    OLD,
    RECOVERY_POINT_FILE,
    KafkaBroker,
    read_checkpoint,
    require_kafka,
    run_program,
    write_checkpoint,
)
from tests.interop.ours import TIME_MS, as_record, encode
from tests.rotation import in_turn

pytestmark = pytest.mark.interop

LEGACY = ("legacy-mixed", "legacy-v0-gzip", "legacy-v0-none", "legacy-v1-lz4", "legacy-v1-none")
"""Logs of old formats, that the broker serves too: both cleaners begin with the same."""

Topics = dict[str, list[Compacted]]


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> Topics:
    require_kafka()
    return write_compacted(tmp_path_factory.mktemp("ours"))


def settings_of(topics: Topics, topic: str) -> dict[str, object]:
    config = topics[topic][CLOSED].config if topic in topics else CONFIG
    return {
        **CLEANABLE,
        "delete.retention.ms": config.delete_retention_ms,
        "message.timestamp.type": config.message_timestamp_type,
    }


@pytest.fixture
def broker(topics: Topics, tmp_path: Path) -> Iterator[KafkaBroker]:
    """Serves every directory, without compacting so far. An old one: from 4.0 on no segment of a topic may
    be smaller than 1 MiB."""
    running = KafkaBroker(tmp_path / "kafka", config={"log.cleaner.backoff.ms": 50}, version=OLD)
    with running:
        counts = {topic: len(partitions) for topic, partitions in topics.items()} | dict.fromkeys(LEGACY, 1)
        running.create_topics(counts, {topic: settings_of(topics, topic) for topic in counts})
        assert running.stop()
        for topic, partitions in topics.items():
            for number, each in enumerate(partitions):
                running.place_partition(topic, number, each.directory)
        for topic in LEGACY:
            running.place_partition(topic, 0, load_case(topic).partitions[0].directory)
        for name in (RECOVERY_POINT_FILE, CLEANER_OFFSETS_FILE):
            entries = read_checkpoint(running.log_dir / name)
            for topic in TOPICS:
                entries |= read_checkpoint(topics[topic][CLOSED].directory / name)
            write_checkpoint(running.log_dir / name, entries)
        running.start()
        yield running


# --- the tool -------------------------------------------------------------------------------------


def test_the_tool_accepts_every_file(topics: Topics) -> None:
    """Batches, records, and both kinds of index against them; transaction indexes and snapshots."""
    directories = [partitions[CLOSED].directory for topic, partitions in topics.items() if topic in TOPICS]
    directories.append(topics[KILLED][-1].directory)
    dumped = dump_log(directories, allow_gaps=True, allow_emptied=True)
    kinds = {path.suffix for path in dumped}
    assert kinds == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}
    for directory, partition in zip(
        directories, [*(topics[t][CLOSED] for t in TOPICS), topics[KILLED][-1]], strict=True
    ):
        found = [
            record.offset
            for path in sorted(directory.glob("*.log"))
            for record in dumped[path].records
            if "endTxnMarker" not in record.text
        ]
        assert found == [record.offset for record in partition.records]
    entries = [entry for path, file in dumped.items() if path.suffix == ".index" for entry in file.entries]
    assert len(entries) > 50


@pytest.mark.parametrize(
    ("topic", "decoder"),
    [("__consumer_offsets", "--offsets-decoder"), ("__transaction_state", "--transaction-log-decoder")],
)
def test_the_tool_decodes_internal_topics_that_we_compacted(topic: str, decoder: str, tmp_path: Path) -> None:
    require_kafka()
    [partition] = [each for each in load_case("internal-topics").partitions if each.topic == topic]
    directory = Path(shutil.copytree(partition.directory, tmp_path / partition.directory.name))
    config = TopicConfig(cleanup_policy="compact")
    with Log.open(str(directory), config=config, clock=ManualClock(TIME_MS)) as log:
        assert log.compact(now=True).saved_bytes > 0
        records = list(log.read())
    latest = {record.key: record.offset for record in partition.records}
    assert [record.offset for record in records] == sorted(latest.values())
    dumped = dump_log(directory, allow_gaps=True, decoder=decoder)
    listed = [record for file in dumped.values() for record in file.records]
    assert [record.offset for record in listed] == [record.offset for record in records]
    assert all("key: " in record.text for record in listed)


# --- the broker -----------------------------------------------------------------------------------


@in_turn(3, 8)
def test_a_broker_serves_what_we_compacted_and_goes_on(
    topics: Topics, broker: KafkaBroker, tmp_path: Path
) -> None:
    """In one test, for the broker's sake: where the suite runs in parallel, each would start its own."""
    check_clients_read_what_we_read(topics, broker)
    check_reading_begins_anywhere_in_a_cleaned_segment(topics, broker)
    check_the_broker_finds_no_fault(topics, broker)
    check_a_producer_whose_last_batch_was_emptied_goes_on(topics, broker)
    check_the_brokers_cleaner_goes_on_and_does_as_we_do(topics, broker, tmp_path)
    check_we_go_on_where_the_broker_stops(broker, tmp_path)


# --- what clients read ----------------------------------------------------------------------------


def check_clients_read_what_we_read(topics: Topics, broker: KafkaBroker) -> None:
    views = read_all(broker, topics)
    for topic, partitions in topics.items():
        for number, each in enumerate(partitions):
            at = f"{topic}-{number}"
            everything, committed = views[at]["read_uncommitted"], views[at]["read_committed"]
            assert everything["records"] == list(each.records), at
            assert [as_record(record) for record in committed["records"]] == list(each.committed), at
            assert everything["end"] == each.log_end_offset, at
            assert committed["end"] == each.last_stable_offset, at
    for topic in TOPICS:
        assert topics[topic][CLOSED].records == topics[topic][LEFT].records


def read_all(broker: KafkaBroker, topics: Topics) -> dict[str, Any]:
    """What Kafka's own consumer sees: partition -> isolation level -> start, end and records."""
    words = [
        word
        for topic, partitions in topics.items()
        for number in range(len(partitions))
        for word in (topic, str(number))
    ]
    views: dict[str, Any] = json.loads(run_program("Reader.java", broker.bootstrap, *words, version=OLD))
    for levels in views.values():
        for view in levels.values():
            view["records"] = [decode_record(each) for each in view["records"]]
    return views


def check_reading_begins_anywhere_in_a_cleaned_segment(topics: Topics, broker: KafkaBroker) -> None:
    """By our indexes, at offsets that are there and at ones that are gone."""
    for topic in ("one-segment", "codec-zstd"):
        records = topics[topic][CLOSED].records
        for offset in range(0, records[-1].offset, records[-1].offset // 5):
            wanted = [record for record in records if record.offset >= offset]
            assert clients.consume(broker.bootstrap, topic, from_offset=offset) == wanted
        for record in records[:: len(records) // 3]:
            wanted_offset = next(each.offset for each in records if each.timestamp_ms >= record.timestamp_ms)
            assert clients.offset_for_time(broker.bootstrap, topic, record.timestamp_ms) == wanted_offset


def check_the_broker_finds_no_fault(topics: Topics, broker: KafkaBroker) -> None:
    log = broker.log_file.read_text(errors="replace")
    names = [f"{topic}-{number}" for topic, partitions in topics.items() for number in range(len(partitions))]
    named = re.compile(rf"(?<![\w.-])({'|'.join(map(re.escape, names))})(?![\w.-])")
    complaints = re.compile(r"\] (WARN|ERROR|FATAL) ")
    assert [line for line in log.splitlines() if complaints.search(line) and named.search(line)] == []
    assert "interrupted swap" in log  # it has finished what we were killed in


# --- what goes on ---------------------------------------------------------------------------------


def check_a_producer_whose_last_batch_was_emptied_goes_on(topics: Topics, broker: KafkaBroker) -> None:
    """The broker knows the sequence from the empty batch, or from the snapshot, alone."""
    for number, partition in enumerate(topics["producers"]):
        [last] = [batch for batch in left_in(partition.directory).emptied if batch.producer_id == IDLE]

        send = functools.partial(send_as_idle, broker, number)
        assert send(IDLE_COUNT + 1).error_code == OUT_OF_ORDER_SEQUENCE
        assert send(IDLE_COUNT - 3) == Produced(0, last.base_offset)  # it has that one
        assert send(IDLE_COUNT) == Produced(0, partition.log_end_offset)
        assert send(IDLE_COUNT) == Produced(0, partition.log_end_offset)


def send_as_idle(broker: KafkaBroker, partition: int, sequence: int) -> Produced:
    """A batch of three."""
    records = [NewRecord(b"of the idle", b"value", timestamp_ms=TIME_MS)] * 3
    batch = encode(records, Codec.NONE, ProducerIdentity(IDLE, 0, sequence))
    return clients.produce_batch(broker.bootstrap, "producers", bytes(batch), partition=partition)


def check_the_brokers_cleaner_goes_on_and_does_as_we_do(
    topics: Topics, broker: KafkaBroker, tmp_path: Path
) -> None:
    """After clients have appended, it cleans what we have cleaned; and we clean a copy."""
    names = [topic for topic in (*TOPICS, *LEGACY) if topic != "nothing-left"]
    for topic in names:
        key = b"key-%d" if topic in LEGACY else b"%d"
        batches = [
            [NewRecord(key % ((turn * 3 + n) % 8), b"theirs" * 20) for n in range(4)] for turn in range(6)
        ]
        clients.produce(broker.bootstrap, topic, batches)
    committed, aborted = [NewRecord(b"1", b"committed" * 100)], [NewRecord(b"2", b"aborted" * 100)]
    clients.produce_transactions(
        broker.bootstrap, "transactions", [(committed, True), (aborted, False)] * 2, transactional_id="theirs"
    )
    clean(broker, {topic: settings_of(topics, topic) for topic in names}, tmp_path / "round")
    for topic, round_ in load_round(tmp_path / "round").items():
        check_round(round_, tmp_path / f"ours-{topic}", is_legacy=topic in LEGACY)
        seen = clients.consume(broker.bootstrap, topic)
        assert tuple(seen) == left_in(round_.after).records
        is_held_up = topic == "open-transaction"
        assert is_held_up or len(seen) < len(left_in(round_.before).records)
    assert "Uncleanable" not in broker.log_file.read_text(errors="replace")


def check_we_go_on_where_the_broker_stops(broker: KafkaBroker, tmp_path: Path) -> None:
    """The last step: it stops the broker. Its log directory opens as a store, which compacts everything."""
    seen = {topic: clients.consume(broker.bootstrap, topic, isolation="read_committed") for topic in TOPICS}
    assert broker.stop()
    with pytest.raises(DumpError, match="log timestamp: -1"):  # what we may leave, theirs leaves too
        dump_log(broker.partition_dir("producers"), allow_gaps=True)
    dump_log(broker.partition_dir("producers"), allow_gaps=True, allow_emptied=True)
    path = shutil.copytree(broker.log_dir, tmp_path / "log-dir", ignore=shutil.ignore_patterns(".lock"))
    with logstore.open(path, config=logstore.StoreConfig(log_cleaner_enable=False)) as store:
        assert store.was_clean
        for topic, records in seen.items():
            log = store[topic][CLOSED]
            assert list(log.read(isolation=Isolation.COMMITTED)) == [as_record(record) for record in records]
            log.reconfigure(
                log.config.with_settings(cleanup_policy="compact", delete_retention_ms=RETENTION_MS)
            )
            log.compact(now=True)
            left = list(log.read(isolation=Isolation.COMMITTED))
            assert {record.key for record in left} <= {record.key for record in records}
            assert log.verify()
