"""A directory of topics, open for writing: the partitions of each, and the background work.

Which logs are open, and which could not be opened, :mod:`~logstore.logdir.open_logs` knows; what a topic is
on disk, :mod:`~logstore.logdir.topics`; the logs know records.

Lock: ``_lock`` guards the topics and the table of logs. It is held while a topic is created, grown or
deleted, a partition is reopened or the store is closed, so background work must not wait for it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from logstore.arguments import check_callback, check_flag, did_you_mean, plain_text, shown
from logstore.clock import Clock
from logstore.config import StoreConfig, TopicConfig, check_topic_config
from logstore.errors import (
    ClosedError,
    CorruptionError,
    DiskFullError,
    LogstoreError,
    StorageError,
    UnknownTopicError,
    UsageError,
    without_frames,
)
from logstore.files import Files
from logstore.format.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTIONS_TOPIC, check_new_topic_name
from logstore.logdir.catalogue import MAX_PARTITIONS, TopicEntry
from logstore.logdir.held import check_numbers, not_held
from logstore.logdir.identity import (
    BACKUP_NAME,
    end_being_backup,
    ensure_identity,
    is_brokers_directory,
    join_cluster,
    leave_cluster,
    missing_directory,
    prepare_directory,
)
from logstore.logdir.open_logs import OnProgress, OpenLogs
from logstore.logdir.reserve import RESERVE_NAME, Reserve
from logstore.logdir.topics import NewTopic, TopicTable
from logstore.logdir.upkeep import Upkeep, flush_each, for_each
from logstore.model import Role, TopicPartition
from logstore.partition.log import Log
from logstore.partition.state.context import LogContext, make_context
from logstore.partition.state.home import NODE_NAME
from logstore.warning import inform

if TYPE_CHECKING:
    from logstore.logdir.cleaner import LogCleaner
    from logstore.logdir.scrub import Scrubber
    from logstore.partition.checking.findings import VerifyReport
    from logstore.partition.cleaning.reports import CompactionReport, OnCompactionProgress


CREATED_AT_A_TIME: Final = 64
"""Topics. The lock is held meanwhile: for some tenths of a second."""

_DIVIDED: Final = {
    OFFSETS_TOPIC: ("groups and their offsets", "offsets_topic_num_partitions"),
    TRANSACTIONS_TOPIC: ("transactional ids", "transaction_state_log_num_partitions"),
    SHARE_STATE_TOPIC: ("share groups", "share_coordinator_state_topic_num_partitions"),
}
"""What a broker divides among the partitions of its own topics, and which setting says how many."""


class LogDirectory:
    """The topics and logs of one directory, held by this process."""

    def __init__(
        self,
        path: str,
        *,
        config: StoreConfig | None = None,
        create: bool = True,
        files: Files | None = None,
        clock: Clock | None = None,
        seed: int | None = None,
        on_progress: OnProgress | None = None,
        timeout: float | None = None,
        opens_when_asked: bool = False,
    ) -> None:
        """
        Args:
            timeout: how many seconds to wait until the directory is free.
            opens_when_asked: after a clean stop a log is opened when :meth:`log` is asked for it, and all
                else knows only those: for changes of a few partitions among thousands. After a crash all are
                opened, as always.

        Raises:
            UsageError: the path is not a store and cannot become one.
            LockedError: it is open for writing elsewhere.
            CorruptionError: the catalogue or the identity is damaged.
        """
        if on_progress is not None:
            check_callback(on_progress, "on_progress")
        self.context: LogContext = make_context(path, config=config, files=files, clock=clock, seed=seed)
        self.path = self.context.home.path
        self.config = self.context.config
        self._files = self.context.files
        self._lock = threading.RLock()
        self._topics = TopicTable(self._files, self.context.home, self.config.topic)
        self._open = OpenLogs(self.context, self._topics)
        self._reserve = Reserve(self._files, self.path, self.config.disk_reserve_bytes)
        self.context.home.make_room = self._reserve.give_up
        self._upkeep = Upkeep(self.context, self._open.usable, self._lock, self._reserve)
        self._cleaner: LogCleaner | None = None
        self._gone: list[str] = []  # directories of deleted topics, under their new names
        self._is_closed = False
        self.is_settled = True
        """Whether groups and queues say nothing of records above the ends of logs. Not after a crash, nor in
        a backup, whose partitions are not of one moment, until somebody has seen to that: without it there is
        no clean stop."""
        self._scrubber: Scrubber | None = None
        prepare_directory(self._files, self.path, create=create)
        try:
            self.context.home.acquire(timeout)
            self._load(on_progress, opens_when_asked=opens_when_asked)
            self._start_background()
        except BaseException:
            self._abandon()
            raise

    def _start_background(self) -> None:
        self._upkeep.start(was_clean=self.was_clean)
        if self.config.scrub_interval_ms >= 0:
            from logstore.logdir.scrub import Scrubber  # most stores do not need it

            self._scrubber = Scrubber(self.context, self._open.usable)
            self._scrubber.start()
        self._start_cleaner_for(self.catalogue.values())

    @property
    def damage_found(self) -> Mapping[TopicPartition, VerifyReport]:
        """What scrubbing has found."""
        return self._scrubber.found if self._scrubber is not None else {}

    @property
    def cleaner(self) -> LogCleaner:
        """The cleaner, which compacts in the background."""
        with self._lock:
            if self._cleaner is None:
                from logstore.logdir.cleaner import LogCleaner  # most stores do not need it

                self._cleaner = LogCleaner(self.context, self.logs)
            return self._cleaner

    def _start_cleaner_for(self, topics: Iterable[TopicEntry]) -> None:
        if self.config.log_cleaner_enable and any(topic.config.compacts for topic in topics):
            self.cleaner.start()

    # Opening

    def _load(self, on_progress: OnProgress | None, *, opens_when_asked: bool) -> None:
        """Open the logs. First reads everything that may be refused: a store that does not open is not
        changed."""
        entries = self._files.list_directory(self.path)
        names = {entry.name for entry in entries if not entry.is_directory}
        self.context.home.load(names)
        self._topics.load(entries)
        self.identity = ensure_identity(self._files, self.path)
        if BACKUP_NAME in names:
            self.context.home.is_copy = True
        self._reserve.may_exist = self.config.disk_reserve_bytes > 0 or RESERVE_NAME in names
        if self._reserve.may_exist:
            self._reserve.give()
        self.was_clean = self.context.home.take_clean_marker(names)
        wanted = [
            (TopicPartition(topic.name, number), topic)
            for topic in self._topics.finish_interrupted()
            for number in topic.held_partitions
        ]
        is_copy = self.context.home.is_copy
        if is_copy or not self.was_clean:
            self.is_settled = self.catalogue.keys().isdisjoint((OFFSETS_TOPIC, SHARE_STATE_TOPIC))
        if self.was_clean and opens_when_asked and not is_copy:
            self._open.leave_unasked(wanted)
        else:
            self._open.open_all(wanted, on_progress, was_clean=self.was_clean)
        if is_copy:  # before it counts as none: a crash would forget how far the leader epochs are
            self.context.home.store_leader_epoch()
            self.context.home.is_copy = False
        if BACKUP_NAME in names:
            end_being_backup(self._files, self.path)
        if self._reserve.may_exist:
            self._reserve.keep()

    # Logs

    def logs(self) -> list[Log]:
        """Every open log."""
        return self._open.all()

    @property
    def damaged(self) -> dict[TopicPartition, LogstoreError]:
        """Partitions that could not be opened, with the errors. The others work."""
        return self._open.damaged

    def enforce_retention(self, *, dry_run: bool = False) -> dict[TopicPartition, int]:
        """See :meth:`Upkeep.enforce_retention`."""
        return self._upkeep.enforce_retention(dry_run=dry_run)

    def compact(
        self, topic: str | None, *, now: bool, dry_run: bool, on_progress: OnCompactionProgress | None
    ) -> dict[TopicPartition, CompactionReport]:
        """Compact the logs of one topic, or of all that are compacted."""
        cleaner = self.cleaner
        reports: dict[TopicPartition, CompactionReport] = {}

        def compact(log: Log) -> None:
            reports[log.partition] = cleaner.compact(log, now=now, dry_run=dry_run, on_progress=on_progress)

        wanted = [log for log in self.logs() if log.config.compacts and topic in (None, log.partition.topic)]
        for_each(compact, wanted)
        return reports

    def flush(self, logs: Sequence[Log]) -> None:
        """Make everything appended before the call durable in these logs."""
        flush_each(logs, self._files)

    def checkpoint(self) -> None:
        """See :meth:`Upkeep.checkpoint`."""
        self._upkeep.checkpoint()

    # Topics

    def topic_names(self) -> list[str]:
        self.check_open()
        return self._topics.names()

    def topics(self) -> list[TopicEntry]:
        """The catalogue entry of each topic now."""
        self.check_open()
        return self._topics.live()

    @property
    def catalogue(self) -> Mapping[str, TopicEntry]:
        """The same by name, in any state: one mapping for as long as no topic changes. Cost: 0.2 µs."""
        return self._topics.entries

    def topic(self, name: str) -> TopicEntry:
        """
        Raises:
            UnknownTopicError: there is no such topic.
        """
        topic = self._find(name)
        if topic is None:
            hint = did_you_mean(name, self.topic_names())
            raise UnknownTopicError(f"there is no topic {shown(name)} in {self.path}{hint}")
        return topic

    def has_topic(self, name: object) -> bool:
        """Whether there is such a topic. Looks for no names alike, as the error of :meth:`topic` does."""
        return self._find(name) is not None

    def _find(self, name: object) -> TopicEntry | None:
        self.check_open()
        if type(name) is not str:
            name = plain_text(name)
        return self._topics.get(name) if type(name) is str else None

    def config_of(self, name: str) -> TopicConfig:
        """The settings of a topic.

        Raises:
            UnknownTopicError: there is no such topic.
        """
        return self.topic(name).config

    def log(self, partition: TopicPartition) -> Log:
        """
        Raises:
            UnknownTopicError: there is no such partition, or the directory does not hold it.
            CorruptionError, StorageError: it could not be opened; says why.
        """
        if self._is_closed or self.context.fork_flag.is_forked:  # each request asks, more than once
            self.check_open()
        log = self._open.by_partition.get(partition)
        if log is not None:
            return log
        with self._lock:
            log = self._open.find(partition)
            if log is not None:
                return log
            self._check_held(partition)
        raise UnknownTopicError(f"there is no partition {partition} in {self.path}")

    def _check_held(self, partition: TopicPartition) -> None:
        """
        Raises:
            UnknownTopicError: the topic has such a partition, but the directory does not hold it.
        """
        topic = self._topics.get(partition.topic)
        number = partition.partition
        if topic is not None and 0 <= number < topic.partition_count and not topic.holds(number):
            raise not_held(topic, number, self.path)

    def create_topic(
        self,
        name: str,
        partition_count: int,
        config: TopicConfig | None,
        held: Iterable[int] | None = None,
        topic_id: uuid.UUID | None = None,
    ) -> TopicEntry:
        """Create a topic. The directory holds the partitions with the numbers ``held``, or all if it is None.
        It gets ``topic_id``, the id of the same topic elsewhere, if that is free here. After a crash the next
        open finishes the creation if all directories were made, and else undoes it.

        Raises:
            InvalidTopicError: Kafka would refuse the name, or it is ``__cluster_metadata``.
            TopicExistsError: the topic exists, or one whose name differs only in ``.`` and ``_``.
            UsageError: the directory is a broker's; or ``held`` is wrong.
        """
        self.check_open()
        topic = self._checked(
            NewTopic(name=name, partition_count=partition_count, config=config, held=held, topic_id=topic_id)
        )
        with self._lock:
            self.check_open()
            return self._create([self._topics.new_entry(topic)])[0]

    def create_topics(
        self, topics: Sequence[NewTopic], role: Role = Role.ALONE
    ) -> dict[str, TopicEntry | LogstoreError]:
        """Create topics, some at a time: what is stored for all of them is stored once. Each is created, or
        refused with an error as :meth:`create_topic` raises it; what the disk refuses, some are refused for.
        Of two with one name the first counts. ``role``: what the logs are from the start.
        """
        made: dict[str, TopicEntry | LogstoreError] = {}
        wanted = list({topic.name: topic for topic in reversed(topics)}.values())[::-1]
        for start in range(0, len(wanted), CREATED_AT_A_TIME):
            some = wanted[start : start + CREATED_AT_A_TIME]
            self.check_open()
            with self._own_lock():
                self.check_open()
                made.update(self._create_some(some, role))
        return made

    def _create_some(self, topics: Sequence[NewTopic], role: Role) -> dict[str, TopicEntry | LogstoreError]:
        refused: dict[str, LogstoreError] = {}
        entries: list[TopicEntry] = []
        for topic in topics:
            try:
                entries.append(self._topics.new_entry(self._checked(topic), entries))
            except LogstoreError as error:
                refused[topic.name] = without_frames(error)
        try:
            return {**refused, **{entry.name: entry for entry in self._create(entries, role)}}
        except LogstoreError as error:
            return {**refused, **dict.fromkeys([entry.name for entry in entries], without_frames(error))}

    def _checked(self, topic: NewTopic) -> NewTopic:
        """The same, if it may be created here."""
        check_new_topic_name(topic.name)
        numbers, config = check_held(topic.held, topic.partition_count), check_topic_config(topic.config)
        self._check_ours(f"topic {topic.name!r}")
        self.check_not_of_cluster(f"topic {topic.name!r} is not made here", f"create_topic({topic.name!r})")
        return replace(topic, held=numbers, config=config)

    def _create(self, entries: Sequence[TopicEntry], role: Role = Role.ALONE) -> list[TopicEntry]:
        if not entries:
            return []
        try:
            self._topics.begin(entries, role)
            live = self._complete([(entry, entry.held_partitions) for entry in entries])
        except BaseException:
            for entry in entries:
                self._topics.undo(entry.name)
            raise
        self._start_cleaner_for(live)
        return live

    def _check_ours(self, what: str) -> None:
        """
        Raises:
            UsageError: the directory is a broker's. The broker would not know a partition created here, and
                sets such directories aside with all their records when it starts.
        """
        if is_brokers_directory(self._files, self.path):
            raise UsageError(
                f"{what} cannot be created in {self.path}: it is a broker's, and a broker renames unknown "
                "partitions to -stray. Create it in the broker; logstore.handover() gives it the records of "
                "a store. For a store of your own, hand the topics over to a new directory"
            )

    def _complete(self, made: Sequence[tuple[TopicEntry, Sequence[int]]]) -> list[TopicEntry]:
        """Open the logs of new partitions, given by their topics and numbers, and show them."""
        wanted = {TopicPartition(topic.name, number): topic for topic, numbers in made for number in numbers}
        return self._open.open_new(
            wanted,
            show=lambda: self._topics.finish([topic for topic, _ in made]),
            is_shown=lambda: all(self._shows(topic.name, numbers) for topic, numbers in made),
        )

    def _shows(self, name: str, numbers: Sequence[int]) -> bool:
        """Whether the topic is there with these partitions."""
        shown = self._topics.get(name)
        return shown is not None and set(numbers).issubset(shown.held_partitions)

    def check_grows_here(self, name: str) -> None:
        """
        Raises:
            UnknownTopicError: there is no such topic.
            UsageError: the topic is a copy of a leader's, and grows as that does; or one of a cluster.
        """
        self.check_not_of_cluster(f"{name!r} does not grow here", "add_partitions()")
        for number in self.topic(name).held_partitions[:1]:
            with suppress(CorruptionError):
                if self.log(TopicPartition(name, number)).role is Role.FOLLOWER:
                    raise UsageError(
                        f"topic {name!r} is a copy, and grows as its leader's does: add partitions there; or "
                        "set_role(logstore.model.Role.ALONE) of each log makes it this store's own"
                    )

    def add_partitions(
        self,
        name: str,
        partition_count: int,
        held: Iterable[int] | None = None,
        role: Role = Role.ALONE,
    ) -> TopicEntry:
        """Give a topic more partitions, ``partition_count`` in all. A crash leaves all of the new ones, or
        none. The directory holds those with the numbers ``held``, or all new ones if it is None.

        Raises:
            UsageError: the topic has as many or more; partitions are never removed. Or the directory is a
                broker's, or ``held`` is wrong.
        """
        check_partition_count(partition_count)
        added = _added_partitions(self.topic(name), partition_count, held)
        self._check_ours(f"a partition of {name!r}")
        self.check_not_of_cluster(f"{name!r} does not grow here", "add_partitions()")
        with self._own_lock():
            topic = self.topic(name)  # it may be another topic by now, or have grown
            added = _added_partitions(topic, partition_count, added if held is not None else None)
            self.context.home.check_held()
            grown = self._topics.begin_growth(topic, added, partition_count, role)
            return self._complete([(grown, added)])[0]

    def hold(self, name: str, numbers: Iterable[int], role: Role = Role.ALONE) -> TopicEntry:
        """Hold more partitions of a topic. A crash leaves all of the named ones held, or none. If a directory
        of the partition exists already, such as a copy from a replica, its records are used.

        Raises:
            UsageError: wrong numbers; or the directory is a broker's.
            TopicExistsError: a partition of another topic has that directory.
        """
        given = check_numbers(numbers, "partitions", range(self.topic(name).partition_count))
        self._check_ours(f"a partition of {name!r}")
        with self._own_lock():
            topic = self.topic(name)
            check_numbers(given, "partitions", range(topic.partition_count))  # it may be another topic by now
            added = [number for number in given if not topic.holds(number)]
            if not added:
                return topic
            self.context.home.check_held()
            return self._complete([(self._topics.begin_growth(topic, added, role=role), added)])[0]

    def let_go(self, name: str, number: int) -> TopicEntry:
        """Stop holding a partition: remove it with all its records, even if they are damaged or missing. Its
        files are removed after ``file_delete_delay_ms``, or on close.

        Raises:
            UnknownTopicError: the directory does not hold it.
            UsageError: it is the only partition held.
        """
        check_numbers([number], "partition", range(self.topic(name).partition_count))
        with self._own_lock():
            topic = self.topic(name)
            check_numbers([number], "partition", range(topic.partition_count))  # it may be another topic now
            partition = TopicPartition(topic.name, number)
            self._check_held(partition)
            if len(topic.held_partitions) == 1:
                raise UsageError(
                    f"partition {number} is the only one of topic {name!r} that {self.path} holds; "
                    "delete_topic() removes the topic"
                )
            log = self._open.by_partition.get(partition)
            topic = self._store_letting_go(topic, number)
            inform(
                "let go partition %s, %d bytes: let_go()",
                partition,
                log.written_bytes if log is not None else 0,
            )
            self._open.drop(partition)
            topic, renamed = self._topics.take_out_parts(topic)
            self._gone += renamed
        self._remove_later(topic, renamed)
        return topic

    def _store_letting_go(self, topic: TopicEntry, number: int) -> TopicEntry:
        """Store that a partition goes, before it does. On a disk that is full to the last byte it goes first,
        which makes room for that."""
        try:
            return self._topics.hide_parts(topic, [number])
        except DiskFullError:
            self._make_room(topic, TopicPartition(topic.name, number))
        return self._topics.hide_parts(topic, [number])

    def _make_room(self, topic: TopicEntry, partition: TopicPartition) -> None:
        try:
            renamed = self._topics.rename_away(topic, [partition])
        finally:
            if not self._files.is_directory(self._topics.directory_of(partition)):
                self._open.drop(partition)
                self.damaged[partition] = missing_directory(self._files, self.path, partition)
        self._topics.remove_directories(renamed)

    def _remove_later(self, topic: TopicEntry, directories: list[str]) -> None:
        self.context.scheduler.after(
            topic.config.file_delete_delay_ms,
            f"remove {topic.name}",
            lambda: self._topics.remove_directories(directories),
        )

    def configure(self, name: str, config: TopicConfig) -> TopicEntry:
        """Store other settings for a topic, durably, then use them.

        In a compacted topic the next open assumes that compaction made any gap. So before a topic becomes
        compacted, its logs are flushed, and begin to flush at each roll: a power cut then leaves no gaps.

        Raises:
            UsageError: the directory is that of a node which does not run.
        """
        self.check_open()
        self.check_not_of_cluster(f"topic {name!r} is not configured here")
        with self._own_lock():
            topic = self.topic(name)
            logs = [log for log in self._open.usable() if log.partition.topic == name]
            if config.compacts and not topic.config.compacts:
                self._begin_to_compact(logs, topic, config)
            topic = self._topics.configure(topic, config)
            for log in logs:
                log.reconfigure(config)
            self._start_cleaner_for([topic])
            return topic

    def _begin_to_compact(self, logs: list[Log], topic: TopicEntry, config: TopicConfig) -> None:
        try:
            for log in logs:
                log.reconfigure(config)
            flush_each(logs, self._files)
        except BaseException:
            for log in logs:
                if not log.needs_reopen:
                    log.reconfigure(topic.config)
            raise

    def delete_topic(self, name: str) -> None:
        """Remove a topic with all its records. Its files are removed after ``file_delete_delay_ms``, or on
        close."""
        self.check_open()
        with self._own_lock():
            topic = self.topic(name)
            self.check_not_of_cluster(f"topic {name!r} is not deleted here", f"delete_topic({name!r})")
            size_bytes = sum(log.written_bytes for log in self._open.usable() if log.partition.topic == name)
            self._begin_epoch_behind(topic)
            aside = self._begin_deletion(topic)
            inform(
                "deleted topic %r, %d partitions, %d bytes: delete_topic()",
                name,
                len(topic.held_partitions),
                size_bytes,
            )
            for number in topic.held_partitions:
                self._open.drop(TopicPartition(name, number))
            if aside:
                self._topics.take_out_aside(topic, aside)
                return
            renamed = self._topics.take_out(topic)
            self._gone += renamed
        self._remove_later(topic, renamed)

    def _begin_epoch_behind(self, topic: TopicEntry) -> None:
        """Let what is made under a topic's name after it begin in a later leader epoch. Clients that stay
        take an earlier one for outdated: librdkafka reads nothing any more. And some do not look at the
        topic's id, and are told by the epoch that what they have read is gone. On a full disk it is not
        stored: a crash may take it back."""
        latest, has_records = self._open.latest_epoch_of(topic)
        with suppress(DiskFullError):
            self.context.home.reach_epoch(latest, goes_on=not has_records)

    def _begin_deletion(self, topic: TopicEntry) -> list[str]:
        """Store that a topic goes. Without room for that, its directories do; returns their new names."""
        try:
            self._topics.hide(topic)
        except DiskFullError:
            aside = self._topics.set_aside(topic)
            if not aside:
                raise
            return aside
        return []

    def check_not_of_cluster(self, what: str, call: str | None = None) -> None:
        """
        Args:
            call: what does it in the cluster; None: only Kafka's tools and admin clients do.

        Raises:
            UsageError: the directory is that of a node which does not run: it would bring the change into its
                cluster, or lead with less than it had; or undo the change as soon as it runs.
        """
        if self.context.home.is_of_absent_node:
            how = "Kafka's tools do it" if call is None else f"logstore.connect(...).{call}"
            raise UsageError(
                f"{what}: {self.path} is the directory of a node, and its topics are its cluster's. Connect "
                f"to the cluster: {how}; or take the directory out of the cluster for good: move {NODE_NAME} "
                "away"
            )

    def check_not_of_node(self, what: str) -> None:
        """For callers other than the node whose directory this is.

        Raises:
            UsageError: that node runs: the others would not hear of the change, and it would undo it.
        """
        if self.context.home.is_node_here:
            raise UsageError(
                f"{what}: the store is a node of a cluster, whose topics are changed through its nodes: by "
                "logstore.connect(node.address), or by Kafka's tools"
            )

    def reopen(self, partition: TopicPartition, *, accept_loss: bool = False) -> Log:
        """Open one partition again: after a failed fsync, or after its files were restored. Checks the files
        as after a crash.

        Raises:
            UnknownTopicError: the directory does not hold it.
            CorruptionError: it is still damaged, and ``accept_loss`` is false.
            StorageError: appends that still gather could not be written; nothing has changed.
            FencedError: the directory's lock was lost; open the store again instead.
        """
        accept_loss = check_flag(accept_loss, "accept_loss")
        self.check_open()
        self.context.home.check_held()
        with self._own_lock():
            topic = self.topic(partition.topic)
            self._check_held(partition)
            log = self._open.reopen(partition, topic, accept_loss=accept_loss)
            end_offset = log.log_end_offset
        if log.role is Role.ALONE:
            try:
                self.context.lost_ends.tell({partition: end_offset})
            except BaseException as error:  # of a signal handler: the log does not grow before all have heard
                log.writer.guard.poison(error)
                raise
        return log

    # End

    def join(self, cluster_id: str, node_id: int) -> None:
        """Make the directory that of a node of a cluster, durably.

        Raises:
            UsageError: it is of another node, or has topics of another cluster.
            CorruptionError: its identity is damaged.
        """
        self.check_open()
        with self._lock:
            is_empty = not self._topics.live()
            self.identity = join_cluster(self._files, self.path, cluster_id, node_id, is_empty=is_empty)

    def leave(self) -> None:
        """Make the directory one of no cluster, durably. Its topics stay as they are.

        Raises:
            CorruptionError: its identity is damaged.
        """
        self.check_open()
        with self._lock:
            self.context.home.check_held()
            self.identity = leave_cluster(self._files, self.path)

    @property
    def files(self) -> Files:
        """The file system that it is on."""
        return self._files

    def check_lock(self) -> None:
        """Whether this process still has the directory. For those who do nothing with it for a long time.

        Raises:
            FencedError: the lock was lost, as when the directory was moved, removed or replaced. A disk that
                does not answer proves nothing of the kind.
        """
        with suppress(StorageError):
            self.context.home.check_held()

    def _own_lock(self) -> threading.RLock:
        """The lock, for a change of topics or partitions. Named in a ``with`` statement, so that no interrupt
        can come between taking it and its release.

        Raises:
            UsageError: this thread is storing the checkpoints, and is interrupted; nothing was done.
        """
        if self.context.home.is_used_here():
            raise self.context.home.reentered()
        return self._lock

    def check_open(self) -> None:
        """
        Raises:
            ForkedError: this process is a child of the one that opened the store.
            ClosedError: the store is closed.
        """
        fork_flag = self.context.fork_flag
        if self._is_closed or fork_flag.is_forked:  # every use of a topic asks
            fork_flag.check_usable(self.path, is_closed=self._is_closed)

    def check_not_closed(self, partition: TopicPartition, log: Log) -> None:
        """A log was found closed: wait until its partition is deleted or opened again, if a thread is at it.

        Raises:
            ForkedError, ClosedError: as :meth:`check_open`; or the log was closed by itself, and stays so.
        """
        self.check_open()
        with self._lock:
            stays = self._open.by_partition.get(partition) is log and log.is_closed
        self.check_open()
        if stays:
            raise ClosedError(
                f"the log of {partition} was closed by itself: topic.reopen({partition.partition}) opens it "
                "again"
            )

    def close(self) -> None:
        """Flush and close every log, store the checkpoints and the clean-shutdown marker, release the lock.

        Raises:
            StorageError: something could not be made durable. Everything is closed anyway; the next open
                recovers.
            UsageError: this thread changes one of the logs; nothing was done.
        """
        if (self._is_closed and not self.context.home.is_held) or self.context.fork_flag.is_forked:
            return
        self.check_not_within()
        self._is_closed = True
        self._stop_background()
        with self._lock:
            if not self.context.home.is_held:
                return  # another thread has closed it while this one waited
            try:
                self._close_locked()
            finally:
                # Not while a log can still write. If an interrupt came before, the next close() does it.
                if self._open.are_closed:
                    self.context.home.release()

    def check_not_within(self) -> None:
        """For a close, which would wait for what this thread does.

        Raises:
            UsageError: this thread changes one of the logs, or the checkpoints, and is interrupted.
        """
        if self.context.home.is_used_here():
            raise self.context.home.reentered()
        for log in self.logs():
            log.writer.check_not_within(flushes=False)  # a log is closed beside its flush

    def _stop_background(self) -> None:
        with self._lock:  # no other thread creates a cleaner afterwards
            cleaner = self._cleaner
        if cleaner is not None:
            cleaner.stop()
        self.context.scheduler.stop()

    def _close_locked(self) -> None:
        if self._gone:
            self._topics.remove_directories(self._gone)
        try:
            if self._reserve.may_exist:
                self._reserve.give()
            self._open.close()
        finally:
            self.context.home.store_checkpoints()
        self._topics.store_marked()
        if self._open.are_sound and self.is_settled:
            self.context.home.put_clean_marker()
        if self._reserve.may_exist:
            self._reserve.keep()

    def _abandon(self) -> None:
        self._is_closed = True
        try:
            self._stop_background()
            self._open.abandon()
        finally:
            self.context.home.release()

    def abandon(self) -> None:
        """Release everything without writing, as a crash would; for tests."""
        self._abandon()


def check_partition_count(count: int) -> None:
    """
    Raises:
        UsageError: a topic cannot have this number of partitions.
    """
    if type(count) is not int or not 1 <= count <= MAX_PARTITIONS:
        raise UsageError(f"partitions is {shown(count)}; it must be a number from 1 to {MAX_PARTITIONS}")


def check_can_grow(name: str) -> None:
    """Check that what is in a topic is still found when it has more partitions.

    Raises:
        UsageError: a broker keeps its own state there, divided among the partitions by their number.
    """
    divided = _DIVIDED.get(name)
    if divided is not None:
        what, setting = divided
        raise UsageError(
            f"topic {name!r} keeps its partitions: their number says in which of them {what} are; with "
            f"another one they would be lost. {setting} of a store counts when the topic is made"
        )


def check_held(held: Iterable[int] | None, partition_count: int) -> Sequence[int]:
    """The numbers of the partitions, out of ``partition_count``, that a directory will hold; all of them if
    ``held`` is None.

    Raises:
        UsageError: a topic cannot have this number of partitions; or ``held`` is not a list of some of them.
    """
    check_partition_count(partition_count)
    return range(partition_count) if held is None else check_numbers(held, "held", range(partition_count))


def _added_partitions(topic: TopicEntry, partition_count: int, held: Iterable[int] | None) -> Sequence[int]:
    """The new partitions that the directory will hold when a topic grows to ``partition_count``.

    Raises:
        UsageError: the topic has as many or more; or ``held`` is not a list of some of the new numbers.
    """
    if partition_count <= topic.partition_count:
        raise UsageError(
            f"topic {topic.name!r} has {topic.partition_count} partitions; the new number {partition_count} "
            "must be larger"
        )
    added = range(topic.partition_count, partition_count)
    return added if held is None else check_numbers(held, "held", added, may_be_empty=True)
