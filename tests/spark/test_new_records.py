"""What ``new_records`` asks a read for, without Spark; and what comes of it over the life of a log."""

import json
import random
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import MagicMock

import pytest

from tests.spark.conftest import missing_python

if missing_python() is not None:
    pytest.skip(missing_python(), allow_module_level=True)

import logstore
from logstore.errors import InvalidConfigError, OffsetOutOfRangeError, UsageError
from logstore.spark import ParquetOutput, new_records
from logstore.spark.parquet_output import ReadOffsets
from tests.rotation import seed_of_turn
from tests.spark.reading import plan


@pytest.fixture
def path(tmp_path):
    """A store in which a topic was deleted and created again."""
    with logstore.open(tmp_path / "store") as store:
        store.create_topic("t").extend([b"1", b"2", b"3"])
        store.delete_topic("t")
        store.create_topic("t").extend([b"4"])
    return str(tmp_path / "store")


def output_up_to(offset):
    last = SimpleNamespace(number=7, offsets=ReadOffsets({"t": {0: offset}}))
    return SimpleNamespace(path="/out", last=lambda: last)


def test_a_log_that_ends_below_what_the_output_has_is_a_loss(path):
    lost = "that /out does not have are lost, or may be: t-0: it was cut: records were read up to offset 2"
    with pytest.raises(OffsetOutOfRangeError, match=lost):
        new_records(MagicMock(), output_up_to(3), path=path, topics=["t"])


def test_without_fail_on_data_loss_it_continues_at_the_end(path):
    spark = MagicMock()
    new = new_records(spark, output_up_to(3), path=path, topics=["t"], failOnDataLoss="false")
    wanted = spark.read.format.return_value.options.call_args.kwargs
    assert (wanted["startingOffsets"], wanted["endingOffsets"]) == ('{"t": {"0": 1}}',) * 2
    assert not new.is_empty
    assert (new.offsets, new.after) == ({"t": {0: 1}}, 7)


def test_a_log_that_has_not_grown_has_nothing_new(path):
    assert new_records(MagicMock(), output_up_to(1), path=path, topics=["t"]).is_empty


@pytest.mark.parametrize(
    "option",
    ["startingTimestamp", "startingOffsets", "ENDINGTIMESTAMP", "assign", "endingOffsetsByTimestamp"],
)
def test_what_would_read_other_records_is_refused(path, option):
    """A time takes precedence over the offsets of the output: its records came again, or were passed over."""
    with pytest.raises(InvalidConfigError, match=f"option {option} is '0': .* leave the option out"):
        new_records(MagicMock(), output_up_to(0), path=path, topics=["t"], **{option: "0"})


def test_options_are_given_as_spark_takes_them(path):
    spark = MagicMock()
    new_records(spark, output_up_to(3), path=path, topics=["t"], failOnDataLoss=False, minPartitions=2)
    wanted = spark.read.format.return_value.options.call_args.kwargs
    assert (wanted["failOnDataLoss"], wanted["minPartitions"]) == ("false", "2")


def test_a_path_in_place_of_the_output_is_refused(path):
    with pytest.raises(UsageError, match="output is '/out'; it must be a ParquetOutput"):
        new_records(MagicMock(), "/out", path=path, topics=["t"])


class Rows:
    """What a job has made of records."""

    def __init__(self, values):
        self.values, self.write = values, self

    def parquet(self, address):
        path = Path(address.removeprefix("file://"))
        path.mkdir(parents=True)
        (path / "part.parquet").write_text(json.dumps(self.values))


class Nightly:
    """A job that is run again and again, and what its output has."""

    def __init__(self, store, path, **options):
        self.store, self.output, self.options = store, ParquetOutput(path), options

    def look(self):
        self.store.flush()  # the job looks at files
        spark = MagicMock()
        new = new_records(spark, self.output, path=self.store.path, topics=["t"], **self.options)
        wanted = spark.read.format.return_value.options.call_args.kwargs
        return new, [] if new.is_empty else [row["value"].decode() for row in plan(**wanted).rows()]

    def run(self):
        new, values = self.look()
        if not new.is_empty:
            self.output.commit(Rows(values), new.offsets, after=new.after)
        return values

    def values(self):
        return [
            value
            for each in sorted(Path(self.output.path).glob("batch=*/part.parquet"))
            for value in json.loads(each.read_text())
        ]


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "life") as opened:
        yield opened


def fill(log, *values):
    for value in values:
        log.extend([value.encode()])


def test_records_whose_place_others_took(store, tmp_path):
    """The log has grown past what was read since."""
    log = store.create_topic("t")[0]
    fill(log, "0", "1", "2")
    assert Nightly(store, tmp_path / "out").run() == ["0", "1", "2"]
    log.truncate_to(1)
    fill(log, "new 1", "new 2", "new 3")
    with pytest.raises(OffsetOutOfRangeError, match="t-0: it was cut at offset 1, and others took the place"):
        Nightly(store, tmp_path / "out").run()
    job = Nightly(store, tmp_path / "out", failOnDataLoss=False)
    assert job.run() == ["new 1", "new 2", "new 3"]
    assert job.look()[0].is_empty


def test_a_topic_that_was_created_again_and_has_grown_further(store, tmp_path):
    topic = store.create_topic("t", partitions=3)
    for log in topic:
        fill(log, "old")
    assert Nightly(store, tmp_path / "out").run() == ["old"] * 3
    store.delete_topic("t")
    fill(store.create_topic("t", partitions=2)[0], "new 0", "new 1")
    with pytest.raises(
        OffsetOutOfRangeError, match=r"t-0: its topic was deleted and created again; .*; t-1: "
    ):
        Nightly(store, tmp_path / "out").run()
    job = Nightly(store, tmp_path / "out", failOnDataLoss=False)
    assert job.run() == ["new 0", "new 1"]
    assert job.output.offsets == {"t": {0: 2, 1: 0}}
    fill(store["t"][1], "more")
    store["t"].add_partitions(3)
    fill(store["t"][2], "of a new one")
    assert Nightly(store, tmp_path / "out").run() == ["more", "of a new one"]


def test_an_output_that_has_offsets_only_goes_on(store, tmp_path):
    """As earlier versions wrote it, or a job that says the offsets by itself."""
    log = store.create_topic("t")[0]
    fill(log, "0", "1")
    job = Nightly(store, tmp_path / "out")
    job.output.commit(Rows(["0"]), {"t": {0: 1}})
    path = tmp_path / "out/batch=0000000000/_commit.json"
    commit = json.loads(path.read_text())
    assert commit.pop("epochs") == {"t": {}}
    assert commit.pop("topic_ids") == {}
    path.write_text(json.dumps(commit))
    assert job.run() == ["1"]
    assert job.output.offsets.epochs == {"t": {0: log.leader_epoch}}
    assert list(job.output.offsets.topic_ids) == ["t"]
    job.output.commit(Rows([]), {"t": {0: 2}})
    assert job.output.offsets.epochs == {"t": {}}


def test_offsets_that_are_said_over_known_ones():
    known = ReadOffsets(
        {"a": {0: 5, 1: 6}, "b": {0: 7}}, topic_ids={"a": "x", "b": "y"}, epochs={"a": {0: 1, 1: 1}}
    )
    same = known.followed_by(ReadOffsets({"a": {0: 8}}, topic_ids={"a": "x"}, epochs={"a": {0: 2}}))
    assert (same, same.topic_ids) == ({"a": {0: 8, 1: 6}, "b": {0: 7}}, {"a": "x", "b": "y"})
    assert same.epochs["a"] == {0: 2, 1: 1}
    another = known.followed_by(ReadOffsets({"a": {0: 1}}, topic_ids={"a": "z"}))
    assert (another["a"], another.epochs["a"], another.topic_ids["a"]) == ({0: 1}, {}, "z")
    unknown = known.followed_by({"a": {1: 9}})
    assert (unknown["a"], unknown.epochs["a"], unknown.topic_ids) == ({0: 5, 1: 9}, {0: 1}, {"b": "y"})


def live(store, path, seed, *, forgets=False):
    """What is there in the end and not in the output."""
    chance = random.Random(seed)
    job = Nightly(store, path, failOnDataLoss=False)
    store.create_topic("t", partitions=2)
    count = 0
    for _ in range(40):
        log = store["t"][chance.randrange(2)]
        deed = chance.choice(["append"] * 3 + ["cut", "run", "run", "create again"])
        if deed == "append":
            count += 1
            fill(log, *[f"{count}.{each}" for each in range(chance.randint(1, 4))])
        elif deed == "cut":
            log.truncate_to(chance.randint(0, log.log_end_offset))
        elif deed == "run":
            job.run()
            if forgets and (last := job.output.last()) is not None:
                job.output.commit(Rows([]), dict(last.offsets))
        elif chance.random() < 0.3:
            store.delete_topic("t")
            store.create_topic("t", partitions=chance.randint(2, 3))
    job.run()
    store.flush()
    there = {record.value.decode() for log in store["t"] for record in log.read()}
    store.delete_topic("t")
    return there - set(job.values())


@pytest.mark.parametrize("number", range(5))
def test_what_is_there_is_in_the_output_however_often_the_log_was_cut(store, tmp_path, number):
    """0.3 s each."""
    seed = seed_of_turn() * 100 + number
    assert not live(store, tmp_path / "out", seed), f"seed {seed}"


def test_with_offsets_only_records_would_be_missed(store, tmp_path):
    """That the test above can fail. 1 s."""
    assert any(live(store, tmp_path / f"out {seed}", seed, forgets=True) for seed in range(8))
