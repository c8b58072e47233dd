"""What may happen to the processes of a group, whichever protocol they have: the rules that models share."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

choices = st.integers(0, 99)


def _has_live(model: ProcessRules) -> bool:
    return bool(model.world.live)


class ProcessRules(RuleBasedStateMachine):
    """``world`` has ``processes``, and ``live`` ones."""

    world: Any

    def pick(self, choice: int, processes: list[Any] | None = None) -> Any:
        """One of them, by their age; of those that live, if none are given."""
        found = self.world.live if processes is None else processes
        return sorted(found, key=lambda process: process.started)[choice % len(found)]

    @precondition(_has_live)
    @rule(choice=choices)
    def leave(self, choice: int) -> None:
        self.pick(choice).leave()

    @precondition(_has_live)
    @rule(choice=choices)
    def crash(self, choice: int) -> None:
        self.pick(choice).is_alive = False

    @precondition(_has_live)
    @rule(choice=choices)
    def stall(self, choice: int) -> None:
        self.pick(choice).is_stalled = True

    @rule(choice=choices)
    def resume(self, choice: int) -> None:
        stalled = [process for process in self.world.processes if process.is_stalled]
        if stalled:
            self.pick(choice, stalled).is_stalled = False
