"""A directory that holds some partitions of a topic only: others have the rest."""

from __future__ import annotations

import contextlib
import json
import logging
import shutil
import uuid

import pytest

import logstore
from logstore.config import TopicConfig
from logstore.errors import (
    ClosedError,
    CorruptionError,
    InvalidRecordError,
    ReadOnlyError,
    StorageError,
    TopicExistsError,
    UnknownTopicError,
    UnsupportedVersionError,
    UsageError,
)
from logstore.files import OsFiles
from logstore.format.partitioner import partition_for_key
from logstore.logdir import catalogue
from logstore.logdir.held import shown_numbers
from logstore.model import TopicPartition
from logstore.partition.state.sidecars import write_topic_id
from logstore.testing import ManualClock
from tests.exchange.brokers import make_broker
from tests.logdir.helpers import FailingFiles, crash, names_in, open_store, values

COUNT = 8
KEYS = {partition_for_key(b"%d" % n, COUNT): b"%d" % n for n in range(200)}
"""A key for each of the partitions."""
NOT_HELD = r"does not hold partition {} of topic 't': it has 0, 3 of 8, and another directory has this one"


@pytest.fixture
def path(tmp_path):
    """A store that holds partitions 0 and 3 of eight, with a record in each."""
    path = tmp_path / "store"
    with open_store(path) as store:
        topic = store.create_topic("t", partitions=COUNT, held=[0, 3])
        topic.append(b"zero", partition=0)
        topic.append(b"three", partition=3)
    return path


@pytest.fixture(params=["writer", "reader"])
def topic(request, path):
    with open_store(path, read_only=request.param == "reader") as store:
        yield store["t"]


def catalogue_of(path):
    return json.loads((path / "topics.json").read_bytes())


def partitions_in(path):
    return [name for name in names_in(path) if name.startswith("t-")]


def table(**columns):
    return pytest.importorskip("pyarrow").table(columns)


# What is there ----------------------------------------------------------------------------------------------


def test_len_counts_all_and_iteration_gives_those_that_are_held(topic):
    assert len(topic) == COUNT
    assert topic.held_partitions == (0, 3)
    assert [log.partition.partition for log in topic] == [0, 3]
    assert [log.partition.partition for log in reversed(topic)] == [3, 0]
    assert topic[3] in topic
    assert [values(log) for log in topic] == [[b"zero"], [b"three"]]
    assert [values(log) for log in topic[0:1]] == [[b"zero"]]
    assert values(topic[-5]) == [b"three"]


@pytest.mark.parametrize(("number", "meant"), [(1, 1), (7, 7), (-1, 7), (slice(0, 2), 1)])
def test_a_partition_that_is_not_held_is_an_error_that_says_which_are(topic, number, meant):
    with pytest.raises(UnknownTopicError, match=NOT_HELD.format(meant)):
        topic[number]


def test_a_number_beyond_the_topic_is_another_error(topic):
    with pytest.raises(UnknownTopicError, match="has 8 partitions, numbered from 0; there is no 8"):
        topic[8]


def test_every_way_to_read_a_topic_is_of_what_is_held_and_names_its_partition(path):
    pytest.importorskip("pyarrow")
    columns = ["partition", "value"]
    with open_store(path) as store:
        store["t"].extend([(KEYS[3], b"old"), (KEYS[3], b"new")])
        for read_only in (False, True):
            with open_store(path, read_only=True) if read_only else contextlib.nullcontext(store) as opened:
                topic = opened["t"]
                rows = topic.read_arrow(columns=columns).to_pylist()
                assert rows == topic.iterate_arrow(columns=columns).read_all().to_pylist()
                found = [(row["partition"], row["value"]) for row in rows]
                assert found == [(0, b"zero"), (3, b"three"), (3, b"old"), (3, b"new")]
                assert [view.partition.partition for view in topic.latest()] == [0, 3]
                latest = topic.latest_arrow(columns=columns).read_all().to_pylist()
                assert latest == [{"partition": 3, "value": b"new"}]


def test_verify_goes_over_what_is_held(topic, path):
    report = topic.verify()
    assert report
    assert report.partition_count == 2


def test_a_store_without_topics_held_in_part_stays_as_it_was(tmp_path):
    with open_store(tmp_path / "store") as store:
        store.create_topic("whole", partitions=2, held=[1, 0])
        assert store["whole"].held_partitions == (0, 1)
    content = catalogue_of(tmp_path / "store")
    assert content["version"] == 1
    assert "held" not in content["topics"]["whole"]


def test_the_catalogue_of_one_held_in_part_is_of_a_version_that_an_older_logstore_refuses(path, monkeypatch):
    content = catalogue_of(path)
    assert content["version"] == 2
    assert content["topics"]["t"]["held"] == [0, 3]
    assert "letting_go" not in content["topics"]["t"]
    monkeypatch.setattr(catalogue, "VERSION", 1)  # as it was
    with pytest.raises(UnsupportedVersionError, match="has version 2; only 1 is known"):
        open_store(path)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"held": []}, "holds no partition"),
        ({"held": [8]}, "no held of partition numbers below 8"),
        ({"held": [-1]}, "no held of partition numbers below 8"),
        ({"held": [True]}, "no held of partition numbers below 8"),
        ({"held": [0, 0]}, "a partition in held twice"),
        ({"held": 3}, "no held of type list"),
        ({"held": [0], "letting_go": [0]}, "one that it lets go"),
        ({"letting_go": ["1"]}, "no letting_go of partition numbers"),
    ],
)
def test_a_catalogue_that_says_nonsense_of_what_is_held_is_damaged(path, change, reason):
    content = catalogue_of(path)
    content["topics"]["t"].update(change)
    (path / "topics.json").write_text(json.dumps(content))
    with pytest.raises(CorruptionError, match=reason):
        open_store(path)


@pytest.mark.parametrize(
    ("numbers", "text"),
    [
        ([], ""),
        ([3], "3"),
        ([0, 3], "0, 3"),
        (range(8), "0 to 7"),
        ([0, 1, 2, 5, 7, 8], "0 to 2, 5, 7 to 8"),
        (range(0, 40, 2), "0, 2, 4, 6, 8, 10, 12, 14, ..."),
    ],
)
def test_numbers_in_messages(numbers, text):
    assert shown_numbers(numbers) == text


# Appending --------------------------------------------------------------------------------------------------


def test_a_key_goes_to_the_partition_that_it_has_among_all(path):
    with open_store(path) as store:
        topic = store["t"]
        assert topic.append(b"v", key=KEYS[3]) == (3, 1)
        assert topic.extend([(KEYS[0], b"a"), (KEYS[3], b"b")]) == {0: range(1, 2), 3: range(2, 3)}
        assert topic.partition_for(KEYS[5]) == 5


APPENDS = {
    "append": lambda topic: topic.append(b"v", key=KEYS[5]),
    "append to": lambda topic: topic.append(b"v", partition=5),
    "extend": lambda topic: topic.extend([(KEYS[0], b"a"), (KEYS[3], b"b"), (KEYS[5], b"c")]),
    "extend some without a key": lambda topic: topic.extend([b"a", (KEYS[5], b"c"), b"d"]),
    "extend_arrow": lambda topic: topic.extend_arrow(table(key=[KEYS[0], KEYS[5]], value=[b"a", b"b"])),
}


@pytest.mark.parametrize("how", APPENDS)
def test_where_one_key_is_not_held_nothing_is_appended(path, how):
    with open_store(path) as store:
        with pytest.raises(UnknownTopicError, match=NOT_HELD.format(5)):
            APPENDS[how](store["t"])
        assert [values(log) for log in store["t"]] == [[b"zero"], [b"three"]]
    assert partitions_in(path) == ["t-0", "t-3"]


def test_without_a_key_records_go_round_what_is_held(path):
    big = bytes(100_000)
    with open_store(path) as store:
        topic = store["t"]
        assert {topic.append(big)[0] for _ in range(20)} == {0, 3}
        assert set(topic.extend([big] * 20)) == {0, 3}
        assert set(topic.extend_arrow(table(value=[big] * 20))) == {0, 3}
        assert set(topic.extend_arrow(table(key=[None, KEYS[3]], value=[b"a", b"b"]))) <= {0, 3}


def test_a_bad_record_is_named_by_its_number_where_partition_0_is_elsewhere(tmp_path):
    with open_store(tmp_path / "store") as store:
        topic = store.create_topic("t", partitions=COUNT, held=[3])
        with pytest.raises(InvalidRecordError, match="record 1"):
            topic.extend([(KEYS[3], b"a"), (KEYS[3], "text")])
        assert values(topic[3]) == []


# Asking for it ----------------------------------------------------------------------------------------------

WRONG = [
    ([], "held is empty; name at least one partition"),
    ([8], "held has 8; it must have numbers from 0 to 7"),
    ([-1], "held has -1; it must have numbers from 0 to 7"),
    ([0, 0], "held has a partition twice"),
    ([0, "3"], "held has '3' among its partition numbers"),
    ([0, True], "held has True among its partition numbers"),
    ([0.0], "held has 0.0 among"),
    (3, "held is 3; it must be a list of partition numbers"),
    ("03", "held is '03'; it must be a list"),
    (b"\x00", "it must be a list"),
    (range(10**12), "held has 8; it must have"),
]


@pytest.mark.parametrize(("held", "reason"), WRONG)
def test_wrong_numbers_are_refused_and_nothing_is_made(tmp_path, held, reason):
    with open_store(tmp_path / "store") as store:
        for make in (store.create_topic, store.require_topic):
            with pytest.raises(UsageError, match=reason):
                make("t", partitions=8, held=held)
        assert list(store) == []


def test_a_number_is_refused_that_a_topic_of_one_partition_has_not(tmp_path):
    with open_store(tmp_path / "store") as store:
        for make in (store.create_topic, store.require_topic):
            with pytest.raises(UsageError, match="held has 3; it must have the number 0 alone"):
                make("t", held=[3])


def test_require_topic_gets_one_that_holds_the_same(path):
    with open_store(path) as store:
        assert store.require_topic("t", partitions=8, held=(n for n in (3, 0))).held_partitions == (0, 3)
        assert store.require_topic("t").held_partitions == (0, 3)
        with pytest.raises(
            UsageError, match=r"holds partitions 0, 3 of topic 't', not 0; hold\(\) adds some"
        ):
            store.require_topic("t", held=[0])
        assert store.require_topic("u", partitions=3, held=[1]).held_partitions == (1,)


# Holding more -----------------------------------------------------------------------------------------------


def test_a_partition_is_held_from_then_on(path):
    with open_store(path) as store, open_store(path, read_only=True, clock=None) as reader:
        assert reader["t"].held_partitions == (0, 3)
        store["t"].hold([5, 1])
        assert store["t"].append(b"v", key=KEYS[5], flush=True) == (5, 0)
        assert reader["t"].held_partitions == (0, 1, 3, 5)
        assert values(reader["t"][5]) == [b"v"]
    with open_store(path) as store:
        assert store.was_clean
        assert store["t"].held_partitions == (0, 1, 3, 5)
        assert values(store["t"][5]) == [b"v"]
        store["t"].hold(range(COUNT))
        assert values(store["t"][5]) == [b"v"]
        assert [store["t"].append(b"v", key=KEYS[number])[0] for number in range(8)] == [*range(8)]
    assert catalogue_of(path)["version"] == 1


def test_holding_what_is_held_changes_nothing(path):
    with open_store(path) as store:
        before = (path / "topics.json").stat().st_mtime_ns
        log = store["t"][3]
        store["t"].hold([3, 0])
        assert store["t"][3] is log
        assert (path / "topics.json").stat().st_mtime_ns == before


@pytest.mark.parametrize(
    ("numbers", "reason"), [(wrong, why.replace("held ", "partitions ", 1)) for wrong, why in WRONG]
)
def test_wrong_numbers_are_not_held(path, numbers, reason):
    with open_store(path) as store:
        with pytest.raises(UsageError, match=reason.replace("held", "partitions")):
            store["t"].hold(numbers)
        assert store["t"].held_partitions == (0, 3)


def test_a_copy_of_what_another_directory_has_is_taken_with_its_records(path, tmp_path):
    other = tmp_path / "other"
    shutil.copytree(path, other)
    with open_store(other) as store:
        store["t"].hold([5])
        store["t"][5].extend([b"a", b"b"])
    shutil.copytree(other / "t-5", path / "t-5")
    with open_store(path) as store:
        assert store["t"].held_partitions == (0, 3)  # nobody has said so yet
        store["t"].hold([5])
        assert values(store["t"][5]) == [b"a", b"b"]
        assert store["t"][5].append(b"c") == 2


def test_another_topics_partition_is_not_taken(path):
    with open_store(path) as store:
        store.create_topic("u").append(b"other", flush=True)
        shutil.copytree(path / "u-0", path / "t-5")
        with pytest.raises(TopicExistsError, match="holds a partition of another topic"):
            store["t"].hold([5])
        assert store["t"].held_partitions == (0, 3)


def test_a_topic_grows_by_partitions_that_are_held_here_or_elsewhere(path):
    with open_store(path) as store:
        topic = store["t"]
        topic.add_partitions(10)
        assert (len(topic), topic.held_partitions) == (10, (0, 3, 8, 9))
        topic.add_partitions(13, held=[11])
        assert (len(topic), topic.held_partitions) == (13, (0, 3, 8, 9, 11))
        topic.add_partitions(14, held=[])
        assert (len(topic), topic.held_partitions) == (14, (0, 3, 8, 9, 11))
        for held in ([3], [15]):
            with pytest.raises(UsageError, match="it must have the number 14 alone"):
                topic.add_partitions(15, held=held)
        whole = store.create_topic("whole", partitions=2)
        whole.add_partitions(4, held=[3])
        assert whole.held_partitions == (0, 1, 3)
        whole.append(b"v", partition=3)
    with open_store(path) as store:
        assert (len(store["t"]), store["t"].held_partitions) == (14, (0, 3, 8, 9, 11))
        assert [values(log) for log in store["whole"]] == [[], [], [b"v"]]
    assert partitions_in(path) == ["t-0", "t-11", "t-3", "t-8", "t-9"]


# Letting go -------------------------------------------------------------------------------------------------


def test_a_partition_is_let_go_with_its_records(path, caplog):
    caplog.set_level(logging.INFO)
    clock = ManualClock()
    with open_store(path, clock=clock) as store, open_store(path, read_only=True, clock=None) as reader:
        topic, log, watched = store["t"], store["t"][3], reader["t"][3]
        assert values(watched) == [b"three"]
        topic.let_go(3)
        assert (len(topic), topic.held_partitions) == (8, (0,))
        for use in (lambda: topic[3], lambda: reader["t"][3], lambda: topic.append(b"v", key=KEYS[3])):
            with pytest.raises(UnknownTopicError, match="does not hold partition 3"):
                use()
        with pytest.raises(ClosedError):
            log.append(b"v")
        assert [name[-7:] for name in partitions_in(path)] == ["t-0", "-delete"]
        clock.advance(topic.config.file_delete_delay_ms)
        store.run_background()
        assert partitions_in(path) == ["t-0"]
    said = [record.message for record in caplog.records if "let_go()" in record.message]
    assert len(said) == 1
    assert said[0].startswith("let go partition t-3, ")
    with open_store(path) as store:
        assert store["t"].held_partitions == (0,)
        store["t"].hold([3])
        assert values(store["t"][3]) == []


def test_closing_removes_the_files(path):
    with open_store(path) as store:
        store["t"].let_go(0)
    assert partitions_in(path) == ["t-3"]
    assert "t 3 1\n" in (path / "recovery-point-offset-checkpoint").read_text()
    assert "t 0" not in (path / "recovery-point-offset-checkpoint").read_text()


def test_the_only_one_is_not_let_go(path):
    with open_store(path) as store:
        store["t"].let_go(0)
        with pytest.raises(
            UsageError, match=r"partition 3 is the only one .* delete_topic\(\) removes the topic"
        ):
            store["t"].let_go(3)
        assert values(store["t"][3]) == [b"three"]


@pytest.mark.parametrize(
    ("number", "kind"), [(1, UnknownTopicError), *((n, UsageError) for n in (8, -1, "3", True, None, [3]))]
)
def test_only_what_is_held_is_let_go(path, number, kind):
    with open_store(path) as store:
        with pytest.raises(kind):
            store["t"].let_go(number)
        assert store["t"].held_partitions == (0, 3)


def test_a_reader_changes_nothing(path):
    with open_store(path, read_only=True) as store:
        for change in (lambda: store["t"].hold([1]), lambda: store["t"].let_go(3)):
            with pytest.raises(ReadOnlyError):
                change()
    assert partitions_in(path) == ["t-0", "t-3"]


def test_a_reader_that_missed_it_does_not_mix_the_old_partition_with_the_new(path):
    with open_store(path, clock=None) as store, open_store(path, read_only=True, clock=None) as reader:
        store["t"][3].extend([b"old"] * 5, flush=True)
        log = reader["t"][3]
        assert values(log) == [b"three"] + [b"old"] * 5
        store["t"].let_go(3)
        store["t"].hold([3])
        store["t"][3].extend([b"new"] * 8, flush=True)
        assert values(reader["t"][3]) == [b"new"] * 8


# Missing and damaged ----------------------------------------------------------------------------------------


@pytest.mark.damaged
def test_a_directory_that_is_missing_of_what_is_held_is_damage(path):
    shutil.rmtree(path / "t-3")
    with open_store(path) as store:
        assert set(store.damaged) == {TopicPartition("t", 3)}
        assert store["t"].held_partitions == (0, 3)
        with pytest.raises(CorruptionError, match=r"directory is missing.* topic\.let_go\(3\)"):
            store["t"][3]
        with pytest.raises(CorruptionError, match="directory is missing"):
            store["t"].append(b"v", key=KEYS[3])
        assert not store.verify()
        with open_store(path, read_only=True) as reader, pytest.raises(CorruptionError, match="is missing"):
            reader["t"][3]
        store["t"].let_go(3)  # as the error says
        assert not store.damaged
        assert store.verify()
    with open_store(path) as store:
        assert store.was_clean
        assert store["t"].held_partitions == (0,)
        assert not store.damaged


@pytest.mark.damaged
def test_what_is_not_held_cannot_be_reopened(path):
    with open_store(path) as store:
        for accept_loss in (False, True):
            with pytest.raises(UnknownTopicError, match=NOT_HELD.format(1)):
                store["t"].reopen(1, accept_loss=accept_loss)
        assert values(store["t"].reopen(3)) == [b"three"]
        assert not store.damaged
    assert partitions_in(path) == ["t-0", "t-3"]


def test_deleting_the_topic_removes_what_is_held(path, caplog):
    caplog.set_level(logging.INFO)
    with open_store(path) as store:
        store.delete_topic("t")
        assert "t" not in store
    assert partitions_in(path) == []
    assert "deleted topic 't', 2 partitions" in caplog.text


def test_work_on_whole_topics_is_done_on_what_is_held(tmp_path):
    config = TopicConfig(cleanup_policy="compact,delete", retention_bytes=10_000, segment_bytes=1_000)
    with open_store(tmp_path / "store") as store:
        topic = store.create_topic("t", partitions=COUNT, held=[3, 5], config=config)
        for number in (3, 5):
            topic.extend([(KEYS[number], b"%03d" % n) for n in range(100)])
        topic.flush()
        store.flush()
        assert set(topic.compact(now=True)) == {TopicPartition("t", 3), TopicPartition("t", 5)}
        assert set(store.compact(now=True)) == {TopicPartition("t", 3), TopicPartition("t", 5)}
        assert set(topic.erase(keys=[KEYS[3], KEYS[7]])) == {TopicPartition("t", 3), TopicPartition("t", 5)}
        store.enforce_retention()
        store.checkpoint()
        topic.configure(retention_ms=77)
        assert [log.config.retention_ms for log in topic] == [77, 77]
        assert store.verify().partition_count == 2


def test_a_failed_removal_is_finished_before_it_is_held_again(path):
    files = FailingFiles(once=True)
    with open_store(path, files=files) as store:
        real = files.rename

        def rename(old, new):
            if new.endswith("-delete"):
                raise StorageError(5, "the test refused", old)
            real(old, new)

        files.rename = rename
        with pytest.raises(StorageError):
            store["t"].let_go(3)
        assert store["t"].held_partitions == (0,)
        assert catalogue_of(path)["topics"]["t"]["letting_go"] == [3]
        del files.rename
        store["t"].add_partitions(9)
        assert catalogue_of(path)["topics"]["t"]["letting_go"] == [3]
        store["t"].hold([3])
        assert values(store["t"][3]) == []
        assert "letting_go" not in catalogue_of(path)["topics"]["t"]


def test_a_topic_is_deleted_with_what_it_was_letting_go(path):
    content = catalogue_of(path)
    content["topics"]["t"].update(held=[0], letting_go=[3])
    (path / "t-3" / "partition.metadata").unlink()  # so that only the catalogue knows whose it is
    store = open_store(path)
    crash(store)
    (path / "topics.json").write_text(json.dumps(content))
    with open_store(path, read_only=True) as reader:
        assert reader["t"].held_partitions == (0,)
    with open_store(path) as store:
        assert partitions_in(path) == ["t-0"]
        assert store["t"].held_partitions == (0,)


# Directories of brokers -------------------------------------------------------------------------------------


@pytest.fixture
def brokers(tmp_path):
    """What a broker has that keeps two of the partitions: no catalogue."""
    broker = make_broker(tmp_path / "broker")
    shutil.rmtree(broker / "plain-1")
    return broker


@pytest.mark.parametrize("read_only", [True, False])
def test_of_a_topic_that_no_catalogue_knows_those_are_held_that_are_there(brokers, read_only):
    with logstore.open(brokers, read_only=read_only) as store:
        assert len(store["plain"]) == 3
        assert store["plain"].held_partitions == (0, 2)
        assert not store.damaged
        assert store.verify()
        with pytest.raises(UnknownTopicError, match="does not hold partition 1 of topic 'plain'"):
            store["plain"][1]
    assert not (brokers / "plain-1").exists()


@pytest.mark.damaged
def test_what_a_catalogue_has_once_held_is_missed_and_what_came_since_is_held(brokers):
    with logstore.open(brokers) as store:
        assert store["plain"].held_partitions == (0, 2)
    shutil.copytree(brokers / "plain-2", brokers / "plain-1")
    shutil.copytree(brokers / "plain-2", brokers / "plain-6")
    shutil.rmtree(brokers / "plain-0")
    for read_only in (True, False):
        with logstore.open(brokers, read_only=read_only) as store:
            assert len(store["plain"]) == 7
            assert store["plain"].held_partitions == (0, 1, 2, 6)
            with pytest.raises(CorruptionError, match="directory is missing"):
                store["plain"][0]
            assert [values(store["plain"][number]) for number in (1, 2, 6)] == [[], [], []]


@pytest.mark.parametrize("read_only", [True, False])
def test_a_topic_that_the_broker_has_made_anew_is_the_new_one(brokers, read_only):
    with logstore.open(brokers) as store:
        before = store["plain"].topic_id
    shutil.rmtree(brokers / "plain-0")
    made = uuid.uuid4()
    write_topic_id(OsFiles(), str(brokers / "plain-2"), made)
    shutil.copytree(brokers / "plain-2", brokers / "plain-1")
    with logstore.open(brokers, read_only=read_only) as store:
        assert store["plain"].topic_id == made != before
        assert store["plain"].held_partitions == (1, 2)
        assert store["plain"].config.retention_ms == -1
        assert not store.damaged
        assert store.verify()


@pytest.mark.damaged
@pytest.mark.parametrize("read_only", [True, False])
def test_a_directory_in_the_wrong_place_does_not_make_another_topic(brokers, read_only):
    with logstore.open(brokers):
        pass
    write_topic_id(OsFiles(), str(brokers / "plain-2"), uuid.uuid4())
    with logstore.open(brokers, read_only=read_only) as store:
        assert values(store["plain"][0]) == []
        with pytest.raises(CorruptionError, match="the partition belongs to topic id"):
            store["plain"][2]


def test_no_partition_is_made_in_a_brokers_directory(brokers):
    with logstore.open(brokers) as store, pytest.raises(UsageError, match="it is a broker's"):
        store["plain"].hold([1])
    assert not (brokers / "plain-1").exists()
