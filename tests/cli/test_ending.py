"""Commands that run until they are told to end do end, whenever they are told."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap

# The signal comes at the nth step of what a wait does in Python, for each n.
_PROGRAM = textwrap.dedent(
    """
    import signal, sys
    from logstore.cli.ending import until_told

    def told_at(step):
        ending, steps = until_told(), 0

        def trace(frame, event, argument):
            nonlocal steps
            steps += 1
            if steps == step:
                signal.raise_signal(signal.SIGTERM)
            return trace

        sys.settrace(trace)
        ending.wait(0.001)
        sys.settrace(None)
        assert ending.is_told == ending.wait(0) == (steps >= step), step
        return ending.is_told

    step = 1
    while told_at(step):
        step += 1
    assert step > 3
    """
)


def test_a_signal_that_comes_while_a_wait_begins_or_ends():
    subprocess.run([sys.executable, "-c", _PROGRAM], check=True, timeout=20)


def test_a_signal_ends_a_wait():
    program = "from logstore.cli.ending import until_told; ending = until_told(); print(flush=True); "
    with subprocess.Popen(
        [sys.executable, "-c", program + "ending.wait()"], stdout=subprocess.PIPE
    ) as waiting:
        waiting.stdout.readline()
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(20) == 0
