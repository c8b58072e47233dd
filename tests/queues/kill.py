"""Kill processes of twenty workers, and compare what they leave with what was promised.

    python -m tests.queues.kill --kills 500 --seed 1 /dev/shm/kills

A directory serves a dozen processes, one after another: each goes on where the last one was killed.
"""

from __future__ import annotations

import os
import random
import shutil
from typing import Any

import logstore
from logstore.testing import ManualClock
from tests.kernel import killing
from tests.kernel.killing import Moments, end_one, kill_in_many, noting, run_as_program
from tests.kernel.victim import Failed, Victim, ask
from tests.queues.effects import Effects
from tests.queues.lives import DRAINED, Settings, drain, live, look

LIVES_PER_DIRECTORY = 12
MOMENTS = Moments(system_calls=0.4, operations=300, speaking=0.9, seconds=0.1)


class Tried(killing.Tried):
    def __init__(self) -> None:
        super().__init__()
        self.records = 0
        self.done = 0
        self.dead = 0
        self.deliveries = 0
        self.again = 0
        self.taken_over = 0


def warm_up() -> None:
    """Have everything imported before the first fork, without a thread."""
    files = logstore.testing.MemoryFiles()
    with logstore.open("/store", files=files, clock=ManualClock()) as store:
        store.create_topic("jobs").append(b"x")
        with store.queue("jobs", group="g") as queue:
            queue.poll(0)[0].accept()


def kill_many(path: str, kills: int, seed: int) -> Tried:
    warm_up()
    return kill_in_many(kill_in_directory, Tried(), path, kills, seed)


def kill_in_directory(path: str, seed: int, kills: int, tried: Tried) -> None:
    chance = random.Random(seed)
    settings = Settings.draw(chance)
    effects = Effects(settings.lock_ms)
    os.makedirs(path)
    tried.directories += 1
    for number in range(min(kills, LIVES_PER_DIRECTORY)):
        life = chance.randrange(10**6) * 100 + number
        moment, said = end_one(
            lambda files, n=life: lambda say: live(path, settings, n, files, say), MOMENTS, chance
        )
        with noting(f"kill {number} by {moment}", path, seed, said):
            _check(path, said, effects)
            effects.check(ask(lambda: look(path, settings)))
        tried.kills += 1
        tried.moments[moment] += 1
    while True:  # what is poison kills also the last processes
        said = Victim(lambda say: drain(path, settings, say)).stop_itself()
        with noting("the last processes", path, seed, said):
            _check(path, said, effects)
            seen = ask(lambda: look(path, settings))
            effects.check(seen)
        if said == [DRAINED]:
            break
    with noting("the end", path, seed, said):
        effects.check_all_done(seen)
    tried.records += sum(map(len, seen.records))
    tried.done += len(effects.finished)
    tried.dead += len({letter[:2] for letter in seen.letters})
    tried.deliveries += effects.deliveries
    tried.again += effects.again
    tried.taken_over += effects.taken_over
    shutil.rmtree(path)


def _check(path: str, said: list[Any], effects: Effects) -> None:
    for note in said:
        assert not isinstance(note, Failed), note.trace
    if os.path.exists(f"{path}/diary"):
        effects.read(f"{path}/diary")


if __name__ == "__main__":
    run_as_program(__doc__, kill_many)
