"""A log of changes in a directory that many processes change, without a lock.

::

    log-00000000000000000000/     a segment: what follows on change 0
        snapshot                  the image as it was then
        00000000000000000001      a change
        00000000000000000002
    log-00000000000000000257/     the next segment; the last change of the one before says so

A change is written to a file of its own, flushed, and linked to the name of the next number. A link to a name
that is taken fails, so of several processes exactly one makes that change; the others read it, and check
their own again. A process that is stopped at any point holds up nobody, as it could if it held a lock.

**Power cuts.** The content is flushed before the link, the directory after it. A process also flushes the
directory before it believes what others have linked. So nobody acts on a change that a power cut may undo.

**Segments.** After some hundred changes, one says that it is the last. Whoever sees that, and no next
segment, writes it under another name and renames it: that fails if another was faster. The last two segments
are kept. An earlier one is renamed before its files are removed, so that a process that was stopped for long
cannot link into the half of one. If it revives a whole one, by a rename that was late, then there is a later
segment, and nobody believes it: a segment counts only while there is none behind it, or its last change is
there.

Not safe for threads: the caller has a lock.
"""

from __future__ import annotations

import contextlib
import errno
import uuid
from collections.abc import Iterator
from typing import Final

from logstore.clock import Clock
from logstore.errors import CorruptionError, ReopenRequiredError, RetriableError, StorageError, UsageError
from logstore.files import Files, parent_of, read_small_file, write_new_file
from logstore.replica.coordination.image import Change, TreeImage, decode_change, encode_change
from logstore.replica.coordination.tree import Stored

_SEGMENT: Final = "log-"
_NEW, _OLD, _UNLINKED = "new-", "old-", "tmp-"
_SNAPSHOT: Final = "snapshot"
_OURS: Final = (_NEW, _OLD, "sessions")
_CHANGES_PER_SEGMENT: Final = 256
_BYTES_PER_SEGMENT: Final = 16 << 20
_KEPT_SEGMENTS: Final = 2
_LIMIT_BYTES: Final = 1 << 30
_FORGOTTEN_MS: Final = 3_600_000
"""What was not renamed for so long will not be."""
_TRIES: Final = 100
_TAKEN: Final = (errno.EEXIST, errno.ENOENT, errno.ENOTEMPTY)
"""Another process was faster: the name is taken, or the directory was renamed."""


class ChangeLog:
    """``image`` is what the log says, as far as it was read."""

    def __init__(self, files: Files, path: str, clock: Clock) -> None:
        """Opens the log, and begins it if there is none.

        Raises:
            UsageError: the directory has other things in it.
        """
        self._files = files
        self._clock = clock
        self.path = path
        self.image = TreeImage()
        self._size_bytes = 0
        """Of the changes in the present segment, as far as they were made or read here."""
        self._is_sealed = False
        """Whether the last change of the segment was made, and the next segment is to be found."""
        files.make_directory(path)
        if not self._bases():
            files.flush_directory(parent_of(files.absolute(path)))
            self._check_empty()
            self._begin_segment(self.image)
        self._load()

    def _check_empty(self) -> None:
        names = [entry.name for entry in self._files.list_directory(self.path)]
        if "meta.properties" in names:
            raise UsageError(f"{self.path} is the directory of a store; the coordinator needs one of its own")
        foreign = [name for name in names if not (name.startswith(_OURS) or _is_segment(name))]
        if foreign:
            raise UsageError(
                f"{self.path} has other files in it, such as {foreign[0]!r}; the coordinator needs a "
                "directory of its own"
            )

    @property
    def segment(self) -> str:
        """The directory where the next change will be."""
        return self._segment_at(self._base)

    def _segment_at(self, base: int) -> str:
        return f"{self.path}/{_SEGMENT}{base:020d}"

    def _bases(self) -> list[int]:
        """Behind which changes segments begin, in order."""
        return bases_in(self._files, self.path)

    def _load(self) -> None:
        """Read the newest segment's snapshot."""
        for _ in range(_TRIES):
            bases = self._bases()
            if not bases:
                break
            path = f"{self._segment_at(bases[-1])}/{_SNAPSHOT}"
            data = read_small_file(self._files, path, _LIMIT_BYTES)
            if data is not None:
                with _located(path):
                    self.image = TreeImage.decode(data)
                self._files.flush_directory(self.path)
                self._enter(bases[-1])
                return
        raise CorruptionError("has no readable segment", path=self.path)

    # Reading

    def catch_up(self) -> dict[str, Stored | None]:
        """Read what has been changed meanwhile, up to what was linked before the call. Returns what has
        changed, by path. Cost if that is nothing: looks for two files, and one into the directory."""
        changed: dict[str, Stored | None] = {}
        for _ in range(_TRIES):
            is_ours = self._number_of_snapshot() == self._snapshot_number
            if is_ours and not self._is_sealed:
                self._read_on(changed)
            newest = self._bases()[-1:]
            if is_ours and self._is_sealed:
                if newest == [self._base]:
                    self._begin_segment(self.image)
                elif newest < [self.image.number]:
                    raise self._replaced()
                self._files.flush_directory(self.path)
                self._enter(self.image.number)
            elif is_ours and newest == [self._base]:
                return changed
            elif newest > [self._base]:
                before = self.image
                self._load()
                changed.update(self.image.difference(before))
            else:
                raise self._replaced()
        raise RetriableError(f"{self.path} changes too quickly to be read")

    def _replaced(self) -> CorruptionError:
        return CorruptionError("was removed, or replaced by an older copy or another log", path=self.path)

    def _enter(self, base: int) -> None:
        self._base, self._is_sealed, self._size_bytes = base, False, 0
        self._snapshot_number = self._number_of_snapshot()

    def _number_of_snapshot(self) -> int | None:
        """Tells the segment from one of another log; None if it is gone."""
        try:
            return self._files.stamp(f"{self.segment}/{_SNAPSHOT}").number
        except StorageError as error:
            if error.errno != errno.ENOENT:
                raise
            return None

    def _read_on(self, changed: dict[str, Stored | None]) -> None:
        """Read the changes that follow in this segment."""
        found: list[Change] = []
        while not found or not found[-1].is_last:
            path = self._path_of(self.image.number + len(found) + 1)
            data = read_small_file(self._files, path, _LIMIT_BYTES)
            if data is None:
                break
            with _located(path):
                found.append(decode_change(data))
            self._size_bytes += len(data)
        if not found:
            return
        try:
            self._files.flush_directory(self.segment)
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return  # it is not the newest any more, and what was read is not believed
            raise
        for change in found:
            changed.update(self._apply(change))

    def _apply(self, change: Change) -> dict[str, Stored | None]:
        self._is_sealed |= change.is_last
        return self.image.apply(change)

    def _path_of(self, number: int) -> str:
        return f"{self.segment}/{number:020d}"

    # Changing

    def try_append(self, change: Change) -> dict[str, Stored | None] | None:
        """Make a change that was checked against the image. Returns what has changed; None if another one was
        faster, or the segment was full: catch up, and check again.

        Raises:
            RetriableError: it may have been made or not.
            StorageError: the disk failed before.
            ReopenRequiredError: the disk failed after it was made, and it may not be durable.
        """
        if self._is_full and not change.is_last:
            self.try_append(Change(is_last=True))
            return None
        data = encode_change(change)
        if not self._link(data):
            return None
        try:
            self._files.flush_directory(self.segment)
        except StorageError as error:
            if error.errno != errno.ENOENT:
                message = f"{error.strerror}; a change may not be durable: open the coordinator again"
                raise ReopenRequiredError(error.errno, message, self.segment) from error
        try:
            counts = self._counts()
        except StorageError as error:  # the change is linked: others may have seen it
            raise RetriableError(f"{self.path} cannot be read: {error}") from error
        if not counts:
            raise RetriableError(f"{self.path} has gone on too far meanwhile")
        self._size_bytes += len(data)
        return self._apply(change)

    @property
    def _is_full(self) -> bool:
        is_long = self.image.number - self._base >= _CHANGES_PER_SEGMENT
        return is_long or self._size_bytes > _BYTES_PER_SEGMENT

    def _counts(self) -> bool:
        """Whether the segment is the newest, or its last change leads to the next."""
        bases = self._bases()
        if bases[-1:] == [self._base]:
            return True
        later = [base for base in bases if base > self._base]
        return self._base in bases and bool(later) and self._files.is_file(self._path_of(later[0]))

    def _link(self, data: bytes) -> bool:
        """Returns whether the name of the next number was free."""
        temporary = f"{self.segment}/{_UNLINKED}{uuid.uuid4().hex}"
        try:
            write_new_file(self._files, temporary, data, private=True)  # users' credentials may be in it
            self._files.link(temporary, self._path_of(self.image.number + 1))
        except StorageError as error:
            if error.errno in _TAKEN:
                return False
            error.filename = self.segment  # each try has a file of another name
            raise
        finally:
            with contextlib.suppress(StorageError):
                self._files.remove(temporary)
        return True

    def _begin_segment(self, image: TreeImage) -> None:
        """The one behind the image, unless another process is faster."""
        files, new = self._files, f"{self.path}/{_NEW}{uuid.uuid4().hex}"
        files.make_directory(new)
        try:
            write_new_file(files, f"{new}/{_SNAPSHOT}", image.encode(), private=True)
            files.flush_directory(new)
            files.rename(new, self._segment_at(image.number))
        except StorageError as error:
            self._remove(new)
            if error.errno not in _TAKEN:
                raise
        files.flush_directory(self.path)
        self._sweep()

    def _sweep(self) -> None:
        """Remove segments that nobody needs any more, and what dead processes have left."""
        for base in self._bases()[:-_KEPT_SEGMENTS]:
            with contextlib.suppress(StorageError):
                self._files.rename(self._segment_at(base), f"{self.path}/{_OLD}{uuid.uuid4().hex}")
        for name in [entry.name for entry in self._files.list_directory(self.path)]:
            path = f"{self.path}/{name}"
            with contextlib.suppress(StorageError):
                is_forgotten = (
                    name.startswith(_NEW)
                    and self._clock.now_ms() - self._files.modified_ms(path) > _FORGOTTEN_MS
                )
                if name.startswith(_OLD) or is_forgotten:
                    self._remove(path)

    def _remove(self, directory: str) -> None:
        with contextlib.suppress(StorageError):
            for entry in self._files.list_directory(directory):
                with contextlib.suppress(StorageError):
                    self._files.remove(f"{directory}/{entry.name}")
            self._files.remove_directory(directory)


def bases_in(files: Files, path: str) -> list[int]:
    """Behind which changes the segments in a directory begin, in order; none if it has no log."""
    names = [entry.name for entry in files.list_directory(path)]
    return sorted(int(name.removeprefix(_SEGMENT)) for name in names if _is_segment(name))


def _is_segment(name: str) -> bool:
    number = name.removeprefix(_SEGMENT)
    return name.startswith(_SEGMENT) and len(number) == 20 and number.isascii() and number.isdigit()


@contextlib.contextmanager
def _located(path: str) -> Iterator[None]:
    try:
        yield
    except CorruptionError as error:
        raise error.located(path) from None
