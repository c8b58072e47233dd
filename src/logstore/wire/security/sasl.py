"""A client's login, as a listener goes through it: a handshake, then messages, then who it is.

::

    state      handshake            evaluate
    new        begun, or failed     failed
    begun      failed               begun, complete, or failed
    complete   begun, or failed     failed
    failed     failed               failed

From *complete* on, a handshake begins a login of the same client again (KIP-368): with the same mechanism,
and it must end with the same user. After *failed* the connection is to be closed, as Kafka does it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Protocol

from logstore.arguments import did_you_mean, shown
from logstore.broker.codes import ErrorCode
from logstore.errors import UsageError
from logstore.logdir.users import SCRAM_BY_NAME
from logstore.wire.security.scram import INVALID, ScramExchange
from logstore.wire.security.users import Users

PLAIN: Final = "PLAIN"
MECHANISMS: Final = (*SCRAM_BY_NAME, PLAIN)
"""All that there are. PLAIN shows the password to everyone on the way, unless there is TLS."""
MAX_AUTH_BYTES: Final = 512 * 1024
"""The largest message: as Kafka's ``sasl.server.max.receive.size``."""
_USER: Final = "User:"


class _Exchange(Protocol):
    """One login of one mechanism."""

    claimed: str | None
    """The name that the client gives itself; it proves nothing."""
    user: str | None
    """Who it is, once that is proved."""

    def evaluate(self, message: bytes) -> bytes: ...


class SaslServer:
    """The logins of one connection, one after another. Used by one thread at a time."""

    def __init__(self, users: Users, mechanisms: Iterable[str] = MECHANISMS) -> None:
        """``mechanisms``: those that clients may choose.

        Raises:
            UsageError: one does not exist, or there is none.
        """
        self.mechanisms = check_mechanisms(mechanisms)
        self._users = users
        self.mechanism: str | None = None
        """The one of the first handshake."""
        self._exchange: _Exchange | None = None
        self.principal: str | None = None
        """Who the client is, such as ``User:alice``; None before the first login has succeeded."""
        self.claimed: str | None = None
        """The name that the client has given last, which may not be its own: for the log."""
        self.has_failed = False
        """Whether the connection is to be closed, after the answer was sent."""

    @property
    def is_complete(self) -> bool:
        """Whether the client has logged in, and no other login has begun since. Only then other requests may
        be answered."""
        return self.principal is not None and self._exchange is None and not self.has_failed

    @property
    def is_begun(self) -> bool:
        """Whether a message of the client is awaited."""
        return self._exchange is not None

    def handshake(self, mechanism: str) -> ErrorCode:
        """Begin a login: NONE, or UNSUPPORTED_SASL_MECHANISM or ILLEGAL_SASL_STATE."""
        if self.has_failed or self._exchange is not None:
            return self._fail(ErrorCode.ILLEGAL_SASL_STATE)
        is_same = self.mechanism in (None, mechanism)
        if mechanism not in self.mechanisms or not is_same:
            return self._fail(ErrorCode.UNSUPPORTED_SASL_MECHANISM)
        self.mechanism = mechanism
        self._exchange = _EXCHANGES[mechanism](self._users)
        return ErrorCode.NONE

    def evaluate(self, auth_bytes: bytes) -> bytes:
        """The answer to a message. Afterwards see :attr:`is_complete`.

        SCRAM takes 10 µs, PLAIN 1 to 9 ms, during which other threads run.

        Raises:
            UsageError: the login has failed; the message is for the client, and does not tell whether there
                is such a user.
        """
        exchange = self._exchange
        try:
            if exchange is None:
                raise UsageError("a SASL message without a handshake")
            if len(auth_bytes) > MAX_AUTH_BYTES:
                raise UsageError(f"a SASL message of {len(auth_bytes)} bytes; {MAX_AUTH_BYTES} are allowed")
            answer = self._step(exchange, bytes(auth_bytes))
            if exchange.user is not None:
                self._complete(_USER + exchange.user)
        except UsageError:
            self._fail(ErrorCode.SASL_AUTHENTICATION_FAILED)
            raise
        return answer

    def _step(self, exchange: _Exchange, message: bytes) -> bytes:
        try:
            return exchange.evaluate(message)
        finally:
            self.claimed = exchange.claimed

    def _complete(self, principal: str) -> None:
        """
        Raises:
            UsageError: a later login is another user's (KIP-368).
        """
        if self.principal not in (None, principal):
            raise UsageError("a client that logs in again must stay the same user")
        self.principal = principal
        self._exchange = None

    def _fail(self, code: ErrorCode) -> ErrorCode:
        self.has_failed = True
        self._exchange = None
        return code


class _PlainExchange:
    """RFC 4616: one message, with the password as it is."""

    def __init__(self, users: Users) -> None:
        self._users = users
        self.claimed: str | None = None
        self.user: str | None = None

    def evaluate(self, message: bytes) -> bytes:
        """
        Raises:
            UsageError: it is not of the form, or name and password do not belong together.
        """
        parts = message.split(b"\0")
        if len(parts) != 3:
            raise UsageError(f"a message of PLAIN has {len(parts)} parts between NULs; it must have 3")
        try:
            authzid, name = parts[0].decode(), parts[1].decode()
        except UnicodeDecodeError:
            raise UsageError("the name in a message of PLAIN is not UTF-8") from None
        self.claimed = name
        if not name or not parts[2]:
            raise UsageError("a message of PLAIN has no name, or no password")
        if authzid not in ("", name):
            raise UsageError("the client asks for the rights of another user")
        if not self._users.is_password(name, parts[2]):
            raise UsageError(INVALID)
        self.user = name
        return b""


def _scram(sasl_name: str) -> Callable[[Users], _Exchange]:
    return lambda users: ScramExchange(users, SCRAM_BY_NAME[sasl_name])


_EXCHANGES: Final[Mapping[str, Callable[[Users], _Exchange]]] = {
    PLAIN: _PlainExchange,
    **{each: _scram(each) for each in SCRAM_BY_NAME},
}


def check_mechanisms(mechanisms: Any) -> tuple[str, ...]:
    """
    Raises:
        UsageError: one does not exist, or there is none.
    """
    chosen = tuple(dict.fromkeys(mechanisms)) if not isinstance(mechanisms, str) else (mechanisms,)
    if not chosen:
        raise UsageError(f"no SASL mechanism is given; there are {', '.join(MECHANISMS)}")
    for each in chosen:
        if each not in MECHANISMS:
            raise UsageError(f"unknown SASL mechanism {shown(each)}{did_you_mean(each, MECHANISMS)}")
    return chosen
