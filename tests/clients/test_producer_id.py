"""Idempotent producers that the broker gives no id."""

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered
from logstore.broker.requests import InitProducerIdResult
from logstore.clients.producer import Producer
from logstore.clients.settings import ProducerConfig
from logstore.errors import RetriableError, UsageError
from tests.broker.rig import T0, T1, Rig
from tests.clients.flaky import FlakyBroker

DENIED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
BUSY = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


class Miser(FlakyBroker):
    """Gives no ids as long as it has an error for them."""

    def __init__(self, broker, error):
        super().__init__(broker, 0, lost=0, unanswered=0, late=0)
        self.error = error
        self.asked_at = []

    def init_producer_id(self, request):
        self.asked_at.append(self.now_ms())
        if self.error is None:
            return self._broker.init_producer_id(request)
        return Answered(InitProducerIdResult(self.error))


class Setting:
    def __init__(self, error, **settings):
        rig = Rig()
        self.clock, self.directory = rig.clock, rig.directory
        self.broker = Miser(rig.broker, error)
        self.broker.now_ms = rig.clock.monotonic_ms
        config = ProducerConfig(linger_ms=0, acks=1, **settings)
        self.producer = Producer(self.broker, config=config, clock=rig.clock)

    def run_ms(self, duration_ms):
        for _ in range(duration_ms):
            self.producer.run_due()
            self.clock.advance(1)


def test_who_may_write_nothing_is_told_at_once_and_asks_once():
    setting = Setting(DENIED)
    sent = setting.producer.send("t", b"a", partition=0)
    setting.run_ms(3)
    assert len(setting.broker.asked_at) == 1
    with pytest.raises(UsageError, match=r"t-0: .*CLUSTER_AUTHORIZATION_FAILED; the user needs WRITE"):
        sent.result(0)


def test_once_it_is_allowed_the_same_producer_goes_on():
    setting = Setting(DENIED)
    setting.producer.send("t", b"a", partition=0)
    setting.run_ms(3)
    setting.broker.error = None
    sent = setting.producer.send("t", b"b", partition=0)
    setting.run_ms(3)
    assert sent.result(0).offset == 0
    assert [record.value for record in setting.directory.log(T0).read()] == [b"b"]


def test_what_may_pass_is_asked_again_after_the_backoff_once_for_all_partitions():
    setting = Setting(BUSY, retry_backoff_ms=100)
    sent = [setting.producer.send("t", b"a", partition=number) for number in (0, 1)]
    setting.run_ms(350)
    first = setting.broker.asked_at[0]
    assert [each - first for each in setting.broker.asked_at] == [0, 100, 200, 300]
    setting.broker.error = None
    setting.run_ms(110)
    assert [each.result(0).offset for each in sent] == [0, 0]
    assert [setting.directory.log(each).log_end_offset for each in (T0, T1)] == [1, 1]


def test_what_does_not_pass_is_named():
    setting = Setting(BUSY, delivery_timeout_ms=1000)
    sent = setting.producer.send("t", b"a", partition=0)
    setting.run_ms(1010)
    with pytest.raises(RetriableError, match=r"after 0 attempts; .* no id: COORDINATOR_LOAD_IN_PROGRESS"):
        sent.result(0)
