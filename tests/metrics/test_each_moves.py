"""Each metric of the table moves: work, damage and disk faults between them change all of them, but for those
that only nodes of clusters, and stores that copy others, have."""

from __future__ import annotations

import contextlib
import socket
import time

import pytest

import logstore
from logstore._version import DISTRIBUTION
from logstore.config import StoreConfig, TopicConfig
from logstore.connected import Sasl
from logstore.errors import CorruptionError, LogstoreError, StorageError, UsageError
from logstore.files import OsFiles
from logstore.metrics.declared import TABLE, Kind
from logstore.metrics.snapshot import Metrics
from logstore.testing import FAULTS, FaultyFiles, ManualClock
from tests.logdir.helpers import crash, flip_byte, log_files, run_python

SMALL = TopicConfig(segment_bytes=1000)
COMPACTED = TopicConfig(segment_bytes=1000, cleanup_policy="compact", min_cleanable_dirty_ratio=0.01)
ROWS = [(b"k%d" % number, b"v" * 50) for number in range(10)]


class World:
    """A store on a clock set by hand, and what has moved in its metrics since it was opened."""

    def __init__(self, path):
        self.path = path / "store"
        self.files = FaultyFiles(OsFiles())
        self.moved = set()
        self.open()

    def open(self, **settings):
        config = StoreConfig(linger_ms=0, log_cleaner_enable=False, **settings)
        self.clock = ManualClock()
        self.store = logstore.open(self.path, files=self.files, clock=self.clock, config=config)
        self.before = self.store.metrics()

    def look(self):
        after = self.store.metrics()
        for metric in TABLE:
            grown = after[metric.name]
            adds_up = after.histogram if metric.kind is Kind.HISTOGRAM else after.total
            found = adds_up(metric.name)
            if grown != self.before[metric.name] and (found.count if hasattr(found, "count") else found):
                self.moved.add(metric.name)
        return after


@pytest.fixture
def world(tmp_path):
    world = World(tmp_path)
    yield world
    world.files.heal()
    with contextlib.suppress(LogstoreError):
        world.store.close()


def work(world):
    store = world.store
    topic = store.create_topic("t", partitions=2, config=SMALL)
    for _ in range(3):
        topic[0].extend(ROWS)
    topic[0].delete_before(25)
    topic[0].truncate_to(28)
    compacted = store.create_topic("c", config=COMPACTED)[0]
    for number in range(4):
        compacted.extend([*ROWS, (b"only%d" % number, b"v")])
    world.look()  # something waits to be compacted
    store.compact(now=True)
    large = store.create_topic("l")[0]
    large.extend(ROWS * 200)
    large.record_at(100)
    with store.producer(acks=1) as producer, store.consumer("t", group="g") as consumer:
        for _, value in ROWS:
            producer.send("t", value, partition=1)
        assert store.metrics().total("logstore_producer_buffered_bytes") > 0
        world.look()
        producer.flush()
        with contextlib.suppress(LogstoreError):
            producer.send("nowhere", b"")
        while not consumer.poll(1, max_records=5):
            pass
        consumer.commit()
        world.look()
    store.quotas.set(client_id="held", producer_byte_rate=1)
    with store.producer(acks=1, client_id="held") as producer:
        producer.send("t", b"v", partition=1)
    store.quotas.remove(client_id="held")
    assert not store.metrics()["logstore_queue_workers"]  # no queue was used yet
    with store.queue("t", group="q") as queue:
        taken = len(queue.poll(0, max_jobs=3))
        found = world.look()
        assert found.total("logstore_queue_taken_jobs", group="q") == taken == 3
        assert found.total("logstore_queue_waiting_jobs") == store.queues()[0].waiting_count
    world.store.flush()
    world.look()


@contextlib.contextmanager
def turned_away(listener):
    """One client has the only place of a listener, and the next one is turned away."""
    host, port = listener.address.split(":")
    with socket.create_connection((host, int(port))):
        while not listener.connection_count:
            time.sleep(0.001)
        with socket.create_connection((host, int(port)), timeout=10) as other:
            assert other.recv(1) == b""
        yield


def log_in(listener, password):
    """Connect as alice."""
    return logstore.connect(
        listener.address, sasl=Sasl(username="alice", password=password, mechanism="PLAIN")
    )


def clients(world):
    """Of a listener: one with a wrong password, and one too many."""
    world.store.users.set_password("alice", "pw")
    with world.store.listen(sasl_enabled_mechanisms="PLAIN", max_connections=1) as listener:
        with pytest.raises(UsageError, match="refuses user"), log_in(listener, "wrong") as shop:
            shop.check()
        while listener.connection_count:
            time.sleep(0.001)
        with turned_away(listener):
            world.look()


def faults(world):
    log = world.store.create_topic("f")[0]
    world.files.fail(FAULTS["ENOSPC"], kinds=["write"], path=".log")
    with pytest.raises(StorageError):
        log.extend(ROWS)
    producer = world.store.producer(acks=1, retry_backoff_ms=10, delivery_timeout_ms=40_000)
    world.files.fail(FAULTS["ENOSPC"], kinds=["write"], path=".log", times=None)
    sent = producer.send("f", b"v")
    for _ in range(6):
        world.clock.advance(10_000)
        producer.run_due()
    with pytest.raises(LogstoreError):
        sent.result(0)
    world.files.heal()
    log.extend(ROWS)
    world.files.fail(FAULTS["failed flush"], kinds=["flush"], path=".log")
    world.clock.advance(10_000)
    world.store.run_background()
    assert log.needs_reopen
    world.look()


def damage(world):
    """The end of one log is torn, and what is below the recovery point of others is damaged."""
    topic = world.store.create_topic("d", partitions=4, config=TopicConfig(segment_bytes=1000))
    compacted = world.store.create_topic("e", config=COMPACTED)[0]
    for log in [*topic, compacted]:
        for _ in range(5):
            log.extend(ROWS)
    world.store.checkpoint()
    topic[0].extend(ROWS)
    paths = [log_files(log.directory) for log in [*topic, compacted]]
    crash(world.store)
    with open(paths[0][-1], "ab") as file:
        file.write(bytes(30))
    flip_byte(paths[3][-1], 70)
    for number in (1, 4):
        flip_byte(paths[number][1], 80)
    world.open(scrub_interval_ms=20_000, scrub_bytes_per_second=10**9)
    world.before = Metrics("", 0, {}, ())  # what opening has found counts, too
    with pytest.raises(CorruptionError):
        list(world.store["d"][1])
    with pytest.raises(CorruptionError):
        world.store["e"][0].compact(now=True)
    for _ in range(30):
        world.clock.advance(1000)
        world.store.run_background()
    return world.look()


@pytest.mark.damaged
def test_each_metric_moves(world, tmp_path):
    work(world)
    clients(world)
    faults(world)
    with contextlib.suppress(LogstoreError):
        world.store.close()
    world.path = tmp_path / "other"
    world.open()
    damage(world)
    others = ("logstore_replica_", "logstore_standby_")
    alone = {metric.name for metric in TABLE if not metric.name.startswith(others)}
    assert alone - world.moved == set()


@pytest.mark.damaged
def test_what_is_damaged_is_named_and_the_rest_is_there(world):
    found = damage(world)
    assert found.total("logstore_damaged_partitions") == len(world.store.damaged)
    for partition in world.store.damaged:
        assert any(str(partition) in said for said in found.incomplete)
    assert found["logstore_log_end_offset"]["d", 2] == 50
    assert found.total("logstore_log_damaged_reads", topic="d") == 1
    assert found["logstore_log_compaction_failures"]["e", 0] == 1
    assert set(world.store.damage_found) == {("d", 1), ("e", 0)}
    assert found.total("logstore_partitions_with_damage") == 2


def test_a_full_disk_is_counted_and_the_store_goes_on(world):
    log = world.store.create_topic("f")[0]
    world.files.fail(FAULTS["ENOSPC"], kinds=["write"], path=".log", times=3)
    for _ in range(3):
        with pytest.raises(StorageError):
            log.extend(ROWS)
    log.extend(ROWS)
    found = world.store.metrics()
    assert found.total("logstore_log_write_failures") == 3
    assert found.total("logstore_log_appended_records") == len(ROWS)
    assert found.histogram("logstore_write_seconds").count == 1
    assert found.incomplete == ()


# The table


def test_names_units_and_kinds_fit_each_other():
    assert len({metric.name for metric in TABLE}) == len(TABLE)
    for metric in TABLE:
        assert metric.name.endswith("_seconds") == (metric.unit == "s"), metric
        assert metric.name.endswith("_bytes") == (metric.unit == "By"), metric
        assert bool(metric.bounds) == (metric.kind is Kind.HISTOGRAM), metric
        assert metric.description.endswith("."), metric
        assert not metric.name.endswith("_total"), metric


def test_wrong_questions_are_answered_with_the_right_ones(world):
    found = world.store.metrics()
    with pytest.raises(UsageError, match="logstore_topics"):
        found.total("logstore_topic")
    with pytest.raises(UsageError, match="has no label 'group'; it has topic, partition"):
        found.total("logstore_log_end_offset", group="g")
    with pytest.raises(UsageError, match="is a histogram"):
        found.total("logstore_write_seconds")
    with pytest.raises(UsageError, match="is a gauge"):
        found.histogram("logstore_topics")
    with pytest.raises(KeyError):
        found["logstore_nothing"]


# Libraries


@pytest.mark.parametrize(
    ("module", "library"),
    [("prometheus", "prometheus_client"), ("opentelemetry", "opentelemetry.metrics")],
)
def test_a_library_that_is_missing_is_named_with_its_extra(module, library):
    printed = run_python(
        f"""
        import sys

        sys.modules[{library!r}] = None
        import logstore.metrics.reading  # needs neither
        try:
            import logstore.metrics.{module}
        except ImportError as error:
            print(error)
        """
    )
    assert library in printed
    assert f"pip install '{DISTRIBUTION}[{module}]'" in printed
