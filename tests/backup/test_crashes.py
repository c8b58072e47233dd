"""Power cuts behind every operation of a first backup and of incremental ones."""

from __future__ import annotations

import random

import pytest

import logstore
from logstore import TopicConfig, UsageError
from logstore.testing import FAULTS, FaultyFiles, ManualClock, MemoryFiles, explore
from logstore.testing.crash import CrashStates
from logstore.testing.memory import Image
from logstore.testing.operations import Exchange, MakeDirectory, Note, Remove, Rename
from tests.backup.helpers import contents, fill, open_store, read_all
from tests.rotation import rotating, seed_of_turn


class Backups:
    """A store that is changed and backed up, over and over. Said is what a backup that begins will have, and
    that it is done."""

    can_exchange = True

    def disk(self, files):
        faulty = FaultyFiles(files)
        if not self.can_exchange:
            faulty.fail(FAULTS["EIO"]._replace(errno=22), kinds=["exchange"], times=None)
        return faulty

    def session(self, files, said, rng):
        disk = self.disk(files)
        with open_store("/data", disk) as store:
            for name in ("orders", "latest"):
                if name not in store:
                    policy = "compact" if name == "latest" else "delete"
                    config = TopicConfig(cleanup_policy=policy, segment_bytes=400, file_delete_delay_ms=0)
                    store.create_topic(name, config=config)
            self.work(store, rng)
            for _ in range(2):
                files.note(("begun", contents(store)))
                store.backup("/backup")
                files.note("done")
                self.work(store, rng)

    def work(self, store, rng):
        fill(store["orders"][0], rng.randrange(8), start=store["orders"][0].log_end_offset)
        fill(store["latest"][0], 4)
        what = rng.randrange(4)
        log = store["orders"][0]
        if what == 0:
            log.truncate_to(rng.randint(log.log_start_offset, log.log_end_offset))
        elif what == 1:
            log.delete_before(rng.randint(log.log_start_offset, log.log_end_offset))
        elif what == 2:
            store["latest"].compact(now=True)
        store.run_background()

    def check(self, files, said):
        begun = [what[1] for what in said if what != "done"]
        # It is the last that was done, or one of those that were cut off since.
        dones = [number for number, what in enumerate(said) if what == "done"]
        had_one = bool(dones)
        allowed = [what[1] for what in said[max(dones, default=1) - 1 :] if what != "done"]
        if files.is_directory("/backup"):
            assert read_all("/backup", files) in allowed
        elif had_one:
            assert not self.can_exchange
            with pytest.raises(UsageError, match="Call it again"):
                open_store("/backup", files)
        self.check_beside(files, begun)
        self.check_next(files, allowed if had_one and files.is_directory("/backup") else [])

    def check_beside(self, files, begun):
        """What lies beside it is no store, or a whole one."""
        for path in ("/backup.partial", "/backup.previous"):
            names = {e.name for e in files.list_directory(path)} if files.is_directory(path) else set()
            if names - {".lock"}:
                try:
                    found = read_all(path, files)
                except UsageError as error:
                    assert "unfinished backup" in str(error)  # noqa: PT017 - or it opens
                else:
                    assert found in begun

    def check_next(self, files, allowed):
        if not files.is_directory("/data"):
            return
        with open_store("/data", self.disk(files)) as store:
            if allowed:
                assert read_all("/backup", files) in allowed  # opening the store has changed nothing of it
            store.backup("/backup")
            assert read_all("/backup", files) == contents(store)
        left = {entry.name for entry in files.list_directory("/")}
        assert left == {"data", "backup"}
        with logstore.open("/backup", files=files, clock=ManualClock()) as copy:
            assert copy.was_clean
            assert copy.verify()
        with open_store("/data", files, read_only=True) as store:
            assert store.verify()


class Renamed(Backups):
    can_exchange = False


@pytest.mark.parametrize("scenario", [Backups, Renamed])
def test_power_cuts(scenario):
    explored = explore(scenario(), seed=1, states_per_point=2, max_states=350)
    assert explored.state_count >= 100


@pytest.mark.parametrize("scenario", [Backups, Renamed])
def test_power_cuts_where_directories_change(scenario):
    """More states of the points at which a name comes or goes in the directories that a backup is made in."""
    rng = random.Random(seed_of_turn())
    files, said, count = MemoryFiles(), [], 0
    scenario().session(files, said, rng)
    states = CrashStates(Image(), 0)
    for operation in files.trace:
        if isinstance(operation, Note):
            said.append(operation.said)
            continue
        states.follow(operation)
        is_near = operation.path.rpartition("/")[0] in ("", "/backup.partial", "/backup.previous")
        if is_near and isinstance(operation, Exchange | MakeDirectory | Remove | Rename):
            decides = isinstance(operation, Exchange) or operation.path.endswith(".unfinished")
            possible = list(states.choices(200, rng))
            for choices in rng.sample(possible, min(25 if decides else 3, len(possible))):
                scenario().check(MemoryFiles(states.image(choices)), said)
                count += 1
    assert count > 30


@pytest.mark.slow
@pytest.mark.parametrize("scenario", rotating([Backups, Renamed], 8))
def test_many_power_cuts(scenario):
    explored = explore(scenario(), seed=seed_of_turn(), states_per_point=8, max_states=1_000, depth=2)
    assert explored.state_count >= 400


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize("scenario", [Backups, Renamed])
def test_power_cuts_at_length(scenario, seed):
    explore(scenario(), seed=seed, states_per_point=64, max_states=20_000, depth=3)
