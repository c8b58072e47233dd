"""Kill processes of twenty workers, and compare what they leave with what was promised.

    python -m tests.queues.kill --kills 500 --seed 1 /dev/shm/kills

A directory serves a dozen processes, one after another: each goes on where the last one was killed.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import logstore
from logstore.testing import ManualClock
from tests.kernel.kill import brief
from tests.kernel.victim import DyingFiles, Failed, Victim, ask
from tests.queues.effects import Effects
from tests.queues.lives import DRAINED, Settings, drain, live, look

LIVES_PER_DIRECTORY = 12


class Tried:
    """What was tried, and the results."""

    def __init__(self) -> None:
        self.kills = 0
        self.directories = 0
        self.records = 0
        self.done = 0
        self.dead = 0
        self.deliveries = 0
        self.again = 0
        self.taken_over = 0
        self.moments: Counter[str] = Counter()
        self.began = time.monotonic()

    def as_json(self) -> str:
        row = {name: value for name, value in vars(self).items() if name != "began"}
        return json.dumps(row | {"seconds": round(time.monotonic() - self.began, 1)})


def warm_up() -> None:
    """Have everything imported before the first fork, without a thread."""
    files = logstore.testing.MemoryFiles()
    with logstore.open("/store", files=files, clock=ManualClock()) as store:
        store.create_topic("jobs").append(b"x")
        with store.queue("jobs", group="g") as queue:
            queue.poll(0)[0].accept()


def end_one(path: str, settings: Settings, life: int, chance: random.Random) -> tuple[str, list[Any]]:
    """Let a process live and die; returns how its moment was chosen, and what it said."""
    if chance.random() < 0.4:
        tears = chance.randint(1, 300) if chance.random() < 0.3 else 0
        files = DyingFiles(int(chance.expovariate(1 / 300)), is_before=chance.random() < 0.5, tears=tears)
        return "system call", Victim(lambda say: live(path, settings, life, files, say)).stop_itself()
    victim = Victim(lambda say: live(path, settings, life, None, say))
    if chance.random() < 0.9:  # else it may die while it opens the directory
        victim.wait_for_word()
    victim.listen(chance.expovariate(1 / 0.1))
    return "time", victim.kill()


def kill_many(path: str, kills: int, seed: int) -> Tried:
    warm_up()
    gc.freeze()
    tried = Tried()
    numbers = random.Random(seed)
    while tried.kills < kills:
        directory_seed = numbers.randrange(2**32)
        kill_in_directory(f"{path}/{directory_seed}", directory_seed, kills - tried.kills, tried)
    return tried


def kill_in_directory(path: str, seed: int, kills: int, tried: Tried) -> None:
    chance = random.Random(seed)
    settings = Settings.draw(chance)
    effects = Effects(settings.lock_ms)
    os.makedirs(path)
    tried.directories += 1
    for number in range(min(kills, LIVES_PER_DIRECTORY)):
        life = chance.randrange(10**6) * 100 + number
        moment, said = end_one(path, settings, life, chance)
        with _noting(f"kill {number} by {moment}", path, seed, said):
            _check(path, said, effects)
            effects.check(ask(lambda: look(path, settings)))
        tried.kills += 1
        tried.moments[moment] += 1
    while True:  # what is poison kills also the last processes
        said = Victim(lambda say: drain(path, settings, say)).stop_itself()
        with _noting("the last processes", path, seed, said):
            _check(path, said, effects)
            seen = ask(lambda: look(path, settings))
            effects.check(seen)
        if said == [DRAINED]:
            break
    with _noting("the end", path, seed, said):
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


@contextlib.contextmanager
def _noting(what: str, path: str, seed: int, said: list[Any]) -> Iterator[None]:
    """Says of a failure where it happened."""
    try:
        yield
    except AssertionError as error:
        error.add_note(f"{what} of the directory with seed {seed}; it is kept in {path}")
        error.add_note("it had said at last:\n" + "\n".join(map(brief, said[-12:])))
        raise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    os.makedirs(arguments.path, exist_ok=True)
    print(kill_many(arguments.path, arguments.kills, arguments.seed).as_json())


if __name__ == "__main__":
    main()
