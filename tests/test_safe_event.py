"""An event that signal handlers may set: whenever they do, who waits goes on."""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading
import time

import pytest

from logstore.turns import SafeEvent

# The signal comes at the nth step of what a wait does in Python, for each n.
_PROGRAM = textwrap.dedent(
    """
    import signal, sys
    from logstore.turns import SafeEvent

    def rung_at(step):
        event, steps = SafeEvent(), 0
        signal.signal(signal.SIGTERM, lambda *_: event.set())

        def trace(frame, event, argument):
            nonlocal steps
            steps += 1
            if steps == step:
                signal.raise_signal(signal.SIGTERM)
            return trace

        sys.settrace(trace)
        event.wait(0.001)
        sys.settrace(None)
        assert event.is_set() == event.wait(0) == (steps >= step), step
        return event.is_set()

    step = 1
    while rung_at(step):
        step += 1
    assert step > 3
    """
)


def test_a_signal_that_comes_while_a_wait_begins_or_ends():
    """An Event would be set by the thread that has its lock."""
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, timeout=20)


@pytest.mark.parametrize("timeout", [-1, 0, 0.001])
def test_nobody_rings(timeout):
    assert not SafeEvent().wait(timeout)


def test_all_who_wait_go_on():
    event = SafeEvent()
    threads = [threading.Thread(target=event.wait) for _ in range(3)]
    for thread in threads:
        thread.start()
    time.sleep(0.01)
    event.set()
    for thread in threads:
        thread.join(10)
    assert not any(thread.is_alive() for thread in threads)
    assert event.is_set()
    assert event.wait(0)


def test_a_event_that_is_cleared_is_waited_for_again():
    event = SafeEvent()
    for _ in range(3):
        event.set()
        event.set()
        assert event.wait(0)
        event.clear()
        assert not event.is_set()
        assert not event.wait(0)
