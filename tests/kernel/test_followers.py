"""Followers where the system really has no watch to give, and where it really says nothing: limits of a user
namespace, and an overlay whose layers are written to behind its back."""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
import time
from itertools import islice

import pytest

import logstore
from tests.logdir.helpers import Child

FOLLOWER = """
    import sys, threading, logstore
    from logstore.partition.watching import waiting
    waiting.PATIENCE_MS = 0
    log = logstore.open(sys.argv[1], read_only=True)["t"][0]
    for record in log.follow(0):
        [follower] = log._followers
        print(record.value.decode(), follower._watch is not None, follower._is_told)
"""


def inside(commands, *arguments):
    """The follower behind shell commands, in namespaces of its own."""
    shell = f"{commands} && exec {sys.executable} -u -c '{textwrap.dedent(FOLLOWER)}' " + " ".join(arguments)
    if (
        shutil.which("unshare") is None
        or subprocess.run(
            ["unshare", "-Urm", "sh", "-c", commands], capture_output=True, check=False
        ).returncode
    ):
        pytest.skip("this system lets nobody do that here")
    return Child(f"import os; os.execvp('unshare', ['unshare', '-Urm', 'sh', '-c', {shell!r}])")


@pytest.fixture
def log(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        yield store.create_topic("t")[0]


def appended(log, follower):
    """Append records, each when the follower has had the one before and time to wait; whether it has a watch
    then, and whether it believes it."""
    for number in range(100):
        log.extend([b"%d" % number])
        value, *rest = follower.hear().split()
        assert value == str(number)
        yield tuple(word == "True" for word in rest)
        time.sleep(0.01)


@pytest.mark.parametrize("limit", ["instances", "watches"])
def test_a_user_who_has_as_many_as_allowed(log, tmp_path, limit):
    with inside(f"echo 0 > /proc/sys/user/max_inotify_{limit}", f"{tmp_path}/store") as follower:
        assert not any(has_watch for has_watch, _ in islice(appended(log, follower), 10))


def test_an_overlay_that_is_written_to_behind_its_back(log, tmp_path):
    for name in ("lower", "work", "merged"):
        (tmp_path / name).mkdir()
    layers = f"lowerdir={tmp_path}/lower,upperdir={tmp_path}/store,workdir={tmp_path}/work"
    mount = f"mount -t overlay overlay -o {layers} {tmp_path}/merged"
    with inside(mount, f"{tmp_path}/merged") as follower:
        assert (True, False) in appended(log, follower)  # it finds out that it is told nothing
