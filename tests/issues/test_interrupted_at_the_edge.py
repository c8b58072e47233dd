"""An interrupt right behind the recovery of a store left its directory locked; one at the beginning of a
partition's reopening, or at its end, left a log that was closed and nobody called damaged."""

import pytest

import logstore
from logstore.logdir.upkeep import Upkeep
from logstore.model import TopicPartition
from logstore.partition.log import Log


def interrupted(*_, **__):
    raise KeyboardInterrupt


def test_the_lock_is_free_when_starting_the_background_work_was_interrupted(tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr(Upkeep, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            logstore.open(tmp_path / "store")
    logstore.open(tmp_path / "store").close()


def test_a_partition_whose_reopening_was_interrupted_can_be_reopened(tmp_path, monkeypatch):
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("t").append(b"v", flush=True)
        abandon, calls = Log.abandon, []

        def interrupted_once(log):
            abandon(log)
            calls.append(log)
            if len(calls) == 1:
                raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(Log, "abandon", interrupted_once)
            with pytest.raises(KeyboardInterrupt):
                store["t"].reopen(0)
        assert list(store.damaged) == [TopicPartition("t", 0)]
        store["t"].reopen(0)
        assert [record.value for record in store["t"][0].read()] == [b"v"]


def test_so_can_one_whose_reopening_was_interrupted_at_its_end(tmp_path):
    class Logs(dict):
        """Is interrupted before the new log is put in."""

        is_interrupted = True

        def __setitem__(self, partition, log):
            if self.is_interrupted:
                self.is_interrupted = False
                raise KeyboardInterrupt
            super().__setitem__(partition, log)

    with logstore.open(tmp_path / "store") as store:
        store.create_topic("t").append(b"v", flush=True)
        logs = store._directory._open
        logs.by_partition = Logs(logs.by_partition)
        with pytest.raises(KeyboardInterrupt):
            store["t"].reopen(0)
        assert list(store.damaged) == [TopicPartition("t", 0)]
        store["t"].reopen(0)
        assert [record.value for record in store["t"][0].read()] == [b"v"]
