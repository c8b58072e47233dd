"""What administrators ask of the controller about partitions: who is to lead them, and where they go."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from typing import Final

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.requests import Reassignment
from logstore.model import TopicPartition
from logstore.replica.coordination.interface import Control, View
from logstore.replica.node.controller.awaiting import await_view
from logstore.replica.node.controller.deciding import Decisions
from logstore.replica.node.limiting import CatchUpLimit
from logstore.replica.rules.partition_state import PartitionState
from logstore.replica.rules.reassigning import is_moving, origin, target
from logstore.warning import inform, warn
from logstore.wire.handlers.call import Moved

Goal = tuple[int, ...]
_TRIES: Final = 5
"""To change a state that others change meanwhile."""
_IS_LOST: Final = Moved(ErrorCode.REQUEST_TIMED_OUT, "it was changed meanwhile; ask again")


class Administering:
    """Safe to use from many threads."""

    def __init__(
        self,
        view: Callable[[], View],
        decisions: Decisions,
        control: Callable[[], Control | None],
        limit: CatchUpLimit,
    ) -> None:
        self.limit = limit
        self._view = view
        self._decisions = decisions
        self._control = control

    # Leaders

    def elect(
        self, partitions: Collection[TopicPartition] | None, *, is_unclean: bool
    ) -> dict[TopicPartition, ErrorCode] | None:
        """Let the preferred leader lead each of these partitions, or all; or, of those without a leader, any
        replica that lives: what that does not have is lost. Says what came of each; None if this node is not
        the controller.

        Raises:
            LogstoreError: the coordinator cannot be reached.
        """
        control, view = self._control(), self._view()
        if control is None:
            return None
        found: dict[TopicPartition, ErrorCode] = {}
        wanted: dict[tuple[str, int], PartitionState] = {}
        for one in view.partitions if partitions is None else partitions:
            each = TopicPartition(*one)
            if each not in view.partitions:
                found[each] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                continue
            chosen = self._unclean(view, each) if is_unclean else self._decisions.prefer(view, each)
            if chosen is not None:
                wanted[each] = chosen
            else:
                found[each] = _why_not(view, each, is_unclean=is_unclean)
        if wanted:
            outcomes = control.change(wanted)
            lost = ErrorCode.REQUEST_TIMED_OUT  # another change was faster: the client may ask again
            for one, state in wanted.items():
                each = TopicPartition(*one)
                found[each] = NONE if outcomes[each].is_stored else lost
                if is_unclean and found[each] is NONE and state.leader is not None:
                    warn_of_loss(each, state.leader.node_id, "an administrator has asked for it")
        return found

    def _unclean(self, view: View, partition: TopicPartition) -> PartitionState | None:
        if view.partitions[partition].leader is not None:
            return None
        found = self._decisions.elect(view, partition, allows_unclean=True)
        return None if found is None or found.state.leader is None else found.state

    # Places

    def moving(self) -> dict[TopicPartition, Reassignment]:
        """The partitions that move."""
        return {
            TopicPartition(*each): Reassignment(state.replicas, state.adding, state.removing)
            for each, state in self._view().partitions.items()
            if is_moving(state)
        }

    def reassign(
        self, wanted: Mapping[TopicPartition, Goal | None], *, may_change_factor: bool
    ) -> dict[TopicPartition, Moved] | None:
        """Begin to move partitions to these nodes; or call off (None) what moves. Says what came of each;
        None if this node is not the controller.

        Raises:
            LogstoreError: the coordinator cannot be reached.
        """
        control, view = self._control(), self._view()
        if control is None:
            return None
        found: dict[TopicPartition, Moved] = {}
        states = {each: view.partitions.get(each) for each in wanted}
        for _ in range(_TRIES):
            changes: dict[tuple[str, int], PartitionState] = {}
            for each in [each for each in wanted if each not in found]:
                outcome = self._moved(view, each, states[each], wanted[each], may_change_factor)
                if isinstance(outcome, Moved):
                    found[each] = outcome
                else:
                    changes[each] = outcome
            if not changes:
                break
            for one, change in control.change(changes).items():
                each = TopicPartition(*one)
                states[each] = change.state
                if change.is_stored:
                    found[each] = Moved(NONE)
                    inform("%s is on its way to %s", each, list(target(changes[each])))
        await_view(self._view, lambda view: _has_states(view, states))
        return {each: found.get(each, _IS_LOST) for each in wanted}

    def _moved(
        self,
        view: View,
        partition: TopicPartition,
        state: PartitionState | None,
        wanted: Goal | None,
        may_change_factor: bool,
    ) -> PartitionState | Moved:
        if state is None:
            return Moved(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "there is no such partition")
        if wanted is None and not is_moving(state):
            return Moved(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "it does not move")
        goal = origin(state) if wanted is None else wanted
        if wanted is not None:
            refused = _refusal(view, state, wanted, may_change_factor)
            if refused is not None:
                return refused
            if goal == target(state):
                return Moved(NONE)  # it is there, or on its way
        decided = self._decisions.reassign(view, partition.topic, state, goal)
        if decided is None:
            why = "none of the replicas that would be left has everything"
            return Moved(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
        return decided


def _has_states(view: View, states: Mapping[TopicPartition, PartitionState | None]) -> bool:
    """Whether it knows of these states, or later ones."""
    return all(
        state is None or (each in view.partitions and view.partitions[each].version >= state.version)
        for each, state in states.items()
    )


def _refusal(view: View, state: PartitionState, wanted: Goal, may_change_factor: bool) -> Moved | None:
    if not wanted or len(set(wanted)) != len(wanted):
        why = f"the replicas {list(wanted)} must be some nodes, each once"
        return Moved(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    strange = [each for each in wanted if each not in view.living and each not in state.replicas]
    if strange:
        why = f"no living node has the number {strange[0]}"
        return Moved(ErrorCode.INVALID_REPLICA_ASSIGNMENT, why)
    factor = len(target(state))
    if not may_change_factor and len(wanted) != factor:
        return Moved(ErrorCode.INVALID_REPLICATION_FACTOR, f"the replication factor is {factor}")
    return None


def warn_of_loss(partition: tuple[str, int], leader_id: int, why: str) -> None:
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
