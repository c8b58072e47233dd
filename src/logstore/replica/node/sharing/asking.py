"""Questions to the share coordinator, whichever node it is: asked again while that changes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, Generic, TypeVar

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.pending import Answered, Pending, Promise
from logstore.broker.share.kept import Beginning, Codes, Names, Reading, ReadState, ShareStates, Writing
from logstore.clock import Clock
from logstore.format.messages.share_records import ShareKey
from logstore.replica.coordination.interface import View
from logstore.replica.node.peers import Peers
from logstore.replica.node.telling import SHARE_STATES, leader_of
from logstore.schedule import Scheduler, Task
from logstore.wire.remote.connections.codes import NOT_YET
from logstore.wire.remote.translate import share_states
from logstore.wire.remote.translate.translation import Translation

Q = TypeVar("Q")
R = TypeVar("R")

PATIENCE_SECONDS: Final = 5.0
"""How long a question is asked again."""
_ANSWER_MS: Final = 6_000
"""How long one node may take: it waits for its followers itself."""
_AGAIN_MS: Final = 50
_LATER: Final = NOT_YET | {ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_SERVER_ERROR}
"""The same question may be answered soon. Each may be carried out twice."""


class StateAsker:
    """See :class:`~logstore.broker.share.kept.ShareStates`. Calls return at once; what follows happens in a
    thread of its own, which is begun with the first call."""

    def __init__(
        self, node_id: int, view: Callable[[], View], here: ShareStates, peers: Peers, clock: Clock
    ) -> None:
        self._node_id = node_id
        self._view = view
        self._here = here
        self._peers = peers
        self._scheduler = Scheduler(clock)

    def close(self) -> None:
        """Ask nothing any more."""
        self._scheduler.stop()

    def begin(self, wanted: Sequence[Beginning]) -> Pending[Codes]:
        return self._ask(share_states.BEGIN, wanted, lambda: self._here.begin(wanted), _worst)

    def read(self, wanted: Sequence[Reading]) -> Pending[Mapping[ShareKey, ReadState]]:
        return self._ask(
            share_states.READ,
            wanted,
            lambda: self._here.read(wanted),
            lambda found: _worst({key: each.error for key, each in found.items()}),
        )

    def write(self, changes: Sequence[Writing]) -> Pending[Codes]:
        return self._ask(share_states.WRITE, changes, lambda: self._here.write(changes), _worst)

    def delete(self, keys: Sequence[ShareKey]) -> Pending[Codes]:
        if not keys:
            return Answered({})
        return self._ask(share_states.DELETE, keys, lambda: self._here.delete(keys), _worst)

    def names(self) -> Pending[Names]:
        return self._ask(share_states.NAMES, None, self._here.names, lambda found: found.error)

    def _ask(
        self,
        translation: Translation[Q, R],
        request: Q,
        here: Callable[[], Pending[R]],
        code_of: Callable[[R], ErrorCode],
    ) -> Pending[R]:
        def ask() -> Pending[R]:
            node_id = leader_of(self._view(), SHARE_STATES)
            if node_id == self._node_id:
                return here()
            if node_id is None:
                return Answered(translation.refuse(request, ErrorCode.COORDINATOR_NOT_AVAILABLE, None))
            return self._peers.ask(node_id, translation, request)

        def late() -> R:
            return translation.refuse(request, ErrorCode.REQUEST_TIMED_OUT, None)

        question = _Question(self._scheduler, ask, code_of, late)
        question.ask()
        return question.promise

    def when_there(self, pending: Pending[R], done: Callable[[R], object]) -> None:
        """Call ``done`` with the result, in this object's thread if it is not there yet."""
        follow(self._scheduler, pending, done)


class _Question(Generic[R]):
    """One question, until it is answered or the patience is over."""

    def __init__(
        self,
        scheduler: Scheduler,
        ask: Callable[[], Pending[R]],
        code_of: Callable[[R], ErrorCode],
        late: Callable[[], R],
    ) -> None:
        self.promise: Promise[R] = Promise()
        self._scheduler = scheduler
        self._ask = ask
        self._code_of = code_of
        self._late = late
        self._until = time.monotonic() + PATIENCE_SECONDS
        self._count = 0

    def ask(self) -> None:
        self._count += 1
        number = self._count
        timer = Task("give a node up", lambda: self._take(number, self._late(), None), None)
        self._scheduler.promptly(_ANSWER_MS, timer)
        follow(self._scheduler, self._ask(), lambda result: self._take(number, result, timer))

    def _take(self, number: int, result: R, timer: Task | None) -> None:
        """An answer to one of the tries, which counts if none came before it."""
        if timer is not None:
            timer.cancel()
        if number != self._count:
            return
        self._count += 1
        if self._code_of(result) not in _LATER or time.monotonic() >= self._until:
            self.promise.complete(result)
        else:
            self._scheduler.promptly(_AGAIN_MS, Task("ask again", self.ask, None))


def follow(scheduler: Scheduler, pending: Pending[R], done: Callable[[R], object]) -> None:
    """Call ``done`` with the result: at once if it is there, else in the scheduler's thread."""
    result = pending.poll()
    if result is not None:
        done(result)
        return
    look = Task("look for an answer", lambda: follow(scheduler, pending, done), None)
    pending.on_wake(lambda: scheduler.promptly(0, look))


def _worst(codes: Codes) -> ErrorCode:
    """One for which it is to be asked again, if there is one."""
    return next((code for code in codes.values() if code in _LATER), NONE)
