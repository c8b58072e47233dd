"""Consume, transform and produce, exactly once.

What is read together, of as many partitions as have something, is one transaction: what the function makes of
these records, and the offsets behind them, count together or not at all. A program that is killed in between
goes on where the last transaction ended, and readers of committed records see each result once.

It is made of public pieces; ``docs/transactions.md`` shows the twenty lines.
"""

from __future__ import annotations

import inspect
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple, Protocol

from logstore.arguments import check_callable, check_least, shown
from logstore.broker.letters import OFFSET_HEADER, PARTITION_HEADER, REASON_HEADER, TOPIC_HEADER
from logstore.clients.consumer import Consumer
from logstore.clients.positions import partition_of
from logstore.clients.producer import Producer
from logstore.clients.transactions.transaction import Transaction
from logstore.errors import FencedError, InvalidRecordError, LogstoreError, RetriableError, UsageError
from logstore.model import Isolation, NewRecord, Record, TopicPartition
from logstore.turns import SafeEvent
from logstore.warning import warn

Result = NewRecord | bytes | None
"""What becomes of a record: a value that keeps its key and timestamp, a whole record, or nothing."""

TransformFunction = Callable[[Record], Result | Iterable[Result]]
"""Called with each record; returns one result, or several. It may be called again for the same record."""

_POLL_SECONDS: Final = 0.2
_PATIENCE_SECONDS: Final = 120.0
"""How long a worker waits for offsets that another is to commit: twice the time-out of a transaction."""


class TransformReport(NamedTuple):
    """What a run has done."""

    record_count: int
    """Records that were read and transformed, or sent to the dead-letter topic."""
    result_count: int
    """Records that were written."""
    dead_count: int
    """Records that the function could not transform, and that are in the dead-letter topic."""
    transaction_count: int


class Clients(Protocol):
    """A store, here or elsewhere."""

    def consumer(
        self, *topics: str, group: str | None, isolation: Isolation, **settings: Any
    ) -> Consumer: ...

    def producer(self, **settings: Any) -> Producer: ...


def transform_by(
    clients: Clients,
    source: str,
    target: str,
    function: TransformFunction,
    *,
    group: str,
    dead_letter_topic: str | None,
    retries: int,
    retry_backoff_ms: int,
    workers: int,
    settings: Mapping[str, Any],
) -> Transform:
    """A transform with the consumers and producers of a store.

    Raises:
        UsageError: an argument is wrong.
    """
    check_callable(function, "function")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise UsageError(f"function is {shown(function)}, an async function; it must be a plain one")
    check_least("retries", retries, 0)
    check_least("retry_backoff_ms", retry_backoff_ms, 0)
    check_least("workers", workers, 1)
    if type(source) is str and type(dead_letter_topic) is str and dead_letter_topic == source:
        raise UsageError(
            f"dead_letter_topic is {source!r}, which is transformed: records that fail would go round and "
            "round; name another topic"
        )
    names = {name: settings[name] for name in ("client_id", "user") if name in settings}
    return Transform(
        lambda: clients.consumer(source, group=group, isolation=Isolation.COMMITTED, **settings),
        lambda number: clients.producer(transactional_id=f"{group}-{number}", **names),
        target,
        function,
        dead_letter_topic=dead_letter_topic,
        retries=retries,
        retry_backoff_ms=retry_backoff_ms,
        workers=workers,
    )


class Transform:
    """Made by :meth:`.Store.transform`; :meth:`run` does the work."""

    def __init__(
        self,
        make_consumer: Callable[[], Consumer],
        make_producer: Callable[[int], Producer],
        target: str,
        function: TransformFunction,
        *,
        dead_letter_topic: str | None,
        retries: int,
        retry_backoff_ms: int,
        workers: int,
    ) -> None:
        self._make_consumer = make_consumer
        self._make_producer = make_producer
        self._target = target
        self._function = function
        self._dead_letter_topic = dead_letter_topic
        self._retries = retries
        self._retry_backoff_ms = retry_backoff_ms
        self._workers = workers
        self._stopping = SafeEvent()
        self._some_are_done = threading.Event()
        self._lock = threading.Lock()
        """Guards the counts."""
        self._counts: Counter[str] = Counter()

    def run(self, *, until_end: bool = False) -> TransformReport:
        """Transform what is there and what comes, until :meth:`stop`. With ``until_end`` only what is there.

        Returns:
            What was done in this run, and in earlier ones of this object.

        Raises:
            Exception: the function has failed for a record, with all retries, and there is no dead-letter
                topic. A note names the record. The next run begins with its batch.
            InvalidRecordError: likewise, for a result that the target topic refuses; or the dead-letter topic
                refuses a record.
            ProducerFencedError: the same transform runs elsewhere, and has taken over.
            RetriableError: records were not delivered within ``delivery_timeout_ms``; or, with ``until_end``,
                offsets that were about to be committed were not for two minutes; or there is no thread for a
                worker.
            LogstoreError: a log or the disk failed.
        """
        self._some_are_done.clear()
        try:
            if self._workers == 1:
                self._work(0, until_end)
            else:
                self._work_together(until_end)
        finally:
            self._stopping.clear()
        return self.report

    def stop(self) -> None:
        """End the run after the current batch; the next one, if none is going on. From any thread, and from a
        signal handler."""
        self._stopping.set()

    @property
    def report(self) -> TransformReport:
        """What was done up to now."""
        with self._lock:
            counts = Counter(self._counts)
        return TransformReport(counts["records"], counts["results"], counts["dead"], counts["transactions"])

    def _work_together(self, until_end: bool) -> None:
        """In several threads. The first error stops them all, and is raised."""
        errors: list[BaseException] = []
        is_over = threading.Event()

        def work(number: int) -> None:
            if is_over.is_set():
                return
            try:
                self._work(number, until_end)
            except BaseException as error:
                errors.append(error)
                self.stop()

        threads = [
            threading.Thread(target=work, args=(number,), name=f"logstore-transform-{number}")
            for number in range(self._workers)
        ]
        try:
            for thread in threads:
                _start(thread)
            for thread in threads:
                thread.join()
        except BaseException:  # an interrupt, or no thread
            self.stop()
            is_over.set()
            for thread in threads:
                if thread.ident is not None:  # what has not begun by now does nothing
                    thread.join()
            raise
        if errors:
            raise errors[0]
        if until_end and not self._stopping.is_set():
            self._some_are_done.clear()
            self._work(0, until_end)  # partitions that had no worker while they changed hands

    def _work(self, number: int, until_end: bool) -> None:
        with self._make_producer(number) as producer, self._make_consumer() as consumer:
            source = _Source(consumer)
            waits_since = time.monotonic()
            while not self._stopping.is_set():
                records = source.take()
                if records:
                    self._transform_batch(producer, source, records)
                elif until_end:
                    try:
                        is_at_end = self._is_at_end(consumer)
                    except RetriableError:  # another worker has not committed yet what this one goes on with
                        if time.monotonic() - waits_since > _PATIENCE_SECONDS:
                            raise
                        continue
                    if is_at_end:
                        self._some_are_done.set()
                        return
                waits_since = time.monotonic()

    def _is_at_end(self, consumer: Consumer) -> bool:
        """
        Raises:
            RetriableError: the group's offsets are about to be committed.
        """
        if not consumer.assignment:  # it is joining; or there are more workers than partitions
            return self._some_are_done.is_set()
        return not any(consumer.lag().values())

    # A batch

    def _transform_batch(self, producer: Producer, source: _Source, records: list[Record]) -> None:
        """In one transaction. If the result of a record is refused, what comes before it, and its way to the
        dead-letter topic, are another transaction; and what comes after it is read again."""
        refusal: _RefusedError | None = None
        while True:
            transaction = producer.transaction()
            try:
                self._transact(producer, transaction, source, records, refusal)
                return
            except _RefusedError as error:
                refusal = error
            self._settle(transaction, refusal.error)
            if transaction.is_in_doubt:
                return  # it is to stop
            behind = next(number for number, each in enumerate(records, 1) if each is refusal.record)
            source.seek_back(records[behind:])
            records = records[:behind]

    def _transact(
        self,
        producer: Producer,
        transaction: Transaction,
        source: _Source,
        records: list[Record],
        refusal: _RefusedError | None,
    ) -> None:
        """``refusal``: of what becomes of the last record.

        Raises:
            _RefusedError: the target does not take what becomes of a record, and the dead-letter topic will.
        """
        counts = Counter(transactions=1)
        asks_group = False
        try:
            with transaction:
                for record in records if refusal is None else records[:-1]:
                    counts.update(self._transform_one(producer, record))
                if refusal is not None:
                    counts.update(self._bury(producer, refusal.record, refusal.error))
                asks_group = True
                offsets = source.moved(records)
                transaction.commit_offsets(source.consumer, offsets)
                asks_group = False
        except (RetriableError, FencedError) as error:
            self._settle(transaction, error)
            if not transaction.was_committed:
                if producer.is_fenced or not asks_group:
                    raise  # shut out; or records could not be delivered
                source.seek_back(records)
                self._stopping.wait(self._retry_backoff_ms / 1000)
                return
        source.committed.update(offsets)
        with self._lock:
            self._counts.update(counts)

    def _settle(self, transaction: Transaction, error: LogstoreError) -> None:
        """Find out what became of the transaction, if that is not known."""
        while transaction.is_in_doubt and not self._stopping.is_set():
            warn("%s is asked for its outcome: %s", transaction, error)
            try:
                if transaction.is_aborting:
                    transaction.abort()
                else:
                    transaction.commit()
            except RetriableError:
                self._stopping.wait(self._retry_backoff_ms / 1000)

    def _transform_one(self, producer: Producer, record: Record) -> Counter[str]:
        """Send what becomes of a record.

        Raises:
            _RefusedError: the target does not take it, and the dead-letter topic will take the record.
        """
        for attempt in range(self._retries + 1):
            try:
                results = _results(self._function(record), record)
                break
            except Exception as error:
                if attempt == self._retries:
                    return self._bury(producer, record, error)
                time.sleep(self._retry_backoff_ms / 1000)
        try:
            for value, key, headers, timestamp_ms in results:
                producer.send(self._target, value, key=key, headers=headers, timestamp_ms=timestamp_ms)
        except InvalidRecordError as error:
            if self._dead_letter_topic is not None:
                raise _RefusedError(record, error) from error
            error.add_note(
                f"topic {self._target!r} refuses what became of {_place_of(record)}; "
                "dead_letter_topic= would take such records"
            )
            raise
        return Counter(records=1, results=len(results))

    def _bury(self, producer: Producer, record: Record, error: Exception) -> Counter[str]:
        """Send the record to the dead-letter topic, and say why in its headers."""
        where = _place_of(record)
        if self._dead_letter_topic is None:
            error.add_note(f"while transforming {where}; dead_letter_topic= would take such records")
            raise error
        warn("%s goes to %s: %s: %s", where, self._dead_letter_topic, type(error).__name__, error)
        headers = [
            *record.headers,
            (REASON_HEADER, f"{type(error).__name__}: {error}".encode(errors="replace")),
            (TOPIC_HEADER, str(record.topic).encode()),
            (PARTITION_HEADER, str(record.partition).encode()),
            (OFFSET_HEADER, str(record.offset).encode()),
        ]
        try:
            producer.send(self._dead_letter_topic, record.value, key=record.key, headers=headers)
        except InvalidRecordError as refused:
            refused.add_note(f"topic {self._dead_letter_topic!r} does not take {where} either, which failed")
            raise
        return Counter(records=1, dead=1, results=1)


class _Source:
    """What a worker reads, and how far that is committed."""

    def __init__(self, consumer: Consumer) -> None:
        self.consumer = consumer
        self.committed: dict[TopicPartition, int] = {}
        """What this worker's transactions have committed."""

    def take(self) -> list[Record]:
        """The next records, of as many partitions as have come together: a transaction costs about the same
        for one record as for hundreds. An empty list if nothing comes."""
        records: list[Record] = self.consumer.poll(timeout=_POLL_SECONDS)
        more: list[Record] = records
        while more and (left := self.consumer.config.max_poll_records - len(records)) > 0:
            try:
                more = self.consumer.poll_fetched(left)
            except LogstoreError:  # damage, for example: the next poll comes to it again, and raises it
                break
            records += more
        return records

    def moved(self, records: list[Record]) -> dict[TopicPartition, int]:
        """The positions to commit with these records: theirs, and those that have changed. Of thousands of
        partitions few have."""
        read = {partition_of(record) for record in records}
        return {
            partition: offset
            for partition, offset in self.consumer.positions().items()
            if partition in read or offset != self.committed.get(partition)
        }

    def seek_back(self, records: list[Record]) -> None:
        """Read these again, where that is this worker's: the group may have given it to another."""
        first: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault(partition_of(record), record.offset)
        for partition, offset in first.items():
            if partition in self.consumer.assignment:
                self.consumer.seek(partition, offset)


class _RefusedError(Exception):
    """The target does not take what becomes of a record."""

    def __init__(self, record: Record, error: InvalidRecordError) -> None:
        super().__init__(str(error))
        self.record = record
        self.error = error


def _place_of(record: Record) -> str:
    return f"{record.topic}-{record.partition} offset {record.offset}"


def _start(thread: threading.Thread) -> None:
    """
    Raises:
        RetriableError: the process may have no more threads.
    """
    try:
        thread.start()
    except RuntimeError as error:
        raise RetriableError(f"no thread can be started for a worker: {error}") from None


def _results(given: Any, record: Record) -> list[NewRecord]:
    """What the function has returned, as records.

    Raises:
        InvalidRecordError: it is none of the things that it may return.
    """
    if given is None:
        return []
    if isinstance(given, bytes | bytearray | memoryview):
        return [NewRecord(given, record.key, (), record.timestamp_ms)]
    if isinstance(given, NewRecord):
        return [given]
    if isinstance(given, str) or not isinstance(given, Iterable) or isinstance(given, Record):
        raise InvalidRecordError(
            f"a transform has returned {shown(given)}; it must be bytes, a NewRecord, None or several of them"
        )
    return [result for each in given for result in _results(each, record)]
