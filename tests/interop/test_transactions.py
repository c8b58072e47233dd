"""Transactions between us and a stock Kafka: the same history at both, and the same log on which one of them
ends what the other has decided.

Kafka's classes encode the records of the coordinator as we do, and its tools decode ours.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import logstore
from logstore import Isolation
from logstore.broker.pending import Answered
from logstore.broker.storing.transactions import LocalLogs
from logstore.broker.transactions.states import state_of_number
from logstore.format.header import BatchHeader
from logstore.format.loops import scan_batches
from logstore.format.messages.transaction_records import (
    TransactionLogValue,
    decode_transaction_key,
    decode_transaction_value,
)
from logstore.format.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from logstore.model import TopicPartition
from tests.interop import clients
from tests.interop.clients import NewRecord
from tests.interop.dump import dump_log
from tests.interop.kafka import (
    CLEAN_SHUTDOWN_FILE,
    NEWEST,
    OLD,
    RECOVERY_POINT_FILE,
    KafkaBroker,
    require_kafka,
    run_java,
    run_program,
    tool_jars,
    wait_for,
)
from tests.interop.plan import Plan
from tests.interop.transaction_histories import (
    IDS,
    PARTITION_COUNT,
    TIME_MS,
    TOPIC,
    Step,
    for_broker,
    for_us,
    history,
)
from tests.rotation import rotating, seed_of_turn

pytestmark = pytest.mark.interop

GOLDEN = Path(__file__).parents[1] / "format" / "messages" / "transaction_records.txt"
COMMITTING, ABORTING, OPEN = "prepared-commit", "prepared-abort", "open"
"""Our transactional ids, by what is to be done for them."""
LEFT = {
    "done": ([], ["CompleteAbort"]),
    COMMITTING: (["CompleteCommit"],),
    ABORTING: (["CompleteAbort"],),
    OPEN: (["PrepareAbort", "CompleteAbort"],),
}
"""What a broker has to do for each of our ids, before it is begun again."""
LEVELS: dict[clients.Isolation, Isolation] = {
    "read_uncommitted": Isolation.HIGH_WATERMARK,
    "read_committed": Isolation.COMMITTED,
}
THEIRS = {"theirs-commit": 0, "theirs-abort": 1}
"""A broker's: each writes to one partition."""


def test_the_golden_records_are_what_kafka_prints() -> None:
    """Some 2 s."""
    require_kafka()
    assert run_program("TransactionRecords.java") == GOLDEN.read_text()


# --- what we write --------------------------------------------------------------------------------


def write_ours(path: Path) -> None:
    """A store whose process was killed: with transactions that are over, two that are decided, and have no
    marker anywhere, and one that is open, with a plain record behind it."""
    store = logstore.open(path)
    store.create_topic("ours", partitions=2)
    done = store.producer(transactional_id="done")
    for number in range(2):
        with done.transaction() as transaction:
            send(done, f"done {number}")
            if number:
                transaction.abort()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(
            LocalLogs,
            "append_markers",
            lambda self, transaction, partitions: Answered(frozenset(partitions)),
        )
        for name in (COMMITTING, ABORTING, OPEN):
            producer = store.producer(transactional_id=name)
            transaction = producer.transaction().__enter__()
            send(producer, name)
            transaction.commit_offsets(name, {("ours", 0): 3})
            if name != OPEN:
                (transaction.commit if name == COMMITTING else transaction.abort)()
        with store.producer() as plain:
            send(plain, "behind")
        store._directory.abandon()  # type: ignore[union-attr]


def send(producer: logstore.Producer, text: str) -> None:
    for number in range(2):
        value, stamp_ms = f"{text} {number}".encode(), TIME_MS
        producer.send("ours", value, key=b"k", partition=number, timestamp_ms=stamp_ms)
    producer.flush()


@pytest.fixture
def ours(tmp_path: Path) -> Path:
    write_ours(tmp_path / "ours")
    return tmp_path / "ours"


def stored(path: Path) -> Iterator[tuple[int, str, TransactionLogValue]]:
    """What the ``__transaction_state`` of a directory has: offset, transactional id and value."""
    with logstore.open(path, read_only=True) as store:
        for record in store[TRANSACTIONS_TOPIC][0].read(isolation=Isolation.LOG_END):
            name = decode_transaction_key(record.key or b"")
            if name is not None and record.value is not None:
                yield record.offset, name, decode_transaction_value(record.value)


def state_of(value: TransactionLogValue) -> str:
    state = state_of_number(value.status)
    assert state is not None
    return state.value


def states_of(path: Path, name: str) -> list[str]:
    return [state_of(value) for _, each, value in stored(path) if each == name]


def test_the_dump_tool_decodes_our_coordinators_records(ours: Path) -> None:
    """Some 4 s."""
    require_kafka()
    dumped = dump_log(ours / f"{TRANSACTIONS_TOPIC}-0", decoder="--transaction-log-decoder")
    printed = [record.text for file in dumped.values() for record in file.records]
    wanted = list(stored(ours))
    assert len(printed) == len(wanted) > 10
    for text, (_, name, value) in zip(printed, wanted, strict=True):
        shown = json.loads(text.partition("payload: ")[2])["data"]
        assert f'"transactionalId":"{name}"' in text
        assert (shown["producerId"], shown["producerEpoch"]) == (value.producer_id, value.producer_epoch)
        assert (shown["transactionStatus"], shown["transactionTimeoutMs"]) == (value.status, value.timeout_ms)
        partitions = None if value.partitions is None else [[*each] for each in value.partitions]
        assert partitions == (
            shown["transactionPartitions"]
            and [[each["topic"], tuple(each["partitionIds"])] for each in shown["transactionPartitions"]]
        )


# --- the story ------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", rotating([NEWEST, OLD], 8, first=4))
def test_a_broker_and_we_end_what_the_other_has_decided_and_do_the_same(
    version: str, ours: Path, tmp_path: Path
) -> None:
    """In one test for the broker's sake, which starts twice: some 25 s."""
    require_kafka(version)
    with KafkaBroker(tmp_path / "kafka", version=version) as broker:
        broker.create_topics({TOPIC: PARTITION_COUNT, "ours": 2, "theirs": 2}, {})
        steps = list(history(seed_of_turn()))
        plan = Plan()
        for_broker(steps, plan)
        write_theirs(plan)
        plan.run(broker.bootstrap)
        offsets = check_the_same_is_seen(steps, broker, tmp_path / "replayed")
        assert broker.stop()
        with logstore.open(broker.log_dir, read_only=True) as store:
            assert {name: offsets_of(store, name) for name in IDS} == offsets
        for name in THEIRS:
            check_we_complete(name, Path(shutil.copytree(broker.log_dir, tmp_path / name)))
        for directory in ours.glob("*-[0-9]"):
            topic, _, number = directory.name.rpartition("-")
            broker.place_partition(topic, int(number), directory)
        broker.start(unclean=True)
        check_the_broker_completes_ours(broker)
        check_the_broker_goes_on_with_our_ids(broker, ours)
        assert broker.stop()
    check_we_take_them_back(broker, ours)


Offsets = dict[TopicPartition, int]


def check_the_same_is_seen(steps: list[Step], broker: KafkaBroker, path: Path) -> dict[str, Offsets]:
    """In each partition: the same records in the same order, of them the same committed ones, and as many
    markers. A broker answers an end before the markers are there, so their places differ. Returns what the
    group of each id has committed."""
    store = logstore.open(path)
    topic = store.create_topic(TOPIC, partitions=PARTITION_COUNT)
    for_us(steps, store)
    for log in topic:
        number = log.partition.partition

        def at_end(number: int = number, end: int = log.log_end_offset) -> bool:
            return clients.offset_range(broker.bootstrap, TOPIC, partition=number)[1] == end

        wait_for(at_end, f"the end of partition {number} where ours is, {log.log_end_offset}")
        counts = []
        for theirs, isolation in LEVELS.items():
            seen = clients.consume(broker.bootstrap, TOPIC, partition=number, isolation=theirs)
            found = [(record.key, record.value) for record in log.read(isolation=isolation)]
            assert [(record.key, record.value) for record in seen] == found, theirs
            counts.append(len(found))
        assert counts[1] < counts[0], "nothing was aborted, and nothing is open"
    offsets = {name: offsets_of(store, name) for name in IDS}
    store._directory.abandon()  # type: ignore[union-attr]
    return offsets


def offsets_of(store: logstore.Store, group: str) -> Offsets:
    return {partition: value.offset for partition, value in store.offsets(group).items()}


# --- what a broker has decided --------------------------------------------------------------------


def write_theirs(plan: Plan) -> None:
    """A transaction for each id of theirs, with an offset."""
    for name, number in THEIRS.items():
        plan.transactional(name)
        plan.do("begin", name)
        plan.batch(name, "theirs", [NewRecord(b"k", name.encode())], number)  # now: no marker rolls
        plan.offset(name, name, "theirs", number, 1)
        plan.do(name.removeprefix("theirs-"), name)


def check_we_complete(name: str, path: Path) -> None:
    """A copy of the broker's directory, cut as a power cut does: the decision is the last that is there. The
    markers, the end of the transaction, and all that came later are gone."""
    committed, aborted = THEIRS
    ids = {each: value.producer_id for _, each, value in stored(path)}
    prepared = next(
        offset
        for offset, each, value in stored(path)
        if each == name and state_of(value).startswith("Prepare")
    )
    cut(path / f"{TRANSACTIONS_TOPIC}-0", lambda header: header.base_offset > prepared)
    for directory in (path / "theirs-0", path / "theirs-1", path / f"{OFFSETS_TOPIC}-0"):
        cut(
            directory,
            lambda header: (
                (header.is_control and header.producer_id == ids[name])
                or (name == committed and header.producer_id == ids[aborted])
            ),
        )
    (path / CLEAN_SHUTDOWN_FILE).unlink()
    (path / RECOVERY_POINT_FILE).unlink()
    with logstore.open(path) as store:
        assert values(store["theirs"]) == [committed.encode()]
        assert list(store.offsets(committed)) == [("theirs", 0)]
        assert list(store.offsets(aborted)) == []
        assert not store["theirs"][THEIRS[name]].open_transactions()
        go_on(store, name, "theirs", ids[name])
        assert values(store["theirs"]) == [committed.encode(), b"ours"]


def cut(directory: Path, is_gone: Callable[[BatchHeader], bool]) -> None:
    """Take away a log's batches from the first on that is gone."""
    [path] = directory.glob("*.log")
    data = path.read_bytes()
    for position, header in scan_batches(data, 0, len(data), check=True)[0]:
        if is_gone(header):
            os.truncate(path, position)
            return


def values(topic: logstore.Topic) -> list[bytes | None]:
    return [record.value for record in topic.read(isolation=Isolation.COMMITTED)]


def go_on(store: logstore.Store, name: str, topic: str, producer_id: int) -> None:
    """With a transactional id that the other had: it keeps its producer, which has a later epoch."""
    epochs = [each.producer_epoch for each in store.transactions() if each.transactional_id == name]
    with store.producer(transactional_id=name) as producer, producer.transaction():
        producer.send(topic, b"ours", key=b"k", partition=0)
    [status] = [each for each in store.transactions() if each.transactional_id == name]
    assert status.producer_id == producer_id
    assert status.producer_epoch > epochs[0]


# --- what we have decided -------------------------------------------------------------------------


def committed_at(broker: KafkaBroker, partition: int) -> list[bytes | None]:
    seen = clients.consume(broker.bootstrap, "ours", partition=partition, isolation="read_committed")
    return [record.value for record in seen]


def check_the_broker_completes_ours(broker: KafkaBroker) -> None:
    """As soon as it has loaded what we have decided. The open transaction holds up what is behind it."""
    for number in range(2):
        expected = [f"{text} {number}".encode() for text in ("done 0", COMMITTING)]
        wait_for(
            lambda expected=expected, number=number: committed_at(broker, number) == expected,  # type: ignore[misc]
            f"the transactions that we have decided in partition {number}",
        )


def check_the_broker_goes_on_with_our_ids(broker: KafkaBroker, ours: Path) -> None:
    plan, names = Plan(), ("done", COMMITTING, ABORTING, OPEN)
    for name in names:
        plan.transactional(name)
        plan.do("begin", name)
        for number in range(2):
            plan.batch(name, "ours", [NewRecord(b"k", f"{name} again".encode(), (), TIME_MS)], number)
        plan.do("commit", name)
    plan.run(broker.bootstrap)
    for number in range(2):
        texts = [f"{text} {number}" for text in ("done 0", COMMITTING, "behind")]
        expected = [text.encode() for text in (*texts, *(f"{name} again" for name in names))]
        assert committed_at(broker, number) == expected
    count = len(list(stored(ours)))
    done = run_java(
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--bootstrap-server", broker.bootstrap, "--topic", TRANSACTIONS_TOPIC, "--from-beginning"),
        *("--formatter", "org.apache.kafka.tools.consumer.TransactionLogMessageFormatter"),
        *("--max-messages", str(count), "--timeout-ms", "20000"),
        classes=tool_jars(),
    )
    shown = [json.loads(text) for text in re.findall(r'{"key":.*?}(?=$|{"key":)', done.stdout, re.MULTILINE)]
    found = [
        (each["key"]["data"]["transactionalId"], each["value"]["data"]["producerEpoch"]) for each in shown
    ]
    assert found == [(name, value.producer_epoch) for _, name, value in stored(ours)], done.stderr


def check_we_take_them_back(broker: KafkaBroker, ours: Path) -> None:
    """The broker has kept our producers, with later epochs, and has ended what we had left."""
    before = {name: value for _, name, value in stored(ours)}
    for name, value in before.items():
        later = [each for _, at, each in stored(broker.log_dir) if at == name][len(states_of(ours, name)) :]
        assert {each.producer_id for each in later} == {value.producer_id}
        assert later[-1].producer_epoch > value.producer_epoch
        states = [state for state, _ in itertools.groupby(map(state_of, later))]
        assert states[-4:] == ["Empty", "Ongoing", "PrepareCommit", "CompleteCommit"], (name, states)
        assert states[:-4] in LEFT[name], (name, states)
    with logstore.open(broker.log_dir) as store:
        assert dict(store.offsets(COMMITTING)).keys() == {("ours", 0)}
        assert dict(store.offsets(ABORTING)) == dict(store.offsets(OPEN)) == {}
        go_on(store, COMMITTING, "ours", before[COMMITTING].producer_id)
        assert store.verify()
