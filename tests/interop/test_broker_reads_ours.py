"""Partitions that logstore wrote, under a stock broker: clients read from it what we wrote, and what the
broker adds we read again.

The broker starts uncleanly, so it checks every batch of the placed partitions and rebuilds their indexes,
aborted transactions and producers by itself.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import logstore
from logstore.format.checkpoint import decode_epoch_checkpoint
from logstore.format.snapshot import decode_snapshot
from logstore.model import Isolation
from logstore.testing import ManualClock
from tests.interop import clients
from tests.interop.clients import NewRecord, SeenRecord
from tests.interop.dump import dump_log
from tests.interop.kafka import (
    CLEAN_SHUTDOWN_FILE,
    RECOVERY_POINT_FILE,
    KafkaBroker,
    read_checkpoint,
    require_kafka,
    write_checkpoint,
)
from tests.interop.ours import (
    TIME_MS,
    Written,
    add_checkpoints,
    as_records,
    first_at_or_after,
    numbered,
    open_ours,
    seen_in,
)
from tests.interop.scripts import CLOSED, CRASHED, RECOVERED, TOPICS, write_topics

pytestmark = pytest.mark.interop

every_topic = pytest.mark.parametrize("topic", TOPICS)
every_variant = pytest.mark.parametrize(
    "variant", [CLOSED, RECOVERED, CRASHED], ids=["closed", "recovered", "crashed"]
)

CONTINUED = (
    "transactions",
    "open-transaction",
    "codec-zstd",
    "epochs",
    "high-offsets",
    "idempotent",
    "segments",
)
"""Topics to which clients of the broker append, the first two with transactions too."""

TRUSTED = (
    "append-time",
    "deleted",
    "epochs",
    "high-offsets",
    "idempotent",
    "segments",
    "segments-indexed",
    "transactions-segments",
    "truncated",
)
"""Topics that the broker also loads as if it had closed them."""


@pytest.fixture(scope="module")
def topics(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Written]:
    require_kafka()
    return write_topics(tmp_path_factory.mktemp("ours"))


@pytest.fixture(scope="module")
def module_broker(
    topics: dict[str, Written], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[KafkaBroker]:
    """A broker that serves every topic, with our three directories as partitions."""
    with KafkaBroker(tmp_path_factory.mktemp("kafka")) as running:
        serve(running, topics)
        yield running


def serve(broker: KafkaBroker, topics: dict[str, Written]) -> None:
    for written in topics.values():
        broker.create_topic(written.topic, partitions=len(written.directories))
    assert broker.stop()
    for written in topics.values():
        for partition, directory in enumerate(written.directories):
            broker.place_partition(
                written.topic, partition, directory, log_start_offset=written.log_start_offset or None
            )
    broker.start(unclean=True)


@pytest.fixture
def broker(module_broker: KafkaBroker) -> KafkaBroker:
    """The broker, running whatever the test before did."""
    if not module_broker.is_running:
        module_broker.start()
    return module_broker


# --- what clients read ----------------------------------------------------------------------------


@every_topic
@every_variant
def test_a_client_reads_what_we_wrote(
    topics: dict[str, Written], broker: KafkaBroker, topic: str, variant: int
) -> None:
    seen = clients.consume(broker.bootstrap, topic, partition=variant)
    assert seen == list(topics[topic].records)


@pytest.mark.parametrize("topic", ["transactions", "transactions-segments", "open-transaction"])
@every_variant
def test_read_committed_leaves_out_what_was_aborted(
    topics: dict[str, Written], broker: KafkaBroker, topic: str, variant: int
) -> None:
    seen = clients.consume(broker.bootstrap, topic, partition=variant, isolation="read_committed")
    assert seen == list(topics[topic].committed)
    assert 0 < len(seen) < len(topics[topic].records)


@every_topic
def test_the_broker_begins_and_ends_a_log_where_we_do(
    topics: dict[str, Written], broker: KafkaBroker, topic: str
) -> None:
    written = topics[topic]
    start, end = clients.offset_range(broker.bootstrap, topic, partition=CRASHED)
    _, stable = clients.offset_range(broker.bootstrap, topic, partition=CRASHED, isolation="read_committed")
    assert (start, end, stable) == (
        written.log_start_offset,
        written.log_end_offset,
        written.last_stable_offset,
    )


@pytest.mark.parametrize("topic", ["append-time", "codec-gzip", "deleted", "high-offsets", "segments"])
def test_the_broker_finds_the_times_that_we_find(
    topics: dict[str, Written], broker: KafkaBroker, topic: str
) -> None:
    written = topics[topic]
    stamps = sorted({record.timestamp_ms for record in written.records})
    with open_ours(written.directories[CLOSED], written.config) as log:
        for timestamp_ms in (stamps[len(stamps) // 2], stamps[-1] - 1, stamps[-1] + 1):
            found = log.find_timestamp(timestamp_ms)
            theirs = clients.offset_for_time(broker.bootstrap, topic, timestamp_ms, partition=RECOVERED)
            assert theirs == (None if found is None else found.offset)
            assert theirs == first_at_or_after(written.records, timestamp_ms)


def test_for_times_a_marker_counts_as_a_record_with_the_broker_but_not_with_us(
    topics: dict[str, Written], broker: KafkaBroker
) -> None:
    """The markers were written a minute after every record's timestamp. No reader is shown one."""
    written = topics["transactions"]
    last = max(record.timestamp_ms for record in written.records)
    first_marker = written.aborted[0].last_offset
    assert clients.offset_for_time(broker.bootstrap, "transactions", last) == first_marker
    with open_ours(written.directories[CLOSED]) as log:
        assert log.offset_at(last) == first_at_or_after(written.records, last)
        assert log.offset_at(last + 1) is None


@every_topic
@every_variant
def test_the_broker_finds_no_fault_but_the_torn_end(
    topics: dict[str, Written], broker: KafkaBroker, topic: str, variant: int
) -> None:
    complaints = complaints_about(broker, f"{topic}-{variant}")
    if variant == CRASHED:
        assert len(complaints) == 1
        assert f"truncating to offset {topics[topic].log_end_offset} " in complaints[0]
    else:
        assert complaints == []


def complaints_about(broker: KafkaBroker, partition: str) -> list[str]:
    name = re.compile(rf"(?<![\w.-]){re.escape(partition)}(?![\w.-])")
    lines = broker.log_file.read_text(errors="replace").splitlines()
    complaints = [line for line in lines if re.search(r"\] (WARN|ERROR|FATAL) ", line) and name.search(line)]
    # The rig places a partition without its high watermark, which 4.x then mentions.
    return [line for line in complaints if "Non-monotonic update of high watermark" not in line]


# --- a broker that trusts us ----------------------------------------------------------------------


@pytest.fixture(scope="module")
def trusting_broker(topics: dict[str, Written], module_broker: KafkaBroker) -> KafkaBroker:
    """The broker, serving the closed directories as `trusted-<topic>` after a start that looks clean: it uses
    our indexes, snapshots and transaction indexes as they are."""
    if not module_broker.is_running:
        module_broker.start()
    for topic in TRUSTED:
        module_broker.create_topic(f"trusted-{topic}")
    assert module_broker.stop()
    marker = (module_broker.log_dir / CLEAN_SHUTDOWN_FILE).read_bytes()
    for topic in TRUSTED:
        written = topics[topic]
        module_broker.place_partition(
            f"trusted-{topic}",
            0,
            written.directories[CLOSED],
            log_start_offset=written.log_start_offset or None,
        )
    checkpoint = module_broker.log_dir / RECOVERY_POINT_FILE
    ends = {(f"trusted-{topic}", 0): topics[topic].log_end_offset for topic in TRUSTED}
    write_checkpoint(checkpoint, read_checkpoint(checkpoint) | ends)
    (module_broker.log_dir / CLEAN_SHUTDOWN_FILE).write_bytes(marker)
    module_broker.start()
    return module_broker


@pytest.mark.parametrize("topic", TRUSTED)
def test_our_indexes_and_snapshots_serve_a_broker(
    topics: dict[str, Written], trusting_broker: KafkaBroker, topic: str
) -> None:
    written, trusted = topics[topic], f"trusted-{topic}"
    bootstrap = trusting_broker.bootstrap
    assert clients.consume(bootstrap, trusted) == list(written.records)
    assert clients.consume(bootstrap, trusted, isolation="read_committed") == list(written.committed)
    start, stable = clients.offset_range(bootstrap, trusted, isolation="read_committed")
    assert (start, stable) == (written.log_start_offset, written.last_stable_offset)
    for record in (written.records[len(written.records) * 2 // 3], written.records[-1]):
        assert clients.consume(bootstrap, trusted, from_offset=record.offset)[0] == record
        if not written.aborted:
            wanted = first_at_or_after(written.records, record.timestamp_ms)
            assert clients.offset_for_time(bootstrap, trusted, record.timestamp_ms) == wanted
    assert complaints_about(trusting_broker, f"{trusted}-0") == []
    loaded = trusting_broker.log_file.read_text(errors="replace")
    assert f"recovered for {trusted}-0" not in loaded


# --- what the broker leaves -----------------------------------------------------------------------


@dataclass(frozen=True)
class Returned:
    """A partition directory of the broker after it stopped cleanly, and what clients had seen of it."""

    directory: Path
    records: tuple[SeenRecord, ...]
    committed: tuple[SeenRecord, ...]
    log_start_offset: int
    log_end_offset: int
    last_stable_offset: int

    def copy(self, target: Path, *, is_clean: bool) -> Path:
        """A copy to open, with the checkpoints that the broker had for it, if it is to look closed; without
        those that were ours."""
        ours = shutil.ignore_patterns("*-offset-checkpoint", CLEAN_SHUTDOWN_FILE)
        directory = Path(shutil.copytree(self.directory, target / self.directory.name, ignore=ours))
        add_checkpoints(directory, self.log_start_offset, self.log_end_offset if is_clean else None)
        return directory


Partitions = dict[tuple[str, int], Returned]


@pytest.fixture(scope="module")
def returned(
    topics: dict[str, Written], module_broker: KafkaBroker, tmp_path_factory: pytest.TempPathFactory
) -> Partitions:
    """Every partition, by topic and variant, after clients appended to the first partition of some topics."""
    if not module_broker.is_running:
        module_broker.start()
    append_as_clients(module_broker)
    found = {(topic, CLOSED): as_clients_see(module_broker, topic) for topic in CONTINUED}
    for written in topics.values():
        for variant in (CLOSED, RECOVERED, CRASHED):
            found.setdefault((written.topic, variant), as_written(module_broker, written, variant))
    assert module_broker.stop()
    return found


def append_as_clients(broker: KafkaBroker) -> None:
    """Two batches to each, and two transactions to the topics that have some."""
    for topic in CONTINUED:
        batches = [numbered("theirs", range(n, n + 20)) for n in (1_000, 2_000)]
        clients.produce(broker.bootstrap, topic, batches, codec="gzip")
    committed, aborted = [NewRecord(b"k", b"their commit")], [NewRecord(b"k", b"their abort")]
    for topic in CONTINUED[:2]:
        clients.produce_transactions(
            broker.bootstrap, topic, [(committed, True), (aborted, False)], transactional_id=f"theirs-{topic}"
        )


def as_clients_see(broker: KafkaBroker, topic: str) -> Returned:
    start, end = clients.offset_range(broker.bootstrap, topic)
    _, stable = clients.offset_range(broker.bootstrap, topic, isolation="read_committed")
    return Returned(
        directory=broker.partition_dir(topic),
        records=tuple(clients.consume(broker.bootstrap, topic)),
        committed=tuple(clients.consume(broker.bootstrap, topic, isolation="read_committed")),
        log_start_offset=start,
        log_end_offset=end,
        last_stable_offset=stable,
    )


def as_written(broker: KafkaBroker, written: Written, variant: int) -> Returned:
    return Returned(
        directory=broker.partition_dir(written.topic, variant),
        records=written.records,
        committed=written.committed,
        log_start_offset=written.log_start_offset,
        log_end_offset=written.log_end_offset,
        last_stable_offset=written.last_stable_offset,
    )


@every_topic
@every_variant
@pytest.mark.parametrize("is_clean", [False, True], ids=["unclean", "clean"])
def test_we_read_what_the_broker_leaves(
    topics: dict[str, Written], returned: Partitions, topic: str, variant: int, is_clean: bool, tmp_path: Path
) -> None:
    partition = returned[topic, variant]
    with open_ours(partition.copy(tmp_path, is_clean=is_clean), topics[topic].config) as log:
        assert log.recovery.was_clean == is_clean
        assert seen_in(log) == list(partition.records)
        assert list(log.read(isolation=Isolation.COMMITTED)) == as_records(partition.committed)
        assert (log.log_start_offset, log.log_end_offset, log.last_stable_offset) == (
            partition.log_start_offset,
            partition.log_end_offset,
            partition.last_stable_offset,
        )


def test_the_brokers_log_directory_opens_as_a_store(
    topics: dict[str, Written], returned: Partitions, tmp_path: Path
) -> None:
    log_dir = returned["segments", CLOSED].directory.parent
    path = shutil.copytree(log_dir, tmp_path / "log-dir", ignore=shutil.ignore_patterns(".lock"))
    for is_read_only in (True, False):
        with logstore.open(path, read_only=is_read_only, clock=ManualClock(TIME_MS)) as store:
            assert store.was_clean
            assert not store.damaged
            assert set(topics) < set(store)
            for (topic, variant), partition in returned.items():
                log = store[topic][variant]
                assert list(log.read()) == as_records(partition.records)
                assert log.log_start_offset == partition.log_start_offset
                assert log.last_stable_offset == partition.last_stable_offset


@every_variant
@pytest.mark.parametrize("topic", ["open-transaction", "transactions", "transactions-segments"])
def test_the_broker_rebuilds_the_aborted_transactions_that_we_stored(
    topics: dict[str, Written], returned: Partitions, topic: str, variant: int
) -> None:
    ours = contents(topics[topic].directories[CLOSED], "*.txnindex")
    assert ours
    theirs = contents(returned[topic, variant].directory, "*.txnindex")
    assert {name: theirs[name][: len(content)] for name, content in ours.items()} == ours


def contents(directory: Path, pattern: str) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(directory.glob(pattern))}


@pytest.mark.parametrize("topic", sorted(set(TOPICS) - {"empty"}))
@pytest.mark.parametrize("variant", [RECOVERED, CRASHED], ids=["recovered", "crashed"])
def test_the_broker_ends_with_the_producers_that_we_stored(
    topics: dict[str, Written], returned: Partitions, topic: str, variant: int
) -> None:
    """But for those that have nothing in its last segment: it judges by the age of their records."""
    name = f"{topics[topic].log_end_offset:020d}.snapshot"
    ours, theirs = topics[topic].directories[CLOSED], returned[topic, variant].directory
    last_base = max(int(path.stem) for path in theirs.glob("*.log"))
    stored = decode_snapshot((ours / name).read_bytes())
    kept = [entry for entry in stored if entry.last_offset >= last_base]
    assert sorted(decode_snapshot((theirs / name).read_bytes())) == sorted(kept)


@every_variant
@pytest.mark.parametrize("topic", ["epochs", "replicated"])
def test_our_leader_epochs_survive_the_broker(
    topics: dict[str, Written], returned: Partitions, topic: str, variant: int
) -> None:
    stored = (returned[topic, variant].directory / "leader-epoch-checkpoint").read_bytes()
    ours = topics[topic].epochs
    assert tuple(decode_epoch_checkpoint(stored))[: len(ours)] == ours


@pytest.mark.parametrize("topic", CONTINUED)
def test_a_partition_that_was_ours_alone_is_ours_again(
    topics: dict[str, Written], returned: Partitions, topic: str, tmp_path: Path
) -> None:
    """It still has the checkpoints and the clean marker that we left in it, and the broker has appended."""
    partition = returned[topic, CLOSED]
    directory = shutil.copytree(partition.directory, tmp_path / partition.directory.name)
    assert (directory / CLEAN_SHUTDOWN_FILE).exists()
    with open_ours(directory, topics[topic].config) as log:
        assert not log.recovery.was_clean
        assert seen_in(log) == list(partition.records)
        assert list(log.read(isolation=Isolation.COMMITTED)) == as_records(partition.committed)
        assert log.last_stable_offset == partition.last_stable_offset


def test_the_tool_accepts_a_log_that_we_and_the_broker_wrote_in_turns(
    topics: dict[str, Written], returned: Partitions, tmp_path: Path
) -> None:
    directories = []
    for topic in CONTINUED:
        directory = returned[topic, CLOSED].copy(tmp_path, is_clean=True)
        with open_ours(directory, topics[topic].config) as log:
            end = log.log_end_offset
            log.extend((each.key, each.value, each.timestamp_ms) for each in numbered("ours again", range(5)))
            assert [record.offset for record in log.read(end)] == list(range(end, end + 5))
        directories.append(directory)
    dumped = dump_log(directories)
    assert len(dumped) >= 3 * len(CONTINUED)
