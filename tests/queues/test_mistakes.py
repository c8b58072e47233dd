"""The mistakes that people make with queues, each with its whole message: it names the thing and the value,
what there is, and what to do next. None of them costs a job."""

from __future__ import annotations

import os
from datetime import datetime, timedelta

import pytest

import logstore
from logstore.testing import ManualClock, MemoryFiles
from tests.kernel.victim import ask


class World:
    """A store with jobs, on a clock set by hand."""

    def __init__(self):
        self.files, self.clock = MemoryFiles(), ManualClock()
        self.store = self.open()
        self.store.create_topic("jobs").extend([b"{}", *(b"%d" % number for number in range(9))])
        self.store.create_topic("dead")

    def open(self, **options):
        return logstore.open("/data", files=self.files, clock=self.clock, **options)

    def queue(self, *topics, **settings):
        return self.store.queue(*(topics or ("jobs",)), **{"group": "workers", **settings})

    def say(self, *calls, after_ms=0, **settings):
        """Say things of a job, some time after it was taken."""
        queue = self.queue(**settings)
        job = queue.poll(0, max_jobs=1)[0]
        self.clock.advance(after_ms)
        for each in calls:
            each(job)

    def poll(self, *arguments, **options):
        self.queue().poll(*arguments, **options)


def accept(job):
    job.accept()


def close(world):
    queue = world.queue()
    queue.close()
    return queue


def refuse(data):
    raise KeyError("what")


MISTAKES = [
    # Jobs
    (
        lambda world: world.say(accept, accept),
        "UsageError: <Job jobs-0 offset 0, delivery 1, over> was accepted, released or rejected before",
    ),
    (
        lambda world: world.say(lambda job: job.release(), lambda job: job.renew()),
        "UsageError: <Job jobs-0 offset 0, delivery 1, over> was accepted, released or rejected before",
    ),
    (
        lambda world: world.say(accept, after_ms=30_000),
        "JobLostError: jobs-0 offset 0: its lock has run out after record_lock_duration_ms (30000 ms), and "
        "another worker may have it; renew() in time keeps it",
    ),
    (
        lambda world: world.say(lambda job: job.reject("no"), after_ms=9, record_lock_duration_ms=9),
        "JobLostError: jobs-0 offset 0: its lock has run out after record_lock_duration_ms (9 ms), and "
        "another worker may have it; renew() in time keeps it",
    ),
    (
        lambda world: world.queue().accept(None),
        "UsageError: job is None; it must be one of the jobs that this queue has given",
    ),
    (
        lambda world: world.queue().renew(world.queue().poll(0, max_jobs=1)),
        "UsageError: job is [<Job jobs-0 offset 0, delivery 1, 30.0 s left>]; it must be one of the jobs "
        "that this queue has given",
    ),
    (
        lambda world: world.say(world.queue(group="others").accept),
        "UsageError: <Job jobs-0 offset 0, delivery 1, 30.0 s left> is another queue's; that one takes it, "
        "as job.accept() and the others do",
    ),
    (
        lambda world: world.say(lambda job: job.release("5 minutes")),
        "UsageError: delay is '5 minutes'; it must be seconds or a timedelta, 0 or above, or a datetime",
    ),
    (
        lambda world: world.say(lambda job: job.release(-1)),
        "UsageError: delay is -1; it must be seconds or a timedelta, 0 or above, or a datetime",
    ),
    (
        lambda world: world.say(lambda job: job.release(float("nan"))),
        "UsageError: delay is nan; it must be seconds or a timedelta, 0 or above, or a datetime",
    ),
    (
        lambda world: world.say(lambda job: job.release(timedelta(seconds=-1))),
        "UsageError: delay is datetime.timedelta(days=-1, seconds=86399); it must be seconds or a timedelta, "
        "0 or above, or a datetime",
    ),
    (
        lambda world: world.say(lambda job: job.release(datetime(2026, 1, 1))),
        "InvalidTimestampError: delay is datetime.datetime(2026, 1, 1, 0, 0), a datetime without a time "
        "zone; when.astimezone() makes it local time, when.replace(tzinfo=timezone.utc) UTC",
    ),
    (
        lambda world: world.say(lambda job: job.reject(ValueError("no"))),
        "UsageError: reason is ValueError('no'); it must be text; str() makes text of an exception",
    ),
    (
        lambda world: world.say(lambda job: job.value, value_deserializer=refuse),
        "InvalidRecordError: the value of the record at offset 0 of jobs-0 is b'{}', which its serializer "
        "(refuse) refuses: KeyError('what')",
    ),
    # Taking
    (
        lambda world: world.poll(0, max_jobs=0),
        "UsageError: max_jobs is 0; it must be a whole number, 1 or above",
    ),
    (
        lambda world: world.poll("5"),
        "UsageError: timeout is '5'; it must be a number of seconds, 0 or above",
    ),
    (
        lambda world: world.queue().work("send_mail"),
        "UsageError: function is 'send_mail'; it must be callable",
    ),
    (lambda world: close(world).poll(0), "ClosedError: the queue is closed; open it again"),
    (lambda world: close(world).flush(), "ClosedError: the queue is closed; open it again"),
    # Joining
    (
        lambda world: world.queue("job"),
        "UnknownTopicError: queue 'workers': there is no topic 'job' in /data; did you mean 'jobs'?",
    ),
    (
        lambda world: world.store.queue(group="workers"),
        'UsageError: a queue needs a topic: store.queue("jobs", group="workers")',
    ),
    (
        lambda world: world.queue(["jobs"]),
        "UsageError: ['jobs'] is no name of a topic; give each as text: "
        'store.queue("jobs", "more-jobs", group="workers")',
    ),
    (
        lambda world: world.queue(group=""),
        "UsageError: group is ''; it must be the name of a group, such as 'billing'",
    ),
    (
        lambda world: world.queue(group=5),
        "UsageError: group is 5; it must be the name of a group, such as 'billing'",
    ),
    (
        lambda world: (world.queue(), world.queue(delivery_count_limit=2)),
        "UsageError: queue 'workers': the workers of group 'workers' have other settings: "
        "delivery_count_limit is 5 and not 2; give this one the same, or close the others first",
    ),
    (
        lambda world: world.queue(dead_letter_topic="deed"),
        "UnknownTopicError: queue 'workers': dead_letter_topic: there is no topic 'deed' in /data; did you "
        "mean 'dead'?",
    ),
    (
        lambda world: world.queue(dead_letter_topic="jobs"),
        "UsageError: queue 'workers': dead_letter_topic is 'jobs', whose jobs this group does: they would go "
        "round and round; name another topic",
    ),
    (
        lambda world: (
            world.queue(),
            world.queue("jobs", group="g", dead_letter_topic="__share_group_state"),
        ),
        "UsageError: queue 'g': dead_letter_topic '__share_group_state' is the store's own, which nobody "
        "else may write; create a topic for failed jobs",
    ),
    (
        lambda world: world.open(read_only=True).queue("jobs", group="workers"),
        "ReadOnlyError: /data was opened read-only; open it without read_only to change it",
    ),
    # Settings
    (
        lambda world: world.queue(lock_duration_ms=5),
        "InvalidConfigError: unknown setting 'lock_duration_ms'; did you mean 'record_lock_duration_ms'?",
    ),
    (
        lambda world: world.queue(record_lock_duration_ms="30s"),
        "InvalidConfigError: record_lock_duration_ms is '30s'; it must be a whole number",
    ),
    (
        lambda world: world.queue(delivery_count_limit=0),
        "InvalidConfigError: delivery_count_limit is 0; it must be from 1 to 32767",
    ),
    (
        lambda world: world.queue(auto_offset_reset="newest"),
        "InvalidConfigError: auto_offset_reset is 'newest'; there are 'earliest', 'latest'",
    ),
    (
        lambda world: world.queue(isolation="committed"),
        "InvalidConfigError: isolation is 'committed'; it must be an Isolation",
    ),
    (lambda world: world.queue(acks=0), "InvalidConfigError: acks is 0; it must be 1 or 'all'"),
    (
        lambda world: world.queue(value_deserializer="jsn"),
        "UsageError: value_deserializer is 'jsn'; it must be 'bytes', 'text', 'json', or a function",
    ),
    # Administration
    (
        lambda world: (close(world), world.store.delete_queue("worker")),
        "UnknownGroupError: there is no queue 'worker'; did you mean 'workers'?",
    ),
    (
        lambda world: (world.queue(), world.store.delete_queue("workers")),
        "UsageError: queue 'workers' has workers; close them first",
    ),
]


@pytest.mark.parametrize(("mistake", "message"), MISTAKES, ids=[words.split(":")[0] for _, words in MISTAKES])
def test_the_message_says_what_to_do(mistake, message):
    world = World()
    with pytest.raises(logstore.LogstoreError) as caught:
        mistake(world)
    error = caught.value
    assert f"{type(error).__name__}: {error}" == message
    world.store.close()
    with world.open() as store, store.queue("jobs", group="workers") as queue:
        assert [job.offset for job in queue.poll(0)][-9:] == list(range(1, 10))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded:DeprecationWarning")
def test_a_child_process_has_no_jobs():
    world = World()
    queue = world.queue()
    job = queue.poll(0, max_jobs=1)[0]

    def of_child():
        told = []
        for call in (job.accept, job.release, job.renew, queue.flush, lambda: queue.poll(0)):
            try:
                call()
            except logstore.LogstoreError as error:
                told.append(f"{type(error).__name__}: {error}")
        queue.close()  # leaves the parent's worker alone
        return told

    told = ask(of_child)
    assert len(told) == 5
    assert set(told) == {
        "ForkedError: the queue was opened by the parent of this process; open it again in the child"
    }
    job.accept()
    queue.close()
    world.store.close()
