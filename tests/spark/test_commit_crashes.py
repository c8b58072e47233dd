"""Power cuts and failing disks at every operation of commits: each batch once, none lost; no Spark in it."""

import contextlib
import itertools
from time import perf_counter

import pytest

from logstore.errors import LogstoreError
from logstore.spark import commits, flush_ahead
from logstore.testing import FAULTS, FaultyFiles, MemoryFiles, explore
from tests.figures import report
from tests.rotation import rotating, seed_of_turn
from tests.spark.staged import SINK, Place, move_all

BATCHES = {
    0: {0: [b"a", b"b", b"c"], 1: [b"x"]},
    1: {1: [b"y", b"z"]},
    2: {0: [b"d"], 1: [b"w"]},
}
"""The rows of each batch, by partition."""


def rows_up_to(last):
    """What the partitions hold when batches up to ``last`` are there."""
    rows = {0: [], 1: []}
    for batch in range(last + 1):
        for partition, values in BATCHES[batch].items():
            rows[partition] += values
    return rows


def run(place, batch, tasks=2):
    """A batch as Spark runs it: each task stages a share of the rows of each partition, then the commit."""
    files = []
    for task in range(tasks):
        share = {
            number: values[task * len(values) // tasks : (task + 1) * len(values) // tasks]
            for number, values in BATCHES[batch].items()
        }
        files += place.stage_all(share, batch=batch, task=task)
    return place.commit(*files, batch=batch)


@pytest.fixture(params=["copied", "moved"])
def way(request, monkeypatch):
    """Batches are copied into the logs, or their files become segments."""
    if request.param == "moved":
        move_all(monkeypatch)
    return request.param


class StreamScenario:
    """A query that commits its batches one after another, from the first that it has not noted as committed,
    with another split each time."""

    def session(self, files, said, rng):
        place = Place(files)
        with place.open() as store:
            if "t" not in store:
                store.create_topic("t", partitions=2)
        files.note("created")
        for batch in range(said.count("committed"), len(BATCHES)):
            run(place, batch, tasks=rng.choice((1, 2, 3)))
            files.note("committed")

    def check(self, files, said):
        """What was committed is there, and whatever was begun is there once when it is run again."""
        if "created" not in said:
            return
        place = Place(files)
        committed = said.count("committed")
        for partition, values in rows_up_to(committed - 1).items():
            assert place.values()[partition][: len(values)] == values, "LOST"
        if committed < len(BATCHES):
            run(place, committed, tasks=1)
        assert place.values() == rows_up_to(min(committed, len(BATCHES) - 1)), "not once"
        place.verify()


@pytest.mark.slow
def test_every_power_cut_leaves_what_the_next_commit_completes(way):
    started = perf_counter()
    explored = explore(
        StreamScenario(),
        seed=seed_of_turn(),
        max_states=800,
        depth=2,
        states_per_point=8,
        chained_share=0.05,
    )
    assert explored.state_count >= 400
    assert explored.deepest == 2
    report(
        f"spark: power cuts in commits, {way} (states)",
        count=explored.state_count,
        failures=0,
        seconds=perf_counter() - started,
        detail=f"{explored.point_count} points, {explored.session_count} sessions",
    )


def test_the_control_finds_duplicates_without_the_protocol(monkeypatch):
    """The check can fail: without what the commits topic says, a repeated batch is there twice."""
    place = Place()
    place.create()
    monkeypatch.setattr(commits.Ledger, "note", lambda self, state: None)
    run(place, 0)
    run(place, 0)
    assert place.values() != rows_up_to(0)


@pytest.fixture
def image(way):
    """What the disk holds when one batch is committed."""
    place = Place()
    place.create()
    run(place, 0)
    return place.files.now()


def failing_run(image, at, fault):
    """One batch with an operation that fails; then the disk is well again and the batch is repeated.
    Whether anything failed."""
    disk = MemoryFiles(image)
    place = Place(disk)
    faulty = FaultyFiles(disk)
    faulty.fail(fault, at=at)
    place.files = faulty
    try:
        run(place, 1)
    except LogstoreError:
        commits_abort(place)
    failed = bool(faulty.failures)
    # A process whose disk failed is started anew; the kernel's pages are still there.
    place.files = MemoryFiles(disk.now())
    run(place, 1, tasks=1)
    assert place.values() == rows_up_to(1)
    run(place, 2)
    assert place.values() == rows_up_to(2)
    assert place.staged_names() == []
    place.verify()
    return failed


def commits_abort(place):
    """What Spark calls after a commit that failed."""
    with contextlib.suppress(LogstoreError), place.open(read_only=True) as store:
        place.commits(store).remove_strays(SINK, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "ahead_bytes"), rotating(itertools.product(["EIO", "ENOSPC"], [flush_ahead.AHEAD_BYTES, 1]), 4)
)
def test_every_failing_operation_leaves_what_the_next_commit_completes(
    name, ahead_bytes, image, way, caplog, monkeypatch
):
    """Also where a thread flushes meanwhile, which fails in its turn."""
    monkeypatch.setattr(flush_ahead, "AHEAD_BYTES", ahead_bytes)
    started = perf_counter()
    count = 0
    for at in range(1, 400):
        if not failing_run(image, at, FAULTS[name]):
            break
        count += 1
    else:
        pytest.fail("more operations than expected")
    assert count >= 40
    report(
        f"spark: commits with a failing operation, {way} ({name})",
        count=count,
        failures=0,
        seconds=perf_counter() - started,
    )


@pytest.mark.slow
def test_every_death_of_the_process_leaves_what_the_next_commit_completes(image, way):
    """The process dies in front of each of its operations on the disk; the system goes on."""

    class Death(BaseException):
        pass

    started = perf_counter()
    count = 0
    for at in range(1, 400):
        left = [at]

        def before(operation, left=left):
            left[0] -= 1
            if left[0] <= 0:
                raise Death

        place = Place(MemoryFiles(image, before=before))
        with contextlib.suppress(Death, LogstoreError):  # closing, it finds out that it is dead
            run(place, 1)
        if left[0] > 0:
            break
        count += 1
        place.files = MemoryFiles(place.files.now())
        run(place, 1, tasks=1)
        assert place.values() == rows_up_to(1), at
        assert place.staged_names() == []
        place.verify()
    assert count >= 40
    report(
        f"spark: commits whose process died, {way}", count=count, failures=0, seconds=perf_counter() - started
    )
