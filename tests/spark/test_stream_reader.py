"""What the stream's reader answers Spark, asked in this process: no JVM, a real store that changes. It reads
the store's directory, and then the same through a listener of the store."""

import json
import logging
import pickle
import random
from pathlib import Path

import pytest

import logstore
from logstore.config import TopicConfig
from logstore.errors import InvalidConfigError, OffsetOutOfRangeError, UnknownTopicError, UsageError
from logstore.model import ProducerIdentity
from logstore.testing import ManualClock
from tests.rotation import seed_of_turn
from tests.spark.conftest import missing_python
from tests.wire.lost_end import lose, serving

if missing_python() is not None:
    pytest.skip(missing_python(), allow_module_level=True)

from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from logstore.spark.columns import full_schema
from logstore.spark.options import SERVERS, Options, Use
from logstore.spark.source import LogstoreSource
from logstore.spark.stream_reader import StreamReader


class Query:
    """What Spark does with a reader, without a crash: journal an end, run the batch, go on."""

    def __init__(self, store, clock=None, **options):
        self.store, self.clock = store, clock
        self.offset = None
        self.start(**options)

    def start(self, **options):
        """A run; the options may be others than before."""
        given = {**place_of(self.store), "subscribe": "a", **options}
        options = Options(
            {name: value for name, value in given.items() if value is not None}, Use.STREAM_READ
        )
        self.reader = StreamReader(options, full_schema(with_headers=False), self.clock)
        if self.offset is None:
            self.offset = self.reader.initialOffset()

    def plan(self, limit=None):
        """The end of the next batch; None if there is none."""
        limit = self.reader.getDefaultReadLimit() if limit is None else limit
        end = json.loads(json.dumps(self.reader.latestOffset(self.offset, limit)))
        return None if end == self.offset else end

    def run(self, end):
        """The values of a batch."""
        values = []
        for part in self.reader.partitions(self.offset, end):
            for batch in self.reader.read(part):
                values += [value.decode() for value in batch.column("value").to_pylist()]
        self.offset = end
        return sorted(values)

    def batch(self, limit=None):
        """The values of the next batch; None if there is none."""
        end = self.plan(limit)
        return None if end is None else self.run(end)


SERVED = {}
"""The addresses of stores that are read through a listener, by path."""


def place_of(store):
    """The option that names the store."""
    address = SERVED.get(store.path)
    return {"path": store.path} if address is None else {SERVERS: address}


def name_of(store):
    """What errors call it."""
    return SERVED.get(store.path, store.path)


@pytest.fixture(params=["directory", "listener"])
def store(tmp_path, request):
    with logstore.open(tmp_path / "store") as store:
        if request.param == "directory":
            yield store
            return
        with store.listen() as listener:
            SERVED[store.path] = listener.address
            yield store
            del SERVED[store.path]


of_directories = pytest.mark.parametrize("store", ["directory"], indirect=True)


def fill(topic, *values, partition=0):
    topic[partition].extend([value.encode() for value in values], flush=True)  # the reader looks at files


@pytest.fixture
def warnings(caplog):
    with caplog.at_level(logging.WARNING, logger="logstore"):
        yield lambda: [record.getMessage() for record in caplog.records]


# Where it begins


def test_stream_begins_at_the_end(store):
    topic = store.create_topic("a")
    fill(topic, "old")
    query = Query(store)
    assert query.batch() == []
    fill(topic, "new")
    assert query.batch() == ["new"]
    assert query.batch() is None


@pytest.mark.parametrize(
    ("options", "values"),
    [
        ({"startingOffsets": "earliest"}, ["0", "1", "2"]),
        ({"startingOffsets": '{"a": {"0": 1}}'}, ["1", "2"]),
        ({"startingOffsets": '{"a": {"0": -1}}'}, []),
        ({"startingOffsets": '{"a": {"0": -2}}'}, ["0", "1", "2"]),
        ({"startingOffsetsByTimestamp": '{"a": {"0": 2000}}'}, ["2"]),
        ({"startingTimestamp": "1000"}, ["1", "2"]),
        ({"startingTimestamp": "9000", "startingOffsetsByTimestampStrategy": "latest"}, []),
    ],
)
def test_where_a_stream_begins(store, options, values):
    topic = store.create_topic("a")
    for number in range(3):
        topic.append(str(number).encode(), timestamp_ms=number * 1000, flush=True)
    assert Query(store, **options).batch() == values


def test_beginning_is_asked_for_by_a_constant(store):
    store.create_topic("a")
    query = Query(store, startingOffsets="latest")
    first = query.reader.initialOffset()
    fill(store["a"], "x")
    assert query.reader.initialOffset() == first == {"logstore": 1, "begin": {"startingOffsets": "latest"}}


def test_first_batch_is_the_same_after_a_restart_that_finds_more(store):
    """Spark asks where the stream begins anew if the first batch was not committed."""
    topic = store.create_topic("a", partitions=2)
    fill(topic, "old")
    query = Query(store)
    end = query.plan()
    fill(topic, "x", "y")
    query.start()
    assert query.run(end) == []
    assert query.batch() == ["x", "y"]


def test_first_batch_is_the_same_after_a_restart_with_other_options(store):
    topic = store.create_topic("a")
    fill(topic, "1", "2")
    query = Query(store, startingOffsets="earliest")
    end = query.plan()
    query.offset = None
    query.start(startingOffsets="latest")
    assert query.run(end) == ["1", "2"]


def test_log_that_grows_while_its_end_is_asked_for_is_no_loss(store, monkeypatch):
    topic = store.create_topic("a")
    query = Query(store)
    look = query.reader._look

    def look_and_append(partitions):
        seen = look(partitions)
        fill(topic, "meanwhile")
        return seen

    monkeypatch.setattr(query.reader, "_look", look_and_append)
    assert query.batch() == []
    monkeypatch.undo()
    fill(topic, "new")
    assert query.batch() == ["meanwhile", "meanwhile", "new"]  # run() looked, and so appended, once more


def test_topic_that_is_not_there_is_refused(store):
    store.create_topic("a")
    with pytest.raises(UnknownTopicError, match=f"there is no topic 'b' in {name_of(store)}"):
        Query(store, subscribe="a,b").batch()


def test_offset_to_begin_at_that_is_not_there_is_refused(store):
    fill(store.create_topic("a"), "x")
    with pytest.raises(
        OffsetOutOfRangeError, match="a-0: option startingOffsets asks for offset 7; there are"
    ):
        Query(store, startingOffsets='{"a": {"0": 7}}').batch()


# What comes up


def test_new_partition_is_read_from_its_beginning(store):
    topic = store.create_topic("a")
    query = Query(store)
    assert query.batch() == []
    topic.add_partitions(2)
    fill(topic, "x", "y", partition=1)
    assert query.batch() == ["x", "y"]


def test_new_topic_of_a_pattern_is_read_from_its_beginning(store):
    query = Query(store, subscribe=None, subscribePattern="a.*")
    assert query.batch() == []
    fill(store.create_topic("ab"), "x")
    fill(store.create_topic("ba"), "not asked for")
    assert query.batch() == ["x"]


def test_assigned_partitions_alone_are_read(store):
    topic = store.create_topic("a", partitions=2)
    query = Query(store, subscribe=None, assign='{"a": [1]}', startingOffsets="earliest")
    fill(topic, "no")
    fill(topic, "yes", partition=1)
    assert query.batch() == ["yes"]


def test_topic_that_is_added_at_a_restart_is_read_from_its_beginning(store):
    fill(store.create_topic("a"), "a0")
    fill(store.create_topic("b"), "b0")
    query = Query(store, startingOffsets="earliest")
    assert query.batch() == ["a0"]
    query.start(subscribe="a,b")
    assert query.batch() == ["b0"]


def test_topic_that_is_left_out_for_a_run_goes_on_where_it_was(store):
    for name in "ab":
        fill(store.create_topic(name), name + "0")
    query = Query(store, subscribe="a,b", startingOffsets="earliest")
    assert query.batch() == ["a0", "b0"]
    query.start(subscribe="a")
    for name in "ab":
        fill(store[name], name + "1")
    assert query.batch() == ["a1"]
    query.start(subscribe="a,b")
    assert query.batch() == ["b1"]


def test_batch_that_was_journaled_is_read_though_its_topic_is_no_longer_asked_for(store):
    for name in "ab":
        fill(store.create_topic(name), name + "0")
    query = Query(store, subscribe="a,b", startingOffsets="earliest")
    end = query.plan()
    query.start(subscribe="a")
    assert query.run(end) == ["a0", "b0"]


def test_transaction_that_is_open_is_waited_for(store):
    topic = store.create_topic("a")
    query = Query(store, startingOffsets="earliest", **{"kafka.isolation.level": "read_committed"})
    fill(topic, "before")
    log = topic[0]
    log.extend([b"within"], producer=ProducerIdentity(7, 0, 0, transactional=True))
    fill(topic, "behind")
    assert query.batch() == ["before"]
    log.append_end_marker(7, 0, committed=True)
    log.flush()
    assert query.batch() == ["behind", "within"]


# What goes away

_SKIP = {"failOnDataLoss": "false"}


def read_and_lose(store, warnings, lose, expected, **options):
    """A stream that has read one record fails on a loss, and without ``failOnDataLoss`` goes on."""
    topic = store.create_topic("a")
    fill(topic, "read")
    query = Query(store, startingOffsets="earliest", **options)
    assert query.batch() == ["read"]
    fill(topic, "1", "2", "3")
    lose(topic)
    with pytest.raises(OffsetOutOfRangeError) as caught:
        query.plan()
    assert expected in str(caught.value)
    assert str(caught.value).startswith(f"records of {name_of(store)} that the stream has not read are lost")
    assert str(caught.value).endswith("Restart it with failOnDataLoss=false to continue with the rest")
    query.start(**_SKIP, **options)
    assert not warnings()
    return query


def test_records_that_retention_deleted(store, warnings):
    expected = "a-0: the records at offsets 1 to 2 were deleted before they were read"
    query = read_and_lose(store, warnings, lambda topic: topic[0].delete_before(3), expected)
    assert query.batch() == ["3"]
    assert warnings() == [f"{expected} ({name_of(store)}); the stream continues (failOnDataLoss=false)"]
    assert query.batch() is None


def test_records_that_were_cut_off(store, warnings):
    expected = "a-0: it was cut: records were read up to offset 0, but it ends at 0"
    query = read_and_lose(store, warnings, lambda topic: topic[0].truncate_to(0), expected)
    assert query.batch() == []
    fill(store["a"], "new")
    assert query.batch() == ["new"]
    assert len(warnings()) == 1


PARTED = "a-0: it was cut at offset {}, and others took the place of the records up to offset {}"


def test_records_whose_place_others_took(store, warnings):
    """As after a crash: the log goes on in a new leader epoch, and is longer than before."""

    def lose(topic):
        topic[0].truncate_to(2)
        fill(topic, "new 2", "new 3", "new 4", "new 5")

    topic = store.create_topic("a")
    fill(topic, "0", "1", "2", "3")
    query = Query(store, startingOffsets="earliest")
    assert query.batch() == ["0", "1", "2", "3"]
    lose(topic)
    with pytest.raises(OffsetOutOfRangeError, match=PARTED.format(2, 3)):
        query.plan()
    query.start(**_SKIP)
    assert query.batch() == ["new 2", "new 3", "new 4", "new 5"]
    assert query.batch() is None
    assert len(warnings()) == 1
    fill(topic, "6")
    assert query.batch() == ["6"]
    assert len(warnings()) == 1


def test_a_log_that_is_shorter_than_before_has_others_too(store, warnings):
    topic = store.create_topic("a")
    fill(topic, "0", "1", "2", "3")
    query = Query(store, startingOffsets="earliest", **_SKIP)
    assert query.batch() == ["0", "1", "2", "3"]
    topic[0].truncate_to(1)
    fill(topic, "new 1")
    assert query.batch() == ["new 1"]
    assert [PARTED.format(1, 3) in text for text in warnings()] == [True]


def test_a_new_leader_epoch_by_itself_is_no_loss(store, warnings):
    topic = store.create_topic("a")
    fill(topic, "0", "1")
    query = Query(store, startingOffsets="earliest")
    assert query.batch() == ["0", "1"]
    for epoch in (3, 9):
        topic[0].assign_leader_epoch(epoch)
        fill(topic, f"in {epoch}")
        assert query.batch() == [f"in {epoch}"]
    topic[0].truncate_to(4)  # at its end
    fill(topic, "4")
    assert query.batch() == ["4"]
    assert not warnings()


@pytest.mark.parametrize("fails", [True, False])
def test_records_whose_place_others_take_between_the_journal_and_the_batch(store, warnings, fails):
    topic = store.create_topic("a")
    fill(topic, "0")
    fill(topic, "1", "2")
    query = Query(store, startingOffsets="earliest", failOnDataLoss=str(fails))
    end = query.plan()
    topic[0].truncate_to(1)
    fill(topic, "new 1", "new 2", "new 3")
    query.start(failOnDataLoss=str(fails))
    if fails:
        with pytest.raises(OffsetOutOfRangeError, match=PARTED.format(1, 2)):
            query.run(end)
    else:
        assert query.run(end) == ["0"]
        assert query.batch() == ["new 1", "new 2", "new 3"]
        assert len(warnings()) == 1


def test_a_log_of_an_older_copy_is_told(store, warnings):
    """Its leader epoch is below the one that the stream knows."""
    topic = store.create_topic("a")
    fill(topic, "0", "1")
    query = Query(store, startingOffsets="earliest")
    assert query.batch() == ["0", "1"]
    query.offset["topics"]["a"]["epoch"] = {"0": 7}
    fill(topic, "2")
    with pytest.raises(OffsetOutOfRangeError, match="a-0: it has another record at offset 1 than was read"):
        query.plan()
    query.start(**_SKIP)
    assert query.batch() == ["2"]
    fill(topic, "3")
    assert query.batch() == ["3"]
    assert len(warnings()) == 1


def test_a_checkpoint_without_leader_epochs_goes_on_and_has_them_from_then_on(store, warnings):
    topic = store.create_topic("a")
    fill(topic, "0", "1", "2")
    query = Query(store, startingOffsets="earliest", **_SKIP)
    assert query.batch() == ["0", "1", "2"]
    assert query.offset["topics"]["a"].pop("epoch") == {"0": topic[0].leader_epoch}
    topic[0].truncate_to(1)
    fill(topic, "new 1", "new 2", "new 3")
    assert query.batch() == ["new 3"]  # what an earlier version did
    assert not warnings()
    topic[0].truncate_to(3)
    fill(topic, "newer 3", "newer 4")
    assert query.batch() == ["newer 3", "newer 4"]
    assert len(warnings()) == 1


def test_a_log_that_is_cut_while_a_trigger_looks_is_told_by_the_next(store, warnings, monkeypatch):
    topic = store.create_topic("a")
    fill(topic, "0", "1", "2")
    query = Query(store, startingOffsets="earliest", **_SKIP)
    assert query.batch() == ["0", "1", "2"]
    fill(topic, "3")
    origin = type(query.reader._origin)
    epochs_before = origin.epochs_before

    def cut_first(self, offsets):
        monkeypatch.undo()
        topic[0].truncate_to(1)
        fill(topic, "new 1", "new 2", "new 3", "new 4")
        return epochs_before(self, offsets)

    monkeypatch.setattr(origin, "epochs_before", cut_first)
    end = query.plan()
    assert end["topics"]["a"]["epoch"] != {"0": topic[0].leader_epoch}
    assert query.run(end) == []
    assert query.batch() == ["new 1", "new 2", "new 3", "new 4"]
    assert PARTED.format(1, 3) in warnings()[-1]


@pytest.mark.damaged
def test_a_damaged_batch_before_the_end_is_not_compared(store):
    """Only a read of the damage fails."""
    topic = store.create_topic("a")
    for value in ("0", "1", "2"):
        fill(topic, value)
        topic[0].roll()
    topic[0].checkpoint()
    query = Query(store, startingOffsets="earliest", maxOffsetsPerTrigger="2")
    assert query.batch() == ["0", "1"]
    segment = Path(store.path, "a-0", "00000000000000000001.log")
    data = bytearray(segment.read_bytes())
    data[-1] ^= 1
    segment.write_bytes(data)
    assert query.batch() == ["2"]


class Told:
    """A stream that goes on over losses, and what it has given of a log that is cut and grows."""

    def __init__(self, store, seed, *, keeps_epochs=True):
        self.random = random.Random(seed)
        self.topic = store.create_topic("a", partitions=2, config=TopicConfig(segment_bytes=400))
        self.query = Query(store, startingOffsets="earliest", **_SKIP)
        self.keeps_epochs = keeps_epochs
        self.count = 0
        self.given = set()

    def append(self):
        for _ in range(self.random.randint(1, 4)):
            self.count += 1
            fill(self.topic, str(self.count), partition=self.random.randint(0, 1))

    def cut(self):
        log = self.topic[self.random.randint(0, 1)]
        log.truncate_to(self.random.randint(log.log_start_offset, log.log_end_offset))

    def delete(self):
        log = self.topic[self.random.randint(0, 1)]
        log.delete_before(self.random.randint(log.log_start_offset, log.log_end_offset))

    def trigger(self):
        end = self.query.plan(ReadMaxRows(self.random.randint(1, 5)))
        if end is None:
            return
        if not self.keeps_epochs:
            for topic in end["topics"].values():
                topic.pop("epoch", None)
        if self.random.random() < 0.3:  # a crash between the journal and the batch
            self.random.choice([self.append, self.cut])()
            self.query.start(**_SKIP)
        self.given.update(self.query.run(end))

    def run(self, steps):
        """The records that are there and that the stream has not given."""
        actions = [self.append, self.trigger, self.append, self.trigger, self.cut, self.delete]
        for _ in range(steps):
            self.random.choice(actions)()
        fill(self.topic, "last 0")
        fill(self.topic, "last 1", partition=1)
        while (end := self.query.plan(ReadAllAvailable())) is not None:
            self.given.update(self.query.run(end))
        return {record.value.decode() for log in self.topic for record in log.read(log.log_start_offset)} - (
            self.given
        )


@pytest.mark.parametrize("number", range(6))
def test_what_is_there_was_read_however_often_the_log_was_cut(store, number):
    """0.5 s each."""
    seed = seed_of_turn() * 100 + number
    assert not Told(store, seed).run(60), f"seed {seed}"


@of_directories
def test_without_leader_epochs_records_would_be_missed(store):
    """That the test above can fail. 1 s."""
    missed = []
    for seed in range(10):
        missed += Told(store, seed, keeps_epochs=False).run(60)
        store.delete_topic("a")
    assert missed


@pytest.mark.parametrize("by", ["directory", "listener"])
def test_a_stream_of_a_store_that_has_lost_power(tmp_path, by):
    """The stream has read what the power cut took; the log is longer than before when it looks again. 1 s."""
    path = tmp_path / "store"
    old, new = [b"old %d" % number for number in range(6)], [b"new %d" % number for number in range(9)]

    def reader(address, **options):
        place = {"path": str(path)} if by == "directory" else {SERVERS: address}
        given = Options(
            {**place, "subscribe": "t", "startingOffsets": "earliest", **options}, Use.STREAM_READ
        )
        return StreamReader(given, full_schema(with_headers=False))

    def batch(stream, start):
        end = json.loads(json.dumps(stream.latestOffset(start, ReadAllAvailable())))
        read = [batch for part in stream.partitions(start, end) for batch in stream.read(part)]
        return end, [value for each in read for value in each.column("value").to_pylist()]

    with serving(path, "127.0.0.1:0", old) as address:
        stream = reader(address)
        last, values = batch(stream, stream.initialOffset())
        assert values == old
        stream.stop()
    lose(path, 4 / 6)
    with serving(path, "127.0.0.1:0", new) as address:
        with pytest.raises(OffsetOutOfRangeError, match="t-0: it was cut at offset 4, and others took"):
            batch(reader(address), last)
        stream = reader(address, **_SKIP)
        assert batch(stream, last)[1] == new
        stream.stop()


def test_topic_that_was_created_again(store, warnings):
    def create_again(topic):
        store.delete_topic("a")
        fill(store.create_topic("a"), "new 0", "new 1", "new 2")

    expected = "a-0: its topic was deleted and created again; in the old one the next offset to read was 1"
    query = read_and_lose(store, warnings, create_again, expected)
    assert query.batch() == ["new 0", "new 1", "new 2"]
    assert query.batch() is None


def test_topic_that_vanished_and_comes_back(store, warnings):
    expected = "a-0: it does not exist any more; the next offset to read was 1"
    query = read_and_lose(store, warnings, lambda topic: store.delete_topic("a"), expected)
    assert query.batch() == []
    assert query.batch() is None
    fill(store.create_topic("a"), "new")
    assert query.batch() == ["new"]
    assert warnings() == [
        f"{expected} ({name_of(store)}); the stream continues (failOnDataLoss=false)",
        f"there is no topic 'a' in {name_of(store)}",
    ]


def test_new_partition_without_its_beginning(store, warnings):
    def add_partition(topic):
        topic.add_partitions(2)
        fill(topic, "x", "y", partition=1)
        topic[1].delete_before(1)

    expected = "a-1: it is new to the stream, but its records below offset 1 are already deleted"
    assert read_and_lose(store, warnings, add_partition, expected).batch() == ["1", "2", "3", "y"]


def test_many_losses_are_named_in_part(store):
    topic = store.create_topic("a", partitions=7)
    for number in range(7):
        fill(topic, "x", partition=number)
    query = Query(store, startingOffsets="earliest")
    query.batch()
    store.delete_topic("a")
    with pytest.raises(OffsetOutOfRangeError, match=r"a-4: [^;]*; [^;]*; and 2 more\. Restart"):
        query.plan()


@pytest.mark.parametrize("fails", [True, False])
def test_records_that_go_between_the_journal_and_the_batch(store, warnings, fails):
    topic = store.create_topic("a")
    fill(topic, "1", "2", "3")
    query = Query(store, startingOffsets="earliest", failOnDataLoss=str(fails))
    end = query.plan()
    topic[0].delete_before(2)
    if fails:
        with pytest.raises(OffsetOutOfRangeError, match="a-0: the records at offsets 0 to 1 were deleted"):
            query.run(end)
    else:
        assert query.run(end) == ["3"]
        assert len(warnings()) == 1


def test_batch_of_a_topic_that_was_created_again_is_not_read_from_the_new_one(store):
    fill(store.create_topic("a"), "old 1", "old 2")
    query = Query(store, startingOffsets="earliest", failOnDataLoss="false")
    end = query.plan()
    store.delete_topic("a")
    fill(store.create_topic("a"), "new 1", "new 2")
    assert query.run(end) == []
    assert query.batch() == ["new 1", "new 2"]


# How much


def test_most_is_divided_among_partitions(store):
    topic = store.create_topic("a", partitions=2)
    fill(topic, *["x"] * 30)
    fill(topic, *["y"] * 10, partition=1)
    query = Query(store, startingOffsets="earliest", maxOffsetsPerTrigger="8")
    assert query.reader.getDefaultReadLimit() == ReadMaxRows(8)
    batches = []
    while (values := query.batch()) is not None:
        batches.append(values)
    assert batches == [["x"] * 6 + ["y"] * 2] * 5


def test_trigger_once_takes_all(store):
    topic = store.create_topic("a")
    fill(topic, *"abc")
    query = Query(store, startingOffsets="earliest", maxOffsetsPerTrigger="2", minOffsetsPerTrigger="2")
    assert query.batch(ReadAllAvailable()) == ["a", "b", "c"]
    fill(topic, "d")
    assert query.batch(ReadAllAvailable()) == ["d"]


def test_least_is_waited_for_but_not_for_ever(store):
    topic, clock = store.create_topic("a"), ManualClock()
    query = Query(store, clock, minOffsetsPerTrigger="3", maxTriggerDelay="10s")
    assert query.reader.getDefaultReadLimit() == ReadMinRows(3)
    assert query.batch() == []
    fill(topic, "1")
    assert query.batch() == ["1"]  # the first one after a start waits for nothing
    fill(topic, "2", "3")
    clock.advance(9_999)
    assert query.batch() is None
    fill(topic, "4")
    assert query.batch() == ["2", "3", "4"]
    fill(topic, "5")
    clock.advance(9_999)
    assert query.batch() is None
    clock.advance(1)
    assert query.batch() == ["5"]


def test_first_batch_that_waits_keeps_where_the_stream_begins(store):
    topic, clock = store.create_topic("a"), ManualClock()
    query = Query(store, clock, startingOffsets="earliest", minOffsetsPerTrigger="3")
    query.reader.latestOffset(query.offset, query.reader.getDefaultReadLimit())  # a trigger that ran
    fill(topic, "1")
    assert query.batch() == ["1"]


def test_available_now_ends_with_what_was_there(store):
    topic = store.create_topic("a", partitions=2)
    fill(topic, *"abcde")
    query = Query(store, startingOffsets="earliest", maxOffsetsPerTrigger="2", minOffsetsPerTrigger="2")
    query.reader.prepareForTriggerAvailableNow()
    batches = [query.batch()]
    fill(topic, "later")
    fill(topic, "later", partition=1)
    topic.add_partitions(3)
    fill(topic, "later", partition=2)
    while (values := query.batch()) is not None:
        batches.append(values)
    assert batches[:3] == [["a", "b"], ["c", "d"], ["e"]]
    assert not any(batches[3:])  # one may note the new partition
    query.start(startingOffsets="earliest")
    assert query.batch() == ["later"] * 3


def test_available_now_never_goes_back(store):
    """A restart runs a batch that was journaled by a run that saw more than there was when it began."""
    topic = store.create_topic("a")
    query = Query(store, startingOffsets="earliest")
    query.reader.prepareForTriggerAvailableNow()
    fill(topic, "x")
    query.reader._available, kept = None, query.reader._available
    assert query.batch() == ["x"]
    query.reader._available = kept
    assert query.batch() is None


# Options, checkpoints


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"maxOffsetsPerTrigger": "0"}, "option maxOffsetsPerTrigger is '0': it must be a whole number"),
        ({"minOffsetsPerTrigger": "x"}, "option minOffsetsPerTrigger is 'x': it must be a whole number"),
        ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay is 'soon': it must be a time like 500ms"),
        (
            {"maxOffsetsPerTrigger": "2", "minOffsetsPerTrigger": "3"},
            "option maxOffsetsPerTrigger is '2': it is below minOffsetsPerTrigger, 3",
        ),
    ],
)
def test_wrong_option_is_refused_at_the_start(store, options, message):
    with pytest.raises(InvalidConfigError) as caught:
        Query(store, **options)
    assert message in str(caught.value)


def test_a_reader_that_cannot_be_made_says_so_when_it_is_asked(store):
    """Spark 4.3.0 shows an error of its own if making the reader fails."""
    source = LogstoreSource({**place_of(store), "subscribe": "a", "maxOffsetsPerTrigger": "0"})
    reader = pickle.loads(pickle.dumps(source.streamReader(full_schema(with_headers=False))))
    for ask in (reader.getDefaultReadLimit, reader.prepareForTriggerAvailableNow, reader.initialOffset):
        with pytest.raises(InvalidConfigError, match="option maxOffsetsPerTrigger is '0'"):
            ask()


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [("7", 7), ("500ms", 500), ("30s", 30_000), ("15m", 900_000), ("2 Hours", 7_200_000), ("1d", 86_400_000)],
)
def test_times_as_spark_writes_them(text, expected_ms):
    assert Options({"maxTriggerDelay": text}, Use.STREAM_READ).duration_ms("maxTriggerDelay", default=1) == (
        expected_ms
    )


def test_checkpoint_of_another_source_is_refused(store):
    store.create_topic("a")
    query = Query(store)
    query.offset = {"a": {"0": 17}}
    with pytest.raises(UsageError, match="was the checkpoint made by another source"):
        query.plan()


def test_progress_tells_the_end_of_the_log(store):
    topic = store.create_topic("a")
    query = Query(store, maxOffsetsPerTrigger="1", startingOffsets="earliest")
    fill(topic, "1", "2", "3")
    query.batch()
    assert query.reader.reportLatestOffset()["topics"]["a"]["end"] == {"0": 3}
    assert query.offset["topics"]["a"]["end"] == {"0": 1}


@of_directories
def test_topic_without_an_id_is_followed_over_restarts(store, tmp_path):
    """An old broker's directory: nothing says which topic it is."""
    fill(store.create_topic("a"), "1")
    store.close()
    for name in ("topics.json", "a-0/partition.metadata"):
        (tmp_path / "store" / name).unlink()
    query = Query(store, startingOffsets="earliest")
    assert query.batch() == ["1"]
    assert "id" not in query.offset["topics"]["a"]
    query.start()
    assert query.batch() is None


# Topics that are held in part


@of_directories
def test_a_stream_reads_what_is_held_and_goes_on_with_what_is_held_later(store):
    topic = store.create_topic("a", partitions=4, held=[1, 3])
    fill(topic, "one", partition=1)
    query = Query(store, startingOffsets="earliest")
    assert query.batch() == ["one"]
    topic.hold([2])
    fill(topic, "two", partition=2)
    fill(topic, "three", partition=3)
    assert query.batch() == ["three", "two"]


@of_directories
def test_an_offset_for_a_partition_that_is_not_held_is_refused(store):
    store.create_topic("a", partitions=4, held=[1, 3])
    query = Query(store, startingOffsets='{"a": {"0": 0, "1": 0, "3": 0}}')
    with pytest.raises(InvalidConfigError, match="does not hold partition 0 of topic 'a': it has 1, 3 of 4"):
        query.batch()
    query = Query(store, subscribe=None, assign='{"a": [0]}')
    with pytest.raises(UnknownTopicError, match="does not hold partition 0 of topic 'a'"):
        query.batch()


@of_directories
def test_a_partition_that_is_let_go_is_a_loss(store):
    topic = store.create_topic("a", partitions=4, held=[1, 3])
    fill(topic, "one", partition=1)
    query = Query(store, startingOffsets="earliest")
    assert query.batch() == ["one"]
    fill(topic, "two", partition=1)
    end = query.plan()
    topic.let_go(1)
    with pytest.raises(
        OffsetOutOfRangeError, match="a-1: it does not exist any more; the next offset to read was 1"
    ):
        query.run(end)
    with pytest.raises(OffsetOutOfRangeError, match="a-1: it does not exist any more"):
        query.plan()
    query.start(failOnDataLoss="false")
    fill(topic, "three", partition=3)
    assert query.batch() == ["three"]
