"""A process with one node. It acts as long as it has the lease, and does what it is told:

* ``register``, ``control``, ``lead``: the outcome, or the name of the error;
* ``race N``: raise the leader epoch N times by compare-and-set; in how many tries;
* ``ask``: when it has last acted, and the latest end of its lease, by the coordinator's clock.
"""

from __future__ import annotations

import threading
import time

from logstore.errors import LogstoreError
from logstore.replica.rules.partition_state import Member
from tests.replica.coordination.places import Disk, elected, open_coordinator, register


class Program:
    def __init__(self, kind, where, node_id, session_ms):
        self._node_id = node_id
        self._coordinator = open_coordinator(kind, where, session_ms=session_ms)
        self._disk = Disk(f"disk of {node_id}")
        self._session = self._control = None
        self._acted_ms = self._lease_ms = 0
        self._lost = threading.Event()
        threading.Thread(target=self._act, daemon=True).start()

    def _act(self):
        while True:
            session = self._session
            if session is not None:
                now_ms, until_ms = self._coordinator.clock.monotonic_ms(), session.lease_until_ms
                self._lease_ms = max(self._lease_ms, until_ms)
                if now_ms < until_ms:
                    self._acted_ms = now_ms
            time.sleep(0.001)

    def register(self):
        self._session = register(self._coordinator, self._node_id, self._disk, on_lost=self._lost.set)
        return self._session.registration.life

    def control(self):
        self._control = self._session.try_to_control()
        return None if self._control is None else self._control.epoch

    def lead(self):
        """As the controller, make itself the leader."""
        state = self._coordinator.read_state(("t", 0))
        (outcome,) = self._control.change({("t", 0): elected(state, Member(self._node_id, 1))}).values()
        return outcome.is_stored

    def race(self, count):
        tries, done = 0, 0
        state = self._coordinator.read_state(("t", 0))
        while done < int(count):
            outcomes = self._session.propose({("t", 0): elected(state, self._session.registration.member)})
            state = outcomes["t", 0].state
            done += outcomes["t", 0].is_stored
            tries += 1
        return tries

    def ask(self):
        return {
            "acted_ms": self._acted_ms,
            "lease_ms": max(self._lease_ms, self._session._lease._until_ms),  # it may not have acted since
            "is_lost": self._session.is_lost,
            "was_told": self._lost.is_set(),
        }


def serve(pipe, *options):
    program = Program(*options)
    pipe.send("ready")
    while True:
        try:
            word, *rest = pipe.recv().split()
        except EOFError:
            return
        try:
            said = getattr(program, word)(*rest)
        except LogstoreError as error:
            said = type(error).__name__
        pipe.send(said)
