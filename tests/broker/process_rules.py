"""What may happen to the processes of a group, whichever protocol they have: the rules that models share."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from tests.rotation import seed_of_turn

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


def run_in_turn(model: type[ProcessRules], *, examples: int, steps: int) -> None:
    """Sequences that are others in each turn."""
    run_state_machine_as_test(
        seed(seed_of_turn())(model),
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            database=None,
            suppress_health_check=list(HealthCheck),
        ),
    )
