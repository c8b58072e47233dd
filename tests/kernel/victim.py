"""A forked child that says what it does through a pipe, and is killed at a moment that it does not choose.

What it said before it died is heard: the pipe is the kernel's. The programs that fork victims are small and
have no threads, so a fork costs a millisecond.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import select
import signal
import struct
import sys
import threading
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from logstore.errors import StorageError
from logstore.files import File, OsFile, OsFiles
from logstore.model import Bytes
from tests.file_operations import BY_PATH

_FRAME = struct.Struct("<I")
_PIPE_BYTES = 1024 * 1024
PATIENCE_SECONDS = 30


class Failed(NamedTuple):
    """The child met an error that it did not expect."""

    is_of_disk: bool
    trace: str


class Voice:
    """The child's end of the pipe. Safe to use from several threads."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()

    def __call__(self, said: Any) -> None:
        data = pickle.dumps(said, 5)
        with self._lock:
            rest = memoryview(_FRAME.pack(len(data)) + data)
            while rest:
                rest = rest[os.write(self._descriptor, rest) :]


class Victim:
    """A child that runs ``life(voice)``, and is killed when that returns or before."""

    def __init__(self, life: Callable[[Voice], None]) -> None:
        self._ear, mouth = os.pipe()
        with contextlib.suppress(OSError):  # an unprivileged user may have used up his share
            fcntl.fcntl(self._ear, fcntl.F_SETPIPE_SZ, _PIPE_BYTES)
        sys.stdout.flush()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(self._ear)
            _live(life, Voice(mouth))
        os.close(mouth)
        self._heard = bytearray()
        self._has_ended = False

    def listen(self, seconds: float) -> None:
        """Hear what the child says for so long, or until it ends."""
        until = time.monotonic() + seconds
        while not self._has_ended:
            if not select.select([self._ear], [], [], max(until - time.monotonic(), 0))[0]:
                return
            data = os.read(self._ear, _PIPE_BYTES)
            self._heard += data
            self._has_ended = not data

    def said_so_far(self) -> list[Any]:
        self.listen(0)
        return _frames(self._heard)

    def wait_for_word(self) -> None:
        """Until the child has said something."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not self._heard and not self._has_ended and time.monotonic() < until:
            self.listen(0.0005)

    def stop_itself(self) -> list[Any]:
        """Let the child live until it kills itself; returns what it said."""
        self.listen(PATIENCE_SECONDS)
        assert self._has_ended, "a writer neither ends nor goes on"
        return self.kill()

    def kill(self) -> list[Any]:
        """Returns what the child said."""
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)
        _, status = os.waitpid(self.pid, 0)
        assert os.WIFSIGNALED(status), f"a writer ended by itself: {status}"
        assert os.WTERMSIG(status) == signal.SIGKILL, f"a writer died of {status}"
        self.listen(PATIENCE_SECONDS)
        os.close(self._ear)
        return _frames(self._heard)


def _live(life: Callable[[Voice], None], voice: Voice) -> None:
    try:
        life(voice)
    except BaseException as error:
        voice(Failed(isinstance(error, StorageError), traceback.format_exc()))
    finally:
        os.kill(os.getpid(), signal.SIGKILL)


def _frames(heard: bytearray) -> list[Any]:
    """All that was said whole."""
    said = []
    position = 0
    while position + _FRAME.size <= len(heard):
        end = position + _FRAME.size + _FRAME.unpack_from(heard, position)[0]
        if end > len(heard):
            break
        said.append(pickle.loads(heard[position + _FRAME.size : end]))
        position = end
    return said


def ask(life: Callable[[], Any]) -> Any:
    """What ``life()`` returns in a child of its own, which then dies with all that it has open."""

    def speak(voice: Voice) -> None:
        voice(life())

    said = Victim(speak).stop_itself()
    if isinstance(said[-1], Failed):
        raise AssertionError(said[-1].trace)
    return said[-1]


# Death at a chosen system call


class DyingFile(OsFile):
    __slots__ = ("death",)

    death: DyingFiles

    def write_at(self, position: int, buffers: Sequence[Bytes]) -> None:
        with self.death.around():
            if self.death.is_due and self.death.tears:
                data = b"".join(buffers)
                super().write_at(position, [data[: self.death.tears % (len(data) + 1)]])
                self.death.now()
            super().write_at(position, buffers)


class DyingFiles(OsFiles):
    """The disk of a process that dies at its ``last``-th operation that changes something: in front of it, in
    the middle of it (a write, after ``tears`` bytes), or behind it."""

    def __init__(self, last: int, *, is_before: bool, tears: int = 0) -> None:
        self._left = last
        self._is_before = is_before
        self.tears = tears
        self._lock = threading.Lock()

    @property
    def is_due(self) -> bool:
        return self._left <= 0

    @staticmethod
    def now() -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    @contextlib.contextmanager
    def around(self) -> Any:
        self._left -= 1
        if self.is_due and self._is_before and not self.tears:
            self.now()
        yield
        if self.is_due:
            self.now()

    def open(self, path: str, *, write: bool = False, create: bool = False) -> File:
        opened = super().open(path, write=write, create=create)
        assert isinstance(opened, OsFile)
        file = DyingFile(path, os.dup(opened._descriptor))
        file.death = self
        return file


def _dying(kind: type, name: str) -> None:
    plain = getattr(kind.__mro__[1], name)

    def operation(self: Any, *arguments: Any) -> Any:
        with (self.death if isinstance(self, DyingFile) else self).around():
            return plain(self, *arguments)

    setattr(kind, name, operation)


for _name in ("truncate", "flush"):
    _dying(DyingFile, _name)
for _name in BY_PATH:
    _dying(DyingFiles, _name)
