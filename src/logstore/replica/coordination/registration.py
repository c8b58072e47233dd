"""How a node's life begins, on a tree.

1. End the sessions of dead processes. If the node id is still registered by another process, it is in use.
2. Take the next number from ``/logstore/last_life``. It is the node's from then on, whatever happens.
3. Let the node store it. If it dies here, its disk knows of a life that never began, which harms nothing.
4. In one change: the record of the node below ``/logstore/nodes``, the text of the life, and Kafka's
   registration below ``/brokers/ids``. The record is replaced by its version. So of two processes that
   register the node at the same time one begins again, and the lives of a node begin in the order of their
   numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from logstore.errors import CorruptionError, LockedError, RetriableError
from logstore.replica.coordination import layout
from logstore.replica.coordination.interface import LivingNode, Node
from logstore.replica.coordination.registering import NodeRecord, begin_life
from logstore.replica.coordination.session import require, steps_to_vacate
from logstore.replica.coordination.tree import Create, Delete, Lease, Step, Stored, Tree, Why, Write
from logstore.replica.rules.partition_state import Registration
from logstore.warning import warn

_PAUSE_SECONDS: Final = 0.05
_TELL_AFTER_SECONDS: Final = 1.0


class Registering:
    """One registration, until it succeeds or is refused."""

    def __init__(self, tree: Tree, node: Node, remember: Callable[[int], None], process: str) -> None:
        """
        Args:
            process: tells this process from others that register the node.
        """
        self._tree = tree
        self._node = node
        self._remember = remember
        self._process = process

    def run(self, lease: Lease, wait_ms: int) -> layout.RegisteredNode:
        """
        Raises:
            LockedError: the node id is in use.
            RetriableError: the session was lost meanwhile, or others are always faster.
        """
        started = time.monotonic()
        waits_until = started + wait_ms / 1000
        ends_at = max(waits_until, started + self._tree.patience_ms / 1000)
        tells_at = min(started + _TELL_AFTER_SECONDS, waits_until)
        while True:
            registered = self._try()
            if lease.is_lost:
                raise RetriableError(f"{self._tree.name} has ended the session at once; register again")
            if registered is not None:
                return registered
            holder = self._holder()
            if holder is not None and time.monotonic() >= waits_until:
                advice = (
                    "give this node another id, stop that one, or wait for the end of its session: wait_ms"
                )
                raise LockedError(f"node id {self._node.node_id} is in use by {holder}", advice)
            if holder is not None and time.monotonic() >= tells_at:
                tells_at = waits_until
                warn(
                    "node id %d is in use by %s; waiting up to %.0f s for that process to be taken for dead",
                    self._node.node_id,
                    holder,
                    waits_until - time.monotonic(),
                )
            if time.monotonic() >= ends_at:
                raise RetriableError(f"{self._tree.name} did not register node {self._node.node_id} in time")
            time.sleep(_PAUSE_SECONDS)

    def _try(self) -> layout.RegisteredNode | None:
        tree, node = self._tree, self._node
        tree.bury()
        path = layout.node_path(node.node_id)
        known = tree.read(path)
        ends_earlier = self._steps_that_take_over()
        if ends_earlier is None:
            return None
        record = NodeRecord() if known is None else layout.decode_record(path, known.data)
        life = self._next_life()
        self._remember(life)
        record = begin_life(record, node, life)
        self._node = node._replace(last_life=life)  # nothing was written since, should this be tried again
        registration = Registration(
            node.node_id,
            life,
            record.whole_since,
            record.durable_since,
            rack=node.rack,
            disk_since=record.disk_since,
        )
        registered = layout.RegisteredNode(LivingNode(registration, node.endpoints), self._process)
        text = layout.encode_record(record)
        refusal = tree.commit(
            [
                *ends_earlier,
                Create(path, text) if known is None else Write(path, text, known.version),
                Create(layout.life_path(life), "", is_bound=True),
                Create(
                    layout.id_path(node.node_id),
                    layout.encode_registration(registered, tree.clock.now_ms()),
                    is_bound=True,
                ),
            ]
        )
        if refusal is None:
            return registered
        # If it is made later, the next try finds it, or its record.
        was_made = refusal.why is Why.UNKNOWN and tree.read(layout.life_path(life)) is not None
        return registered if was_made else None

    def _present(self) -> tuple[Stored, layout.RegisteredNode] | None:
        path = layout.id_path(self._node.node_id)
        stored = self._tree.read(path)
        return None if stored is None else (stored, layout.decode_registration(path, stored.data))

    def _holder(self) -> str | None:
        """Who has the node id, in words; None if no other process has it."""
        present = self._present()
        if present is None or present[1].process == self._process:
            return None
        node = present[1].node
        where = ", ".join(f"{each.host}:{each.port}" for each in node.endpoints) or "another process"
        return f"{where}, in its life {node.registration.life}"

    def _steps_that_take_over(self) -> list[Step] | None:
        """What ends an earlier registration of this process; None if another one has the node id."""
        present = self._present()
        if present is None:
            return []
        stored, registered = present
        if registered.process != self._process:
            return None
        life = layout.life_path(registered.node.registration.life)
        steps: list[Step] = [Delete(layout.id_path(self._node.node_id), stored.version)]
        if self._tree.read(life) is not None:
            steps.append(Delete(life))
        return steps + steps_to_vacate(self._tree, registered.node.registration.member)

    def _next_life(self) -> int:
        """A number that nobody had.

        Raises:
            CorruptionError: the node has had a higher one.
            RetriableError: others are always faster.
        """
        deadline = time.monotonic() + self._tree.patience_ms / 1000
        while time.monotonic() < deadline:
            stored = require(self._tree, layout.LAST_LIFE)
            last = layout.decode_number(layout.LAST_LIFE, stored.data)
            if self._node.last_life > last:
                raise CorruptionError(
                    f"knows of {last} lives, but node {self._node.node_id} has had life "
                    f"{self._node.last_life}: this is an older copy, or another cluster",
                    path=self._tree.name,
                )
            number = layout.encode_number(last + 1)
            if self._tree.commit([Write(layout.LAST_LIFE, number, stored.version)]) is None:
                return last + 1
        raise RetriableError(f"{self._tree.name} did not give node {self._node.node_id} a life in time")
