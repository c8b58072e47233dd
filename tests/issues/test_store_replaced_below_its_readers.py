"""While a store was open with `read_only=True`, its path was made to lead to another directory: a backup was
put there, or a link was swung. If the topics had the same ids, followers went on in the other store's log,
skipped records or mixed both, and sound stores were called damaged."""

from __future__ import annotations

import shutil

import pytest
from tests.logdir.helpers import open_store, values

from logstore.errors import ReopenRequiredError

OLD, LATER = [b"0", b"1", b"2"], [b"new3", b"new4", b"new5", b"new6"]


@pytest.fixture
def path(tmp_path):
    """Of a store with a backup, behind which it has two records more."""
    with open_store(tmp_path / "data") as store:
        log = store.create_topic("t")[0]
        log.extend(OLD)
        store.backup(tmp_path / "backup")
        log.extend([b"lost3", b"lost4"])
    return tmp_path


def grow(path):
    with open_store(path) as store:
        store["t"][0].extend(LATER)


WAYS = {
    "log.follow": lambda store: list(store["t"][0].follow(0, timeout=0)),
    "topic.follow": lambda store: list(store["t"].follow("earliest", timeout=0)),
    "read": lambda store: list(store["t"].read()),
    "record_at": lambda store: store["t"][0].record_at(3),
    "latest": lambda store: list(store["t"][0].latest()),
    "topics": lambda store: list(store),
}


@pytest.mark.parametrize("follow", ["log", "topic"])
def test_a_follower_hears_of_a_restored_backup(path, follow):
    with open_store(path / "data", read_only=True) as store:
        topic = store["t"]
        following = topic[0].follow(0, timeout=0) if follow == "log" else topic.follow("earliest", timeout=0)
        assert [next(following).value for _ in range(5)] == [*OLD, b"lost3", b"lost4"]
        (path / "data").rename(path / "data.broken")
        shutil.copytree(path / "backup", path / "data")
        grow(path / "data")
        with pytest.raises(ReopenRequiredError, match="another directory was put in this one's place"):
            next(following)


@pytest.mark.parametrize("way", WAYS)
def test_every_reader_hears_of_it(path, way):
    with open_store(path / "data", read_only=True) as store:
        WAYS[way](store)
        (path / "data").rename(path / "data.broken")
        shutil.copytree(path / "backup", path / "data")
        with pytest.raises(ReopenRequiredError, match="open the store again"):
            WAYS[way](store)
    with open_store(path / "data", read_only=True) as store:
        assert values(store["t"][0]) == OLD


@pytest.mark.parametrize("way", WAYS)
def test_a_link_that_is_swung_leads_the_next_open_elsewhere(path, way):
    shutil.copytree(path / "backup", path / "other")
    grow(path / "other")
    (path / "current").symlink_to("data")
    with open_store(path / "current", read_only=True) as store:
        before = WAYS[way](store)
        (path / "next").symlink_to("other")
        (path / "next").rename(path / "current")
        assert WAYS[way](store) == before
        assert values(store["t"][0]) == [*OLD, b"lost3", b"lost4"]
    with open_store(path / "current", read_only=True) as store:
        assert values(store["t"][0]) == [*OLD, *LATER]


def test_a_directory_that_was_moved_away_and_back_is_the_same(path):
    with open_store(path / "data", read_only=True) as store:
        assert len(values(store["t"][0])) == 5
        (path / "data").rename(path / "away")
        (path / "away").rename(path / "data")
        grow(path / "data")
        assert len(values(store["t"][0])) == 9
