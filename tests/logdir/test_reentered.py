"""Calls of a whole store from within a change of one of its logs, in the thread that changes it: of signal
handlers, such as one for SIGTERM that closes the store, and of callbacks of progress. Other threads do a part
of them; these waited for the log, and the caller for them, without end."""

import subprocess
import sys

import pytest


def outcome(tmp_path, method, moment):
    program = [sys.executable, "-m", "tests.logdir.reentered_program", str(tmp_path / "s"), method, moment]
    done = subprocess.run(program, capture_output=True, text=True, timeout=30, check=True)
    return done.stdout.splitlines()


@pytest.mark.parametrize(
    ("method", "moment"),
    [
        ("close", "write"),
        ("flush", "write"),
        ("flush", "flush"),
        ("checkpoint", "write"),
        ("checkpoint", "flush"),
        ("enforce_retention", "write"),
        ("enforce_retention", "flush"),
    ],
)
def test_it_is_refused_and_all_goes_on(tmp_path, method, moment):
    refused, found = outcome(tmp_path, method, moment)
    assert refused.startswith("refused: ")
    assert found == "[b'a', b'b', b'c']"


def test_a_store_is_closed_beside_a_flush(tmp_path):
    assert outcome(tmp_path, "close", "flush") == ["closed", "[b'a', b'b']"]


@pytest.mark.parametrize("moment", ["compact", "erase"])
def test_a_store_is_closed_by_a_callback(tmp_path, moment):
    """It ends what calls it, as ``close()`` in another thread does."""
    assert outcome(tmp_path, "close", moment) == ["closed", "[b'a', b'b']"]
