"""Topics that a broker deletes while its directory is read: it renames one directory after another."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

import logstore
from logstore import StoreConfig
from logstore.format.names import deleted_directory_name
from logstore.testing import MemoryFiles

ID = "0123456789abcdef0123456789abcdef"
PATH = "/broker"


class DeletingFiles:
    """Another file system, in which directories are renamed as a deletion does before the Nth operation."""

    def __init__(self, files: MemoryFiles, numbers: list[int], at: int) -> None:
        self.files = files
        self._numbers = numbers
        self._left = at

    def __getattr__(self, name: str) -> Any:
        self._left -= 1
        if not self._left:
            for number in self._numbers:
                self.files.rename(*names_of(number))
        return getattr(self.files, name)

    def bring_back(self) -> None:
        for number in self._numbers:
            self.files.rename(*reversed(names_of(number)))

    @property
    def is_done(self) -> bool:
        return self._left <= 0


def names_of(number: int) -> tuple[str, str]:
    """A partition's directory, and what it is called when it is deleted."""
    return f"{PATH}/gone-{number}", f"{PATH}/{deleted_directory_name('gone', number, ID)}"


def make_directory() -> MemoryFiles:
    files = MemoryFiles()
    with logstore.open(PATH, files=files, config=StoreConfig(log_cleaner_enable=False)) as store:
        for name, partitions in (("gone", 2), ("kept", 1)):
            for log in store.create_topic(name, partitions=partitions):
                log.extend([b"a record"] * 3)
    files.remove(f"{PATH}/topics.json")  # a broker has none
    return files


@pytest.mark.parametrize("numbers", [[0, 1], [1]])
def test_what_is_deleted_while_a_store_is_read_is_left_out(numbers):
    """Before the first operation, the second, and so on."""
    directory = make_directory()
    for at in itertools.count(1):
        files = DeletingFiles(directory, numbers, at)
        with logstore.open(PATH, files=files, read_only=True) as store:
            report = store.verify()
            assert report, report
            assert report.partition_count in range(1, 4)
            assert store.metrics().incomplete == ()
        if not files.is_done:
            break
        files.bring_back()
    assert at > 100


def test_of_a_store_with_a_catalogue_a_partition_that_is_gone_is_missing():
    files = MemoryFiles()
    with logstore.open(PATH, files=files) as store:
        store.create_topic("gone", partitions=2)
    with logstore.open(PATH, files=files, read_only=True) as store:
        assert store.verify()
        files.rename(*names_of(1))
        assert not store.verify()
