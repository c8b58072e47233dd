"""A handler of the program's messages appends them to a topic, whose retention tells of what it deletes. One
thread held the handler's lock and waited for the log, the other one the log's and waited for the handler.
"""

from __future__ import annotations

import logging
import threading
import time

import pytest

import logstore
from logstore import TopicConfig
from logstore.errors import UsageError

MANY_SECONDS = 20


class ToTopic(logging.Handler):
    """It is in the middle of a message when others come."""

    def __init__(self, topic):
        super().__init__(logging.INFO)
        self._topic = topic
        self.is_in = threading.Event()
        self.may_append = threading.Event()
        self.is_refused = False

    def emit(self, record):
        if threading.current_thread().name == "slow":
            self.is_in.set()
            self.may_append.wait(MANY_SECONDS)
        try:
            self._topic.append(record.getMessage().encode())
        except UsageError:
            self.is_refused = True


def deletes_some(log):
    log.delete_before(30)


def applies_retention(log):
    log.enforce_retention()


def cuts_the_end(log):
    log.truncate_to(30)


def begins_again(log):
    log.truncate_fully_and_start_at(100)


@pytest.mark.parametrize("deletes", [deletes_some, applies_retention, cuts_the_end, begins_again])
def test_neither_waits_for_the_other(tmp_path, deletes):
    """0.2 s each."""
    config = TopicConfig(segment_bytes=1_000, retention_bytes=2_000)
    with logstore.open(tmp_path / "store") as store:
        topic = store.create_topic("messages", config=config)
        for number in range(60):
            topic.append(b"%d" % number * 50, flush=True)
        logger = logging.getLogger("logstore")
        handler = ToTopic(topic)
        before = logger.level
        logger.addHandler(handler)
        logger.setLevel(logging.INFO)
        try:
            slow = threading.Thread(target=logger.info, args=("a message",), name="slow", daemon=True)
            slow.start()
            assert handler.is_in.wait(MANY_SECONDS)
            other = threading.Thread(target=deletes, args=(topic[0],), daemon=True)
            other.start()
            time.sleep(0.1)  # until it has something to tell
            handler.may_append.set()
            for thread in (slow, other):
                thread.join(MANY_SECONDS)
                assert not thread.is_alive()
        finally:
            logger.removeHandler(handler)
            logger.setLevel(before)
        assert not handler.is_refused
        log = topic[0]
        told = [record.value for record in log.read(log.log_start_offset)]
        assert b"a message" in told
        assert any(value.startswith(b"messages-0: deleted offsets") for value in told)
