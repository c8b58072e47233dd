"""Spark on a store that holds some partitions of a topic only: what is not there is neither read nor written
to, and is never passed over in silence. No session in it."""

from __future__ import annotations

from itertools import chain

import pytest

pa = pytest.importorskip("pyarrow")

import logstore  # noqa: E402
from logstore.errors import InvalidConfigError, UnknownTopicError  # noqa: E402
from logstore.format.partitioner import partition_for_key  # noqa: E402
from logstore.model import Isolation, TopicPartition  # noqa: E402
from logstore.spark import commits  # noqa: E402
from logstore.spark.options import Options, Use  # noqa: E402
from logstore.spark.origins.directory import DirectoryOrigin  # noqa: E402
from logstore.spark.origins.origin import TopicPartitions  # noqa: E402
from logstore.spark.positions import Subscription, resolve_spans  # noqa: E402
from logstore.spark.ranges import Span  # noqa: E402
from logstore.spark.writing import plan_write, stage_rows  # noqa: E402
from tests.spark.staged import Place  # noqa: E402

COUNT = 8
HELD = (1, 4, 6)
KEYS = {partition_for_key(b"%d" % n, COUNT): b"%d" % n for n in range(200)}
NOT_HELD = "does not hold partition 3 of topic 't': it has 1, 4, 6 of 8, and another directory has this one"


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "store"
    with logstore.open(path) as store:
        topic = store.create_topic("t", partitions=COUNT, held=HELD)
        for number in HELD:
            topic[number].extend([b"%d" % number] * number)
    return str(path)


@pytest.fixture
def origin(path):
    origin = DirectoryOrigin(path)
    yield origin
    origin.close()


def values(path):
    with logstore.open(path, read_only=True) as store:
        return {log.partition.partition: [record.value for record in log.read()] for log in store["t"]}


# Reading ----------------------------------------------------------------------------------------------------


def spans(origin, **given):
    options = Options({"path": origin.path, **given}, Use.BATCH_READ)
    return resolve_spans(origin, Subscription(options), options, Isolation.HIGH_WATERMARK)


@pytest.mark.parametrize(
    "given", [{"subscribe": "t"}, {"subscribePattern": "t*"}, {"assign": '{"t": [1, 4, 6]}'}]
)
def test_those_that_are_held_are_read(origin, given):
    assert origin.partitions() == {"t": TopicPartitions(COUNT, HELD)}
    assert spans(origin, **given) == [Span(TopicPartition("t", number), 0, number) for number in HELD]


def test_offsets_are_named_for_those_that_are_held(origin):
    found = spans(origin, subscribe="t", startingOffsets='{"t": {"1": 1, "4": 2, "6": -2}}')
    assert [(span.start, span.stop) for span in found] == [(1, 1), (2, 4), (0, 6)]


@pytest.mark.parametrize("option", ["startingOffsets", "endingOffsets", "startingOffsetsByTimestamp"])
def test_an_offset_for_one_that_is_not_held_says_so(origin, option):
    offsets = '{"t": {"1": 0, "3": 0, "4": 0, "6": 0}}'
    with pytest.raises(InvalidConfigError, match=f"option {option}: .*{NOT_HELD}"):
        spans(origin, subscribe="t", **{option: offsets})


def test_one_that_is_not_held_cannot_be_assigned(origin):
    with pytest.raises(UnknownTopicError, match=NOT_HELD):
        spans(origin, assign='{"t": [1, 3]}')
    with pytest.raises(UnknownTopicError, match="has 8 partitions; there is no 8"):
        spans(origin, assign='{"t": [1, 8]}')
    with pytest.raises(UnknownTopicError, match="there is no topic 'u' in"):
        spans(origin, assign='{"t": [1], "u": [0]}')


# Writing ----------------------------------------------------------------------------------------------------


def stage(path, **columns):
    types = {"key": pa.binary(), "value": pa.binary(), "partition": pa.int32()}
    table = pa.table({name: pa.array(rows, types[name]) for name, rows in columns.items()})
    fields = [(name, "int" if name == "partition" else "binary") for name in columns]
    plan = plan_write(Options({"path": path, "topic": "t"}, Use.BATCH_WRITE), fields)
    return stage_rows(plan, "job", 0, 0, table.to_batches())


@pytest.mark.parametrize(
    ("columns", "row"),
    [
        ({"key": [KEYS[1], KEYS[4], KEYS[3]], "value": [b"a"] * 3}, 2),
        ({"key": [None, KEYS[3], KEYS[1]], "value": [b"a"] * 3}, 1),
        ({"partition": [3, 1], "value": [b"a"] * 2}, 0),
        ({"partition": [1, 3], "value": [b"a"] * 2}, 1),
        ({"key": [KEYS[1], KEYS[3]], "partition": [None, None], "value": [b"a"] * 2}, 1),
    ],
)
def test_a_row_for_one_that_is_not_held_fails_the_task_and_leaves_nothing(path, columns, row):
    before = values(path)
    with pytest.raises(UnknownTopicError, match=f"row {row} is for partition 3: .*{NOT_HELD}"):
        stage(path, **columns)
    assert values(path) == before
    with logstore.open(path) as store:
        assert list(store) == ["t"]


def test_rows_for_those_that_are_held_are_written(path):
    files = stage(path, key=[KEYS[4], KEYS[3], None], partition=[None, 6, None], value=[b"a", b"b", b"c"])
    commits.commit(path, "job", 0, files)
    found = values(path)
    assert found[4][4:].count(b"a") == 1
    assert b"b" in found[6]
    assert sorted(chain.from_iterable(found.values()))[-3:] == [b"a", b"b", b"c"]


def test_rows_without_keys_spread_over_those_that_are_held(path):
    rows = [b"%d" % number + bytes(100) for number in range(9_000)]
    commits.commit(path, "job", 0, stage(path, value=rows))
    found = {number: part[number:] for number, part in values(path).items()}
    assert sorted(chain.from_iterable(found.values())) == sorted(rows)
    assert all(len(part) > 2_000 for part in found.values())


def test_one_that_was_let_go_while_the_rows_were_on_their_way_is_refused_whole():
    place = Place()
    place.create(partitions=2)
    files = [place.stage({0: [b"a"]}), place.stage({1: [b"b"]}, task=1)]
    with place.open() as store:
        store["t"].let_go(1)
    with pytest.raises(UnknownTopicError, match="does not hold partition 1 of topic 't'"):
        place.commit(*files)
    with place.open() as store:
        assert list(store["t"][0].read()) == []
