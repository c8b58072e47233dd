"""Real processes that are stopped and killed. 12 s with files, 20 s with ZooKeeper."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from multiprocessing import forkserver
from unittest import mock

import pytest

from tests.replica.coordination import node_program
from tests.replica.coordination.places import SESSION_MS, Told, create_topic, elected, eventually, register

_context = multiprocessing.get_context("forkserver")  # has everything imported: a process begins at once
_context.set_forkserver_preload([node_program.__name__])


class Process:
    """One of :mod:`.node_program`."""

    def __init__(self, place, node_id, session_ms=SESSION_MS):
        self._pipe, theirs = _context.Pipe()
        options = (theirs, place.kind, place.where, node_id, session_ms)
        self._process = _context.Process(target=node_program.serve, args=options, daemon=True)
        self._process.start()
        theirs.close()

    def ready(self):
        assert self.answer() == "ready"
        return self

    def say(self, line):
        self._pipe.send(line)

    def answer(self):
        assert self._pipe.poll(60)
        return self._pipe.recv()

    def do(self, line):
        self.say(line)
        return self.answer()

    def signal(self, number):
        os.kill(self._process.pid, number)

    def end(self):
        self._process.kill()
        self._process.join()
        self._pipe.close()


@pytest.fixture(scope="module")
def forks():
    """The server that the processes are forked from looks for modules only where the environment says."""
    with mock.patch.dict(os.environ, PYTHONPATH=os.pathsep.join(sys.path)):
        forkserver.ensure_running()


@pytest.fixture
def start(place, forks):
    started = []

    def start(node_id, **options):
        started.append(Process(place, node_id, **options))
        return started[-1]

    yield start
    for each in started:
        each.end()


def _gone_ms(coordinator, node_id):
    """When it was seen that the node is gone, by the coordinator's clock."""
    eventually(lambda: node_id not in coordinator.view.living)
    return coordinator.clock.monotonic_ms()


def test_a_stopped_leader_has_no_lease_when_another_sees_it_gone(place, start):
    """It does not know that it was stopped. When it goes on, it acts no more, and is no longer the
    controller; and it begins another life."""
    process = start(1).ready()
    life = process.do("register")
    assert process.do("control") == 1
    here = place.open()
    session = register(here, 2)
    eventually(lambda: 1 in here.view.living)
    time.sleep(0.1)
    process.signal(signal.SIGSTOP)
    stopped_ms = here.clock.monotonic_ms()
    gone_ms = _gone_ms(here, 1)
    control = eventually(session.try_to_control)
    assert control.epoch == 2
    create_topic(control)
    time.sleep(0.2)
    process.signal(signal.SIGCONT)
    assert process.do("lead") == "FencedError"
    said = process.do("ask")
    assert said["is_lost"]
    assert said["acted_ms"] <= said["lease_ms"] < gone_ms
    assert said["lease_ms"] > stopped_ms
    assert gone_ms - stopped_ms < 3 * SESSION_MS
    eventually(lambda: process.do("ask")["was_told"])
    assert process.do("register") > life
    assert eventually(lambda: here.view.living.get(1)).registration.whole_since == 0
    acted_ms = process.do("ask")["acted_ms"]
    assert acted_ms == said["acted_ms"] or acted_ms > gone_ms


def test_a_process_that_was_stopped_for_a_moment_keeps_its_life(place, start):
    process = start(1, session_ms=4 * SESSION_MS).ready()
    process.do("register")
    process.signal(signal.SIGSTOP)
    time.sleep(SESSION_MS / 1000)
    process.signal(signal.SIGCONT)
    before = process.do("ask")
    assert not before["is_lost"]
    eventually(lambda: process.do("ask")["acted_ms"] > before["acted_ms"] + SESSION_MS)
    assert not process.do("ask")["is_lost"]


def test_a_killed_process_is_gone(place, start):
    """With files at once, however long its session is."""
    session_ms = 30_000 if place.kind == "files" else SESSION_MS
    process = start(1, session_ms=session_ms).ready()
    process.do("register")
    process.do("control")
    here = place.open()
    eventually(lambda: 1 in here.view.living and here.view.controller)
    process.signal(signal.SIGKILL)
    killed_ms = here.clock.monotonic_ms()
    gone_ms = _gone_ms(here, 1)
    assert gone_ms - killed_ms < (3_000 if place.kind == "files" else 3 * SESSION_MS)
    eventually(lambda: here.view.controller is None)
    again = start(1).ready()
    assert again.do("register") == 2


def test_a_killed_process_comes_back_at_once_if_nobody_else_looks(place, start):
    """With ZooKeeper its node id is in use until its session ends."""
    process = start(1).ready()
    process.do("register")
    process.end()
    again = start(1).ready()
    if place.kind == "files":
        assert again.do("register") == 2
    else:
        found = again.do("register")
        assert found == "LockedError" or found == 2
        eventually(lambda: again.do("register") != "LockedError")


def test_a_node_id_is_in_use_while_its_process_is_stopped(place, start):
    process = start(1, session_ms=20_000).ready()
    process.do("register")
    process.signal(signal.SIGSTOP)
    assert start(1).ready().do("register") == "LockedError"


def test_what_processes_change_at_once_adds_up(place, start):
    processes = [start(node_id) for node_id in (1, 2, 3)]
    here = place.open()
    create_topic(register(here, 4).try_to_control())
    told = Told(here)
    for process in processes:
        process.ready().do("register")
    for process in processes:
        process.say("race 20")
    tries = [process.answer() for process in processes]
    state = here.read_state(("t", 0))
    assert state.version == state.leader_epoch == 60
    assert sum(tries) >= 60
    eventually(lambda: told.view.partitions["t", 0] == state)
    versions = [change.view.partitions["t", 0].version for change in told.changes if change.partitions]
    assert versions == sorted(set(versions))


def test_processes_that_are_killed_in_a_change_leave_all_or_nothing_of_it(place, start):
    """And hold up nobody else."""
    here = place.open()
    session = register(here, 9)
    create_topic(session.try_to_control())
    for round_ in range(4):
        process = start(1).ready()
        eventually(lambda process=process: process.do("register") != "LockedError")
        process.say("race 100000")
        time.sleep(0.1 + 0.02 * round_)
        process.signal(signal.SIGSTOP if round_ == 3 else signal.SIGKILL)
        state = here.read_state(("t", 0))
        (outcome,) = session.propose({("t", 0): elected(state, session.registration.member)}).values()
        assert outcome.is_stored
        assert outcome.state.version == outcome.state.leader_epoch > round_
