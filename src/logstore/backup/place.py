"""The directory of a backup: what may be there, how a new one takes its place, and what a crash leaves.

For a backup in ``b``, step by step:

1. *begin*: the directory ``b.partial`` is created beside it and locked, and gets the file
   ``backup.unfinished``. With that file, or with nothing but the lock, it cannot be opened as a store.
   Leftovers of an earlier call are removed.
2. *fill*: the copy is made there. Files of the earlier backup that can be used again are linked.
3. *finish*: everything is flushed, then ``backup.unfinished`` is removed: ``b.partial`` is a whole backup.
4. *place*: ``b`` and ``b.partial`` swap their names in one step; if there is no ``b``, ``b.partial`` is
   renamed. If the system cannot exchange names, ``b`` first becomes ``b.previous``.
5. *remove*: the earlier backup gets the file ``backup.unfinished``, and is removed.

A crash up to 3 leaves the earlier backup, from 4 on the new one. The exception is a system that cannot
exchange names: between the two renames there is no ``b``. Opening it then raises an error that says so, and
the next call undoes the first rename. The next call also removes what is left beside ``b``.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Iterator

from logstore.backup.manifest import Manifest, read_manifest
from logstore.errors import LockedError, LogstoreError, StorageError, UsageError
from logstore.files import Files, Lock, parent_of, write_new_file
from logstore.format.metadata import MetaProperties, encode_base64_uuid
from logstore.format.names import parse_segment_file_name, partition_directory_name
from logstore.large_files import real_path, remove_tree
from logstore.logdir.catalogue import read_catalogue
from logstore.logdir.identity import BACKUP_NAME, UNFINISHED_BACKUP_NAME, make_durably
from logstore.partition.state.home import (
    ACLS_NAME,
    CATALOGUE_NAME,
    CLEAN_MARKER_NAME,
    CLEANER_OFFSETS_NAME,
    FOLLOWED_NAME,
    GROUPS_NAME,
    HIGH_WATERMARKS_NAME,
    LEADER_EPOCH_NAME,
    LOCK_NAME,
    LOG_STARTS_NAME,
    LOST_ENDS_NAMES,
    LOST_NAME,
    META_PROPERTIES_NAME,
    NODE_NAME,
    QUOTAS_NAME,
    RECOVERY_POINTS_NAME,
    STAGED_SUFFIX,
    USERS_NAME,
)
from logstore.partition.state.sidecars import EPOCHS_NAME, METADATA_NAME, ROLE_NAME
from logstore.warning import warn

_CANNOT_EXCHANGE = frozenset({errno.ENOSYS, errno.EINVAL, errno.EOPNOTSUPP, errno.EXDEV})
_SHOWN_NAMES = 5
_SIDECARS = frozenset({METADATA_NAME, EPOCHS_NAME, ROLE_NAME})
_STORE_FILES = frozenset(
    {
        LOCK_NAME,
        BACKUP_NAME,
        META_PROPERTIES_NAME,
        CATALOGUE_NAME,
        QUOTAS_NAME,
        USERS_NAME,
        ACLS_NAME,
        FOLLOWED_NAME,
        GROUPS_NAME,
        NODE_NAME,
        LOST_NAME,
        CLEAN_MARKER_NAME,
        RECOVERY_POINTS_NAME,
        LOG_STARTS_NAME,
        HIGH_WATERMARKS_NAME,
        CLEANER_OFFSETS_NAME,
        LEADER_EPOCH_NAME,
        *LOST_ENDS_NAMES,
    }
)
_UNFINISHED_TEXT = b"store.backup() was at work here; its next call to the same path removes this directory\n"


def identity_of(identity: MetaProperties, path: str) -> str:
    """Identifies a store, also after its directory was moved. A directory created by a broker before 3.7 has
    no id; its path is used instead."""
    directory = identity.directory_id
    return f"{identity.cluster_id}/{encode_base64_uuid(directory) if directory is not None else path}"


class BackupPlace:
    """Where one backup is made. Used once."""

    def __init__(self, files: Files, store_path: str, path: str) -> None:
        """
        Raises:
            UsageError: the path is the store's, in it, or around it; or it is in a backup.
        """
        self._files = files
        self.path = real_path(files, path)
        self.staging = f"{self.path}.partial"
        self._aside = f"{self.path}.previous"
        self._is_placing = False
        """True while it is not certain which of the two a power cut would leave in place."""
        store = real_path(files, store_path)
        for inner, outer in ((self.path, store), (store, self.path)):
            if f"{inner}/".startswith(f"{outer.rstrip('/')}/"):
                raise UsageError(
                    f"{path} and the store {store_path} must not contain each other: a backup needs its own "
                    "directory"
                )
        outer = self.path
        while (outer := parent_of(outer)) != "/":
            if any(files.is_file(f"{outer}/{name}") for name in (BACKUP_NAME, UNFINISHED_BACKUP_NAME)):
                raise UsageError(
                    f"{path} is in the backup {outer}, which the next call for that one replaces with "
                    "everything in it: make the two beside each other"
                )

    @contextlib.contextmanager
    def held(self, store: str) -> Iterator[Manifest | None]:
        """Begin; yields the manifest of the earlier backup, if there is one. At the end removes what is
        unfinished, and an earlier backup that was replaced.

        Raises:
            UsageError: the path holds something other than a backup of this store.
            LockedError: the backup is open for writing, or another call is making one there.
            StorageError: the disk failed.
        """
        files = self._files
        with contextlib.ExitStack() as stack:
            self._check_kind()
            make_durably(files, parent_of(self.path))
            self._check_beside(self.staging)
            files.make_directory(self.staging)
            stack.callback(self._lock_staging().release)
            stack.callback(self._remove_if_bare)
            files.flush_directory(parent_of(self.path))  # first: makes an earlier call's exchange durable
            self._take_back_rename()
            earlier = self._read_earlier(store)
            if earlier is not None:
                stack.callback(files.lock(f"{self.path}/{LOCK_NAME}").release)
            elif files.is_directory(self.path):
                files.remove_directory(self.path)  # it is empty; removing a mount point fails
            stack.callback(self._clear)
            self._empty(self.staging)
            yield earlier

    def _lock_staging(self) -> Lock:
        """
        Raises:
            LockedError: another call is making a backup there.
        """
        try:
            return self._files.lock(f"{self.staging}/{LOCK_NAME}")
        except LockedError as error:
            held = str(error).partition(":")[0]
            raise LockedError(
                f"{held}: another call is making a backup to {self.path}; wait for it, and call again"
            ) from None

    def _remove_if_bare(self) -> None:
        """A call that was refused leaves nothing beside the path."""
        with contextlib.suppress(LogstoreError):
            if [entry.name for entry in self._files.list_directory(self.staging)] == [LOCK_NAME]:
                remove_tree(self._files, self.staging)

    # What is there

    def _check_kind(self) -> None:
        if self._files.is_file(self.path):
            raise UsageError(f"{self.path} is a file; a backup is a directory")

    def _check_beside(self, path: str) -> None:
        """Check that only a backup has left what is there: nothing else is ever removed."""
        files = self._files
        if files.is_file(path):
            raise UsageError(f"{path} is in the way: a backup is first made there. Move it away")
        names = {e.name for e in files.list_directory(path)} if files.is_directory(path) else set()
        if names - {LOCK_NAME} and names.isdisjoint({UNFINISHED_BACKUP_NAME, BACKUP_NAME}):
            raise UsageError(
                f"{path} is in the way: a backup is first made there, but no backup left this. Move it away"
            )

    def _take_back_rename(self) -> None:
        files = self._files
        self._check_beside(self._aside)
        if files.is_directory(self._aside) and not files.is_directory(self.path):
            files.rename(self._aside, self.path)
            files.flush_directory(parent_of(self.path))

    def _read_earlier(self, store: str) -> Manifest | None:
        """
        Raises:
            UsageError: the directory is not a backup, is one of another store, or holds something else.
        """
        files = self._files
        if not files.is_directory(self.path):
            return None
        earlier = read_manifest(files, self.path)
        if earlier is None:
            if files.list_directory(self.path):
                raise UsageError(
                    f"{self.path} is not a backup: it holds something else, or a backup that was opened for "
                    "writing since and is now a store. Give another path, or move it away"
                )
            return None
        if earlier.store != store:
            raise UsageError(
                f"{self.path} is the backup of another store, {earlier.source} ({earlier.store}; this one is "
                f"{store}). Give another path, or move it away"
            )
        self._check_nothing_foreign(earlier)
        return earlier

    def _check_nothing_foreign(self, earlier: Manifest) -> None:
        """
        Raises:
            UsageError: something was put into the earlier backup that no backup makes, and would be gone with
                it.
        """
        foreign = sorted(self._foreign_in(earlier))
        if foreign:
            more = f" and {len(foreign) - _SHOWN_NAMES} more" if len(foreign) > _SHOWN_NAMES else ""
            raise UsageError(
                f"{self.path} is replaced by the next backup, and holds what no backup has made: "
                f"{', '.join(foreign[:_SHOWN_NAMES])}{more}. Move that away"
            )

    def _foreign_in(self, earlier: Manifest) -> Iterator[str]:
        files = self._files
        known = {partition_directory_name(*at) for at in earlier.partitions}
        unread = self._partitions_in_catalogue() - known  # copied as they were, with whatever they had
        for entry in files.list_directory(self.path):
            if not entry.is_directory:
                if entry.name not in _STORE_FILES and not entry.name.endswith(STAGED_SUFFIX):
                    yield entry.name
            elif entry.name in known:
                for inner in files.list_directory(f"{self.path}/{entry.name}"):
                    is_ours = parse_segment_file_name(inner.name) is not None or inner.name in _SIDECARS
                    if inner.is_directory or not is_ours:
                        yield f"{entry.name}/{inner.name}"
            elif entry.name not in unread:
                yield f"{entry.name}/"

    def _partitions_in_catalogue(self) -> set[str]:
        """The names of the directories of all partitions, also of those that are not in the manifest because
        the store could not open them."""
        try:
            topics = read_catalogue(self._files, self.path) or {}
        except LogstoreError:  # what the earlier backup says of its topics is not used otherwise
            return set()
        return {
            partition_directory_name(topic.name, number)
            for topic in topics.values()
            for number in topic.held_partitions
        }

    # The steps

    def finish(self) -> None:
        """Do steps 3 and 4. Everything in the staging directory must be flushed, except the directory
        itself."""
        files, parent = self._files, parent_of(self.path)
        files.flush_directory(self.staging)
        files.remove(f"{self.staging}/{UNFINISHED_BACKUP_NAME}")
        files.flush_directory(self.staging)
        self._is_placing = True
        if files.is_directory(self.path):
            self._exchange()
        else:
            files.rename(self.staging, self.path)
        files.flush_directory(parent)
        self._is_placing = False

    def _exchange(self) -> None:
        files = self._files
        try:
            files.exchange(self.path, self.staging)
        except StorageError as error:
            if error.errno not in _CANNOT_EXCHANGE:
                raise
            self._rename_twice()

    def _rename_twice(self) -> None:
        files = self._files
        if files.is_directory(self._aside):  # of a call that was cut off: what is in place came after it
            self._remove(self._aside)
        files.rename(self.path, self._aside)
        try:
            files.rename(self.staging, self.path)
        except BaseException:
            with contextlib.suppress(StorageError):
                if not files.is_directory(self.path):
                    files.rename(self._aside, self.path)
            raise

    def _clear(self) -> None:
        """Do step 5; also remove what a failed call has made. The next call removes what could not be
        removed."""
        if self._is_placing:
            return
        for path in (self.staging, self._aside):
            try:
                if self._files.is_directory(path):
                    self._remove(path)
            except LogstoreError as error:
                warn("%s could not be removed; the next backup removes it: %s", path, error)

    def _remove(self, path: str) -> None:
        self._empty(path)
        remove_tree(self._files, path)

    def _empty(self, path: str) -> None:
        """Mark a directory durably as not being a store, then remove its contents."""
        files = self._files
        mark = f"{path}/{UNFINISHED_BACKUP_NAME}"
        if not files.is_file(mark):
            write_new_file(files, mark, _UNFINISHED_TEXT)
            files.flush_directory(path)
        for entry in files.list_directory(path):
            if entry.is_directory:
                remove_tree(files, f"{path}/{entry.name}")
            elif entry.name not in (UNFINISHED_BACKUP_NAME, LOCK_NAME):
                files.remove(f"{path}/{entry.name}")
        files.flush_directory(path)
