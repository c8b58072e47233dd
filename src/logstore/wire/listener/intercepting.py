"""What a test may do with requests, before they are answered."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore.arguments import did_you_mean, shown
from logstore.broker.codes import ErrorCode
from logstore.errors import UsageError
from logstore.partition.arguments import check_timeout

if TYPE_CHECKING:
    from logstore.wire.apis import ApiKey


class Intercepted(NamedTuple):
    """A request that has come."""

    key: ApiKey
    version: int
    request: Any
    """The message, of :mod:`logstore.wire.messages`."""
    client_id: str
    principal: str


@dataclass(frozen=True, slots=True)
class Delay:
    """Answer later; requests of the same connection wait, too.

    Raises:
        UsageError: not a number of seconds, 0 or above.
    """

    seconds: float

    def __post_init__(self) -> None:
        check_timeout(self.seconds, "seconds")


@dataclass(frozen=True, slots=True)
class Drop:
    """Never answer; neither the request is carried out nor what comes behind it on the same connection."""


@dataclass(frozen=True, slots=True)
class DropAnswer:
    """Carry it out, and never answer; what comes behind it on the same connection is not carried out."""


@dataclass(frozen=True, slots=True)
class Refuse:
    """Answer with an error, for each partition or group that the request names; the request is not carried
    out.

    Raises:
        UsageError: Kafka has no such error.
    """

    error: str
    """Kafka's name for it, such as ``NOT_LEADER_OR_FOLLOWER``."""

    def __post_init__(self) -> None:
        names = ErrorCode.__members__.keys() - {"NONE"}
        if self.error not in names:
            raise UsageError(f"there is no error {shown(self.error)}{did_you_mean(self.error, names)}")

    @property
    def code(self) -> ErrorCode:
        """Its number."""
        return ErrorCode[self.error]


@dataclass(frozen=True, slots=True)
class HangUp:
    """Close the connection; the request is not carried out."""


Action = Delay | Drop | DropAnswer | Refuse | HangUp
Intercept = Callable[[Intercepted], Action | None]
"""Called for each request; None lets it through. It must return soon."""
