"""Backs up a whole store, from the first check to the report.

:mod:`~logstore.backup.place` decides which directory is filled and how it gets its place;
:mod:`~logstore.backup.copying` copies one partition. This module does what a store has around its partitions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from logstore.backup.copying import BackupSteps, BackupTask, PartitionCopy
from logstore.backup.manifest import Manifest, StoredPartition, encode_manifest
from logstore.backup.place import BackupPlace, identity_of
from logstore.backup.report import BackedUpPartition, BackupReport, OnBackupProgress
from logstore.errors import (
    ClosedError,
    CorruptionError,
    ForkedError,
    LogstoreError,
    RetriableError,
    StorageError,
    UnknownTopicError,
)
from logstore.files import read_small_file, write_new_file
from logstore.format.checkpoint import encode_offset_checkpoint
from logstore.format.metadata import encode_base64_uuid, encode_clean_shutdown, encode_meta_properties
from logstore.format.names import OFFSETS_TOPIC, SHARE_STATE_TOPIC, partition_directory_name
from logstore.large_files import are_on_one_disk, copy_file
from logstore.logdir.acls import MAX_ACLS_BYTES, decode_acls
from logstore.logdir.catalogue import TopicEntry, encode_catalogue
from logstore.logdir.directory import LogDirectory
from logstore.logdir.followed import MAX_FOLLOWED_BYTES, decode_followed
from logstore.logdir.group_settings import MAX_GROUPS_BYTES, decode_group_settings
from logstore.logdir.identity import BACKUP_NAME, MAX_META_BYTES
from logstore.logdir.quotas import MAX_QUOTAS_BYTES, decode_quotas
from logstore.logdir.users import MAX_USERS_BYTES, decode_users
from logstore.model import TopicPartition
from logstore.partition.checking.findings import Finding, FindingKind, not_opened_finding
from logstore.partition.state.home import (
    ACLS_NAME,
    CATALOGUE_NAME,
    CLEAN_MARKER_NAME,
    CLEANER_OFFSETS_NAME,
    FOLLOWED_NAME,
    GROUPS_NAME,
    HIGH_WATERMARKS_NAME,
    LEADER_EPOCH_NAME,
    LOG_STARTS_NAME,
    LOST_ENDS_NAMES,
    LOST_FOR_SURE,
    LOST_NAME,
    MAX_NODE_BYTES,
    META_PROPERTIES_NAME,
    NODE_NAME,
    QUOTAS_NAME,
    RECOVERY_POINTS_NAME,
    STAGED_SUFFIX,
    USERS_NAME,
    lower_of,
)
from logstore.turns import flushed_at_a_time, take_turns
from logstore.warning import inform

_TRIES = 100
"""How often a partition is started over because it was reopened meanwhile."""

_TELL_OF_OTHERS = (OFFSETS_TOPIC, SHARE_STATE_TOPIC)
"""Topics whose records tell how far groups are in others."""

_SHOWN_COUNT = 20
"""So many partitions are named in one line of the log."""


def back_up(
    directory: LogDirectory,
    path: str,
    *,
    links: bool,
    accept_damage: bool,
    on_progress: OnBackupProgress | None,
) -> BackupReport:
    """See :meth:`.Store.backup`."""
    files, clock = directory.context.files, directory.context.clock
    started_ms = clock.monotonic_ms()
    identity = identity_of(directory.identity, directory.path)
    place = BackupPlace(files, directory.path, path)
    with place.held(identity) as earlier:
        topics = directory.topics()
        task = BackupTask(
            files=files,
            clock=clock,
            staging=place.staging,
            earlier=place.path if earlier is not None else None,
            are_comparable=are_on_one_disk(files, directory.path, place.staging),
            links=links,
            accept_damage=accept_damage,
            steps=BackupSteps(on_progress, sum(log.written_bytes for log in directory.logs())),
        )
        backup = _Backup(directory, task, topics, earlier)
        backup.copy_staged(is_first=True)
        backup.copy_partitions()
        backup.copy_staged(is_first=False)
        backup.write_store_files(identity)
        place.finish()
        backup.tell_what_was_taken_out(place.path)
    return BackupReport(
        path=place.path,
        is_incremental=earlier is not None,
        partitions=tuple(backup.told[partition] for partition in sorted(backup.told)),
        damaged=tuple(backup.damaged),
        elapsed_ms=clock.monotonic_ms() - started_ms,
    )


@dataclass(slots=True)
class _Backup:
    """The parts of one backup so far."""

    directory: LogDirectory
    task: BackupTask
    topics: list[TopicEntry]
    """The topics when the backup began."""
    earlier: Manifest | None
    stored: dict[TopicPartition, StoredPartition] = field(default_factory=dict)
    told: dict[TopicPartition, BackedUpPartition] = field(default_factory=dict)
    damaged: list[Finding] = field(default_factory=list)
    _unread: set[TopicPartition] = field(default_factory=set)
    """Partitions that could not be opened, so their end offsets are not known."""
    _lost_ends: dict[TopicPartition, int] = field(default_factory=dict)
    """Where logs were cut meanwhile, maybe behind the copy of what groups and queues say of them."""
    _lost_before: dict[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    """Where the groups, and queues, were still to go back before."""

    # Partitions

    def copy_partitions(self) -> None:
        """Copy all partitions: first those that say what groups have read and queues have done, so that the
        backup has it all."""
        tell = [topic for topic in self.topics if topic.name in _TELL_OF_OTHERS]
        lost_ends, home = self.directory.context.lost_ends, self.directory.context.home
        self._lost_before = home.lost_ends.copy()
        with lost_ends.noted_in(self._lost_ends):
            self._copy_all(tell)
            self._copy_all(topic for topic in self.topics if topic not in tell)

    def _copy_all(self, topics: Iterable[TopicEntry]) -> None:
        """Copy partitions, several at a time; after the first failure, begin no more."""
        steps = self.task.steps
        wanted = [(topic, number) for topic in topics for number in topic.held_partitions]

        def copy(each: tuple[TopicEntry, int]) -> None:
            if steps.failure is None:
                try:
                    self._copy(each[0], TopicPartition(each[0].name, each[1]))
                except BaseException as error:
                    steps.failure = steps.failure or error
                    raise

        try:
            take_turns(copy, wanted, at_a_time=flushed_at_a_time(self.task.files))
        except Exception as error:  # the error of the first partition may only say that another failed
            if steps.failure is None or steps.failure is error:
                raise
            raise steps.failure from steps.failure.__cause__

    def tell_what_was_taken_out(self, path: str) -> None:
        """Log what the earlier backup had and this one has not, because the store does not have it any
        more."""
        gone: list[str] = []
        for at, old in sorted((self.earlier.partitions if self.earlier is not None else {}).items()):
            new = self.stored.get(at)
            if at in self._unread or old.log_start_offset == old.log_end_offset:
                continue
            if new is None or new.topic_id != old.topic_id:
                gone.append(f"{at} with offsets {old.log_start_offset} to {old.log_end_offset - 1}")
                continue
            if new.log_start_offset > old.log_start_offset:
                gone.append(f"{at} before offset {new.log_start_offset}")
            if new.log_end_offset < old.log_end_offset:
                gone.append(f"{at} from offset {new.log_end_offset}")
        if gone:
            more = f", and {len(gone) - _SHOWN_COUNT} more" if len(gone) > _SHOWN_COUNT else ""
            inform("%s: taken out, as from the store: %s%s", path, ", ".join(gone[:_SHOWN_COUNT]), more)

    def _copy(self, topic: TopicEntry, partition: TopicPartition) -> None:
        """Copy one partition, unless it was deleted since the backup began.

        Raises:
            ClosedError: the store was closed, or the log by itself.
            RetriableError: the log is reopened again and again.
        """
        old = None if self.earlier is None else self.earlier.partitions.get(partition)
        if old is not None and old.topic_id != encode_base64_uuid(topic.topic_id):
            old = None  # it belongs to a deleted topic of the same name
        for _ in range(_TRIES):
            if not self._is_there(topic, partition):
                return
            try:
                log = self.directory.log(partition)
            except (UnknownTopicError, ClosedError, ForkedError):
                self.directory.check_open()
                continue
            except LogstoreError as error:
                self._copy_unread(topic, partition, old, error)
                return
            copy = PartitionCopy(self.task, topic, partition, log, old)
            try:
                copy.run()
            except ClosedError:  # the log was closed, deleted or reopened, or the store was closed
                self.directory.check_not_closed(partition, log)
                self._remove(partition)
                continue
            self.stored[partition], self.told[partition] = copy.stored, copy.told
            self.damaged += copy.damaged
            return
        raise RetriableError(f"{partition} is closed and opened again faster than it is copied; call again")

    def _is_there(self, topic: TopicEntry, partition: TopicPartition) -> bool:
        """Whether the directory still holds the partition of the same topic."""
        try:
            now = self.directory.topic(topic.name)
        except UnknownTopicError:
            return False
        return now.topic_id == topic.topic_id and now.holds(partition.partition)

    def _remove(self, partition: TopicPartition) -> None:
        files, staged = self.task.files, f"{self.task.staging}/{partition_directory_name(*partition)}"
        for entry in files.list_directory(staged):
            files.remove(f"{staged}/{entry.name}")
        files.remove_directory(staged)

    def _copy_unread(
        self,
        topic: TopicEntry,
        partition: TopicPartition,
        old: StoredPartition | None,
        error: LogstoreError,
    ) -> None:
        """Back up a partition that could not be opened: as the earlier backup has it, or if that has none, by
        copying its files as they are.

        Raises:
            LogstoreError: why it could not be opened, if damage is not accepted.
        """
        if not self.task.accept_damage:
            raise error
        files, name = self.task.files, partition_directory_name(*partition)
        source = f"{self.directory.path}/{name}"
        self.damaged.append(not_opened_finding(source, error))
        if old is not None and old.segments:
            source = f"{self.task.earlier}/{name}"
            self.stored[partition] = old
        else:
            self._unread.add(partition)
        if not files.is_directory(source):
            return
        staged, size_bytes = f"{self.task.staging}/{name}", 0
        files.make_directory(staged)
        for entry in files.list_directory(source):
            if not entry.is_directory:
                copy_file(files, f"{source}/{entry.name}", f"{staged}/{entry.name}")
                size_bytes += files.size_bytes(f"{staged}/{entry.name}") * entry.name.endswith(".log")
        files.flush_directory(staged)
        start, end = (0, 0) if old is None else (old.log_start_offset, old.log_end_offset)
        self.told[partition] = BackedUpPartition(
            partition=partition, log_start_offset=start, log_end_offset=end, copied_bytes=size_bytes
        )

    # Around the partitions

    def copy_staged(self, *, is_first: bool) -> None:
        """Copy the files that jobs of Spark have staged: a batch that was interrupted between two logs is
        finished with them, and in the backup it is as unfinished as in the store. A link would not do: a
        commit writes into the file. Called before and after the partitions are copied: a commit may end
        meanwhile and remove its files, or begin."""
        files, store = self.task.files, self.directory.path
        for entry in files.list_directory(store):
            if not entry.name.endswith(STAGED_SUFFIX) or entry.is_directory:
                continue
            path, new = f"{store}/{entry.name}", f"{self.task.staging}/{entry.name}"
            try:
                self._copy_staged(path, new)
            except StorageError as error:
                if is_first or not files.is_file(path):
                    continue
                if error.filename != path or not self.task.accept_damage:
                    raise
                self.damaged.append(Finding(kind=FindingKind.UNREADABLE, path=path, reason=str(error)))
                self._remove_if_there(new)

    def _copy_staged(self, path: str, new: str) -> None:
        """Unless it was copied, and has not changed since: its task may still have been writing it."""
        files = self.task.files
        if (
            files.is_file(new)
            and files.size_bytes(new) == files.size_bytes(path)
            and files.modified_ms(new) == files.modified_ms(path)
        ):
            return
        self._remove_if_there(new)
        copy_file(files, path, new)

    def _remove_if_there(self, path: str) -> None:
        if self.task.files.is_file(path):
            self.task.files.remove(path)

    def write_store_files(self, identity: str) -> None:
        """Write catalogue, identity, checkpoints, quotas, users, ACLs, what is followed, the settings of
        groups and the leader epoch; and if possible the marker that nothing needs recovery."""
        files, staging = self.task.files, self.task.staging
        contents = {
            META_PROPERTIES_NAME: self._identity_file(),
            CATALOGUE_NAME: encode_catalogue(self._live_topics()),
            BACKUP_NAME: encode_manifest(
                Manifest(
                    store=identity,
                    source=self.directory.path,
                    made_ms=self.task.clock.now_ms(),
                    partitions=self.stored,
                )
            ),
            **self._checkpoints(),
            **self._as_it_is(QUOTAS_NAME, MAX_QUOTAS_BYTES, decode_quotas),
            **self._as_it_is(USERS_NAME, MAX_USERS_BYTES, decode_users),
            **self._as_it_is(ACLS_NAME, MAX_ACLS_BYTES, decode_acls),
            **self._as_it_is(FOLLOWED_NAME, MAX_FOLLOWED_BYTES, decode_followed),
            **self._leader_epoch(),
            **self._as_it_is(GROUPS_NAME, MAX_GROUPS_BYTES, decode_group_settings),
            **self._node_files(),
        }
        if not self._unread:
            contents[CLEAN_MARKER_NAME] = encode_clean_shutdown()
        for name, data in contents.items():
            write_new_file(files, f"{staging}/{name}", data, private=name == USERS_NAME)

    def _identity_file(self) -> bytes:
        """The file as the store has it: a broker's has a comment with the date, which identifies it."""
        path = f"{self.directory.path}/{META_PROPERTIES_NAME}"
        data = read_small_file(self.task.files, path, MAX_META_BYTES)
        return encode_meta_properties(self.directory.identity) if data is None else data

    def _as_it_is(self, name: str, limit_bytes: int, decode: Callable[[bytes], object]) -> dict[str, bytes]:
        """A small file, if the store has it. A damaged one is copied as it is.

        Raises:
            CorruptionError: it is damaged, and damage is not accepted.
        """
        path = f"{self.directory.path}/{name}"
        data = read_small_file(self.task.files, path, limit_bytes)
        if data is None:
            return {}
        try:
            decode(data)
        except CorruptionError as error:
            if not self.task.accept_damage:
                raise error.located(path) from None
            self.damaged.append(Finding(kind=FindingKind.METADATA, path=path, reason=error.reason))
        return {name: data}

    def _leader_epoch(self) -> dict[str, bytes]:
        """As it is in memory: after the backup, records may carry it."""
        home = self.directory.context.home
        return {LEADER_EPOCH_NAME: home.encoded_epoch()} if home.latest_epoch else {}

    def _node_files(self) -> dict[str, bytes]:
        """What a node remembers of itself, and that it has lost records that it had flushed: all that comes
        after the backup. Else a node that is restored in the same life would be taken for one that has
        everything."""
        path = f"{self.directory.path}/{NODE_NAME}"
        data = read_small_file(self.task.files, path, MAX_NODE_BYTES)
        return {} if data is None else {NODE_NAME: data, LOST_NAME: LOST_FOR_SURE}

    def _live_topics(self) -> Iterable[TopicEntry]:
        """The topics when the backup began, without partitions that were deleted since."""
        for topic in self.topics:
            there = [
                number
                for number in topic.held_partitions
                if (at := TopicPartition(topic.name, number)) in self.stored or at in self._unread
            ]
            if there:
                held = topic if len(there) == len(topic.held_partitions) else topic.holding(there)
                yield replace(held, letting_go=())

    def _checkpoints(self) -> dict[str, bytes]:
        home = self.directory.context.home

        def encode(
            of: Callable[[StoredPartition], int | None], known: Callable[[TopicPartition], int | None]
        ) -> bytes:
            table = {at: of(each) for at, each in self.stored.items()}
            table |= {at: known(at) for at in self._unread}
            return encode_offset_checkpoint(
                {at: offset for at, offset in table.items() if offset is not None}
            )

        found = {
            RECOVERY_POINTS_NAME: encode(lambda each: each.log_end_offset, home.recovery_point),
            LOG_STARTS_NAME: encode(lambda each: each.log_start_offset or None, home.log_start),
            HIGH_WATERMARKS_NAME: encode(lambda each: each.high_watermark, home.high_watermark),
            CLEANER_OFFSETS_NAME: encode(lambda each: each.cleaner_offset, home.cleaner_offset),
        }
        for name in LOST_ENDS_NAMES:
            ends = lower_of(self._lost_before.get(name, {}), self._lost_ends)
            if ends:
                found[name] = encode_offset_checkpoint(ends)
        return found
