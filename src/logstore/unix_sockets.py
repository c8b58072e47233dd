"""Sockets with a name in the file system, which programs on the same machine reach.

Such a name has room for 107 bytes on Linux; directories are deeper than that. A longer one is reached through
its directory.
"""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
from collections.abc import Iterator
from typing import Final

from logstore.errors import StorageError, socket_error

_LONGEST: Final = 107
_MODE: Final = 0o600
_BACKLOG: Final = 1024


@contextlib.contextmanager
def short_name(path: str) -> Iterator[str]:
    """A name for the path that is short enough, while the block runs."""
    if len(os.fsencode(path)) <= _LONGEST:
        yield path
        return
    directory, name = os.path.split(path)
    descriptor = os.open(directory, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        yield f"/proc/self/fd/{descriptor}/{name}"
    finally:
        os.close(descriptor)


def listen_at(path: str) -> socket.socket:
    """A socket that listens under this name, for programs of the same user only (mode 0600). What is left
    there by a process that was killed is removed.

    Raises:
        StorageError: another process listens there, there is something else, or the system refuses.
    """
    try:
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    except OSError as error:
        raise socket_error(error, f"cannot listen on {path}") from error
    try:
        os.fchmod(listening.fileno(), _MODE)  # the file gets it when it is made
        with short_name(path) as name:
            if _is_left(name):
                os.unlink(name)
            listening.bind(name)
        os.chmod(path, _MODE)  # systems other than Linux take it only now
        listening.listen(_BACKLOG)
    except OSError as error:
        listening.close()
        raise StorageError(error.errno, f"cannot listen on {path}: {_why(path, error)}") from error
    return listening


def _why(path: str, error: OSError) -> str:
    """What is wrong, also where the system says nothing or something misleading."""
    if error.errno is None:  # it is Python that refuses
        return f"the name of a socket may have {_LONGEST} bytes at most"
    if error.errno == errno.EADDRINUSE:
        with contextlib.suppress(OSError):
            if not stat.S_ISSOCK(os.lstat(path).st_mode):
                return "what is there is no socket, and is left alone"
    return str(error.strerror)


def _is_left(name: str) -> bool:
    """Whether there is a socket on which no process listens any more."""
    try:
        if not stat.S_ISSOCK(os.lstat(name).st_mode):
            return False  # a file refuses connections, too
    except FileNotFoundError:
        return False
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(name)
        except ConnectionRefusedError:
            return True
        except OSError:
            return False
    return False


def file_at(path: str) -> tuple[int, int] | None:
    """Which file has this name; None if there is none."""
    try:
        found = os.lstat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def remove(path: str, file: tuple[int, int] | None) -> None:
    """Take the name away, if it is still that of this file, as :func:`file_at` told it. In a directory that
    was replaced it may be another process's."""
    if file is not None and file_at(path) == file:
        with contextlib.suppress(OSError):
            os.unlink(path)
