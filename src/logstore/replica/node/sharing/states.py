"""The share coordinator: the states of share-partitions, kept by the node that leads ``__share_group_state``.

Who leads a partition has read its state in its leader epoch. From then on leaders of earlier epochs change
nothing any more, whatever they believe.

Lock: ``_lock`` is held while a state is looked at and changed. A log's own lock comes within it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Final, TypeVar

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.pending import Answered, Pending
from logstore.broker.share.kept import (
    AS_SET,
    JUST_LOOKS,
    NOT_TAKEN_UP,
    Beginning,
    Codes,
    Names,
    Reading,
    ReadState,
    Writing,
)
from logstore.broker.share.stored import ShareChange, ShareState
from logstore.broker.storing.shares import ShareStorage
from logstore.errors import LogstoreError
from logstore.format.messages.share_records import ShareKey
from logstore.logdir.directory import LogDirectory
from logstore.model import TopicPartition
from logstore.replica.node.partition import PartitionReplica
from logstore.replica.node.replicated import when_replicated, why_not_written
from logstore.replica.node.telling import SHARE_STATES
from logstore.replica.node.terms import Terms
from logstore.warning import warn
from logstore.wire.handlers.then import then

T = TypeVar("T")
_EPOCHS_BEGIN_SECONDS: Final = 1_700_000_000
_MOST_SECONDS: Final = 2**30
_Change = ShareState | ShareChange | None


class TermOfStates:
    """The states, in one leader epoch."""

    def __init__(self, directory: LogDirectory, replica: PartitionReplica, epoch: int) -> None:
        """
        Raises:
            LogstoreError: they cannot be read.
        """
        self._replica = replica
        self._epoch = epoch
        self._scheduler = directory.context.scheduler
        self._clock = directory.context.clock
        self._storage = ShareStorage(directory)
        self._lock = threading.Lock()
        self._partitions: dict[tuple[str, uuid.UUID], set[int]] = {}
        """By group and topic."""
        self._state_epoch = 0
        """The last one that was given."""
        self._trouble: str | None = None
        """Why the last write failed; it is asked for many times a second."""
        for key, state in self._storage.load().items():
            self._note(key)
            self._state_epoch = max(self._state_epoch, state.state_epoch)

    def _note(self, key: ShareKey) -> None:
        self._partitions.setdefault((key.group_id, key.topic_id), set()).add(key.partition)

    def names(self) -> tuple[str, ...]:
        """The groups that have begun."""
        with self._lock:
            return tuple(sorted({group for group, _ in self._partitions}))

    def begin(self, wanted: Sequence[Beginning]) -> Pending[Codes]:
        """See :class:`.ShareStates`."""
        with self._lock:
            known = set(self._partitions)
            changes: list[tuple[ShareKey, _Change]] = []
            for key, start, anew in wanted:
                if anew or self._storage.find(key) is None:
                    is_more = (key.group_id, key.topic_id) in known
                    start = 0 if is_more and start == AS_SET else start
                    changes.append((key, ShareState(self._new_state_epoch(), NOT_TAKEN_UP, start)))
            return self._store_locked(changes, [each.key for each in wanted], {})

    def _new_state_epoch(self) -> int:
        """Higher than that of a state which was deleted: leaders may still hold that."""
        seconds = self._clock.now_ms() // 1_000 - _EPOCHS_BEGIN_SECONDS
        self._state_epoch = max(self._state_epoch + 1, min(seconds, _MOST_SECONDS))
        return self._state_epoch

    def read(self, wanted: Sequence[Reading]) -> Pending[Mapping[ShareKey, ReadState]]:
        """See :class:`.ShareStates`."""
        found: dict[ShareKey, ReadState] = {}
        changes: list[tuple[ShareKey, _Change]] = []
        with self._lock:
            for key, epoch in wanted:
                state = self._storage.find(key)
                if state is None:
                    found[key] = ReadState(ErrorCode.GROUP_ID_NOT_FOUND)
                elif epoch == JUST_LOOKS:
                    found[key] = ReadState(NONE, state)
                elif epoch < state.leader_epoch:
                    found[key] = ReadState(ErrorCode.FENCED_LEADER_EPOCH)
                else:
                    found[key] = ReadState(NONE, state._replace(leader_epoch=epoch), state.leader_epoch)
                    if epoch > state.leader_epoch:
                        changes.append((key, ShareChange(leader_epoch=epoch)))
            stored = self._store_locked(changes, list(found), {})
        return then(
            stored,
            lambda codes: {
                key: each if codes[key] is NONE or each.error is not NONE else ReadState(codes[key])
                for key, each in found.items()
            },
        )

    def write(self, wanted: Sequence[Writing]) -> Pending[Codes]:
        """See :class:`.ShareStates`."""
        refused: dict[ShareKey, ErrorCode] = {}
        changes: list[tuple[ShareKey, _Change]] = []
        with self._lock:
            for key, state_epoch, change in wanted:
                state = self._storage.find(key)
                if state is None:
                    refused[key] = ErrorCode.GROUP_ID_NOT_FOUND
                elif change.leader_epoch < state.leader_epoch:
                    refused[key] = ErrorCode.FENCED_LEADER_EPOCH
                elif state_epoch != state.state_epoch:
                    refused[key] = ErrorCode.FENCED_STATE_EPOCH
                else:
                    changes.append((key, change))
            return self._store_locked(changes, [each.key for each in wanted], refused)

    def delete(self, keys: Sequence[ShareKey]) -> Pending[Codes]:
        """See :class:`.ShareStates`."""
        with self._lock:
            changes = [(key, None) for key in keys if self._storage.find(key) is not None]
            return self._store_locked(changes, keys, {})

    def forget_topics(self, is_gone: Callable[[uuid.UUID], bool]) -> None:
        """These topics were deleted: what groups have done of them goes, too."""
        with self._lock:
            topics = {topic_id for _, topic_id in self._partitions}
            gone = {each for each in topics if is_gone(each)}
            changes = [
                (ShareKey(group, topic_id, number), None)
                for (group, topic_id), numbers in self._partitions.items()
                if topic_id in gone
                for number in numbers
            ]
            self._store_locked(changes, [], {})

    def _store_locked(
        self,
        changes: Sequence[tuple[ShareKey, _Change]],
        keys: Sequence[ShareKey],
        refused: Mapping[ShareKey, ErrorCode],
    ) -> Pending[Codes]:
        code = why_not_written(self._replica, self._epoch)
        if code is NONE and changes:
            try:
                self._storage.write(changes)
                self._trouble = None
            except LogstoreError as error:
                if str(error) != self._trouble:
                    warn("states of share groups could not be stored: %s", error)
                self._trouble, code = str(error), code_of(error)
        if code is not NONE:
            return Answered({**dict.fromkeys(keys, code), **refused})
        for key, change in changes:
            if change is not None:
                self._note(key)
                continue
            place = (key.group_id, key.topic_id)
            numbers = self._partitions.get(place, set())
            numbers.discard(key.partition)
            if not numbers:
                self._partitions.pop(place, None)
        certain = when_replicated(self._replica, self._epoch, self._scheduler)
        return then(certain, lambda code: {**dict.fromkeys(keys, code), **refused})


class LedStates:
    """The share coordinator, while this node leads its topic; see
    :class:`~logstore.broker.share.kept.ShareStates`."""

    def __init__(self, directory: LogDirectory, replicas: Mapping[TopicPartition, PartitionReplica]) -> None:
        self._terms = Terms(
            replicas,
            SHARE_STATES,
            lambda replica, epoch: TermOfStates(directory, replica, epoch),
            lambda _: None,  # who leads no more writes nothing
        )
        self._seen: TermOfStates | None = None
        """At the last look."""

    def _ask(self, ask: Callable[[TermOfStates], T], refusal: Callable[[ErrorCode], T]) -> T:
        try:
            term = self._terms.look()
            return refusal(self._terms.refusal) if term is None else ask(term.coordinator)
        except LogstoreError as error:
            warn("states of share groups cannot be read: %s", error)
            return refusal(code_of(error))

    def look(self) -> bool:
        """Begin what this node leads now, and end what it leads no more. Returns whether it has begun."""
        term = self._ask(lambda term: term, lambda _: None)
        is_new = term is not None and term is not self._seen
        self._seen = term
        return is_new

    def close(self) -> None:
        """The node ends: store nothing."""
        self._terms.close()

    def begin(self, wanted: Sequence[Beginning]) -> Pending[Codes]:
        return self._ask(
            lambda term: term.begin(wanted), lambda code: Answered({each.key: code for each in wanted})
        )

    def read(self, wanted: Sequence[Reading]) -> Pending[Mapping[ShareKey, ReadState]]:
        return self._ask(
            lambda term: term.read(wanted),
            lambda code: Answered({each.key: ReadState(code) for each in wanted}),
        )

    def write(self, changes: Sequence[Writing]) -> Pending[Codes]:
        return self._ask(
            lambda term: term.write(changes), lambda code: Answered({each.key: code for each in changes})
        )

    def delete(self, keys: Sequence[ShareKey]) -> Pending[Codes]:
        return self._ask(lambda term: term.delete(keys), lambda code: Answered(dict.fromkeys(keys, code)))

    def names(self) -> Pending[Names]:
        return self._ask(lambda term: Answered(Names(NONE, term.names())), lambda code: Answered(Names(code)))

    def forget_topics(self, is_gone: Callable[[uuid.UUID], bool]) -> None:
        """See :meth:`TermOfStates.forget_topics`. If another node leads, it does the same."""
        self._ask(lambda term: term.forget_topics(is_gone), lambda _: None)
