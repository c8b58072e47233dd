"""A coordinator for processes that share a machine: a directory, and nothing to install.

The directory has a :mod:`log of changes <.change_log>`, and for each session two files::

    sessions/<name>.lock      locked by the process. The system lets it go when the process ends, however.
    sessions/<name>.sign      when the process last gave a sign of life, by the machine's clock

A session is dead when its lock is free, which others see in a tenth of a second, or when its last sign of
life is ``session_ms`` old, as that of a process that is stopped or hangs. The process that sees it makes a
change that closes the session; until then it lasts.

**The lease** lasts three quarters of ``session_ms`` from before the last sign of life that was given in time.
Who finds a session dead has looked at the clock first, and then at the sign of life. So a sign that was given
while the lease lasted is seen by everybody who looks later. A process whose lease has run out, because it was
stopped, first makes a change that confirms the session: it fails if the session is closed, and who is about
to close it has to look again.

All processes must see the same monotonic clock, as those of one machine do; containers of one machine, too,
unless they have a time namespace of their own.

Locks: ``FileTree._lock`` guards the log, its image, and what is not told yet. It is held during the fsyncs of
a change. Signs of life do not need it.
"""

from __future__ import annotations

import contextlib
import errno
import struct
import threading
import uuid
import zlib
from collections.abc import Callable, Sequence
from typing import Final

from logstore.arguments import check_least
from logstore.clock import Clock, SystemClock
from logstore.errors import (
    ClosedError,
    CorruptionError,
    FencedError,
    LogstoreError,
    ReopenRequiredError,
    RetriableError,
    StorageError,
    UsageError,
)
from logstore.files import DirectoryWatch, File, Files, Lock, OsFiles, PathLike, check_path
from logstore.lock import ForkFlag
from logstore.replica.coordination.change_log import ChangeLog, bases_in
from logstore.replica.coordination.coordinator import TreeCoordinator, no_cluster
from logstore.replica.coordination.image import Change
from logstore.replica.coordination.interface import SESSION_MS
from logstore.replica.coordination.tree import Changed, Create, Lease, Refusal, Step, Stored, Why
from logstore.warning import inform, warn

_SIGN: Final = struct.Struct("<qI")
"""Milliseconds, and a checksum: a reader may see half of a write."""
_LOOK_MS: Final = 100
"""How often to look whether others live."""
_LOOK_AGAIN_MS: Final = 1_000
"""How often to look for changes of which the system has told nothing."""
_SIGNS_PER_SESSION: Final = 8
_LEAST_SESSION_MS: Final = 200
_UNLIMITED: Final = 1 << 62
_PUT_BACK: Final = (
    ". Put back what was there: until then this process leads nothing, and then it goes on by itself. If "
    "that is lost, the node that has everything can begin a new cluster: logstore serve --config FILE "
    "--new-cluster"
)
"""What is to be done if the directory is gone, or is not what it was."""
_TRIES: Final = 5
_FORGOTTEN_MS: Final = 3_600_000
"""A session that did not begin in that time never will."""


class _Session:
    """What this process holds of its session."""

    def __init__(self, name: str, lock: Lock, sign: File, lease: Lease, stamp_ms: int) -> None:
        self.name = name
        self.lock = lock
        self.sign = sign
        self.lease = lease
        self.stamp_ms = stamp_ms
        """The last sign of life that counts."""


class FileTree:
    """See :class:`~logstore.replica.coordination.tree.Tree`."""

    most_steps = most_bytes = _UNLIMITED

    def __init__(self, path: str, session_ms: int, files: Files, clock: Clock) -> None:
        self.name = path
        self.clock = clock
        self.patience_ms = session_ms
        self._session_ms = session_ms
        self._lease_ms = session_ms * 3 // 4
        self._files = files
        self._lock = threading.RLock()
        self._log = ChangeLog(files, path, clock)
        files.make_directory(f"{path}/sessions")  # here only: a directory that is lost stays lost
        self._session: _Session | None = None
        self._stamps: dict[str, int] = {}
        """The last signs of life that were read of others' sessions."""
        self._untold: dict[str, Stored | None] = {}
        self._failure: str | None = None
        """Why no more changes are made."""
        self._is_closed = False
        self._fork_flag = ForkFlag.watch()
        self._bell = threading.Event()
        self._first_told = threading.Event()
        self._watch: DirectoryWatch | None = None
        self._watched = ""
        """The segment that it watches."""
        self._threads: list[threading.Thread] = []

    # Reading and changing

    def _check_usable(self) -> None:
        """Before anything takes the lock, which a thread of the parent may hold in a forked child."""
        self._fork_flag.check_usable(self.name, is_closed=self._is_closed)

    def read(self, path: str) -> Stored | None:
        self._check_usable()
        with self._lock:
            self._catch_up()
            return self._log.image.read(path)

    def commit(self, steps: Sequence[Step]) -> Refusal | None:
        self._check_usable()
        is_bound = any(isinstance(step, Create) and step.is_bound for step in steps)
        with self._lock:
            session = self._session
            if is_bound and (session is None or session.lease.is_lost):
                return Refusal(Why.MISSING)
            return self._make(Change(steps, session.name if is_bound and session is not None else None))

    def _make(self, change: Change, *, unless: Callable[[], bool] = lambda: False) -> Refusal | None:
        """
        Args:
            unless: looked at each time before it is tried; ends it.
        """
        while True:
            self._catch_up()
            if self._failure is not None:
                raise ReopenRequiredError(None, self._failure, self.name)
            refusal = self._log.image.check(change)
            if refusal is not None or unless():
                return refusal
            try:
                changed = self._log.try_append(change)
            except ReopenRequiredError as error:
                self._failure = str(error)
                self._lose()
                raise
            except RetriableError:
                return Refusal(Why.UNKNOWN)
            if changed is not None:
                self._note(changed)
                return None

    def _catch_up(self) -> None:
        self._check_usable()
        self._note(self._log.catch_up())

    def _note(self, changed: Changed) -> None:
        self._untold.update(changed)
        if changed and self._watch is not None:
            self._watch.wake()
        session = self._session
        if session is not None and session.name not in self._log.image.sessions:
            self._lose()

    # The own session

    def begin_session(self, on_lost: Callable[[], None]) -> Lease:
        self.end_session()
        with self._lock:
            self._catch_up()  # says the same each time if the directory is gone, unlike the names below
        files, name = self._files, uuid.uuid4().hex
        lock = files.lock(self._path_of(name, "lock"))
        try:
            sign = files.open(self._path_of(name, "sign"), create=True)
            now_ms = self.clock.monotonic_ms()
            sign.write_at(0, [_encode_sign(now_ms)])
            lease = Lease(self.clock, on_lost, self._bell.set)
            with self._lock:
                if self._make(Change(opens=(name, self._session_ms))) is not None:
                    raise RetriableError(f"{self.name} has changed too much meanwhile; try again")
                lease.extend(now_ms + self._lease_ms)
                self._session = _Session(name, lock, sign, lease, now_ms)
        except BaseException:
            lock.release()
            self._remove_files(name)
            raise
        self._start_thread(self._give_signs, "logstore-coordination-lease")
        return lease

    def end_session(self) -> None:
        with self._lock:
            session, self._session = self._session, None
            if session is None:
                return
            session.lease.end()
            with contextlib.suppress(LogstoreError):
                self._make(Change(closes=session.name))
        with contextlib.suppress(StorageError):
            session.lock.release()
        session.sign.close()
        self._remove_files(session.name)

    def _remove_files(self, name: str) -> None:
        for kind in ("sign", "lock"):
            with contextlib.suppress(StorageError):
                self._files.remove(self._path_of(name, kind))

    def _path_of(self, name: str, kind: str) -> str:
        return f"{self.name}/sessions/{name}.{kind}"

    def _lose(self) -> None:
        if self._session is not None:
            self._session.lease.lose()

    def _give_signs(self) -> None:
        """The thread that keeps the lease."""
        told = None
        while not self._is_closed:
            self._bell.wait(self._session_ms / _SIGNS_PER_SESSION / 1000)
            self._bell.clear()
            session = self._session
            if session is None:
                continue
            try:
                if not session.lease.is_lost:
                    self._give_sign(session)
                session.lease.tell()
                told = None
            except FencedError:
                session.lease.lose()
            except Exception as error:
                if str(error) != told:  # not eight times per session
                    told = str(error)
                    warn("the coordinator cannot be told that this process lives: %s", error)

    def _give_sign(self, session: _Session) -> None:
        session.lock.check()
        now_ms = self.clock.monotonic_ms()
        session.sign.write_at(0, [_encode_sign(now_ms)])
        is_in_time = self.clock.monotonic_ms() <= session.stamp_ms + self._lease_ms
        session.stamp_ms = now_ms
        if is_in_time or self._confirm(session):
            session.lease.extend(now_ms + self._lease_ms)

    def _confirm(self, session: _Session) -> bool:
        """Whether nobody has closed the session, and nobody will because of an earlier sign of life."""
        with self._lock:
            if session is not self._session:
                return False
            refusal = self._make(Change(confirms=session.name))
        if refusal is not None and refusal.why is Why.MISSING:
            session.lease.lose()
        return refusal is None

    # The others

    def bury(self) -> None:
        with self._lock:
            self._catch_up()
        self._bury_known()

    def _bury_known(self) -> None:
        with self._lock:
            own = self._session.name if self._session is not None else None
            others = [each for each in self._log.image.sessions.items() if each[0] != own]
        known = self._stamps  # two threads may be here
        self._stamps = {name: known[name] for name, _ in others if name in known}
        for name, session_ms in others:
            if self._is_dead(name, session_ms) and self._close(name, session_ms):
                self._remove_files(name)
                self._sweep()

    def _sweep(self) -> None:
        """Remove what is left of processes that died while their session began or ended."""
        for name in {
            entry.name.partition(".")[0] for entry in self._files.list_directory(f"{self.name}/sessions")
        }:
            path = self._path_of(name, "lock")
            with contextlib.suppress(StorageError):
                is_known = name in self._log.image.sessions or self._files.is_locked(path)
                if not is_known and self.clock.now_ms() - self._files.modified_ms(path) > _FORGOTTEN_MS:
                    self._remove_files(name)

    def _close(self, name: str, session_ms: int) -> bool:
        """Close another's session, unless it turns out to live. Returns whether it is closed."""
        with self._lock:
            # If it has confirmed itself meanwhile, that is read first, and then its new sign of life.
            self._make(Change(closes=name), unless=lambda: not self._is_dead(name, session_ms))
            return name not in self._log.image.sessions

    def _is_dead(self, name: str, session_ms: int) -> bool:
        now_ms = self.clock.monotonic_ms()  # before the sign of life is looked at
        if not self._files.is_locked(self._path_of(name, "lock")):
            return True
        if now_ms < self._stamps.get(name, 0) + session_ms:
            return False
        try:
            file = self._files.open(self._path_of(name, "sign"))
        except StorageError as error:
            if error.errno == errno.ENOENT:
                return True
            raise
        try:
            for _ in range(_TRIES):
                stamp_ms = _decode_sign(file.read_at(0, _SIGN.size))
                if stamp_ms is not None:
                    self._stamps[name] = stamp_ms
                    return now_ms >= stamp_ms + session_ms
        finally:
            file.close()
        return False

    # Following

    def follow(self, tell: Callable[[Changed], None]) -> None:
        with self._lock:
            self._untold = self._log.image.difference(type(self._log.image)())
        self._start_thread(lambda: self._run(tell), "logstore-coordination-watch")
        self._first_told.wait()

    def _start_thread(self, run: Callable[[], None], name: str) -> None:
        if any(thread.name == name for thread in self._threads):
            return
        thread = threading.Thread(target=run, name=name, daemon=True)
        try:
            thread.start()
        except RuntimeError as error:
            raise RetriableError(f"no thread can be started for the coordinator: {error}") from None
        self._threads.append(thread)

    def _run(self, tell: Callable[[Changed], None]) -> None:
        """The thread that reads what others have changed, and tells it."""
        said = None
        has_news, look_at_ms = True, 0
        while not self._is_closed:
            try:
                now_ms = self.clock.monotonic_ms()
                if has_news or said is not None or now_ms >= look_at_ms:
                    look_at_ms = now_ms + min(_LOOK_AGAIN_MS, self._session_ms // 4)
                    with self._lock:
                        self._catch_up()
                        changed, self._untold = self._untold, {}
                    tell(changed)
                    self._first_told.set()
                self._bury_known()
                if said is not None:
                    inform("the coordinator %s can be used again", self.name)
                said = None
                has_news = self._wait()
            except ClosedError:
                break
            except Exception as error:
                is_gone = isinstance(error, CorruptionError)
                if isinstance(error, LogstoreError) and not isinstance(error, RetriableError):
                    is_gone |= self._check_directory()
                if str(error) != said:
                    said = str(error)
                    warn("the coordinator cannot be used: %s%s", error, _PUT_BACK if is_gone else "")
                self._first_told.set()
                threading.Event().wait(_LOOK_MS / 1000)
        self._end_watch()

    def _check_directory(self) -> bool:
        """Whether the log is gone. Then there is no lease on anything any more."""
        with contextlib.suppress(LogstoreError):
            if self._files.is_directory(self._log.segment):
                return False
        self._lose()
        return True

    def _wait(self) -> bool:
        """Until something may have changed, a tenth of a second at most. Returns whether it may."""
        try:
            if self._watch is None or self._watched != self._log.segment:
                self._end_watch()
                self._watched = self._log.segment
                self._watch = self._files.watch([self.name, self._watched])
                return True  # look again: something may have changed before
            return self._watch.wait(_LOOK_MS)
        except StorageError:  # no watches here, or the segment is gone
            self._end_watch()
            threading.Event().wait(_LOOK_MS / 1000)
            return True

    def _end_watch(self) -> None:
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.close()

    def wake(self) -> None:
        watch = self._watch
        if watch is not None:
            watch.wake()

    def close(self) -> None:
        self.end_session()
        self._is_closed = True
        self._bell.set()
        self.wake()
        for thread in self._threads:
            if thread is not threading.current_thread():
                thread.join()


def _encode_sign(stamp_ms: int) -> bytes:
    return _SIGN.pack(stamp_ms, zlib.crc32(b"%d" % stamp_ms))


def _decode_sign(data: bytes) -> int | None:
    """None if it was being written."""
    if len(data) != _SIGN.size:
        return None
    stamp_ms, checksum = _SIGN.unpack(data)
    return int(stamp_ms) if zlib.crc32(b"%d" % stamp_ms) == checksum else None


class FileCoordinator(TreeCoordinator):
    """A coordinator in a directory that the processes of one machine share. Each node has one of its own, and
    ``docs/coordination.md`` says what it keeps."""

    def __init__(
        self,
        path: PathLike,
        *,
        cluster_id: str | None = None,
        create: bool = True,
        session_ms: int = SESSION_MS,
        files: Files | None = None,
        clock: Clock | None = None,
    ) -> None:
        """
        Args:
            path: a directory of its own; made if it is not there.
            cluster_id: what the cluster's id has to be. If there is no cluster yet, it gets this one, or
                without one an id of its own.
            create: whether to begin a cluster if there is none. False for a node that has a cluster already:
                if that is not here, nothing is made.
            session_ms: after how long a process of which nothing is heard is dead; 10 s. One that has ended
                is noticed at once. A busy machine may hold up a living one: below 2,000 ms that happens.

        Raises:
            UsageError: it is another cluster's, or has other files in it, or is an address, or there is no
                cluster.
        """
        check_least("session_ms", session_ms, _LEAST_SESSION_MS)
        files = files or OsFiles()
        given = check_path(path)
        if "://" in given:
            raise UsageError(
                f"{given!r} is no directory; for ZooKeeper, give a ZooKeeperCoordinator its hosts, or the "
                "command zookeeper://HOST:PORT/PATH"
            )
        name = files.absolute(given)
        if not create and not (files.is_directory(name) and bases_in(files, name)):
            raise no_cluster(name)
        tree = FileTree(name, session_ms, files, clock or SystemClock())
        super().__init__(tree, cluster_id, create=create)
