"""What the commands say of a store, what they change, and how they end."""

import errno
import importlib
import json
import os
import shlex
import signal
import subprocess
import threading
import time
import tomllib
from pathlib import Path

import pytest

import logstore
from logstore import NewRecord, ProducerIdentity, TopicConfig, replica
from logstore.cli import times
from logstore.cli.app import COMMANDS
from logstore.cli.errors import explain
from logstore.cli.records import ENCODINGS
from logstore.errors import storage_error
from logstore.partition.watching.read_only import ReadOnlyLog
from logstore.testing import kafka
from tests.cli.helpers import PROGRAM, QUIET, TIME_MS, answer, make_store, numbered, program, read, run, start
from tests.logdir.helpers import flip_byte, open_store, run_python, snapshot
from tests.permissions import let_others_in

ROOT = Path(__file__).parents[2]

# What is there ----------------------------------------------------------------------------------------------


def test_topics_and_partitions(tmp_path):
    path = make_store(tmp_path / "s")
    with logstore.open(path) as store:
        store.create_topic("empty", config=TopicConfig(cleanup_policy="compact"))
        sizes = [log.size_bytes for log in store["orders"]]
        segments = [log.segment_count for log in store["orders"]]
    empty, orders = answer("ls", path, "--json").rows
    assert (empty["newest_ms"], empty["cleanup_policy"], empty["offsets"]) == (None, "compact", 0)
    newest_ms = TIME_MS + 1019 * 1000
    assert orders == {
        "topic": "orders",
        "partitions": 2,
        "held": 2,
        "offsets": 40,
        "size_bytes": sum(sizes),
        "newest_ms": newest_ms,
        "cleanup_policy": "delete",
        "errors": [],
    }
    rows = answer("ls", path, "orders", "--json").rows
    assert [(row["size_bytes"], row["segments"], row["log_end_offset"]) for row in rows] == [
        (size, count, 20) for size, count in zip(sizes, segments, strict=True)
    ]
    heading, _, line = answer("ls", path).lines
    assert line.split() == ["orders", "2", "40", str(sum(sizes)), times.format_time(newest_ms), "delete"]
    assert [line.index(word) for word in ("orders", "delete")] == [
        heading.index(word) for word in ("TOPIC", "CLEANUP")
    ]


def test_what_ls_tells_of_a_partition_is_of_one_moment(tmp_path, monkeypatch):
    path = make_store(tmp_path / "store")
    looks = []
    look = ReadOnlyLog._current_view
    monkeypatch.setattr(ReadOnlyLog, "_current_view", lambda log: looks.append(log.partition) or look(log))
    assert len(answer("ls", path, "orders", "--json").rows) == len(set(looks))
    assert max(map(looks.count, looks)) <= 2, "one for the newest time, and one for all the rest"


def test_what_is_known_of_a_partition(tmp_path):
    with logstore.open(tmp_path / "s", config=QUIET) as store:
        topic = store.create_topic("t", config=TopicConfig(retention_ms=5, segment_bytes=500))
        log = topic[0]
        log.extend([b"a"] * 3, producer=ProducerIdentity(7, 1, 0))
        log.assign_leader_epoch(4)
        log.extend([b"b"] * 2, producer=ProducerIdentity(8, 0, 0, transactional=True))
        topic_id = str(topic.topic_id)
    found = answer("info", tmp_path / "s", "t", "--json").rows[0]
    assert found["topic_id"] == topic_id
    assert found["settings"] == {"retention.ms": "5", "segment.bytes": "500"}
    [log] = found["logs"]
    assert log["leader_epochs"] == [{"epoch": 0, "start_offset": 0}, {"epoch": 4, "start_offset": 3}]
    assert log["checkpoints"]["recovery_point"] == log["log_end_offset"] == 5
    assert log["last_stable_offset"] == 3
    producers = {each["producer_id"]: each for each in log["producers"]}
    assert (producers[7]["last_sequence"], producers[7]["producer_epoch"]) == (2, 1)
    assert producers[8]["transaction_first_offset"] == 3
    batch = log["last_batch"]
    assert (batch["base_offset"], batch["last_offset"], batch["leader_epoch"]) == (3, 4, 4)
    text = answer("info", tmp_path / "s", "t").out
    assert "8 (epoch 0, last sequence 1, last offset 4, transaction open from offset 3)" in text
    assert "retention.ms=5, segment.bytes=500" in text or "segment.bytes=500, retention.ms=5" in text


def test_a_store_and_what_kind_it_is(tmp_path):
    path = make_store(tmp_path / "s")
    found = answer("info", path, "--json").rows[0]
    assert (found["kind"], found["topics"], found["partitions"], found["was_clean"]) == ("store", 1, 2, True)
    assert found["directory_id"] in (path / "meta.properties").read_text() or found["cluster_id"]
    with logstore.open(path):
        assert answer("info", path, "--json").rows[0]["was_clean"] is False


def test_how_far_groups_are_behind(tmp_path):
    path = make_store(tmp_path / "s")
    assert answer("lag", path).lines == ["GROUP  TOPIC  PARTITION  COMMITTED  HIGH WATERMARK  LAG"]
    with logstore.open(path) as store:
        store.offsets("b").commit({("orders", 0): 20})
        store.offsets("a").commit({("orders", 0): 3, ("orders", 1): 7})
        found = answer("lag", path, "--json").rows  # beside the writer
        assert [(row["group"], row["partition"], row["lag"]) for row in found] == [
            ("a", 0, 17),
            ("a", 1, 13),
            ("b", 0, 0),
        ]
        store["orders"].let_go(1)
    assert [line.split()[2:] for line in answer("lag", path, "a").lines[1:]] == [
        ["0", "3", "20", "17"],
        ["1", "7", "-", "-"],
    ]
    done = run("lag", path, "nobody")
    assert (done.code, f"there is no group 'nobody' in {path}" in done.err) == (3, True)


@pytest.mark.damaged
def test_how_far_groups_are_behind_where_their_offsets_are_damaged(tmp_path):
    path = make_store(tmp_path / "s")
    with logstore.open(path) as store:
        store.offsets("a").commit({("orders", 0): 3})
    flip_byte(path / "__consumer_offsets-0" / f"{0:020}.log", 80)
    done = run("lag", path)
    assert (done.code, len(done.lines)) == (1, 1)
    assert "error: groups: " in done.err


def test_files_of_a_segment(tmp_path):
    path = make_store(tmp_path / "s", partitions=1)
    log = sorted((path / "orders-0").glob("*.log"))[0]
    with logstore.Segment.open(log) as segment:
        batches, index, time_index = list(segment.batches()), segment.offset_index, segment.time_index
        found = answer("info", log, "--json").rows[0]
        assert (found["batches"], found["records"]) == (len(batches), len(list(segment)))
        assert (found["next_offset"], found["size_bytes"]) == (segment.next_offset, segment.size_bytes)
    assert answer("info", log, "--all", "--json").rows == [batch._asdict() for batch in batches]
    assert len(answer("info", log, "--all").lines) == 1 + len(batches)
    for suffix, entries in ((".index", index), (".timeindex", time_index)):
        file = log.with_suffix(suffix)
        assert answer("info", file, "--all", "--json").rows == [entry._asdict() for entry in entries]
        assert answer("info", file, "--json").rows[0]["entries"] == len(entries)
    with logstore.open(path) as store:
        store["orders"][0].extend([b"v"], producer=ProducerIdentity(3, 0, 0))
    newest = sorted((path / "orders-0").glob("*.snapshot"))[-1]
    [producer] = answer("info", newest, "--all", "--json").rows
    assert (producer["producer_id"], producer["last_offset"]) == (3, 20)


def test_options_of_info_that_do_not_fit(tmp_path):
    path = make_store(tmp_path / "s", partitions=1)
    log = sorted((path / "orders-0").glob("*.log"))[0]
    for arguments, said in (
        ([path, "-p", "0"], "--partition is of a topic; name it behind the directory"),
        ([log, "-p", "0"], "--partition is of a topic; name it behind the directory"),
        ([path, "--all"], "--all is of a file, such as a segment or an index"),
        ([path, "orders", "--all"], "--all is of a file, such as a segment or an index"),
    ):
        done = run("info", *arguments)
        assert (done.code, done.out) == (2, "")
        assert said in done.err


def test_many_rows_come_aligned_in_blocks(tmp_path):
    with logstore.open(tmp_path / "s") as store:
        log = store.create_topic("t")[0]
        for _ in range(2_500):
            log.extend([b"v"])
    file = tmp_path / "s" / "t-0" / "00000000000000000000.log"
    lines = answer("info", file, "--all").lines
    assert [line.split()[0] for line in lines[1:]] == [str(n) for n in range(2_500)]


# What may go -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "limits",
    [{"retention_ms": 1000}, {"retention_bytes": 900}, {"retention_bytes": 900, "retention_ms": 10**15}, {}],
    ids=str,
)
def test_a_plan_is_what_is_then_deleted(tmp_path, limits):
    path = make_store(tmp_path / "s", file_delete_delay_ms=0)
    with logstore.open(path, config=QUIET) as store:
        store["orders"].configure(**limits)
        store["orders"][1].delete_before(7)
        before = read(path)
        planned = answer("retain", path, "--dry-run", "--json")  # beside a writer
        writers = store.enforce_retention(dry_run=True)
    assert {row["partition"]: row["segment_count"] for row in planned.rows} == {
        partition.partition: count for partition, count in writers.items() if count
    }
    assert read(path) == before
    done = answer("retain", path, "orders", "--json")
    assert done.rows == [row | {"is_dry_run": False} for row in planned.rows]
    assert bool(done.rows) == bool(limits)
    after = read(path)
    for row in done.rows:
        offsets = [record.offset for partition, record in after if partition == row["partition"]]
        assert offsets == list(range(row["log_start_offset"], 20))
    if not limits:
        assert after == before
        assert "nothing to delete" in done.err


@pytest.mark.damaged
def test_a_next_step_is_one_that_can_be_typed(tmp_path):
    """The library's errors name arguments of its calls."""
    path = make_store(tmp_path / "s")
    open_to_all = run("serve", path, "--listen", "0.0.0.0:0")
    assert (open_to_all.code, "allow_anonymous=True" in open_to_all.err) == (2, False)
    assert "--allow-anonymous" in open_to_all.err
    flip_byte(min((path / "orders-1").glob("*.log")), 70)
    damaged = run("backup", path, tmp_path / "copy")
    assert (damaged.code, "accept_damage=True" in damaged.err) == (1, False)
    assert "--accept-damage" in damaged.err
    assert run("backup", path, tmp_path / "copy", "--accept-damage").code == 1
    full = OSError(errno.EROFS, os.strerror(errno.EROFS))
    assert "read_only" not in explain(storage_error(full, "s", "opening"))[1]


@pytest.mark.damaged
def test_a_damaged_partition_keeps_no_other_from_its_retention(tmp_path):
    """Else a nightly run frees nothing any more, wherever the damage is."""
    path = make_store(tmp_path / "s", file_delete_delay_ms=0)
    with logstore.open(path, config=QUIET) as store:
        store["orders"].configure(retention_bytes=0)
    for file in (path / "orders-0").glob("*.log"):
        file.unlink()
    planned = run("retain", path, "--dry-run", "--json")
    done = run("retain", path, "--json")
    for each in (planned, done):
        assert [row["partition"] for row in each.rows] == [1]
        assert (each.code, "error: " in each.err, "orders-0" in each.err) == (1, True, True), each
    assert done.rows == [row | {"is_dry_run": False} for row in planned.rows]
    again = run("retain", path)
    assert (again.code, again.out, "nothing to delete" in again.err) == (1, "", False), again


@pytest.mark.parametrize("arguments", [["info", "DIR"], ["retain", "DIR", "--dry-run"]], ids=str)
def test_a_topic_that_is_deleted_just_now_is_left_out(tmp_path, monkeypatch, arguments):
    path = make_store(tmp_path / "s")
    names = ["gone", "orders"]
    monkeypatch.setattr(logstore.store.Store, "__iter__", lambda self: iter(names))
    done = answer(*[each.replace("DIR", str(path)) for each in arguments], "--json")
    assert [row["topics"] for row in done.rows if "topics" in row] in ([], [1])


def test_a_topic_is_compacted(tmp_path):
    path = make_store(tmp_path / "s", cleanup_policy="compact")
    before = read(path)
    planned = answer("compact", path, "orders", "--now", "--dry-run", "--json").rows
    assert read(path) == before
    done = answer("compact", path, "orders", "--now", "--json").rows
    assert [row["kept_record_count"] for row in done] == [row["kept_record_count"] for row in planned]
    kept = {(partition, record.key): record for partition, record in before}
    assert sorted(read(path)) == sorted((partition, record) for (partition, _), record in kept.items())
    again = answer("compact", path, "orders")
    assert "nothing to compact" in again.err


@pytest.mark.damaged
def test_a_partition_that_is_too_damaged_to_compact_is_told(tmp_path):
    path = make_store(tmp_path / "s", cleanup_policy="compact")
    flip_byte(sorted((path / "orders-1").glob("*.log"))[-1], 70)
    for options in ([], ["--now", "--dry-run"], ["--now"]):
        done = run("compact", path, "orders", "--json", *options)
        assert [row["partition"] for row in done.rows] == [0]
        assert (done.code, "error: data up to offset 20 was durable" in done.err) == (1, True), done


def test_a_backup_is_a_store_and_is_brought_up_to_date(tmp_path):
    path, copy = make_store(tmp_path / "s"), tmp_path / "copy"
    first = answer("backup", path, copy, "--json").rows[0]
    assert read(copy) == read(path)
    with logstore.open(path, config=QUIET) as store:
        store["orders"][0].extend(numbered(3))
        refused = run("backup", path, copy)
        assert (refused.code, "is held by" in refused.err) == (3, True)
    again = answer("backup", path, copy, "--no-links", "--json").rows[0]
    assert (first["is_incremental"], again["is_incremental"]) == (False, True)
    assert [each["log_end_offset"] for each in again["partitions"]] == [23, 20]
    assert again["size_bytes"] == sum(again[f"{how}_bytes"] for how in ("copied", "linked", "kept"))
    assert read(copy) == read(path)
    assert answer("backup", path, copy).out.startswith("incremental backup to ")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    assert run("backup", path, tmp_path / "other").code == 3


@pytest.mark.damaged
def test_damage_is_found_and_told(tmp_path):
    path = make_store(tmp_path / "s")
    assert answer("verify", path).out.startswith("sound: 40 records in ")
    assert answer("verify", path, "orders", "--json").rows[0]["problems"] == []
    before = snapshot(path)
    file = sorted((path / "orders-1").glob("*.log"))[1]
    flip_byte(file, 70)
    done = run("verify", path, "--json")
    [problem] = done.rows[0]["problems"]
    assert done.code == 1
    assert (problem["path"], problem["kind"], problem["position"]) == (str(file), "batch", 0)
    assert problem["next_step"]
    assert str(file) in run("verify", path).out
    assert run("info", file).code == run("info", file, "--all").code == 1
    flip_byte(file, 70)
    assert {name: each[3] for name, each in snapshot(path).items()} == {n: e[3] for n, e in before.items()}


@pytest.mark.damaged
def test_a_partition_that_cannot_be_read_leaves_the_others(tmp_path):
    path = make_store(tmp_path / "s")
    for file in (path / "orders-0").iterdir():
        file.unlink()
    (path / "orders-0").rmdir()
    for topic in ([], ["orders"]):
        done = run("ls", path, *topic, "--json")
        assert done.code == 1
        assert "orders-0" in done.err
    assert [row["error"] is None for row in done.rows] == [False, True]
    assert run("ls", path, "orders").lines[1].split() == ["0", *"-------"]


# How it ends -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["ls", "DIR/nowhere"], 3, "there is no directory"),
        (["ls", "DIR/s/orders-0"], 3, "name the store and the topic"),
        (["ls", "DIR/s/topics.json"], 3, "is a file"),
        (["cat", "DIR/s", "order"], 3, "did you mean 'orders'?"),
        (["cat", "DIR/s", "zzz"], 3, "there are 'orders'"),
        (["cat", "DIR/s", "orders", "-p", "9"], 3, "there is no 9"),
        (["cat", "DIR/s", "orders", "--from", "yesterday"], 2, "neither an offset nor a time"),
        (
            ["cat", "DIR/s", "orders", "--from", "1700000000"],
            0,
            "the 2 partitions of orders have offsets 0 up to 2",
        ),
        (["cat", "DIR/s", "orders", "-p", "1", "--from", "99"], 0, "orders-1 has offsets 0 up to 2"),
        (["cat", "DIR/s", "orders", "-p", "1", "--from", "99", "--quiet"], 0, ""),
        (["cat", "DIR/s", "orders", "--from", "1700000000ms"], 2, "seconds"),
        (["cat", "DIR/s", "orders", "--from", "9" * 18 + "ms"], 2, "nanoseconds"),
        (["cat", "DIR/s", "orders", "--from", "9" * 19 + "ms"], 0, "nothing there"),
        (["cat", "DIR/s", "orders", "--from", "9" * 19], 0, "nothing there"),
        (["cat", "DIR/s", "orders", "--to", "9" * 40], 2, "neither an offset nor a time"),
        (["cat", "DIR/s", "orders", "--from", "-" + "9" * 400 + "w"], 2, "neither an offset nor a time"),
        (["cat", "DIR/s", "orders", "--to", "-" + "9" * 15 + "w"], 0, "nothing there"),
        (["cat", "DIR/s", "orders", "--to", "1969-12-31"], 2, "before 1970"),
        (["cat", "DIR/s", "orders", "--format", "xml"], 2, "'raw'"),
        (["cat", "DIR/s", "orders", "--format", "raw", "--json"], 2, "exclude each other"),
        (["tail", "DIR/s", "orders", "--format", "raw", "--json"], 2, "exclude each other"),
        (["compact", "DIR/s", "orders"], 2, "cleanup.policy is delete"),
        (["info", "DIR/s/topics.json"], 2, ".timeindex"),
        (["handover", "DIR/s", "DIR/s"], 3, "beside each other"),
        (["verfy", "DIR/s"], 2, "--help"),
        (["cat", "DIR/s", "orders", "-n", "9" * 30], 0, ""),
        (["tail", "DIR/s", "orders", "-n", "9" * 30], 0, ""),
        (["ls"], 2, "logstore ls --help"),
        (["ls", "DIR/s", "--jsno"], 2, "--json"),
        ([], 2, ""),
        (["--version"], 0, ""),
        (["cat", "--help"], 0, ""),
    ],
    ids=str,
)
def test_errors_are_a_line_and_a_code(tmp_path, arguments, code, said):
    make_store(tmp_path / "s", count=2)
    done = run(*[each.replace("DIR", str(tmp_path)) for each in arguments])
    assert (done.code, said in done.err) == (code, True), done
    assert len(done.err.splitlines()) == (1 if said else 0)
    assert "Traceback" not in done.err


@pytest.mark.parametrize("leftover", [[], [".lock"]], ids=["nothing", "a lock"])
def test_an_empty_directory_is_no_store(tmp_path, leftover):
    """As where a file system is not mounted: a check must not call it sound, nor a backup succeed."""
    (tmp_path / "s").mkdir()
    for name in leftover:
        (tmp_path / "s" / name).touch()
    commands = (["ls"], ["info"], ["verify"], ["verify", "--json"], ["retain"], ["retain", "--dry-run"])
    for command, *options in (
        *commands,
        ["cat", "t"],
        ["tail", "t"],
        ["compact", "t"],
        ["backup", tmp_path / "b"],
    ):
        done = run(command, tmp_path / "s", *options)
        assert (done.code, done.out) == (3, "")
        assert "is empty: there is no store in it" in done.err
    assert sorted(path.name for path in tmp_path.rglob("*")) == sorted(["s", *leftover])


def test_a_store_without_topics_is_sound(tmp_path):
    with logstore.open(tmp_path / "s"):
        pass
    assert answer("verify", tmp_path / "s").out.startswith("sound: 0 records")


def test_who_holds_the_lock_is_named(tmp_path):
    path = make_store(tmp_path / "s", cleanup_policy="compact")
    with logstore.open(path):
        for command in (["compact", path, "orders"], ["retain", path]):
            done = program(*command)
            assert done.code == 3
            assert f"is held by process {os.getpid()}, " in done.err
            assert "read_only" not in done.err


def test_commands_that_read_work_beside_a_writer_and_change_nothing(tmp_path):
    path = make_store(tmp_path / "s")
    with open_store(path) as store:
        store["orders"][0].extend(numbered(3))
        store.flush()
        before = snapshot(path)
        for command in (["ls"], ["info"], ["lag"], ["groups"], ["verify"], ["retain", "--dry-run"]):
            answer(command[0], path, *command[1:])
        for command in ("ls", "info", "cat", "tail", "verify"):
            assert answer(command, path, "orders").out
        assert snapshot(path) == before
        assert len(answer("cat", path, "orders").lines) == 43


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_without_permission_to_write(tmp_path):
    path = make_store(tmp_path / "s")
    for folder, _, files in os.walk(path):
        os.chmod(folder, 0o555)
        for name in files:
            os.chmod(os.path.join(folder, name), 0o444)
    let_others_in(path)
    printed = run_python(
        """
        import os, sys
        from logstore.__main__ import main

        main(["ls", sys.argv[1]])  # imports what it needs, from where the other user may not look
        main(["verify", sys.argv[1]])
        main(["retain", sys.argv[1], "--dry-run"])
        os.setuid(65534)
        sys.stderr = sys.stdout
        for command in ("ls", "info", "cat", "tail", "verify"):
            print(main([command, sys.argv[1], "orders"]), flush=True)
        print(main(["retain", sys.argv[1]]))
        """,
        path,
    )
    codes = [line for line in printed.splitlines() if line.isdigit()]
    assert codes == ["0"] * 5 + ["3"], printed
    assert "Permission denied" in printed


def test_a_topic_that_is_held_in_part_says_what_is_elsewhere(tmp_path):
    path = tmp_path / "s"
    with logstore.open(path) as store:
        store.create_topic("t", partitions=5, held=[0, 4]).append(b"a", partition=0)
        store.create_topic("one", partitions=2, held=[1]).append(b"b", partition=1)
    for command in ("cat", "tail", "ls"):
        done = answer(command, path, "t")
        assert done.err == "t has 5 partitions, and 1 to 3 are not in this directory\n"
        assert answer(command, path, "one").err == "one has 2 partitions, and 0 is not in this directory\n"
        assert answer(command, path, "t", "--quiet").err == ""
    assert answer("cat", path, "t", "--partition", "0").err == ""
    assert answer("cat", path, "t", "--json").lines[0].startswith('{"topic": "t"')


def test_a_directory_around_stores_names_them(tmp_path):
    for name in ("logs-1", "logs-2"):  # not partitions of a topic "logs"
        make_store(tmp_path / "kafka" / name)
    for command in (["ls"], ["verify"], ["cat", "orders"], ["retain"]):
        done = run(command[0], tmp_path / "kafka", *command[1:])
        assert done.code == 3
        assert f"name one of the stores in it: {tmp_path}/kafka/logs-1, {tmp_path}/kafka/logs-2" in done.err


def test_the_metadata_log_of_a_cluster_is_no_topic(tmp_path):
    metadata = tmp_path / "broker" / "__cluster_metadata-0"
    metadata.mkdir(parents=True)
    (metadata / f"{0:020d}.log").touch()
    done = run("ls", metadata)
    assert done.code == 3
    assert "is the metadata log of a cluster, and no topic: `logstore info FILE` shows" in done.err


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_what_root_changes_stays_the_owners(tmp_path):
    path = make_store(tmp_path / "s")
    with logstore.open(path) as store:
        store.offsets("a").commit({("orders", 0): 3})
    (path / "meta.properties").chmod(0o600)
    for file in (path, *path.rglob("*")):
        os.chown(file, 65534, 65533)
    for name in (".lock", ".kafka_cleanshutdown"):
        (path / name).unlink()  # so it is opened after a crash, and all of these are made
    assert answer("groups", path, "a", "--reset", "earliest").lines
    answer("retain", path)
    with logstore.open(path) as store:
        store.create_topic("new")[0].append(b"")
        store.users.set_password("alice", "a long password")
    made = {file.relative_to(path): (file.stat().st_uid, file.stat().st_gid) for file in path.rglob("*")}
    assert {Path("users.json"), Path("new-0"), Path("new-0/leader-epoch-checkpoint")} <= made.keys()
    assert {file: owner for file, owner in made.items() if owner != (65534, 65533)} == {}


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_without_permission_to_read_how_far_groups_are_behind(tmp_path):
    path = make_store(tmp_path / "s")
    with logstore.open(path) as store:
        store.offsets("a").commit({("orders", 0): 3})
    for folder, _, _ in os.walk(path):
        os.chmod(folder, 0o755)
    let_others_in(path)
    for file in (path / "orders-0").glob("*.log"):
        file.chmod(0o600)
    printed = run_python(
        """
        import os, sys
        from logstore.__main__ import main

        main(["lag", sys.argv[1], "--quiet"])
        os.setuid(65534)
        print(main(["lag", sys.argv[1]]))
        """,
        path,
    )
    assert printed.splitlines()[-1] == "3"


def test_an_interrupt(tmp_path):
    with logstore.open(tmp_path / "s") as store:
        store.create_topic("t")[0].extend([bytes(100)] * 10_000)
    child = start("cat", tmp_path / "s", "t")
    watchdog = threading.Timer(60, child.kill)
    watchdog.start()
    child.stdout.readline()  # now it waits until more is read
    child.send_signal(signal.SIGINT)
    assert b"Traceback" not in child.communicate()[1]
    watchdog.cancel()
    assert child.returncode == 130


def test_an_interrupt_while_the_command_line_is_imported():
    printed = run_python(
        """
        import sys

        class Interrupting:
            def find_spec(self, name, *rest):
                if name == "typer":
                    raise KeyboardInterrupt

        sys.meta_path.insert(0, Interrupting())
        from logstore.__main__ import main

        print(main(["ls"]))
        """
    )
    assert printed == "130\n"


def test_a_fault_of_the_program_is_no_damage_of_the_files(tmp_path):
    """To a script 1 would say that."""
    path = make_store(tmp_path / "s")
    printed = run_python(
        """
        import sys
        from logstore.cli.commands import ls
        from logstore.__main__ import main

        ls.Settings = lambda path: {}["a fault"]
        print(main(["ls", sys.argv[1]]))
        """,
        path,
    )
    assert printed == "3\n"


@pytest.mark.parametrize("arguments", [["ls", "DIR"], ["ls", "--help"], ["--version"]], ids=str)
def test_a_disk_that_is_full_behind_the_output(tmp_path, arguments):
    path = make_store(tmp_path / "s")
    command = [*PROGRAM, *[each.replace("DIR", str(path)) for each in arguments]]
    with open("/dev/full", "wb") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, timeout=60)
    assert (done.returncode, done.stderr) == (3, b"error: No space left on device (standard output)\n")


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-"])
def test_streams_that_are_closed(tmp_path, closed):
    path = make_store(tmp_path / "s")
    for topic, code in (("orders", 3 if closed.startswith(">") else 0), ("nothing", 3)):
        line = f"{shlex.join(PROGRAM)} cat {path} {topic} {closed}"
        done = subprocess.run(["sh", "-c", line], capture_output=True, timeout=60)
        assert done.returncode == code
        assert b"Traceback" not in done.stderr
        if closed == ">&-" and topic == "orders":
            assert done.stderr == b"error: Bad file descriptor (standard output)\n"


def test_what_the_engine_warns_of_is_told_and_can_be_silenced(tmp_path):
    path = make_store(tmp_path / "s")
    (path / "recovery-point-offset-checkpoint").write_text("nonsense\n")
    done = answer("ls", path)
    assert "warning: ignoring a damaged checkpoint" in done.err


# The shape -------------------------------------------------------------------------------------------------


def test_json_has_the_fields_that_are_documented(tmp_path):
    """Every command's, on a store that has some of everything."""
    path = tmp_path / "s"
    with logstore.open(path, config=QUIET) as store:
        config = TopicConfig(
            cleanup_policy="compact,delete", segment_bytes=300, retention_bytes=1, index_interval_bytes=0
        )
        log = store.create_topic("t", config=config)[0]
        for number in range(6):
            log.extend([(b"k", b"\xff")], producer=ProducerIdentity(1, 0, number, transactional=True))
            log.append_end_marker(1, 0, committed=False)
        log.extend([NewRecord(b"v", b"\xff", (("h", b"\xff"),))])
        for group in ("g", "spare"):
            store.offsets(group).commit({("t", 0): 1})
    written = [(command, rows_of(command, [*line, "--json"])) for command, line in lines_for(path)]
    known = {frozenset(shape.fields): shape.title for command in COMMANDS for shape in command.shapes}
    met = set()

    def check(value):
        if isinstance(value, list):
            for each in value:
                check(each)
        elif isinstance(value, dict):
            names = frozenset(value) - set(ENCODINGS)
            if names in known:
                met.add(known[names])
            for each in value.values():
                check(each)

    for command, rows in written:
        for row in rows:
            assert frozenset(row) - set(ENCODINGS) in known, (command, row)
            check(row)
    assert met == {shape.title for command in COMMANDS for shape in command.shapes}
    assert {each.name for each in COMMANDS} == {command for command, _ in written}


def rows_of(command, line):
    if command == "bridge":
        with kafka(topics={"t": 1}) as servers:
            return run(*(servers if each == "SERVERS" else each for each in line)).rows
    if command != "serve" and (command != "standby" or "--promote" in line):
        return run(*line).rows
    with start(*line) as served:  # it goes on until it is told
        first = served.stdout.readline()
        served.send_signal(signal.SIGHUP)
        assert served.wait(20) == 0
    return [json.loads(first)]


def lines_for(path):
    files = sorted((path / "t-0").iterdir())
    torn = path / "t-0" / "00000000000000000000.index.tmp"
    torn.write_bytes(b"")  # something for verify to note
    yield "ls", ["ls", path]
    yield "ls", ["ls", path, "t"]
    yield "info", ["info", path]
    yield "info", ["info", path, "t"]
    for file in files:
        if file.name[0] == "0" and file.stat().st_size:
            yield "info", ["info", file]
            yield "info", ["info", file, "--all"]
    yield "lag", ["lag", path]
    yield "groups", ["groups", path]
    yield "groups", ["groups", path, "g", "--reset", "latest", "--dry-run"]
    yield "cat", ["cat", path, "t"]
    yield "tail", ["tail", path, "t"]
    yield "verify", ["verify", path]
    yield "retain", ["retain", path, "--dry-run"]
    yield "compact", ["compact", path, "t", "--now", "--dry-run"]
    yield "groups", ["groups", path, "spare", "--delete"]
    yield "backup", ["backup", path, path.with_name("backup")]
    yield "handover", ["handover", path, path.with_name("copy"), "--dry-run"]
    yield "bridge", ["bridge", "pull", "SERVERS", path.with_name("pulled"), "t"]
    yield "standby", ["standby", path.with_name("copied"), "127.0.0.1:1"]
    yield "standby", ["standby", path.with_name("copied"), copied_from(path.with_name("copied")), "--promote"]
    yield "serve", ["serve", path, "--listen", "127.0.0.1:0"]


def copied_from(path):
    """The address of a leader that is gone, and of which a store has a copy."""
    with logstore.open(path.with_name("leader")) as leader, leader.listen("127.0.0.1:0") as listener:
        leader.create_topic("t")
        with logstore.open(path) as store, replica.follow(store, listener.address):
            deadline = time.monotonic() + 30
            while "t" not in store:
                assert time.monotonic() < deadline
                time.sleep(0.01)
        return listener.address


def test_the_script_that_is_installed_is_the_program():
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, _, name = scripts["logstore"].partition(":")
    assert getattr(importlib.import_module(module), name)(["--version"]) == 0


def test_each_command_says_what_it_does():
    for command in COMMANDS:
        done = answer(command.name, "--help")
        assert command.function.__doc__.splitlines()[0] in done.out
        for option in ("--json", "--quiet"):
            assert option in done.out


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0", (0, None)),
        ("17", (17, None)),
        ("1700000000000ms", (None, TIME_MS)),
        ("2023-11-14T22:13:20Z", (None, TIME_MS)),
        ("2023-11-14T22:13:20", (None, TIME_MS)),
        ("2023-11-14 23:13:20.000+01:00", (None, TIME_MS)),
        ("2023-11-14", (None, TIME_MS - 80_000_000)),
    ],
)
def test_places(text, expected):
    assert tuple(times.parse_place(text)) == expected


@pytest.mark.parametrize("timestamp_ms", [0, 999, TIME_MS, 253_402_300_799_999, 2**62])
def test_a_time_that_is_shown_can_be_typed(timestamp_ms):
    assert times.parse_place(times.format_time(timestamp_ms)).timestamp_ms == timestamp_ms
