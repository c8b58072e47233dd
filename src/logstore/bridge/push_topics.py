"""Topics of a store, brought into a cluster exactly once.

Each transaction at the cluster has records and, as the offsets of a group there, where they ended here: both
count together or not at all. After an end of whatever kind, on whichever side, the next run takes the
transactional id, which ends what was under way, and goes on where the group's offsets are. What a transaction
brings is durable here before it is committed there, so that a power cut here cannot give its offsets to other
records.
"""

from __future__ import annotations

import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any, Final

from logstore.arguments import check_flag, plain_text, shown, utf8_bytes
from logstore.bridge.cluster import LATE_SECONDS, ClusterQuestions
from logstore.bridge.pace import Pace
from logstore.bridge.partition_push import PartitionPush, Taken, is_of_other_topic
from logstore.bridge.progress import NOT_ASKED, PartitionProgress, PushProgress
from logstore.bridge.pull_topics import REFRESH_MS, check_names
from logstore.bridge.pushed import PushedNotes
from logstore.bridge.trouble import OneRun, Trouble
from logstore.broker.requests import NewTopic
from logstore.clients.producer import Producer
from logstore.clients.settings import ProducerConfig
from logstore.clock import BootClock
from logstore.config import TopicConfig, choose_settings
from logstore.connected import RemoteStore
from logstore.errors import (
    ClosedError,
    DiskFullError,
    InvalidConfigError,
    InvalidRecordError,
    InvalidTransactionStateError,
    LogstoreError,
    OutOfOrderError,
    ProducerFencedError,
    RetriableError,
    UnknownPartitionError,
    UnknownTopicError,
    UsageError,
)
from logstore.logdir.followed import read_followed
from logstore.model import Role, TopicPartition
from logstore.partition.log import Log
from logstore.store import Store
from logstore.turns import SafeEvent

GROUP_PREFIX: Final = "logstore-bridge-"
_LONGEST_NAME: Final = 200
_WAIT_SECONDS: Final = 1.0
"""How long to wait for records here before looking at the topics again."""
_RENEW_SECONDS: Final = 3600.0
"""After so long without records there is another producer: a cluster forgets transactional ids that are not
used, after 7 days by default."""
_COMMIT_AGAIN_SECONDS: Final = 3600.0
"""After so long the offset of a partition is committed again: a cluster forgets it after 7 days by default,
that of each partition by itself."""
_TRANSACTION_BYTES: Final = 16 * 1024 * 1024
"""Of records in a transaction, at most: half of a producer's ``buffer_memory``."""
_CLOCK: Final = BootClock()
_SETTINGS_TO_CREATE: Final = ("cleanup.policy", "max.message.bytes")
"""How long a cluster keeps records is for it to say."""


def push(
    store: Store,
    target: RemoteStore,
    *topics: str,
    name: str,
    delete_pushed: bool = False,
    create_topics: bool = True,
    **settings: Any,
) -> PushBridge:
    """Make a :class:`PushBridge`, which brings topics of a store into a cluster, each committed record once.
    Nothing happens before :meth:`PushBridge.run`.

    ::

        with logstore.open("edge") as store, logstore.connect("kafka-1:9092") as cluster:
            bridge.push(store, cluster, "readings", name="edge-7").run()

    Args:
        store: the store, open for writing.
        target: the cluster.
        topics: their names, the same on both sides.
        name: who pushes. It stays the same when the program starts again, and each store has its own: the
            positions are those of the group ``logstore-bridge-<name>`` at the cluster, which is the
            transactional id, too. Of several that push under one name, only the last may.
        delete_pushed: delete records here when they are committed there; by default nothing is deleted.
        create_topics: make topics that the cluster does not have, with as many partitions as here.
        settings: those of the producer, such as ``compression``; see
            :class:`~logstore.clients.settings.ProducerConfig`.

    Raises:
        UsageError: no topic is named, an internal one is, or ``name`` is no name; ``delete_pushed`` of a
            topic that is only compacted.
        UnknownTopicError: there is no such topic here.
        InvalidConfigError: an unknown setting, or a bad value.
        ReadOnlyError, ClosedError: the store cannot be written, or one of both is closed.
    """
    names = check_names(topics)
    name = plain_text(name)
    if type(name) is not str or not 0 < utf8_bytes(name) <= _LONGEST_NAME:
        raise UsageError(f"name is {shown(name)}; it must be text of 1 to {_LONGEST_NAME} bytes")
    if "transactional_id" in settings:
        raise InvalidConfigError("transactional_id is the bridge's own; it follows from name")
    group = GROUP_PREFIX + name
    config = choose_settings(ProducerConfig, None, {**settings, "transactional_id": group})
    return PushBridge(
        store,
        target,
        names,
        group,
        config,
        delete_pushed=check_flag(delete_pushed, "delete_pushed"),
        create_topics=check_flag(create_topics, "create_topics"),
    )


class PushBridge:
    """Brings topics of a store into a cluster. Made by :func:`push`; :meth:`run` does the work."""

    def __init__(
        self,
        store: Store,
        target: RemoteStore,
        topics: Sequence[str],
        group: str,
        config: ProducerConfig,
        *,
        delete_pushed: bool,
        create_topics: bool,
    ) -> None:
        self.group = group
        """The group at the cluster whose offsets say how far all is, and the transactional id."""
        self._store = store
        self._target = target
        self._stopping = SafeEvent()
        self._cluster = ClusterQuestions(target, self._stopping)
        self._names = tuple(topics)
        self._config = config
        limits_ms = (
            config.transaction_timeout_ms,
            config.delivery_timeout_ms,
            2 * config.request_timeout_ms,  # of which one carries a part of a transaction
            2 * self._cluster.config.request_timeout_ms,
        )
        self._pace = Pace(_TRANSACTION_BYTES, min(limits_ms))
        self._deletes = delete_pushed
        self._creates = create_topics
        self._parts: dict[TopicPartition, PartitionPush] = {}
        self._notes = PushedNotes(store, group)
        self._records = self._bytes = self._transactions = self._skipped = 0
        self._trouble = Trouble(f"pushing {', '.join(topics)}")
        self._one_run = OneRun()
        self._changed = SafeEvent()
        self._refresh_at = 0.0
        self._was_reached = False
        """Whether the cluster has ever answered."""
        self._seen_counts: dict[str, int] = {}
        self._seen_ids: dict[str, uuid.UUID | None] = {}
        """Of the topics at the cluster."""
        self._goals: dict[TopicPartition, int] = {}
        """Where partitions ended when the run began, or when they were found."""
        store.directory.check_open()
        for each in topics:
            if delete_pushed and not store[each].config.may_lose_its_front:
                raise UsageError(
                    f"topic {each!r} is compacted only, and delete_pushed would delete records: "
                    "cleanup_policy must contain delete"
                )

    def run(self, *, until_end: bool = False) -> PushProgress:
        """Push what is there and what comes, until :meth:`stop`. With ``until_end`` only what is there.

        If the cluster does not answer, a warning says so, and it is asked again, less and less often, at
        least twice a minute; with ``until_end`` for ``request_timeout_ms`` of the connection. Records of open
        transactions wait for their end; those of aborted ones are left out.

        Cost: a transaction at the cluster and a flush here for what has come, up to 16 MiB where the line is
        fast; and that of :meth:`.Producer.send`. Memory: ``buffer_memory`` of the producer.

        Returns:
            What was done in this run, and in earlier ones of this object.

        Raises:
            ProducerFencedError: another pushes under the same name, and has taken over.
            UnknownTopicError: the cluster does not have a topic, or has it no longer; or the store has not.
            UnknownPartitionError: a topic has fewer partitions at the cluster than here.
            OutOfOrderError: the log here ends below what was pushed, has other records there, or is of
                another topic: the two have diverged. Or the cluster has forgotten how far was pushed.
            UsageError: the cluster does not allow it, or refuses a record; or a topic here is a copy of that
                cluster's. Or it runs already.
            RetriableError: with ``until_end``: the cluster does not answer.
            CorruptionError, StorageError: a log or the disk failed.
        """
        check_flag(until_end, "until_end")
        with self._one_run:
            self._goals.clear()
            self._trouble.begin_run()
            try:
                self._run(until_end)
            finally:
                self._stopping.clear()
        return self.progress

    def _run(self, until_end: bool) -> None:
        limit_ms = self._cluster.config.request_timeout_ms if until_end else None
        while not self._stopping.is_set():
            try:
                if self._run_with_producer(until_end):
                    return
            except RetriableError as error:
                if self._stopping.is_set():
                    return  # the answer was not waited for any longer
                self._pace.failed()
                self._trouble.note(error, limit_ms)
                self._trouble.wait(self._stopping)
            except ClosedError as error:
                self._check_here(error)
                raise

    def _check_here(self, why: ClosedError) -> None:
        """
        Raises:
            UnknownTopicError: a log was closed as its topic was deleted here.
        """
        for part in self._parts.values():
            name = part.partition.topic
            if name not in self._store or self._store[name].topic_id != part.topic_id:
                raise UnknownTopicError(
                    f"topic {name!r} of {self._store.path} was deleted while it was pushed, up to offset "
                    f"{part.position} of {part.partition}"
                ) from why

    def stop(self) -> None:
        """End the run after the current transaction, or within two seconds, if the cluster does not answer a
        question; the next one, if none is going on. From any thread, and from a signal handler."""
        self._stopping.set()
        self._changed.set()

    @property
    def progress(self) -> PushProgress:
        """What was done up to now. From any thread."""
        was_asked = self._refresh_at  # another producer may begin, and be told how far all is, from here on
        partitions = tuple(
            PartitionProgress(each.partition, each.position, each.end_offset)
            for _, each in sorted(self._parts.copy().items())
        )
        return PushProgress(
            partitions,
            self._records,
            self._bytes,
            self._transactions,
            self._skipped,
            self._trouble.reason or (None if was_asked and self._refresh_at else NOT_ASKED),
        )

    # With one producer

    def _run_with_producer(self, until_end: bool) -> bool:
        """Push until the end, and return True; or until it is time for another producer. An error of any kind
        ends the producer, too, and the next one begins where the cluster says that this one has come.

        Raises:
            RetriableError: it may succeed with another producer.
        """
        self._refresh_at, self._parts = 0.0, {}  # in this order, for who looks at the progress meanwhile
        if not self._was_reached:
            self._cluster.reach()
        self._cluster.topics(self._names).check()  # tells why, if the cluster cannot be reached
        self._was_reached = True
        producer = self._target.producer(self._config)
        with ExitStack() as stack:
            stack.callback(_close, producer)
            used_at = _seconds()
            while _seconds() < used_at + _RENEW_SECONDS:
                self._changed.clear()
                if self._stopping.is_set():  # stop() sets it before it rings
                    return False
                if time.monotonic() >= self._refresh_at:
                    self._refresh(stack)
                has_pushed = self._push_once(producer)
                self._trouble.end()
                if until_end and (not has_pushed or self._is_at_goals()):
                    return True
                if has_pushed:
                    used_at = _seconds()
                else:
                    self._changed.wait(_WAIT_SECONDS)
        return False

    def _is_at_goals(self) -> bool:
        return all(self._parts[each].position >= goal for each, goal in self._goals.items())

    def _push_once(self, producer: Producer) -> bool:
        """Push a transaction's worth. Returns whether there was anything."""
        taken = self._take()
        if not taken:
            return False
        self._flush(taken)
        transaction = producer.transaction()
        began = _seconds()
        try:
            with transaction:
                for each in taken:
                    each.send(producer)
                transaction.commit_offsets(self.group, {each.partition: each.committed for each in taken})
        except UnknownTopicError as error:
            raise UnknownTopicError(
                f"the cluster {self._notes.cluster_id} no longer has a topic that is pushed: {error}"
            ) from error
        except InvalidRecordError as error:
            for each in taken:
                if each.records and error.offset is None and error.partition == each.partition:
                    raise each.explain(error) from error
            raise
        except (ProducerFencedError, InvalidTransactionStateError, OutOfOrderError) as error:
            lasted_ms = (_seconds() - began) * 1000
            if isinstance(error, ProducerFencedError) and lasted_ms < self._config.transaction_timeout_ms:
                name = self.group.removeprefix(GROUP_PREFIX)
                raise ProducerFencedError(
                    f"another bridge pushes under the name {name!r}, and has taken over. Of several that do, "
                    "only the last may: end the others, or give this one another name, and all is pushed "
                    "again"
                ) from error
            raise RetriableError(f"the transaction was aborted: {error}") from error
        self._pace.took(sum(each.carried_bytes for each in taken), (_seconds() - began) * 1000)
        self._transactions += any(each.records or each.skipped_count for each in taken)
        for each in taken:
            self._note_pushed(each)
        self._note_here(each.partition for each in taken)
        return True

    def _flush(self, taken: Sequence[Taken]) -> None:
        """Make durable here what was taken. If the disk is full, appends that wait in memory for room are not
        among that, and pushing may be what makes room."""
        try:
            self._store.directory.flush([each.log for each in taken])
        except DiskFullError:
            if any(each.log.durable_offset < each.end_offset for each in taken):
                raise

    def _note_here(self, partitions: Iterable[TopicPartition]) -> None:
        self._notes.note({each: self._parts[each].position for each in partitions}, self._seen_ids)

    def _take(self) -> list[Taken]:
        """What comes next of each partition, the one with most left first; and the offsets of those of which
        nothing comes, if the cluster would forget them."""
        parts = sorted(self._parts.values(), key=lambda each: -each.look())
        left, taken = self._pace.step_bytes, []
        for part in parts:
            if left > 0 and (found := part.take(left)) is not None:
                taken.append(found)
                left -= found.carried_bytes
            elif _seconds() >= part.renew_at:
                taken.append(part.renew())
        return taken

    def _note_pushed(self, taken: Taken) -> None:
        self._records += len(taken.records)
        self._bytes += taken.byte_count
        self._skipped += taken.skipped_count
        part = self._parts[taken.partition]
        part.note_pushed(taken)
        part.renew_at = _seconds() + _COMMIT_AGAIN_SECONDS
        self._delete_pushed(part)

    def _delete_pushed(self, part: PartitionPush) -> None:
        if self._deletes:
            part.log.delete_before(min(part.position, part.log.high_watermark))

    # The topics

    def _refresh(self, stack: ExitStack) -> None:
        """Look at the topics on both sides; begin with partitions that are new.

        Raises:
            UnknownTopicError, UnknownPartitionError, OutOfOrderError: see :meth:`run`.
        """
        logs = {log.partition: log for name in self._names for log in self._store[name]}
        new = [log for partition, log in logs.items() if self._is_new(partition, log)]
        committed = self._cluster.committed(self.group, [log.partition for log in new]) if new else {}
        self._check_target(Counter(each.topic for each in logs), {each.topic for each in committed})
        self._check_no_copies(new)
        if any(is_of_other_topic(at, self._seen_ids.get(each.topic)) for each, at in committed.items()):
            self._stopping.wait(LATE_SECONDS)  # a cluster deletes the offsets of a topic after the topic
            committed = self._cluster.committed(self.group, [log.partition for log in new])
        for log in new:
            topic_id, at = self._store[log.partition.topic].topic_id, committed.get(log.partition)
            target_id = self._seen_ids.get(log.partition.topic)
            if at is None:
                self._notes.check_new(log.partition, topic_id, target_id)
            part = PartitionPush(log, topic_id, at, self.group, target_id)
            self._parts[log.partition] = part
            self._delete_pushed(part)  # a kill may have come before that
            self._goals.setdefault(log.partition, log.last_stable_offset)
            stack.callback(self._watch(log))
        for part in self._parts.values():
            part.target_id = self._seen_ids.get(part.partition.topic)
        self._note_here(committed)
        self._refresh_at = time.monotonic() + REFRESH_MS / 1000

    def _check_no_copies(self, logs: Iterable[Log]) -> None:
        """
        Raises:
            UsageError: a topic is a copy of the one that it would be pushed into, or that itself.
        """
        names = {log.partition.topic for log in logs if log.role is Role.FOLLOWER}
        for name in {log.partition.topic for log in logs} - names:
            if self._seen_ids.get(name) == self._store[name].topic_id:  # ids of topics are random
                raise UsageError(
                    f"topic {name!r} of {self._store.path} and that of the cluster {self._notes.cluster_id} "
                    "are the same, or one began as a copy of the other: its records would come again"
                )
        if not names:
            return
        directory = self._store.directory
        followed = read_followed(directory.context.files, directory.path)
        for name in sorted(names & followed.keys()):
            source = followed[name]
            there = self._notes.cluster_id, self._seen_ids.get(name)
            if (source.cluster_id, source.topic_id) == there:
                raise UsageError(
                    f"topic {name!r} of {self._store.path} is a copy of topic {name!r} of the cluster "
                    f"{source.cluster_id}, where its records are already: push it into another cluster"
                )

    def _is_new(self, partition: TopicPartition, log: Log) -> bool:
        """Whether a partition is new, or was opened again."""
        part = self._parts.get(partition)
        return part is None or part.log is not log

    def _watch(self, log: Log) -> Callable[[], object]:
        return log.on_change(self._changed.set)

    def _check_target(self, counts: Mapping[str, int], pushed: set[str]) -> None:
        """
        Args:
            counts: how many partitions each topic had here before the cluster is asked: others may be added
                on both sides meanwhile.
            pushed: topics that were pushed before: one that is gone is not made again.
        """
        needed = {*pushed, *self._seen_counts} if self._creates else counts
        found = self._cluster.topics_now(self._names, counts, needed)
        found.check()
        self._notes.cluster_id = found.cluster_id
        missing = []
        for name, count in counts.items():
            there = found.topics.get(name)
            if there is None:
                if name in needed:
                    was = "no longer has" if name in pushed or name in self._seen_counts else "does not have"
                    raise UnknownTopicError(f"the cluster {found.cluster_id} {was} topic {name!r}")
                missing.append(NewTopic(name, count, _settings_for(self._store[name].config)))
            elif len(there.leader_epochs) < count:
                raise UnknownPartitionError(
                    f"topic {name!r} has {len(there.leader_epochs)} partitions at the cluster and {count} "
                    "here, and records stay in the partition that they have: add partitions at the cluster"
                )
            elif self._seen_ids.setdefault(name, there.topic_id) != there.topic_id:
                self._seen_ids[name] = there.topic_id  # the next run pushes into this one
                raise UnknownTopicError(
                    f"the cluster {found.cluster_id} has deleted topic {name!r}, and made it again"
                )
        self._seen_ids.update(self._cluster.create_topics(missing))
        self._seen_counts.update(counts)


def _seconds() -> float:
    """Of a clock that goes on while this machine sleeps, as the cluster's does."""
    return _CLOCK.monotonic_ms() / 1000


def _settings_for(config: TopicConfig) -> dict[str, str]:
    settings = config.to_properties()
    return {key: settings[key] for key in _SETTINGS_TO_CREATE if key in settings}


def _close(producer: Producer) -> None:
    """What it has not committed is aborted; the next producer with its transactional id would do so, too."""
    try:
        producer.close(0)
    except LogstoreError:
        return
