"""Handing topics over, to directories that a broker has made and to stores."""

from __future__ import annotations

import shutil
import threading
from pathlib import Path

import pytest

import logstore
from logstore import (
    CorruptionError,
    Isolation,
    NewRecord,
    ProducerIdentity,
    Record,
    StoreConfig,
    TopicConfig,
)
from logstore.__main__ import main
from logstore.errors import DiskFullError, LockedError, StorageError, UnknownTopicError, UsageError
from logstore.exchange.staging import Stager
from logstore.files import OsFiles
from logstore.format.checkpoint import (
    decode_epoch_checkpoint,
    decode_offset_checkpoint,
    encode_offset_checkpoint,
)
from logstore.format.snapshot import decode_snapshot
from logstore.logdir.cluster import read_cluster_topics
from logstore.model import TopicPartition
from logstore.testing import FaultyFiles
from tests.exchange.brokers import BROKER, make_broker

KEEP = TopicConfig(retention_ms=-1, segment_bytes=2_000)
QUIET = StoreConfig(topic=KEEP, log_cleaner_enable=False)


def make_store(path: Path, **partitions: int) -> Path:
    """Topics with some segments in each partition."""
    with logstore.open(path, config=QUIET) as store:
        for name, count in partitions.items():
            for log in store.create_topic(name, partitions=count):
                for turn in range(10):
                    log.extend([(b"%d" % n, b"%d of %d" % (n, turn) * 10) for n in range(5)])
    return path


def contents(path: Path, topic: str) -> list[list[Record]]:
    with logstore.open(path, read_only=True) as store:
        return [list(log.read()) for log in store[topic]]


def listed(path: Path) -> dict[str, bytes]:
    found = {str(each.relative_to(path)): each for each in path.rglob("*") if each.is_file()}
    return {name: each.read_bytes() for name, each in found.items() if each.name != ".lock"}


def checkpoint(path: Path, kind: str) -> dict[TopicPartition, int]:
    return decode_offset_checkpoint((path / f"{kind}-offset-checkpoint").read_bytes())


# --- to a broker ----------------------------------------------------------------------------------


def test_a_broker_is_given_the_records_under_its_own_ids_and_checkpoints(tmp_path):
    source = make_store(tmp_path / "store", plain=3, kept=1)
    with logstore.open(source, config=QUIET) as store:
        store["plain"][1].delete_before(23)
        starts = [log.log_start_offset for log in store["plain"]]
    broker = make_broker(tmp_path / "broker")
    identity = (broker / "plain-1" / "partition.metadata").read_bytes()
    others = TopicPartition("compacted", 0)
    (broker / "log-start-offset-checkpoint").write_bytes(encode_offset_checkpoint({others: 0}))
    before = listed(source)
    report = logstore.handover(source, broker, topics=["plain"], accept_settings=True)
    assert report.is_to_broker
    assert [each.log_start_offset for each in report.partitions] == starts == [0, 23, 0]
    assert listed(source) == before
    assert (broker / "plain-1" / "partition.metadata").read_bytes() == identity
    assert checkpoint(broker, "log-start") == {others: 0, TopicPartition("plain", 1): 23}
    ends = {TopicPartition("plain", number): 50 for number in range(3)}
    assert checkpoint(broker, "recovery-point") == {**ends, others: 0, TopicPartition("kept", 0): 0}
    assert checkpoint(broker, "replication") == checkpoint(broker, "recovery-point")
    assert not [name for name in listed(broker) if "stray" in name or "handover" in name]
    assert (broker / ".kafka_cleanshutdown").exists()
    assert contents(broker, "plain") == contents(source, "plain")
    assert contents(broker, "kept") == [[]]


def hand_over_twice(source, broker):
    """What the broker has then; the second call changes nothing."""
    logstore.handover(source, broker, accept_settings=True)
    before = listed(broker)
    again = logstore.handover(source, broker, accept_settings=True)
    assert [each.was_placed for each in again.partitions] == [True]
    assert listed(broker) == before
    return before


def test_what_is_there_already_is_never_replaced(tmp_path):
    source = make_store(tmp_path / "store", kept=1)
    broker = make_broker(tmp_path / "broker")
    before = hand_over_twice(source, broker)
    other = make_store(tmp_path / "other", kept=1)
    with pytest.raises(UsageError, match=r"kept-0 has records in the target .*hand over to an empty topic"):
        logstore.handover(other, broker, accept_settings=True)
    assert listed(broker) == before


@pytest.mark.parametrize("deleted", [25, 50])
def test_a_log_of_which_records_were_deleted_is_known_again(tmp_path, deleted):
    """Also one of which all were, while their segment is still there."""
    source = make_store(tmp_path / "store", kept=1)
    with logstore.open(source, config=QUIET) as store:
        store["kept"][0].delete_before(deleted)
        segments = store["kept"][0].segment_count
    assert segments == len(list((source / "kept-0").glob("*.log")))
    broker = make_broker(tmp_path / "broker")
    hand_over_twice(source, broker)
    other = make_store(tmp_path / "other", kept=1)
    with logstore.open(other, config=QUIET) as store:
        store["kept"][0].delete_before(deleted)
        store["kept"][0].extend([b"one that is not in the target"])
    with pytest.raises(UsageError, match="kept-0 has records in the target"):
        logstore.handover(other, broker, accept_settings=True)


def test_an_empty_log_is_not_taken_for_one_that_was_handed_over(tmp_path):
    broker = make_broker(tmp_path / "broker")
    logstore.handover(make_store(tmp_path / "store", kept=1), broker, accept_settings=True)
    with logstore.open(tmp_path / "empty", config=QUIET) as store:
        store.create_topic("kept")
    with pytest.raises(UsageError, match="kept-0 has records in the target"):
        logstore.handover(tmp_path / "empty", broker, accept_settings=True)


def test_everything_that_speaks_against_it_is_told_at_once_and_nothing_is_changed(tmp_path):
    source = make_store(tmp_path / "store", plain=2, unknown=1, kept=1, compacted=1)
    broker = make_broker(tmp_path / "broker")
    before = listed(broker)
    for dry_run in (True, False):
        with pytest.raises(UsageError) as raised:
            logstore.handover(source, broker, dry_run=dry_run)
        told = str(raised.value)
        assert "the broker has no topic 'unknown'" in told
        assert "topic 'plain' has 2 partitions in the source and 3 in the target" in told
        assert "retention.bytes of the broker is 5000000, that of the source -1" in told
        assert "'compacted' is compacted by the broker" in told
        assert "retention.ms" not in told.partition("kept")[2].partition("\n")[0]
    assert listed(broker) == before


def test_a_limit_that_is_not_set_is_a_brokers_default(tmp_path):
    source = make_store(tmp_path / "store", plain=3)
    broker = make_broker(tmp_path / "broker")
    with pytest.raises(
        UsageError, match=r"retention\.ms of the broker is not set \(Kafka's default is 604800000"
    ):
        logstore.handover(source, broker)
    logstore.handover(source, broker, accept_settings=True)


def test_a_partition_with_replicas_elsewhere_is_refused(tmp_path):
    source = make_store(tmp_path / "store", kept=1)
    broker = make_broker(tmp_path / "broker")
    meta = broker / "meta.properties"
    meta.write_text(meta.read_text().replace("node.id=1", "node.id=2"))
    with pytest.raises(UsageError, match=r"its replicas on the nodes \[1\]; it must be on 2 alone"):
        logstore.handover(source, broker, accept_settings=True)


def test_the_directory_of_another_topic_of_the_name_is_refused(tmp_path):
    source = make_store(tmp_path / "store", kept=1)
    broker = make_broker(tmp_path / "broker")
    shutil.copy(broker / "plain-0" / "partition.metadata", broker / "kept-0" / "partition.metadata")
    with pytest.raises(UsageError, match=r"kept-0 belongs to a topic with id"):
        logstore.handover(source, broker, accept_settings=True)
    shutil.rmtree(broker / "kept-0")
    with pytest.raises(UsageError, match=r"keeps kept-0 in another of its log\.dirs"):
        logstore.handover(source, broker, accept_settings=True)


def test_a_metadata_log_elsewhere_is_found_where_it_is_said_to_be(tmp_path):
    source = make_store(tmp_path / "store", kept=1)
    broker = make_broker(tmp_path / "broker")
    (tmp_path / "metadata").mkdir()
    (broker / "__cluster_metadata-0").rename(tmp_path / "metadata" / "__cluster_metadata-0")
    with pytest.raises(UsageError, match=r"give the directory of metadata\.log\.dir as target_metadata"):
        logstore.handover(source, broker, accept_settings=True)
    with pytest.raises(UsageError, match=r"does not exist; give the directory that metadata\.log\.dir names"):
        logstore.handover(source, broker, target_metadata=tmp_path / "store")
    logstore.handover(source, broker, accept_settings=True, target_metadata=tmp_path / "metadata")
    assert contents(broker, "kept") == contents(source, "kept")


def test_later_leader_epochs_are_lowered_to_the_brokers(tmp_path):
    source = make_store(tmp_path / "store", kept=1)
    with logstore.open(source, config=QUIET) as store:
        log = store["kept"][0]
        for epoch in (4, 9):
            log.assign_leader_epoch(epoch)
            log.extend([b"in epoch %d" % epoch] * 3)
    broker = make_broker(tmp_path / "broker")
    (broker / "kept-0" / "leader-epoch-checkpoint").write_bytes(b"0\n1\n4 0\n")
    report = logstore.handover(source, broker, accept_settings=True)
    assert report.partitions[0].lowered_epoch == 4
    epochs = decode_epoch_checkpoint((broker / "kept-0" / "leader-epoch-checkpoint").read_bytes())
    assert epochs == [(0, 0), (4, 50)]
    with logstore.open(broker) as store:
        assert store["kept"][0].verify()
        assert store["kept"][0].leader_epoch == 4
    assert contents(broker, "kept") == contents(source, "kept")


def test_a_broker_is_told_of_no_producers_and_a_store_of_all(tmp_path):
    source = make_store(tmp_path / "store", kept=1)
    with logstore.open(source, config=QUIET) as store:
        store["kept"][0].extend([b"once"], producer=ProducerIdentity(0, 0, 0))
    broker = make_broker(tmp_path / "broker")
    logstore.handover(source, broker, accept_settings=True)
    snapshots = {
        each.name: decode_snapshot(each.read_bytes()) for each in (broker / "kept-0").glob("*.snapshot")
    }
    assert snapshots == {f"{51:020d}.snapshot": []}
    assert (broker / "kept-0" / f"{51:020d}.log").stat().st_size == 0
    logstore.handover(source, tmp_path / "other")
    with logstore.open(tmp_path / "other", config=QUIET) as store:
        again = store["kept"][0].extend([b"once"], producer=ProducerIdentity(0, 0, 0))
        assert again == range(50, 51)
        assert store["kept"][0].log_end_offset == 51


@pytest.mark.parametrize("crashed", [False, True])
def test_open_transactions_are_refused_or_aborted_in_the_copy(tmp_path, crashed):
    source = tmp_path / "store"
    store = logstore.open(source, config=QUIET)
    log = store.create_topic("kept")[0]
    log.extend([b"committed"], producer=ProducerIdentity(1, 0, 0, True))
    log.append_end_marker(1, 0, committed=True)
    log.extend([b"open"] * 3, producer=ProducerIdentity(7, 2, 0, True))
    log.flush()
    store._directory.abandon() if crashed else store.close()
    broker = make_broker(tmp_path / "broker")
    before = listed(source), listed(broker)
    with pytest.raises(UsageError, match=r"kept-0 has open transactions, of producers 7\. In the target"):
        logstore.handover(source, broker, accept_settings=True)
    assert (listed(source), listed(broker)) == before
    planned = logstore.handover(source, broker, accept_settings=True, abort_transactions=True, dry_run=True)
    assert crashed or [(each.log_end_offset, each.aborted) for each in planned.partitions] == [(6, (7,))]
    report = logstore.handover(source, broker, accept_settings=True, abort_transactions=True)
    assert [(each.log_end_offset, each.aborted) for each in report.partitions] == [(6, (7,))]
    assert listed(source) == before[0]
    with logstore.open(broker) as store:
        log = store["kept"][0]
        assert [record.value for record in log.read(isolation=Isolation.COMMITTED)] == [b"committed"]
        assert log.last_stable_offset == log.log_end_offset == 6


# --- whoever has a directory ----------------------------------------------------------------------


def test_neither_directory_may_be_open(tmp_path):
    source, target = make_store(tmp_path / "store", kept=1), make_store(tmp_path / "target", other=1)
    for path in (source, target):
        with (
            logstore.open(path, config=QUIET),
            pytest.raises(LockedError, match="stop the broker, or close the store") as refused,
        ):
            logstore.handover(source, target, dry_run=True)
        assert f"{path}/.lock is held by this process: a handover needs" in str(refused.value)
        assert "open(" not in str(refused.value)
    logstore.handover(source, target)


def test_the_two_lie_beside_each_other(tmp_path):
    source = make_store(tmp_path / "store", kept=1)
    for target in (source, source / "in"):
        with pytest.raises(UsageError, match="must lie beside each other"):
            logstore.handover(source, target)
    with pytest.raises(UsageError, match="does not exist"):
        logstore.handover(tmp_path / "nothing", tmp_path / "target")
    (tmp_path / "letters").mkdir()
    (tmp_path / "letters" / "to-anna.txt").write_text("Dear Anna")
    with pytest.raises(UsageError, match="holds other files"):
        logstore.handover(source, tmp_path / "letters")
    assert [each.name for each in (tmp_path / "letters").iterdir()] == ["to-anna.txt"]


def test_topics_are_named_by_a_list(tmp_path):
    source = make_store(tmp_path / "store", kept=1)
    with pytest.raises(UnknownTopicError, match="no topic 'other'"):
        logstore.handover(source, tmp_path / "target", topics=["other"])
    with pytest.raises(UnknownTopicError, match=r"no topic 'kep' in .*; did you mean 'kept'\?"):
        logstore.handover(source, tmp_path / "target", topics=["kept", "kep"])
    with pytest.raises(UnknownTopicError, match=r"no topic 'one', 'two' in .*; there are 'kept'"):
        logstore.handover(source, tmp_path / "target", topics=["one", "kept", "two"])
    with pytest.raises(UsageError, match="give a list"):
        logstore.handover(source, tmp_path / "target", topics="kept")
    assert not (tmp_path / "target").exists()


def test_directories_of_another_user_are_refused(tmp_path, monkeypatch):
    source = make_store(tmp_path / "store", kept=1)
    monkeypatch.setattr("logstore.exchange.plan.foreign_owner", lambda files, path: 1001)
    with pytest.raises(UsageError, match=r"belongs to user 1001.*sudo -u '#1001'"):
        logstore.handover(source, make_broker(tmp_path / "broker"), accept_settings=True)


def test_there_must_be_room_for_the_copies(tmp_path, monkeypatch):
    source = make_store(tmp_path / "store", kept=1)
    monkeypatch.setattr("logstore.exchange.plan.free_bytes", lambda files, path: 10)
    with pytest.raises(DiskFullError, match="bytes must be copied, 10 are free"):
        logstore.handover(source, tmp_path / "target")
    assert not (tmp_path / "target").exists()


# --- what the source is like ----------------------------------------------------------------------


def test_no_room_is_needed_for_the_zeros_of_a_killed_brokers_indexes(tmp_path, monkeypatch):
    source = make_store(tmp_path / "store", kept=2)
    (source / ".kafka_cleanshutdown").unlink()
    for number in range(2):
        for suffix in ("index", "timeindex"):
            last = max((source / f"kept-{number}").glob(f"*.{suffix}"))
            with last.open("r+b") as file:
                file.truncate(10 * 1024 * 1024 // 24 * 24)
    before = contents(source, "kept")
    monkeypatch.setattr("logstore.exchange.plan.free_bytes", lambda files, path: 100_000)
    told = []
    report = logstore.handover(source, tmp_path / "target", on_progress=told.append)
    assert contents(tmp_path / "target", "kept") == before
    assert told[-1].done_bytes == report.size_bytes < 20_000
    with logstore.open(tmp_path / "target", read_only=True) as store:
        assert store.verify()


def test_a_source_that_crashed_is_read_as_the_next_open_would(tmp_path):
    source = make_store(tmp_path / "store", kept=1)
    store = logstore.open(source, config=QUIET)
    store["kept"][0].extend([b"written"])
    store["kept"][0].flush()
    store._directory.abandon()
    last = max((source / "kept-0").glob("*.log"))
    last.write_bytes(last.read_bytes() + b"torn")
    before = listed(source)
    broker = make_broker(tmp_path / "broker")
    report = logstore.handover(source, broker, accept_settings=True)
    assert report.partitions[0].log_end_offset == 51
    assert listed(source) == before
    assert contents(broker, "kept")[0][-1].value == b"written"


@pytest.mark.damaged
def test_damage_is_not_handed_over(tmp_path):
    source = make_store(tmp_path / "store", plain=3, kept=1)
    first = source / "plain-2" / f"{0:020d}.log"
    data = bytearray(first.read_bytes())
    data[100] ^= 1
    first.write_bytes(data)
    broker = make_broker(tmp_path / "broker")
    before = listed(broker)
    with pytest.raises(CorruptionError, match="the log is damaged, nothing was handed over") as caught:
        logstore.handover(source, broker, accept_settings=True)
    assert caught.value.path == str(first)
    assert (caught.value.position, caught.value.base_offset) == (0, 0)
    assert "-stray" not in str(caught.value)
    assert listed(broker) == before
    assert not list(broker.glob("*-stray"))


def test_metadata_elsewhere_of_a_directory_that_does_not_say_that_it_is_a_brokers(tmp_path):
    broker = make_broker(tmp_path / "broker")
    (broker / "meta.properties").unlink()
    metadata = (broker / "__cluster_metadata-0").rename(tmp_path / "__cluster_metadata-0")
    with pytest.raises(UsageError, match=r"for want of one.* Restore that file if a broker made"):
        logstore.handover(broker, tmp_path / "new", source_metadata=metadata)
    assert not (tmp_path / "new").exists()


@pytest.mark.damaged
def test_a_damaged_checkpoint_of_the_target_is_not_replaced(tmp_path):
    source = make_store(tmp_path / "store", kept=1)
    broker = make_broker(tmp_path / "broker")
    (broker / "log-start-offset-checkpoint").write_text("0\n5\nkept 0 1\n")
    with pytest.raises(CorruptionError, match="log-start-offset-checkpoint"):
        logstore.handover(source, broker, accept_settings=True)
    assert contents(broker, "kept") == [[]]


def test_a_compacted_log_stays_as_clean_as_it_was(tmp_path):
    source = tmp_path / "store"
    config = TopicConfig(cleanup_policy="compact", segment_bytes=1_000)
    with logstore.open(source, config=QUIET) as store:
        log = store.create_topic("compacted", config=config)[0]
        for turn in range(60):
            log.extend([NewRecord(b"%d" % turn * 50, key=b"%d" % key) for key in range(3)])
        log.compact(now=True)
        clean = log.dirtiness().first_dirty_offset
    broker = make_broker(tmp_path / "broker")
    logstore.handover(source, broker)
    assert checkpoint(broker, "cleaner")[TopicPartition("compacted", 0)] == clean > 0
    assert contents(broker, "compacted") == contents(source, "compacted")


# --- to a store -----------------------------------------------------------------------------------


def test_a_store_is_given_the_brokers_topics_with_their_settings(tmp_path):
    broker = make_broker(tmp_path / "broker")
    with logstore.open(broker) as store:  # as a broker would have
        store["kept"].append(b"v", key=b"k")
    for each in ("topics.json", ".kafka_cleanshutdown"):
        (broker / each).unlink()
    plan = logstore.handover(broker, tmp_path / "store", dry_run=True)
    assert "would hand over 5 partitions" in str(plan)
    assert "topic kept is created in the target" in str(plan)
    assert not (tmp_path / "store").exists()
    report = logstore.handover(broker, tmp_path / "store")
    assert not report.is_to_broker
    assert report.created_topics == ("compacted", "kept", "plain")
    assert report.notes == (
        "topic 'compacted': logstore does not have leader.replication.throttled.replicas",
    )
    with logstore.open(tmp_path / "store") as store:
        assert store.was_clean
        kept, compacted, plain = (store[name].config for name in ("kept", "compacted", "plain"))
        assert (kept.retention_ms, kept.retention_bytes, kept.flush_messages) == (-1, 5_000_000, 10_005)
        assert (compacted.cleanup_policy, compacted.segment_bytes) == ("compact", 2_097_152)
        assert compacted.unclean_leader_election_enable
        assert plain == TopicConfig(retention_ms=-1)
        assert [record.value for record in store["kept"][0].read()] == [b"v"]
        assert len(store["plain"]) == 3
        store.create_topic("another")
    assert not [name for name in listed(tmp_path / "store") if "stray" in name or "handover" in name]


def test_files_that_spark_has_staged_are_left_behind_and_a_note_says_so(tmp_path):
    with logstore.open(tmp_path / "source") as store:
        store.create_topic("t")[0].append(b"v")
    (tmp_path / "source" / "spark-0123456789abcdef-3-0-0123456789abcdef.staged").write_bytes(b"rows")
    report = logstore.handover(tmp_path / "source", tmp_path / "target")
    assert "logstore.spark.recover()" in str(report)
    assert [entry.name for entry in (tmp_path / "target").glob("*.staged")] == []


def test_a_store_that_has_the_topics_keeps_its_own_settings_for_them(tmp_path):
    source, target = make_store(tmp_path / "store", kept=2), tmp_path / "target"
    with logstore.open(target) as store:
        mine = store.create_topic("kept", partitions=2, config=TopicConfig(retention_ms=5)).topic_id
    logstore.handover(source, target)
    with logstore.open(target) as store:
        assert store["kept"].config == TopicConfig(retention_ms=5)
        assert store["kept"].topic_id == mine
        assert store.verify()
    assert contents(target, "kept") == contents(source, "kept")


def test_without_a_metadata_log_the_settings_are_not_known(tmp_path):
    broker = make_broker(tmp_path / "broker")
    shutil.rmtree(broker / "__cluster_metadata-0")
    report = logstore.handover(broker, tmp_path / "store", topics=["compacted"])
    assert "the settings of topic 'compacted' are not known" in str(report)
    with logstore.open(tmp_path / "store") as store:
        assert store["compacted"].config == TopicConfig(retention_ms=-1)


# --- a call that fails ----------------------------------------------------------------------------


def test_a_call_that_fails_leaves_nothing_behind(tmp_path, monkeypatch):
    source = make_store(tmp_path / "store", plain=3)
    broker = make_broker(tmp_path / "broker")
    before = listed(broker)
    copied = []

    def fail(files, path, new, on_bytes=None, *, size_bytes=None):
        copied.append(path)
        if len(copied) > 20:
            raise StorageError(5, "writing: it failed", new)
        shutil.copy(path, new)

    monkeypatch.setattr("logstore.exchange.staging.copy_file", fail)
    with pytest.raises(StorageError, match="it failed"):
        logstore.handover(source, broker, accept_settings=True)
    assert len(copied) > 20
    assert listed(broker) == before
    assert not list(broker.glob("*-stray"))


def test_several_are_copied_at_a_time_and_nothing_stays_when_one_fails(tmp_path, monkeypatch):
    source, target = make_store(tmp_path / "store", plain=12), tmp_path / "target"
    begun, together = [], threading.Barrier(2)
    stage = Stager.stage

    def stage_two(self, planned, on_bytes):
        begun.append(planned.partition.partition)
        if len(begun) <= 2:
            together.wait(timeout=20)
        if fails and planned.partition.partition == 3:
            raise StorageError("it failed")
        return stage(self, planned, on_bytes)

    monkeypatch.setattr(Stager, "stage", stage_two)
    fails = True
    with pytest.raises(StorageError, match="it failed"):
        logstore.handover(source, target)
    assert not list(target.glob("*-stray"))
    fails, begun[:] = False, []
    report = logstore.handover(source, target)
    assert [each.partition.partition for each in report.partitions] == list(range(12))
    assert contents(target, "plain") == contents(source, "plain")


def test_progress_is_told_in_bytes(tmp_path):
    source = make_store(tmp_path / "store", plain=2)
    told = []
    report = logstore.handover(source, tmp_path / "target", on_progress=told.append)
    assert [each.done_bytes for each in told] == sorted(each.done_bytes for each in told)
    assert told[-1].done_bytes == told[-1].total_bytes == report.size_bytes > 0
    assert {each.partition for each in told} == {TopicPartition("plain", 0), TopicPartition("plain", 1)}


def test_the_target_is_listed_as_often_for_many_partitions_as_for_one(tmp_path):
    """It has an entry for each partition: with a listing for each, 2,000 of them took a minute."""
    counts = []
    for count in (1, 12):
        source, target = make_store(tmp_path / f"store{count}", plain=count), tmp_path / f"target{count}"
        files = FaultyFiles(OsFiles())
        logstore.handover(source, target, files=files)
        counts.append(files.operations.count(("list", str(target))))
    assert counts[0] == counts[1] > 0


# --- the command ----------------------------------------------------------------------------------


def test_the_command(tmp_path, capsys):
    source, target = make_store(tmp_path / "store", kept=1, plain=1), tmp_path / "target"
    command = ["handover", str(source), str(target), "--topic", "kept"]
    assert main([*command, "--dry-run"]) == 0
    assert capsys.readouterr().out.startswith("would hand over 1 partitions, ")
    assert not target.exists()
    assert main(command) == 0
    assert capsys.readouterr().out.startswith("handed over 1 partitions, ")
    assert main(["handover", str(source), str(source)]) == 3
    assert capsys.readouterr().err.startswith("error: ")
    with logstore.open(target, read_only=True) as store:
        assert list(store) == ["kept"]


def test_the_committed_directory_is_as_the_broker_left_it():
    topics = read_cluster_topics(OsFiles(), str(BROKER / "__cluster_metadata-0"))
    assert set(topics) == {"plain", "kept", "compacted"}
    assert topics["plain"].replicas == {0: (1,), 1: (1,), 2: (1,)}


# Topics that are held in part -------------------------------------------------------------------------------


def test_a_topic_that_is_held_in_part_is_not_handed_over(tmp_path):
    source = make_store(tmp_path / "source", whole=2)
    with logstore.open(source) as store:
        store.create_topic("t", partitions=4, held=[0, 3])[3].append(b"v")
    before = listed(source)
    with pytest.raises(UsageError, match=r"topic 't': .*source holds partitions 0, 3 of 4 only, and a topic"):
        logstore.handover(source, tmp_path / "target")
    assert listed(source) == before
    assert not (tmp_path / "target").exists()
    logstore.handover(source, tmp_path / "target", topics=["whole"])
    assert contents(tmp_path / "target", "whole") == contents(source, "whole")


def test_a_target_that_holds_a_topic_in_part_is_refused(tmp_path):
    source = make_store(tmp_path / "source", t=4)
    with logstore.open(tmp_path / "target") as store:
        store.create_topic("t", partitions=4, held=[0, 3])
    with pytest.raises(UsageError, match=r"topic 't': .*target holds partitions 0, 3 of 4 only"):
        logstore.handover(source, tmp_path / "target")
    assert contents(tmp_path / "target", "t") == [[], []]


@pytest.mark.parametrize("missing", [0, 1, 2])
def test_a_broker_that_has_not_all_partitions_of_its_cluster_is_refused(tmp_path, missing):
    """Also where the last is missing, of which the directories do not tell."""
    broker = make_broker(tmp_path / "broker")
    shutil.rmtree(broker / f"plain-{missing}")
    with pytest.raises(
        UsageError, match=r"broker holds partitions .* of 3 only.* move all .* with log_dirs\)"
    ):
        logstore.handover(broker, tmp_path / "target", topics=["plain"])
    assert not (tmp_path / "target").exists()
    source = make_store(tmp_path / "store", plain=3)
    with pytest.raises(UsageError, match=rf"plain-{missing} does not exist\. .* move all .* with log_dirs\)"):
        logstore.handover(source, broker, accept_settings=True)
