"""What a caller gets wrong is refused in logstore's own words, and nothing was changed by then."""

import copy
import datetime
import pickle

import pytest

import logstore
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import InvalidConfigError, InvalidRecordError, UsageError
from logstore.partition.log import Log
from tests.logdir.helpers import names_in, open_store, values


@pytest.fixture
def store(tmp_path):
    with open_store(tmp_path / "store") as store:
        store.create_topic("t", config=TopicConfig(cleanup_policy="compact,delete"))
        yield store


@pytest.fixture
def log(store):
    return store["t"][0]


# Records ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("records", [{b"k": b"v"}, {}, {b"k": (b"a", b"b")}])
def test_a_mapping_is_refused_whose_values_would_be_dropped(store, log, records):
    for owner in (log, store["t"]):
        with pytest.raises(UsageError, match=r"records is a dict; give its items\(\)"):
            owner.extend(records)
    assert log.log_end_offset == 0


def test_the_items_of_a_mapping_are_keys_and_values(log):
    log.extend({b"k": b"v"}.items())
    assert [(record.key, record.value) for record in log] == [(b"k", b"v")]


@pytest.mark.parametrize("producer", [5, (1, 0, 0), "producer"])
def test_something_else_than_a_producer_is_refused(log, producer):
    with pytest.raises(InvalidRecordError, match="must be a ProducerIdentity"):
        log.extend([(b"k", b"v")], producer=producer)
    with pytest.raises(InvalidRecordError, match="must be a ProducerIdentity"):
        log.adopt([], producer=producer)


def released():
    view = memoryview(b"x" * 100)
    view.release()
    return view


@pytest.mark.parametrize(
    "data",
    [memoryview(b"x" * 200)[::2], memoryview(bytes(200)).cast("i"), released()],
    ids=["every other byte", "numbers", "released"],
)
def test_a_view_of_anything_else_than_bytes_leaves_the_log_in_use(log, data):
    for append in (log.append_batch, log.append_replicated):
        with pytest.raises(UsageError, match="memoryview"):
            append(data)
    assert not log.needs_reopen
    log.append(b"v", key=b"k")
    assert values(log) == [b"v"]


WRONG = {
    "too large": (b"zz", b"x" * 2_000_000),
    "text": (b"zz", "text"),
    "text as a key": ("zz", b"v"),
    "no record": 5,
    "a time ahead": (b"zz", b"v", 2**50),
    "a header": (b"zz", b"v", None, [("a", "text")]),
}


@pytest.mark.parametrize("wrong", WRONG.values(), ids=WRONG)
def test_a_record_of_a_topic_that_is_refused_leaves_all_partitions_as_they_were(store, wrong):
    topic = store.create_topic("many", partitions=4)
    with pytest.raises(InvalidRecordError):
        topic.extend([*((b"%d" % number, b"v") for number in range(20)), wrong])
    assert [log.log_end_offset for log in topic] == [0] * 4


@pytest.mark.parametrize("value", [b"x" * 2_000_000, b"v"], ids=["too large", "a time ahead"])
def test_a_row_of_a_topic_that_is_refused_leaves_all_partitions_as_they_were(store, value):
    pa = pytest.importorskip("pyarrow")
    topic = store.create_topic("many", partitions=4)
    rows = pa.table(
        {
            "key": [b"%d" % number for number in range(20)],
            "value": [b"v"] * 19 + [value],
            "timestamp_ms": [None] * 19 + [None if len(value) > 1 else 2**50],
        }
    )
    with pytest.raises(InvalidRecordError):
        topic.extend_arrow(rows)
    assert [log.log_end_offset for log in topic] == [0] * 4


# Numbers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [2**63, 10**30])
def test_a_record_batch_may_be_of_any_size(log, rows):
    pytest.importorskip("pyarrow")
    log.extend([(b"k", b"v")] * 3)
    assert [batch.num_rows for batch in log.iterate_arrow(batch_rows=rows)] == [3]
    assert [batch.num_rows for batch in log.latest_arrow(batch_rows=rows)] == [1]


@pytest.mark.parametrize("map_bytes", ["1", None, 1.5, 0])
def test_no_memory_for_keys_is_refused(log, map_bytes):
    with pytest.raises(UsageError, match="map_bytes is"):
        log.compact(now=True, map_bytes=map_bytes)


class Index:
    """A number of another type, as numpy has them."""

    def __index__(self):
        return 1


def test_a_number_of_another_type_is_refused_with_how_to_make_one(store, log):
    log.extend([(b"k", b"v")] * 3)
    for use in (
        log.read,
        log.record_at,
        log.follow,
        log.fetch,
        log.offset_at,
        log.truncate_to,
        store["t"].__getitem__,
        lambda number: log.read(0, number),
        lambda number: log.split(0, 3, parts=number),
        lambda number: log.erase(offsets=[number]),
        lambda number: log.append(b"v", key=b"k", timestamp_ms=number),
    ):
        with pytest.raises(UsageError, match=r"; convert the Index with int\(\)$"):
            use(Index())
    assert log.log_end_offset == 3


def test_a_datetime_without_a_time_zone_is_refused(store, log):
    when = datetime.datetime(2024, 1, 1)
    for use in (
        log.offset_at,
        lambda when: log.append(b"v", key=b"k", timestamp_ms=when),
        lambda when: log.extend([(b"k", b"v", when)]),
        lambda when: store["t"].extend([(b"k", b"v", when)]),
    ):
        with pytest.raises(
            UsageError, match=r"a datetime without a time zone; when\.astimezone\(\) makes it"
        ):
            use(when)
    assert log.log_end_offset == 0


# Settings ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("read_only", [False, True])
@pytest.mark.parametrize("config", [{}, {"linger_ms": 5}, TopicConfig()])
def test_something_else_than_the_config_of_a_store_is_refused(tmp_path, config, read_only):
    with pytest.raises(InvalidConfigError, match="must be a StoreConfig"):
        open_store(tmp_path / "new", config=config, read_only=read_only)
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("options", "wanted"),
    [
        ({"config": StoreConfig()}, "TopicConfig"),
        ({"config": {}}, "TopicConfig"),
        ({"store_config": TopicConfig()}, "StoreConfig"),
    ],
)
def test_something_else_than_the_config_of_a_log_is_refused(tmp_path, options, wanted):
    with pytest.raises(InvalidConfigError, match=f"must be a {wanted}"):
        Log.open(tmp_path / "t-0", **options)
    assert names_in(tmp_path) == []


def test_other_settings_that_are_none_leave_the_log_in_use(log):
    with pytest.raises(InvalidConfigError, match="must be a TopicConfig"):
        log.reconfigure({"retention_ms": 5})
    log.append(b"v", key=b"k", flush=True)
    assert values(log) == [b"v"]


# Elsewhere --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pick", [lambda s: s, lambda s: s["t"], lambda s: s["t"][0]], ids=["store", "topic", "log"]
)
@pytest.mark.parametrize("move", [pickle.dumps, copy.copy, copy.deepcopy])
def test_what_is_open_stays_where_it_is_and_says_so(store, pick, move):
    with pytest.raises(TypeError, match="another process opens the store itself, with read_only=True"):
        move(pick(store))


def test_a_log_that_is_read_only_stays_too(store, tmp_path):
    with open_store(tmp_path / "store", read_only=True) as reader:
        for each in (reader, reader["t"], reader["t"][0], reader["t"][0].latest()):
            with pytest.raises(TypeError, match="another process opens the store itself"):
                pickle.dumps(each)


def test_a_shell_completes_the_names_of_users():
    names = dir(logstore)
    assert set(logstore.__all__) <= set(names)
    assert {"errors", "__version__"} <= set(names)
    assert not {"Any", "TYPE_CHECKING"} & set(names)
