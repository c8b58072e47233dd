"""A reader that meets damage raises, and its caller may pass over that: nobody else learned of it. Each log
counts such reads in `damaged_read_count`, whatever the way of reading, so that something may watch it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import logstore
from logstore.errors import CorruptionError
from logstore.partition.reading.readable import ReadableLog

pytestmark = pytest.mark.damaged


def fetch_all(log: ReadableLog) -> None:
    """The first fetch gives what is in front of the damage, and the next one raises."""
    offset = 0
    while (fetched := log.fetch(offset)).data:
        offset = fetched.next_offset


WAYS: dict[str, Callable[[ReadableLog], object]] = {
    "read": lambda log: list(log.read()),
    "read on demand": lambda log: list(log.read(on_demand=True)),
    "one": lambda log: list(log.read(15, 16)),
    "record_at": lambda log: log.record_at(15),
    "committed": lambda log: list(log.read(isolation=logstore.Isolation.COMMITTED)),
    "fetch": fetch_all,
    "follow": lambda log: list(log.follow(0, timeout=0)),
    "arrow": lambda log: log.read_arrow(),
    "arrow pieces": lambda log: list(log.iterate_arrow()),
    "latest": lambda log: list(log.latest()),
    "latest arrow": lambda log: log.latest_arrow().read_all(),
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    with logstore.open(tmp_path / "s") as store:
        log = store.create_topic("t")[0]
        for number in range(10):
            log.extend([(b"%d" % each, b"v" * 50) for each in range(number, number + 3)])
        log.roll()
        log.extend([(b"k", b"sound")])
    file = tmp_path / "s/t-0" / f"{0:020}.log"
    data = bytearray(file.read_bytes())
    data[len(data) * 11 // 20] ^= 1
    file.write_bytes(data)
    return tmp_path / "s"


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("way", WAYS)
def test_each_way_of_reading_counts_what_it_raises(path: Path, way: str, read_only: bool) -> None:
    if "arrow" in way:
        pytest.importorskip("pyarrow")
    with logstore.open(path, read_only=read_only) as store:
        log = store["t"][0]
        assert log.damaged_read_count == 0
        assert next(iter(log.read())).offset == 0
        assert log.damaged_read_count == 0
        for count in (1, 2):
            with pytest.raises(CorruptionError):
                WAYS[way](log)
            assert log.damaged_read_count == count
        assert not log.verify()
        assert log.damaged_read_count == 2  # a check raises nothing


def test_an_offset_that_is_not_there_is_no_damage(path: Path) -> None:
    with logstore.open(path) as store:
        log = store["t"][0]
        with pytest.raises(logstore.errors.OffsetOutOfRangeError):
            log.record_at(99)
        assert log.damaged_read_count == 0
