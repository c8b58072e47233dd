"""A cluster that is gone: how long a bridge waits for it. 3 s."""

from __future__ import annotations

import re
import threading
import time

import pytest

import logstore
from logstore import bridge
from logstore.bridge.trouble import Trouble
from logstore.errors import RetriableError, UsageError


def _bridges(remote, store):
    store.create_topic("up")
    return bridge.pull(remote, store, "down"), bridge.push(store, remote, "up", name="edge")


def test_each_run_until_the_end_waits_as_long(tmp_path, monkeypatch):
    """What an earlier run has met is not the time that this one has waited."""
    attempts = []
    note = Trouble.note

    def counted(self, error, limit_ms):
        attempts.append(limit_ms)
        note(self, error, limit_ms)

    monkeypatch.setattr(Trouble, "note", counted)
    with logstore.open(tmp_path / "cluster") as cluster, cluster.listen("127.0.0.1:0") as listener:
        remote = logstore.connect(listener.address, request_timeout_ms=50)
        listener.close()
        with logstore.open(tmp_path / "store") as store, remote:
            for each in _bridges(remote, store):
                for _ in range(2):
                    attempts.clear()
                    with pytest.raises(RetriableError, match=re.escape(listener.address)):
                        each.run(until_end=True)
                    assert len(attempts) > 1


def test_a_cluster_that_is_not_there_is_told_of_soon(tmp_path, monkeypatch):
    """Long before an answer is overdue."""
    monkeypatch.setattr("logstore.bridge.cluster._REACH_SECONDS", 0.05)
    with logstore.open(tmp_path / "cluster") as cluster, cluster.listen("127.0.0.1:0") as listener:
        remote = logstore.connect(listener.address, request_timeout_ms=60_000)
        listener.close()
        with logstore.open(tmp_path / "store") as store, remote:
            for each in _bridges(remote, store):
                monkeypatch.setattr(Trouble, "wait", lambda _trouble, _stopping, stop=each.stop: stop())
                began = time.monotonic()
                progress = each.run()
                assert time.monotonic() < began + 5
                assert progress.trouble.startswith(listener.address)


@pytest.mark.parametrize("was_reached", [False, True])
def test_a_stop_does_not_wait_for_an_answer_that_does_not_come(tmp_path, monkeypatch, was_reached):
    """Who tells a program to end kills it soon after. Each question took half a minute then. 3 s."""
    monkeypatch.setattr("logstore.bridge.cluster._REACH_SECONDS", 60)
    with logstore.open(tmp_path / "cluster") as cluster, cluster.listen("127.0.0.1:0") as listener:
        remote = logstore.connect(listener.address, request_timeout_ms=60_000)
        listener.close()
        with logstore.open(tmp_path / "store") as store, remote:
            for each in _bridges(remote, store):
                each._was_reached = was_reached
                thread = threading.Thread(target=each.run, daemon=True)
                thread.start()
                time.sleep(0.1)  # until it asks; earlier, it would not ask at all
                each.stop()
                thread.join(20)
                assert not thread.is_alive()


def test_a_list_of_topics_is_no_name(tmp_path):
    with (
        logstore.open(tmp_path) as store,
        store.listen() as listener,
        logstore.connect(listener.address) as remote,
    ):
        for make in (
            lambda: bridge.pull(remote, store, ["a"]),
            lambda: bridge.push(store, remote, ["a"], name="b"),
        ):
            with pytest.raises(
                UsageError, match=re.escape("['a'] is no name of a topic; give each name by itself")
            ):
                make()
