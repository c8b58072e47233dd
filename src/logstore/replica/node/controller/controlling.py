"""The controller: one of the nodes, which elects leaders when nodes come and go.

Every node tries to be it. A thread waits for news, decides by :func:`~logstore.replica.rules.electing.elect`
about the partitions that the news may concern, and changes all their states in a few steps. From time to time
it gives partitions back to their preferred leaders. Partitions that move lose the replicas that are not to be
there any more, once the others have caught up.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Final

from logstore.errors import FencedError, LogstoreError
from logstore.replica.coordination.interface import Control, Session, TopicPartition, View, ViewChange
from logstore.replica.node.controller.administering import warn_of_loss
from logstore.replica.node.controller.deciding import Decisions
from logstore.replica.rules.electing import Choice
from logstore.replica.rules.partition_state import PartitionState
from logstore.schedule import start_thread
from logstore.warning import inform, warn

_TRY_SECONDS: Final = 0.5
_STOP_SECONDS: Final = 10
_TOLERATED_SHARE: Final = 0.1
"""Of the partitions that prefer a node, so many may be led by others: Kafka's
``leader.imbalance.per.broker.percentage``."""


class _Life:
    """What the node is in one session."""

    def __init__(self, session: Session) -> None:
        self.session = session
        self.control: Control | None = None
        """If it is the controller."""
        self.is_ready = False
        """Whether it has done what comes first."""


class Controlling:
    """One node's part in it."""

    def __init__(
        self,
        view: Callable[[], View],
        decisions: Decisions,
        prepare: Callable[[Control, View], None],
        balance_seconds: float = 0,
    ) -> None:
        """``prepare``: what is to be done first by a node that has become the controller.
        ``balance_seconds``: how often partitions are given back to their preferred leaders; 0: never."""
        self._view = view
        self._decisions = decisions
        self._balance_seconds = balance_seconds
        self._balance_at = time.monotonic() + balance_seconds
        self._prepare = prepare
        self._life: _Life | None = None
        self._lock = threading.Lock()
        self._changed: set[TopicPartition] = set()
        self._changed_topics: set[str] = set()
        """Those of which the settings may be others now, which concern all their partitions."""
        self._has_all_changed = True
        self._bell = threading.Event()
        self._is_stopped = False
        self._thread = start_thread(self._run, "logstore-controller", what="to elect leaders")

    @property
    def control(self) -> Control | None:
        """What the controller may do, if this node is it, and knows of all there is."""
        life = self._life
        return None if life is None or not life.is_ready else life.control

    def begin(self, session: Session) -> None:
        """The node has a new life. What the thread is about to do for the last one stays with that."""
        self._life = _Life(session)
        self._bell.set()

    def note(self, change: ViewChange) -> None:
        """Something has changed."""
        with self._lock:
            self._has_all_changed |= change.living or change.controller
            self._changed |= change.partitions
            self._changed_topics |= change.topics
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
            life = self._life
            if life is None:
                continue
            try:
                self._step(life)
                trouble = None
            except FencedError:
                life.control, life.is_ready = None, False
            except LogstoreError as error:
                with self._lock:
                    self._has_all_changed = True
                if str(error) != trouble:
                    warn("no leaders can be elected: %s", error)
                trouble = str(error)

    def _step(self, life: _Life) -> None:
        session = life.session
        if self._is_stopped or session.is_lost or not session.has_lease:
            return
        control = life.control
        if control is None:
            if self._view().controller is not None:
                return
            control = life.control = session.try_to_control()
            if control is None:
                return
        if not life.is_ready:
            if session.registration.node_id not in self._view().living:
                return  # it has not been told yet of anything
            self._prepare(control, self._view())
            life.is_ready = True
            with self._lock:
                self._has_all_changed = True
        with self._lock:
            changed, self._changed = self._changed, set()
            topics, self._changed_topics = self._changed_topics, set()
            has_all, self._has_all_changed = self._has_all_changed, False
        view = self._view()
        if has_all:
            self._elect(control, view, view.partitions)
        elif changed or topics:
            changed |= {each for each in view.partitions if each[0] in topics}
            self._elect(control, view, changed)
        if self._balance_seconds and time.monotonic() >= self._balance_at:
            self._balance_at = time.monotonic() + self._balance_seconds
            self._balance(control, view)

    def _balance(self, control: Control, view: View) -> None:
        """Nodes that lead much less than what prefers them lead that again."""
        preferring = Counter(state.replicas[0] for state in view.partitions.values())
        wanted: dict[TopicPartition, PartitionState] = {}
        for each in view.partitions:
            state = self._decisions.prefer(view, each)
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

    def _elect(self, control: Control, view: View, partitions: Iterable[TopicPartition]) -> None:
        """Decide about partitions, and store what is decided. One whose state another has changed meanwhile
        is looked at again: the watch tells of it."""
        wanted: dict[TopicPartition, PartitionState] = {}
        notes: list[tuple[TopicPartition, Choice]] = []
        for each in partitions:
            found = self._decisions.elect(view, each)
            if found is None:
                continue
            if found.state != view.partitions[each]:
                wanted[each] = found.state
                notes.append((each, found.choice))
                continue
            arrived = self._decisions.arrive(view, each)
            if arrived is not None:
                inform("%s-%d is on the nodes %s now", *each, list(arrived.replicas))
                wanted[each] = arrived
        if not wanted:
            return
        outcomes = control.change(wanted)
        stored = sum(outcome.is_stored for outcome in outcomes.values())
        inform("the controller has changed %d partitions", stored)
        for each, choice in notes:
            leader = wanted[each].leader
            if choice is Choice.UNCLEAN and outcomes[each].is_stored and leader is not None:
                warn_of_loss(each, leader.node_id, "unclean.leader.election.enable")
