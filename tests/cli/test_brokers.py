"""The commands on directories that a stock Kafka wrote: they say what its consumer and its dump tool say.

Without Java the committed directories and what the consumer saw; with it the dump tool, on those and on ours.
"""

import json
import shutil
import threading

import pytest

import logstore
from logstore import ProducerIdentity, TopicConfig
from logstore.cli.commands.files import BATCH
from tests.cli.helpers import QUIET, answer, make_store, numbered, run, start
from tests.cli.test_records import as_record
from tests.exchange.brokers import BROKER, make_broker
from tests.interop.clients import NewRecord, consume, produce, produce_transactions
from tests.interop.dump import dump_log
from tests.interop.fixtures import case_names, load_case
from tests.interop.kafka import KafkaBroker, require_kafka
from tests.logdir.helpers import snapshot


def as_seen(record):
    return record.offset, record.timestamp_ms, record.key, record.value, record.headers


@pytest.mark.parametrize("name", case_names())
def test_cat_is_what_kafkas_consumer_saw(name):
    case = load_case(name)
    before = snapshot(case.directory)
    for expected in case.partitions:
        command = ["cat", case.directory, expected.topic, "-p", expected.partition, "--json"]
        everything = answer(*command).rows
        committed = answer(*command, "--isolation", "committed").rows
        assert [as_seen(as_record(row)) for row in everything] == [as_seen(each) for each in expected.records]
        assert [as_seen(as_record(row)) for row in committed] == [
            as_seen(each) for each in expected.committed
        ]
        assert answer("tail", *command[1:], "-n", 5).rows == everything[-5:]
        [row] = [
            row
            for row in answer("ls", case.directory, expected.topic, "--json").rows
            if row["partition"] == expected.partition
        ]
        assert row["log_end_offset"] >= expected.log_end_offset
        assert (row["log_start_offset"], row["last_stable_offset"]) == (
            expected.log_start_offset,
            expected.last_stable_offset,
        )
    assert snapshot(case.directory) == before


def test_a_backup_that_shares_files_with_a_broker_says_so(tmp_path):
    broker = make_broker(tmp_path / "broker")
    with logstore.open(broker, config=QUIET) as store:
        store["plain"][0].extend([b"sealed"])
        store["plain"][0].roll()
    assert "may cut its own in place" in answer("backup", broker, tmp_path / "linked").err
    assert answer("backup", broker, tmp_path / "copied", "--no-links").err == ""
    store = make_store(tmp_path / "store")
    assert answer("backup", store, tmp_path / "own").err == ""


def test_a_broker_is_known_as_one_and_so_are_its_settings():
    rows = {row["topic"]: row for row in answer("ls", BROKER, "--json").rows}
    assert {name: row["cleanup_policy"] for name, row in rows.items()} == {
        "compacted": "compact",
        "kept": None,
        "plain": None,
    }
    assert answer("info", BROKER, "--json").rows[0]["kind"] == "broker"
    assert answer("info", BROKER, "kept", "--json").rows[0]["settings"]["retention.ms"] == "-1"


def test_a_brokers_topic_is_compacted_by_the_broker(tmp_path):
    """Its settings are shown, and do not count in its directory: there all is kept."""
    broker = make_broker(tmp_path / "broker")
    for _ in range(2):  # the first has left a catalogue
        done = run("compact", broker, "compacted", "--now")
        assert done.code == 3
        assert "compacted is a broker's, which compacts" in done.err
        assert "cleanup.policy" not in done.err
        assert "cleanup.policy=compact" in answer("info", broker, "compacted").out
        assert "nothing to delete" in answer("retain", broker).err


def test_a_directory_without_the_brokers_metadata():
    directory = load_case("log-dir").directory
    found = answer("info", directory, "many", "--json").rows[0]
    assert answer("info", directory, "--json").rows[0]["kind"] == "broker"
    assert found["settings"] is None
    assert [log["checkpoints"]["log_start_offset"] for log in found["logs"]] == [None, 47, None]
    assert "not known" in answer("info", directory, "many").out


@pytest.mark.parametrize("name", case_names())
def test_commands_end_well_on_what_a_broker_left(name):
    case = load_case(name)
    for command in (["ls"], ["info"], ["verify"], ["retain", "--dry-run"]):
        assert run(command[0], case.directory, *command[1:], "--json").code == 0
    for topic in {each.topic for each in case.partitions}:
        assert run("info", case.directory, topic).code == 0


# Beside Kafka's own tool -----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def directories(tmp_path_factory):
    """Copies of what a broker wrote, and partitions of ours, with all that the tool knows."""
    require_kafka()
    path = tmp_path_factory.mktemp("s")
    for name in ("transactional-segments", "idempotent", "codec-zstd", "append-time", "segments"):
        for each in load_case(name).partitions:
            shutil.copytree(each.directory, path / "broker" / each.directory.name)
    with logstore.open(path / "ours", config=QUIET) as store:
        log = store.create_topic("t", config=TopicConfig(segment_bytes=2_000, index_interval_bytes=100))[0]
        for number in range(30):
            log.extend(numbered(5, 5 * number))
            log.extend(numbered(2), producer=ProducerIdentity(5, 0, 2 * number, transactional=True))
            log.append_end_marker(5, 0, committed=number % 2 == 0)
    return [path / "ours" / "t-0", *sorted((path / "broker").iterdir())]


@pytest.mark.interop
def test_files_are_what_the_dump_tool_says(directories):
    dumped = dump_log(directories, allow_gaps=True)
    kinds = set()
    for path, file in dumped.items():
        rows = answer("info", path, "--all", "--json").rows
        kinds.add(path.suffix)
        if path.suffix == ".log":
            assert [batch_of(row) for row in rows] == [as_dumped(each) for each in file.batches]
        elif path.suffix == ".index":
            said = [(int(each["offset"]), int(each["position"])) for each in file.entries]
            assert [(row["offset"], row["position"]) for row in rows] == said
        elif path.suffix == ".timeindex":
            said = [(int(each["timestamp"]), int(each["offset"])) for each in file.entries]
            assert [(row["timestamp_ms"], row["offset"]) for row in rows] == said
        elif path.suffix == ".txnindex":
            said = [(int(each["producerId"]), int(each["firstOffset"])) for each in file.entries]
            assert [(row["producer_id"], row["first_offset"]) for row in rows] == said
        else:
            said = {
                (int(each["producerId"]), int(each["producerEpoch"]), int(each["coordinatorEpoch"]))
                for each in file.entries
            }
            found = {(row["producer_id"], row["producer_epoch"], row["coordinator_epoch"]) for row in rows}
            assert found == said
    assert kinds == {".log", ".index", ".timeindex", ".txnindex", ".snapshot"}


@pytest.mark.interop
def test_records_are_what_the_dump_tool_says(directories):
    for directory in directories:
        topic, _, number = directory.name.rpartition("-")
        files = dump_log(sorted(directory.glob("*.log")), index_sanity=False, allow_gaps=True)
        listed = [
            each for path in sorted(files) for each in files[path].records if "endTxnMarker" not in each.text
        ]
        rows = answer("cat", directory.parent, topic, "-p", number, "--isolation", "log_end", "--json").rows
        records = [as_record(row) for row in rows]
        assert [(each.offset, each.timestamp_ms, each.key_size, each.value_size) for each in listed] == [
            (each.offset, each.timestamp_ms, size_of(each.key), size_of(each.value)) for each in records
        ]


def size_of(data):
    return -1 if data is None else len(data)


def batch_of(row):
    return {
        "baseOffset": row["base_offset"],
        "lastOffset": row["last_offset"],
        "count": row["record_count"],
        "partitionLeaderEpoch": row["leader_epoch"],
        "producerId": row["producer_id"],
        "producerEpoch": row["producer_epoch"],
        "baseSequence": row["base_sequence"],
        "position": row["position"],
        "size": row["size_bytes"],
        "magic": row["magic"],
        "compresscodec": row["codec"],
        "isTransactional": row["is_transactional"],
        "isControl": row["is_control"],
        "timestamp": row["max_timestamp_ms"],
        "isvalid": row["damage"] == "",
    }


def as_dumped(batch):
    """The fields that are compared, as :func:`batch_of` has them."""
    fields = batch | {"timestamp": batch.get("CreateTime", batch.get("LogAppendTime"))}
    return {name: parsed(fields[name]) for name in batch_of(dict.fromkeys(BATCH.fields))}


def parsed(text):
    if text in ("true", "false"):
        return text == "true"
    return int(text) if text.lstrip("-").isdigit() else text


# Beside a broker that runs ---------------------------------------------------------------------------------


@pytest.mark.interop
def test_beside_a_running_broker(tmp_path):
    """It appends, commits and aborts while the commands read its directory."""
    require_kafka()
    with KafkaBroker(tmp_path) as broker:
        broker.create_topic("t", partitions=2, config={"cleanup.policy": "compact"})
        data = broker.log_dir
        produce(broker.bootstrap, "t", [[NewRecord(b"k", b"first")]])
        follower = start("tail", data, "t", "-f", "--json")
        watchdog = threading.Timer(120, follower.kill)
        watchdog.start()
        try:
            lines = map(json.loads, iter(follower.stdout.readline, b""))
            assert next(lines)["value"] == "first"
            for number in range(5):
                records = [NewRecord(b"k", b"%d" % number)]
                produce(broker.bootstrap, "t", [records], partition=1)
                assert next(lines)["value"] == str(number)
            transactions = [([NewRecord(b"k", b"no")], False), ([NewRecord(b"k", b"yes")], True)]
            produce_transactions(broker.bootstrap, "t", transactions, transactional_id="x")
            assert [next(lines)["value"] for _ in range(2)] == ["no", "yes"]
        finally:
            watchdog.cancel()
            follower.kill()
            follower.communicate()
        committed = answer("cat", data, "t", "--isolation", "committed", "--json").rows
        for number in range(2):
            seen = consume(broker.bootstrap, "t", partition=number, isolation="read_committed")
            found = [as_seen(as_record(row)) for row in committed if row["partition"] == number]
            assert found == [as_seen(each) for each in seen]
        [row] = [row for row in answer("ls", data, "--json").rows if row["topic"] == "t"]
        assert (row["cleanup_policy"], row["partitions"], row["offsets"]) == ("compact", 2, 10)
        assert answer("info", data, "--json").rows[0]["kind"] == "broker"
        assert answer("verify", data, "--json").rows[0]["is_sound"]
        assert run("retain", data).code == 3
        assert broker.is_running
