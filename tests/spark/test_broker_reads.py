"""What a batch read through ``kafka.bootstrap.servers`` gives: the rows, and the refusals, of the same read
of the directory. Asked in this process, of a listener of the store. ``test_stream_reader`` does so for
streams, and ``test_connector`` asks a stock broker."""

from __future__ import annotations

import json
import logging
import pickle
import shutil

import pytest

import logstore
from logstore.config import TopicConfig
from logstore.errors import (
    CorruptionError,
    InvalidConfigError,
    LogstoreError,
    OffsetOutOfRangeError,
    UnknownTopicError,
    UsageError,
)
from logstore.model import ProducerIdentity
from logstore.security import ServerTls
from logstore.wire.remote.broker import RemoteBroker
from tests.interop.fixtures import case_names, load_case
from tests.spark.conftest import missing_python
from tests.wire.security.certificates import Authority

if missing_python() is not None:
    pytest.skip(missing_python(), allow_module_level=True)

from logstore.spark.options import SERVERS, Options, Use
from logstore.spark.origins.broker import BrokerOrigin
from logstore.spark.origins.connection import connection_of
from logstore.spark.origins.directory import DirectoryOrigin
from tests.spark.reading import plan

SMALL = TopicConfig(segment_bytes=2_000, index_interval_bytes=300, file_delete_delay_ms=0, retention_ms=-1)
PASSWORD = 'of "some" length'


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as opened:
        yield opened


@pytest.fixture
def log(store):
    """100 records in 20 batches, in some segments."""
    made = store.create_topic("t", config=SMALL)[0]
    for first in range(0, 100, 5):
        made.extend([(b"k%d" % i, b"v%d" % i * 10, 1_000 + i) for i in range(first, first + 5)])
    return made


@pytest.fixture
def served(store):
    with store.listen() as listener:
        yield {SERVERS: listener.address}


def outcome(place, **options):
    """The rows, or the kind of error."""
    try:
        return plan(place, **{"includeHeaders": "true", **options}).rows()
    except LogstoreError as error:
        return type(error)


# The same rows ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", ["read_uncommitted", "read_committed"])
def test_every_kind_of_log_that_a_broker_has_written(tmp_path, level):
    """4 s."""
    count = 0
    for name in case_names():
        case, path = load_case(name), tmp_path / name
        shutil.copytree(case.directory, path)
        options = {
            "subscribe": ",".join({each.topic for each in case.partitions}),
            "kafka.isolation.level": level,
            "minPartitions": 3,
        }
        with logstore.open(path) as store, store.listen() as listener:
            found = outcome({SERVERS: listener.address}, **options)
            assert found == outcome(path, **options), name
            count += len(found)
    assert count > 1_000


@pytest.mark.parametrize("codec", ["uncompressed", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("fetch_bytes", [2_000, 4 << 20])
def test_answers_of_any_size(store, served, codec, fetch_bytes):
    """Fetches begin and end within batches, splits too; a batch is larger than an answer."""
    config = TopicConfig(compression_type=codec, segment_bytes=4_000_000, max_message_bytes=4_000_000)
    topic = store.create_topic("t", partitions=2, config=config)
    for number in range(30):
        topic[0].extend([(None, b"x" * (i * number), 5, [("h", None)] * (i % 3)) for i in range(40)])
    topic[1].extend([(b"", None, 7), (b"big", b"y" * 3_000_000, 7)])
    expected = outcome(store.path, subscribe="t")
    assert len(expected) == 1_202
    options = {"subscribe": "t", "kafka.max.partition.fetch.bytes": fetch_bytes}
    assert outcome(served, **options) == expected
    assert outcome(served, minPartitions=9, **options) == expected
    assert outcome(served, maxRecordsPerPartition=7, **options) == expected


AT = json.dumps({"t": {"0": 33}})
TIMES = json.dumps({"t": {"0": 1_033}})


@pytest.mark.parametrize(
    "options",
    [
        {"subscribePattern": "[st].*"},
        {"assign": json.dumps({"u": [1], "t": [0]})},
        {"startingOffsets": AT},
        {"endingOffsets": AT},
        {"startingOffsets": json.dumps({"t": {"0": -2}}), "endingOffsets": json.dumps({"t": {"0": -1}})},
        {"startingTimestamp": 1_050, "endingTimestamp": 1_070},
        {"startingOffsetsByTimestamp": TIMES},
        {"endingOffsetsByTimestamp": TIMES},
        {"endingTimestamp": 9_999},
        {"startingTimestamp": 9_999, "startingOffsetsByTimestampStrategy": "latest"},
        {"includeHeaders": "false"},
        # and what both refuse
        {"startingTimestamp": 9_999},
        {"startingOffsets": "latest"},
        {"endingOffsets": "earliest"},
        {"startingOffsets": json.dumps({"t": {"0": 101}})},
        {"startingOffsets": json.dumps({"t": {"0": 0, "1": 0}})},
        {"startingOffsets": json.dumps({"t": {"0": 101}}), "failOnDataLoss": "false"},
        {"subscribe": "absent"},
        {"assign": json.dumps({"u": [2]})},
        {"subscribe": "t", "assign": json.dumps({"u": [0]})},
    ],
    ids=lambda options: " ".join(f"{name}={str(value)[:20]}" for name, value in options.items()),
)
def test_options_mean_the_same(store, log, served, options):
    store.create_topic("u", partitions=2)[1].extend([b"u"])
    if not {"subscribePattern", "assign"} & set(options):
        options = {"subscribe": "t", **options}
    assert outcome(served, **options) == outcome(store.path, **options)


def test_transactions_that_overlap(store, served):
    log = store.create_topic("t", config=SMALL)[0]
    for producer, sequence in ((1, 0), (2, 0), (None, 0), (1, 1)):
        if producer is None:
            log.append_end_marker(2, 0, committed=False)
        else:
            log.extend([b"aborted"], producer=ProducerIdentity(producer, 0, sequence, transactional=True))
    log.extend([b"kept"])
    log.append_end_marker(1, 0, committed=False)
    log.extend([b"open"], producer=ProducerIdentity(3, 0, 0, transactional=True))
    log.extend([b"behind it"])
    for tasks in (1, 3):
        level = {"kafka.isolation.level": "read_committed", "minPartitions": tasks}
        assert [row["value"] for row in plan(served, subscribe="t", **level).rows()] == [b"kept"]


def test_gaps_that_compaction_left(store, served):
    """Also at the end of a range, where nothing is left to fetch."""
    config = TopicConfig(cleanup_policy="compact", segment_bytes=1_000, min_cleanable_dirty_ratio=0.0)
    log = store.create_topic("t", config=config)[0]
    for number in range(120):
        log.extend([(b"k%d" % (number % 3 if number > 20 else number), b"v%d" % number, 5)])
    store.compact()
    assert log.log_end_offset - sum(1 for _ in log) > 50
    for stop in (3, 15, 40, 80, 100, 120):
        options = {"subscribe": "t", "endingOffsets": json.dumps({"t": {"0": stop}})}
        assert outcome(served, **options) == outcome(store.path, **options), stop


def test_partitions_that_are_held_are_read_by_name(store, served):
    topic = store.create_topic("t", partitions=4, held=[1, 3])
    topic[3].extend([b"there"])
    options = {"assign": json.dumps({"t": [1, 3]})}
    assert [row["value"] for row in plan(served, **options).rows()] == [b"there"]
    assert outcome(served, **options) == outcome(store.path, **options)


def test_batches_are_of_some_megabytes_whatever_comes_in_an_answer(store, served):
    """30 MB of values that an answer of 4 MiB may hold compressed."""
    topic = store.create_topic("t", config=TopicConfig(compression_type="zstd", max_message_bytes=1 << 20))
    for _ in range(30):
        topic[0].extend([b"x" * 10_000] * 100)
    (task,) = plan(served, subscribe="t").tasks
    batches = task.run()
    assert sum(batch.num_rows for batch in batches) == 3_000
    assert max(batch.nbytes for batch in batches) < 8 << 20


# Meanwhile --------------------------------------------------------------------------------------------------


def test_a_read_is_of_what_was_there_when_it_was_planned(store, log, served):
    read = plan(served, subscribe="t")
    log.extend([b"more"] * 100)
    for _ in range(2):
        assert [row["offset"] for row in read.rows()] == list(range(100))


def test_bounds_are_asked_for_once_whatever_the_number_of_partitions(store, served, monkeypatch):
    store.create_topic("t", partitions=20)
    asked = []
    ask = RemoteBroker.list_offsets

    def counted(broker, request):
        asked.append(len(request.partitions))
        return ask(broker, request)

    monkeypatch.setattr(RemoteBroker, "list_offsets", counted)
    plan(served, subscribe="t")
    assert asked == [20, 20]  # the first offsets, and the ends


@pytest.mark.parametrize("place", ["directory", "brokers"])
def test_a_log_that_grows_while_its_bounds_are_asked_for_is_read_up_to_them(
    store, log, served, monkeypatch, place
):
    of = DirectoryOrigin if place == "directory" else BrokerOrigin
    ask = of.bounds_of

    def ask_and_append(*args):
        bounds = ask(*args)
        log.extend([b"meanwhile"])
        return bounds

    monkeypatch.setattr(of, "bounds_of", ask_and_append)
    read = plan(store.path if place == "directory" else served, subscribe="t")
    assert [row["offset"] for row in read.rows()] == list(range(100))


def delete_some(store, log):
    log.delete_before(50)


def delete_topic(store, log):
    store.delete_topic("t")


def create_again(store, log):
    store.delete_topic("t")
    store.create_topic("t")[0].extend([b"of another topic"] * 200)


@pytest.mark.parametrize(
    ("change", "error", "left"),
    [
        (delete_some, OffsetOutOfRangeError, list(range(50, 100))),
        (delete_topic, UnknownTopicError, []),
    ],
)
def test_what_goes_after_planning_fails_the_task_or_is_left_out(
    store, log, served, caplog, change, error, left
):
    failing = plan(served, subscribe="t")
    lenient = plan(served, subscribe="t", failOnDataLoss="false")
    change(store, log)
    with pytest.raises(error, match=r"t-0 in .*: offsets 0 to 99 existed when the read was planned"):
        failing.rows()
    with caplog.at_level(logging.WARNING, "logstore"):
        assert [row["offset"] for row in lenient.rows()] == left
    assert "offsets 0 to 99 existed when the read was planned" in caplog.text


def test_a_topic_that_was_created_again_is_another(store, log, served):
    read = plan(served, subscribe="t")
    create_again(store, log)
    with pytest.raises(UnknownTopicError, match="a new topic with its name"):
        read.rows()


def test_a_log_that_is_cut_after_planning(store, log, served):
    failing = plan(served, subscribe="t", **{"kafka.request.timeout.ms": 700})
    log.truncate_to(95)
    with pytest.raises(OffsetOutOfRangeError, match=r"offsets 95 to 99 existed .* the log ends at 95"):
        failing.rows()


@pytest.mark.damaged
def test_a_damaged_batch_fails_the_task_after_what_is_before_it(store, log, served):
    read = plan(served, subscribe="t", minPartitions=5)
    for task in read.tasks[1:]:
        task.run()
    path = f"{log.directory}/{0:020}.log"
    with open(path, "r+b") as file:
        file.seek(100)
        file.write(b"\xff")
    with pytest.raises(LogstoreError) as caught:
        read.tasks[0].run()
    assert isinstance(caught.value, CorruptionError)
    assert "t-0" in str(caught.value) or "topic 't'" in str(caught.value)
    assert "onCorruptBatch" not in str(caught.value)


# Who connects -----------------------------------------------------------------------------------------------


def test_a_password_and_certificates(store, log, tmp_path):
    """As the connector takes them. Without them, and with others, nothing is read."""
    ours, other = Authority(tmp_path / "ours"), Authority(tmp_path / "other")
    store.users.set_password("alice", PASSWORD)
    certificate = ServerTls(*ours.certify("server", "/CN=logstore", addresses=["127.0.0.1"]))
    login = PASSWORD.replace('"', '\\"')
    with store.listen(tls=certificate, sasl_enabled_mechanisms="SCRAM-SHA-512") as listener:
        place = {
            SERVERS: listener.address,
            "kafka.security.protocol": "SASL_SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.location": ours.root,
            "kafka.sasl.mechanism": "SCRAM-SHA-512",
            "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="alice" password="{login}";',
            "kafka.request.timeout.ms": 2_000,
        }
        assert len(plan(place, subscribe="t").rows()) == 100
        inline = {**place, "kafka.ssl.truststore.certificates": ours.root.read_text()}
        del inline["kafka.ssl.truststore.location"]
        assert len(plan(inline, subscribe="t").rows()) == 100
        with pytest.raises(LogstoreError):
            plan({**place, "kafka.ssl.truststore.location": other.root}, subscribe="t")
        wrong = place["kafka.sasl.jaas.config"].replace("length", "size")
        with pytest.raises(UsageError):
            plan({**place, "kafka.sasl.jaas.config": wrong}, subscribe="t")


def settings_of(**options):
    return connection_of(Options({SERVERS: "a:1, b:2", **options}, Use.BATCH_READ))


def test_what_is_pickled_into_tasks():
    login = {"kafka.security.protocol": "sasl_plaintext", "kafka.sasl.mechanism": "PLAIN"}
    found = settings_of(**login, **{"kafka.sasl.jaas.config": "x required username='a' password='b\\'c' ;"})
    assert found.servers == ("a:1", "b:2")
    assert (found.sasl.username, found.sasl.password, found.sasl.mechanism) == ("a", "b'c", "PLAIN")
    assert pickle.loads(pickle.dumps(found)) == found
    assert "b'c" not in repr(found)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({SERVERS: "a:1,"}, "it must be addresses separated by commas"),
        ({SERVERS: "a:1,b"}, "kafka.bootstrap.servers is 'a:1,b': 'b' is no address; give one such as"),
        ({"kafka.security.protocol": "TLS"}, "must be one of plaintext, ssl"),
        ({"kafka.security.protocol": "SASL_SSL"}, "kafka.sasl.mechanism must be one of PLAIN, SCRAM-SHA-256"),
        (
            {"kafka.security.protocol": "SSL", "kafka.ssl.truststore.location": "/x.jks"},
            "kafka.ssl.truststore.type must be PEM",
        ),
        ({"kafka.ssl.keystore.type": "JKS"}, "kafka.ssl.keystore.type must be PEM"),
        (
            {"kafka.security.protocol": "SASL_SSL", "kafka.sasl.mechanism": "PLAIN"}
            | {"kafka.sasl.jaas.config": 'x required username="secret-name";'},
            "kafka.sasl.jaas.config is hidden here: it must have a name and a password",
        ),
        ({"latestByKey": "true"}, "latestByKey is 'true': it cannot be used with kafka.bootstrap.servers"),
        ({"onCorruptBatch": "skip"}, "onCorruptBatch is 'skip': it cannot be used with"),
        ({"kafka.request.timeout.ms": "0"}, "it must be a whole number"),
    ],
)
def test_a_wrong_option_is_named(options, message):
    with pytest.raises(InvalidConfigError, match=message) as caught:
        plan({SERVERS: "127.0.0.1:1", **options}, subscribe="t")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("use", [Use.BATCH_WRITE, Use.STREAM_WRITE])
def test_writes_are_refused_and_told_who_writes(use):
    with pytest.raises(
        InvalidConfigError, match=r"not for df\.write.*; Spark's own connector, format\(\"kafka\"\)"
    ):
        Options({SERVERS: "127.0.0.1:1", "topic": "t"}, use)
