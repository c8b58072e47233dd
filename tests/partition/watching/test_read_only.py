"""Reading a directory that another process, or another store, is writing."""

import contextlib
import os
import threading
import time
from pathlib import Path

import pytest

import logstore
from logstore.config import TopicConfig
from logstore.errors import (
    ClosedError,
    CorruptionError,
    OffsetOutOfRangeError,
    ReadOnlyError,
    UnknownTopicError,
    UsageError,
)
from logstore.model import Isolation, ProducerIdentity, Role
from logstore.partition.watching.read_only import ReadOnlyLog
from logstore.testing import ManualClock
from tests.logdir.helpers import (
    Child,
    CountingFiles,
    crash,
    flip_byte,
    log_files,
    names_in,
    open_store,
    run_python,
    snapshot,
    values,
)
from tests.permissions import let_others_in

SMALL = TopicConfig(segment_bytes=1_000, file_delete_delay_ms=0)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def writer(path):
    with open_store(path) as store:
        store.create_topic("t", config=SMALL)
        yield store


@pytest.fixture
def reader(writer, path):
    with logstore.open(path, read_only=True) as store:
        yield store


@pytest.fixture
def log(writer):
    return writer["t"][0]


@pytest.fixture
def seen(reader):
    return reader["t"][0]


# It changes nothing -----------------------------------------------------------------------------------------


def use_everything(store):
    for topic in store.values():
        for log in topic:
            list(log.read())
            list(log.read(isolation=Isolation.COMMITTED))
            log.fetch(log.log_start_offset)
            log.find_max_timestamp()
            log.offset_at(1)
            list(log.follow(timeout=0))
            repr(log), log.size_bytes, log.segment_count
    repr(store), store.damaged, store.was_clean, len(store)


def test_reading_changes_no_file_and_takes_no_lock(writer, log, path):
    log.extend([b"v" * 100] * 50)
    log.flush()
    before = snapshot(path)
    with logstore.open(path, read_only=True) as reader:
        use_everything(reader)
        assert snapshot(path) == before
    assert snapshot(path) == before


def test_reading_what_a_crash_left_changes_nothing_either(path):
    store = open_store(path)
    log = store.create_topic("t", config=SMALL)[0]
    log.extend([b"v" * 100] * 50)
    crash(store)
    file = log_files(path / "t-0")[-1]
    file.write_bytes(file.read_bytes() + b"torn")
    for index in (path / "t-0").glob("*index"):
        index.unlink()
    before = snapshot(path)
    with logstore.open(path, read_only=True) as reader:
        use_everything(reader)
        assert values(reader["t"][0]) == [b"v" * 100] * 50
    assert snapshot(path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind root")
def test_a_directory_without_write_permission_can_be_read(path):
    with open_store(path) as store:
        store.create_topic("t").append(b"v")
    for folder in (path / "t-0", path):
        folder.chmod(0o500)
    try:
        with logstore.open(path, read_only=True) as reader:
            assert values(reader["t"][0]) == [b"v"]
    finally:
        for folder in (path, path / "t-0"):
            folder.chmod(0o700)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_another_user_without_write_permission_can_read(path):
    with open_store(path) as store:
        store.create_topic("t").append(b"v")
    for folder, _, files in os.walk(path):
        os.chmod(folder, 0o555)
        for name in files:
            os.chmod(os.path.join(folder, name), 0o444)
    let_others_in(path)
    printed = run_python(
        """
        import os, sys, logstore

        def read():
            with logstore.open(sys.argv[1], read_only=True) as store:
                return [record.value for record in store["t"][0].read()]

        read()  # imports what it needs, from where the other user may not look
        os.setuid(65534)
        print(read())
        """,
        path,
    )
    assert printed == "[b'v']\n"


MUTATORS = {
    "append": (b"v",),
    "extend": ([b"v"],),
    "append_batch": (b"",),
    "append_replicated": (b"",),
    "append_end_marker": (1, 0),
    "flush": (),
    "checkpoint": (),
    "roll": (),
    "delete_before": (0,),
    "truncate_to": (0,),
    "truncate_fully_and_start_at": (0,),
    "enforce_retention": (),
    "assign_leader_epoch": (1,),
    "update_high_watermark": (0,),
    "set_role": (Role.FOLLOWER,),
    "reconfigure": (SMALL,),
    "expire_producers": (),
    "compact": (),
    "dirtiness": (),
}


@pytest.mark.parametrize("name", MUTATORS)
def test_a_change_of_a_log_is_refused(seen, name):
    with pytest.raises(ReadOnlyError, match="read-only"):
        getattr(seen, name)(*MUTATORS[name])


def test_every_public_method_of_a_log_is_there_to_read_or_to_refuse():
    public = {name for name in dir(logstore.Log) if not name.startswith("_")}
    of_its_owner = {"open", "abandon", "written_high_watermark", "written_bytes", "last_flush_seconds"}
    assert public - of_its_owner <= set(dir(ReadOnlyLog))


@pytest.mark.parametrize("name", ["recovery", "leader_epoch", "epoch_entries"])
def test_what_only_the_writer_knows_is_refused(seen, name):
    with pytest.raises(ReadOnlyError, match="only the writer's process knows this"):
        getattr(seen, name)


def test_the_end_of_an_epoch_is_refused(seen):
    with pytest.raises(ReadOnlyError, match="only the writer's process knows this"):
        seen.end_offset_for_epoch(0)


def test_a_log_tells_its_settings_and_that_nothing_is_wrong_with_it(seen, writer):
    assert seen.config == writer["t"].config
    assert seen.needs_reopen is False


def test_a_log_whose_settings_nobody_knows_keeps_everything(writer, path):
    writer["t"].append(b"v")
    writer.close()
    (path / "topics.json").unlink()
    with logstore.open(path, read_only=True) as other:
        assert other["t"][0].config.retention_ms == other["t"].config.retention_ms == -1


def test_a_change_of_a_topic_or_store_is_refused(reader):
    topic = reader["t"]
    for change in (
        lambda: topic.append(b"v"),
        lambda: topic.extend([b"v"]),
        topic.flush,
        lambda: topic.configure(retention_ms=5),
        lambda: topic.add_partitions(5),
        lambda: topic.reopen(0),
        lambda: reader.create_topic("x"),
        lambda: reader.require_topic("x"),
        lambda: reader.delete_topic("t"),
        reader.flush,
        reader.checkpoint,
        reader.enforce_retention,
        reader.run_background,
    ):
        with pytest.raises(ReadOnlyError, match="read-only"):
            change()


def test_a_topic_that_is_there_can_be_required(reader):
    assert reader.require_topic("t", partitions=1).name == "t"


def test_what_is_not_there_is_not_made(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        logstore.open(tmp_path / "x", read_only=True)
    assert not (tmp_path / "x").exists()


# It sees what the writer does -------------------------------------------------------------------------------


def test_sees_what_was_written_and_not_what_still_gathers(writer, log, seen):
    log.extend([b"a", b"b"])
    log.append(b"gathering")
    assert values(seen) == [b"a", b"b"]
    writer.flush()
    assert values(seen) == [b"a", b"b", b"gathering"]


def test_has_the_writers_offsets(log, seen):
    log.extend([b"v" * 100] * 50)
    log.delete_before(20)
    log.checkpoint()
    log._context.home.store_checkpoints()
    for name in ("log_start_offset", "log_end_offset", "high_watermark", "last_stable_offset"):
        assert getattr(seen, name) == getattr(log, name)
    assert (seen.durable_offset, seen.size_bytes, seen.segment_count) == (
        50,
        log.size_bytes,
        log.segment_count,
    )


def test_finds_times_as_the_writer_does(log, seen):
    start_ms = 1_600_000_000_000
    log.extend([(None, b"v" * 50, start_ms + number * 10) for number in range(100)])
    for wanted_ms in (0, start_ms, start_ms + 5, start_ms + 777, start_ms + 990, start_ms + 991):
        assert seen.find_timestamp(wanted_ms) == log.find_timestamp(wanted_ms)
    assert seen.find_max_timestamp() == log.find_max_timestamp()
    log.extend([(None, b"v", start_ms + 5_000)])
    assert seen.find_max_timestamp() == log.find_max_timestamp()


def test_fetches_the_bytes_that_the_writer_fetches(log, seen):
    log.extend([b"v" * 100] * 20)
    for offset in range(20):
        assert seen.fetch(offset).data == log.fetch(offset).data


def test_goes_on_over_rolls(log, seen):
    for number in range(60):
        log.extend([b"%d" % number * 40])
        assert values(seen, max(number - 2, 0))[-1] == b"%d" % number * 40
    assert seen.segment_count == log.segment_count > 3
    assert values(seen) == values(log)


def test_goes_on_over_an_empty_roll(log, seen):
    log.extend([b"a"])
    assert values(seen) == [b"a"]
    log.roll()
    assert values(seen) == [b"a"]
    log.extend([b"b"])
    assert values(seen) == [b"a", b"b"]


def test_a_read_that_was_overtaken_by_retention_says_so(writer, log, seen):
    log.extend([b"v" * 100] * 100)
    log.checkpoint()  # or the reader would have to open every segment
    reading = seen.read()
    next(reading)
    log.delete_before(90)
    writer._directory.context.clock.advance(1)
    writer.run_background()  # the files are gone
    with pytest.raises(OffsetOutOfRangeError):
        list(reading)
    with pytest.raises(OffsetOutOfRangeError):
        seen.read(5)
    assert len(values(seen)) == 10


def test_a_read_of_files_that_have_only_been_renamed_goes_on_or_says_so(log, seen):
    log.extend([b"v" * 100] * 100)
    reading = seen.read(95)
    log.delete_before(90)
    assert len(list(reading)) == 5


def test_a_follower_overtaken_by_retention_says_so(writer, log, seen):
    log.extend([b"v" * 100] * 30)
    following = seen.follow(0, timeout=5)
    next(following)
    log.extend([b"v" * 100] * 100)
    log.delete_before(120)
    writer.run_background()
    with pytest.raises(OffsetOutOfRangeError):
        list(following)


def test_sees_a_truncation(log, seen):
    log.extend([b"old"] * 5)
    log.extend([b"old"] * 5)
    assert len(values(seen)) == 10
    log.truncate_to(5)
    assert values(seen) == [b"old"] * 5
    log.extend([b"new"] * 7)
    assert values(seen) == [b"old"] * 5 + [b"new"] * 7


def test_sees_a_truncation_that_was_written_over_before_it_looked(log, seen):
    log.extend([b"old"] * 5)
    log.extend([b"old"] * 5)
    assert len(values(seen)) == 10
    log.truncate_to(5)
    log.extend([b"new"] * 50)
    assert values(seen) == [b"old"] * 5 + [b"new"] * 50


def test_sees_sealed_segments_that_were_cut_and_written_anew(log, seen):
    log.extend([b"old" * 30] * 50)
    assert values(seen) == [b"old" * 30] * 50
    log.truncate_to(0)
    log.extend([b"new" * 30] * 50)
    assert values(seen) == [b"new" * 30] * 50
    assert seen.find_max_timestamp() == log.find_max_timestamp()


def test_sees_a_log_that_starts_over(log, seen):
    log.extend([b"old"] * 5)
    assert len(values(seen)) == 5
    log.truncate_fully_and_start_at(100)
    assert (values(seen), seen.log_start_offset, seen.log_end_offset) == ([], 100, 100)
    log.truncate_fully_and_start_at(0)
    log.extend([b"new"])
    assert values(seen) == [b"new"]


def test_a_read_in_the_middle_of_a_truncation_is_never_damage(log, seen):
    for _ in range(20):
        log.extend([b"old" * 20])
    reading = seen.read()
    next(reading)
    log.truncate_to(0)
    log.extend([b"new"])
    with pytest.raises(OffsetOutOfRangeError):
        list(seen.read(15))
    with contextlib.suppress(OffsetOutOfRangeError):
        list(reading)


def test_a_follower_behind_a_truncation_says_so(log, seen):
    log.extend([b"old"] * 10)
    following = seen.follow(0, timeout=0.05)
    assert len(list(following)) == 10
    following = seen.follow(10, timeout=5)
    log.truncate_to(0)
    with pytest.raises(OffsetOutOfRangeError):
        next(following)


def test_sees_topics_come_and_go(writer, reader):
    writer.create_topic("u", partitions=2, config=TopicConfig(retention_ms=77))
    assert list(reader) == ["t", "u"]
    assert (len(reader["u"]), reader["u"].config.retention_ms) == (2, 77)
    assert reader["u"].topic_id == writer["u"].topic_id
    writer["u"].add_partitions(3)
    assert len(reader["u"]) == 3
    writer.delete_topic("u")
    assert list(reader) == ["t"]
    with pytest.raises(UnknownTopicError):
        reader["u"]


def test_a_log_of_a_deleted_topic_says_so(writer, log, seen):
    log.extend([b"v"])
    assert values(seen) == [b"v"]
    writer.delete_topic("t")
    with pytest.raises(UnknownTopicError, match="deleted"):
        values(seen)
    with pytest.raises(UnknownTopicError):
        next(seen.follow(0))


def test_a_topic_created_again_is_another_one(writer, reader, log, seen):
    log.extend([b"old"] * 5)
    assert len(values(seen)) == 5
    writer.delete_topic("t")
    writer.create_topic("t")[0].extend([b"new"] * 9)
    with pytest.raises(UnknownTopicError, match="deleted"):
        values(seen)
    assert values(reader["t"][0]) == [b"new"] * 9


def test_works_before_the_writer_and_after_it(path):
    with open_store(path) as store:
        store.create_topic("t").append(b"a")
    with logstore.open(path, read_only=True) as reader:
        assert reader.was_clean
        assert values(reader["t"][0]) == [b"a"]
        with open_store(path) as store:
            store["t"].append(b"b", flush=True)
            assert values(reader["t"][0]) == [b"a", b"b"]
        assert values(reader["t"][0]) == [b"a", b"b"]


def test_a_brokers_directory_without_a_catalogue_can_be_read(path):
    with open_store(path) as store:
        store.create_topic("t", partitions=2)[1].append(b"v")
        topic_id = store["t"].topic_id
    (path / "topics.json").unlink()
    with logstore.open(path, read_only=True) as reader:
        assert (len(reader["t"]), values(reader["t"][1])) == (2, [b"v"])
        assert reader["t"].topic_id == topic_id
    assert "topics.json" not in names_in(path)


def test_a_topic_whose_id_nobody_knows_has_the_same_one_for_every_reader(path):
    with open_store(path) as store:
        for name in "tu":
            store.create_topic(name)[0].append(b"v")
    for name in ("topics.json", "t-0/partition.metadata", "u-0/partition.metadata"):
        (path / name).unlink()
    with logstore.open(path, read_only=True) as one, logstore.open(path, read_only=True) as other:
        assert one["t"].topic_id == other["t"].topic_id != one["u"].topic_id


# Transactions -----------------------------------------------------------------------------------------------


def run_transactions(log, count, abort):
    """Three producers side by side, each with open, aborted and committed transactions."""
    sequences = [0, 0, 0]
    for number in range(count):
        who = number % 3
        log.extend([b"p%d-%d" % (who, number)] * 2, producer=ProducerIdentity(who, 0, sequences[who], True))
        sequences[who] += 2
        if number % 4 == 3:
            log.append_end_marker(who, 0, committed=not abort(number))


@pytest.mark.parametrize("count", [1, 7, 40, 200])
def test_committed_reads_are_those_of_the_writer(log, seen, count):
    run_transactions(log, count, lambda number: number % 8 == 3)
    committed = {"isolation": Isolation.COMMITTED}
    assert seen.last_stable_offset == log.last_stable_offset
    assert values(seen, **committed) == values(log, **committed)
    for offset in range(0, log.last_stable_offset, 7):
        assert values(seen, offset, **committed) == values(log, offset, **committed)
        assert seen.fetch(offset, **committed).aborted == log.fetch(offset, **committed).aborted


def test_committed_reads_follow_the_writer_step_by_step(log, seen):
    for number in range(60):
        log.extend([b"v%d" % number], producer=ProducerIdentity(5, 0, number, True))
        assert seen.last_stable_offset == log.last_stable_offset
        if number % 3 == 2:
            log.append_end_marker(5, 0, committed=number % 2 == 0)
            assert seen.last_stable_offset == log.last_stable_offset
    assert values(seen, isolation=Isolation.COMMITTED) == values(log, isolation=Isolation.COMMITTED)


@pytest.mark.parametrize("lost", ["all entries", "some entries", "snapshots too"])
def test_committed_reads_after_a_power_cut_that_took_transaction_indexes(path, writer, lost):
    """Above the recovery point nothing beside the batches is certainly stored: the writer finds the aborted
    transactions in the batches, and so does a reader that comes before it."""
    run_transactions(writer["t"][0], 100, lambda number: number % 8 == 3)
    writer["t"][0].flush()
    expected = values(writer["t"][0], isolation=Isolation.COMMITTED)
    crash(writer)
    indexes = sorted((path / "t-0").glob("*.txnindex"))
    assert len(indexes) > 3
    for each in indexes:
        each.write_bytes(each.read_bytes()[: 34 if lost == "some entries" else 0])
    if lost == "snapshots too":
        for each in (path / "t-0").glob("*.snapshot"):
            each.unlink()
    (path / "recovery-point-offset-checkpoint").unlink(missing_ok=True)
    with logstore.open(path, read_only=True) as before:
        log = before["t"][0]
        assert values(log, isolation=Isolation.COMMITTED) == expected
        assert log.read_arrow(isolation=Isolation.COMMITTED)["value"].to_pylist() == expected
        with open_store(path) as again:
            assert values(again["t"][0], isolation=Isolation.COMMITTED) == expected
            again["t"][0].extend([b"more"], producer=ProducerIdentity(3, 0, 0, True))
            again["t"][0].append_end_marker(3, 0, committed=False)
            now = values(again["t"][0], isolation=Isolation.COMMITTED)
            assert values(log, isolation=Isolation.COMMITTED) == now


def test_a_watcher_keeps_no_list_of_what_is_decided(log, seen):
    run_transactions(log, 100, lambda number: True)
    assert seen.log_end_offset == log.log_end_offset
    assert seen._producers.unreplicated == []


# Index files ------------------------------------------------------------------------------------------------


def damage_indexes(folder, how):
    for file in [*folder.glob("*.index"), *folder.glob("*.timeindex")]:
        if how == "missing":
            file.unlink()
        elif how == "empty":
            file.write_bytes(b"")
        elif how == "stale":
            data = file.read_bytes()
            file.write_bytes(data[: len(data) // 24 * 12 // 8 * 8])
        else:
            file.write_bytes(os.urandom(240))


@pytest.mark.parametrize("how", ["missing", "empty", "stale", "foreign"])
@pytest.mark.damaged
def test_index_files_do_not_matter(path, how):
    start_ms = 1_600_000_000_000
    config = TopicConfig(segment_bytes=20_000, index_interval_bytes=200)
    with open_store(path) as store:
        log = store.create_topic("t", config=config)[0]
        for number in range(300):
            log.extend([(None, b"%d" % number * 60, start_ms + number)])
        expected, found = values(log), log.find_timestamp(start_ms + 150)
    damage_indexes(path / "t-0", how)
    with logstore.open(path, read_only=True) as reader:
        log = reader["t"][0]
        assert values(log) == expected
        assert [values(log, offset, offset + 1) for offset in range(300)] == [[each] for each in expected]
        assert log.find_timestamp(start_ms + 150) == found


# Damage -----------------------------------------------------------------------------------------------------


@pytest.mark.damaged
def test_damage_in_durable_data_is_not_taken_for_the_end_of_the_log(path):
    with open_store(path) as store:
        for _ in range(5):
            store.create_topic("t")[0].extend([b"v" * 50]) if "t" not in store else store["t"][0].extend(
                [b"w"]
            )
    flip_byte(log_files(path / "t-0")[0], 80)
    with logstore.open(path, read_only=True) as reader:
        with pytest.raises(CorruptionError, match="was durable") as caught:
            values(reader["t"][0])
        assert str(log_files(path / "t-0")[0]) in str(caught.value)


@pytest.mark.damaged
def test_damage_in_a_sealed_segment_is_reported_where_it_is(log, seen, path):
    log.extend([b"v" * 100] * 50)
    flip_byte(log_files(path / "t-0")[1], 90)
    with pytest.raises(CorruptionError, match=log_files(path / "t-0")[1].name):
        values(seen)
    assert values(seen, seen.log_end_offset - 1) == [b"v" * 100]


@pytest.mark.damaged
def test_damage_does_not_make_a_reader_spin_while_the_writer_goes_on(log, seen, path):
    log.extend([b"v" * 100] * 50)
    flip_byte(log_files(path / "t-0")[1], 90)
    going_on = threading.Event()

    def write():
        while not going_on.is_set():
            log.extend([b"v"])

    thread = threading.Thread(target=write)
    thread.start()
    try:
        with pytest.raises(CorruptionError):
            values(seen)
    finally:
        going_on.set()
        thread.join()


@pytest.mark.damaged
def test_a_directory_without_segments_is_damage(path):
    with open_store(path) as store:
        store.create_topic("t")
    log_files(path / "t-0")[0].unlink()
    with logstore.open(path, read_only=True) as reader, pytest.raises(CorruptionError, match="no segment"):
        values(reader["t"][0])


# Following another process ----------------------------------------------------------------------------------

WRITER = """
import sys, time
import logstore
with logstore.open(sys.argv[1]) as store:
    log = store.require_topic("t", config=logstore.TopicConfig(segment_bytes=20_000))[0]
    print("ready")
    for line in sys.stdin:
        for _ in range(int(line)):
            log.extend([b"%d" % time.monotonic_ns()])
            time.sleep(0.003)
        print("done")
"""


def test_a_record_of_another_process_is_seen_within_10_ms(path):
    with Child(WRITER, path) as writer:
        assert writer.hear() == "ready"
        with logstore.open(path, read_only=True) as reader:
            following = reader["t"][0].follow(timeout=5)
            writer.say("100")
            lags_ms = []
            for record in following:
                lags_ms.append((time.monotonic_ns() - int(record.value)) / 1e6)
                if len(lags_ms) == 100:
                    break
    assert sorted(lags_ms)[50] < 10, f"median {sorted(lags_ms)[50]:.1f} ms"


def test_follows_a_writer_through_its_death_and_return(path):
    with Child(WRITER, path) as writer:
        assert writer.hear() == "ready"
        with logstore.open(path, read_only=True) as reader:
            log = reader["t"][0]
            writer.ask("50")
            writer.kill()
            first = values(log)
            with Child(WRITER, path) as second:
                assert second.hear() == "ready"
                second.ask("50")
                assert values(log)[: len(first)] == first
                assert len(values(log)) == len(first) + 50 == 100


SLOW_WRITER = """
import sys, time
path, source = sys.argv[1:]
data = open(source, "rb").read()
with open(path, "ab", buffering=0) as file:
    for line in sys.stdin:
        start, stop = map(int, line.split())
        file.write(data[start:stop])
        print("done")
"""


@pytest.mark.damaged
def test_a_torn_batch_is_never_shown(path, tmp_path):
    with open_store(tmp_path / "source") as store:
        log = store.create_topic("t")[0]
        for number in range(10):
            log.extend([b"%d" % number * 100])
        source = log_files(tmp_path / "source" / "t-0")[0]
        size = len(source.read_bytes()) // 10
    with open_store(path) as store:
        store.create_topic("t")
    target = log_files(path / "t-0")[0]
    with Child(SLOW_WRITER, target, source) as writer, logstore.open(path, read_only=True) as reader:
        log = reader["t"][0]
        for number in range(10):
            middle = number * size + (7, 30, size // 2, size - 1)[number % 4]
            writer.ask(f"{number * size} {middle}")
            assert len(values(log)) == number
            assert list(log.follow(timeout=0.01)) == []
            writer.ask(f"{middle} {number * size + size}")
            assert values(log)[number:] == [b"%d" % number * 100]


@pytest.mark.damaged
def test_waiting_at_a_torn_end_does_not_burn_the_processor(path):
    with open_store(path) as store:
        store.create_topic("t").append(b"v", flush=True)
    file = log_files(path / "t-0")[0]
    file.write_bytes(file.read_bytes() + file.read_bytes()[:50])
    with logstore.open(path, read_only=True) as reader:
        before = time.process_time()
        assert list(reader["t"][0].follow(timeout=1.0)) == []
        assert time.process_time() - before < 0.3


def test_a_full_batch_of_rubbish_at_the_end_is_not_shown(log, seen, path):
    log.extend([b"v"])
    file = log_files(path / "t-0")[0]
    data = file.read_bytes()
    with Path(file).open("ab") as end:
        end.write(data[:-1] + b"\x00")
    assert values(seen) == [b"v"]
    assert list(seen.follow(timeout=0.01)) == []
    with Path(file).open("r+b") as again:
        again.truncate(len(data))


# Many topics ------------------------------------------------------------------------------------------------


def test_a_look_that_finds_nothing_new_reads_no_file(path):
    with open_store(path) as store:
        store.create_topic("t", partitions=5)
        for log in store["t"]:
            log.extend([b"v"])
        store.checkpoint()
    time.sleep(0.1)  # until time stamps are older than what counts as settled
    files = CountingFiles()
    with logstore.open(path, read_only=True, files=files) as reader:
        assert [values(log) for log in reader["t"]] == [[b"v"]] * 5
        opens, lists = files.counts["opens"], files.counts["lists"]
        for _ in range(10):
            assert [log.log_end_offset for log in reader["t"]] == [1] * 5
        assert (files.counts["opens"], files.counts["lists"]) == (opens, lists)


# End --------------------------------------------------------------------------------------------------------


def test_after_close_everything_is_refused(reader, seen):
    following = seen.follow()
    reader.close()
    reader.close()
    for use in (lambda: list(reader), lambda: reader["t"], lambda: values(seen), lambda: next(following)):
        with pytest.raises(ClosedError):
            use()
    assert "ClosedError" in repr(reader)


def test_closing_ends_a_waiting_follower(reader, seen):
    ended = []

    def follow():
        try:
            list(seen.follow())
        except ClosedError as error:
            ended.append(error)

    thread = threading.Thread(target=follow)
    thread.start()
    time.sleep(0.05)
    reader.close()
    thread.join(5)
    assert ended


def test_a_manual_clock_does_not_keep_a_reader_from_waiting(writer, path):
    with logstore.open(path, read_only=True, clock=ManualClock()) as reader:
        assert list(reader["t"][0].follow(timeout=0.02)) == []


# What is wrong for good -------------------------------------------------------------------------------------


@pytest.mark.damaged
def test_a_log_that_has_lost_its_end_is_refused_with_what_to_do(path):
    with open_store(path) as store:
        store.create_topic("t")[0].extend([b"v"] * 100)
    segment = log_files(path / "t-0")[-1]
    os.truncate(segment, 50)
    with (
        logstore.open(path, read_only=True) as reader,
        pytest.raises(CorruptionError, match="accept_loss=True to cut the log there") as caught,
    ):
        reader["t"][0].read()
    assert type(caught.value) is CorruptionError, "what waits for a writer has another type"
    assert (caught.value.path, caught.value.position, caught.value.base_offset) == (str(segment), 0, 0)


@pytest.mark.damaged
def test_a_log_without_segments_is_refused_with_what_to_do(path):
    with open_store(path) as store:
        store.create_topic("t")[0].extend([b"v"])
    log_files(path / "t-0")[-1].unlink()
    with (
        logstore.open(path, read_only=True) as reader,
        pytest.raises(CorruptionError, match=r"holds no segment\. Restore the files") as caught,
    ):
        reader["t"][0].read()
    assert type(caught.value) is CorruptionError


@pytest.mark.parametrize("contents", [b"", b"{}", b'{"version": 1, "topics": {"t": {}}}'])
def test_a_damaged_catalogue_can_be_moved_away_as_its_error_says(path, contents):
    with open_store(path) as store:
        store.create_topic("t", config=SMALL)[0].extend([b"v"])
    (path / "topics.json").write_bytes(contents)
    for read_only in (False, True):
        with pytest.raises(CorruptionError, match="move it away: the topics are then there without"):
            open_store(path, read_only=read_only)
    (path / "topics.json").rename(path.parent / "elsewhere")
    with open_store(path) as store:
        assert values(store["t"][0]) == [b"v"]
        assert store["t"].config.retention_ms == -1
