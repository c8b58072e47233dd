"""The files that a directory of logs keeps beside them: the lock, the checkpoints, the clean-shutdown marker.

The directory may hold many partitions (a store) or be a single partition that is used alone. Values are kept
here and written by the ``store_`` methods. Each file is replaced whole (:func:`write_small_files`), unless it
is known to be on disk with the same contents.

A crash leaves the old checkpoint or the new one. A recovery point that is too low costs reading; one that is
too high would hide damage, so it is stored only after the records below it were flushed, and lowered before
anything below it is cut. A log start that is too low would bring back deleted records, so it is stored before
their files go. A cleaner offset that is too low costs cleaning once more; one that is too high would leave
records uncleaned, so it is stored after the records below it were cleaned, and lowered before anything below
it is cut. A high watermark that is too low hides records until they are reported as replicated again; one
that is too high would show, and remove, records that no other replica has, so it is lowered before anything
below it is cut.

Where a log that is alone may have lost records that were read, others must not take their offsets in the
same leader epoch: consumers and followers would not notice (KIP-101, KIP-320). So after a crash it goes on in
a new one. The records that were in the last one may all be gone: the directory keeps the latest epoch of all
its logs in one file, which is on disk before the first record that carries it.

Lock: ``_lock`` guards the four tables, their files, and what is known about the files. Log starts that are
coming are noted without it. Other threads take it with the lock of a log held. So a signal handler or a
finalizer that has interrupted a thread which has it must not wait for a log: it is refused.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Iterable, Mapping
from typing import NamedTuple

from logstore.clock import read_boot_id
from logstore.config import TopicConfig
from logstore.errors import CorruptionError, DiskFullError, UnsupportedVersionError, UsageError
from logstore.files import (
    Files,
    Lock,
    read_small_file,
    read_small_files,
    write_new_file,
    write_small_files,
)
from logstore.format.checkpoint import (
    EpochEntry,
    decode_epoch_checkpoint,
    decode_offset_checkpoint,
    encode_epoch_checkpoint,
    encode_offset_checkpoints,
)
from logstore.format.metadata import encode_clean_shutdown
from logstore.model import IS_COPY, IS_REPLICA, Role, TopicPartition
from logstore.partition.state.leader_epochs import EPOCHS_ELSEWHERE
from logstore.turns import held_here
from logstore.warning import warn

META_PROPERTIES_NAME = "meta.properties"
CATALOGUE_NAME = "topics.json"
QUOTAS_NAME = "quotas.json"
USERS_NAME = "users.json"
ACLS_NAME = "acls.json"
FOLLOWED_NAME = "followed.json"
GROUPS_NAME = "groups.json"
NODE_NAME = "node.json"
"""What a node of a cluster remembers of itself: the directory is its."""
MAX_NODE_BYTES = 64 * 1024
LOST_NAME = "node.lost"
"""Says that the node's directory has lost records which it had flushed, for sure or maybe."""
LOST_FOR_SURE = b"flushed"
_MAX_LOST_BYTES = 1024
STORE_NAMES = frozenset({META_PROPERTIES_NAME, CATALOGUE_NAME})
"""Files of a store's or a broker's directory, not of a partition's. Both have a lock and checkpoints."""
LOCK_NAME = ".lock"
CLEAN_MARKER_NAME = ".kafka_cleanshutdown"
RECOVERY_POINTS_NAME = "recovery-point-offset-checkpoint"
LOG_STARTS_NAME = "log-start-offset-checkpoint"
HIGH_WATERMARKS_NAME = "replication-offset-checkpoint"
CLEANER_OFFSETS_NAME = "cleaner-offset-checkpoint"
OFFSETS_LOST_ENDS_NAME = "offsets-lost-end-checkpoint"
QUEUES_LOST_ENDS_NAME = "queues-lost-end-checkpoint"
LOST_ENDS_NAMES = (OFFSETS_LOST_ENDS_NAME, QUEUES_LOST_ENDS_NAME)
LEADER_EPOCH_NAME = "leader-epoch"
"""The leader epoch of the directory, in the text of a partition's history: one line, with offset 0."""
STAGED_SUFFIX = ".staged"
"""Of files with records that a job of Spark has written for topics, and that its commit appends to them."""
_STORED_TOGETHER = frozenset((RECOVERY_POINTS_NAME, LOG_STARTS_NAME, HIGH_WATERMARKS_NAME))

MAX_CHECKPOINT_BYTES = 64 * 1024 * 1024
MAX_LEADER_EPOCH = 2**30
"""Of a directory. An epoch beyond it is no count of leaders: a changed bit is not to reach every log."""


def tells_loss(word: bytes, boot_id: str) -> bool:
    """Whether a :data:`LOST_NAME` says that the node has lost records that it had flushed.

    Args:
        boot_id: of the machine's start in which the node last ran.
    """
    return word == LOST_FOR_SURE or (bool(boot_id) and word == boot_id.encode())


def _check_nothing() -> None:
    """For a home that has no lock: what is opened for reading only."""


def _give_nothing() -> bool:
    """For a home without a reserve."""
    return False


class StoredOffsets(NamedTuple):
    """What the checkpoints say of a partition; None for what they do not know."""

    recovery_point: int | None
    """The first open in this directory stores one at once; without one, the partition is from elsewhere."""
    log_start: int | None
    high_watermark: int | None
    may_have_gaps: bool
    """See :meth:`LogHome.may_have_gaps`."""


def lower_of(*tables: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """For each partition the lowest offset that a table has for it."""
    found: dict[TopicPartition, int] = {}
    for table in tables:
        for partition, offset in table.items():
            found[partition] = min(offset, found.get(partition, offset))
    return found


def _without(
    table: Mapping[TopicPartition, int], gone: Container[TopicPartition]
) -> dict[TopicPartition, int]:
    return {partition: offset for partition, offset in table.items() if partition not in gone}


def _merged(
    now: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    instead_of: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """``ends``, beside those that have come since it was ``instead_of``."""
    return dict(ends) if now == instead_of else lower_of(now, ends)


def _put(
    tables: dict[str, Mapping[TopicPartition, int]], name: str, table: Mapping[TopicPartition, int]
) -> None:
    if table:
        tables[name] = table
    else:
        tables.pop(name, None)


class LogHome:
    """The shared state of the logs in one directory."""

    def __init__(self, files: Files, path: str) -> None:
        self.path = path
        self._files = files
        self._lock = threading.RLock()
        self.is_used_here = held_here(self._lock)
        """Whether the calling thread has the lock. Where a call begins, it can only have it within another
        one: that was interrupted by a signal handler or a finalizer."""
        self._held: Lock | None = None
        self.check_held: Callable[[], None] = _check_nothing
        """Checks that the lock is still ours. Called before changing anything that another writer would rely
        on, and before acknowledging anything as durable. Cost: 1 to 3 µs.

        Raises:
            FencedError: the lock was lost, and another process may have the directory.
        """
        self.make_room: Callable[[], bool] = _give_nothing
        """Called when the disk has no room for a checkpoint. Returns whether there may be some now."""
        self.is_node_here = False
        """Whether the node whose directory this is uses it now. Else topics are not made or deleted: what is
        in the cluster is the cluster's to say."""
        self.has_lost = False
        """Whether records that were flushed have been lost, since the directory was opened or the node began
        to use it."""
        self.checked_ms = 0
        """When :meth:`check_held` was last called before a write."""
        self._recovery_points: dict[TopicPartition, int] = {}
        self._stored_points: frozenset[TopicPartition] = frozenset()
        """The partitions with a stored recovery point."""
        self._log_starts: dict[TopicPartition, int] = {}
        self._coming_starts: dict[TopicPartition, int | None] = {}
        """Those that threads wait for; see :meth:`store_log_start`."""
        self._high_watermarks: dict[TopicPartition, int] = {}
        self._cleaner_offsets: dict[TopicPartition, int] = {}
        """Their file is created by the first compaction."""
        self.lost_ends: dict[str, Mapping[TopicPartition, int]] = {}
        """Where logs were cut, and groups or queues may still count on what was there: see
        :class:`.LostEnds`. By the names of the files, which the first creates; none is empty."""
        self.untold_ends: dict[str, Mapping[TopicPartition, int]] = {}
        """Those that could not be stored either: these logs must not grow."""
        self.leader_epoch = 0
        """The least in which a log that is alone is opened."""
        self.latest_epoch = 0
        """Of all that logs here were given. On disk before a record carries it; the file is created then."""
        self.has_begun_epoch = False
        """Whether a new one has begun since :meth:`load`."""
        self.is_copy = False
        """Whether the directory may take the place of one that has gone on, as a backup does: each log that
        is alone then begins a leader epoch behind all that there may have been. Set between :meth:`load` and
        :meth:`take_clean_marker`, until that epoch is stored."""
        self.gives_epochs = True
        """False in the directory of a broker: there its cluster gives the epochs."""
        self._found: dict[str, bytes] = {}
        """The checkpoint files as they were read, by name."""
        self._durable: dict[str, bytes] = {}
        """The contents of the checkpoint files that are known to be durable and need not be written again."""
        self._unstored = set(_STORED_TOGETHER)
        """Those that may differ from what is in memory. With thousands of partitions it takes milliseconds to
        encode one."""
        self._has_forgotten = False
        """Whether partitions were dropped from the tables, and not from the files."""
        self.is_store_coming = False
        """Whether :meth:`store_coming` was scheduled, and has not begun."""

    # Ownership

    def acquire(self, timeout: float | None = None) -> None:
        """Become the one writer of the directory; wait up to ``timeout`` seconds for another writer to end.

        Raises:
            LockedError: another writer has the directory.
        """
        timeout_ms = round((timeout or 0) * 1000)
        self._held = self._files.lock(f"{self.path}/{LOCK_NAME}", timeout_ms=timeout_ms)
        self.check_held = self._held.check

    @property
    def is_held(self) -> bool:
        """Whether this process is the writer."""
        return self._held is not None

    def release(self) -> None:
        if self._held is not None:
            self._held.release()
            self._held = None
            self.check_held = _check_nothing

    # The node

    @property
    def is_of_node(self) -> bool:
        """Whether this is the directory of a node."""
        return self._files.is_file(f"{self.path}/{NODE_NAME}")

    @property
    def is_of_absent_node(self) -> bool:
        """Whether this is the directory of a node that does not use it now."""
        return not self.is_node_here and self.is_of_node

    @property
    def why_copied_only(self) -> str:
        """Why nothing is appended to a follower's log here but what it copies, and what to do."""
        return IS_REPLICA if self.is_of_node else IS_COPY

    def note_loss(self) -> None:
        """Leave word for the node whose directory this is, if it is one's, that records are gone which it had
        flushed. Durable on return; called before they go."""
        self._leave_word(LOST_FOR_SURE)

    def note_damage(self) -> None:
        """The same of records above the recovery point. If the machine has gone down since they were written,
        it is nothing to be told: they may never have been flushed."""
        boot_id = read_boot_id()
        if boot_id:
            self._leave_word(boot_id.encode())

    def _leave_word(self, word: bytes) -> None:
        self.has_lost = True
        path = f"{self.path}/{LOST_NAME}"
        if self.is_of_node and read_small_file(self._files, path, _MAX_LOST_BYTES) != LOST_FOR_SURE:
            write_new_file(self._files, path, word)
            self._files.flush_directory(self.path)

    # Clean shutdown

    def has_clean_marker(self) -> bool:
        return self._files.is_file(f"{self.path}/{CLEAN_MARKER_NAME}")

    def take_clean_marker(self, names: Container[str] | None = None) -> bool:
        """Remove the clean-shutdown marker, and return whether there was one. The removal is durable: if a
        power cut could undo it, the next start would trust a log that was not closed.

        The checkpoints that were read are then durable too. Without a marker, the last writer may have died
        before it flushed a name. Recovery then changes files according to the checkpoints it has read, and a
        power cut would leave these files beside an older checkpoint. The logs that are alone begin a leader
        epoch.

        ``names`` are those of the files in the directory, if the caller knows them."""
        is_clean = self.has_clean_marker() if names is None else CLEAN_MARKER_NAME in names
        if is_clean:
            self._files.remove(f"{self.path}/{CLEAN_MARKER_NAME}")
        self._files.flush_directory(self.path)
        if is_clean:  # each was flushed before it was renamed, and the names are durable now
            self._durable = self._found
        if (self.is_copy or not is_clean) and self._recovery_points and self.gives_epochs:
            with self._own_lock():
                self._begin_after_crash_locked()
        return is_clean

    def put_clean_marker(self) -> None:
        """Declare that every log was flushed and closed, and every checkpoint stored."""
        self.store_leader_epoch()
        self.check_held()
        write_new_file(self._files, f"{self.path}/{CLEAN_MARKER_NAME}", encode_clean_shutdown())
        self._files.flush_directory(self.path)

    # Checkpoints

    def _own_lock(self) -> threading.RLock:
        """The lock, to be named in a ``with`` statement: there no interrupt can come between taking it and
        its release.

        Raises:
            UsageError: see :meth:`reentered`.
        """
        if self.is_used_here():
            raise self.reentered()
        return self._lock

    def reentered(self) -> UsageError:
        """The error of a call that may wait for a log, or for the checkpoints, where this thread is changing
        the checkpoints, and is interrupted."""
        return UsageError(
            f"the checkpoints of {self.path} are being stored by this thread: this call comes from a signal "
            "handler or a finalizer that has interrupted it. Let that set a flag or an event, and make the "
            "call elsewhere"
        )

    def load(self, names: Container[str] | None = None) -> None:
        """Read the checkpoint files. A damaged one counts as empty, with a warning. Recovery points are then
        0 (everything is checked), and log starts the first segment's base; both are safe. ``names`` are those
        of the files in the directory, if the caller knows them."""
        known = (
            RECOVERY_POINTS_NAME,
            LOG_STARTS_NAME,
            HIGH_WATERMARKS_NAME,
            CLEANER_OFFSETS_NAME,
            *LOST_ENDS_NAMES,
            LEADER_EPOCH_NAME,
        )
        wanted = known if names is None else [name for name in known if name in names]
        self._found = read_small_files(self._files, self.path, wanted, MAX_CHECKPOINT_BYTES)
        self._recovery_points = self._decode(RECOVERY_POINTS_NAME)
        self._stored_points = frozenset(self._recovery_points)
        self._log_starts = self._decode(LOG_STARTS_NAME)
        self._high_watermarks = self._decode(HIGH_WATERMARKS_NAME)
        self._cleaner_offsets = self._decode(CLEANER_OFFSETS_NAME)
        self.lost_ends = {name: ends for name in LOST_ENDS_NAMES if (ends := self._decode(name))}
        self.leader_epoch = self.latest_epoch = self._decode_leader_epoch()

    def _decode(self, name: str) -> dict[TopicPartition, int]:
        """The offsets in a checkpoint file that was found."""
        data, path = self._found.get(name), f"{self.path}/{name}"
        try:
            return decode_offset_checkpoint(data) if data else {}
        except UnsupportedVersionError as error:
            raise UnsupportedVersionError(f"{error} ({path})") from None
        except CorruptionError as error:
            warn("ignoring a damaged checkpoint: %s", error.located(path))
            return {}

    def _decode_leader_epoch(self) -> int:
        data, path = self._found.get(LEADER_EPOCH_NAME), f"{self.path}/{LEADER_EPOCH_NAME}"
        try:
            return max([0, *(entry.epoch for entry in decode_epoch_checkpoint(data))]) if data else 0
        except UnsupportedVersionError as error:
            raise UnsupportedVersionError(f"{error} ({path})") from None
        except CorruptionError as error:
            warn("ignoring a damaged leader epoch: %s", error.located(path))
            self.is_copy = True
            return 0

    def stored(self, partition: TopicPartition, config: TopicConfig, role: Role) -> StoredOffsets:
        """What is known of a partition with these settings and this role."""
        return StoredOffsets(
            self._recovery_points.get(partition),
            self._log_starts.get(partition),
            self._high_watermarks.get(partition),
            self.may_have_gaps(partition, config, role),
        )

    def recovery_point(self, partition: TopicPartition) -> int:
        return self._recovery_points.get(partition, 0)

    def has_recovery_point(self, partition: TopicPartition) -> bool:
        """Whether a recovery point is stored. The first open in this directory stores one at once; without
        one, the partition comes from elsewhere."""
        return partition in self._recovery_points

    def log_start(self, partition: TopicPartition) -> int | None:
        return self._log_starts.get(partition)

    def high_watermark(self, partition: TopicPartition) -> int | None:
        return self._high_watermarks.get(partition)

    def cleaner_offset(self, partition: TopicPartition) -> int | None:
        """The offset below which the log was compacted; None if it never was."""
        return self._cleaner_offsets.get(partition)

    def may_have_gaps(self, partition: TopicPartition, config: TopicConfig, role: Role) -> bool:
        """Whether the log's offsets may have gaps without a loss: from compaction, now or under an earlier
        policy, or in a follower, whose leader's log has them."""
        return config.compacts or role is Role.FOLLOWER or partition in self._cleaner_offsets

    def set_recovery_point(self, partition: TopicPartition, offset: int) -> None:
        """Set the recovery point in memory; :meth:`store_checkpoints` writes it."""
        with self._own_lock():
            if self._recovery_points.get(partition) != offset:
                self._recovery_points[partition] = offset
                self._unstored.add(RECOVERY_POINTS_NAME)

    def set_ends(self, partition: TopicPartition, recovery_point: int, high_watermark: int) -> None:
        """Set both in memory."""
        self.set_recovery_point(partition, recovery_point)
        self.set_high_watermark(partition, high_watermark)

    def is_point_stored(self, partition: TopicPartition) -> bool:
        """Whether :meth:`ensure_recovery_point` has nothing to do."""
        return partition in self._stored_points

    def ensure_recovery_points(self, partitions: Iterable[TopicPartition]) -> None:
        """Like :meth:`ensure_recovery_point`, for the partitions of a new topic, before anything is appended
        to them: their first roll then need not wait for it."""
        with self._own_lock():
            for partition in partitions:
                self._recovery_points.setdefault(partition, 0)
            self._store_locked({RECOVERY_POINTS_NAME: self._recovery_points})

    def ensure_recovery_point(self, partition: TopicPartition) -> None:
        """Make sure that a recovery point is stored. A log must have one before it gets its second segment:
        otherwise the next open could not tell a segment that lost its end from one with a gap behind it."""
        if partition in self._stored_points:  # without the lock, which is held during fsyncs
            return
        with self._own_lock():
            if partition not in self._stored_points:
                self._recovery_points.setdefault(partition, 0)
                self._store_locked({RECOVERY_POINTS_NAME: self._recovery_points})

    def set_high_watermark(self, partition: TopicPartition, offset: int) -> None:
        with self._own_lock():
            if self._high_watermarks.get(partition) != offset:
                self._high_watermarks[partition] = offset
                self._unstored.add(HIGH_WATERMARKS_NAME)

    def store_high_watermark(self, partition: TopicPartition, offset: int) -> None:
        """Set a high watermark durably."""
        with self._own_lock():
            changed = {**self._high_watermarks, partition: offset}
            self._store_locked({HIGH_WATERMARKS_NAME: changed})
            self._high_watermarks = changed

    def store_checkpoints(self) -> None:
        """Write the recovery points, log starts and high watermarks."""
        with self._own_lock():
            tables = {
                RECOVERY_POINTS_NAME: self._recovery_points,
                LOG_STARTS_NAME: self._log_starts,
                HIGH_WATERMARKS_NAME: self._high_watermarks,
            }
            self._store_locked({name: tables[name] for name in tables if name in self._unstored})

    def store_coming(self) -> None:
        """:meth:`store_checkpoints`, in the background."""
        self.is_store_coming = False  # first: what changes from here on is not waited for in vain
        self.store_checkpoints()

    def store_high_watermarks(self) -> None:
        with self._own_lock():
            if HIGH_WATERMARKS_NAME in self._unstored:
                self._store_locked({HIGH_WATERMARKS_NAME: self._high_watermarks})

    def lower_recovery_point(self, partition: TopicPartition, offset: int) -> None:
        """Make sure, durably, that the recovery point is not above ``offset``, before cutting there."""
        with self._own_lock():
            if self._recovery_points.get(partition, 0) > offset:
                changed = {**self._recovery_points, partition: offset}
                self._store_locked({RECOVERY_POINTS_NAME: changed})
                self._recovery_points = changed

    def lower_high_watermark(self, partition: TopicPartition, offset: int) -> None:
        """Make sure, durably, that the stored high watermark is not above ``offset``. Call it before other
        records, which have no copies yet, get the offsets from there on."""
        with self._own_lock():
            if self._high_watermarks.get(partition, 0) > offset:
                changed = {**self._high_watermarks, partition: offset}
                self._store_locked({HIGH_WATERMARKS_NAME: changed})
                self._high_watermarks = changed

    def epoch_after_crash(self, latest: int) -> int:
        """The leader epoch for a log that may have lost records: it was in none later than ``latest`` that it
        knows. It is stored with the next checkpoint that has changed, by :meth:`store_leader_epoch`, or at a
        clean stop. A crash before has no record in it, and the next open gives the same."""
        with self._own_lock():
            if not self._gives_above(latest):
                return latest
            self._begin_after_crash_locked()
            return self._give_locked(max(self.leader_epoch, latest + self._epochs_ahead))

    def _begin_after_crash_locked(self) -> None:
        if not self.has_begun_epoch:
            self.has_begun_epoch = True
            self.leader_epoch = self._give_locked(self.latest_epoch + self._epochs_ahead)

    @property
    def _epochs_ahead(self) -> int:
        return EPOCHS_ELSEWHERE if self.is_copy else 1

    def begin_epoch(self, latest: int = 0) -> int:
        """A leader epoch that no log here was given before, and above ``latest``: durable on return. Logs
        that are opened from now on begin in it."""
        with self._own_lock():
            if self._gives_above(latest):
                self.has_begun_epoch = True
                self._reach_locked(max(self.latest_epoch, latest) + 1)
            return max(self.leader_epoch, latest)

    def reach_epoch(self, latest: int, *, goes_on: bool) -> None:
        """Let logs begin in a leader epoch that is not below ``latest``: durable on return. ``goes_on``: it
        may be that one."""
        with self._own_lock():
            if self._gives_above(latest):
                self._reach_locked(latest if goes_on else latest + 1)

    def _reach_locked(self, epoch: int) -> None:
        self.leader_epoch = max(self.leader_epoch, self._give_locked(epoch))
        self.store_leader_epoch()

    def _gives_above(self, latest: int) -> bool:
        return self.gives_epochs and latest < MAX_LEADER_EPOCH

    def _give_locked(self, epoch: int) -> int:
        if epoch > self.latest_epoch:
            self.latest_epoch = epoch
            self._unstored.add(LEADER_EPOCH_NAME)
        return epoch

    def store_leader_epoch(self) -> None:
        """Make sure that the latest leader epoch is on disk. Call it before a record carries one."""
        if LEADER_EPOCH_NAME in self._unstored:  # without the lock, which is held during fsyncs
            with self._lock:
                if LEADER_EPOCH_NAME in self._unstored:
                    self._replace_locked({LEADER_EPOCH_NAME: self.encoded_epoch()})

    def encoded_epoch(self) -> bytes:
        """The file of the latest leader epoch, as it is in memory."""
        return encode_epoch_checkpoint([EpochEntry(self.latest_epoch, 0)])

    def store_log_start(self, partition: TopicPartition, offset: int | None) -> None:
        """Set the log start durably; None means the base in the first segment's name. Those of several
        threads are stored together: the file has a line for each partition."""
        self._coming_starts[partition] = offset
        try:
            with self._own_lock():
                try:
                    if partition in self._coming_starts:  # else another thread has stored it
                        self._store_coming_starts_locked()
                except BaseException:
                    self._coming_starts.pop(partition, None)  # first: no other thread may store it now
                    raise
        finally:
            self._coming_starts.pop(partition, None)

    def _store_coming_starts_locked(self) -> None:
        coming = self._coming_starts.copy()
        if any(self._log_starts.get(partition) != offset for partition, offset in coming.items()):
            merged = {**self._log_starts, **coming}
            changed = {partition: offset for partition, offset in merged.items() if offset is not None}
            self._store_locked({LOG_STARTS_NAME: changed})
            self._log_starts = changed
        for partition in coming:
            self._coming_starts.pop(partition, None)

    def store_cleaner_offset(self, partition: TopicPartition, offset: int) -> None:
        """Set the cleaner offset durably."""
        with self._own_lock():
            self._replace_cleaner_offsets_locked({**self._cleaner_offsets, partition: offset})

    def lower_cleaner_offset(self, partition: TopicPartition, offset: int) -> None:
        """Make sure, durably, that the cleaner offset is not above ``offset``. Call it before cutting there.
        An entry is lowered but never dropped: the rest of the log may still have gaps."""
        with self._own_lock():
            if self._cleaner_offsets.get(partition, 0) > offset:
                self._replace_cleaner_offsets_locked({**self._cleaner_offsets, partition: offset})

    def _replace_cleaner_offsets_locked(self, changed: dict[TopicPartition, int]) -> None:
        self._store_locked({CLEANER_OFFSETS_NAME: changed})
        self._cleaner_offsets = changed

    def store_lost_ends(
        self, name: str, ends: Mapping[TopicPartition, int], *, instead_of: Mapping[TopicPartition, int]
    ) -> None:
        """Make these the lost ends in the file of this name, durably; beside those that it was given since it
        had ``instead_of``."""
        with self._own_lock():
            known = _merged(self.lost_ends.get(name, {}), ends, instead_of)
            if known != self.lost_ends.get(name, {}):
                self._store_locked({name: known})
                _put(self.lost_ends, name, known)

    def keep_untold(
        self, name: str, ends: Mapping[TopicPartition, int], *, instead_of: Mapping[TopicPartition, int]
    ) -> None:
        """The same of those that could not be stored, in memory."""
        with self._lock:
            _put(self.untold_ends, name, _merged(self.untold_ends.get(name, {}), ends, instead_of))

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Drop deleted partitions from every checkpoint: new ones with these names must not inherit
        anything."""
        gone = frozenset(partitions)
        with self._own_lock():
            if not gone.isdisjoint(self._cleaner_offsets):
                self._replace_cleaner_offsets_locked(_without(self._cleaner_offsets, gone))
            for name, ends in self.lost_ends.copy().items():
                if not gone.isdisjoint(ends):
                    others = _without(ends, gone)
                    self._store_locked({name: others})
                    _put(self.lost_ends, name, others)
            for name, ends in self.untold_ends.copy().items():
                _put(self.untold_ends, name, _without(ends, gone))
            for table in (self._recovery_points, self._log_starts, self._high_watermarks):
                for partition in gone:
                    self._has_forgotten |= table.pop(partition, None) is not None
            self._unstored |= _STORED_TOGETHER
        if self._has_forgotten:  # maybe earlier: the disk may have refused it then
            self.store_checkpoints()
            self._has_forgotten = False

    def _store_locked(self, tables: Mapping[str, dict[TopicPartition, int]]) -> None:
        encoded = encode_offset_checkpoints(tables)
        changed = {name: data for name, data in encoded.items() if self._durable.get(name) != data}
        if changed and LEADER_EPOCH_NAME in self._unstored:
            changed[LEADER_EPOCH_NAME] = self.encoded_epoch()
        self._replace_locked(changed)
        self._unstored -= encoded.keys()
        if RECOVERY_POINTS_NAME in changed:
            self._stored_points = frozenset(tables[RECOVERY_POINTS_NAME])

    def _replace_locked(self, changed: Mapping[str, bytes]) -> None:
        if changed:
            self.check_held()
            for name in changed:  # first: after a failure, what the file holds is unknown
                self._durable.pop(name, None)
                self._unstored.add(name)
            try:
                write_small_files(self._files, self.path, changed)
            except DiskFullError:
                if not self.make_room():
                    raise
                write_small_files(self._files, self.path, changed)
            self._durable |= changed
            self._unstored.discard(LEADER_EPOCH_NAME)
