"""Real processes that are killed while they make backups, a first one and incremental ones."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys

import pytest

from logstore.errors import UsageError
from tests.backup.helpers import contents, open_store, read_all
from tests.rotation import seed_of_turn

PROGRAM = """
import sys
from tests.backup.helpers import fill, open_store

path, backup = sys.argv[1:]
with open_store(path) as store:
    topic = store.require_topic("orders", partitions=4)
    while True:
        for log in topic:
            fill(log, 5, start=log.log_end_offset)
            if log.log_end_offset % 7 == 0:
                log.delete_before(log.log_end_offset - 30)
        ends = [log.log_end_offset for log in topic]
        print("begins", *ends, flush=True)
        store.backup(backup)
        print("done", *ends, flush=True)
"""


def run_and_kill(tmp_path, at_line, turns):
    """The lines that the program has printed; it is killed behind one of them, so many system calls later."""
    command = [sys.executable, "-c", PROGRAM, str(tmp_path / "data"), str(tmp_path / "backup")]
    lines = []
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        for line in child.stdout:
            lines.append(line.split())
            if len(lines) == at_line:
                for _ in range(turns):  # a moment that no clock measures
                    os.listdir(tmp_path)
                child.send_signal(signal.SIGKILL)
    assert child.returncode == -signal.SIGKILL
    return lines


def ends_of(found):
    return [log[1] for log in found["orders"][3].values()]


def kills(tmp_path, seed, count):
    rng = random.Random(seed)
    least = None
    left_behind = 0
    for _ in range(count):
        lines = run_and_kill(tmp_path, rng.choice([1, 3, 5]), rng.randrange(2_000))
        done = [list(map(int, ends)) for what, *ends in lines if what == "done"]
        least = done[-1] if done else least
        if (tmp_path / "backup").exists():
            found = read_all(tmp_path / "backup")
            assert least is None or all(end >= at for end, at in zip(ends_of(found), least, strict=True))
            with open_store(tmp_path / "backup", read_only=True) as copy:
                assert copy.was_clean
                assert copy.verify()
        else:
            assert least is None
        partial = tmp_path / "backup.partial"
        if partial.exists() and set(os.listdir(partial)) - {".lock"}:
            left_behind += 1
            try:
                read_all(partial)
            except UsageError as error:
                assert "unfinished backup" in str(error)  # noqa: PT017 - or it is whole
            else:
                with open_store(partial, read_only=True) as copy:
                    assert copy.verify()
    with open_store(tmp_path / "data") as store:
        store.backup(tmp_path / "backup")
        assert read_all(tmp_path / "backup") == contents(store)
        assert store.verify()
    assert sorted(os.listdir(tmp_path)) == ["backup", "data"]
    return left_behind


def test_killed_backups(tmp_path):
    kills(tmp_path, seed_of_turn(), 4)


@pytest.mark.soak
def test_many_killed_backups(tmp_path):
    assert kills(tmp_path, 1, 150) > 20
