"""What programs that kill processes have in common: how a process ends, what is counted, what is said of a
failure, and their command line."""

from __future__ import annotations

import argparse
import contextlib
import gc
import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple, Protocol, TypeVar

from tests.kernel.victim import DyingFiles, Victim, Voice


class Tried:
    """What was tried, and the results."""

    def __init__(self) -> None:
        self.kills = 0
        self.directories = 0
        self.moments: Counter[str] = Counter()
        self.began = time.monotonic()

    def as_json(self) -> str:
        row = {name: value for name, value in vars(self).items() if name != "began"}
        return json.dumps(row | {"seconds": round(time.monotonic() - self.began, 1)})


class Moments(NamedTuple):
    """When processes end: by a share of ``system_calls`` at one of them, after about so many ``operations``
    of the disk; else after about so many ``seconds``, a share of ``speaking`` counted from their first
    word."""

    system_calls: float
    operations: float
    speaking: float
    seconds: float


def end_one(
    life: Callable[[DyingFiles | None], Callable[[Voice], Any]], moments: Moments, chance: random.Random
) -> tuple[str, list[Any]]:
    """Let a process live and die; returns how its moment was chosen, and what it said."""
    if chance.random() < moments.system_calls:
        tears = chance.randint(1, 300) if chance.random() < 0.3 else 0
        operations = int(chance.expovariate(1 / moments.operations))
        files = DyingFiles(operations, is_before=chance.random() < 0.5, tears=tears)
        return "system call", Victim(life(files)).stop_itself()
    victim = Victim(life(None))
    if chance.random() < moments.speaking:  # else it may die while it opens the directory
        victim.wait_for_word()
    victim.listen(chance.expovariate(1 / moments.seconds))
    return "time", victim.kill()


T_contra = TypeVar("T_contra", bound=Tried, contravariant=True)
T = TypeVar("T", bound=Tried)


class KillInDirectory(Protocol[T_contra]):
    """Kills some processes on one new directory, checks what each has left, and counts."""

    def __call__(self, path: str, seed: int, kills: int, tried: T_contra) -> None: ...


def kill_in_many(kill_in_directory: KillInDirectory[T], tried: T, path: str, kills: int, seed: int) -> T:
    """Use one directory after another until so many were killed."""
    gc.freeze()
    numbers = random.Random(seed)
    while tried.kills < kills:
        number = numbers.randrange(2**32)
        kill_in_directory(f"{path}/{number}", number, kills - tried.kills, tried)
    return tried


def brief(said: Any) -> str:
    text = repr(said)
    return text if len(text) < 200 else text[:150] + " ... " + text[-40:]


@contextlib.contextmanager
def noting(what: str, path: str, seed: int, said: list[Any]) -> Iterator[None]:
    """Says of a failure where it happened."""
    try:
        yield
    except AssertionError as error:
        error.add_note(f"{what} of the directory with seed {seed}; it is kept in {path}")
        error.add_note("it had said at last:\n" + "\n".join(map(brief, said[-12:])))
        raise


def run_as_program(description: str | None, kill_many: Callable[[str, int, int], Tried]) -> None:
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("path")
    parser.add_argument("--kills", type=int, default=500)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    os.makedirs(arguments.path, exist_ok=True)
    print(kill_many(arguments.path, arguments.kills, arguments.seed).as_json())
