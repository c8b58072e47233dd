"""The settings of a client of a broker elsewhere. Names are Kafka's with underscores for dots."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from logstore.config import Checked, check_choice, check_range
from logstore.errors import InvalidConfigError, LogstoreError, UsageError
from logstore.warning import warn
from logstore.wire.frames import MAX_FRAME_BYTES

_MAX_INT32 = 2**31 - 1
_RANGES = (
    ("request_timeout_ms", 1, _MAX_INT32),
    ("retry_backoff_ms", 1, _MAX_INT32),
    ("reconnect_backoff_ms", 1, _MAX_INT32),
    ("reconnect_backoff_max_ms", 1, _MAX_INT32),
    ("socket_connection_setup_timeout_ms", 1, _MAX_INT32),
    ("metadata_max_age_ms", 1, _MAX_INT32),
    ("max_response_bytes", 1024, _MAX_INT32),
    ("replication_factor", -1, 32_767),
)
_MECHANISMS = {"PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Sasl(Checked):
    """Who connects, and how that is proved. ``PLAIN`` sends the password as it is: only with TLS, or where
    nobody listens.

    Raises:
        InvalidConfigError: the mechanism is unknown, or a name or password is no text.
    """

    username: str
    password: str = field(repr=False)
    mechanism: str = "SCRAM-SHA-256"
    """``PLAIN``, ``SCRAM-SHA-256`` or ``SCRAM-SHA-512`` (RFC 5802)."""

    def __post_init__(self) -> None:
        check_choice(self, "mechanism", _MECHANISMS)
        for name in ("username", "password"):
            value = getattr(self, name)
            if type(value) is not str or not value or "\0" in value:
                raise InvalidConfigError(f"sasl: {name} must be text, without zero characters, and not empty")


class RenewedSasl:
    """A login whose password may change while the program runs, as in a file. New connections ask for it.

    Raises:
        LogstoreError: there is none now.
    """

    def __init__(self, read: Callable[[], Sasl]) -> None:
        self._read = read
        self._last = read()
        self._trouble = ""

    def current(self) -> Sasl:
        """For a new connection. If there is none now, as while a file is written, it stays as it was, and a
        warning says why, once."""
        try:
            self._last, self._trouble = self._read(), ""
        except LogstoreError as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                warn("new connections get the earlier password: %s", error)
        return self._last


def current_sasl(given: Sasl | RenewedSasl | None) -> Sasl | None:
    """The login for a new connection."""
    return given.current() if isinstance(given, RenewedSasl) else given


def check_sasl(given: object, name: str) -> None:
    """
    Raises:
        UsageError: an argument is neither a login nor None.
    """
    if given is not None and not isinstance(given, Sasl | RenewedSasl):
        what = f"a {type(given).__name__}"  # not the value: a password may be in it
        raise UsageError(
            f"{name} is {what}; it must be logstore.connected.Sasl(username=..., password=...), or None"
        )


@dataclass(frozen=True, kw_only=True, slots=True)
class RemoteConfig(Checked):
    """How a client speaks to brokers.

    Raises:
        InvalidConfigError: a name is unknown, or a value is out of range; names the setting.
    """

    request_timeout_ms: int = 30_000
    """How long to wait for an answer, and to try again where that helps. A connection on which an answer is
    overdue is closed."""
    retry_backoff_ms: int = 100
    """How long to wait before a request is sent again."""
    reconnect_backoff_ms: int = 50
    """How long to wait after a connection failed; doubled with each failure, with 20 % of chance."""
    reconnect_backoff_max_ms: int = 1_000
    """The longest such wait."""
    socket_connection_setup_timeout_ms: int = 10_000
    """How long a connection may take to be made: TCP, TLS, and who we are. Not longer than
    ``request_timeout_ms``."""
    metadata_max_age_ms: int = 300_000
    """After so long the leaders of a topic are asked for again, although nothing went wrong."""
    max_response_bytes: int = MAX_FRAME_BYTES
    """The largest answer that is taken. A connection that announces a larger one is closed."""
    replication_factor: int = -1
    """Of topics that are created. -1 leaves it to the brokers."""

    def __post_init__(self) -> None:
        for setting, low, high in _RANGES:
            check_range(self, setting, low, high)
