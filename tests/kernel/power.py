"""Cut the power of a file system while a writer works on it, again and again, and look at what is left.

    unshare -m python -m tests.kernel.power --cuts 100 --kind ext4 --seed 1 /dev/shm/cuts

The file system is shut down without its journal's end, the writer is killed (in either order: it must not
acknowledge anything that it could no longer flush), and the file system is mounted anew.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import shutil
from typing import Any

from logstore.files import OsFile, OsFiles
from tests.kernel.disks import LoopDisk
from tests.kernel.kill import MAX_RECORDS, Tried, under_fire
from tests.kernel.killing import brief
from tests.kernel.ledger import is_promise
from tests.kernel.victim import Failed, Victim
from tests.kernel.writers import warm_up

LIVES_PER_DIRECTORY = 20


class LyingFile(OsFile):
    __slots__ = ()

    def flush(self) -> None:
        pass


class LyingFiles(OsFiles):
    """A library that says flushed and is not: what the rig must notice."""

    def open(self, path: str, *, write: bool = False, create: bool = False) -> OsFile:
        opened = super().open(path, write=write, create=create)
        assert isinstance(opened, OsFile)
        return LyingFile(path, os.dup(opened._descriptor))


def cut(disk: LoopDisk, victim: Victim, chance: random.Random) -> tuple[str, list[Any]]:
    """Returns in what order the writer and the power went, and what the writer had said."""
    if chance.random() < 0.9:  # else it may go while the writer opens the directory
        victim.wait_for_word()
    victim.listen(chance.expovariate(1 / 0.006))
    if chance.random() < 0.5:
        said = victim.kill()
        disk.shut_down()
        return "killed first", said
    promised = len(victim.said_so_far())
    disk.shut_down()
    victim.listen(chance.expovariate(1 / 0.002))
    said = victim.kill()
    return "power first", said[:promised] + [note for note in said[promised:] if not is_promise(note)]


def cut_many(path: str, kind: str, cuts: int, seed: int, *, lying: bool = False) -> Tried:
    os.makedirs(path, exist_ok=True)
    warm_up(f"{path}/warm")
    gc.freeze()
    disk = LoopDisk(path, kind)
    tried = Tried()
    numbers = random.Random(seed)
    while tried.kills < cuts:
        directory_seed = numbers.randrange(2**32)
        cut_in_directory(disk, directory_seed, cuts - tried.kills, tried, LyingFiles() if lying else None)
    disk.close()
    return tried


def cut_in_directory(disk: LoopDisk, seed: int, cuts: int, tried: Tried, files: Any) -> None:
    chance = random.Random(seed)
    path = f"{disk.path}/{seed}"
    os.mkdir(path)
    os.sync()  # that there is a directory is not the library's to promise
    target = under_fire(path, chance)
    tried.directories += 1
    for number in range(1, min(cuts, LIVES_PER_DIRECTORY) + 1):
        kind = chance.choice(target.kinds)
        life_number = chance.randrange(10**6) * 100 + number
        order, said = cut(disk, Victim(target.life(kind, life_number, files)), chance)
        disk.power_up()
        try:
            for failed in said:
                refused = isinstance(failed, Failed) and order == "power first" and failed.is_of_disk
                assert not isinstance(failed, Failed) or refused, failed.trace
            tried.torn_ends += target.check(said, survives_kernel=True) > 0
        except AssertionError as error:
            kept = shutil.copytree(path, f"{os.path.dirname(disk.path)}/kept")
            error.add_note(
                f"cut {number} of the directory with seed {seed}, {kind!r}, {order}; kept in {kept}"
            )
            error.add_note("it had said at last:\n" + "\n".join(map(brief, said[-12:])))
            raise
        tried.kills += 1
        tried.kinds[kind] += 1
        tried.moments[order] += 1
        if target.record_count > MAX_RECORDS:
            break
    tried.records += target.record_count
    shutil.rmtree(path)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("path")
    parser.add_argument("--cuts", type=int, default=100)
    parser.add_argument("--kind", default="ext4")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--lying", action="store_true", help="say flushed without flushing")
    arguments = parser.parse_args()
    where = arguments.path, arguments.kind, arguments.cuts, arguments.seed
    if arguments.lying:
        try:
            cut_many(*where, lying=True)
            print(json.dumps({"lost": ""}))
        except AssertionError as error:
            print(json.dumps({"lost": str(error)}))
    else:
        print(cut_many(*where).as_json())


if __name__ == "__main__":
    main()
