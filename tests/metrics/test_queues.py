"""What metrics say of queues is what ``queues()`` says, whoever asks first."""

from __future__ import annotations

import pytest

import logstore

WAITING = "logstore_queue_waiting_jobs"


@pytest.fixture
def path(tmp_path):
    """A store with ten jobs, of which four are done."""
    with logstore.open(tmp_path / "s") as store:
        store.create_topic("t").extend([b"x"] * 10)
        with store.queue("t", group="g") as queue:
            for job in queue.poll(1, max_jobs=4):
                job.accept()
    return tmp_path / "s"


def test_jobs_that_wait_are_known_when_the_store_is_opened_again(path):
    with logstore.open(path) as store:
        assert store.metrics().total(WAITING, group="g") == 6
        assert store.queues()[0].waiting_count == 6


def test_a_read_only_store_knows_them_too(path):
    with logstore.open(path, read_only=True) as store:
        found = store.metrics()
        assert found.total(WAITING, group="g") == 6
        assert store.queues()[0].waiting_count == 6
        assert not found.incomplete
        assert not found["logstore_queue_workers"]  # which it cannot know


def test_a_job_that_waits_for_a_dead_letter_topic_is_counted(tmp_path):
    with logstore.open(tmp_path / "s") as store:
        store.create_topic("t").append(b"x", flush=True)
        store.create_topic("dead")
        with store.queue("t", group="g", dead_letter_topic="dead") as queue:
            (job,) = queue.poll(1)
            store.delete_topic("dead")
            job.reject("no")
            assert store.queues()[0].waiting_count == 1
            assert store.metrics().total(WAITING, group="g") == 1


@pytest.mark.damaged
def test_states_that_cannot_be_read_are_told(path):
    for file in path.glob("__share_group_state-*/*.log"):
        data = bytearray(file.read_bytes())
        data[-1] ^= 1
        file.write_bytes(data)
    with logstore.open(path, read_only=True) as store:
        found = store.metrics()
        assert any(each.startswith("queues: ") for each in found.incomplete)
        assert found.total("logstore_log_end_offset", topic="t") == 10
