"""Kill processes that copy a topic exactly once, and look at what they leave.

python -m tests.clients.kill_copies --kills 500 --seed 1 /dev/shm/kills
"""

from __future__ import annotations

import argparse
import functools
import gc
import json
import os
import random
import shutil
import time
from collections import Counter
from typing import Any

import logstore
from logstore.files import Files
from tests.clients.copying import Copied, Settings, check, copy, end_what_is_open, fill
from tests.clients.lives import warm_up
from tests.kernel.victim import DyingFiles, Failed, Victim, Voice, ask

LIVES_PER_DIRECTORY = 12
RECORDS = 600


class Tried:
    """What was tried, and the results."""

    def __init__(self) -> None:
        self.kills = 0
        self.directories = 0
        self.copied = 0
        self.aborted = 0
        """Records of transactions that a kill has cut short."""
        self.moments: Counter[str] = Counter()
        self.ways: Counter[str] = Counter()
        self.began = time.monotonic()

    def as_json(self) -> str:
        row = {name: value for name, value in vars(self).items() if name != "began"}
        return json.dumps(row | {"seconds": round(time.monotonic() - self.began, 1)})


def live(path: str, settings: Settings, files: Files | None, say: Voice) -> None:
    store = logstore.open(path, config=settings.store, files=files)
    say("opened")
    copy(store, settings)
    say("done")


def look(path: str, settings: Settings) -> Copied:
    """Leaves the directory as a crash does."""
    store = logstore.open(path, config=settings.store)
    assert not store.damaged, store.damaged
    end_what_is_open(store, settings)
    return check(store)


def kill_one(path: str, settings: Settings, chance: random.Random) -> tuple[str, list[Any]]:
    """Let a process copy and die; returns how its moment was chosen, and what it said."""
    if chance.random() < 0.5:
        tears = chance.randint(1, 300) if chance.random() < 0.3 else 0
        files = DyingFiles(int(chance.expovariate(1 / 60)), is_before=chance.random() < 0.5, tears=tears)
        return "system call", Victim(lambda say: live(path, settings, files, say)).stop_itself()
    victim = Victim(lambda say: live(path, settings, None, say))
    if chance.random() < 0.9:  # else it may die while it opens the directory
        victim.wait_for_word()
    victim.listen(chance.expovariate(1 / 0.03))
    return "time", victim.kill()


def kill_many(path: str, kills: int, seed: int) -> Tried:
    warm_up(f"{path}/warm")
    with logstore.open(f"{path}/warm-copy") as store:
        fill(store, 3)
        for workers in (0, 1):
            copy(store, Settings.draw(random.Random(1))._replace(workers=workers))
    gc.freeze()
    tried, numbers = Tried(), random.Random(seed)
    while tried.kills < kills:
        number = numbers.randrange(2**32)
        kill_in_directory(f"{path}/{number}", number, kills - tried.kills, tried)
    return tried


def kill_in_directory(path: str, seed: int, kills: int, tried: Tried) -> None:
    chance = random.Random(seed)
    settings = Settings.draw(chance)
    ask(functools.partial(_make, path, settings))
    copied = Copied(0, False, 0)
    for number in range(min(kills, LIVES_PER_DIRECTORY)):
        moment, said = kill_one(path, settings, chance)
        copied = _looked(path, settings, said, f"kill {number} by {moment} with seed {seed}", copied)
        tried.kills += 1
        tried.moments[moment] += 1
        tried.ways["a loop" if settings.workers == 0 else f"{settings.workers} workers"] += 1
        if copied.is_done:
            break
    said = Victim(lambda say: live(path, settings, None, say)).stop_itself()
    copied = _looked(path, settings, said, f"the last process with seed {seed}", copied)
    assert said[-1] == "done"
    assert copied.is_done, f"seed {seed}: {copied}"
    tried.directories += 1
    tried.copied += copied.count
    tried.aborted += copied.aborted_count
    shutil.rmtree(path)


def _make(path: str, settings: Settings) -> None:
    with logstore.open(path, config=settings.store) as store:
        fill(store, RECORDS)


def _looked(path: str, settings: Settings, said: list[Any], what: str, before: Copied) -> Copied:
    try:
        failed = [note.trace for note in said if isinstance(note, Failed)]
        assert not failed, failed[0]
        copied = ask(functools.partial(look, path, settings))
        assert isinstance(copied, Copied)
        assert copied.count >= before.count, f"{before.count} were copied, and now {copied.count}"
        return copied
    except AssertionError as error:
        error.add_note(f"{what}: {settings}; it is kept in {path}")
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
