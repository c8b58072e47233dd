"""Queues in one process or on one machine, each doing the same jobs: take one, say that it is done.

A contender makes a queue with some jobs of 100 bytes (logstore's in batches of 100), and gives one function
for each worker, which works until the queue is empty. What each does for a job:

* **logstore**: ``poll()`` stores that the worker has the job, and how often it was delivered; ``accept()``
  stores that it is done. Durable: ``acks="all"``, the accept returns after an fsync, which all workers share
  that wait for one. What is stored of taking a job is not flushed by itself: a power cut takes it with the
  lock, and the job is delivered again. *One at a time*: ``max_jobs=1`` and ``linger_ms=0``, a request for
  each poll and each accept. *Loop*: ``for job in queue.drain()``, which takes up to 500 and sends what
  gathered in ``linger_ms``; durable, every job that was sent was flushed when the loop ends.
* **persist-queue** (``SQLiteAckQueue``, one object for all threads): ``get()`` selects the first job and
  updates its state, ``ack()`` updates it again: two commits. Done jobs stay in the table, so every 1,000 are
  deleted, as its manual says.
* **litequeue** (a connection for each worker): ``pop()`` is ``UPDATE ... RETURNING`` in a transaction,
  ``done()`` another update: two commits. Done jobs are pruned every 1,000, too.
* **huey** (its SQLite storage alone: no pickling, no task, no result): ``dequeue()`` selects and deletes the
  job: one commit, and nothing to accept. A worker that is killed has lost its job.
* **PostgreSQL** (a connection for each worker, on a Unix socket): one transaction for each job, or for 500:
  ``DELETE ... WHERE id IN (SELECT ... FOR UPDATE SKIP LOCKED LIMIT n) RETURNING``, and the commit when they
  are done. The lock is the transaction's, and nothing counts deliveries.

Durable is ``synchronous=FULL`` for SQLite, in WAL mode, and the default for PostgreSQL. Without a flush is
``synchronous=OFF`` and ``synchronous_commit=off``: the kernel, or PostgreSQL some hundred milliseconds later,
brings it to the disk.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager
from importlib.util import find_spec
from typing import Any, NamedTuple

import logstore
from benchmarks.postgres import Postgres

VALUE = b"x" * 100
_FILL_BATCH = 100
_PRUNE_EVERY = 1_000
_PG_LIMIT = 500


class Load(NamedTuple):
    """What is to be done."""

    directory: str
    """A new one."""
    job_count: int
    worker_count: int
    is_durable: bool
    postgres: Postgres | None = None
    """The server, if there is one."""


Work = Callable[[], int]
"""A worker: works until the queue is empty, and returns how many jobs it did."""


# logstore ---------------------------------------------------------------------------------------------------


@contextmanager
def logstore_loop(load: Load) -> Iterator[list[Work]]:
    """Loops over queues."""

    def work(queue: logstore.Queue) -> int:
        count = 0
        for job in queue.drain():
            job.accept()
            count += 1
        queue.flush()
        return count

    with _store(load) as store, ExitStack() as stack:
        yield [_bound(work, stack.enter_context(_queue(store, load))) for _ in range(load.worker_count)]


@contextmanager
def logstore_single(load: Load) -> Iterator[list[Work]]:
    """One job a request."""

    def work(queue: logstore.Queue) -> int:
        count = 0
        while found := queue.poll(0, max_jobs=1):
            found[0].accept()
            count += 1
        return count

    with _store(load) as store, ExitStack() as stack:
        yield [
            _bound(work, stack.enter_context(_queue(store, load, linger_ms=0)))
            for _ in range(load.worker_count)
        ]


def _bound(work: Callable[[Any], int], argument: Any) -> Work:
    return lambda: work(argument)


@contextmanager
def _store(load: Load) -> Iterator[logstore.Store]:
    with logstore.open(load.directory) as store:
        log = store.create_topic("jobs")[0]
        for first in range(0, load.job_count, _FILL_BATCH):
            log.extend([VALUE] * min(_FILL_BATCH, load.job_count - first))
        log.flush()
        yield store


def _queue(store: logstore.Store, load: Load, **options: Any) -> logstore.Queue:
    return store.queue("jobs", group="workers", acks="all" if load.is_durable else 1, **options)


# SQLite -----------------------------------------------------------------------------------------------------


@contextmanager
def persist_queue(load: Load) -> Iterator[list[Work]]:
    """See the module."""
    import persistqueue

    queue: Any = persistqueue.SQLiteAckQueue(load.directory, multithreading=True)
    _set_synchronous(queue._putter, False)
    for _ in range(load.job_count):
        queue.put(VALUE)
    _set_synchronous(queue._putter, load.is_durable)

    def work() -> int:
        count = 0
        while True:
            try:
                found = queue.get(block=False, raw=True)
            except persistqueue.Empty:
                return count
            queue.ack(id=found["pqid"])
            count += 1
            if count % _PRUNE_EVERY == 0:
                queue.clear_acked_data(max_delete=_PRUNE_EVERY, keep_latest=0)

    with closing(queue):
        yield [work] * load.worker_count


@contextmanager
def lite_queue(load: Load) -> Iterator[list[Work]]:
    """See the module."""
    from litequeue import LiteQueue

    os.makedirs(load.directory)

    def connect(stack: ExitStack) -> Any:
        queue = stack.enter_context(closing(LiteQueue(f"{load.directory}/queue.db", timeout=60)))
        _set_synchronous(queue.conn, load.is_durable)
        return queue

    def work(queue: Any) -> int:
        count = 0
        while (found := queue.pop()) is not None:
            queue.done(found.message_id)
            count += 1
            if count % _PRUNE_EVERY == 0:
                queue.prune()
        return count

    with ExitStack() as stack:
        queues = [connect(stack) for _ in range(load.worker_count)]
        with queues[0].transaction():
            for _ in range(load.job_count):
                queues[0].put(VALUE.decode())
        yield [_bound(work, queue) for queue in queues]


@contextmanager
def huey(load: Load) -> Iterator[list[Work]]:
    """See the module."""
    from huey.storage import SqliteStorage

    os.makedirs(load.directory)
    storage = SqliteStorage(filename=f"{load.directory}/huey.db", fsync=load.is_durable)
    rows = [(storage.name, VALUE)] * load.job_count
    with storage.db(commit=True) as cursor:
        cursor.executemany("insert into task (queue, data) values (?, ?)", rows)

    def work() -> int:
        count = 0
        while storage.dequeue() is not None:
            count += 1
        return count

    with closing(storage):
        yield [work] * load.worker_count


def _set_synchronous(connection: Any, is_durable: bool) -> None:
    connection.execute(f"pragma synchronous={'full' if is_durable else 'off'}")


# PostgreSQL -------------------------------------------------------------------------------------------------

_TAKE = """
    delete from jobs where id in (select id from jobs order by id for update skip locked limit %s)
    returning id, value
"""


def postgres(limit: int) -> Callable[[Load], AbstractContextManager[list[Work]]]:
    """With as many jobs in a transaction."""

    def work(connection: Any) -> int:
        count = 0
        while True:
            with connection.transaction():
                found = connection.execute(_TAKE, (limit,)).fetchall()
            if not found:
                return count
            count += len(found)

    @contextmanager
    def run(load: Load) -> Iterator[list[Work]]:
        assert load.postgres is not None
        with ExitStack() as stack:
            connections = [
                stack.enter_context(load.postgres.connect(is_durable=load.is_durable))
                for _ in range(load.worker_count)
            ]
            first = connections[0]
            first.execute("drop table if exists jobs")
            first.execute("create table jobs (id bigserial primary key, value bytea not null)")
            fill = "insert into jobs (value) select %s from generate_series(1, %s)"
            first.execute(fill, (VALUE, load.job_count))
            first.execute("vacuum analyze jobs")
            yield [_bound(work, connection) for connection in connections]

    return run


# All of them ------------------------------------------------------------------------------------------------

OURS_LOOP, OURS_SINGLE = "logstore, loop", "logstore, one at a time"


class Contender(NamedTuple):
    """How it is run."""

    run: Callable[[Load], AbstractContextManager[list[Work]]]
    beside: str
    """Whose rate its own is compared with."""
    durable_jobs: int
    """How many jobs it gets with a flush; about a second's work."""
    other_jobs: int
    """The same without a flush."""
    needs: str = ""
    """A package, as it is imported."""

    def why_not(self, has_postgres: str) -> str:
        """Why it cannot run here; empty if it can. ``has_postgres``: why there is no server."""
        if self.needs and find_spec(self.needs) is None:
            return f"{self.needs} is not installed"
        return has_postgres if self.needs == "psycopg" else ""


CONTENDERS = {
    OURS_LOOP: Contender(logstore_loop, OURS_LOOP, 200_000, 200_000),
    OURS_SINGLE: Contender(logstore_single, OURS_SINGLE, 1_500, 10_000),
    "persist-queue": Contender(persist_queue, OURS_SINGLE, 500, 4_000, "persistqueue"),
    "litequeue": Contender(lite_queue, OURS_SINGLE, 500, 4_000, "litequeue"),
    "huey, SQLite": Contender(huey, OURS_SINGLE, 1_000, 10_000, "huey"),
    "PostgreSQL, one at a time": Contender(postgres(1), OURS_SINGLE, 1_000, 5_000, "psycopg"),
    f"PostgreSQL, LIMIT {_PG_LIMIT}": Contender(postgres(_PG_LIMIT), OURS_LOOP, 100_000, 100_000, "psycopg"),
}
"""In the order of the tables."""
