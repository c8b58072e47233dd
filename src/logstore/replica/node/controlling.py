"""The controller: one of the nodes, which elects leaders when nodes come and go.

Every node tries to be it. A thread waits for news, decides by :func:`~logstore.replica.rules.electing.elect`
about the partitions that the news may concern, and changes all their states in a few steps. From time to time
it gives partitions back to their preferred leaders.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable
from typing import Final, NamedTuple

from logstore.broker.codes import NONE, ErrorCode
from logstore.errors import FencedError, LogstoreError
from logstore.replica.coordination.interface import Control, Session, TopicPartition, View, ViewChange
from logstore.replica.rules.electing import Choice, Election, elect, prefer
from logstore.replica.rules.partition_state import PartitionState
from logstore.schedule import start_thread
from logstore.warning import inform, warn

_TRY_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 10
_TOLERATED_SHARE: Final = 0.1
"""Of the partitions that prefer a node, so many may be led by others: Kafka's
``leader.imbalance.per.broker.percentage``."""


class TopicRules(NamedTuple):
    """What elections ask of a topic's settings."""

    min_isr: int
    is_durable: bool
    allows_unclean: bool


class Controlling:
    """One node's part in it."""

    def __init__(
        self,
        view: Callable[[], View],
        rules_of: Callable[[str], TopicRules | None],
        balance_seconds: float = 0,
    ) -> None:
        """``balance_seconds``: how often partitions are given back to their preferred leaders; 0: never."""
        self._view = view
        self._rules_of = rules_of
        self._balance_seconds = balance_seconds
        self._balance_at = time.monotonic() + balance_seconds
        self._session: Session | None = None
        self._control: Control | None = None
        self._lock = threading.Lock()
        self._changed: set[TopicPartition] = set()
        self._has_all_changed = True
        self._bell = threading.Event()
        self._is_stopped = False
        self._thread = start_thread(self._run, "logstore-controller", what="to elect leaders")

    @property
    def control(self) -> Control | None:
        """What the controller may do, if this node is it."""
        return self._control

    def begin(self, session: Session) -> None:
        """The node has a new life."""
        self._session, self._control = session, None
        self._bell.set()

    def note(self, change: ViewChange) -> None:
        """Something has changed."""
        with self._lock:
            self._has_all_changed |= change.living or change.controller or bool(change.topics)
            self._changed |= change.partitions
        self._bell.set()

    def stop(self) -> None:
        """Elect nobody any more."""
        self._is_stopped = True
        self._bell.set()
        self._thread.join(_STOP_SECONDS)

    # The thread

    def _run(self) -> None:
        trouble = None
        while not self._is_stopped:
            self._bell.wait(_TRY_SECONDS)
            self._bell.clear()
            try:
                self._step()
                trouble = None
            except FencedError:
                self._control = None
            except LogstoreError as error:
                with self._lock:
                    self._has_all_changed = True
                if str(error) != trouble:
                    warn("no leaders can be elected: %s", error)
                trouble = str(error)

    def _step(self) -> None:
        session = self._session
        if self._is_stopped or session is None or session.is_lost or not session.has_lease:
            return
        if self._control is None:
            if self._view().controller is not None:
                return
            self._control = session.try_to_control()
            if self._control is None:
                return
            with self._lock:
                self._has_all_changed = True
        with self._lock:
            changed, self._changed = self._changed, set()
            has_all, self._has_all_changed = self._has_all_changed, False
        view = self._view()
        if has_all:
            self._elect(self._control, view, view.partitions)
        elif changed:
            self._elect(self._control, view, changed)
        if self._balance_seconds and time.monotonic() >= self._balance_at:
            self._balance_at = time.monotonic() + self._balance_seconds
            self._balance(self._control, view)

    def _balance(self, control: Control, view: View) -> None:
        """Nodes that lead much less than what prefers them lead that again."""
        preferring = Counter(state.replicas[0] for state in view.partitions.values())
        wanted: dict[TopicPartition, PartitionState] = {}
        for each in view.partitions:
            state = self._preferred(view, each)
            if state is not None:
                wanted[each] = state
        missing = Counter(state.replicas[0] for state in wanted.values())
        chosen = {
            each: state
            for each, state in wanted.items()
            if missing[state.replicas[0]] > _TOLERATED_SHARE * preferring[state.replicas[0]]
        }
        if chosen:
            stored = sum(outcome.is_stored for outcome in control.change(chosen).values())
            inform("the controller has given %d partitions back to their preferred leaders", stored)

    def _preferred(self, view: View, partition: TopicPartition) -> PartitionState | None:
        rules = self._rules_of(partition[0])
        if rules is None:
            return None
        state = view.partitions[partition]
        return prefer(state, view.registrations, min_isr=rules.min_isr, is_durable=rules.is_durable)

    def elect_now(
        self, partitions: Collection[TopicPartition] | None, *, is_unclean: bool
    ) -> dict[TopicPartition, ErrorCode] | None:
        """Let the preferred leader lead each of these partitions, or all; or, of those without a leader, any
        replica that lives: what that does not have is lost. Says what came of each; None if this node is not
        the controller.

        Raises:
            LogstoreError: the coordinator cannot be reached.
        """
        control, view = self._control, self._view()
        if control is None:
            return None
        found: dict[TopicPartition, ErrorCode] = {}
        wanted: dict[TopicPartition, PartitionState] = {}
        for each in view.partitions if partitions is None else partitions:
            if each not in view.partitions:
                found[each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            chosen = self._unclean(view, each) if is_unclean else self._preferred(view, each)
            if chosen is not None:
                wanted[each] = chosen
            else:
                found[each] = _why_not(view, each, is_unclean=is_unclean)
        if wanted:
            outcomes = control.change(wanted)
            lost = ErrorCode.REQUEST_TIMED_OUT  # another change was faster: the client may ask again
            found |= {each: NONE if outcomes[each].is_stored else lost for each in wanted}
            for each, state in wanted.items():
                if is_unclean and found[each] is NONE and state.leader is not None:
                    _warn_of_loss(each, state.leader.node_id, "an administrator has asked for it")
        return found

    def _unclean(self, view: View, partition: TopicPartition) -> PartitionState | None:
        if view.partitions[partition].leader is not None:
            return None
        found = self._decide(view, partition, allows_unclean=True)
        return None if found is None or found.state.leader is None else found.state

    def _decide(
        self, view: View, partition: TopicPartition, *, allows_unclean: bool = False
    ) -> Election | None:
        state, rules = view.partitions.get(partition), self._rules_of(partition[0])
        if state is None or rules is None:
            return None
        return elect(
            state,
            view.registrations,
            min_isr=rules.min_isr,
            is_durable=rules.is_durable,
            allows_unclean=allows_unclean or rules.allows_unclean,
        )

    def _elect(self, control: Control, view: View, partitions: Iterable[TopicPartition]) -> None:
        """Decide about partitions, and store what is decided. One whose state another has changed meanwhile
        is looked at again: the watch tells of it."""
        wanted: dict[TopicPartition, PartitionState] = {}
        notes: list[tuple[TopicPartition, Choice]] = []
        for each in partitions:
            found = self._decide(view, each)
            if found is not None and found.state != view.partitions[each]:
                wanted[each] = found.state
                notes.append((each, found.choice))
        if not wanted:
            return
        outcomes = control.change(wanted)
        stored = sum(outcome.is_stored for outcome in outcomes.values())
        inform("the controller has changed %d partitions", stored)
        for each, choice in notes:
            leader = wanted[each].leader
            if choice is Choice.UNCLEAN and outcomes[each].is_stored and leader is not None:
                _warn_of_loss(each, leader.node_id, "unclean.leader.election.enable")


def _warn_of_loss(partition: TopicPartition, leader_id: int, why: str) -> None:
    warn(
        "%s-%d: no replica that had everything lives; node %d leads, and what it does not have is lost (%s)",
        *partition,
        leader_id,
        why,
    )


def _why_not(view: View, partition: TopicPartition, *, is_unclean: bool) -> ErrorCode:
    """Why nothing was elected."""
    state = view.partitions[partition]
    if is_unclean:
        has_leader = state.leader is not None
        return ErrorCode.ELECTION_NOT_NEEDED if has_leader else ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    is_led = state.leader is not None and state.leader.node_id == state.replicas[0]
    return ErrorCode.ELECTION_NOT_NEEDED if is_led else ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
