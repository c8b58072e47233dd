"""``cat`` and ``tail`` give what the library reads, and the part of it that was asked for."""

import base64
import itertools
import json
import os
import signal
import subprocess
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import logstore
from logstore import Isolation, NewRecord, ProducerIdentity, Record, TopicConfig
from logstore.cli import streams
from logstore.cli.commands import cat
from tests.cli.helpers import PROGRAM, QUIET, TIME_MS, answer, make_store, numbered, program, read, run, start
from tests.logdir.helpers import QuickFiles

payloads = st.none() | st.binary(max_size=30) | st.text(max_size=20).map(str.encode)
new_records = st.builds(
    NewRecord,
    payloads,
    payloads,
    st.lists(st.tuples(st.text(st.characters(codec="utf-8"), max_size=8), payloads), max_size=3).map(tuple),
    st.integers(0, TIME_MS),
)
CONFIG = TopicConfig(message_timestamp_unit_check=False, segment_bytes=600)


def as_record(row):
    def data(row, name):
        text = row[name]
        if row.get(f"{name}_encoding") == "base64":
            return base64.b64decode(text)
        return None if text is None else text.encode()

    headers = tuple((each["key"], data(each, "value")) for each in row["headers"])
    return Record(row["offset"], row["timestamp_ms"], data(row, "key"), data(row, "value"), headers)


@settings(max_examples=30)
@given(st.lists(st.lists(new_records, max_size=8), min_size=1, max_size=3))
def test_json_is_what_the_library_reads(tmp_path_factory, partitions):
    path = tmp_path_factory.mktemp("store")
    with logstore.open(path, config=QUIET, files=QuickFiles()) as store:
        topic = store.create_topic("t", partitions=len(partitions), config=CONFIG)
        for log, records in zip(topic, partitions, strict=True):
            log.extend(records)
    for order in ("partition", "timestamp"):
        rows = answer("cat", path, "t", "--json", "--order", order).rows
        assert [(row["partition"], as_record(row)) for row in rows] == read(path, "t", order=order)
    assert answer("cat", path, "t", "--json").rows == rows
    assert {row["topic"] for row in rows} <= {"t"}
    assert len(answer("cat", path, "t").lines) == len(rows)  # one line each, whatever is in them
    last = answer("tail", path, "t", "-n", 5, "--json").rows
    by_time = sorted(rows, key=lambda row: (row["timestamp_ms"], row["partition"], row["offset"]))
    if all(each == sorted(each) for each in ([r.timestamp_ms for r in part] for part in partitions)):
        assert last == by_time[-5:]


@settings(max_examples=60)
@given(st.integers(-3, 25), st.integers(-3, 25), st.integers(0, 2))
def test_a_range_is_the_one_that_was_asked_for(tmp_path_factory, start, stop, kind):
    path = test_a_range_is_the_one_that_was_asked_for.path
    if path is None:
        path = test_a_range_is_the_one_that_was_asked_for.path = make_store(
            tmp_path_factory.mktemp("s") / "s"
        )
    start, stop = max(start, 0), max(stop, 0)
    names = {
        0: str,
        1: lambda n: f"{TIME_MS + n * 1000}ms",
        2: lambda n: (
            f"2023-11-14T{22 + (13 * 60 + 20 + n) // 3600}:"
            f"{(13 * 60 + 20 + n) // 60 % 60:02d}:{(13 * 60 + 20 + n) % 60:02d}Z"
        ),
    }
    rows = answer(
        "cat", path, "orders", "-p", 0, "--from", names[kind](start), "--to", names[kind](stop), "--json"
    ).rows
    assert [row["offset"] for row in rows] == [n for n in range(20) if start <= n < stop]


test_a_range_is_the_one_that_was_asked_for.path = None


def test_records_of_a_key_and_no_more_than_asked_for(tmp_path):
    path = make_store(tmp_path / "s")
    rows = answer("cat", path, "orders", "--key", "key 1", "--json", "--order", "partition").rows
    assert [(row["partition"], as_record(row)) for row in rows] == [
        each for each in read(path) if each[1].key == b"key 1"
    ]
    assert len(rows) == 14
    rows.sort(key=lambda row: row["timestamp_ms"])
    assert answer("cat", path, "orders", "-k", "key 1", "-n", 9, "--json").rows == rows[:9]
    assert answer("cat", path, "orders", "--limit", 0).out == ""


def test_how_long_ago(tmp_path):
    path = make_store(tmp_path / "s", count=3)
    assert answer("cat", path, "orders", "--from", "-1h").out == ""
    assert len(answer("cat", path, "orders", "--to", "-1h").lines) == 6


def test_text_has_partition_offset_time_key_value_and_headers(tmp_path):
    with logstore.open(tmp_path / "s") as store:
        store.create_topic("t")[0].extend(
            [
                NewRecord(b"v\n\xff", b"k", (("h", b"1"), ("n", None)), TIME_MS),
                NewRecord(None, None, (), TIME_MS + 1),
            ]
        )
    assert answer("cat", tmp_path / "s", "t").lines == [
        "0  0  2023-11-14T22:13:20.000Z  k  v\\n\\xff  {h=1, n=\\N}",
        "0  1  2023-11-14T22:13:20.001Z  \\N  \\N",
    ]


def test_raw_is_the_bytes_of_the_values(tmp_path):
    with logstore.open(tmp_path / "s") as store:
        store.create_topic("t")[0].extend([b"\xff\x00", b"", NewRecord(None)])
    done = start("cat", tmp_path / "s", "t", "--format", "raw")
    assert done.communicate(timeout=60) == (b"\xff\x00\n\n\n", b"")


def test_transactions_are_left_out_as_asked_for(tmp_path):
    with logstore.open(tmp_path / "s") as store:
        log = store.create_topic("t")[0]
        for number, commits in enumerate((True, False)):
            log.extend([b"%d" % number] * 2, producer=ProducerIdentity(number, 0, 0, True))
            log.append_end_marker(number, 0, committed=commits)
        log.extend([b"open"], producer=ProducerIdentity(9, 0, 0, True))
    for isolation in Isolation:
        rows = answer("cat", tmp_path / "s", "t", "--isolation", isolation.value, "--json").rows
        assert [as_record(row) for row in rows] == [
            record for _, record in read(tmp_path / "s", "t", isolation=isolation)
        ]
    assert len(rows) == 5
    assert [row["value"] for row in answer("tail", tmp_path / "s", "t", "-n", 2, "--json").rows] == [
        "1",
        "open",
    ]
    committed = ("--isolation", "committed", "--json")
    assert [row["value"] for row in answer("tail", tmp_path / "s", "t", "-n", 2, *committed).rows] == [
        "0",
        "0",
    ]


# The end ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [0, 1, 3, 39, 40, 100])
def test_the_last_records_of_all_partitions(tmp_path, count):
    path = make_store(tmp_path / "s")
    rows = answer("tail", path, "orders", "-n", count, "--json").rows
    by_time = sorted(read(path), key=lambda each: (each[1].timestamp_ms, each[0], each[1].offset))
    assert [(row["partition"], as_record(row)) for row in rows] == by_time[len(by_time) - min(count, 40) :]


def test_the_last_records_where_offsets_have_gaps(tmp_path):
    with logstore.open(tmp_path / "s", config=QUIET) as store:
        config = TopicConfig(cleanup_policy="compact", segment_bytes=2_000)
        log = store.create_topic("t", config=config)[0]
        log.extend([(b"kept %d" % n, b"v") for n in range(5)])
        for n in range(1_000):
            log.extend([(b"same", b"%d" % n)])
        log.compact(now=True)
        expected = [record.offset for record in log.read()]
        assert len(expected) < 20
    for count in (1, 3, len(expected), 100):
        rows = answer("tail", tmp_path / "s", "t", "-n", count, "--json").rows
        assert [row["offset"] for row in rows] == expected[-count:]


def test_the_end_costs_the_end(tmp_path, monkeypatch):
    """Of 20 MB a piece is read."""
    with logstore.open(tmp_path / "s") as store:
        log = store.create_topic("t")[0]
        for _ in range(20):
            log.extend([bytes(1_000)] * 1_000)
    counts = []
    monkeypatch.setattr(
        "logstore.files.OsFile.read_at",
        lambda file, at, size, plain=logstore.files.OsFile.read_at: (
            counts.append(size) or plain(file, at, size)
        ),
    )
    monkeypatch.setattr(
        "logstore.files.OsFile.read_into",
        lambda file, at, to, plain=logstore.files.OsFile.read_into: (
            counts.append(len(to)) or plain(file, at, to)
        ),
    )
    assert len(answer("tail", tmp_path / "s", "t", "-n", 3, "--json").rows) == 3
    assert 3_000 < sum(counts) < 3_000_000


def test_a_follower_sees_what_a_running_writer_appends(tmp_path):
    """The writer is this process; also a partition that is added, and an interrupt at the end."""
    with logstore.open(tmp_path / "s") as store:
        topic = store.create_topic("orders", partitions=2)
        topic[0].extend(numbered(3), flush=True)
        follower = start("tail", tmp_path / "s", "orders", "-n", 1, "-f", "--json")
        watchdog = threading.Timer(60, follower.kill)
        watchdog.start()
        try:
            lines = map(json.loads, iter(follower.stdout.readline, b""))
            assert next(lines)["value"] == "value 2"
            topic[1].append(b"one")
            assert next(lines)["value"] == "one"
            topic[0].extend([b"two", b"three"])
            assert [row["value"] for row in itertools.islice(lines, 2)] == ["two", "three"]
            topic.add_partitions(3)
            topic[2].append(b"new")
            assert next(lines)["partition"] == 2
            follower.send_signal(signal.SIGINT)
            assert follower.wait(60) == 130
            assert follower.stderr.read() == b""
        finally:
            watchdog.cancel()
            follower.kill()
            follower.communicate()


def test_a_follower_of_a_topic_that_is_deleted_says_so(tmp_path):
    with logstore.open(tmp_path / "s") as store:
        store.create_topic("orders")[0].extend([b"v"])
        follower = start("tail", tmp_path / "s", "orders", "-f")
        watchdog = threading.Timer(60, follower.kill)
        watchdog.start()
        assert b"v" in follower.stdout.readline()
        store.delete_topic("orders")
        assert follower.wait(60) == 3
        watchdog.cancel()
        assert b"error: " in follower.communicate()[1]


def test_a_follower_does_not_go_on_in_another_topic_of_the_same_name(tmp_path, monkeypatch):
    """Between two looks. It waited for an offset of the new topic, and had passed over what is in front."""
    with logstore.open(tmp_path / "s") as store:
        store.create_topic("orders")[0].extend([b"v"] * 2)
        looks = []

        def wait(seconds):
            looks.append(seconds)
            if len(looks) == 1:
                store.delete_topic("orders")
                store.create_topic("orders")[0].extend([b"new"] * 3)
            elif len(looks) == 4:
                raise KeyboardInterrupt

        monkeypatch.setattr(streams, "wait", wait)
        done = run("tail", tmp_path / "s", "orders", "-f")
    assert (done.code, "new" in done.out, "made again" in done.err) == (3, False, True), done


def test_a_follower_says_once_what_was_deleted_before_it_was_read(tmp_path, monkeypatch):
    with logstore.open(tmp_path / "s") as store:
        log = store.create_topic("orders")[0]
        looks = []

        def wait(seconds):
            looks.append(seconds)
            if len(looks) == 1:
                log.extend([b"v"] * 3)
                log.delete_before(3)
            elif len(looks) == 4:
                raise KeyboardInterrupt

        monkeypatch.setattr(streams, "wait", wait)
        done = run("tail", tmp_path / "s", "orders", "-f")
    assert (done.code, done.err) == (130, "orders-0: offsets 0 to 2 were deleted before they were read\n")


def test_what_is_deleted_before_it_is_read_is_passed_over_and_told(tmp_path, monkeypatch):
    with logstore.open(tmp_path / "s", config=QUIET) as store:
        log = store.create_topic("orders", config=TopicConfig(segment_bytes=1_000))[0]
        for number in range(30):
            log.extend([b"%d" % number])

        def deleting(*arguments):
            offsets = range_of(*arguments)
            log.delete_before(20)
            return offsets

        range_of = cat._range_of
        monkeypatch.setattr(cat, "_range_of", deleting)
        done = answer("cat", tmp_path / "s", "orders", "--json", "--from", "5")
        assert [row["offset"] for row in done.rows] == [*range(20, 30)]
        assert done.err == "orders-0: offsets 5 to 19 were deleted before they were read\n"
        log.delete_before(10)
        done = answer("cat", tmp_path / "s", "orders", "--json", "--from", "5", "--to", "25")
        assert [row["offset"] for row in done.rows] == [*range(20, 25)]


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["cat", "--help"]])
def test_a_reader_that_has_gone_before_it_read(arguments):
    end, output = os.pipe()
    os.close(end)
    try:
        done = subprocess.run([*PROGRAM, *arguments], stdout=output, stderr=subprocess.PIPE, timeout=60)
    finally:
        os.close(output)
    assert (done.returncode, done.stderr) == (141, b"")


def test_a_reader_that_goes_is_no_error(tmp_path):
    """As ``| head -1`` goes; more is written than a pipe holds."""
    with logstore.open(tmp_path / "s") as store:
        store.create_topic("t")[0].extend([bytes(100)] * 10_000)
    writer = start("cat", tmp_path / "s", "t")
    writer.stdout.readline()
    writer.stdout.close()
    assert writer.wait(60) == 141
    assert writer.stderr.read() == b""
    writer.stderr.close()


def test_a_follower_ends_when_its_reader_goes(tmp_path):
    """As ``tail -f | head -1`` does, although no further record comes."""
    with logstore.open(tmp_path / "s") as store:
        store.create_topic("orders")[0].extend([b"v"])
    follower = start("tail", tmp_path / "s", "orders", "-f")
    assert b"v" in follower.stdout.readline()
    follower.stdout.close()
    try:
        assert follower.wait(60) == 141
        assert follower.stderr.read() == b""
    finally:
        follower.kill()
        follower.wait()
        follower.stderr.close()


def test_memory_does_not_grow_with_the_topic(tmp_path):
    """200 MB of records under a limit of 64 MB more than an empty topic takes."""
    with logstore.open(tmp_path / "s", config=QUIET) as store:
        store.create_topic("empty")
        log = store.create_topic("t")[0]
        for _ in range(200):
            log.extend([bytes(1_000)] * 1_000)

    def peak(topic):
        done = start("cat", tmp_path / "s", topic, "--format", "raw")
        while done.stdout.read(1 << 20):
            pass
        _, status, usage = os.wait4(done.pid, 0)
        done.returncode = os.waitstatus_to_exitcode(status)
        done.stdout.close(), done.stderr.close()
        assert done.returncode == 0
        return usage.ru_maxrss

    assert peak("t") - peak("empty") < 64 * 1024


def test_the_program_reads_what_the_library_reads(tmp_path):
    path = make_store(tmp_path / "s", count=5)
    done = program("cat", path, "orders", "--json")
    assert (done.code, done.err) == (0, "")
    assert [(row["partition"], as_record(row)) for row in done.rows] == read(path)


@pytest.mark.damaged
def test_damage_is_told_behind_what_is_sound(tmp_path):
    path = make_store(tmp_path / "s", count=20, partitions=1)
    files = sorted((path / "orders-0").glob("*.log"))
    data = bytearray(files[1].read_bytes())
    data[70] ^= 1
    files[1].write_bytes(data)
    done = run("cat", path, "orders", "--json")
    assert done.code == 1
    assert [row["offset"] for row in done.rows] == list(range(int(files[1].stem)))
    assert str(files[1]) in done.err
    assert "logstore verify" in done.err
