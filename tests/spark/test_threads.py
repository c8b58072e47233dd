"""Several threads adopt the files of one commit, each for some of the logs."""

import pickle
import signal
import subprocess
import sys
import threading

import pytest

from logstore.files import OsFiles
from logstore.spark import commits, staging
from logstore.spark.staging import Target
from tests.spark.staged import SINK, Place


@pytest.fixture
def place(tmp_path):
    place = Place(OsFiles(), str(tmp_path / "store"))
    place.create(partitions=3)
    return place


@pytest.fixture
def many_pieces(monkeypatch):
    monkeypatch.setattr(staging, "PIECE_BYTES", 2_000)


def stage(place):
    """Three files, whose partitions take turns, and what each partition is to hold."""
    files, expected = [], {0: [], 1: [], 2: []}
    for task in range(3):
        rows = {p: [b"%d %d %d" % (task, p, n) * 30 for n in range(40 * p + 20)] for p in range(3)}
        files.append(place.stage(rows, task=task))
        for partition, values in rows.items():
            expected[partition] += values
    return files, expected


@pytest.mark.parametrize("threads", [1, 2, 3, 8])
def test_each_log_gets_its_records_in_their_order(place, many_pieces, monkeypatch, threads):
    monkeypatch.setattr(commits, "AHEAD_BYTES", 1)
    monkeypatch.setattr(commits.os, "cpu_count", lambda: threads)
    together, came = threading.Barrier(min(threads, 3), timeout=20), set()

    def reached(step):
        if step == "mid-adoption" and threading.get_ident() not in came:
            came.add(threading.get_ident())
            together.wait()

    monkeypatch.setattr(commits, "reached", reached)
    files, expected = stage(place)
    place.commit(*files)
    assert place.values() == expected
    assert place.staged_names() == []
    place.verify()


def test_shares_are_about_equal():
    def share(sizes, count):
        targets = [Target("t", "id", number) for number in range(len(sizes))]
        places = tuple(
            [commits.Place(target, 0, 0, size) for target, size in zip(targets, sizes, strict=True)]
        )
        prepared = commits.Prepared(SINK, 0, False, (), places)
        adoption = commits._Adoption(prepared, {})
        adoption._logs = dict.fromkeys(targets)
        return sorted(sorted(target.partition for target in share) for share in adoption.shares(count))

    assert share([5, 4, 3, 3, 1], 2) == [[0, 3], [1, 2, 4]]
    assert share([5, 4], 1) == [[0, 1]]
    assert share([5, 4], 8) == [[0], [1]]


@pytest.mark.slow
@pytest.mark.parametrize("piece_count", [0, 1, 2, 5, 9, 20, 40])
def test_a_commit_that_dies_amid_its_threads_is_finished_once(place, tmp_path, piece_count):
    files, expected = stage(place)
    staged = tmp_path / "staged"
    staged.write_bytes(pickle.dumps(files))
    command = [sys.executable, "-m", "tests.spark.commit_victim", place.path, str(staged), str(piece_count)]
    died = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert place.finish_all() == [(SINK, 0)]
    assert place.values() == expected
    assert place.commit(*files) is commits.Outcome.REPEATED
    place.verify()
