"""Kill processes that produce and consume, and compare what they leave with what was promised.

    python -m tests.clients.kill --kills 500 --seed 1 /dev/shm/kills

A directory serves a dozen processes, one after another: each goes on where the last one was killed.
"""

from __future__ import annotations

import functools
import random
import shutil
from typing import Any

from tests.clients.effects import Effects
from tests.clients.lives import Settings, drain, live, look, warm_up
from tests.kernel import killing
from tests.kernel.killing import Moments, end_one, kill_in_many, noting, run_as_program
from tests.kernel.victim import Failed, Victim, ask

LIVES_PER_DIRECTORY = 12
MOMENTS = Moments(system_calls=0.4, operations=200, speaking=0.9, seconds=0.04)
MAX_RECORDS = 4_000


class Tried(killing.Tried):
    def __init__(self) -> None:
        super().__init__()
        self.records = 0
        self.acknowledged = 0
        self.work = 0
        self.work_again = 0


def kill_many(path: str, kills: int, seed: int) -> Tried:
    warm_up(f"{path}/warm")
    return kill_in_many(kill_in_directory, Tried(), path, kills, seed)


def kill_in_directory(path: str, seed: int, kills: int, tried: Tried) -> None:
    chance = random.Random(seed)
    settings = Settings.draw(chance)
    effects = Effects()
    tried.directories += 1
    for number in range(min(kills, LIVES_PER_DIRECTORY)):
        life = chance.randrange(10**6) * 100 + number
        moment, said = end_one(
            lambda files, n=life: lambda say: live(path, settings, n, files, say), MOMENTS, chance
        )
        with noting(f"kill {number} by {moment}", path, seed, said):
            _check(said, effects)
            effects.check(ask(functools.partial(look, path, settings, closely=chance.random() < 0.5)))
        tried.kills += 1
        tried.moments[moment] += 1
        if effects.record_count > MAX_RECORDS:
            break
    said = Victim(lambda say: drain(path, settings, say)).stop_itself()
    with noting("the last process", path, seed, said):
        _check(said, effects)
        effects.check(ask(lambda: look(path, settings, closely=True)))
        effects.check_all_done()
    tried.records += effects.record_count
    tried.acknowledged += len(effects.delivered)
    tried.work += effects.done_count
    tried.work_again += effects.again_count
    shutil.rmtree(path)


def _check(said: list[Any], effects: Effects) -> None:
    for note in said:
        assert not isinstance(note, Failed), note.trace
    effects.add(said)


if __name__ == "__main__":
    run_as_program(__doc__, kill_many)
