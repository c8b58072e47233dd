"""What a bridge does when a cluster does not answer, or refuses: wait and say so, or raise an error that
names what is wrong."""

from __future__ import annotations

import threading
import time
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import RETRIABLE, error_of
from logstore.errors import LogstoreError, RetriableError, UnknownTopicError, UsageError
from logstore.turns import SafeEvent
from logstore.warning import inform, warn

FIRST_WAIT_MS: Final = 100
LONGEST_WAIT_MS: Final = 30_000
"""As long as Kafka's clients wait for the answer to one request."""

_DENIED: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


class _DeniedError(UsageError):
    """The cluster does not allow something, until its ACLs are changed."""


class _NoLoginError(UsageError):
    """A broker refuses to let the connection in: no topic is to blame."""


def check_answer(code: ErrorCode, what: str, message: str | None = None) -> None:
    """
    Args:
        what: what was asked for, and of what.

    Raises:
        RetriableError: it may succeed later.
        UnknownTopicError: there is no such topic or partition at the cluster.
        UsageError: the cluster does not allow it.
        LogstoreError: it refuses for another reason.
    """
    if code is ErrorCode.NONE:
        return
    why = message or code.name
    if code in _DENIED:
        raise _DeniedError(f"{what}: the cluster does not allow it ({code.name}); its ACLs say who may")
    if code is ErrorCode.SASL_AUTHENTICATION_FAILED:
        raise _NoLoginError(why)
    if code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        raise UnknownTopicError(f"{what}: the cluster has no such topic or partition, or has no longer")
    if code in RETRIABLE:
        raise RetriableError(f"{what}: {why}")
    raise error_of(code, f"{what}: {why}")


def is_denied(error: LogstoreError) -> bool:
    """Whether it says that the cluster does not allow something."""
    return isinstance(error, _DeniedError)


def is_no_login(error: LogstoreError) -> bool:
    """Whether it says that a broker refuses to let the connection in."""
    return isinstance(error, _NoLoginError)


class OneRun:
    """Keeps a bridge from running twice at the same time: ``with`` it, in the thread that runs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        """
        Raises:
            UsageError: it runs.
        """
        if not self._lock.acquire(blocking=False):
            raise UsageError("this bridge runs already, in another thread; stop() ends that run")

    def __exit__(self, *_: object) -> None:
        self._lock.release()


class Trouble:
    """The current trouble of one bridge. Each that lasts is told once, and told again when it is over."""

    def __init__(self, what: str, first_wait_ms: int = FIRST_WAIT_MS) -> None:
        self._what = what
        self._first_wait_ms = first_wait_ms
        self._next_wait_ms = first_wait_ms
        self._since: float | None = None
        self.reason: str | None = None
        """None if there is no trouble."""

    def begin_run(self) -> None:
        """What lasted when an earlier run ended counts from now on, and is told again."""
        self._since = None
        self._next_wait_ms = self._first_wait_ms

    def note(self, error: LogstoreError, limit_ms: int | None) -> None:
        """
        Args:
            limit_ms: how long it may last; None for any time.

        Raises:
            LogstoreError: this one, if it has lasted for longer.
        """
        now = time.monotonic()
        if self._since is None:
            self._since = now
            warn("%s waits, and tries again: %s", self._what, error)
        self.reason = str(error)
        if limit_ms is not None and (now - self._since) * 1000 >= limit_ms:
            raise error

    def wait(self, stopping: SafeEvent) -> None:
        """Wait before the next attempt: twice as long each time, for half a minute at most."""
        stopping.wait(self._next_wait_ms / 1000)
        self._next_wait_ms = min(2 * self._next_wait_ms, LONGEST_WAIT_MS)

    def end(self) -> None:
        """An attempt has succeeded."""
        if self._since is not None:
            inform("%s goes on", self._what)
        self._since = self.reason = None
        self._next_wait_ms = self._first_wait_ms
