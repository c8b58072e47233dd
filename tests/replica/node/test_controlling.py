"""The thread of a node that may be the controller, beside the one that registers the node again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from logstore.replica.node.controller.controlling import Controlling
from tests.replica.node.cluster import eventually

VIEW = SimpleNamespace(controller=None, living={1}, partitions={})


class Life:
    """A session in which the node becomes the controller at once."""

    is_lost = False
    has_lease = True
    registration = SimpleNamespace(node_id=1)

    def __init__(self, number, meanwhile):
        self._number = number
        self._meanwhile = meanwhile

    def try_to_control(self):
        self._meanwhile()
        return f"control in life {self._number}"


@pytest.mark.parametrize("step", ["takes the seat", "prepares"])
def test_a_node_that_registers_again_meanwhile_controls_again(monkeypatch, step):
    """Its thread went on with no control, and ended; or with that of the life that was over."""
    done = []

    def note(what, control=None):
        if what == step and not done:
            controlling.begin(Life(2, lambda: None))
        if what != "takes the seat":
            done.append((what, control))

    monkeypatch.setattr(Controlling, "_elect", lambda _, control, *rest: note("elects", control))
    controlling = Controlling(lambda: VIEW, None, lambda control, _: note("prepares", control))
    try:
        controlling.begin(Life(1, lambda: note("takes the seat")))
        eventually(lambda: done[-2:] == [(each, "control in life 2") for each in ("prepares", "elects")])
        assert controlling.control == "control in life 2"
    finally:
        controlling.stop()
