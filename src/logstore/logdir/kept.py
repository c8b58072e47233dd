"""What one of a store's small files says, in memory, and where a change of it goes.

Alone, that is the file. In a cluster it is what the nodes have in common, and the file is this node's copy
of it: clients can log in before the node has heard of the others, and while it does not hear of them. A copy
says what it is a copy of. Another file is the store's own: the first node of a cluster gives it to that, and
any other keeps it beside the copy. So is the copy of a later version than the cluster has, which has lost it.

Lock: ``_lock`` is held while the file is written, never while the cluster is asked. ``value`` is replaced in
one assignment, and read without it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from logstore.errors import LogstoreError
from logstore.files import read_small_file, write_small_file
from logstore.logdir.directory import LogDirectory
from logstore.logdir.small_json import Copy, JsonFile, copy_mark, marked_as_copy
from logstore.warning import warn

T = TypeVar("T")

REPLACED_SUFFIX: Final = ".replaced"
"""Of the store's own file, when the cluster's has taken its place."""
_UNKNOWN_VERSION: Final = -1
_MOST_SHOWN: Final = 5


class SharedText(Protocol):
    """What the nodes of a cluster have in common in place of such a file. Each change gives it a higher
    version."""

    def replace(self, change: Callable[[bytes | None], bytes]) -> tuple[bytes, int]:
        """Replace it by what ``change`` makes of the newest, which is None if there is nothing yet. It may be
        called more than once. Returns the newest, with its version.

        Raises:
            RetriableError: the cluster cannot be asked now.
            UsageError: it would be too large. Nothing has changed.
        """
        ...


class Kept(Generic[T]):
    """Of one directory. Nothing is read before :meth:`load`."""

    def __init__(
        self, directory: LogDirectory, file: JsonFile[T], nothing: T, use: Callable[[T], None]
    ) -> None:
        """
        Args:
            nothing: the value without a file.
            use: called with each new value, one at a time. It must not wait.
        """
        self._directory = directory
        self._file = file
        self._path = f"{directory.path}/{file.name}"
        self._use = use
        self._lock = threading.Lock()
        self._nothing = self.value = nothing
        self._is_loaded = False
        self._has_file = False
        self._copy: Copy | None = None
        """What the file is a copy of."""
        self._shared: SharedText | None = None
        self._cluster_id = ""
        self._version = _UNKNOWN_VERSION
        """Which one of the cluster's is known."""
        self._unwritten: bytes | None = None
        """A copy that the disk has not taken yet."""
        self._trouble: str | None = None
        """Why it has not."""
        self._differs: list[str] = []
        """In what the file differs from the copy that takes its place."""

    def load(self) -> None:
        """Read the file, unless that was done.

        Raises:
            CorruptionError: it is damaged; says what to do.
            UnsupportedVersionError: a newer logstore wrote it.
        """
        if self._is_loaded:
            return
        with self._lock:
            if not self._is_loaded:
                found = self._file.load(self._directory.context.files, self._directory.path)
                if found is not None:
                    value, data = found
                    self._has_file, self._copy = True, copy_mark(data)
                    self._put_locked(value)
                self._is_loaded = True

    def _put_locked(self, value: T) -> None:
        self.value = value
        self._use(value)

    # Changes that are made here

    def change(self, change: Callable[[T], T]) -> None:
        """Replace the value by what ``change`` makes of the newest one, durably. It may be called more than
        once. If it raises, nothing changes.

        Raises:
            ClosedError, FencedError, StorageError: nothing has changed.
            CorruptionError, UnsupportedVersionError: the newest cannot be read.
            RetriableError: the cluster cannot be asked now.
            UsageError: it would be too large.
        """
        self._directory.check_open()
        self.load()
        with self._lock:
            shared = self._shared
            if shared is None:
                self._change_file_locked(change)
                return
        self.take(*shared.replace(lambda found: self._changed(found, change)))

    def _change_file_locked(self, change: Callable[[T], T]) -> None:
        changed = change(self.value)
        if changed == self.value:
            return
        self._write_locked(self._file.encode(changed), None)
        self._put_locked(changed)

    def _write_locked(self, data: bytes, copy: Copy | None) -> None:
        context = self._directory.context
        context.home.check_held()
        self._file.write(context.files, self._directory.path, data)
        self._has_file, self._copy = True, copy

    def _changed(self, found: bytes | None, change: Callable[[T], T]) -> bytes:
        """What the cluster is to have. If it has nothing, it gets what this node knows."""
        before = self.value if found is None else self._file.decode(found)
        changed = change(before)
        return found if found is not None and changed == before else self._file.encode(changed)

    # A cluster

    def share(self, shared: SharedText, cluster_id: str) -> None:
        """From now on the nodes of a cluster have this in common."""
        with self._lock:
            self._shared, self._cluster_id = shared, cluster_id
            self._version = _UNKNOWN_VERSION

    def give(self, *, is_first: bool) -> None:
        """If the cluster has no text yet, store one there: what the file holds if this is the first node,
        else an empty one, so that nodes which join later add nothing. A damaged file is not given.

        Raises:
            LogstoreError: as :meth:`change`.
        """
        if self._shared is not None and self._is_loaded:
            given = self.value if is_first else self._nothing
            self.take(*self._shared.replace(lambda found: found or self._file.encode(given)))

    def take(self, data: bytes, version: int) -> None:
        """The cluster has this, as some node has changed it. It is passed over if it is older than what is
        known. It counts at once; the disk may take the copy later.

        Raises:
            CorruptionError, UnsupportedVersionError: it cannot be read. Nothing has changed.
        """
        value, copy = self._file.decode(data), Copy(self._cluster_id, version)
        with self._lock:
            if version <= self._version:
                return
            has_own = self._has_file or not self._is_loaded  # what cannot be read is a file, too
            if self._unwritten is None and has_own and not self._is_earlier(copy):
                self._differs = self._differing(value)
            self._version, self._is_loaded = version, True
            self._put_locked(value)
            self._unwritten = marked_as_copy(data, copy)
            self._write_copy_locked()

    def _is_earlier(self, copy: Copy) -> bool:
        """Whether the file is a copy of what the cluster had before."""
        present = self._copy
        return (
            present is not None and present.cluster_id == copy.cluster_id and present.version <= copy.version
        )

    def forget_version(self) -> None:
        """The cluster has lost it: what it has next is newer, whatever its version."""
        with self._lock:
            self._version = _UNKNOWN_VERSION

    def write_copy(self) -> None:
        """If the disk has not taken a copy, try again. Costs nothing otherwise."""
        if self._unwritten is not None:
            with self._lock:
                self._write_copy_locked()

    def _differing(self, value: T) -> list[str]:
        """Names of what the file has otherwise than the cluster, or only one of them has."""
        if not self._is_loaded:
            return ["what cannot be read"]
        theirs, own = self._file.parts(value), self._file.parts(self.value)
        return sorted(name for name in theirs.keys() | own.keys() if theirs.get(name) != own.get(name))

    def _write_copy_locked(self) -> None:
        try:
            self._directory.check_open()
            data = read_small_file(self._directory.context.files, self._path, self._file.limit_bytes)
            if self._unwritten is not None and self._unwritten != data:
                self._keep_own_locked(data)
                self._write_locked(self._unwritten, copy_mark(self._unwritten))
            self._unwritten = self._trouble = None
        except LogstoreError as error:
            if str(error) != self._trouble:
                warn("%s is older than what the cluster has, which counts: %s", self._path, error)
            self._trouble = str(error)

    def _keep_own_locked(self, data: bytes | None) -> None:
        """A crash before the file is replaced leaves it; after that, both."""
        names = self._differs
        if not names or data is None:
            return
        files, beside, number = self._directory.context.files, f"{self._path}{REPLACED_SUFFIX}", 1
        while files.is_file(beside):  # nobody has asked to delete that
            number += 1
            beside = f"{self._path}{REPLACED_SUFFIX}-{number}"
        write_small_file(files, beside, data, private=self._file.is_private)
        more = f" and {len(names) - _MOST_SHOWN} more" if len(names) > _MOST_SHOWN else ""
        warn(
            "%s differs from what the cluster has, in %s%s. The cluster's counts; the file is kept as %s",
            self._path,
            ", ".join(names[:_MOST_SHOWN]),
            more,
            beside,
        )
        self._differs = []
