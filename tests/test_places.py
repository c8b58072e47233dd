"""The files of the tests: mostly in memory, and each test file's on the disk in one turn of eight."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest

from tests.places import _DISK, MEMORY, ON_DISK_PERIOD, is_turn_on_disk

in_memory = pytest.mark.skipif(_DISK not in os.environ, reason="no place in memory, or another was asked for")


def test_each_file_is_on_the_disk_in_one_turn_of_eight():
    files = [f"tests/{path.name}" for path in Path(__file__).parent.glob("test_*.py")]
    turns = [{file for file in files if is_turn_on_disk(file, number)} for number in range(ON_DISK_PERIOD)]
    assert sum(map(len, turns)) == len(files) == len(set.union(*turns))
    assert not any(is_turn_on_disk(file, None) for file in files)


@in_memory
def test_what_tests_make_otherwise_is_in_memory():
    assert tempfile.gettempdir() == MEMORY


@in_memory
@pytest.mark.disk
def test_a_marked_test_has_its_files_on_the_disk(tmp_path):
    assert os.stat(tmp_path).st_dev == os.stat(os.environ[_DISK]).st_dev != os.stat(MEMORY).st_dev
    assert not [*tmp_path.iterdir()]
