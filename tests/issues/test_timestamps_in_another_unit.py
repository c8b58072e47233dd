"""``timestamp_ms=int(time.time())`` was taken: a time in January 1970. The record was expired at once where a
limit of time was set, lookups by time and Spark's windows passed over it, and nobody was told. Microseconds
and nanoseconds were refused as out of bounds, without the word that helps; with wider bounds they were taken.
"""

import pytest

import logstore
from logstore.config import TopicConfig
from logstore.errors import InvalidTimestampError
from logstore.format.batch import encode_batch
from logstore.format.units import unit_of
from logstore.model import NewRecord
from logstore.partition.encoding.row_encoder import RowEncoder
from logstore.testing import ManualClock, MemoryFiles

NOW_MS = 1_700_000_000_000
UNITS = {
    "seconds": (NOW_MS // 1000, 1),
    "microseconds": (NOW_MS * 1000, 10**6),
    "nanoseconds": (NOW_MS * 10**6, 10**9),
}
ANY_TIME = {"message_timestamp_after_max_ms": 2**63 - 1}
RECORDS = 5
WRONG = 3


def arrow_of(stamps):
    pa = pytest.importorskip("pyarrow")
    return pa.table({"value": [b"v"] * len(stamps), "timestamp_ms": pa.array(stamps, pa.int64())})


def rows_of(stamps, make):
    return [make(stamp) for stamp in stamps]


def append_each(log, stamps):
    for stamp in stamps:
        log.append(b"v", timestamp_ms=stamp)


WAYS = {
    "append": append_each,
    "append with headers": lambda log, stamps: [
        log.append(b"v", headers={"h": b"v"}, timestamp_ms=stamp) for stamp in stamps
    ],
    "rows": lambda log, stamps: log.extend(rows_of(stamps, lambda stamp: (b"k", b"v", stamp))),
    "rows with headers": lambda log, stamps: log.extend(
        rows_of(stamps, lambda stamp: (b"k", b"v", stamp, [("h", b"v")]))
    ),
    "records": lambda log, stamps: log.extend(
        rows_of(stamps, lambda stamp: NewRecord(b"v", timestamp_ms=stamp))
    ),
    "odd records": lambda log, stamps: log.extend(
        rows_of(stamps, lambda stamp: NewRecord(bytearray(b"v"), timestamp_ms=stamp))
    ),
    "arrow": lambda log, stamps: log.extend_arrow(arrow_of(stamps)),
}


@pytest.fixture
def store():
    with logstore.open("/s", files=MemoryFiles(), clock=ManualClock(NOW_MS)) as store:
        yield store


@pytest.mark.parametrize("bounds", [{}, ANY_TIME], ids=["default bounds", "no bounds"])
@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("way", WAYS)
def test_another_unit_is_refused_by_its_name(store, way, unit, bounds):
    log = store.create_topic("t", config=TopicConfig(**bounds))[0]
    value, _ = UNITS[unit]
    stamps = [NOW_MS + number for number in range(RECORDS)]
    stamps[WRONG] = value
    with pytest.raises(InvalidTimestampError) as caught:
        WAYS[way](log, stamps)
    record = 0 if way.startswith("append") else WRONG
    message = str(caught.value)
    assert message.startswith(
        f"timestamp_ms {value} of record {record} looks like {unit} (2023-11-14 22:13:20 UTC)"
    )
    assert f"must be milliseconds: {NOW_MS}" in message
    assert "message_timestamp_unit_check=False" in message
    assert log.log_end_offset == (WRONG if way.startswith("append") else 0)


@pytest.mark.parametrize("way", WAYS)
def test_who_means_it_says_so(store, way):
    config = TopicConfig(message_timestamp_unit_check=False, **ANY_TIME)
    log = store.create_topic("t", config=config)[0]
    stamps = [value for value, _ in UNITS.values()]
    WAYS[way](log, stamps)
    assert [record.timestamp_ms for record in log.read()] == stamps
    assert log.offset_at(stamps[0]) == 0
    assert log.offset_at(stamps[1]) == 1


@pytest.mark.parametrize("way", WAYS)
def test_every_other_number_is_taken(store, way):
    log = store.create_topic("t", config=TopicConfig(**ANY_TIME))[0]
    edges = [
        edge
        for _, per_second in UNITS.values()
        for edge in (946_684_800 * per_second - 1, 4_102_444_800 * per_second + 1)
    ]
    stamps = [-1, 0, 1, 1000, NOW_MS, 2**63 - 1, *edges]
    assert [unit_of(stamp) for stamp in stamps] == [None] * len(stamps)
    WAYS[way](log, stamps)
    assert [record.timestamp_ms for record in log.read()] == stamps


@pytest.mark.parametrize("unit", UNITS)
@pytest.mark.parametrize("edge", [946_684_800, 4_102_444_800])
def test_the_first_and_the_last_second_of_the_years_meant(store, unit, edge):
    log = store.create_topic("t", config=TopicConfig(**ANY_TIME))[0]
    value = edge * UNITS[unit][1]
    with pytest.raises(InvalidTimestampError, match=f"{value} of record 0 looks like {unit}"):
        log.extend([(b"k", b"v", value)])
    with pytest.raises(InvalidTimestampError, match=f"{value} of record 0 looks like {unit}"):
        log.append(b"v", timestamp_ms=value)


def test_a_topic_names_the_record_by_its_number_in_the_call(store):
    topic = store.create_topic("t", partitions=4)
    records = [(b"key of %d" % number, b"v", NOW_MS + number) for number in range(50)]
    records[37] = (b"key", b"v", NOW_MS // 1000)
    for given in (records, iter(records)):
        with pytest.raises(InvalidTimestampError, match="of record 37 looks like seconds"):
            topic.extend(given)
    with pytest.raises(InvalidTimestampError, match="looks like seconds"):
        topic.append(b"v", key=b"k", timestamp_ms=NOW_MS // 1000)
    assert [log.log_end_offset for log in topic] == [0] * 4


def test_the_clock_is_believed_whatever_it_shows():
    """One set by hand to a day in 1970, and records that it dates."""
    for now_ms in (0, 5_000, 1_000_000_000, 4_000_000_000, 946_684_800_000_000):
        with logstore.open(f"/s{now_ms}", files=MemoryFiles(), clock=ManualClock(now_ms)) as store:
            log = store.create_topic("t")[0]
            log.append(b"v")
            log.append(b"v", timestamp_ms=now_ms)
            log.extend([(b"k", b"v", now_ms), (b"k", b"v", None), b"v"])
            assert {record.timestamp_ms for record in log.read()} == {now_ms}
            assert log.offset_at(now_ms) == 0


@pytest.mark.parametrize("unit", UNITS)
def test_a_lookup_by_another_unit_is_refused(store, unit, tmp_path):
    log = store.create_topic("t")[0]
    value, _ = UNITS[unit]
    for fill in (lambda: None, lambda: log.append(b"v")):
        fill()
        for look in (log.offset_at, log.find_timestamp):
            with pytest.raises(InvalidTimestampError, match=f"timestamp_ms {value} looks like {unit} "):
                look(value)
    assert log.offset_at(NOW_MS) == 0
    assert log.offset_at(0) == 0


@pytest.mark.parametrize("unit", UNITS)
def test_a_log_that_is_dated_so_is_looked_up_so(store, unit):
    """Encoded batches, of a producer or a broker, are taken as they are, and found."""
    log = store.create_topic("t", config=TopicConfig(**ANY_TIME))[0]
    value, per_second = UNITS[unit]
    stamps = [value, value + per_second]
    log.append_batch(encode_batch([None] * 2, [b"v"] * 2, stamps))
    log.append_replicated(encode_batch([None], [b"v"], [value + 2 * per_second], base_offset=2))
    assert [log.offset_at(value + n * per_second) for n in range(4)] == [0, 1, 2, None]


def test_the_append_time_replaces_what_is_given(store):
    log = store.create_topic("t", config=TopicConfig(message_timestamp_type="LogAppendTime"))[0]
    log.append(b"v", timestamp_ms=NOW_MS // 1000)
    log.extend([(b"k", b"v", NOW_MS // 1000)])
    assert [record.timestamp_ms for record in log.read()] == [NOW_MS] * 2


def test_what_spark_stages_is_held_against_it():
    arrow_input = pytest.importorskip("logstore.partition.encoding.arrow_input")
    encoder = RowEncoder(logstore.StoreConfig(), TopicConfig())
    with pytest.raises(InvalidTimestampError, match="record 1 looks like seconds"):
        arrow_input.encode(arrow_of([NOW_MS, NOW_MS // 1000]), encoder, NOW_MS)


def test_the_setting_is_one_of_the_topics():
    config = TopicConfig(message_timestamp_unit_check=False)
    assert config.to_properties() == {"message.timestamp.unit.check": "false"}
    assert TopicConfig.from_properties({"message.timestamp.unit.check": "false"}) == config
    with pytest.raises(logstore.UsageError, match="message_timestamp_unit_check is 1"):
        TopicConfig(message_timestamp_unit_check=1)
