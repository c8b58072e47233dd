"""Commands that run until they are told to end."""

from __future__ import annotations

import signal
import subprocess
import sys


def test_a_signal_ends_a_wait():
    program = "from logstore.cli.ending import until_told; ending = until_told(); print(flush=True); "
    with subprocess.Popen(
        [sys.executable, "-c", program + "ending.wait()"], stdout=subprocess.PIPE
    ) as waiting:
        waiting.stdout.readline()
        waiting.send_signal(signal.SIGTERM)
        assert waiting.wait(20) == 0
