"""The thread of a node that may be the controller, beside the one that registers the node again."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from logstore.replica.coordination.interface import ViewChange
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


def test_a_new_topic_concerns_only_its_own_partitions(monkeypatch):
    """Whoever made one topic after the other waited for elections of all that there were, each time."""
    looked_at = []
    monkeypatch.setattr(
        Controlling, "_elect", lambda _, __, ___, partitions: looked_at.append(set(partitions))
    )
    view = SimpleNamespace(**{**vars(VIEW), "partitions": dict.fromkeys([("t", 0), ("t", 1), ("u", 0)])})
    nothing = ViewChange(view, False, False, frozenset(), frozenset())
    controlling = Controlling(lambda: view, None, lambda *_: None)
    try:
        controlling.begin(Life(1, lambda: None))
        eventually(lambda: looked_at == [set(view.partitions)])
        controlling.note(nothing._replace(topics=frozenset("t")))
        eventually(lambda: looked_at[1:] == [{("t", 0), ("t", 1)}])
        controlling.note(nothing._replace(living=True))
        eventually(lambda: looked_at[2:] == [set(view.partitions)])
    finally:
        controlling.stop()


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
