"""The broker for tests: there in milliseconds, gone at the end, and open to tampering."""

from __future__ import annotations

import copy
import os
import pickle
import re
import subprocess
import sys
import threading
import time
from contextlib import ExitStack, suppress

import pytest
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from logstore.broker.codes import ErrorCode
from logstore.clients import sender
from logstore.config import StoreConfig, TopicConfig
from logstore.connected import connect
from logstore.errors import InvalidConfigError, UsageError
from logstore.format.header import decode_header
from logstore.testing import Delay, Drop, DropAnswer, HangUp, Refuse, kafka, kafka_servers
from logstore.wire.apis import ApiKey
from logstore.wire.listener import connection
from logstore.wire.listener.intercepting import Intercepted
from logstore.wire.messages.cluster.api_versions import ApiVersionsRequest
from logstore.wire.messages.cluster.metadata import MetadataRequest, TopicWanted
from logstore.wire.messages.records import fetch
from logstore.wire.messages.records.produce import Partition, ProduceRequest, Topic
from logstore.wire.messages.shares import acknowledged, share_acknowledge, share_fetch, share_group_heartbeat
from tests.interop.clients import KafkaProducer
from tests.wire.raw_client import RawClient


def send(servers, value=b"v", **settings):
    """The offset of a record, through librdkafka."""
    found = []

    def delivered(error, message):
        found.append((error, message.offset()))

    producer = Producer({"bootstrap.servers": str(servers), "retry.backoff.ms": 10, **settings})
    producer.produce("t", value, on_delivery=delivered)
    producer.flush(10)
    ((error, offset),) = found
    if error is not None:
        raise KafkaException(error)
    return offset


def test_a_client_takes_it_as_an_address():
    with kafka(topics={"t": 1}) as servers:
        assert send(servers) == 0
        producer = KafkaProducer(bootstrap_servers=servers)
        assert producer.send("t", b"w").get(10).offset == 1
        producer.close()
        assert [each.value for each in servers.store["t"][0].read()] == [b"v", b"w"]
        assert [each.key.name for each in servers.requests("Produce")] == ["PRODUCE"] * 2
        path = servers.store.path
    assert not os.path.exists(path)
    assert f"logstore-listener-{servers}" not in {each.name for each in threading.enumerate()}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_forked_child_that_ends_leaves_it_alone():
    """It took the directory with it, and nothing could be sent any more."""
    with ExitStack() as stack:
        servers = stack.enter_context(kafka(topics={"t": 1}))
        child = os.fork()
        if child == 0:  # as by sys.exit()
            with suppress(BaseException):
                stack.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert send(servers) == 0
        path = servers.store.path
    assert not os.path.exists(path)


def run_program(text):
    """What a process with it says, in both outputs."""
    finished = subprocess.run(
        [sys.executable, "-W", "error", "-c", text], capture_output=True, text=True, timeout=60
    )
    assert finished.returncode == 0
    return finished.stdout + finished.stderr


def test_one_that_nobody_ends_ends_with_the_process():
    """As in a notebook. It said that another process may have opened the directory, with a traceback.

    0.5 s.
    """
    path = run_program("""if True:
        from logstore.testing import kafka

        broker = kafka(topics={"t": 1})
        servers = broker.__enter__()
        servers.store["t"].append(b"v")
        print(servers.store.path, end="")
    """)
    assert os.path.isabs(path)
    assert "\n" not in path
    assert not os.path.exists(path)


def test_a_directory_that_cannot_be_removed_yet_goes_with_the_process():
    """It stayed for ever where the process had no more files to open at the end of the block.

    0.5 s.
    """
    path = run_program("""if True:
        import os, resource
        from contextlib import suppress

        from logstore.errors import StorageError
        from logstore.testing import kafka

        with suppress(StorageError), kafka(topics={"t": 1}) as servers:
            path = servers.store.path
            allowed = resource.getrlimit(resource.RLIMIT_NOFILE)
            resource.setrlimit(resource.RLIMIT_NOFILE, (3, allowed[1]))
        assert os.path.exists(path)
        resource.setrlimit(resource.RLIMIT_NOFILE, allowed)
        print(path, end="")
    """)
    assert os.path.isabs(path)
    assert not os.path.exists(path)


def test_another_process_gets_the_address():
    """Was: "a Store cannot be pickled or copied"."""
    with kafka() as servers:
        for found in (pickle.loads(pickle.dumps(servers)), copy.deepcopy({"at": servers})["at"]):
            assert (found, type(found)) == (str(servers), str)


def test_it_is_there_at_once():
    with kafka():
        pass
    began = time.monotonic()
    for _ in range(10):
        with kafka():
            pass
    assert (time.monotonic() - began) / 10 < 0.5  # about 10 ms; a container takes seconds


def test_a_producer_says_that_its_records_wait(monkeypatch, caplog):
    """It tries again for two minutes. Said once a minute, of each partition."""
    monkeypatch.setattr(sender, "_LONG_MS", 50)
    with kafka(topics={"t": 1}) as servers:
        servers.intercept("Produce", Refuse("KAFKA_STORAGE_ERROR"), times=None)
        with connect(str(servers)) as store, store.producer(retry_backoff_ms=10) as producer:
            sent = producer.send("t", b"v")
            while len(servers.requests("Produce")) < 20:
                time.sleep(0.01)
            servers.let_through()
            assert sent.result().offset == 0
    (said,) = [each.getMessage() for each in caplog.records if each.name == sender.__name__]
    assert re.fullmatch(r"records for t-0 could not be stored for 0 s: KAFKA_STORAGE_ERROR.*", said)


def test_a_refused_fetch_is_refused_for_its_partitions():
    """Clients do what an error asks for if it is there: this one looks for an offset as it was told."""
    with kafka(topics={"t": 1}) as servers:
        send(servers)
        servers.intercept("Fetch", Refuse("OFFSET_OUT_OF_RANGE"))
        settings = {"group.id": "g", "auto.offset.reset": "latest"}
        consumer = Consumer({"bootstrap.servers": str(servers), **settings})
        consumer.assign([TopicPartition("t", 0, 0)])
        while not (asked := servers.requests("ListOffsets")):
            assert consumer.poll(0.05) is None
        assert asked[0].request.topics[0].partitions[0].timestamp_ms == -1
        consumer.close()


def test_a_request_stays_as_it_came():
    """A listener gives large batches their offsets where they are."""
    with kafka(topics={"t": 1}) as servers:
        for _ in range(2):
            send(servers, bytes(100_000))
        batches = [each.request.topics[0].partitions[0].records for each in servers.requests("Produce")]
        assert [decode_header(each).base_offset for each in batches] == [0, 0]
        log = servers.store["t"][0]
        assert decode_header(log.fetch(1).data).base_offset == 1


def test_a_refused_request_is_sent_again():
    with kafka(topics={"t": 1}) as servers:
        servers.intercept("Produce", Refuse("NOT_LEADER_OR_FOLLOWER"), times=2)
        assert send(servers) == 0
        assert len(servers.requests("Produce")) == 3


def test_an_answer_that_is_lost_doubles_nothing():
    with kafka(topics={"t": 1}) as servers:
        for action in (DropAnswer(), HangUp(), Drop()):
            servers.intercept("Produce", action)
            send(servers, **{"socket.timeout.ms": 300, "enable.idempotence": True})
        assert servers.store["t"][0].log_end_offset == 3


@pytest.mark.parametrize("action", [Drop(), DropAnswer()])
def test_no_answer_overtakes_one_that_is_dropped(monkeypatch, action):
    """Kafka's Java client, which awaits answers in their order, broke: "Uncaught error in kafka producer I/O
    thread", and nothing more arrived."""
    with kafka() as servers, RawClient(servers, timeout=0.1) as client:
        servers.intercept("Metadata", action)
        for name in ("first", "second"):
            client.send(ApiKey.METADATA, MetadataRequest((TopicWanted(name=name),)), 12)
        with pytest.raises(TimeoutError):
            client.socket.recv(1)
        assert "second" not in servers.store
        assert ("first" in servers.store) == isinstance(action, DropAnswer)
        with RawClient(servers) as other:
            assert other.ask(ApiKey.METADATA, MetadataRequest(()), 12).brokers
        monkeypatch.setattr(connection, "_UNHEARD_SECONDS", 0)
        client.send(ApiKey.METADATA, MetadataRequest(()), 12)  # as kafkajs, which does not hang up
        assert client.is_hung_up()


@pytest.mark.parametrize("action", [Drop(), DropAnswer()])
def test_a_client_that_awaits_no_answer_goes_on_where_one_is_dropped(action):
    with kafka(topics={"t": 1}) as servers, RawClient(servers) as client:
        servers.intercept("Produce", action)
        client.send(ApiKey.PRODUCE, ProduceRequest(acks=0, timeout_ms=1000, topics=()), 9)
        assert client.ask(ApiKey.METADATA, MetadataRequest(()), 12).brokers


def test_clients_take_in_the_error_of_metadata():
    """There were no brokers in the answer: Java clients passed over it, and aiokafka failed an assertion."""
    with kafka() as servers, RawClient(servers) as client:
        brokers = client.ask(ApiKey.METADATA, MetadataRequest(()), 12).brokers
        servers.intercept("Metadata", Refuse("TOPIC_AUTHORIZATION_FAILED"))
        refused = client.ask(ApiKey.METADATA, MetadataRequest((TopicWanted(name="t"),)), 12)
        assert refused.brokers == brokers
        assert refused.topics[0].error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED
        assert "t" not in servers.store


def test_a_fetch_is_refused_for_what_its_session_knows():
    """It names only what has changed. Refused as a whole, Java clients asked anew, and heard of no error."""
    with kafka(topics={"t": 2}) as servers, RawClient(servers) as client:
        topic = fetch.Topic(
            topic_id=servers.store["t"].topic_id, partitions=(fetch.Partition(1, max_bytes=1),)
        )
        asked = fetch.FetchRequest(max_wait_ms=0, session_epoch=0, topics=(topic,))
        session_id = client.ask(ApiKey.FETCH, asked, 13).session_id
        servers.intercept("Fetch", Refuse("TOPIC_AUTHORIZATION_FAILED"), times=None)
        more = topic._replace(partitions=(fetch.Partition(0),))
        for topics, partitions in (((), [1]), ((more,), [0, 1])):
            asked = fetch.FetchRequest(session_id=session_id, session_epoch=1, topics=topics)
            refused = client.ask(ApiKey.FETCH, asked, 13)
            (found,) = refused.topics
            assert refused.error_code == ErrorCode.NONE
            assert [each.partition for each in found.partitions] == partitions
            assert {each.error_code for each in found.partitions} == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_a_share_fetch_is_refused_for_what_its_session_knows():
    """It was refused as a whole: Java's share consumers began another session, and heard of no error."""
    with kafka(topics={"t": 2}) as servers, RawClient(servers) as client:
        topic_id = servers.store["t"].topic_id
        topic = acknowledged.Topic(topic_id, (acknowledged.Partition(1),))
        joining = share_group_heartbeat.ShareGroupHeartbeatRequest("g", "A" * 22, 0, None, ("t",))
        client.ask(ApiKey.SHARE_GROUP_HEARTBEAT, joining, 1)
        member = share_fetch.ShareFetchRequest("g", "A" * 22, topics=(topic,))
        assert client.ask(ApiKey.SHARE_FETCH, member, 1).error_code == ErrorCode.NONE
        said = acknowledged.Partition(0, (acknowledged.Acknowledgements(0, 0, (1,)),))
        asked = member._replace(share_session_epoch=1, topics=(acknowledged.Topic(topic_id, (said,)),))
        refusals = [
            ("NOT_LEADER_OR_FOLLOWER", 0, [(6, 6), (6, 0)]),
            ("INVALID_RECORD_STATE", 0, [(0, 121), (0, 0)]),
            ("GROUP_AUTHORIZATION_FAILED", 30, []),
        ]
        for name, code, partitions in refusals:
            servers.intercept("ShareFetch", Refuse(name))
            refused = client.ask(ApiKey.SHARE_FETCH, asked, 1)
            found = [part for each in refused.topics for part in each.partitions]
            assert refused.error_code == code
            assert [(each.error_code, each.acknowledge_error_code) for each in found] == partitions
        servers.intercept("ShareAcknowledge", Refuse("NOT_LEADER_OR_FOLLOWER"))
        asked = share_acknowledge.ShareAcknowledgeRequest("g", "A" * 22, 1, topics=asked.topics)
        refused = client.ask(ApiKey.SHARE_ACKNOWLEDGE, asked, 1)
        assert (refused.error_code, refused.topics[0].partitions[0].error_code) == (0, 6)


def test_a_version_that_is_refused_comes_with_those_that_are_served():
    """As from an older broker (KIP-511): clients ask again."""
    with kafka() as servers, RawClient(servers) as client:
        servers.intercept("ApiVersions", Refuse("UNSUPPORTED_VERSION"))
        client.send(ApiKey.API_VERSIONS, ApiVersionsRequest(), 3)
        refused = client.receive(ApiKey.API_VERSIONS, 0)
        assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert ApiKey.API_VERSIONS in {each.api_key for each in refused.apis}


def test_a_fenced_producer_is_told():
    with kafka(topics={"t": 1}) as servers:
        servers.intercept("Produce", Refuse("INVALID_PRODUCER_EPOCH"), times=None)
        with pytest.raises(KafkaException):
            send(servers, **{"message.timeout.ms": 1000})
        servers.let_through()
        assert send(servers) == 0


def test_a_delay_and_a_condition():
    with kafka(topics={"t": 1}) as servers:
        servers.intercept("Produce", Delay(600), when=lambda each: each.client_id == "slow")
        send(servers, **{"client.id": "quick"})
        servers.let_through()
        servers.intercept("Produce", Delay(0.5), when=lambda each: each.client_id == "slow")
        began = time.monotonic()
        send(servers, **{"client.id": "slow"})
        assert time.monotonic() - began > 0.5


def test_a_condition_may_ask_for_the_requests():
    with kafka(topics={"t": 1}) as servers:
        servers.intercept("Produce", HangUp(), when=lambda _: len(servers.requests("Produce")) == 2)
        assert [send(servers), send(servers)] == [0, 1]
        assert len(servers.requests("Produce")) == 3


def test_the_disk_is_not_waited_for_whatever_the_settings_of_topics():
    with kafka(topics={"t": 1}, topic=TopicConfig(compression_type="zstd")) as servers:
        config = servers.store["t"].config
        assert (config.acks_all_durable, config.compression_type) == (False, "zstd")


def test_the_settings_of_the_store():
    config = StoreConfig(topic=TopicConfig(retention_ms=7), group_consumer_session_timeout_ms=6_000)
    for topic, retention_ms in ((None, 7), (TopicConfig(retention_ms=8), 8)):
        with kafka(topics={"t": 1}, topic=topic, config=config) as servers:
            found = servers.store.directory.config
            assert servers.store["t"].config == TopicConfig(retention_ms=retention_ms, acks_all_durable=False)
            assert found.group_consumer_session_timeout_ms == 6_000
            assert found.group_min_session_timeout_ms == 100


def test_a_condition_that_fails_fails_the_test():
    """It only hung up: the test passed, or waited for its client's time to be out."""

    def run():
        with kafka(topics={"t": 1}) as servers:
            servers.intercept("Produce", Drop(), when=lambda each: each.request.topicz)
            with pytest.raises(KafkaException):
                send(servers, **{"message.timeout.ms": 200})

    with pytest.raises(AttributeError, match="topicz") as raised:
        run()
    assert "PRODUCE" in raised.value.__notes__[0]


def test_what_is_refused():
    with kafka() as servers:
        with pytest.raises(UsageError, match="did you mean 'Produce'"):
            servers.intercept("Prodce", Drop())
        with pytest.raises(UsageError, match="nothing to do with a request"):
            servers.intercept("Produce", "drop")
        with pytest.raises(UsageError, match="times is 0"):
            servers.intercept("Produce", Drop(), times=0)
        with pytest.raises(UsageError, match="no error"):
            Refuse("NO_SUCH_THING")
        with pytest.raises(UsageError, match="no error 'NONE'"):
            Refuse("NONE")
        for seconds in (-1, float("nan"), "1", None):
            with pytest.raises(UsageError, match=r"^seconds is .*; it must be a number of seconds"):
                Delay(seconds)
    with pytest.raises(UsageError, match="topics is"), kafka(topics=["t"]):
        pass
    with pytest.raises(UsageError, match="topics: 'u': partitions is 0"), kafka(topics={"t": 1, "u": 0}):
        pass
    with pytest.raises(UsageError, match="it must be a TopicConfig"), kafka(topic={"retention_ms": 1}):
        pass
    with pytest.raises(InvalidConfigError, match="must be a StoreConfig"), kafka(config=TopicConfig()):
        pass
    with pytest.raises(InvalidConfigError, match="num_partitions"), kafka(num_partition=3):
        pass
    with pytest.raises(UsageError, match="call intercept"), kafka(intercept=print):
        pass


@pytest.mark.parametrize(
    "name", ["FIND_COORDINATOR", "find_coordinator", "findCoordinator", "find.coordinator"]
)
def test_a_request_by_another_spelling_of_its_name(name):
    """`Intercepted.key.name` is such a one: the message named eight others "and 54 more"."""
    with pytest.raises(UsageError, match=r"no request .*; did you mean 'FindCoordinator'"):
        kafka_servers._key_of(name)


def test_an_error_by_another_spelling_of_its_name():
    with pytest.raises(UsageError, match="did you mean 'NOT_LEADER_OR_FOLLOWER'"):
        Refuse("NotLeaderOrFollower")


def test_pytest_finds_the_fixture(logstore_kafka):
    """It is an entry point: no test has to import it."""
    assert send(logstore_kafka) == 0


def test_what_is_kept_of_many_requests_is_bounded(monkeypatch):
    monkeypatch.setattr(kafka_servers, "_KEPT_REQUESTS", 4)
    monkeypatch.setattr(kafka_servers, "_KEPT_BYTES", 5_000)
    rules = kafka_servers._Rules()

    def produce(size_bytes):
        request = ProduceRequest(topics=(Topic(partitions=(Partition(0, bytes(size_bytes)), Partition(1))),))
        rules.decide(Intercepted(ApiKey.PRODUCE, 9, request, "", ""))
        return [len(each.request.topics[0].partitions[0].records) for each in rules.seen("Produce")]

    assert produce(3_000) == [3_000]
    assert produce(2_000) == [3_000, 2_000]
    assert produce(1) == [2_000, 1]
    assert produce(9_000) == [9_000]
    for _ in range(5):
        rules.decide(Intercepted(ApiKey.METADATA, 9, None, "", ""))
    assert [each.key for each in rules.seen(None)] == [ApiKey.METADATA] * 4
    assert produce(1) == [1]
