"""Kill writers on one directory after another, and compare what they leave with what they were promised.

    python -m tests.kernel.kill --kills 500 --seed 1 /dev/shm/kills

A directory serves some dozens of lives: each writer goes on where the last one was killed.
"""

from __future__ import annotations

import os
import random
import shutil
from collections import Counter
from collections.abc import Callable
from typing import Any

from tests.kernel import killing
from tests.kernel.killing import Moments, end_one, kill_in_many, noting, run_as_program
from tests.kernel.ledger import NOTHING, Ledger, Seen, StoreLedger
from tests.kernel.victim import DyingFiles, Failed, ask
from tests.kernel.writers import (
    KINDS,
    Say,
    Settings,
    live_on_partition,
    live_on_store,
    look_at_partition,
    look_at_store,
    warm_up,
)

LIVES_PER_DIRECTORY = 25
MOMENTS = Moments(system_calls=0.4, operations=60, speaking=0.85, seconds=0.004)
MAX_RECORDS = 3_000
"""A directory with more records is not used again: checking it would take longer than filling it."""


class Tried(killing.Tried):
    def __init__(self) -> None:
        super().__init__()
        self.records = 0
        self.torn_ends = 0
        self.kinds: Counter[str] = Counter()


class PartitionUnderFire:
    """One partition, life after life."""

    def __init__(self, path: str, chance: random.Random) -> None:
        self.path = path
        self.settings = Settings.draw(chance, retention_bytes=chance.choice((-1, 4_000)))
        self.kinds = list(KINDS)
        self._seen = Seen(NOTHING, 0)
        self._chance = chance

    def life(self, kind: str, number: int, files: DyingFiles | None) -> Callable[[Say], None]:
        return lambda say: live_on_partition(self.path, self.settings, kind, number, files, say)

    def check(self, said: list[Any], *, survives_kernel: bool = False) -> int:
        """Raises AssertionError unless all is there that must be. Returns how many bytes were torn."""
        ledger = Ledger(self._seen.found, self._seen.durable, said, survives_kernel=survives_kernel)
        closely = self._chance.random() < 0.3
        seen, cut_bytes = ask(lambda: look_at_partition(self.path, self.settings, closely=closely))
        ledger.check(seen.found)
        assert seen.durable >= ledger.durable or ledger.durable > seen.found.end
        if self._chance.random() < 0.1:
            again, cut_again = ask(lambda: look_at_partition(self.path, self.settings, closely=False))
            assert (again.found, cut_again) == (seen.found, 0), "a second recovery found another log"
        self._seen = seen
        return int(cut_bytes)

    @property
    def record_count(self) -> int:
        return len(self._seen.found.values)


class StoreUnderFire:
    """A store of several topics, life after life."""

    def __init__(self, path: str, chance: random.Random) -> None:
        self.path = path
        self.settings = Settings.draw(chance, retention_bytes=chance.choice((-1, 4_000)))
        self.kinds = ["store"]
        self._seen: dict[str, list[Seen]] = {}
        self._chance = chance

    def life(self, kind: str, number: int, files: DyingFiles | None) -> Callable[[Say], None]:
        return lambda say: live_on_store(self.path, self.settings, number, files, say)

    def check(self, said: list[Any], *, survives_kernel: bool = False) -> int:
        """As that of a partition."""
        has_retention = self.settings.topic.retention_bytes >= 0
        ledger = StoreLedger(self._seen, said, survives_kernel=survives_kernel, has_retention=has_retention)
        closely = self._chance.random() < 0.3
        seen, cut_bytes = ask(lambda: look_at_store(self.path, self.settings, closely=closely))
        ledger.check(seen)
        self._seen = seen
        return int(cut_bytes)

    @property
    def record_count(self) -> int:
        return sum(len(seen.found.values) for partitions in self._seen.values() for seen in partitions)


def under_fire(
    path: str, chance: random.Random, number: int | None = None
) -> PartitionUnderFire | StoreUnderFire:
    """One directory of four is a store: by its number, if that is given, so that none goes without."""
    if chance.random() < 0.25 if number is None else number % 4 == 1:
        return StoreUnderFire(path + "/store", chance)
    return PartitionUnderFire(path + "/t-0", chance)


def kill_many(path: str, kills: int, seed: int) -> Tried:
    warm_up(f"{path}/warm")
    return kill_in_many(kill_in_directory, Tried(), path, kills, seed)


def kill_in_directory(path: str, seed: int, kills: int, tried: Tried) -> None:
    chance = random.Random(seed)
    os.makedirs(path)
    target = under_fire(path, chance, tried.directories)
    tried.directories += 1
    for number in range(1, min(kills, LIVES_PER_DIRECTORY) + 1):
        kind = chance.choice(target.kinds)
        life_number = chance.randrange(10**6) * 100 + number
        moment, said = end_one(lambda files, k=kind, n=life_number: target.life(k, n, files), MOMENTS, chance)
        with noting(f"kill {number}, {kind!r} by {moment},", path, seed, said):
            for failed in said:
                assert not isinstance(failed, Failed), failed.trace
            tried.torn_ends += target.check(said) > 0
        tried.kills += 1
        tried.kinds[kind] += 1
        tried.moments[moment] += 1
        if target.record_count > MAX_RECORDS:
            break
    tried.records += target.record_count
    shutil.rmtree(path)


if __name__ == "__main__":
    run_as_program(__doc__, kill_many)
