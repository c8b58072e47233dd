"""A record with a linger time of milliseconds was sent an hour later, or with the next one.

The thread of a producer was woken for it while another thread was sending a batch, left the work to that one,
and went to sleep. The other thread knew when the record was due, and told nobody.
"""

from __future__ import annotations

import threading
import time

import logstore
from logstore.clients.producer import Producer
from logstore.clients.settings import ProducerConfig


class BusyBroker:
    """Calls ``meanwhile`` once, while the first batch is on its way."""

    def __init__(self, broker, meanwhile):
        self._broker = broker
        self._meanwhile = meanwhile

    def __getattr__(self, name):
        return getattr(self._broker, name)

    def produce(self, request):
        meanwhile, self._meanwhile = self._meanwhile, None
        if meanwhile is not None:
            meanwhile()
        return self._broker.produce(request)


def test_a_record_that_comes_while_another_thread_sends_is_sent_in_time(tmp_path):
    sent = []

    def send_another():
        thread = threading.Thread(target=lambda: sent.append(producer.send("t", b"x", partition=1)))
        thread.start()
        thread.join()
        time.sleep(0.1)  # the producer's own thread wakes, and leaves the work to this one

    with logstore.open(tmp_path) as store:
        store.create_topic("t", partitions=2)
        broker = BusyBroker(store._open_broker(store._writable()), send_another)
        config = ProducerConfig(acks=1, linger_ms=300, batch_size=500)
        with Producer(broker, config=config) as producer:
            producer.send("t", b"x" * 100, partition=0)
            time.sleep(0.05)  # the producer's own thread waits for it to be due, and this one sends
            for _ in range(5):
                producer.send("t", b"x" * 100, partition=0)
            assert sent[0].result(5).partition == 1
