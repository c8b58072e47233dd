"""Many topics that are created together: what is stored for all of them is stored once."""

import pytest

from logstore.errors import DiskFullError, InvalidTopicError, StorageError, TopicExistsError
from logstore.files import OsFile, OsFiles
from logstore.logdir import directory as directory_module
from logstore.logdir.catalogue import CatalogueWriter, TopicEntry
from logstore.logdir.open_logs import OpenLogs
from logstore.logdir.topics import NewTopic
from logstore.model import Role, TopicPartition
from tests.logdir.helpers import crash, open_store


def new(name, count=1, **more):
    return NewTopic(name=name, partition_count=count, config=None, **more)


def counted(monkeypatch):
    """How many topics each catalogue had that was written since."""
    sizes = []
    write = CatalogueWriter.write
    monkeypatch.setattr(
        CatalogueWriter, "write", lambda self, topics: sizes.append(len(topics)) or write(self, topics)
    )
    return sizes


def test_the_catalogue_is_written_twice_for_all(tmp_path, monkeypatch):
    with open_store(tmp_path / "store") as store:
        sizes = counted(monkeypatch)
        made = store.directory.create_topics([new(f"t{number}", 2) for number in range(10)])
        assert sizes == [10, 10]
        assert list(made) == [f"t{number}" for number in range(10)]
        for name, entry in made.items():
            assert store.directory.topic(name) == entry
            store[name].extend([b"a"])
    with open_store(tmp_path / "store") as store:
        assert (len(store), store.was_clean, store.damaged) == (10, True, {})


def test_each_is_made_or_refused(tmp_path):
    with open_store(tmp_path / "store") as store:
        store.create_topic("there")
        wanted = ["a.b", "there", "a b", "a_b", "c"]
        made = store.directory.create_topics([*map(new, wanted), new("c", 7)])
        kinds = [type(made[name]) for name in wanted]
        assert kinds == [TopicEntry, TopicExistsError, InvalidTopicError, TopicExistsError, TopicEntry]
        assert (list(store), len(store["c"])) == (["a.b", "c", "there"], 1)


def test_an_id_is_given_once(tmp_path):
    with open_store(tmp_path / "store") as store:
        wanted = store.directory.topic(store.create_topic("there").name).topic_id
        made = store.directory.create_topics([new(name, topic_id=wanted) for name in "ab"])
        assert len({wanted, made["a"].topic_id, made["b"].topic_id}) == 3


def test_what_the_disk_refuses_is_undone_and_the_others_are_made(tmp_path, monkeypatch):
    monkeypatch.setattr(directory_module, "CREATED_AT_A_TIME", 2)
    open_log = OpenLogs._open

    def refuse(self, partition, *args, **options):
        if partition.topic == "d":
            raise DiskFullError("no room")
        return open_log(self, partition, *args, **options)

    with open_store(tmp_path / "store") as store:
        with monkeypatch.context() as patched:
            patched.setattr(OpenLogs, "_open", refuse)
            made = store.directory.create_topics([new(name) for name in "abcde"])
        assert {name for name, entry in made.items() if isinstance(entry, StorageError)} == {"c", "d"}
        assert list(store) == ["a", "b", "e"]
        assert all(
            isinstance(each, TopicEntry) for each in store.directory.create_topics([new("c")]).values()
        )
    with open_store(tmp_path / "store") as store:
        assert list(store) == ["a", "b", "c", "e"]


def test_a_kill_between_leaves_all_of_them(tmp_path, monkeypatch):
    store = open_store(tmp_path / "store")
    monkeypatch.setattr(store.directory._topics, "finish", lambda entries: 1 / 0)
    monkeypatch.setattr(store.directory._topics, "undo", lambda name: None)
    with pytest.raises(ZeroDivisionError):
        store.directory.create_topics([new(name, 2) for name in "ab"])
    crash(store)
    with open_store(tmp_path / "store") as store:
        assert {name: len(store[name]) for name in store} == {"a": 2, "b": 2}
        assert not store.damaged


def test_a_new_replica_is_one_from_the_start(tmp_path, monkeypatch):
    """Of each new directory are flushed its two small files, and all names once the log is there."""
    flushed = []
    flush, flush_directory = OsFile.flush, OsFiles.flush_directory
    monkeypatch.setattr(OsFile, "flush", lambda self: flushed.append(self.path) or flush(self))
    monkeypatch.setattr(
        OsFiles, "flush_directory", lambda self, path: flushed.append(path) or flush_directory(self, path)
    )
    with open_store(tmp_path / "store", files=OsFiles()) as store:
        store.directory.create_topics([new("t")], Role.FOLLOWER)
        log = store.directory.log(TopicPartition("t", 0))
        log.set_role(Role.FOLLOWER)
        log.lead(3)
        assert log.role is Role.LEADER
        there = [path for path in flushed if "t-0" in path]
        assert len(there) == 3, there
