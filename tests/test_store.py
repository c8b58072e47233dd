"""The store: a mapping from names to topics, and its directory over time."""

import json
import logging
import shutil
import threading
import uuid
from pathlib import Path

import pytest

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import (
    ClosedError,
    CorruptionError,
    InvalidConfigError,
    InvalidTopicError,
    ReopenRequiredError,
    StorageError,
    TopicExistsError,
    UnknownTopicError,
    UnsupportedVersionError,
    UsageError,
)
from logstore.logdir import identity
from logstore.logdir.catalogue import CatalogueWriter
from logstore.model import TopicPartition
from logstore.partition.checking.findings import FindingKind
from logstore.testing import ManualClock
from tests.logdir.helpers import (
    QuickFile,
    QuickFiles,
    crash,
    flip_byte,
    log_files,
    names_in,
    open_store,
    snapshot,
    values,
)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "store"


@pytest.fixture
def store(path):
    with open_store(path) as store:
        yield store


# A mapping --------------------------------------------------------------------------------------------------


def test_a_new_store_is_an_empty_mapping(store):
    assert (len(store), list(store), dict(store)) == (0, [], {})


def test_iterates_over_names_in_order(store):
    for name in ("b", "a", "c"):
        store.create_topic(name)
    assert list(store) == list(store.keys()) == ["a", "b", "c"]
    assert [topic.name for topic in store.values()] == ["a", "b", "c"]


def test_in_says_whether_a_topic_is_there(store):
    store.create_topic("a")
    assert "a" in store
    assert "b" not in store
    assert 5 not in store


def test_the_same_topic_is_the_same_object(store):
    store.create_topic("a")
    assert store["a"] is store["a"] is store.get("a")


@pytest.mark.parametrize("kind", [UnknownTopicError, KeyError, UsageError, logstore.LogstoreError])
def test_an_unknown_name_is_a_key_error_and_ours(store, kind):
    with pytest.raises(kind, match="there is no topic 'x'"):
        store["x"]


def test_get_of_an_unknown_name_is_the_default(store):
    assert store.get("x") is None


def test_the_message_of_an_unknown_topic_is_not_quoted_twice(store):
    with pytest.raises(UnknownTopicError) as caught:
        store["x"]
    assert str(caught.value).startswith("there is no topic")


def test_repr_names_path_and_topics(store, path):
    store.create_topic("a")
    assert repr(store) == f"<Store {str(path)!r}: a>"


def test_the_path_is_absolute(path, monkeypatch):
    path.parent.mkdir(exist_ok=True)
    monkeypatch.chdir(path.parent)
    with open_store("store") as store:
        assert store.path == str(path)


# Creating and deleting topics -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["../x", "", ".", "..", "a" * 250, "a b", "é", "a/b", "a\0b", "a\n", "a:b"])
def test_a_name_that_kafka_refuses_makes_nothing(store, path, name):
    before = names_in(path)
    with pytest.raises(InvalidTopicError):
        store.create_topic(name)
    with pytest.raises(InvalidTopicError):
        store.require_topic(name)
    assert names_in(path) == before


@pytest.mark.parametrize("name", [None, 5, b"orders", [], ("a",)])
def test_a_name_that_is_no_str_is_refused(store, name):
    with pytest.raises(InvalidTopicError):
        store.create_topic(name)
    with pytest.raises(InvalidTopicError):
        store.require_topic(name)


def test_a_name_of_249_characters_can_be_created_filled_and_deleted(store, path):
    topic = store.create_topic("a" * 249, partitions=2)
    topic.append(b"v")
    store.delete_topic("a" * 249)
    assert list(store) == []


@pytest.mark.parametrize("count", [0, -1, True, False, "4", 1.0, 100_001])
def test_a_number_of_partitions_that_is_none_is_refused(store, count):
    with pytest.raises(UsageError, match="partitions is"):
        store.create_topic("t", partitions=count)
    with pytest.raises(UsageError, match="partitions is"):
        store.require_topic("t", partitions=count)
    assert "t" not in store


def test_a_topic_is_created_once(store):
    store.create_topic("a")
    with pytest.raises(TopicExistsError, match="require_topic"):
        store.create_topic("a")


def test_many_topics_are_made_at_once(store):
    made = store.create_topics({"a": 2, "b": 1}, config=TopicConfig(retention_ms=7))
    assert {name: (topic.name, len(topic)) for name, topic in made.items()} == {"a": ("a", 2), "b": ("b", 1)}
    assert {topic.config.retention_ms for topic in store.values()} == {7}
    made["a"][1].append(b"v")


def test_of_many_topics_one_that_is_refused_is_told_when_the_others_are_there(store):
    store.create_topic("b")
    with pytest.raises(TopicExistsError, match="'b' exists already"):
        store.create_topics({"a": 2, "b": 1, "c": 3})
    assert {name: len(topic) for name, topic in store.items()} == {"a": 2, "b": 1, "c": 3}


@pytest.mark.parametrize("topics", [["a"], "a", {"a": 0}, {"a": True}, {"a": 1, "b": 100_001}, {"a": "1"}])
def test_of_many_topics_none_is_made_of_wrong_numbers(store, topics):
    with pytest.raises(UsageError):
        store.create_topics(topics)
    with pytest.raises(InvalidTopicError):
        store.create_topics({"c": 1, "../d": 1})
    assert list(store) == []


def test_many_topics_store_the_catalogue_some_times(store, path, monkeypatch):
    stored = []
    plain = CatalogueWriter.write
    monkeypatch.setattr(CatalogueWriter, "write", lambda *each: stored.append(1) or plain(*each))
    store.create_topics(dict.fromkeys([f"t{number}" for number in range(200)], 1))
    assert len(store) == 200
    assert len(stored) < 20


@pytest.mark.parametrize(("first", "second"), [("a.b", "a_b"), ("a_b", "a.b"), ("a.b_c", "a_b.c")])
def test_names_that_differ_in_dots_and_underscores_clash_as_in_kafka(store, first, second):
    store.create_topic(first)
    with pytest.raises(TopicExistsError, match="clashes"):
        store.create_topic(second)
    with pytest.raises(TopicExistsError, match="clashes"):
        store.require_topic(second)


def test_something_else_than_a_config_is_refused(store):
    with pytest.raises(InvalidConfigError, match="must be a TopicConfig"):
        store.create_topic("a", config={"retention_ms": 5})
    assert "a" not in store


def test_a_topic_without_settings_of_its_own_gets_those_of_the_store(path):
    with open_store(path, config=StoreConfig(topic=TopicConfig(retention_ms=5))) as store:
        assert store.create_topic("a").config.retention_ms == 5


def test_require_creates_and_then_returns_the_topic(store):
    made = store.require_topic("a", partitions=3)
    assert store.require_topic("a") is store.require_topic("a", partitions=3) is made


def test_require_creates_one_partition_unless_told_otherwise(store):
    assert len(store.require_topic("a")) == 1


def test_require_refuses_another_number_of_partitions(store):
    store.create_topic("a", partitions=2)
    with pytest.raises(UsageError, match="has 2 partitions, not 3; add_partitions"):
        store.require_topic("a", partitions=3)
    store.create_topic("one")
    with pytest.raises(UsageError):
        store.require_topic("one", partitions=True)


def test_require_refuses_other_settings(store):
    config = TopicConfig(retention_ms=5)
    store.create_topic("a", config=config)
    assert store.require_topic("a", config=config).config == config
    with pytest.raises(UsageError, match="configure"):
        store.require_topic("a", config=TopicConfig(retention_ms=6))


def test_many_threads_may_require_the_same_topic(store):
    gate, found = threading.Barrier(8), []

    def require():
        gate.wait()
        found.append(store.require_topic("a", partitions=2).topic_id)

    threads = [threading.Thread(target=require) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(found) == 8
    assert len(set(found)) == 1


def test_an_unknown_topic_cannot_be_deleted(store):
    with pytest.raises(UnknownTopicError):
        store.delete_topic("a")


def test_a_log_whose_topic_was_deleted_says_so(tmp_path):
    """It said that it was closed, and to open it again: also to those who followed it."""
    with logstore.open(tmp_path / "store") as store:
        log = store.create_topic("a")[0]
        followed = log.follow(timeout=0)
        store.delete_topic("a")
        told = r"^a-0 was deleted; a topic that is made again under its name has another: store\['a'\]\[0\]$"
        for call in (lambda: log.append(b""), log.flush, lambda: list(log.read()), lambda: next(followed)):
            with pytest.raises(ClosedError, match=told):
                call()
        assert store.create_topic("a")[0].append(b"") == 0
    with pytest.raises(ClosedError, match="is closed; open it again"):
        store["a"]


def test_a_deleted_topic_is_gone_from_mapping_catalogue_and_checkpoints(store, path):
    store.create_topic("a", partitions=2).append(b"v")
    store.checkpoint()
    store.delete_topic("a")
    assert "a" not in store
    assert json.loads((path / "topics.json").read_text())["topics"] == {}
    for name in ("recovery-point", "log-start", "replication"):
        assert (path / f"{name}-offset-checkpoint").read_text() == "0\n0\n"


def test_a_log_of_a_deleted_topic_is_closed(store):
    log = store.create_topic("a")[0]
    store.delete_topic("a")
    with pytest.raises(logstore.UsageError):
        log.append(b"v")
    with pytest.raises(logstore.UsageError):
        list(log.read())


def test_a_topic_created_again_begins_at_0_and_inherits_nothing(store, path):
    config = TopicConfig(segment_bytes=1000, file_delete_delay_ms=0)
    log = store.create_topic("a", config=config)[0]
    log.extend([b"v" * 100] * 50)
    log.delete_before(30)
    store.checkpoint()
    first_id = store["a"].topic_id
    store.delete_topic("a")
    log = store.create_topic("a")[0]
    assert (log.log_start_offset, log.log_end_offset, log.durable_offset) == (0, 0, 0)
    assert store["a"].topic_id != first_id
    assert log.append(b"new") == 0
    store.close()
    with open_store(path) as store:
        assert values(store["a"][0]) == [b"new"]
        assert store.damaged == {}


def test_a_topic_deleted_by_a_crash_half_way_leaves_nothing_to_inherit(path):
    store = open_store(path)
    store.create_topic("a")[0].extend([b"v"] * 50)
    store.checkpoint()
    topics = store._directory._topics
    topics.hide(topics.get("a"))
    crash(store)
    with open_store(path) as store:
        assert "a" not in store
        assert store.create_topic("a")[0].append(b"new") == 0
    with open_store(path) as store:
        assert (store.damaged, values(store["a"][0])) == ({}, [b"new"])


def test_files_of_a_deleted_topic_go_after_the_delay(path):
    clock = ManualClock()
    store = open_store(path, clock=clock)
    store.create_topic("a", config=TopicConfig(file_delete_delay_ms=60_000))
    store.delete_topic("a")
    assert [name for name in names_in(path) if name.endswith("-delete")]
    clock.advance(59_999)
    store.run_background()
    assert [name for name in names_in(path) if name.endswith("-delete")]
    clock.advance(1)
    store.run_background()
    assert not [name for name in names_in(path) if "-delete" in name]


def test_a_deletion_does_not_look_closely_at_those_before_it(store, monkeypatch):
    parsed = []
    parse_name = identity.parse_name
    monkeypatch.setattr(identity, "parse_name", lambda name: parsed.append(name) or parse_name(name))
    store.create_topics({f"t-{number}": 1 for number in range(20)})
    for number in range(20):
        store.delete_topic(f"t-{number}")
    store.create_topic("t")
    store.delete_topic("t")
    assert sum(name.startswith("t-") for name in parsed) == 21


def test_closing_removes_the_files_of_deleted_topics(path):
    with open_store(path) as store:
        store.create_topic("a")
        store.delete_topic("a")
    assert not [name for name in names_in(path) if "-delete" in name]


def test_the_directory_is_named_and_its_id_stored_as_kafka_does(store, path):
    topic = store.create_topic("orders", partitions=2)
    metadata = (path / "orders-1" / "partition.metadata").read_text()
    assert metadata.startswith("version: 0\ntopic_id: ")
    assert isinstance(topic.topic_id, uuid.UUID)


# The path ---------------------------------------------------------------------------------------------------


def test_the_directory_and_its_parents_are_made(tmp_path):
    open_store(tmp_path / "a" / "b" / "c").close()
    assert (tmp_path / "a" / "b" / "c" / "meta.properties").is_file()


def test_create_false_refuses_what_is_not_there(path):
    with pytest.raises(UsageError, match="does not exist"):
        open_store(path, create=False)
    assert not path.exists()


def test_an_empty_directory_becomes_a_store(path):
    path.mkdir()
    open_store(path).close()


def test_a_path_object_is_a_path(path):
    with logstore.open(path, clock=ManualClock()) as store:
        assert store.path == str(path)


@pytest.mark.parametrize("bad", ["", None, 5, b"bytes", "nul\0byte"])
def test_something_else_than_a_path_is_refused(bad):
    with pytest.raises(UsageError, match="path is"):
        logstore.open(bad)


def test_a_working_directory_that_is_gone_is_no_crash(store, tmp_path, monkeypatch):
    gone = tmp_path / "gone"
    gone.mkdir()
    monkeypatch.chdir(gone)
    gone.rmdir()
    for opening in (
        lambda: logstore.open("data"),
        lambda: logstore.open("data", read_only=True),
        lambda: store.backup("copy"),
    ):
        with pytest.raises(StorageError, match="looking at: No such file or directory"):
            opening()


def test_a_file_is_refused(path):
    path.write_text("hello")
    for read_only in (False, True):
        with pytest.raises(UsageError, match="is a file; a store is a directory"):
            open_store(path, read_only=read_only)


def test_a_directory_with_other_files_is_refused_and_left_alone(path):
    path.mkdir()
    (path / "thesis.doc").write_text("hello")
    (path / "photos-2024").mkdir()
    for read_only in (False, True):
        with pytest.raises(UsageError, match="a directory of its own"):
            open_store(path, read_only=read_only)
    assert names_in(path) == ["photos-2024", "thesis.doc"]


def test_a_partition_directory_is_refused_and_its_parent_named(path):
    with open_store(path) as store:
        store.create_topic("a")
    for read_only in (False, True):
        with pytest.raises(UsageError, match="open its parent, or use Log"):
            open_store(path / "a-0", read_only=read_only)
    assert ".lock" not in names_in(path / "a-0")


def test_a_partition_that_was_used_alone_is_refused_too(tmp_path):
    logstore.Log.open(str(tmp_path / "log"), clock=ManualClock()).close()
    with pytest.raises(UsageError, match="or use Log"):
        open_store(tmp_path / "log")


def test_a_first_open_that_crashed_early_can_be_repeated(path):
    path.mkdir()
    (path / "meta.properties.tmp").write_bytes(b"vers")
    open_store(path).close()


# meta.properties --------------------------------------------------------------------------------------------


def test_the_identity_is_made_once_and_kept(path):
    open_store(path).close()
    first = (path / "meta.properties").read_bytes()
    open_store(path).close()
    assert (path / "meta.properties").read_bytes() == first
    assert b"cluster.id=" in first
    assert b"directory.id=" in first


def test_a_brokers_identity_is_kept_to_the_byte(path):
    path.mkdir()
    brokers = b"#\n#Thu Jan 01\ncluster.id=abc\nversion=1\nnode.id=7\nunknown=x\n"
    (path / "meta.properties").write_bytes(brokers)
    open_store(path).close()
    assert (path / "meta.properties").read_bytes() == brokers


def test_a_damaged_identity_is_named_and_nothing_changed(path):
    open_store(path).close()
    (path / "meta.properties").write_bytes(b"version=x\n")
    before = snapshot(path)
    with pytest.raises(CorruptionError, match=r"meta\.properties"):
        open_store(path)
    assert snapshot(path) == before


# topics.json ------------------------------------------------------------------------------------------------


@pytest.fixture
def filled(path):
    """A closed store with a topic of two partitions."""
    with open_store(path) as store:
        topic = store.create_topic("t", partitions=2, config=TopicConfig(retention_ms=77))
        topic[0].append(b"zero")
        topic[1].append(b"one")
    return path


def change_catalogue(path, change):
    content = json.loads((path / "topics.json").read_text())
    change(content)
    (path / "topics.json").write_text(json.dumps(content))


@pytest.mark.parametrize(
    "damage",
    [
        b"",
        b"{",
        b"[]",
        b"\xff\xfe",
        b"[" * 100_000,
        b'{"version": 1}',
        b'{"version": "1", "topics": {}}',
        b'{"version": 1, "topics": {"a b": {"id": "", "partitions": 1, "config": {}, "state": "live"}}}',
        b'{"version": 1, "topics": {"t": 5}}',
    ],
)
def test_a_damaged_catalogue_is_named_and_nothing_changed(filled, damage):
    (filled / "topics.json").write_bytes(damage)
    before = snapshot(filled)
    for read_only in (False, True):
        with pytest.raises(CorruptionError) as caught:
            open_store(filled, read_only=read_only)
        assert str(filled / "topics.json") in str(caught.value)
    assert snapshot(filled) == before


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("id", "short"),
        ("partitions", 0),
        ("partitions", 100_001),
        ("partitions", True),
        ("partitions", "2"),
        ("config", {"retention.ms": "soon"}),
        ("config", {"unheard.of": "1"}),
        ("config", {"retention.ms": 5}),
        ("state", "sleeping"),
    ],
)
def test_a_damaged_entry_names_its_topic(filled, field, value):
    change_catalogue(filled, lambda content: content["topics"]["t"].update({field: value}))
    with pytest.raises(CorruptionError, match="topic 't'"):
        open_store(filled)


def test_a_link_to_a_disk_that_is_not_there_is_told(tmp_path):
    """The system says that the file exists, of which nobody could see anything."""
    (tmp_path / "link").symlink_to(tmp_path / "volume" / "data")
    with pytest.raises(
        StorageError, match=r"exists \(what is there is a file, or a link that leads nowhere\)"
    ):
        open_store(tmp_path / "link")


def test_a_newer_catalogue_is_refused(filled):
    change_catalogue(filled, lambda content: content.update(version=3))
    with pytest.raises(UnsupportedVersionError, match="version 3; only 2 is known") as caught:
        open_store(filled)
    assert str(caught.value).startswith(f"{filled}/topics.json: ")
    assert "newer logstore wrote it: open the store with that" in str(caught.value)


def test_a_setting_that_a_newer_version_has_written_is_not_only_called_damage(filled):
    """Who goes back to an older version is not to move the settings of all topics away."""
    change_catalogue(filled, lambda content: content["topics"]["t"]["config"].update({"of.next.year": "1"}))
    with pytest.raises(
        CorruptionError, match=r"'of\.next\.year'\. If a newer logstore wrote it, open the store"
    ):
        open_store(filled)


def test_a_failed_open_lets_go_of_the_lock(filled):
    good = (filled / "topics.json").read_bytes()
    (filled / "topics.json").write_bytes(b"{")
    with pytest.raises(CorruptionError):
        open_store(filled)
    (filled / "topics.json").write_bytes(good)
    with open_store(filled) as store:
        assert store.was_clean


def test_without_a_catalogue_topics_are_what_the_directories_say(filled):
    with open_store(filled) as store:
        topic_id = store["t"].topic_id
    (filled / "topics.json").unlink()
    with open_store(filled) as store:
        assert [values(log) for log in store["t"]] == [[b"zero"], [b"one"]]
        assert store["t"].topic_id == topic_id
        assert store["t"].config == TopicConfig(retention_ms=-1)
    assert "topics.json" in names_in(filled)


def test_nothing_of_an_adopted_topic_is_deleted_because_of_a_default(tmp_path):
    clock = ManualClock()
    with logstore.open(tmp_path / "s", clock=clock) as store:
        store.create_topic("old").append(b"kept", timestamp_ms=0)
    (tmp_path / "s" / "topics.json").unlink()
    with logstore.open(tmp_path / "s", clock=clock) as store:
        assert store.enforce_retention() == {}
        assert values(store["old"][0]) == [b"kept"]


def test_a_directory_that_the_catalogue_does_not_know_is_adopted(filled):
    shutil.copytree(filled / "t-0", filled / "other-0")
    with open_store(filled) as store:
        assert list(store) == ["other", "t"]
        assert values(store["other"][0]) == [b"zero"]
    with open_store(filled) as store:
        assert list(store) == ["other", "t"]


@pytest.mark.damaged
def test_an_adopted_topic_with_a_damaged_id_file_is_adopted_all_the_same(filled, caplog):
    shutil.copytree(filled / "t-0", filled / "other-0")
    (filled / "other-0" / "partition.metadata").write_bytes(b"garbage")
    with open_store(filled) as store:
        assert values(store["other"][0]) == [b"zero"]
    assert "damaged topic id" in caplog.text


def test_a_topic_of_which_only_some_partitions_are_here_is_adopted_with_gaps(filled):
    """As a broker's directory has it, when the other replicas are elsewhere."""
    shutil.copytree(filled / "t-0", filled / "wide-2")
    with open_store(filled) as store:
        assert len(store["wide"]) == 3
        assert store["wide"].held_partitions == (2,)
        assert values(store["wide"][2]) == [b"zero"]
        assert not store.damaged


def test_foreign_directories_and_files_are_ignored_and_kept(filled):
    (filled / "backup-20240101").mkdir()
    (filled / "notes.txt").write_text("x")
    (filled / "photos-1").mkdir()
    (filled / "photos-1" / "a.jpg").write_text("x")
    (filled / "t-00").mkdir()
    with open_store(filled) as store:
        assert list(store) == ["t"]
        assert store.damaged == {}
    assert {"backup-20240101", "notes.txt", "photos-1", "t-00"} <= set(names_in(filled))


def test_a_partition_number_beyond_the_limit_is_ignored(filled, caplog):
    shutil.copytree(filled / "t-0", filled / "huge-100000")
    shutil.copytree(filled / "t-0", filled / "large-99")
    with open_store(filled) as store:
        assert list(store) == ["large", "t"]
    assert "above the limit" in caplog.text


UNIQUE = "0123456789abcdef" * 2


def test_deleted_directories_are_removed_at_open(filled):
    shutil.copytree(filled / "t-0", filled / f"gone-0.{UNIQUE}-delete")
    with open_store(filled) as store:
        assert list(store) == ["t"]
    assert f"gone-0.{UNIQUE}-delete" not in names_in(filled)


def test_a_deleted_directory_that_cannot_be_removed_does_not_keep_the_store_shut(filled, caplog):
    (filled / f"gone-0.{UNIQUE}-delete" / "sub").mkdir(parents=True)
    with open_store(filled) as store:
        assert values(store["t"][0]) == [b"zero"]
    assert "cannot be removed" in caplog.text


@pytest.mark.parametrize("kind", ["stray", "future"])
def test_stray_and_future_directories_are_left_alone(filled, kind):
    shutil.copytree(filled / "t-0", filled / f"t-0.{UNIQUE}-{kind}")
    shutil.copytree(filled / "t-0", filled / f"other-0.{UNIQUE}-{kind}")
    for read_only in (False, True):
        with open_store(filled, read_only=read_only) as store:
            assert list(store) == ["t"]
    assert f"t-0.{UNIQUE}-{kind}" in names_in(filled)


# Damage in one partition ------------------------------------------------------------------------------------


@pytest.fixture
def damaged(filled):
    with open_store(filled) as store:
        store["t"][0].extend([b"more"] * 5)
    flip_byte(log_files(filled / "t-0")[0], 70)
    (filled / ".kafka_cleanshutdown").unlink()  # as after a crash: the end of each log is checked
    return filled


def test_damage_in_one_partition_leaves_the_others(damaged):
    with open_store(damaged) as store:
        assert set(store.damaged) == {TopicPartition("t", 0)}
        assert values(store["t"][1]) == [b"one"]
        assert store["t"][1].append(b"more") == 1
        store.flush()
        store["t"].flush()
        store.checkpoint()
        with pytest.raises(CorruptionError, match="t-0"):
            store["t"][0]


def test_a_store_with_damage_does_not_claim_a_clean_stop(damaged):
    open_store(damaged).close()
    assert ".kafka_cleanshutdown" not in names_in(damaged)


def test_a_restored_file_is_taken_up_by_reopen(damaged):
    with open_store(damaged) as store:
        with pytest.raises(CorruptionError):
            store["t"].reopen(0)
        flip_byte(log_files(damaged / "t-0")[0], 70)
        assert values(store["t"].reopen(0)) == [b"zero"] + [b"more"] * 5
        assert store.damaged == {}
        assert store["t"][0].append(b"next") == 6


def test_reopen_with_accepted_loss_cuts_and_keeps_the_bytes(damaged):
    with open_store(damaged) as store:
        assert values(store["t"].reopen(0, accept_loss=True)) == []
        assert store["t"][0].recovery.kept_aside
        assert store.damaged == {}
    with open_store(damaged) as store:
        assert store.was_clean
        assert values(store["t"][1]) == [b"one"]


def test_a_missing_partition_directory_is_damage(filled):
    shutil.rmtree(filled / "t-0")
    with open_store(filled) as store:
        assert values(store["t"][1]) == [b"one"]
        with pytest.raises(CorruptionError, match="directory is missing"):
            store["t"][0]
        problems = store.verify().problems
        assert [problem.kind for problem in problems] == [FindingKind.NOT_OPENED, FindingKind.MISSING_SEGMENT]
        assert str(problems[0]).count(str(filled / "t-0")) == 1
    assert "t-0" not in names_in(filled)


def test_a_partition_that_is_gone_for_good_begins_anew_in_an_empty_directory_as_its_error_says(filled):
    shutil.rmtree(filled / "t-0")
    with open_store(filled) as store:
        with pytest.raises(
            CorruptionError, match="make an empty one, and reopen the partition with accept_loss"
        ):
            store["t"].reopen(0, accept_loss=True)
        (filled / "t-0").mkdir()
        assert store["t"].reopen(0, accept_loss=True).append(b"anew") == 0
        assert not store.damaged


def test_a_topic_with_damage_can_be_deleted(damaged):
    with open_store(damaged) as store:
        store.delete_topic("t")
        assert store.damaged == {}


def test_reopening_a_good_partition_is_allowed(filled):
    with open_store(filled) as store:
        old = store["t"][0]
        new = store["t"].reopen(0)
        assert new is store["t"][0] is not old
        assert new.append(b"next") == 1
        with pytest.raises(UsageError):
            old.append(b"lost")


@pytest.mark.parametrize("number", [2, -3, "0", True])
def test_only_a_partition_can_be_reopened(filled, number):
    with open_store(filled) as store, pytest.raises(UsageError):
        store["t"].reopen(number)


# Failing fsyncs ---------------------------------------------------------------------------------------------


class FailingFlush(QuickFile):
    __slots__ = ("files",)

    def flush(self):
        if self.files.failing and self.files.failing in self.path:
            raise StorageError(5, "flushing: Input/output error", self.path)


class FlushFails(QuickFiles):
    file_class = FailingFlush
    failing = ""

    def open(self, path, *, write=False, create=False):
        file = super().open(path, write=write, create=create)
        file.files = self
        return file


def test_a_failed_flush_in_one_partition_does_not_keep_the_others_from_being_flushed(path):
    files = FlushFails()
    store = open_store(path, files=files)
    logs = [store.create_topic(name)[0] for name in "abc"]
    for log in logs:
        log.append(b"v")
    files.failing = "b-0/"
    with pytest.raises(StorageError):
        store.flush()
    assert [log.durable_offset for log in logs] == [1, 0, 1]
    crash(store)


def test_a_store_that_could_not_be_flushed_says_so_on_close_and_claims_no_clean_stop(path):
    files = FlushFails()
    store = open_store(path, files=files)
    store.create_topic("a").append(b"v")
    store.create_topic("b").append(b"v")
    files.failing = "a-0/"
    with pytest.raises(StorageError):
        store.close()
    assert ".kafka_cleanshutdown" not in names_in(path)
    files.failing = ""
    with open_store(path, files=files) as store:
        assert values(store["b"][0]) == [b"v"]


def test_after_a_failed_flush_only_a_reopen_helps(path):
    files = FlushFails()
    store = open_store(path, files=files)
    log = store.create_topic("a")[0]
    log.extend([b"v"])
    files.failing = "a-0/"
    with pytest.raises(StorageError):
        log.flush()
    files.failing = ""
    with pytest.raises(ReopenRequiredError, match="must be reopened"):
        log.append(b"w")
    assert values(log) == [b"v"]
    assert values(store["a"].reopen(0)) == [b"v"]
    store["a"].append(b"w", flush=True)
    store.close()


def test_settings_can_be_changed_while_a_partition_waits_for_its_reopen(path):
    files = FlushFails()
    store = open_store(path, files=files)
    topic = store.create_topic("a", partitions=2)
    topic[0].extend([b"v"])
    files.failing = "a-0/"
    with pytest.raises(StorageError):
        topic[0].flush()
    files.failing = ""
    topic.configure(retention_ms=5)
    assert topic[1].config.retention_ms == topic.reopen(0).config.retention_ms == 5
    store.close()


# Logging ----------------------------------------------------------------------------------------------------


def test_an_ordinary_life_logs_what_it_deletes_and_nothing_else(path, caplog):
    with caplog.at_level(logging.DEBUG), open_store(path) as store:
        store.require_topic("a").append(b"v")
        store.require_topic("b").append(b"v")
        store.delete_topic("b")
    (record,) = caplog.records
    assert (record.levelno, "deleted topic 'b'" in record.getMessage()) == (logging.INFO, True)
    assert Path(path).is_dir()


def test_the_longest_name_of_a_directory(tmp_path):
    """Names beside it that would be longer cannot be there."""
    path = tmp_path / ("x" * 255)
    with logstore.open(path) as store:
        store.create_topic("t").append(b"1", flush=True)
    with logstore.open(path) as store:
        assert [record.value for record in store["t"].read()] == [b"1"]
