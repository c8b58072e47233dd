"""Queues as their users meet them, on a clock set by hand unless a test says otherwise."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta

import pytest

import logstore
from logstore import Isolation, NewRecord
from logstore.clients.queues.queue import Queue
from logstore.errors import ClosedError, InvalidRecordError, JobLostError, RetriableError, UsageError
from logstore.testing import ManualClock, MemoryFiles
from tests.broker.rig import Rig

LOCK_MS = 30_000


@pytest.fixture
def files():
    return MemoryFiles()


@pytest.fixture
def clock():
    return ManualClock()


@pytest.fixture
def store(files, clock):
    with logstore.open("/data", files=files, clock=clock) as store:
        store.create_topic("jobs")
        store.create_topic("dead")
        yield store


def fill(store, count, topic="jobs"):
    store[topic].extend([NewRecord(b"%d" % number) for number in range(count)])


def values(jobs):
    return [job.value for job in jobs]


class TestTaking:
    def test_each_job_comes_to_one_worker(self, store):
        fill(store, 10)
        with store.queue("jobs", group="g") as one, store.queue("jobs", group="g") as other:
            first, second = one.poll(0, max_jobs=6), other.poll(0)
            assert values(first) == [b"%d" % number for number in range(6)]
            assert values(second) == [b"%d" % number for number in range(6, 10)]
            assert one.poll(0) == other.poll(0) == []

    def test_groups_do_not_share(self, store):
        fill(store, 3)
        with store.queue("jobs", group="g") as one, store.queue("jobs", group="h") as other:
            assert values(one.poll(0)) == values(other.poll(0)) == [b"0", b"1", b"2"]

    def test_what_is_accepted_does_not_come_again(self, store, files, clock):
        fill(store, 5)
        with store.queue("jobs", group="g") as queue:
            for job in queue.drain():
                if job.offset % 2:
                    job.accept()
        store.close()
        with (
            logstore.open("/data", files=files, clock=clock) as again,
            again.queue("jobs", group="g") as queue,
        ):
            assert [(job.offset, job.delivery_count) for job in queue.poll(0)] == [(0, 2), (2, 2), (4, 2)]

    def test_the_oldest_available_job_comes_first(self, store):
        fill(store, 6)
        with store.queue("jobs", group="g") as queue:
            taken = queue.poll(0, max_jobs=4)
            taken[2].release()
            taken[1].release()
            assert [job.offset for job in queue.poll(0, max_jobs=3)] == [1, 2, 4]
            assert [job.offset for job in queue.poll(0)] == [5]

    def test_partitions_take_turns(self, store):
        store.create_topic("wide", partitions=3)
        for number in range(3):
            store["wide"][number].extend([NewRecord(b"%d" % number)] * 5)
        with store.queue("wide", group="g") as queue:
            assert (
                sorted(job.partition.partition for job in queue.poll(0, max_jobs=15))
                == [0] * 5 + [1] * 5 + [2] * 5
            )

    def test_a_new_group_begins_with_what_is_there_or_with_what_comes(self, store):
        fill(store, 2)
        with (
            store.queue("jobs", group="early") as early,
            store.queue("jobs", group="late", auto_offset_reset="latest") as late,
        ):
            store["jobs"].append(b"new")
            assert len(early.poll(0)) == 3
            assert values(late.poll(0)) == [b"new"]

    def test_jobs_of_partitions_that_come_later(self, store, clock):
        with store.queue("jobs", group="g", auto_offset_reset="latest") as queue:
            store["jobs"].add_partitions(2)
            store["jobs"].append(b"there", partition=1)
            clock.advance(1_000)
            assert values(queue.poll(0)) == [b"there"]

    def test_a_loop_takes_few_jobs_where_each_takes_long(self, store, clock):
        fill(store, 3_000)
        with store.queue("jobs", group="g", record_lock_duration_ms=10**6) as queue:
            for number, job in enumerate(queue.drain()):
                job.accept()
                if number >= 2_000:
                    clock.advance(30)
                    assert store.queues()[0].taken_count <= (500 if number < 2_600 else 2)

    def test_a_poll_ends_in_time_though_each_fetch_takes_longer_than_that(self):
        """With thousands of partitions, or on a slow disk."""
        rig, counted = Rig(), []

        class Slow:
            def __getattr__(self, name):
                return getattr(rig.broker, name)

            def share_fetch(self, request):
                pending = rig.broker.share_fetch(request)
                counted.append(request.max_wait_ms)
                assert len(counted) < 5
                rig.pass_time(900)
                return pending

        with Queue(Slow(), ("t",), "g", clock=rig.clock) as queue:
            assert queue.poll(timeout=0.2) == []
            assert counted == [200, 0]

    def test_compacted_and_deleted_jobs_are_passed_over(self, store):
        table = store.create_topic("table", config=logstore.TopicConfig(cleanup_policy="compact,delete"))
        table.extend([NewRecord(b"%d" % number, key=b"%d" % (number % 3)) for number in range(30)])
        table[0].roll()
        table.compact(now=True)
        table.append(b"last", key=b"x")
        with store.queue("table", group="g") as queue:
            assert values(queue.poll(0)) == [b"27", b"28", b"29"]  # one segment at a time
            assert values(queue.poll(0)) == [b"last"]
            queue.flush()
            assert store.queues()[0].taken_count == 4
            table[0].delete_before(29)
            assert queue.poll(0) == []
            assert store.queues()[0].partitions[0].start_offset == 29

    def test_aborted_transactions_bring_no_jobs(self, store):
        with store.producer(transactional_id="p") as producer:
            with producer.transaction():
                producer.send("jobs", b"good")
            with producer.transaction() as aborted:
                producer.send("jobs", b"bad")
                aborted.abort()
            with (
                producer.transaction(),
                store.queue("jobs", group="g", isolation=Isolation.COMMITTED) as queue,
            ):
                producer.send("jobs", b"open")
                assert values(queue.poll(0)) == [b"good"]


class TestLocks:
    def test_a_job_goes_to_another_when_its_lock_runs_out(self, store, clock):
        fill(store, 1)
        with store.queue("jobs", group="g") as slow, store.queue("jobs", group="g") as other:
            (job,) = slow.poll(0)
            clock.advance(LOCK_MS - 1)
            assert other.poll(0) == []
            clock.advance(1)
            (again,) = other.poll(0)
            assert (again.offset, again.delivery_count) == (0, 2)
            with pytest.raises(JobLostError, match=r"jobs-0 offset 0: its lock has run out"):
                job.accept()
            again.accept()

    def test_a_renewed_lock_begins_again(self, store, clock):
        fill(store, 1)
        with store.queue("jobs", group="g") as slow, store.queue("jobs", group="g") as other:
            (job,) = slow.poll(0)
            clock.advance(LOCK_MS - 1)
            job.renew()
            assert job.seconds_left == LOCK_MS / 1000
            clock.advance(LOCK_MS - 1)
            assert other.poll(0) == []
            job.accept()

    def test_an_acceptance_that_is_sent_too_late_is_told(self, store, clock):
        fill(store, 2)
        with store.queue("jobs", group="g", linger_ms=10**6) as slow:
            first, second = slow.poll(0)
            first.accept()  # the first is sent at once
            second.accept()
            clock.advance(LOCK_MS)
            with pytest.raises(JobLostError, match=r"jobs-0 offset 1: the lock had run out"):
                slow.flush()

    def test_a_worker_that_leaves_gives_back_what_it_has(self, store):
        fill(store, 3)
        with store.queue("jobs", group="g") as other:
            with store.queue("jobs", group="g") as leaving:
                leaving.poll(0)
                assert other.poll(0) == []
            assert [job.delivery_count for job in other.poll(0)] == [2, 2, 2]

    def test_no_more_jobs_are_taken_at_a_time_than_is_set(self, store):
        fill(store, 10)
        with store.queue("jobs", group="g", partition_max_record_locks=4) as queue:
            taken = queue.poll(0)
            assert len(taken) == 4
            assert queue.poll(0) == []
            taken[0].accept()
            assert [job.offset for job in queue.poll(0)] == [4]


class TestFailing:
    def test_a_released_job_waits_as_long_as_was_said(self, store, clock):
        fill(store, 3)
        with store.queue("jobs", group="g") as queue:
            seconds, duration, moment = queue.poll(0)
            seconds.release(1)
            duration.release(timedelta(seconds=2))
            moment.release(datetime.fromtimestamp(clock.now_ms() / 1000, UTC) + timedelta(seconds=3))
            for offset in range(3):
                assert queue.poll(0) == []
                clock.advance(1_000)
                assert [job.offset for job in queue.poll(0)] == [offset]

    def test_the_wait_survives_the_process(self, store, files, clock):
        fill(store, 1)
        with store.queue("jobs", group="g") as queue:
            queue.poll(0)[0].release(60)
        store.close()
        with (
            logstore.open("/data", files=files, clock=clock) as again,
            again.queue("jobs", group="g") as queue,
        ):
            assert queue.poll(0) == []
            clock.advance(60_000)
            assert [job.delivery_count for job in queue.poll(0)] == [2]

    def test_a_job_that_fails_too_often_goes_to_the_dead_letter_topic(self, store):
        store["jobs"].append(b"poison", key=b"k", headers=[("h", b"1")], timestamp_ms=7)
        fill(store, 1)
        with store.queue("jobs", group="g", dead_letter_topic="dead", delivery_count_limit=3) as queue:
            for delivery in (1, 2, 3):
                job = queue.poll(0, max_jobs=1)[0]
                assert (job.value, job.delivery_count) == (b"poison", delivery)
                job.release(reason=f"try {delivery}")
            assert values(queue.poll(0)) == [b"0"]
        (letter,) = store["dead"].read()
        assert (letter.value, letter.key, letter.timestamp_ms) == (b"poison", b"k", 7)
        assert dict(letter.headers) == {
            "h": b"1",
            "logstore.error": b"try 3",
            "logstore.topic": b"jobs",
            "logstore.partition": b"0",
            "logstore.offset": b"0",
            "logstore.group": b"g",
            "logstore.delivery_count": b"3",
        }

    def test_a_rejected_job_goes_there_at_once(self, store):
        fill(store, 2)
        with store.queue("jobs", group="g", dead_letter_topic="dead") as queue:
            queue.poll(0, max_jobs=1)[0].reject("why")
            assert [dict(each.headers)["logstore.error"] for each in store["dead"].read()] == [b"why"]
            assert values(queue.poll(0)) == [b"1"]

    def test_without_such_a_topic_it_is_passed_over_with_a_warning(self, store, caplog):
        fill(store, 1)
        with store.queue("jobs", group="g") as queue:
            queue.poll(0)[0].reject("why")
            assert queue.poll(0) == []
        assert "jobs-0 offset 0 failed (delivery 1: 'why'); passed over" in caplog.text

    def test_many_are_counted_so_that_no_client_fills_the_log(self, store, clock, caplog):
        fill(store, 60)
        with store.queue("jobs", group="g", record_lock_duration_ms=90_000) as queue:
            jobs = queue.poll(0)
            for job in jobs[::2]:  # each is a line of its own
                job.reject("why")
            queue.flush()
            lines = [each.getMessage() for each in caplog.records]
            assert (len(lines), "offset 38 failed" in lines[19]) == (21, True)
            assert lines[20] == "queue 'g': jobs-0: what else fails in this minute is counted"
            clock.advance(60_000)
            jobs[1].reject("why")
            queue.flush()
        lines = [each.getMessage() for each in caplog.records][21:]
        assert lines[0].startswith("queue 'g': jobs-0: 10 more have failed; passed over")
        assert "offset 1 failed" in lines[1]

    def test_an_exception_in_a_block_releases_the_job(self, store, clock):
        fill(store, 1)
        with store.queue("jobs", group="g", retry_backoff_ms=100) as queue:
            for delivery in (1, 2, 3):
                (job,) = queue.poll(0)
                assert job.delivery_count == delivery
                with pytest.raises(KeyError), job:
                    raise KeyError
                clock.advance(100 * 2 ** (delivery - 1) - 1)
                assert queue.poll(0) == []
                clock.advance(1)
            with queue.poll(0)[0]:
                pass
            assert queue.poll(0) == []

    def test_work_tries_again_and_reports(self, store, clock, caplog):
        fill(store, 5)

        def function(job):
            if job.value == b"3" and job.delivery_count == 1:
                raise ValueError("not yet")

        with store.queue("jobs", group="g") as queue:
            assert queue.work(function, until_empty=True) == (4, 1, 0)
            clock.advance(1_000)
            assert queue.work(function, until_empty=True) == (1, 0, 0)
        assert "ValueError: not yet" in caplog.text

    def test_a_value_that_cannot_be_decoded_is_the_worker_s_to_reject(self, store):
        store["jobs"].append(b"{")
        with store.queue("jobs", group="g", value_deserializer="json", dead_letter_topic="dead") as queue:
            (job,) = queue.poll(0)
            with pytest.raises(InvalidRecordError, match=r"value of the record at .*, which its serializer"):
                _ = job.value
            job.reject("no JSON")
            assert [record.value for record in store["dead"].read()] == [b"{"]


class TestTheGroup:
    def test_its_settings_are_those_of_its_first_worker(self, store):
        first = store.queue("jobs", group="g", delivery_count_limit=3)
        with first, pytest.raises(UsageError, match="delivery_count_limit is 3 and not 4"):
            store.queue("jobs", group="g", delivery_count_limit=4)
        with store.queue("jobs", group="g", delivery_count_limit=4):
            pass

    def test_what_is_seen_of_it(self, store):
        fill(store, 5)
        with store.queue("jobs", group="g") as queue:
            queue.poll(0, max_jobs=2)[0].accept()
            (status,) = store.queues()
            assert (status.group, status.state, status.workers) == ("g", "Stable", 1)
            assert (status.taken_count, status.waiting_count) == (1, 3)
            with pytest.raises(UsageError, match="queue 'g' has workers"):
                store.delete_queue("g")
        store.delete_queue("g")
        assert store.queues() == []
        with pytest.raises(UsageError, match="there is no queue 'g'"):
            store.delete_queue("g")

    def test_it_is_seen_before_its_first_worker(self, store, files, clock):
        fill(store, 5)
        with store.queue("jobs", group="g") as queue:
            queue.poll(0, max_jobs=2)[0].accept()
        store.close()
        with logstore.open("/data", files=files, clock=clock) as again:
            (status,) = again.queues()
            assert (status.state, status.workers, status.waiting_count) == ("Empty", 0, 4)
            again.delete_queue("g")
            assert again.queues() == []

    def test_a_topic_that_is_made_again_begins_again(self, store):
        fill(store, 3)
        with store.queue("jobs", group="g") as queue:
            for job in queue.drain():
                job.accept()
        store.delete_topic("jobs")
        assert store.queues() == []
        store.create_topic("jobs")
        fill(store, 2)
        with store.queue("jobs", group="g") as queue:
            assert [(job.offset, job.delivery_count) for job in queue.poll(0)] == [(0, 1), (1, 1)]


class TestWaiting:
    """On the system's clock: 1 s in all."""

    def test_a_waiting_worker_gets_what_comes_and_what_is_given_back(self, tmp_path):
        """1 s: the lock must not run out between two lines on a busy machine, and then must."""
        with logstore.open(tmp_path) as store:
            store.create_topic("jobs")
            with (
                store.queue("jobs", group="g", record_lock_duration_ms=1_000) as one,
                store.queue("jobs", group="g", record_lock_duration_ms=1_000) as other,
            ):
                found = []
                thread = threading.Thread(target=lambda: found.extend(other.poll(5)))
                thread.start()
                store["jobs"].append(b"x")
                thread.join(5)
                assert values(found) == [b"x"]
                (job,) = one.poll(5)  # the other's lock runs out
                assert job.delivery_count == 2
                job.release(0.05)
                (job,) = one.poll(5)
                assert job.delivery_count == 3
                thread = threading.Thread(target=lambda: found.extend(other.poll(5)))
                thread.start()
                job.release()
                thread.join(5)
                assert found[-1].delivery_count == 4

    def test_a_worker_is_woken_and_stopped(self, tmp_path):
        with logstore.open(tmp_path) as store:
            store.create_topic("jobs")
            with store.queue("jobs", group="g") as queue:
                queue.wakeup()
                with pytest.raises(RetriableError, match="wakeup"):
                    queue.poll(5)
                thread = threading.Thread(target=queue.work, args=(print,))
                thread.start()
                while queue._wake is None:
                    pass
                queue.stop()
                thread.join(5)
                assert not thread.is_alive()
            with pytest.raises(ClosedError):
                queue.poll(0)

    def test_each_job_is_done_once_by_many_workers(self, tmp_path):
        """0.3 s."""
        with logstore.open(tmp_path) as store:
            store.create_topic("jobs", partitions=2)
            done = []

            def work():
                with store.queue("jobs", group="g") as queue:
                    queue.work(lambda job: done.append(job.value), until_empty=True)

            store["jobs"].extend([NewRecord(b"%d" % number) for number in range(2_000)])
            threads = [threading.Thread(target=work) for _ in range(8)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert sorted(done) == sorted(b"%d" % number for number in range(2_000))

    def test_jobs_are_accepted_by_a_pool_while_the_queue_is_polled(self, tmp_path):
        """0.3 s."""
        with logstore.open(tmp_path) as store, ThreadPoolExecutor(4) as pool:
            store.create_topic("jobs")
            store["jobs"].extend([NewRecord(b"%d" % number) for number in range(500)])
            with store.queue("jobs", group="g", partition_max_record_locks=7) as queue:
                done = []
                while jobs := queue.poll(0.3):
                    done += [pool.submit(job.accept) for job in jobs]
                assert [each.result() for each in done] == [None] * 500
            assert store.queues()[0].partitions[0].start_offset == 500

    def test_a_worker_ends_with_its_store_and_refuses_a_second_thread(self, tmp_path):
        store = logstore.open(tmp_path)
        store.create_topic("jobs")
        queue = store.queue("jobs", group="g")
        raised = []

        def poll():
            try:
                queue.poll()
            except ClosedError as error:
                raised.append(str(error))

        thread = threading.Thread(target=poll)
        thread.start()
        while not queue._usable.is_polled:
            pass
        with pytest.raises(UsageError, match="another thread polls this queue"):
            queue.poll(0)
        store.close()
        thread.join(5)
        assert raised == ["the queue's store is closed; open it again, and make another queue"]
        queue.close()
