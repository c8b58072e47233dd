"""Stores with many partitions: what a clean open costs, and how many files are open."""

import json
import shutil
from pathlib import Path

import pytest

from logstore.config import TopicConfig
from logstore.errors import StorageError, UnknownTopicError
from logstore.logdir import catalogue, directory, watched
from logstore.partition.segments.segment import OpenSegments
from tests.logdir.helpers import CountingFiles, open_store, run_python


def make_store(path, partition_count, segment_count):
    """A cleanly stopped store: one partition is written, the others are copies."""
    with open_store(path) as store:
        log = store.create_topic("t", config=TopicConfig(segment_bytes=1_000))[0]
        while log.segment_count < segment_count:
            log.extend([b"v" * 100] * 5)
        end = log.log_end_offset
    for number in range(1, partition_count):
        shutil.copytree(path / "t-0", path / f"t-{number}")
    catalogue = json.loads((path / "topics.json").read_text())
    catalogue["topics"]["t"]["partitions"] = partition_count
    (path / "topics.json").write_text(json.dumps(catalogue))
    for name in ("recovery-point", "replication"):
        lines = [f"t {number} {end}\n" for number in range(partition_count)]
        text = "0\n" + f"{partition_count}\n" + "".join(lines)
        (path / f"{name}-offset-checkpoint").write_text(text)
    return path


@pytest.fixture(scope="module")
def hundred(tmp_path_factory):
    return make_store(tmp_path_factory.mktemp("many") / "store", 100, 10)


def test_a_clean_open_does_a_bounded_number_of_reads_for_each_partition(hundred):
    files = CountingFiles()
    with open_store(hundred, files=files) as store:
        assert (store.was_clean, len(store["t"]), store.damaged) == (True, 100, {})
        opened = {**files.counts}
        assert opened["opens"] <= 100 * 6 + 20
        assert opened["lists"] <= 100 * 3 + 5
        assert opened["maps"] == 0
        assert files.log_counts["reads"] <= 100 * 4
    assert files.counts["opens"] - opened["opens"] <= 10  # closing what was not touched stores nothing


def test_a_store_that_was_only_opened_is_closed_cleanly_again(hundred):
    for _ in range(2):
        with open_store(hundred) as store:
            assert store.was_clean
            assert store["t"][99].log_end_offset == store["t"][0].log_end_offset > 0


def test_300_partitions_live_with_256_descriptors(tmp_path):
    path = make_store(tmp_path / "store", 300, 3)
    printed = run_python(
        """
        import resource, sys
        resource.setrlimit(resource.RLIMIT_NOFILE, (256, 256))
        import logstore
        from tests.logdir.helpers import QuickFiles
        with logstore.open(sys.argv[1], files=QuickFiles()) as store:
            assert store.was_clean and not store.damaged
            before = [sum(1 for _ in log.read()) for log in store["t"]]
            for log in store["t"]:
                log.extend([b"new"])
            assert [sum(1 for _ in log.read()) for log in store["t"]] == [count + 1 for count in before]
        with logstore.open(sys.argv[1], files=QuickFiles()) as store:
            assert store.was_clean
        print("done")
        """,
        path,
        cwd=Path(__file__).parents[2],
    )
    assert printed == "done\n"


# Which active segments are closed when others are opened ----------------------------------------------------


class FakeSegment:
    def __init__(self, is_flushed=True):
        self.is_flushed = is_flushed
        self.is_open = True

    def forget_flushed_files(self, *, flush=False):
        self.is_open = not (self.is_flushed or flush)
        return not self.is_open


def open_all(cache, segments):
    for segment in segments:
        segment.is_open = True
        cache.touch_active(segment)
    return [segment.is_open for segment in segments]


def test_the_ones_opened_first_are_closed_first():
    assert open_all(OpenSegments(1, 3), [FakeSegment() for _ in range(5)]) == [False, False, True, True, True]


def test_one_that_is_not_flushed_stays_open_if_another_can_be_closed():
    segments = [FakeSegment(is_flushed=False), FakeSegment(), FakeSegment()]
    assert open_all(OpenSegments(1, 2), segments) == [True, False, True]


def test_if_none_is_flushed_one_is():
    segments = [FakeSegment(is_flushed=False) for _ in range(5)]
    assert sum(open_all(OpenSegments(1, 3), segments)) == 3


def test_a_failed_flush_on_the_way_is_told_by_the_next_flush_of_the_log(tmp_path, monkeypatch):
    """The system reports a lost write once, to whoever asks first."""
    store = open_store(tmp_path / "store")
    log = store.create_topic("t")[0]
    log.extend([b"v"])
    active = log.writer.core.active
    calls = []

    def fail():
        calls.append(1)
        raise StorageError(5, "flushing", active.path)

    class Failing:
        flush = staticmethod(fail)

    good, active._log = active._log, Failing()
    assert not active.forget_flushed_files(flush=True)
    active._log = good
    with pytest.raises(StorageError):
        log.flush()
    assert (calls, log.needs_reopen, log.durable_offset) == ([1], True, 0)
    store._directory.abandon()


def test_a_topic_that_changes_is_encoded_alone(tmp_path, monkeypatch):
    encoded = []
    encode = catalogue._encode_entry
    monkeypatch.setattr(catalogue, "_encode_entry", lambda topic: encoded.append(topic.name) or encode(topic))
    with open_store(tmp_path / "store") as store:
        for number in range(10):
            store.create_topic(f"t{number}")
        assert len(encoded) == 20  # as being made, and as made
        store["t3"].configure(retention_ms=5_000)
        store.delete_topic("t4")
        assert encoded[20:] == ["t3", "t4"]
    text = (tmp_path / "store" / "topics.json").read_text()
    assert text == json.dumps(json.loads(text), indent=1, sort_keys=True) + "\n"
    with open_store(tmp_path / "store") as store:
        assert (len(store), store["t3"].config.retention_ms, "t4" in store) == (9, 5_000, False)


@pytest.mark.parametrize("is_read_only", [False, True])
def test_whether_a_topic_is_there_is_told_without_looking_for_names_alike(
    tmp_path, monkeypatch, is_read_only
):
    with open_store(tmp_path / "store") as store:
        store.create_topic("orders")
    with open_store(tmp_path / "store", read_only=is_read_only) as store:
        with pytest.raises(UnknownTopicError, match="did you mean 'orders'"):
            store["order"]
        for module in (directory, watched):
            monkeypatch.setattr(module, "did_you_mean", None)
        assert ["orders" in store, "order" in store, None in store] == [True, False, False]
