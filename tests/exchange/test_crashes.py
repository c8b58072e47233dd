"""A handover that is cut off behind any operation, by a power cut: the source is whole, and another call
finishes."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

import logstore
from logstore import StoreConfig, TopicConfig
from logstore.testing import ManualClock, MemoryFiles
from logstore.testing.crash import CrashStates
from logstore.testing.memory import Image
from logstore.testing.operations import Note
from tests.exchange.brokers import BROKER
from tests.rotation import seed_of_turn

CONFIG = StoreConfig(
    topic=TopicConfig(retention_ms=-1, segment_bytes=400), linger_ms=0, num_recovery_threads_per_data_dir=1
)
SOURCE, TARGET = "/source", "/target"


def open_store(files: MemoryFiles, path: str, **options: bool) -> logstore.Store:
    return logstore.open(path, files=files, clock=ManualClock(), config=CONFIG, **options)


def hand_over(files: MemoryFiles) -> logstore.exchange.report.HandoverReport:  # type: ignore[name-defined]
    return logstore.handover(SOURCE, TARGET, files=files, clock=ManualClock(), accept_settings=True)


def begin(*, is_to_broker: bool) -> Image:
    """A source with three partitions, one of which begins above 0, and a target."""
    files = MemoryFiles()
    with open_store(files, SOURCE) as store:
        for log in store.create_topic("plain", partitions=3):
            for number in range(8):
                log.extend([(b"%d" % number, b"%d" % number * 40)])
        store["plain"][1].delete_before(5)
        store["plain"][2].assign_leader_epoch(6)
        store["plain"][2].extend([b"later"])
    if is_to_broker:
        copy_in(files, BROKER, TARGET)
    return files.now()


def copy_in(files: MemoryFiles, directory: Path, path: str) -> None:
    for each in sorted(directory.rglob("*")):
        name = f"{path}/{each.relative_to(directory)}"
        if each.is_dir():
            files.make_directory(name)
        else:
            files.make_directory(name.rpartition("/")[0])
            files.open(name, create=True).write_at(0, [each.read_bytes()])


def source_in(image: Image) -> dict[str, bytes]:
    found = image.paths()
    return {name: data for name, data in found.items() if name.startswith(SOURCE) and ".lock" not in name}


def read_all(files: MemoryFiles, path: str) -> list[object]:
    with open_store(files, path, read_only=True) as store:
        return [(log.log_start_offset, log.log_end_offset, list(log.read())) for log in store["plain"]]


class Cuts:
    """The states that power cuts leave of a handover, and what is checked of each."""

    def __init__(self, *, is_to_broker: bool) -> None:
        self.is_to_broker = is_to_broker
        self.image = begin(is_to_broker=is_to_broker)
        self.wanted = read_all(MemoryFiles(self.image), SOURCE)
        self.source = source_in(self.image)
        self.count = 0
        self.placed = 0

    def explore(self, seed: int, *, every: int, per_point: int) -> None:
        """Cut behind each ``every``-th operation, and look at ``per_point`` states of each cut."""
        files = MemoryFiles(self.image)
        hand_over(files)
        states, rng = CrashStates(self.image, seed), random.Random(seed)
        for point, operation in enumerate(files.trace):
            assert not isinstance(operation, Note)
            states.follow(operation)
            if (point + seed) % every == 0:
                for choices in states.choices(per_point, rng):
                    self.check(states.image(choices), is_opened=rng.random() < 0.4)

    def check(self, image: Image, *, is_opened: bool) -> None:
        assert source_in(image) == self.source
        files = MemoryFiles(image)
        if is_opened and files.is_file(f"{TARGET}/meta.properties"):
            with open_store(files, TARGET):
                pass  # somebody looks at it first
        report = hand_over(files)
        self.placed += sum(each.was_placed for each in report.partitions)
        assert read_all(files, TARGET) == self.wanted
        with open_store(files, TARGET) as store:
            assert not store.damaged
            assert store.verify()
        left = files.now().paths()
        assert not [name for name in left if "stray" in name or "handover" in name]
        assert source_in(files.now()) == self.source
        self.count += 1


@pytest.mark.parametrize("is_to_broker", [True, False], ids=["broker", "store"])
def test_another_call_finishes_what_a_power_cut_ended(is_to_broker):
    cuts = Cuts(is_to_broker=is_to_broker)
    cuts.explore(1, every=60, per_point=1)
    assert cuts.count >= 6


@pytest.mark.slow
@pytest.mark.parametrize("is_to_broker", [True, False], ids=["broker", "store"])
def test_behind_many_operations(is_to_broker):
    cuts = Cuts(is_to_broker=is_to_broker)
    cuts.explore(seed_of_turn(), every=8, per_point=1)
    assert cuts.count >= 30
    assert cuts.placed > 0


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("is_to_broker", [True, False], ids=["broker", "store"])
def test_behind_each_operation(is_to_broker, seed):
    cuts = Cuts(is_to_broker=is_to_broker)
    cuts.explore(seed, every=1, per_point=6)
    assert cuts.count >= 1_000
    assert cuts.placed > 0
