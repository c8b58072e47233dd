"""Producers and consumers that quotas hold for: on a clock set by hand, and a few seconds of real time."""

from __future__ import annotations

import asyncio
import threading
import time
import warnings

import pytest

import logstore
from logstore.clients.quotas import DEFAULT, QuotaEntity
from logstore.config import StoreConfig
from logstore.errors import (
    CorruptionError,
    InvalidConfigError,
    ReadOnlyError,
    RetriableError,
    UsageError,
)
from logstore.model import TopicPartition
from logstore.testing import ManualClock, MemoryFiles

T0 = TopicPartition("t", 0)
VALUE = b"x" * 1_000
BATCH_BYTES = 1_070
"""Of one such record."""
SHORT = StoreConfig(quota_window_num=2)
"""A second's worth may come at once."""
HUGE_MS = 10**9


class World:
    """A store on a clock set by hand."""

    def __init__(self, config=SHORT):
        self.clock, self.files = ManualClock(), MemoryFiles()
        self.store = logstore.open("/s", files=self.files, clock=self.clock, config=config)
        self.store.create_topic("t")

    def producer(self, **settings):
        settings = {"acks": 1, "linger_ms": 0, "batch_size": 1, "delivery_timeout_ms": HUGE_MS, **settings}
        return self.store.producer(**settings)

    def times(self, producer, sent, until_ms=60_000):
        """When each record was delivered."""
        found = [None] * len(sent)
        while None in found and self.clock.monotonic_ms() <= until_ms:
            producer.run_due()
            now_ms = self.clock.monotonic_ms()
            found = [
                now_ms if at is None and each.is_done else at for at, each in zip(found, sent, strict=True)
            ]
            self.clock.advance(1)
        return found

    def fill(self, count):
        with self.producer() as producer:
            for _ in range(count):
                producer.send("t", VALUE)


@pytest.fixture
def world():
    world = World()
    yield world
    world.store.close()


def test_a_batch_has_so_many_bytes(world):
    world.fill(1)
    assert world.store["t"][0].size_bytes == BATCH_BYTES


TIMES = [0, 0, 0, 500, 1_000, 2_500, 3_000, 3_000, 3_000, 3_500]
"""When the batches go that come as fast as they may, with two a second, in windows of a second, two of them.
Worked out by hand."""


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"acks": 0, "enable_idempotence": False},
        {"acks": 0, "enable_idempotence": False, "max_in_flight": 1},
    ],
)
def test_a_producer_is_held_to_its_rate_exactly(world, settings):
    world.store.quotas.set(client_id="etl", producer_byte_rate=2 * BATCH_BYTES)
    producer = world.producer(client_id="etl", **settings)
    sent = [producer.send("t", VALUE) for _ in TIMES]
    assert world.times(producer, sent) == TIMES
    assert world.store["t"][0].size_bytes == len(TIMES) * BATCH_BYTES


def test_a_consumer_is_held_to_its_rate_exactly(world):
    world.fill(10)
    world.store.quotas.set(client_id="etl", consumer_byte_rate=2 * BATCH_BYTES)
    consumer = world.store.consumer("t", client_id="etl", max_partition_fetch_bytes=1)
    found = []
    while len(found) < 10:
        found += [world.clock.monotonic_ms()] * len(consumer.poll(0))
        world.clock.advance(1)
    # a poll that gives records does not fetch: the next, a millisecond later, does
    assert [round(at, -1) for at in found[:6]] == [0, 0, 0, 500, 1_000, 2_500]
    assert found[-1] >= 3_000
    consumer.close()


def test_of_two_clients_only_the_one_over_its_quota_waits(world):
    world.store.quotas.set(client_id="etl", producer_byte_rate=1)
    slow, fast = world.producer(client_id="etl"), world.producer(client_id="web")
    waiting = [slow.send("t", VALUE) for _ in range(2)]
    sent = [fast.send("t", VALUE) for _ in range(20)]
    slow.run_due()
    fast.run_due()
    assert [each.is_done for each in waiting] == [True, False]
    assert all(each.is_done for each in sent)


def test_clients_of_a_user_share_the_users_rate(world):
    world.store.quotas.set(user="alice", producer_byte_rate=BATCH_BYTES)
    first, second = world.producer(user="alice", client_id="a"), world.producer(user="alice", client_id="b")
    sent = [first.send("t", VALUE), first.send("t", VALUE)]
    first.run_due()
    assert [each.is_done for each in sent] == [True, True]
    one = [second.send("t", VALUE) for _ in range(2)]
    second.run_due()
    assert [each.is_done for each in one] == [True, False]


def test_a_quota_that_is_changed_counts_from_the_next_answer_on(world):
    quotas = world.store.quotas
    quotas.set(client_id="etl", producer_byte_rate=BATCH_BYTES)
    producer = world.producer(client_id="etl")
    sent = [producer.send("t", VALUE) for _ in range(3)]
    producer.run_due()
    quotas.set(client_id="etl", producer_byte_rate=10**9)
    sent += [producer.send("t", VALUE) for _ in range(50)]
    assert world.times(producer, sent) == [0, 0] + [1_000] * 51  # the delay that was told stays
    quotas.set(client_id="etl", producer_byte_rate=1)
    sent = [producer.send("t", VALUE) for _ in range(2)]
    producer.run_due()
    assert [each.is_done for each in sent] == [True, False]
    quotas.remove(client_id="etl")
    producer.close()


def test_a_record_that_waits_too_long_fails_in_time(world):
    world.store.quotas.set(client_id="etl", producer_byte_rate=1)
    producer = world.producer(client_id="etl", delivery_timeout_ms=5_000)
    sent = [producer.send("t", VALUE) for _ in range(2)]
    due_ms = producer.run_due()
    assert due_ms == 5_001
    world.clock.advance(due_ms)
    producer.run_due()
    with pytest.raises(RetriableError, match="not delivered within delivery_timeout_ms"):
        sent[1].result(0)


def test_a_transaction_waits_and_is_whole(world):
    world.store.quotas.set(client_id="etl", producer_byte_rate=BATCH_BYTES)
    producer = world.producer(acks="all", client_id="etl", transactional_id="shop")
    with producer.transaction():
        sent = [producer.send("t", VALUE) for _ in range(4)]
        assert max(world.times(producer, sent)) >= 2_000
    committed = world.store["t"][0].read(isolation=logstore.Isolation.COMMITTED)
    assert [record.value for record in committed] == [VALUE] * 4
    producer.close()


def test_a_transform_is_one_client(tmp_path):
    with logstore.open(tmp_path / "s") as store:
        store.create_topic("t")[0].extend([VALUE] * 100)
        store.create_topic("out")
        store.quotas.set(client_id="etl", producer_byte_rate=1_000_000, consumer_byte_rate=1_000_000)
        store.transform("t", "out", lambda record: record.value, group="g", client_id="etl").run(
            until_end=True
        )
        assert {client.client_id for _, client in store._broker._quotas.limits._applied} == {"etl"}


class TestClose:
    def test_a_producer_sends_the_rest_at_once(self, world):
        world.store.quotas.set(client_id="etl", producer_byte_rate=1)
        producer = world.producer(client_id="etl")
        sent = [producer.send("t", VALUE) for _ in range(20)]
        producer.run_due()
        assert not sent[-1].is_done
        producer.close()
        assert all(each.is_done for each in sent)
        next_one = world.producer(client_id="etl")
        sent = [next_one.send("t", VALUE) for _ in range(2)]
        next_one.run_due()
        assert next_one.run_due() > 20_000_000  # for what the first has sent, too

    def test_with_a_thread(self, tmp_path):
        """It would take a day."""
        with logstore.open(tmp_path / "s", config=SHORT) as store:
            store.create_topic("t")
            store.quotas.set(client_id="etl", producer_byte_rate=1)
            producers = [store.producer(client_id="etl", linger_ms=0, batch_size=1) for _ in range(2)]
            sent = [producer.send("t", VALUE) for producer in producers for _ in range(10)]
            sent[0].result()
            assert not all(each.is_done for each in sent)
            producers[0].close()
            assert all(each.is_done for each in sent[:10])
        assert all(each.result(0) for each in sent)

    def test_a_consumer(self, world):
        world.fill(3)
        world.store.quotas.set(client_id="etl", consumer_byte_rate=1)
        with world.store.consumer("t", group="g", client_id="etl", enable_auto_commit=True) as consumer:
            while consumer.poll(0):
                pass
            assert world.store["t"][0].log_end_offset > consumer.position(T0) > 0
            at = consumer.position(T0)
        assert world.store.offsets("g")[T0].offset == at

    def test_a_poll_that_waits_is_woken(self, tmp_path):
        with logstore.open(tmp_path / "s", config=SHORT) as store:
            log = store.create_topic("t")[0]
            log.extend([VALUE] * 10)
            store.quotas.set(client_id="etl", consumer_byte_rate=1)
            with store.consumer("t", client_id="etl") as consumer:
                assert len(consumer.poll()) == 10
                log.append(VALUE)
                threading.Timer(0.1, consumer.wakeup).start()
                with pytest.raises(RetriableError, match="wakeup"):
                    consumer.poll()

    def test_a_drain_on_a_clock_set_by_hand_does_not_loop(self, world):
        world.fill(3)
        world.store.quotas.set(client_id="etl", consumer_byte_rate=1)
        with world.store.consumer("t", client_id="etl", max_partition_fetch_bytes=1) as consumer:
            with pytest.raises(RetriableError, match="a quota is exceeded; let the clock go on"):
                list(consumer.drain())
            world.clock.advance(HUGE_MS)
            assert [record.offset for record in consumer.poll(0)] == [1]


def test_a_consumer_that_waits_does_not_hold_up_its_event_loop(tmp_path):
    """It would wait for minutes."""
    from logstore import aio

    async def run():
        async with aio.open(tmp_path / "s", config=SHORT) as store:
            await store.create_topic("t")
            await (await store.topic("t"))[0].extend([VALUE] * 1_000)
            await store.run(lambda: store.sync.quotas.set(client_id="etl", consumer_byte_rate=1_000))
            async with store.consumer("t", client_id="etl") as consumer:
                found = await consumer.poll()
                assert len(found) >= 200
                polling = asyncio.create_task(consumer.poll())
                for _ in range(20):
                    await asyncio.sleep(0.001)
                    assert await consumer.position(T0) == len(found)
                assert not polling.done()
                polling.cancel()
            with pytest.raises(asyncio.CancelledError):
                await polling

    asyncio.run(run())


# Real time --------------------------------------------------------------------------------------------------


def test_a_producer_and_a_consumer_need_the_time_that_their_quotas_give_them(tmp_path):
    """3 s, both at once. Says nothing of how much longer a busy machine takes."""
    rate, seconds = 400_000, 3.5
    count = int(rate * seconds / BATCH_BYTES)
    with logstore.open(tmp_path / "s", config=SHORT) as store:
        store.create_topic("t")
        store.create_topic("full")[0].extend([VALUE] * count)
        store.quotas.set(client_id=DEFAULT, producer_byte_rate=rate, consumer_byte_rate=rate)
        took = {}

        def produce():
            started = time.monotonic()
            with store.producer(client_id="p", acks=1, batch_size=10_000) as producer:
                for _ in range(count):
                    producer.send("t", VALUE)
                producer.flush()
                took["producer"] = time.monotonic() - started

        thread = threading.Thread(target=produce)
        thread.start()
        started = time.monotonic()
        with store.consumer("full", client_id="c", max_partition_fetch_bytes=10_000) as consumer:
            found = sum(1 for _ in consumer.drain())
        took["consumer"] = time.monotonic() - started
        thread.join()
        assert found == count == store["t"][0].log_end_offset
        assert min(took.values()) >= 0.9 * (seconds - 1), took  # a second's worth may come at once
        assert store.metrics().histogram("logstore_throttle_seconds").count > 1


# Setting them -----------------------------------------------------------------------------------------------


class TestSettingThem:
    def test_they_are_there_after_a_reopen_and_for_readers(self, tmp_path):
        expected = {
            QuotaEntity(None, "etl"): {"producer_byte_rate": 10},
            QuotaEntity(DEFAULT, "etl"): {"consumer_byte_rate": 5},
            QuotaEntity("alice", DEFAULT): {"producer_byte_rate": 7, "request_percentage": 12.5},
        }
        with logstore.open(tmp_path / "s") as store:
            assert store.quotas.list() == {}
            for (user, client_id), values in expected.items():
                store.quotas.set(user=user, client_id=client_id, **values)
            assert store.quotas.list() == expected
            with logstore.open(tmp_path / "s", read_only=True) as reader:
                assert reader.quotas.list() == expected
                store.quotas.remove("producer_byte_rate", user="alice", client_id=DEFAULT)
                del expected[QuotaEntity("alice", DEFAULT)]["producer_byte_rate"]
                assert reader.quotas.list() == expected
                with pytest.raises(ReadOnlyError, match="open it without read_only to change quotas"):
                    reader.quotas.set(user="a", producer_byte_rate=1)
        with logstore.open(tmp_path / "s") as store:
            assert store.quotas.list() == expected
            for user, client_id in expected:
                store.quotas.remove(user=user, client_id=client_id)
            assert store.quotas.list() == {}
            store.quotas.remove(client_id="never set")

    def test_which_hold_for_a_client(self, world):
        quotas = world.store.quotas
        quotas.set(user="alice", producer_byte_rate=1)
        quotas.set(client_id=DEFAULT, producer_byte_rate=2, consumer_byte_rate=3)
        found = quotas.of(user="alice", client_id="etl")
        assert {key: (each.value, str(each.entity)) for key, each in found.items()} == {
            "producer_byte_rate": (1, "users/alice"),
            "consumer_byte_rate": (3, "clients/<default>"),
        }
        assert quotas.of()["producer_byte_rate"].value == 2

    @pytest.mark.parametrize(
        ("given", "message"),
        [
            ({"producer_byte_rate": 1}, "a quota is for a user, a client id or both"),
            ({"user": "a"}, r"no quota is given: set\(\.\.\., producer_byte_rate=1_000_000\)"),
            (
                {"user": "a", "producer_rate": 1},
                "unknown quota 'producer_rate'; did you mean 'producer_byte_rate'",
            ),
            ({"user": "", "producer_byte_rate": 1}, "user is ''; it must be text of 1 to 32767 bytes"),
            ({"client_id": 5, "producer_byte_rate": 1}, "client_id is 5; it must be text"),
            (
                {"user": "a", "producer_byte_rate": -1},
                "producer_byte_rate is -1; it must be a whole number of bytes per second, 1 or above. "
                "remove\\(\\) takes a quota away",
            ),
            (
                {"user": "a", "request_percentage": float("nan")},
                "request_percentage is nan; it must be a percentage of one thread's time, above 0",
            ),
            ({"user": "a", "consumer_byte_rate": None}, "consumer_byte_rate is None; it must be a whole"),
        ],
    )
    def test_what_is_wrong_is_named(self, world, given, message):
        with pytest.raises(UsageError, match=message):
            world.store.quotas.set(**given)
        assert world.store.quotas.list() == {}

    def test_clients_names_are_checked(self, world):
        for settings in ({"client_id": 5}, {"user": ""}, {"client_id": "\ud800"}):
            with pytest.raises(InvalidConfigError, match=next(iter(settings))):
                world.producer(**settings)
            with pytest.raises(InvalidConfigError, match=next(iter(settings))):
                world.store.consumer("t", **settings)

    def test_keys_to_remove_are_checked(self, world):
        with pytest.raises(UsageError, match="unknown quota 'consumer_rate'"):
            world.store.quotas.remove("consumer_rate", user="a")

    def test_groups_show_the_client_id(self, world):
        with world.store.consumer("t", group="g", client_id="etl") as consumer:
            consumer.poll(0)
            broker = world.store._broker
            (described,) = broker.describe_groups(("g",)).poll()
            assert [member.client_id for member in described.members] == ["etl"]


class TestDamage:
    @pytest.fixture
    def path(self, tmp_path):
        with logstore.open(tmp_path / "s") as store:
            store.create_topic("t")
            store.quotas.set(client_id="etl", producer_byte_rate=1)
        (tmp_path / "s" / "quotas.json").write_bytes(b"{")
        return tmp_path / "s"

    def test_records_can_be_used_and_quotas_say_what_to_do(self, path):
        with logstore.open(path) as store:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                with store.producer(client_id="etl", batch_size=1) as producer:
                    for _ in range(5):
                        producer.send("t", VALUE)
                    producer.flush()
            for call in (store.quotas.list, lambda: store.quotas.set(user="a", producer_byte_rate=1)):
                with pytest.raises(CorruptionError, match=r"Restore the file, or move it away.*quotas\.json"):
                    call()
            found = store.verify()
            assert [finding.path for finding in found.problems] == [str(path / "quotas.json")]
            (path / "quotas.json").unlink()
            store.quotas.set(user="a", producer_byte_rate=1)  # it is looked at again
            assert list(store.quotas.list()) == [QuotaEntity("a")]

    def test_a_backup_has_the_quotas_and_tells_of_damage(self, path, tmp_path):
        with logstore.open(path) as store:
            with pytest.raises(CorruptionError, match=r"quotas\.json"):
                store.backup(tmp_path / "b")
            report = store.backup(tmp_path / "b", accept_damage=True)
            assert [finding.path for finding in report.damaged] == [str(path / "quotas.json")]
        (path / "quotas.json").unlink()
        with logstore.open(path) as store:
            store.quotas.set(user="a", producer_byte_rate=7)
            store.backup(tmp_path / "b")
        with logstore.open(tmp_path / "b") as store:
            assert store.quotas.list() == {QuotaEntity("a"): {"producer_byte_rate": 7}}
