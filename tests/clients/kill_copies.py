"""Kill processes that copy a topic exactly once, and look at what they leave.

python -m tests.clients.kill_copies --kills 500 --seed 1 /dev/shm/kills
"""

from __future__ import annotations

import functools
import gc
import random
import shutil
from collections import Counter
from typing import Any

import logstore
from logstore.files import Files
from tests.clients.copying import Copied, Settings, check, copy, end_what_is_open, fill
from tests.clients.lives import warm_up
from tests.kernel import killing
from tests.kernel.killing import Moments, end_one, kill_in_many, run_as_program
from tests.kernel.victim import Failed, Victim, Voice, ask

LIVES_PER_DIRECTORY = 12
MOMENTS = Moments(system_calls=0.5, operations=60, speaking=0.9, seconds=0.03)
RECORDS = 600


class Tried(killing.Tried):
    def __init__(self) -> None:
        super().__init__()
        self.copied = 0
        self.aborted = 0
        """Records of transactions that a kill has cut short."""
        self.ways: Counter[str] = Counter()


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


def kill_many(path: str, kills: int, seed: int) -> Tried:
    warm_up(f"{path}/warm")
    with logstore.open(f"{path}/warm-copy") as store:
        fill(store, 3)
        for workers in (0, 1):
            copy(store, Settings.draw(random.Random(1))._replace(workers=workers))
    gc.freeze()
    return kill_in_many(kill_in_directory, Tried(), path, kills, seed)


def kill_in_directory(path: str, seed: int, kills: int, tried: Tried) -> None:
    chance = random.Random(seed)
    settings = Settings.draw(chance)
    ask(functools.partial(_make, path, settings))
    copied = Copied(0, False, 0)
    for number in range(min(kills, LIVES_PER_DIRECTORY)):
        moment, said = end_one(lambda files: lambda say: live(path, settings, files, say), MOMENTS, chance)
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


if __name__ == "__main__":
    run_as_program(__doc__, kill_many)
