"""A program whose object closed its store in ``__del__`` never ended: the interpreter stops the threads of
the background work wherever they are, with their locks, and a thread that it starts then never begins. With
two partitions the close hung every time, with one after an append of the last milliseconds."""

from __future__ import annotations

import subprocess
import sys
import textwrap

import pytest

import logstore

PROGRAM = """
    import sys, logstore
    from logstore import TopicConfig

    class Owner:
        def __init__(self, path, partitions, end):
            self.end = end
            self.store = logstore.open(path)
            config = TopicConfig(cleanup_policy="compact")
            self.topic = self.store.create_topic("t", partitions=partitions, config=config)
            self.topic.append(b"begun", key=b"k")
            self.offsets = self.store.offsets("readers")
            self.offsets.commit({("t", 0): 0})

        def __del__(self):
            self.topic.append(b"ended", key=b"k")
            if self.end == "close":
                self.store.close()

    owner = Owner(sys.argv[1], int(sys.argv[2]), sys.argv[3])
"""


@pytest.mark.parametrize(("partitions", "end"), [(1, "close"), (2, "close"), (2, "leave open")])
def test_a_finalizer_at_the_end_of_the_program_appends_and_closes(tmp_path, partitions, end):
    program = [sys.executable, "-c", textwrap.dedent(PROGRAM), tmp_path / "s", str(partitions), end]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stderr) == (0, "")
    with logstore.open(tmp_path / "s") as store:
        assert [record.value for record in store["t"].read()] == [b"begun", b"ended"]
        assert store.was_clean is (end == "close")


PRODUCING = """
    import sys, logstore

    class Owner:
        def __init__(self, path, acks):
            self.store = logstore.open(path)
            self.store.create_topic("t")
            self.producer = self.store.producer(acks=acks)
            self.producer.send("t", b"begun").result()

        def __del__(self):
            self.producer.send("t", b"ended")
            self.producer.close()
            self.store.close()

    owner = Owner(sys.argv[1], int(sys.argv[2]))
"""


@pytest.mark.parametrize("acks", [1, -1])
def test_a_finalizer_at_the_end_of_the_program_closes_a_producer(tmp_path, acks):
    """It waited for a thread that was not there any more."""
    program = [sys.executable, "-c", textwrap.dedent(PRODUCING), tmp_path / "s", str(acks)]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stderr) == (0, "")
    with logstore.open(tmp_path / "s") as store:
        assert [record.value for record in store["t"].read()] == [b"begun", b"ended"]


NAMED = """
    import sys, logstore

    store = logstore.open(sys.argv[1])
    log = store.create_topic("t")[0]
    producer = store.producer(linger_ms=10_000)
    producer.send("t", b"sent")

    class Owner:
        def __init__(self):
            self.producer, self.store = producer, store

        def __del__(self):
            self.producer.close()
            self.store.close()

    owner = Owner()
"""


def test_the_files_are_open_until_the_last_finalizer(tmp_path):
    """They have finalizers, too. Here theirs came first: the record was lost without a word, and the store
    could not be closed."""
    program = [sys.executable, "-c", textwrap.dedent(NAMED), tmp_path / "s"]
    ended = subprocess.run(program, capture_output=True, text=True, timeout=30)
    assert (ended.returncode, ended.stderr) == (0, "")
    with logstore.open(tmp_path / "s") as store:
        assert [record.value for record in store["t"].read()] == [b"sent"]
        assert store.was_clean
