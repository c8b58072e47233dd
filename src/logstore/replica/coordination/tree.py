"""What a coordinator is built on: texts by path, each with a version, and changes of several at once.

This is ZooKeeper's model, as far as it is needed. A change is a list of steps of which all are made or none.
Some texts are bound to a session, and go with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import NamedTuple, Protocol

from logstore.clock import Clock


class Stored(NamedTuple):
    """A text, and how often it was written since it was created."""

    data: str
    version: int


class Create(NamedTuple):
    path: str
    data: str
    is_bound: bool = False
    """Whether it goes with the session."""


class Write(NamedTuple):
    """Replace a text that exists; if a version is given, only that one."""

    path: str
    data: str
    version: int | None = None


class Delete(NamedTuple):
    path: str
    version: int | None = None


class Check(NamedTuple):
    """The text exists; if a version is given, it has that one."""

    path: str
    version: int | None = None


Step = Create | Write | Delete | Check


class Why(Enum):
    MISSING = "missing"
    EXISTS = "exists"
    CHANGED = "changed"
    """It has another version."""
    UNKNOWN = "unknown"
    """The change was sent, and no answer came: it may have been made, or be made yet."""


class Refusal(NamedTuple):
    """Why a change was not made."""

    why: Why
    at: int = 0
    """Which of the steps was refused."""


Changed = Mapping[str, Stored | None]
"""What has changed, by path. None if it is gone."""


class Lease:
    """How long nobody else can take a session for dead. Any thread may look; the attributes are set whole."""

    def __init__(self, clock: Clock, on_lost: Callable[[], None], ring: Callable[[], None]) -> None:
        """
        Args:
            ring: makes a thread of the tree call :meth:`tell` soon.
        """
        self._clock = clock
        self._on_lost: list[Callable[[], None]] = [on_lost]
        self._ring = ring
        self._until_ms = 0
        self._is_to_be_told = False
        self.is_lost = False

    @property
    def until_ms(self) -> int:
        """0 when the session is lost."""
        return 0 if self.is_lost else self._until_ms

    @property
    def holds(self) -> bool:
        return self._clock.monotonic_ms() < self.until_ms

    def extend(self, until_ms: int) -> None:
        self._until_ms = max(self._until_ms, until_ms)

    def end(self) -> None:
        """The session is over, as its owner knows."""
        self.is_lost = True

    def lose(self) -> None:
        """The session is over, as its owner is to be told. Calls nothing that could block."""
        if not self.is_lost:
            self.is_lost = self._is_to_be_told = True
            self._ring()

    def tell(self) -> None:
        """Tell the owner, once, if the session was lost."""
        if self._is_to_be_told:
            for tell in self._on_lost[:]:
                self._on_lost.clear()
                tell()


class Tree(Protocol):
    """Safe to use from many threads."""

    clock: Clock
    most_steps: int
    """Of one change."""
    most_bytes: int
    """Of all texts of one change."""
    name: str
    """For messages: where it is."""
    patience_ms: int
    """How long to go on trying to reach it."""

    def commit(self, steps: Sequence[Step]) -> Refusal | None:
        """Make a change. None if it was made.

        Raises:
            ClosedError: this is closed.
            StorageError: the disk failed.
        """
        ...

    def read(self, path: str) -> Stored | None:
        """The newest text: what was written before the call is seen.

        Raises:
            RetriableError: it cannot be reached.
        """
        ...

    def begin_session(self, on_lost: Callable[[], None]) -> Lease:
        """A session for texts that are bound to it. The one before is ended if it still lasts, but what was
        bound to it may stay for a while.

        Raises:
            RetriableError: it cannot be reached.
        """
        ...

    def end_session(self) -> None:
        """End the present one, if there is one."""
        ...

    def bury(self) -> None:
        """End the sessions of dead processes now, as far as they can be told."""
        ...

    def follow(self, tell: Callable[[Changed], None]) -> None:
        """Call ``tell`` with everything there is, and then with what changes, in order, from one thread. Also
        with nothing, after :meth:`wake`. Returns after the first call.

        Raises:
            RetriableError: it cannot be reached.
        """
        ...

    def wake(self) -> None: ...

    def close(self) -> None:
        """You may call it again."""
        ...
