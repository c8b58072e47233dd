"""A read-only ``verify`` took for damage what a power cut leaves in the middle of a step, until somebody
opened the log for writing: the index files of a new segment whose log's name was lost, the end of a sealed
segment that nobody had flushed, the epochs of a log that starts over, the ``.swap`` files of a compaction.

What the next open puts right without losing anything that was durable is no problem, but a note. Every such
state that a crash can leave is looked at here, and damage in it is still found."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from logstore.config import StoreConfig, TopicConfig
from logstore.model import TopicPartition
from logstore.partition.checking.facts_of_files import facts_of_files
from logstore.partition.checking.files import StoredCheckpoints
from logstore.partition.checking.findings import FindingKind, VerifyReport
from logstore.partition.checking.verify import verify_log
from logstore.partition.log import Log
from logstore.partition.state.home import CLEAN_MARKER_NAME
from logstore.testing import ManualClock, MemoryFiles
from logstore.testing.crash import CrashStates
from logstore.testing.memory import Image
from logstore.testing.operations import Note

PATH = "/t-0"


def roll(log: Log) -> None:
    log.roll()
    log.extend([b"behind"])


CHANGES: dict[str, Callable[[Log], object]] = {
    "append": lambda log: [log.extend([b"v%d" % number]) for number in range(8)],
    "roll": roll,
    "truncate": lambda log: log.truncate_to(5),
    "start over": lambda log: log.truncate_fully_and_start_at(50),
    "delete": lambda log: log.delete_before(7),
    "compact": lambda log: log.compact(now=True),
    "erase": lambda log: log.erase(keys=[b"1"]),
    "close": lambda log: log.close(),
}


def config_of(change: str) -> TopicConfig:
    policy = "compact" if change == "compact" else "delete"
    return TopicConfig(segment_bytes=300, index_interval_bytes=50, cleanup_policy=policy)


def fill(log: Log, count: int) -> None:
    for number in range(count):
        log.extend([(b"%d" % (number % 3), b"v%d" % number)])


def states_of(change: str, per_point: int) -> Iterator[tuple[str, Image]]:
    """What power cuts during a change leave: in words, and as a disk."""
    files = MemoryFiles()
    log = Log.open(
        PATH,
        files=files,
        clock=ManualClock(),
        config=config_of(change),
        store_config=StoreConfig(linger_ms=0),
    )
    fill(log, 12)
    log.checkpoint()
    log._context.home.store_checkpoints()
    fill(log, 4)
    first = len(files.trace)
    CHANGES[change](log)
    states, rng, seen = CrashStates(Image(), 1), random.Random(1), set()
    for point, entry in enumerate(files.trace):
        if isinstance(entry, Note):
            continue
        states.follow(entry)
        for choices in states.choices(per_point, rng) if point >= first else ():
            image = states.image(choices)
            key = hash(frozenset(image.paths().items()))
            if key not in seen:
                seen.add(key)
                yield f"cut behind {entry}; on the disk are: {states.describe(choices)}", image


def verify(files: MemoryFiles, config: TopicConfig) -> VerifyReport:
    """As a read-only reader does it."""
    checkpoints = StoredCheckpoints(files, PATH)

    def source():
        is_clean = files.is_file(f"{PATH}/{CLEAN_MARKER_NAME}")
        partition = TopicPartition("t", 0)
        facts = facts_of_files(files, PATH, partition, checkpoints, config, is_clean=is_clean)
        facts.findings.extend(checkpoints.findings)
        return facts

    return verify_log(source, ManualClock())


def check_states(change: str, per_point: int) -> int:
    count = 0
    for story, image in states_of(change, per_point):
        count += 1
        report = verify(MemoryFiles(image), config_of(change))
        assert report, f"{report}\n{story}"
    return count


@pytest.mark.parametrize("change", CHANGES)
def test_what_the_next_open_finishes_is_no_problem(change: str) -> None:
    assert check_states(change, 20) > 30


@pytest.mark.slow
@pytest.mark.parametrize("change", CHANGES)
def test_what_the_next_open_finishes_is_no_problem_in_more_states(change: str) -> None:
    assert check_states(change, 60) > 50


@pytest.mark.parametrize("change", ["roll", "erase", "compact"])
def test_damage_of_what_was_durable_is_found_in_each_of_these_states(change: str) -> None:
    """One flipped bit of the first segment that is there, below the recovery point."""
    count = 0
    for story, image in states_of(change, 3):
        files = MemoryFiles(image)
        names = sorted(entry.name for entry in files.list_directory(PATH))
        logs = [name for name in names if name.endswith((".log", ".log.swap"))]
        is_swapped = f"{logs[0]}.swap" in names and not any(name.endswith(".cleaned") for name in names)
        file = files.open(f"{PATH}/{logs[0]}{'.swap' if is_swapped else ''}", write=True)
        if file.size_bytes() < 64:
            continue  # compaction has left nothing of it
        count += 1
        file.write_at(63, [bytes([file.read_at(63, 1)[0] ^ 1])])
        assert FindingKind.BATCH in [each.kind for each in verify(files, config_of(change)).problems], story
    assert count > 5


def test_the_indexes_of_a_lost_segment_that_was_durable_are_a_problem() -> None:
    """Above the recovery point a power cut may have taken the name of the log, and left the indexes with all
    their entries: no roll waits for the names of its files."""
    *_, (_, image) = states_of("append", 1)
    for base, kind in ((0, FindingKind.MISSING_SEGMENT), (16, FindingKind.UNFINISHED)):
        files = MemoryFiles(image)
        files.remove(f"{PATH}/{base:020}.log")
        report = verify(files, config_of("append"))
        assert kind in [each.kind for each in (*report.problems, *report.notes)], base
        assert bool(report) == (kind is FindingKind.UNFINISHED)
