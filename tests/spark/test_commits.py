"""The protocol of a commit: each batch once, whatever came in between; no Spark in it."""

import pytest

from logstore.errors import (
    CorruptionError,
    InvalidRecordError,
    LockedError,
    StorageError,
    UnknownTopicError,
    UnsupportedVersionError,
    UsageError,
)
from logstore.format.header import decode_header
from logstore.model import Role
from logstore.spark import commits, ledger
from logstore.spark.commits import Outcome, opened, producer_id_of
from logstore.spark.ledger import COMMITS_TOPIC, Done, Ledger, Prepared
from tests.logdir.helpers import note_opened
from tests.spark.staged import SINK, Place, dies, move_all, stop_at


@pytest.fixture
def place():
    place = Place()
    place.create()
    return place


@pytest.fixture(params=["copied", "moved"])
def either_way(request, monkeypatch):
    """Batches are copied into the logs, or their files become segments."""
    if request.param == "moved":
        move_all(monkeypatch)


ROWS = {0: [b"a", b"b", b"c"], 1: [b"x", b"y"]}


def test_what_was_staged_is_appended_in_the_order_of_the_tasks(place):
    files = [place.stage({0: [b"a", b"b", b"c"], 1: [b"x"]}), place.stage({0: [b"d"]}, task=1)]
    assert place.commit(*files) is Outcome.COMMITTED
    assert place.values() == {0: [b"a", b"b", b"c", b"d"], 1: [b"x"]}
    assert place.staged_names() == []
    place.verify()


def test_batches_follow_each_other(place):
    for batch in range(5):
        place.commit(place.stage({0: [b"%d" % batch]}, batch=batch), batch=batch)
    assert place.values()[0] == [b"0", b"1", b"2", b"3", b"4"]


def test_a_batch_that_is_done_is_not_taken_again(place, caplog):
    for batch in (3, 4):
        place.commit(place.stage(ROWS, batch=batch), batch=batch)
    before = place.values()
    assert place.commit(place.stage(ROWS, batch=4), batch=4) is Outcome.REPEATED
    assert place.values() == before
    assert place.staged_names() == []
    assert caplog.text == ""


@pytest.mark.parametrize("batch", [3, 0])
def test_a_query_that_goes_on_from_an_old_checkpoint_is_refused(place, batch):
    """Its batch has a number that is done, but maybe other rows: left out, they would be missing."""
    for number in (3, 4):
        place.commit(place.stage(ROWS, batch=number), batch=number)
    before = place.values()
    with pytest.raises(
        UsageError, match=f"batch {batch} of 'query of the test' comes after its batch 4.*new"
    ):
        place.commit(place.stage({0: [b"new"]}, batch=batch), batch=batch)
    assert place.values() == before
    place.commit(place.stage(ROWS, batch=5), batch=5)


@pytest.mark.parametrize(("is_job", "named"), [(False, "its checkpoint is a copy"), (True, "same writeId")])
def test_a_repeated_batch_that_has_other_rows_is_told(place, caplog, is_job, named):
    place.commit(place.stage(ROWS), is_job=is_job)
    again = place.stage({0: [b"a"]})
    assert place.commit(again, is_job=is_job) is Outcome.REPEATED
    assert "had 5 records then and has 1 now" in caplog.text
    assert named in caplog.text


def test_sinks_do_not_know_each_other(place):
    place.commit(place.stage(ROWS), batch=5)
    assert place.commit(place.stage(ROWS, sink="other"), sink="other", batch=0) is Outcome.COMMITTED
    assert place.values()[0] == ROWS[0] * 2


def test_losers_files_go_with_the_winners(place):
    place.stage(ROWS, task=0)
    place.commit(place.stage(ROWS, task=0))
    assert place.values() == ROWS
    assert place.staged_names() == []


def test_files_of_others_and_of_later_batches_stay(place):
    others = place.stage(ROWS, sink="other").name
    later = place.stage(ROWS, batch=1).name
    place.commit(place.stage(ROWS))
    assert sorted(place.staged_names()) == sorted([others, later])


def test_files_of_dead_jobs_go_after_an_age(place):
    dead = place.stage(ROWS, sink="dead").name
    place.files.set_modified_ms(f"{place.path}/{dead}", place.clock.now_ms() - commits.STRAY_AFTER_MS - 1)
    place.commit(place.stage(ROWS))
    assert place.staged_names() == []


def test_a_commit_of_nothing_leaves_no_trace(place):
    assert place.commit() is Outcome.COMMITTED
    with place.open() as store:
        assert list(store) == ["t"]


def test_the_records_are_those_of_the_sinks_producer(place):
    place.commit(place.stage(ROWS))
    with place.open() as store:
        header = decode_header(store["t"][0].fetch(0).data)
    assert header.producer_id == producer_id_of(SINK) >= 2**62
    assert (header.producer_epoch, header.base_sequence) == (0, 0)


def test_a_commit_opens_the_logs_that_it_writes_to(place, monkeypatch):
    place.create("many", partitions=30)
    place.commit(place.stage(ROWS, topic="many"))
    opened = note_opened(monkeypatch)
    place.commit(place.stage({7: [b"x"]}, topic="many", batch=1), batch=1)
    assert sorted(opened) == [f"{COMMITS_TOPIC}-0", "many-7"]
    assert place.values("many") == {number: ROWS.get(number, []) for number in range(30)} | {7: [b"x"]}


# Crashes at each step


STEPS = ["before prepared", "after prepared", "mid-adoption", "before done", "after done", "after cleanup"]


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize(("step", "skip"), [*[(step, 0) for step in STEPS], ("mid-adoption", 1)])
@pytest.mark.parametrize("between", ["nothing", "another writer", "another sink", "recover"])
def test_killed_at_a_step_and_run_again_with_another_split(place, monkeypatch, step, between, skip):
    stop_at(monkeypatch, step, skip)
    files = place.stage_all({0: [b"a", b"b"], 1: [b"x"]})
    dies(place, *files, *place.stage_all({0: [b"c"], 1: [b"y"]}, task=1))
    monkeypatch.setattr(commits, "reached", lambda step: None)
    foreign = []
    if between == "another writer":
        with place.open() as store:
            store["t"][0].extend([b"foreign"])
        foreign = [b"foreign"]
    elif between == "another sink":
        place.commit(*place.stage_all({0: [b"foreign"]}, sink="other"), sink="other")
        foreign = [b"foreign"]
    elif between == "recover":
        place.finish_all()
    again = place.stage_all({1: [b"x", b"y"], 0: [b"a"]})
    place.commit(*again, *place.stage_all({0: [b"b", b"c"]}, task=1))
    found = place.values()
    assert [value for value in found[0] if value not in foreign] == [b"a", b"b", b"c"]
    assert found[1] == [b"x", b"y"]
    assert found[0].count(b"foreign") == len(foreign)
    assert place.staged_names() == []
    place.verify()


@pytest.mark.usefixtures("either_way")
def test_killed_again_and_again_on_the_way(place, monkeypatch):
    files = [
        staged
        for task in range(6)
        for staged in place.stage_all({0: [b"%d" % task], 1: [b"%d" % task]}, task=task)
    ]
    stop_at(monkeypatch, "mid-adoption")
    for _ in files:
        dies(place, *files)
    monkeypatch.setattr(commits, "reached", lambda step: None)
    assert place.commit(*place.stage_all(ROWS)) is Outcome.REPEATED
    assert place.values()[0] == [b"%d" % task for task in range(6)] == place.values()[1]


def test_without_the_protocol_a_kill_makes_duplicates(place, monkeypatch):
    """The control: the checks of this file do fail where batches are simply appended."""
    files = [place.stage({0: [b"a"]}), place.stage({0: [b"b"]}, task=1)]
    monkeypatch.setattr(Ledger, "note", lambda self, state: None)
    stop_at(monkeypatch, "mid-adoption")
    dies(place, *files)
    monkeypatch.setattr(commits, "reached", lambda step: None)
    place.commit(*files)
    assert place.values()[0] == [b"a", b"a", b"b"]


@pytest.mark.usefixtures("either_way")
def test_the_producer_was_forgotten_meanwhile(place, monkeypatch):
    stop_at(monkeypatch, "mid-adoption")
    dies(place, *place.stage_all(ROWS), *place.stage_all(ROWS, task=1))
    monkeypatch.setattr(commits, "reached", lambda step: None)
    with place.open() as store:
        place.clock.advance(10**9)
        for log in store["t"]:
            log.expire_producers()
        assert place.commits(store).finish_all() == [(SINK, 0)]
    assert place.values() == {number: values * 2 for number, values in ROWS.items()}


def test_a_producer_that_a_snapshot_brings_back(place, monkeypatch):
    """The batch was prepared while the log knew no producer; opened again, it knows one."""
    place.commit(place.stage(ROWS))
    with place.open() as store:
        prepared = Prepared(
            SINK,
            1,
            False,
            (place.stage(ROWS, batch=1),),
            tuple(
                ledger.Place(place.target(number), len(values), 0, len(values))
                for number, values in ROWS.items()
            ),
        )
        Ledger(store).note(prepared)
    assert place.finish_all() == [(SINK, 1)]
    assert place.values() == {number: values * 2 for number, values in ROWS.items()}
    place.verify()


def test_settings_that_changed_behind_the_commit_point_do_not_matter(place, monkeypatch):
    stop_at(monkeypatch, "after prepared")
    dies(place, place.stage(ROWS))
    monkeypatch.setattr(commits, "reached", lambda step: None)
    with place.open() as store:
        store["t"].configure(compression_type="zstd", max_message_bytes=70)
    assert place.finish_all() == [(SINK, 0)]
    assert place.values() == ROWS


@pytest.mark.usefixtures("either_way")
def test_records_for_a_topic_that_was_deleted_are_dropped(place, monkeypatch, caplog):
    place.create("u", partitions=1)
    stop_at(monkeypatch, "after prepared")
    dies(place, *place.stage_all(ROWS), *place.stage_all({0: [b"u"]}, topic="u", task=1))
    monkeypatch.setattr(commits, "reached", lambda step: None)
    with place.open() as store:
        store.delete_topic("u")
    assert place.finish_all() == [(SINK, 0)]
    assert place.values() == ROWS
    assert place.staged_names() == []
    assert "u-0 are dropped" in caplog.text


def test_a_sink_that_cannot_be_finished_stops_no_other(place, monkeypatch, caplog):
    stop_at(monkeypatch, "mid-adoption")
    first, second = place.stage(ROWS), place.stage(ROWS, task=1)
    dies(place, first, second)
    monkeypatch.setattr(commits, "reached", lambda step: None)
    place.files.remove(f"{place.path}/{second.name}")
    assert place.commit(place.stage({0: [b"z"]}, sink="other"), sink="other") is Outcome.COMMITTED
    assert "batch 0 of query of the test cannot be finished" in caplog.text
    with pytest.raises(StorageError):
        place.finish_all()
    with place.open() as store:
        place.commits(store).give_up(SINK)
    assert place.finish_all() == []
    assert place.values()[0] == [*ROWS[0], b"z"]
    assert place.staged_names() == []


@pytest.mark.usefixtures("either_way")
@pytest.mark.parametrize("step", ["after prepared", "mid-adoption", "before done"])
def test_a_batch_that_was_interrupted_is_finished_in_a_backup_too(place, monkeypatch, step):
    stop_at(monkeypatch, step)
    dies(place, *place.stage_all(ROWS), *place.stage_all(ROWS, task=1))
    monkeypatch.setattr(commits, "reached", lambda step: None)
    copy = Place(place.files, "/backup")
    for _ in range(2):  # the second time the files are there already
        with place.open() as store:
            store.backup(copy.path)
    whole = {number: values * 2 for number, values in ROWS.items()}
    assert place.finish_all() == [(SINK, 0)]
    assert copy.finish_all() == [(SINK, 0)]
    assert place.values() == whole == copy.values()
    assert copy.staged_names() == []
    copy.verify()


def test_staged_files_leave_a_backup_when_they_are_no_longer_needed(place):
    staged = place.stage(ROWS)
    copy = Place(place.files, "/backup")
    with place.open() as store:
        store.backup(copy.path)
    assert copy.staged_names() == [staged.name]
    place.commit(staged)
    with place.open() as store:
        store.backup(copy.path)
    assert copy.staged_names() == []
    assert copy.values() == ROWS


def test_a_prepared_batch_without_files_and_records_was_aborted(place, monkeypatch):
    place.commit(place.stage(ROWS), batch=6)
    staged = place.stage(ROWS, batch=7)
    stop_at(monkeypatch, "after prepared")
    dies(place, staged, batch=7)
    monkeypatch.setattr(commits, "reached", lambda step: None)
    place.files.remove(f"{place.path}/{staged.name}")
    assert place.commit(place.stage(ROWS, batch=6), batch=6) is Outcome.REPEATED
    assert place.commit(place.stage(ROWS, batch=7), batch=7) is Outcome.COMMITTED
    assert place.values()[0] == ROWS[0] * 2


# What is refused before the commit point


def refused(place, error, named, *files):
    before = place.values()
    with pytest.raises(error, match=named):
        place.commit(*files)
    assert place.values() == before
    assert place.finish_all() == []


def test_a_damaged_file_is_refused_whole(place):
    good, bad = place.stage(ROWS), place.stage(ROWS, task=1)
    place.files.open(f"{place.path}/{bad.name}", write=True).write_at(70, [b"!"])
    refused(place, CorruptionError, "checksum", good, bad)


def test_a_file_that_is_gone_is_refused(place):
    staged = place.stage(ROWS)
    place.files.remove(f"{place.path}/{staged.name}")
    refused(place, StorageError, "opening", staged)


def test_a_topic_that_was_made_again_is_refused(place):
    staged = place.stage(ROWS)
    with place.open() as store:
        store.delete_topic("t")
        store.create_topic("t", partitions=2)
    refused(place, UnknownTopicError, "deleted and created again", staged)


def test_a_topic_that_is_gone_is_refused(place):
    place.create("u", partitions=1)
    staged = place.stage({0: [b"u"]}, topic="u")
    with place.open() as store:
        store.delete_topic("u")
    refused(place, UnknownTopicError, "no topic 'u'", staged)


def test_the_copy_of_a_leaders_log_is_refused(place):
    """What is copied next would cut the records off again, although the batch counts as done."""
    staged = place.stage(ROWS)
    with place.open() as store:
        store["t"][1].set_role(Role.FOLLOWER)
    refused(place, UsageError, "t-1: it is a copy of a leader's log", staged)
    with place.open() as store:
        store["t"][1].set_role(Role.ALONE)
    assert place.commit(place.stage(ROWS)) is Outcome.COMMITTED


@pytest.mark.parametrize("step", ["after prepared", "mid-adoption"])
def test_a_copy_of_a_leaders_log_gets_a_prepared_batch_when_it_is_the_stores_own(place, monkeypatch, step):
    stop_at(monkeypatch, step)
    dies(place, place.stage(ROWS))
    monkeypatch.undo()
    with place.open() as store:
        store["t"][0].set_role(Role.FOLLOWER)
    with pytest.raises(UsageError, match="t-0: it is a copy of a leader's log"):
        place.finish_all()
    with place.open() as store:
        store["t"][0].set_role(Role.ALONE)
    place.finish_all()
    assert place.values() == ROWS


def test_settings_that_changed_before_the_commit_point_are_held_to(place):
    staged = place.stage({0: [b"a" * 500]})
    with place.open() as store:
        store["t"].configure(max_message_bytes=200)
    refused(place, InvalidRecordError, "max_message_bytes", staged)


def test_a_store_that_is_open_elsewhere_is_waited_for(place):
    with (
        place.open(),
        pytest.raises(LockedError, match="waited 60 ms"),
        opened(place.path, 60, place.files),
    ):
        pass


# The commits topic


def test_the_topic_is_compacted_when_it_has_grown(place, monkeypatch):
    monkeypatch.setattr(ledger, "COMPACT_ABOVE_BYTES", 2_000)
    for batch in range(40):
        place.commit(place.stage({0: [b"%d" % batch]}, batch=batch), batch=batch)
    with place.open(read_only=True) as store:
        assert store[COMMITS_TOPIC][0].size_bytes < 4_000
        assert Ledger(store).states[SINK][:2] == (SINK, 39)
    assert place.commit(place.stage(ROWS, batch=39), batch=39) is Outcome.REPEATED


def test_old_jobs_are_forgotten_and_streams_are_not(place, monkeypatch):
    place.commit(place.stage(ROWS, sink="job"), sink="job", is_job=True)
    place.commit(place.stage(ROWS, sink="stream"), sink="stream")
    place.clock.advance(ledger.FORGET_JOBS_MS + 1)
    monkeypatch.setattr(ledger, "COMPACT_ABOVE_BYTES", 1)
    place.commit(place.stage(ROWS))
    with place.open(read_only=True) as store:
        assert set(Ledger(store).states) == {"stream", SINK}


def test_states_of_all_kinds_come_back_from_the_topic(place):
    staged = place.stage(ROWS)
    states = [
        Prepared("é", 7, True, (staged,), tuple(ledger.Place(part.target, 5, 6, 7) for part in staged.parts)),
        Done("other", 2**40, False, 12),
        Done("third", 0, True, 12, 0),
    ]
    with place.open() as store:
        Ledger(store).ensure_topic()
        for state in states:
            Ledger(store).note(state)
        assert Ledger(store).states == {state.sink: state for state in states}


@pytest.mark.parametrize("value", [b"", b"{}", b"[1]", b'{"version":1,"state":"prepared"}', b"\xff"])
def test_a_record_that_is_no_commits_is_named(place, value):
    with place.open() as store:
        Ledger(store).ensure_topic()
        store[COMMITS_TOPIC][0].extend([(b"sink", value)])
        with pytest.raises(CorruptionError, match="no commit wrote"):
            Ledger(store)


def test_a_newer_version_is_refused(place):
    with place.open() as store:
        Ledger(store).ensure_topic()
        store[COMMITS_TOPIC][0].extend([(b"sink", b'{"version":2}')])
        with pytest.raises(UnsupportedVersionError, match="version 2 at offset 0"):
            Ledger(store)
