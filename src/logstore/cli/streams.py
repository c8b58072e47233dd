"""Standard output, as bytes, and what becomes of it when its reader has gone; standard error, in lines. The
only module here that touches the operating system."""

from __future__ import annotations

import os
import select
import sys
import time
from contextlib import suppress

from logstore.cli.escaping import escaped


def write(text: str, encoding: str | None = None) -> None:
    """Write to standard output, in its encoding unless told otherwise; what that cannot say is escaped.

    Raises:
        BrokenPipeError: its reader has gone.
        OSError: it cannot be written.
    """
    encoding = encoding or sys.stdout.encoding or "utf-8"
    sys.stdout.buffer.write(text.encode(encoding, "backslashreplace"))


def write_bytes(data: bytes) -> None:
    """Write bytes as they are."""
    sys.stdout.buffer.write(data)


def flush() -> None:
    """Hand over what was written."""
    sys.stdout.flush()
    sys.stdout.buffer.flush()


def prepare() -> None:
    """A closed standard output, as by ``>&-``, refuses what is written to it, with EBADF; a closed standard
    error leads nowhere."""
    if sys.stdout is None:
        sys.stdout = os.fdopen(os.open(os.devnull, os.O_RDONLY), "w")  # for as long as the program runs
    if sys.stderr is None:
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115


def wait(seconds: float) -> None:
    """Wait, while standard output has a reader.

    Raises:
        BrokenPipeError: its reader has gone, which otherwise only the next write would notice.
    """
    try:
        descriptor = sys.stdout.fileno()
    except OSError:  # it is no file, as in a test
        time.sleep(seconds)
        return
    poll = select.poll()
    poll.register(descriptor, 0)  # asks for nothing: errors and hang-ups are always reported
    if poll.poll(seconds * 1000):
        raise BrokenPipeError


def tell(text: str) -> None:
    """A line on standard error, behind what was written before."""
    try:
        flush()
    except OSError:
        abandon()
    with suppress(OSError):  # there is no reader to tell
        sys.stderr.write(f"{escaped(text)}\n")
        sys.stderr.flush()


def abandon() -> None:
    """Let what is still to be written go nowhere, so that Python does not complain of it when it ends."""
    nowhere = os.open(os.devnull, os.O_WRONLY)
    try:
        os.dup2(nowhere, sys.stdout.fileno())
    finally:
        os.close(nowhere)


def argument_bytes(argument: str) -> bytes:
    """The bytes that were given on the command line."""
    return os.fsencode(argument)
