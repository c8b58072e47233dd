"""What a command ends with: exit codes, and errors in one or two sentences with the next step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any, Final

import typer

from logstore.cli import streams
from logstore.errors import (
    CorruptionError,
    LockedError,
    LogstoreError,
    ReadOnlyError,
    StorageError,
    UnknownGroupError,
    UnknownTopicError,
    UnsupportedVersionError,
    UsageError,
    is_of_place,
)

FINE: Final = 0
FOUND: Final = 1
WRONG: Final = 2
CANNOT: Final = 3
INTERRUPTED: Final = 130
PIPE_CLOSED: Final = 141

EXIT_CODES: Final = {
    FINE: "done; a check found nothing wrong",
    FOUND: "damage was found",
    WRONG: "the command line is wrong: an unknown option, or an argument that does not fit",
    CANNOT: "it cannot be done: something is missing, locked, refused, or the disk failed",
    INTERRUPTED: "interrupted by Ctrl-C",
    PIPE_CLOSED: "the program that read the output has ended, as `head` does",
}
"""What the exit codes mean; the documentation's table is held to this."""


_AS_TYPED: Final = (
    ("verify() says more; pass accept_damage=True to back up anyway", "--accept-damage backs it up anyway"),
    ("follow that leader, and promote()", "give that leader's address with --promote"),
    ("; read_only=True needs no more", "; commands that change nothing need no more"),
    (
        "set sasl_enabled_mechanisms, or require certificates, or say allow_anonymous=True",
        "give --set sasl.enabled.mechanisms=SCRAM-SHA-256, --client-ca or --allow-anonymous; or in a node's "
        "file a mechanism in [settings], [tls] with certificates of clients, or allow_anonymous = true",
    ),
)
"""What the library's errors name as arguments of calls, and what is typed instead."""


_FITTING: Final = (
    UnknownTopicError,
    UnknownGroupError,
    ReadOnlyError,
    UnsupportedVersionError,
)
"""Where the command line is right, and what it names is not there, or refuses."""


class CommandError(Exception):
    """A command ends with a message and an exit code."""

    def __init__(self, message: str, code: int = CANNOT) -> None:
        super().__init__(message)
        self.code = code


def guarded(function: Callable[..., int | None]) -> Callable[..., None]:
    """The function of a command, which returns its exit code, as Typer calls it: errors are told on standard
    error and become exit codes."""

    @functools.wraps(function)
    def run(*arguments: Any, **options: Any) -> None:
        try:
            code = function(*arguments, **options) or FINE
            streams.flush()
        except KeyboardInterrupt:
            code = INTERRUPTED
        except BrokenPipeError:
            streams.abandon()
            code = PIPE_CLOSED
        except (CommandError, LogstoreError, OSError) as error:
            code, message = explain(error)
            lines = message.split("\n") if isinstance(error, CommandError) else [message]
            for number, line in enumerate(lines):
                streams.tell(line if number else f"error: {line}")
        raise typer.Exit(code)

    return run


def tell_all(errors: Iterable[Exception]) -> int:
    """Tell of what has not kept the command from the rest. Returns its exit code: damage says more than what
    could not be read."""
    codes = {FINE}
    for error in errors:
        code, message = explain(error)
        codes.add(code)
        streams.tell(f"error: {message}")
    return FOUND if FOUND in codes else max(codes)


def explain(error: Exception) -> tuple[int, str]:
    """The exit code for an error, and what to say."""
    code, message = _explain(error)
    for call, typed in _AS_TYPED:
        message = message.replace(call, typed)
    return code, message


def _explain(error: Exception) -> tuple[int, str]:
    if isinstance(error, CommandError):
        return error.code, str(error)
    if isinstance(error, LockedError):
        return CANNOT, f"{error.held}, which has the directory open for writing. Close it there first"
    if isinstance(error, CorruptionError):
        return FOUND, f"{error}. `logstore verify` shows all that is wrong"
    if isinstance(error, UsageError):
        return CANNOT if isinstance(error, _FITTING) or is_of_place(error) else WRONG, str(error)
    if isinstance(error, StorageError) and not error.filename:  # it says itself what it is about
        return CANNOT, str(error.strerror or error)
    if isinstance(error, OSError) and error.strerror:
        return CANNOT, f"{error.strerror} ({error.filename or 'standard output'})"
    return CANNOT, str(error)
