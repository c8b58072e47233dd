"""`verify()` reported two problems in an untouched directory of a stock broker whose metadata log lies in
`log.dirs`: the index files of `__cluster_metadata-0`. The broker keeps that log apart from the others: a
clean stop does not cut its index files to what is in them, and no checkpoint of the directory names it.

It is no topic, and left alone. The same zeros in the index of any other log are still found after a clean
stop."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.partition.checking.findings import FindingKind
from logstore.partition.log import Log

pytestmark = pytest.mark.damaged
PREALLOCATED_BYTES = 48_000


def make(path: Path, name: str) -> Path:
    """A directory as a broker leaves it, with one log of this name whose last indexes were not cut."""
    path.mkdir()
    alone = path.parent / name
    config = TopicConfig(index_interval_bytes=100)
    with Log.open(str(alone), config=config, store_config=StoreConfig(linger_ms=0)) as log:
        for number in range(30):
            log.extend([b"v" * 60])
            if number == 14:
                log.roll()
    directory = path / name
    directory.mkdir()
    for file in alone.iterdir():
        if (
            file.suffix in {".log", ".index", ".timeindex", ".snapshot"}
            or file.name == "leader-epoch-checkpoint"
        ):
            shutil.copy(file, directory)
    for suffix in (".index", ".timeindex"):
        file = directory / f"{15:020}{suffix}"
        entries = file.read_bytes()
        if suffix == ".timeindex":
            entries = entries[:-12]  # nor was the closing entry written
        file.write_bytes(entries + bytes(PREALLOCATED_BYTES - len(entries)))
    (directory / "00000000000000000020-0000000001.checkpoint").write_bytes(b"a snapshot of the cluster")
    (directory / "quorum-state").write_bytes(b"{}")
    (path / ".kafka_cleanshutdown").write_bytes(b'{"version":0,"brokerEpoch":5}')
    (path / "meta.properties").write_text("version=1\nnode.id=1\ncluster.id=abcdefghijklmnopqrstuv\n")
    return directory


def kinds(path: Path) -> list[FindingKind]:
    with logstore.open(path, read_only=True) as store:
        return sorted((problem.kind for problem in store.verify().problems), key=str)


def test_an_untouched_metadata_log_is_sound(tmp_path: Path) -> None:
    directory = make(tmp_path / "s", "__cluster_metadata-0")
    before = {file.name: file.read_bytes() for file in directory.iterdir()}
    assert kinds(tmp_path / "s") == []
    with logstore.open(tmp_path / "s") as store:
        assert list(store) == []
        assert store.verify()
    assert {file.name: file.read_bytes() for file in directory.iterdir()} == before


def test_another_log_has_no_such_indexes_after_a_clean_stop(tmp_path: Path) -> None:
    make(tmp_path / "s", "metadata-0")
    assert kinds(tmp_path / "s") == [FindingKind.OFFSET_INDEX, FindingKind.TIME_INDEX]
