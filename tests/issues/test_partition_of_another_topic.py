"""A partition of another topic was taken for one's own.

The id in ``partition.metadata`` says whose partition a directory holds, and a broker refuses one of another
topic. The store opened it, read it, appended to it, and deleted it with its own topic: after a restore into
the wrong directory the records of two topics were mixed, and nothing had said a word.
"""

from __future__ import annotations

import shutil

import pytest
from tests.logdir.helpers import open_store, values

import logstore
from logstore.errors import CorruptionError, TopicExistsError
from logstore.model import TopicPartition

MINE, OTHER = TopicPartition("mine", 0), TopicPartition("other", 0)


@pytest.fixture
def path(tmp_path):
    """A store of two topics; the directory of ``mine-0`` is one of ``other``, as a restore mixed them up."""
    path = tmp_path / "store"
    with open_store(path) as store:
        store.create_topic("mine", partitions=2).append(b"mine", partition=0, flush=True)
        store.create_topic("other").append(b"other", flush=True)
    shutil.move(path / "mine-0", tmp_path / "mine-0")
    shutil.copytree(path / "other-0", path / "mine-0")
    return path


def ids(path):
    with open_store(path, read_only=True) as store:
        return str(store["mine"].topic_id), str(store["other"].topic_id)


def check_refused(error, path):
    mine, other = ids(path)
    said = str(error)
    assert (
        f"the partition belongs to topic id {other}; 'mine' has {mine}. Put the topic's own directory back"
        in said
    )
    assert str(path / "mine-0" / "partition.metadata") in said


@pytest.mark.damaged
@pytest.mark.parametrize("is_clean", [True, False])
def test_it_is_damaged_for_the_writer_and_the_others_work(path, is_clean):
    if not is_clean:
        (path / ".kafka_cleanshutdown").unlink()
    with open_store(path) as store:
        assert list(store.damaged) == [MINE]
        for use in (lambda: store["mine"][0], lambda: store["mine"].append(b"v", partition=0)):
            with pytest.raises(CorruptionError) as caught:
                use()
            check_refused(caught.value, path)
        store["mine"].append(b"v", partition=1)
        assert values(store["other"][0]) == [b"other"]
    with open_store(path) as store:
        assert list(store.damaged) == [MINE]


@pytest.mark.damaged
def test_no_reader_gives_its_records(path):
    with open_store(path, read_only=True) as reader:
        for use in (
            lambda: reader["mine"][0],
            lambda: reader["mine"].read_arrow(),
            lambda: reader["mine"].latest(),
        ):
            with pytest.raises(CorruptionError) as caught:
                use()
            check_refused(caught.value, path)
        assert values(reader["mine"][1]) == []
        assert values(reader["other"][0]) == [b"other"]


@pytest.mark.damaged
def test_nor_does_a_reader_of_spark(path):
    pytest.importorskip("pyarrow")
    from logstore.model import Isolation
    from logstore.spark.origins.directory import DirectoryOrigin

    for passes_damage in (False, True):
        origin = DirectoryOrigin(str(path), passes_damage=passes_damage)
        with pytest.raises(CorruptionError) as caught:
            origin.bounds(MINE, Isolation.HIGH_WATERMARK)
        check_refused(caught.value, path)
        with pytest.raises(CorruptionError, match="the partition belongs to topic id"):
            origin.pin(MINE, 0, 1, Isolation.HIGH_WATERMARK)
        assert origin.bounds(OTHER, Isolation.HIGH_WATERMARK) == (0, 1)
        origin.close()


@pytest.mark.damaged
def test_with_its_own_directory_back_it_goes_on(path, tmp_path):
    with open_store(path) as store:
        shutil.rmtree(path / "mine-0")
        shutil.move(tmp_path / "mine-0", path / "mine-0")
        assert values(store["mine"].reopen(0)) == [b"mine"]
        assert store.damaged == {}


@pytest.mark.damaged
def test_loss_that_is_accepted_does_not_make_it_ones_own(path):
    with open_store(path) as store:
        with pytest.raises(CorruptionError, match="the partition belongs to topic id"):
            store["mine"].reopen(0, accept_loss=True)
        (path / "mine-0" / "partition.metadata").unlink()  # what the error says
        assert values(store["mine"].reopen(0)) == [b"other"]
        store["mine"].append(b"v", partition=0)


@pytest.mark.damaged
def test_verify_names_both(path):
    with open_store(path, read_only=True) as reader:
        report = reader.verify()
    assert any("the partition belongs to topic id" in finding.reason for finding in report.problems)


@pytest.mark.damaged
def test_it_is_not_deleted_with_the_topic(path, caplog):
    with open_store(path) as store:
        other = str(store["other"].topic_id)
        store.delete_topic("mine")
    assert (path / "mine-0" / "00000000000000000000.log").stat().st_size
    assert not (path / "mine-1").exists()
    assert f"stays: it belongs to topic {other}" in caplog.text


# Directories that nobody knows ------------------------------------------------------------------------------


@pytest.fixture
def uncatalogued(path):
    """As a broker leaves it: topics are what the directories say."""
    (path / "topics.json").unlink()
    return path


@pytest.mark.damaged
def test_of_two_ids_the_topic_has_that_of_the_most_partitions(tmp_path):
    path = tmp_path / "store"
    with open_store(path) as store:
        topic = store.create_topic("mine", partitions=3)
        store.create_topic("other").append(b"other", flush=True)
        topic_id = topic.topic_id
    shutil.rmtree(path / "mine-0")
    shutil.copytree(path / "other-0", path / "mine-0")
    (path / "topics.json").unlink()
    with open_store(path, read_only=True) as reader:
        assert reader["mine"].topic_id == topic_id
        assert values(reader["mine"][1]) == []
        with pytest.raises(CorruptionError, match="the partition belongs to topic id"):
            reader["mine"][0]
    with open_store(path) as store:
        assert store["mine"].topic_id == topic_id
        assert list(store.damaged) == [MINE]


@pytest.mark.damaged
def test_a_topic_that_has_anothers_id_is_there_and_said(uncatalogued, caplog):
    with open_store(uncatalogued) as store:
        assert values(store["other"][0]) == [b"other"]
    assert "has the id of topic" in caplog.text


def test_a_partition_without_an_id_is_taken(tmp_path):
    """A broker before 2.8 writes none."""
    path = tmp_path / "store"
    with open_store(path) as store:
        store.create_topic("mine").append(b"mine", flush=True)
    (path / "mine-0" / "partition.metadata").unlink()
    for read_only in (True, False):
        with open_store(path, read_only=read_only) as store:
            assert values(store["mine"][0]) == [b"mine"]
            assert store.damaged == {}


# Put there while the store is open --------------------------------------------------------------------------


@pytest.mark.parametrize("has_id", [True, False])
def test_a_new_topic_does_not_take_what_was_put_there(tmp_path, has_id):
    path = tmp_path / "store"
    with open_store(path) as store:
        store.create_topic("other").append(b"other", flush=True)
        shutil.copytree(path / "other-0", path / "mine-0")
        if not has_id:
            (path / "mine-0" / "partition.metadata").unlink()
        with pytest.raises(TopicExistsError, match="holds a partition of another topic"):
            store.create_topic("mine")
        assert list(store) == ["other"]
    with open_store(path) as store:
        assert values(store["mine"][0]) == [b"other"]


def test_a_topic_does_not_grow_over_what_was_put_there(tmp_path):
    path = tmp_path / "store"
    with open_store(path) as store:
        store.create_topic("other").append(b"other", flush=True)
        store.create_topic("mine")
        shutil.copytree(path / "other-0", path / "mine-1")
        with pytest.raises(TopicExistsError, match="holds a partition of another topic"):
            store["mine"].add_partitions(3)
        assert len(store["mine"]) == 1


def test_a_reader_is_told_of_a_new_topic_not_of_a_foreign_partition(tmp_path):
    path = tmp_path / "store"
    with open_store(path, clock=None) as store, logstore.open(path, read_only=True) as reader:
        store.create_topic("mine").append(b"1", flush=True)
        assert values(reader["mine"][0]) == [b"1"]
        store.delete_topic("mine")
        store.create_topic("mine").append(b"2", flush=True)
        assert values(reader["mine"][0]) == [b"2"]
