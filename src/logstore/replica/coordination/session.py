"""A node's session on a tree: changes in the name of its life.

Each life has a text of its own, ``/logstore/lives/<life>``, bound to the session. Each change that a node
makes replaces it, by its version. So nothing is changed in the name of a life that is over. And if the
outcome of a change is not known, another replacement of the same version tells: either it succeeds, and the
first change can never be made any more, or the first has been made.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn
from uuid import UUID

from logstore.errors import CorruptionError, FencedError, RetriableError, UsageError
from logstore.format.header import NO_EPOCH
from logstore.replica.coordination import layout
from logstore.replica.coordination.batches import step_bytes
from logstore.replica.coordination.control import TreeControl
from logstore.replica.coordination.interface import (
    MOST_TEXT_BYTES,
    ControllerSeat,
    Outcome,
    Text,
    TopicPartition,
    View,
)
from logstore.replica.coordination.tree import (
    Check,
    Create,
    Delete,
    Lease,
    Refusal,
    Step,
    Stored,
    Tree,
    Why,
    Write,
)
from logstore.replica.rules.partition_state import Member, PartitionState, Registration
from logstore.warning import inform, warn

_PAUSE_SECONDS: Final = 0.05
_LAST_TRIES: Final = 3


def require(tree: Tree, path: str) -> Stored:
    """A text that is always there.

    Raises:
        CorruptionError: it is not.
    """
    stored = tree.read(path)
    if stored is None:
        raise CorruptionError("is missing", path=f"{tree.name}{path}")
    return stored


def steps_to_vacate(tree: Tree, member: Member) -> list[Step]:
    """What removes the node from the controller's seat, if it has that."""
    stored = tree.read(layout.CONTROLLER)
    if stored is not None:
        with contextlib.suppress(CorruptionError):  # then it is not ours
            if layout.decode_controller(stored.data).member == member:
                return [Delete(layout.CONTROLLER, stored.version)]
    return []


class TreeSession:
    """See :class:`~logstore.replica.coordination.interface.Session`.

    Lock: ``_lock`` orders the changes; it is held while one is made.
    """

    def __init__(
        self,
        tree: Tree,
        lease: Lease,
        registered: layout.RegisteredNode,
        view: Callable[[], View],
        check_usable: Callable[[], None],
    ) -> None:
        self._tree = tree
        self._lease = lease
        self._registered = registered
        self._view = view
        self._check_usable = check_usable
        self._life_path = layout.life_path(self.registration.life)
        self._life_version = 0
        """Of that text, unless something is in doubt."""
        self._count = 0
        self._in_doubt: str | None = None
        """What that text is if the last change was made, if that is not known."""
        self._has_been_seen = False
        self._lock = threading.Lock()

    @property
    def registration(self) -> Registration:
        return self._registered.node.registration

    @property
    def lease_until_ms(self) -> int:
        return self._lease.until_ms

    @property
    def has_lease(self) -> bool:
        return self._lease.holds

    @property
    def is_lost(self) -> bool:
        return self._lease.is_lost

    def end(self) -> None:
        """The node registers again."""
        self._lease.end()

    def look(self, view: View) -> None:
        """The registrations have changed. Somebody may have removed this one by hand."""
        present = view.living.get(self.registration.node_id)
        if present is not None and present.registration.life == self.registration.life:
            self._has_been_seen = True
        elif self._has_been_seen:
            self._lease.lose()

    # Changes

    def commit(self, steps: Sequence[Step]) -> Refusal | None:
        """Make a change in the name of this life. Its outcome is never unknown.

        Raises:
            FencedError: the life is over.
            RetriableError: the outcome cannot be told now.
        """
        self._check_usable()
        deadline = time.monotonic() + self._tree.patience_ms / 1000
        with self._lock:
            self._settle(deadline)
            while True:
                self._check_lost()
                self._count += 1
                token = f"change {self._count}"
                refusal = self._tree.commit([Write(self._life_path, token, self._life_version), *steps])
                if refusal is None:
                    self._life_version += 1
                    return None
                if refusal.why is not Why.UNKNOWN:
                    if refusal.at == 0:
                        self._be_fenced()
                    return Refusal(refusal.why, refusal.at - 1)
                self._in_doubt = token
                if self._settle(deadline):
                    return None

    def _settle(self, deadline: float) -> bool:
        """If the outcome of the last change is in doubt, find it out. Returns whether it was made."""
        while self._in_doubt is not None:
            self._check_lost()
            if time.monotonic() > deadline:
                raise RetriableError(f"{self._tree.name} does not answer; the last change may have been made")
            refusal = self._tree.commit([Write(self._life_path, "settled", self._life_version)])
            if refusal is None:
                self._life_version += 1
                self._in_doubt = None
                return False
            if refusal.why is Why.UNKNOWN:
                time.sleep(_PAUSE_SECONDS)
                continue
            stored = self._tree.read(self._life_path) if refusal.why is Why.CHANGED else None
            if stored is None:
                self._be_fenced()
            was_made = stored.data == self._in_doubt
            self._life_version, self._in_doubt = stored.version, None
            return was_made
        return False

    def _check_lost(self) -> None:
        if self._lease.is_lost:
            self._be_fenced()

    def _be_fenced(self) -> NoReturn:
        self._lease.lose()
        raise FencedError(
            f"life {self.registration.life} of node {self.registration.node_id} is over: {self._tree.name} "
            "has not heard of the node in time, or it has left or registered again"
        )

    def leave(self) -> None:
        node = self._registered.node
        left = self._registered._replace(
            node=node._replace(registration=node.registration._replace(is_leaving=True))
        )
        text = layout.encode_registration(left, self._tree.clock.now_ms())
        if self.commit([Write(layout.id_path(self.registration.node_id), text)]) is not None:
            self._be_fenced()
        self._registered = left

    def propose(self, changes: Mapping[TopicPartition, PartitionState]) -> dict[TopicPartition, Outcome]:
        seat = self._view().controller
        outcomes = self.change_states(changes, [], NO_EPOCH if seat is None else seat.epoch)
        assert outcomes is not None
        return outcomes

    def change_states(
        self, changes: Mapping[TopicPartition, PartitionState], checks: Sequence[Step], controller_epoch: int
    ) -> dict[TopicPartition, Outcome] | None:
        """Each change by itself, many at a time. None if one of ``checks``, which are made with each, was
        refused.

        Raises:
            FencedError: the life is over.
        """
        outcomes: dict[TopicPartition, Outcome] = {}
        left: dict[TopicPartition, tuple[Write, Check]] = {}
        markers = {name: self._marker_of(name) for name in {name for name, _ in changes}}
        for partition, state in changes.items():
            marker = markers[partition[0]]
            if marker is None:
                outcomes[partition] = Outcome(False, None)
                continue
            text = layout.encode_state(state, controller_epoch)
            left[partition] = Write(layout.state_path(partition), text, state.version), marker
        while left:
            batch = self._batch(left, len(checks))
            checked = [*checks, *dict.fromkeys(left[each][1] for each in batch)]
            refusal = self.commit([*checked, *(left[each][0] for each in batch)])
            if refusal is None:
                for each in batch:
                    stored = changes[each]._replace(version=changes[each].version + 1)
                    outcomes[each] = Outcome(True, stored)
                    del left[each]
            elif refusal.at < len(checks):
                return None
            elif refusal.at < len(checked):
                for each in [each for each in left if left[each][1] == checked[refusal.at]]:
                    outcomes[each] = Outcome(False, None)
                    del left[each]
            else:
                each = batch[refusal.at - len(checked)]
                stored_now = self._tree.read(layout.state_path(each))
                state_now = stored_now and layout.decode_state(layout.state_path(each), stored_now)
                outcomes[each] = Outcome(False, state_now)
                del left[each]
        return outcomes

    def _marker_of(self, name: str) -> Check | None:
        """What tells that it is still the same topic."""
        topic = self._view().topics.get(name)
        topic_id: UUID | None = None if topic is None else topic.topic_id
        if topic_id is None:  # it may be new
            stored = self._tree.read(layout.topic_path(name))
            topic_id = stored and layout.decode_topic_id(layout.topic_path(name), stored.data)
        return None if topic_id is None else Check(layout.topic_id_path(topic_id))

    def _batch(
        self, left: Mapping[TopicPartition, tuple[Write, Check]], check_count: int
    ) -> list[TopicPartition]:
        """As many as fit into one change."""
        batch: list[TopicPartition] = []
        step_count, size_bytes = 1 + check_count, 0
        for partition, (write, _) in left.items():
            step_count, size_bytes = step_count + 2, size_bytes + step_bytes(write)
            if batch and (step_count > self._tree.most_steps or size_bytes > self._tree.most_bytes):
                break
            batch.append(partition)
        return batch

    # Groups

    def configure_group(
        self, group: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> Mapping[str, str]:
        path = layout.group_config_path(group)
        while True:
            stored = self._tree.read(path)
            before = {} if stored is None else layout.decode_config(path, stored.data)
            after = change(before)
            if after == before:
                return before
            text = layout.encode_config(after)
            step: Step = Create(path, text)
            if stored is not None:
                step = Write(path, text, stored.version) if after else Delete(path, stored.version)
            if self.commit([step]) is None:
                return after

    # What the nodes have in common

    def replace_text(self, name: str, change: Callable[[str | None], str]) -> Text:
        path = layout.text_path(name)
        while True:
            stored = self._tree.read(path)
            after = change(None if stored is None else stored.data)
            if stored is not None and after == stored.data:
                return Text(*stored)
            size_bytes = len(after.encode())
            if size_bytes > MOST_TEXT_BYTES:
                raise UsageError(
                    f"the {name} of the cluster would have {size_bytes:,} bytes; "
                    f"{MOST_TEXT_BYTES:,} are allowed"
                )
            step = Create(path, after) if stored is None else Write(path, after, stored.version)
            if self.commit([step]) is None:
                return Text(after, 0 if stored is None else stored.version + 1)

    # The controller's seat

    def try_to_control(self) -> TreeControl | None:
        while self._tree.read(layout.CONTROLLER) is None:
            stored = require(self._tree, layout.CONTROLLER_EPOCH)
            epoch = layout.decode_number(layout.CONTROLLER_EPOCH, stored.data) + 1
            seat = ControllerSeat(self.registration.member, epoch)
            text = layout.encode_controller(seat, self._tree.clock.now_ms())
            refusal = self.commit(
                [
                    Create(layout.CONTROLLER, text, is_bound=True),
                    Write(layout.CONTROLLER_EPOCH, layout.encode_number(epoch), stored.version),
                ]
            )
            if refusal is None:
                inform("node %d is the controller, in epoch %d", seat.member.node_id, epoch)
                check = Check(layout.CONTROLLER_EPOCH, stored.version + 1)
                return TreeControl(self._tree, self, epoch, check, self._view)
        return None

    def close(self) -> None:
        if self._lease.is_lost:
            return
        self._check_usable()
        member = self.registration.member
        self._lease.end()
        try:
            steps: list[Step] = [Delete(self._life_path), Delete(layout.id_path(member.node_id))]
            steps += steps_to_vacate(self._tree, member)
            for _ in range(_LAST_TRIES):
                refusal = self._tree.commit(steps)
                if refusal is None or refusal.why is not Why.UNKNOWN:
                    return
            warn("node %d leaves, and %s does not answer", member.node_id, self._tree.name)
        except RetriableError as error:
            warn("node %d leaves without telling: %s", member.node_id, error)
        finally:
            self._tree.end_session()
