"""A topic was deleted that a crash had left with the directory of a partition that it never got. That
directory stayed, and the next open made a topic of it: the deleted topic was back, without its partitions."""

from __future__ import annotations

import pytest
from tests.partition.helpers import Crash, WatchedFiles

import logstore
from logstore.testing import ManualClock


def test_a_deleted_topic_does_not_come_back_with_a_partition_that_it_never_had(tmp_path):
    files = WatchedFiles()
    store = logstore.open(tmp_path, clock=ManualClock(), files=files)
    topic = store.create_topic("t")

    def before(action, path):
        if path.endswith("topics.json.tmp"):
            raise Crash

    files.before = before
    with pytest.raises(Crash):
        topic.add_partitions(2)
    files.before = None
    store._directory.abandon()
    with logstore.open(tmp_path, clock=ManualClock()) as store:
        store.delete_topic("t")
    with logstore.open(tmp_path, clock=ManualClock()) as store:
        assert list(store) == []
