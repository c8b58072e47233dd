"""Ctrl-C in the middle of an import, as in the first moments of a program, can leave the lock of all imports
taken: Python may raise it right after taking that lock, before the ``try`` that gives it back. The thread of
the log cleaner imported what it needs: it waited for the lock without end, and ``close()`` for the thread."""

from __future__ import annotations

from tests.logdir.helpers import run_python

PROGRAM = """
import _imp, sys
import logstore
config = logstore.TopicConfig(cleanup_policy="compact")
store = logstore.open(sys.argv[1])
_imp.acquire_lock()  # as an interrupted import leaves it
topic = store.create_topic("t", config=config)
topic.append(b"x", key=b"y")
store.close()
print("closed")
"""


def test_the_log_cleaner_imports_nothing_in_its_threads(tmp_path):
    assert run_python(PROGRAM, tmp_path / "store", timeout=20).strip() == "closed"
