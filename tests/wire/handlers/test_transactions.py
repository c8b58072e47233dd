"""Transactions, as clients of every version see them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

import logstore
from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered
from logstore.broker.requests import OffsetCommitResult
from logstore.broker.transactions.requests import AddPartitionsResult, DescribedTransaction
from logstore.broker.transactions.states import TransactionState
from logstore.logdir.acls import Operation, ResourceType
from logstore.model import Isolation
from logstore.wire.apis import APIS, ApiKey
from logstore.wire.messages.records import produce
from logstore.wire.messages.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)
from tests.broker.rig import T0, T1, Rig, Transactional, batch_of
from tests.wire.handlers.asking import Asking, is_waiting
from tests.wire.raw_client import RawClient
from tests.wire.transactions_v2 import Teller, tell

OK = ErrorCode.NONE
TRANSACTIONAL_ID = ResourceType.TRANSACTIONAL_ID
UNKNOWN = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
NO_ID = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


@pytest.fixture
def asking():
    return Asking()


@pytest.fixture
def producer(asking):
    made = Transactional(asking.rig)
    assert made.start() is OK
    return made


def versions_of(key):
    return range(APIS[key].first, APIS[key].last + 1)


def add(asking, me, version, *partitions):
    """Add partitions: the code of each."""
    topics = tuple(add_partitions_to_txn.Topic(each.topic, (each.partition,)) for each in partitions)
    request = add_partitions_to_txn.AddPartitionsToTxnRequest((), *me, topics)
    found = asking.ask(ApiKey.ADD_PARTITIONS_TO_TXN, request, version).topics
    return [each.error_code for topic in found for each in topic.partitions]


def ask_as_broker(asking, *transactions, version=5):
    """The same for several transactions: error, and the codes of each."""
    request = add_partitions_to_txn.AddPartitionsToTxnRequest(transactions)
    found = asking.ask(ApiKey.ADD_PARTITIONS_TO_TXN, request, version)
    codes = {
        each.transactional_id: [part.error_code for topic in each.topics for part in topic.partitions]
        for each in found.transactions
    }
    return found.error_code, codes


def add_offsets(asking, me, version, group="g"):
    request = add_offsets_to_txn.AddOffsetsToTxnRequest(*me, group)
    return asking.ask(ApiKey.ADD_OFFSETS_TO_TXN, request, version).error_code


def commit_offset(asking, me, version, offset=7, topics=("t",), **member):
    name, *producer = me
    request = txn_offset_commit.TxnOffsetCommitRequest(
        name,
        "g",
        *producer,
        topics=tuple(
            txn_offset_commit.Topic(each, (txn_offset_commit.Partition(0, offset),)) for each in topics
        ),
        **member,
    )
    found = asking.ask(ApiKey.TXN_OFFSET_COMMIT, request, version).topics
    return [each.error_code for topic in found for each in topic.partitions]


def end(asking, me, version, committed=True):
    return asking.ask(ApiKey.END_TXN, end_txn.EndTxnRequest(*me, committed), version)


def values(asking, partition=T0):
    log = asking.rig.directory.log(partition)
    return [record.value for record in log.read(isolation=Isolation.COMMITTED)]


def offset_of(asking):
    found = asking.rig.broker.committed.fetch("g", None)
    return found[T0].offset if T0 in found else None


class TestLife:
    @pytest.mark.parametrize("version", versions_of(ApiKey.END_TXN))
    def test_records_and_offsets_end_alike_in_each_version(self, asking, producer, version):
        for number, committed in enumerate((True, False, True)):
            before = values(asking), offset_of(asking)
            assert add(asking, producer.me, min(version, 3), T0, T1) == [OK, OK]
            assert producer.write(b"%d" % number) is OK
            if version < 5:
                assert add_offsets(asking, producer.me, min(version, 4)) == OK
            assert commit_offset(asking, producer.me, version, offset=number) == [OK]
            assert (values(asking), offset_of(asking)) == before
            ended = end(asking, producer.me, version, committed)
            assert ended.error_code == OK
            if committed:
                assert (values(asking), offset_of(asking)) == (before[0] + [b"%d" % number], number)
            else:
                assert (values(asking), offset_of(asking)) == before
            if version >= 5:  # KIP-890
                assert (ended.producer_id, ended.producer_epoch) == (producer.producer_id, producer.epoch + 1)
                producer.epoch, producer.sequences = ended.producer_epoch, {}
            else:
                assert (ended.producer_id, ended.producer_epoch) == (-1, -1)

    def test_one_partition_that_is_refused_takes_no_batch_from_the_others(
        self, asking, producer, monkeypatch
    ):
        """In a cluster, one that has got a marker meanwhile is refused alone."""
        broker = asking.rig.broker
        add_all = broker.add_partitions_to_transaction

        def but_one(request):
            errors = asking.rig.now(add_all(request)).errors
            return Answered(AddPartitionsResult({**errors, T1: ErrorCode.CONCURRENT_TRANSACTIONS}))

        monkeypatch.setattr(broker, "add_partitions_to_transaction", but_one)
        stamp = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
        batch = batch_of([b"v"], asking.rig.clock.now_ms(), transactional=True, base_sequence=0, **stamp)
        partitions = tuple([produce.Partition(each.partition, batch) for each in (T1, T0)])
        request = produce.ProduceRequest(
            producer.me[0], -1, 5_000, (produce.Topic("t", partitions=partitions),)
        )
        (topic,) = asking.ask(ApiKey.PRODUCE, request, 12).topics
        assert [(each.error_code, each.base_offset) for each in topic.partitions] == [
            (ErrorCode.NOT_ENOUGH_REPLICAS, -1),
            (OK, 0),
        ]
        assert end(asking, producer.me, 5).error_code == OK
        assert (values(asking, T0), values(asking, T1)) == ([b"v"], [])

    @pytest.mark.parametrize(
        ("version", "codes"),
        [
            (11, [OK, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER]),
            (12, [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, OK]),
        ],
    )
    def test_the_second_batch_is_not_taken_for_the_first(self, asking, producer, version, codes):
        """The first was refused, and comes again. Older producers go on counting in the next transaction:
        they may begin anywhere, and what they count before that was not stored."""
        assert add(asking, producer.me, 3, T0) == [OK]
        found = []
        for sequence in (1, 0):
            stamp = {"producer_id": producer.producer_id, "producer_epoch": producer.epoch}
            now_ms = asking.rig.clock.now_ms()
            batch = batch_of([b"v"], now_ms, transactional=True, base_sequence=sequence, **stamp)
            topics = (produce.Topic("t", partitions=(produce.Partition(0, batch),)),)
            request = produce.ProduceRequest(producer.me[0], 1, 5_000, topics)
            (topic,) = asking.ask(ApiKey.PRODUCE, request, version).topics
            found += [each.error_code for each in topic.partitions]
        assert found == codes

    def test_an_older_producer_is_shut_out_in_words_that_it_knows(self, asking, producer):
        Transactional(asking.rig).start()
        old, fenced = ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.PRODUCER_FENCED
        for version in range(4):
            expected = old if version < 2 else fenced
            assert add(asking, producer.me, version, T0) == [expected]
            assert add_offsets(asking, producer.me, version) == expected
            assert end(asking, producer.me, version).error_code == expected
        for version in versions_of(ApiKey.TXN_OFFSET_COMMIT):
            assert commit_offset(asking, producer.me, version) == [old]

    def test_a_stale_member(self, asking, producer):
        stale = OffsetCommitResult({T0: ErrorCode.STALE_MEMBER_EPOCH})
        asking.call.broker = SimpleNamespace(offset_commit=lambda _: Answered(stale))
        assert commit_offset(asking, producer.me, 4) == [ErrorCode.ILLEGAL_GENERATION]

    def test_offsets_of_a_group_that_is_not_in_the_transaction(self, asking, producer):
        for version in range(5):
            code = ErrorCode.INVALID_TXN_STATE if version < 4 else ErrorCode.TRANSACTION_ABORTABLE
            assert commit_offset(asking, producer.me, version) == [code]
        assert commit_offset(asking, producer.me, 5) == [OK]

    def test_offsets_of_what_is_not_there_begin_no_transaction(self, asking, producer):
        assert commit_offset(asking, producer.me, 5, topics=("nope",)) == [UNKNOWN]
        assert commit_offset(asking, ("none", 7, 0), 5, topics=("t", "nope")) == [
            ErrorCode.INVALID_PRODUCER_ID_MAPPING,
            UNKNOWN,
        ]
        request = describe_transactions.DescribeTransactionsRequest((producer.name,))
        (found,) = asking.ask(ApiKey.DESCRIBE_TRANSACTIONS, request).transactions
        assert found.transaction_state == "Empty"

    def test_a_producer_without_a_name(self, asking):
        me = ("", 1, 0)
        assert add(asking, me, 3, T0) == [ErrorCode.INVALID_REQUEST]
        assert add_offsets(asking, me, 3) == ErrorCode.INVALID_REQUEST
        assert end(asking, me, 3).error_code == ErrorCode.INVALID_REQUEST


class TestAddingPartitions:
    def test_all_or_none(self, asking, producer):
        nowhere = T0._replace(partition=9)
        unknown, passed = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.OPERATION_NOT_ATTEMPTED
        assert add(asking, producer.me, 3, T0, nowhere) == [passed, unknown]
        assert producer.write(b"a") is ErrorCode.INVALID_TXN_STATE

    def test_brokers_ask_whether_partitions_are_in(self, asking, producer):
        def verify(name="shop", producer_id=producer.producer_id, epoch=0, version=5):
            topics = (add_partitions_to_txn.Topic("t", (0, 1)),)
            wanted = add_partitions_to_txn.Transaction(name, producer_id, epoch, True, topics)
            return ask_as_broker(asking, wanted, version=version)[1][name]

        missing = ErrorCode.TRANSACTION_ABORTABLE
        assert verify() == [missing, missing]
        assert add(asking, producer.me, 3, T0) == [OK]
        assert verify() == [OK, missing]
        assert verify(version=4) == [OK, ErrorCode.INVALID_TXN_STATE]
        assert verify(epoch=3) == [ErrorCode.PRODUCER_FENCED] * 2
        assert verify(producer_id=3) == verify("other") == [ErrorCode.INVALID_PRODUCER_ID_MAPPING] * 2
        assert producer.write(b"a", to=T1) is ErrorCode.INVALID_TXN_STATE  # asking has added nothing
        assert end(asking, producer.me, 3).error_code == OK
        assert verify() == [missing, missing]

    def test_a_transaction_that_is_ending(self, asking):
        known = DescribedTransaction(
            OK, "shop", TransactionState.PREPARE_COMMIT, producer_id=7, producer_epoch=0, partitions={T0}
        )
        asking.call.broker = SimpleNamespace(describe_transactions=lambda _: Answered((known,)))
        topics = (add_partitions_to_txn.Topic("t", (0,)),)
        wanted = add_partitions_to_txn.Transaction("shop", 7, 0, True, topics)
        assert ask_as_broker(asking, wanted)[1] == {"shop": [ErrorCode.CONCURRENT_TRANSACTIONS]}

    def test_brokers_add_for_several_transactions(self, asking, producer):
        second = Transactional(asking.rig, "second")
        second.start()
        wanted = [
            add_partitions_to_txn.Transaction(*each.me, False, (add_partitions_to_txn.Topic("t", (number,)),))
            for number, each in enumerate((producer, second))
        ]
        no_client = [(Operation.WRITE, each, None) for each in (TRANSACTIONAL_ID, ResourceType.TOPIC)]
        broker = Asking(asking.rig, denied=no_client)  # it has seen to that
        assert ask_as_broker(broker, *wanted) == (OK, {"shop": [OK], "second": [OK]})
        assert producer.write(b"a", to=T0) is second.write(b"b", to=T1) is OK
        held = Asking(asking.rig, denied=[(Operation.CLUSTER_ACTION, ResourceType.CLUSTER, None)])
        assert ask_as_broker(held, *wanted) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, {})


class TestLooking:
    @pytest.fixture
    def looked_at(self, asking, producer):
        """One transaction is open, one is over."""
        assert producer.send(b"a") is OK
        second = Transactional(asking.rig, "second")
        second.start()
        second.send(b"b", to=T1)
        second.end()
        asking.rig.pass_time(1000)
        return asking

    @pytest.mark.parametrize(
        ("filters", "expected", "unknown"),
        [
            ({}, {"shop": "Ongoing", "second": "CompleteCommit"}, ()),
            ({"state_filters": ("Ongoing",)}, {"shop": "Ongoing"}, ()),
            ({"state_filters": ("Ongoing", "Odd")}, {"shop": "Ongoing"}, ("Odd",)),
            ({"state_filters": ("Odd",)}, {}, ("Odd",)),
            ({"state_filters": ("PrepareEpochFence",)}, {}, ()),
            ({"duration_ms": 999}, {"shop": "Ongoing"}, ()),
            ({"duration_ms": 1000}, {}, ()),
            ({"producer_id_filters": (5,)}, {}, ()),
            ({"transactional_id_pattern": "s.*d"}, {"second": "CompleteCommit"}, ()),
            ({"transactional_id_pattern": "sec"}, {}, ()),
            ({"transactional_id_pattern": ""}, {"shop": "Ongoing", "second": "CompleteCommit"}, ()),
        ],
        ids=str,
    )
    def test_list(self, looked_at, filters, expected, unknown):
        request = list_transactions.ListTransactionsRequest(**filters)
        found = looked_at.ask(ApiKey.LIST_TRANSACTIONS, request)
        assert {each.transactional_id: each.transaction_state for each in found.transactions} == expected
        assert found.unknown_state_filters == unknown

    def test_a_pattern_that_is_none(self, looked_at):
        request = list_transactions.ListTransactionsRequest(transactional_id_pattern="(")
        found = looked_at.ask(ApiKey.LIST_TRANSACTIONS, request)
        assert found.error_code == ErrorCode.INVALID_REGULAR_EXPRESSION

    def test_describe(self, looked_at, producer):
        request = describe_transactions.DescribeTransactionsRequest(("none", "shop", ""))
        none, shop, nameless = looked_at.ask(ApiKey.DESCRIBE_TRANSACTIONS, request).transactions
        assert none[:2] == (ErrorCode.TRANSACTIONAL_ID_NOT_FOUND, "none")
        assert nameless.error_code == ErrorCode.INVALID_REQUEST
        start_ms = looked_at.rig.clock.now_ms() - 1000
        topics = (describe_transactions.Topic("t", (0,)),)
        assert shop == (OK, "shop", "Ongoing", 60_000, start_ms, producer.producer_id, 0, topics)

    def test_what_is_denied_is_not_shown(self, looked_at):
        denied = [
            (Operation.DESCRIBE, TRANSACTIONAL_ID, "second"),
            (Operation.DESCRIBE, ResourceType.TOPIC, "t"),
        ]
        held = Asking(looked_at.rig, denied=denied)
        found = held.ask(ApiKey.LIST_TRANSACTIONS, list_transactions.ListTransactionsRequest()).transactions
        assert [each.transactional_id for each in found] == ["shop"]
        assert held.node.security.noted == []
        request = describe_transactions.DescribeTransactionsRequest(("second", "shop"))
        second, shop = held.ask(ApiKey.DESCRIBE_TRANSACTIONS, request).transactions
        assert (second.error_code, second.transaction_state) == (NO_ID, "")
        assert (shop.error_code, shop.topics) == (OK, ())


def producers_in(asking, *numbers, topic="t"):
    request = describe_producers.DescribeProducersRequest((describe_producers.Topic(topic, numbers),))
    (found,) = asking.ask(ApiKey.DESCRIBE_PRODUCERS, request).topics
    return found.partitions


def mark(asking, *, producer_id=7, epoch=0, committed=False, coordinator_epoch=0, numbers=(0,), version=2):
    topics = (write_txn_markers.Topic("t", numbers),)
    marker = write_txn_markers.Marker(producer_id, epoch, committed, topics, coordinator_epoch)
    request = write_txn_markers.WriteTxnMarkersRequest((marker,))
    return asking.begin(ApiKey.WRITE_TXN_MARKERS, request, version)


def codes_of(asking, given, version=2):
    (marker,) = asking.end(ApiKey.WRITE_TXN_MARKERS, given, version).markers
    return [each.error_code for topic in marker.topics for each in topic.partitions]


class TestProducersOfPartitions:
    def test_what_is_known_of_them(self, asking, producer):
        rig = asking.rig
        rig.produce(b"a", b"b", producer_id=7, producer_epoch=2, base_sequence=0)
        written_ms = rig.clock.now_ms()
        rig.pass_time(5)
        assert producer.send(b"c") is OK
        known, missing = producers_in(asking, 0, 9)
        rows = {each.producer_id: tuple(each)[1:] for each in known.producers}
        assert rows == {
            7: (2, 1, written_ms, -1, -1),
            producer.producer_id: (0, 0, written_ms + 5, -1, 2),
        }
        assert (missing.error_code, missing.producers) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ())
        assert producer.end() is OK
        (known,) = producers_in(asking, 0)
        (ended,) = [each for each in known.producers if each.producer_id == producer.producer_id]
        assert (ended.coordinator_epoch, ended.current_txn_start_offset) == (0, -1)

    @pytest.mark.parametrize("version", versions_of(ApiKey.WRITE_TXN_MARKERS))
    @pytest.mark.parametrize("committed", [False, True])
    def test_a_transaction_that_hangs_is_ended(self, asking, version, committed):
        log = asking.rig.directory.log(T0)
        asking.rig.produce(b"a", producer_id=7, producer_epoch=0, base_sequence=0)
        log.append_end_marker(7, 0, committed=True, coordinator_epoch=3)
        stamp = {"producer_id": 7, "producer_epoch": 0, "base_sequence": 1, "transactional": True}
        log.append_batch(batch_of([b"hangs"], asking.rig.clock.now_ms(), **stamp))
        before = values(asking)
        given = mark(asking, committed=committed, coordinator_epoch=2, version=version)
        assert codes_of(asking, given, version) == [ErrorCode.TRANSACTION_COORDINATOR_FENCED]
        given = mark(asking, committed=committed, coordinator_epoch=3, numbers=(0, 9), version=version)
        assert codes_of(asking, given, version) == [OK, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        assert values(asking) == before + [b"hangs"] * committed
        assert log.open_transactions() == {}
        given = mark(asking, epoch=-1, coordinator_epoch=3, version=version)
        assert codes_of(asking, given, version) == [ErrorCode.INVALID_RECORD]

    def test_the_answer_waits_for_the_disk(self):
        asking = Asking(Rig(acks_all_durable=True))
        log = asking.rig.directory.log(T0)
        given = mark(asking)
        assert is_waiting(given)
        assert log.durable_offset < log.log_end_offset
        assert codes_of(asking, given) == [OK]
        assert log.durable_offset == log.log_end_offset

    def test_who_may_do_so(self, asking):
        alter, acts = (
            (each, ResourceType.CLUSTER, None) for each in (Operation.ALTER, Operation.CLUSTER_ACTION)
        )
        for denied, code in (
            ((alter,), OK),
            ((acts,), OK),
            ((alter, acts), ErrorCode.CLUSTER_AUTHORIZATION_FAILED),
        ):
            held = Asking(asking.rig, denied=denied)
            assert codes_of(held, mark(held)) == [code]
            assert len(held.node.security.noted) == (code != OK)
        held = Asking(asking.rig, denied=[(Operation.READ, ResourceType.TOPIC, "t")])
        (refused,) = producers_in(held, 0)
        assert refused.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED


class TestWhatIsDenied:
    def test_a_transactional_id(self, asking, producer):
        held = Asking(asking.rig, denied=[(Operation.WRITE, TRANSACTIONAL_ID, "shop")])
        assert add(held, producer.me, 3, T0) == [NO_ID]
        assert add_offsets(held, producer.me, 3) == NO_ID
        assert commit_offset(held, producer.me, 3) == [NO_ID]
        assert end(held, producer.me, 3).error_code == NO_ID

    def test_a_group(self, asking, producer):
        held = Asking(asking.rig, denied=[(Operation.READ, ResourceType.GROUP, "g")])
        assert add_offsets(held, producer.me, 3) == ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert commit_offset(held, producer.me, 3) == [ErrorCode.GROUP_AUTHORIZATION_FAILED]

    def test_a_topic(self, asking, producer):
        asking.rig.directory.create_topic("u", 1, None)
        no_topic, passed = ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.OPERATION_NOT_ATTEMPTED
        held = Asking(asking.rig, denied=[(Operation.WRITE, ResourceType.TOPIC, "t")])
        assert add(held, producer.me, 3, T0, T0._replace(topic="u")) == [no_topic, passed]
        held = Asking(asking.rig, denied=[(Operation.READ, ResourceType.TOPIC, "t")])
        assert commit_offset(held, producer.me, 5, topics=("t", "u")) == [no_topic, OK]
        assert commit_offset(held, producer.me, 5, topics=("t",)) == [no_topic]


KAFKAS = [
    ("features", {"transaction.version": 2, "group.version": 1}),
    ("start", (0, False, 0)),
    ("begins unasked", 0),
    ("another partition", 0),
    ("is sent again", 0),
    ("commits", (0, True, 1)),
    ("commits once more", (0, True, 1)),
    ("aborts what it has committed", (48, False, -1)),
    ("comes late", 47),
    ("commits nothing", (48, False, -1)),
    ("aborts nothing", (0, True, 2)),
    ("aborts nothing once more", (0, True, 2)),
    ("next", 0),
    ("ends with an old epoch", (90, False, -1)),
    ("aborts", (0, True, 3)),
    ("aborts once more", (0, True, 3)),
    ("commits what it has aborted", (48, False, -1)),
    ("offsets alone", 0),
    ("offsets with an old epoch", 47),
    ("commits offsets", (0, True, 4)),
    ("as before, without asking", 120),
    ("nothing was begun", (48, False, -1)),
    ("as before", [0]),
    ("as before, with asking", 0),
    ("as before, ends", (0, False, -1)),
    ("as before, ends once more", (0, False, -1)),
    ("the same epoch", 0),
    ("a partition that is not there", 3),
    ("goes on", (0, True, 5)),
    ("open", 0),
    ("starts anew", (0, True, 7)),
    ("shut out", 47),
    ("shut out, ends", (90, False, -1)),
    ("shut out, aborts", (90, False, -1)),
]
"""What Kafka 4.4 answers: tests/interop/test_transaction_version.py asks it."""


def test_transactions_that_have_an_epoch_each_are_kafkas(store, client):
    store.create_topic("t", partitions=2)
    teller = Teller(client)
    tell(teller)
    assert teller.answers == KAFKAS


def test_an_end_is_asked_once_more_after_a_restart(tmp_path):
    """Of a producer that has not heard its next epoch."""
    teller = None
    for number, committed in enumerate([True, False, True]):
        for is_repeated in (False, True):
            with (
                logstore.open(tmp_path) as store,
                store.listen() as listener,
                RawClient(listener.address) as client,
            ):
                if teller is None:
                    store.create_topic("t", partitions=2)
                    teller = Teller(client)
                    teller.start()
                teller.client, teller.answers = client, []
                if not is_repeated:
                    teller.write("begins", number, 0, b"%d" % number)
                teller.end("ends", number, committed)
                assert teller.answers[-1] == ("ends", (0, True, number + 1))
                teller.write("late", number, 1, b"late")
                assert teller.answers[-1] == ("late", 47)
                teller.end("ends otherwise", number, not committed)
                assert teller.answers[-1] == ("ends otherwise", (48, False, -1))
                read = store["t"][0].read(isolation=Isolation.COMMITTED)
                assert [each.value for each in read] == ([b"0", b"2"] if number == 2 else [b"0"])
