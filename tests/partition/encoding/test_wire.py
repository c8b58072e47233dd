"""Encoded batches are checked without a lock and without making records: to the same outcome, bytes or error,
as record by record; and what was checked is what is written, by the rules that hold when it is."""

import re
import sys
import threading

import pytest

from logstore.config import TopicConfig
from logstore.errors import CorruptionError, InvalidRecordError, InvalidTimestampError, OutOfOrderError
from logstore.format.batch import decode_batch, encode_batch, seal_batch
from logstore.format.compression import Codec, compress
from logstore.format.header import decode_header
from logstore.format.received import Received
from logstore.model import AppendOrigin, Record, TimestampType
from logstore.partition.encoding import planning
from logstore.partition.encoding.planning import check_produced, check_replicated
from logstore.partition.writing import appending
from tests.format.legacy_writer import encode_entry, encode_wrapper
from tests.fuzz.chance import Chance, seal
from tests.partition import helpers_planning
from tests.partition.helpers_rules import START_MS, all_of, batch, headers_of, open_log, stored_bytes
from tests.partition.helpers_wire import (
    NOW_MS,
    any_config,
    any_data,
    any_origin,
    assert_same,
    checked,
    planned_or_error,
    small_batch,
    small_section,
    with_legacy_checksum,
)

CASES = 2_000
TOPICS = {
    "plain": TopicConfig(),
    "compacted": TopicConfig(cleanup_policy="compact"),
    "append time": TopicConfig(message_timestamp_type="LogAppendTime"),
    "zstd": TopicConfig(compression_type="zstd"),
    "narrow": TopicConfig(message_timestamp_before_max_ms=1, message_timestamp_after_max_ms=0),
}
MASKS = (0x01, 0x80, 0xFF)


# The same as record by record


def run_cases(name, count):
    """Random cases; returns what they came to, by kind."""
    kinds = {}
    for number in range(count):
        chance = Chance(f"{name} {number}")
        found = assert_same(any_data(chance), any_config(chance), any_origin(chance))
        kind = "nothing" if found is None else "taken"
        if found and isinstance(found[0], type):
            kind = f"{found[0].__name__}: {re.sub('[0-9]+', '#', found[1])}"
        kinds[kind] = kinds.get(kind, 0) + 1
    return kinds


RULES = [
    "taken",
    "nothing",
    "checksum",
    "it must be #",
    "may not append a control batch",
    "does not match last offset delta",
    "without a base sequence",
    "exactly one batch",
    "one entry at a time",
    "may not carry log append time",
    "must have a timestamp",
    "before_max_ms allows",
    "after_max_ms allows",
    "needs a key",
    "larger than max_message_bytes",
    "larger than segment_bytes",
    "codec # does not exist",
    "records in # offsets",
    "a record of # bytes where",
    "a varint longer than",
    "offset delta # is not in",
    "a key of",
    "a value of",
    "headers in",
    "a header with a null key",
    "ends after",
    "bytes after the last record",
    "decompressed",
    "inside the compressed entry",
    "unknown magic",
]
"""The outcomes that random batches must produce."""


def test_random_batches_come_to_the_same():
    kinds = run_cases("wire", CASES)
    assert kinds["taken"] > CASES // 5
    missing = [rule for rule in RULES if not any(rule in kind for kind in kinds)]
    assert not missing, kinds


@pytest.mark.slow
def test_many_random_batches_come_to_the_same():
    assert run_cases("wire, many", 20 * CASES)["taken"] > 4 * CASES


def flips(data):
    for at in range(len(data)):
        for mask in MASKS:
            flipped = bytearray(data)
            flipped[at] ^= mask
            yield flipped


@pytest.mark.parametrize("codec", list(Codec))
@pytest.mark.parametrize("topic", TOPICS)
def test_every_byte_flipped(topic, codec):
    """With the checksum made right again, so that what lies behind it decides; and once without."""
    config = TOPICS[topic]
    data = small_batch(codec, producer_id=7, producer_epoch=0, base_sequence=3)
    refused = 0
    for flipped in flips(data):
        assert_same(bytes(flipped), config)
        seal(flipped)
        found = assert_same(bytes(flipped), config)
        refused += bool(found) and isinstance(found[0], type)
    assert refused > len(data) // 4
    assert assert_same(data, config)[1]


@pytest.mark.parametrize("codec", list(Codec)[1:])
@pytest.mark.parametrize("topic", ["plain", "compacted"])
def test_every_byte_flipped_of_what_is_compressed(topic, codec):
    header = decode_header(small_batch(codec))
    for flipped in flips(small_section()):
        assert_same(bytes(seal_batch(header, compress(codec, bytes(flipped)))), TOPICS[topic])


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("topic", TOPICS)
def test_every_byte_flipped_of_a_legacy_entry(topic, magic):
    records = [Record(number, NOW_MS, b"k", b"v") for number in range(2)]
    for data in (encode_entry(magic, records[0]), encode_wrapper(magic, Codec.GZIP, records)):
        for flipped in flips(data):
            assert_same(bytes(flipped), TOPICS[topic])
            assert_same(with_legacy_checksum(bytes(flipped)), TOPICS[topic])


@pytest.mark.parametrize("codec", list(Codec))
def test_an_ordinary_batch_makes_no_records(codec, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("records were made")

    monkeypatch.setattr(planning, "decode_batch", refuse)
    for config in (TOPICS["plain"], TOPICS["compacted"], TOPICS["append time"], TOPICS["narrow"]):
        ((_,), (header,)) = checked(small_batch(codec), config)
        assert header[0] == 1000


def test_replicated_batches_come_to_the_same():
    taken = refused = 0
    for number in range(CASES):
        chance = Chance(f"replicated {number}")
        data = chance.batches()
        log_end_offset = chance.choice((0, 0, 100, chance.randrange(1 << 40)))

        def plan(data=data, log_end_offset=log_end_offset):
            planned = planning.check_replicated(data)
            if planned is not None:
                planning.check_follows(planned, log_end_offset)
            return planned

        ours = planned_or_error(plan)
        theirs = planned_or_error(
            lambda data=data, end=log_end_offset: helpers_planning.plan_follower_append(
                data, log_end_offset=end
            )
        )
        assert ours == theirs, (data, log_end_offset)
        taken += bool(ours) and not isinstance(ours[0], type)
        refused += bool(ours) and ours[0] in (CorruptionError, OutOfOrderError)
    assert min(taken, refused) > CASES // 10


# What was checked is written, by the rules that hold


@pytest.fixture
def after_check(monkeypatch):
    """Something to do once, in another thread, when a batch has been checked: it must not wait for the
    lock."""

    def arrange(name, action):
        check, actions = getattr(appending, name), [action]

        def check_then_act(data, **options):
            result = check(data, **options)
            if actions:
                thread = threading.Thread(target=actions.pop(), daemon=True)
                thread.start()
                thread.join(30)
                assert not thread.is_alive(), "the lock was held during the check"
            return result

        monkeypatch.setattr(appending, name, check_then_act)

    return arrange


def test_a_topic_that_becomes_compacted_refuses_what_was_checked_before(log, after_check):
    after_check("check_produced", lambda: log.reconfigure(TopicConfig(cleanup_policy="compact")))
    with pytest.raises(InvalidRecordError, match="needs a key in every record; missing in record 0"):
        log.append_batch(batch(b"a", key=None))
    assert log.log_end_offset == 0
    assert log.append_batch(batch(b"a")).last_offset == 0


def test_what_the_new_rules_take_too_is_taken_once(log, after_check):
    after_check("check_produced", lambda: log.reconfigure(TopicConfig(cleanup_policy="compact")))
    log.append_batch(batch(b"a"))
    assert [record.value for record in all_of(log)] == [b"a"]


def test_narrower_bounds_refuse_what_was_checked_before(log, after_check):
    after_check("check_produced", lambda: log.reconfigure(TopicConfig(message_timestamp_after_max_ms=0)))
    with pytest.raises(InvalidTimestampError, match="after_max_ms"):
        log.append_batch(batch(b"a", timestamp_ms=START_MS + 1))
    assert log.log_end_offset == 0


def test_a_smaller_limit_refuses_what_was_checked_before(log, after_check):
    after_check("check_produced", lambda: log.reconfigure(TopicConfig(max_message_bytes=100)))
    with pytest.raises(InvalidRecordError, match="max_message_bytes"):
        log.append_batch(batch(b"a" * 100))


def test_another_codec_and_timestamp_type_hold_for_what_was_checked_before(log, after_check):
    config = TopicConfig(compression_type="zstd", message_timestamp_type="LogAppendTime")
    after_check("check_produced", lambda: log.reconfigure(config))
    log.append_batch(batch(b"a" * 100, timestamp_ms=5))
    (header,) = headers_of(log)
    assert (header.codec, header.timestamp_type) == (Codec.ZSTD, TimestampType.LOG_APPEND_TIME)
    assert [record.timestamp_ms for record in all_of(log)] == [START_MS]


def test_settings_that_change_each_time_are_met_in_the_end(log, monkeypatch):
    """Three times; each batch is held against those that it is written under."""
    check, configs = appending.check_produced, []

    def check_then_change(data, **options):
        configs.append(options["config"])
        result = check(data, **options)
        if len(configs) <= 3:
            log.reconfigure(TopicConfig(max_message_bytes=1000 + len(configs)))
        return result

    monkeypatch.setattr(appending, "check_produced", check_then_change)
    assert log.append_batch(batch(b"a")).last_offset == 0
    assert [config.max_message_bytes for config in configs[1:]] == [1001, 1002, 1003]
    assert configs[-1] is log.config


@pytest.mark.parametrize("make", [bytearray, lambda data: memoryview(bytearray(data))])
@pytest.mark.parametrize(
    ("append", "check"), [("append_batch", "check_produced"), ("append_replicated", "check_replicated")]
)
def test_a_buffer_that_changes_after_the_check_changes_nothing(log, after_check, append, check, make):
    data, given = bytes(batch(b"abc")), make(batch(b"abc"))

    def spoil():
        given[-4] ^= 0xFF

    after_check(check, spoil)
    getattr(log, append)(given)
    assert bytes(given) != data
    assert stored_bytes(log)[17:] == data[17:]
    assert [record.value for record in all_of(log)] == [b"abc"]


def test_bytes_of_a_leader_are_not_copied():
    data = bytes(batch(b"abc"))
    for given in (data, memoryview(data)):
        (buffer,) = planning.check_replicated(given).buffers
        assert buffer.obj is data
    for given in (bytearray(data), memoryview(bytearray(data)), memoryview(bytearray(data)).toreadonly()):
        (buffer,) = planning.check_replicated(given).buffers
        assert type(buffer.obj) is bytes


def test_records_that_were_gathered_come_first(tmp_path):
    log = open_log(tmp_path / "t-0", linger_ms=1000)
    log.append(b"gathered")
    log.append_batch(batch(b"a"))
    log.append(b"more")
    log.append_replicated(batch(b"b", base_offset=3))
    assert [record.value for record in all_of(log)] == [b"gathered", b"a", b"more", b"b"]


def test_a_closed_log_says_so_whatever_the_batch_is(log):
    log.close()
    for append in (log.append_batch, log.append_replicated):
        with pytest.raises(Exception, match="closed"):
            append(b"\0" * 100)


def test_threads_and_a_topic_that_changes(tmp_path):
    """Whatever a thread was told stands at its offsets, in the codec of one of the topics, with all its keys
    where the topic was compacted for good."""
    log = open_log(tmp_path / "t-0", segment_bytes=100_000)
    told, before = [{} for _ in range(3)], sys.getswitchinterval()

    def append(name):
        chance = Chance(f"thread {name}")
        for number in range(150):
            values = [b"%d-%d-%d" % (name, number, n) for n in range(chance.randrange(1, 5))]
            result = log.append_batch(batch(*values, codec=chance.choice(tuple(Codec))))
            told[name].update(zip(range(result.base_offset, result.last_offset + 1), values, strict=True))

    def change():
        for number in range(60):
            codec = ("producer", "lz4", "uncompressed")[number % 3]
            log.reconfigure(TopicConfig(compression_type=codec, segment_bytes=100_000))

    sys.setswitchinterval(0.00005)
    try:
        threads = [threading.Thread(target=append, args=(name,)) for name in range(3)]
        threads.append(threading.Thread(target=change))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    stored = {record.offset: record.value for record in all_of(log)}
    assert {offset: value for of_thread in told for offset, value in of_thread.items()} == stored
    assert [*stored] == [*range(len(stored))]


def test_an_unexpected_error_in_the_check_leaves_the_log_usable(log, monkeypatch):
    """Memory that is short for what a batch decompresses to: nothing of the log was begun."""

    def no_memory(*_):
        raise MemoryError

    with monkeypatch.context() as patched:
        patched.setattr(planning, "inspect_records", no_memory)
        with pytest.raises(MemoryError):
            log.append_batch(batch(b"a"))
    assert log.append_batch(batch(b"a")).last_offset == 0


def test_origins_of_others_may_have_gaps_and_offsets(log):
    data = batch(b"a", b"b", base_offset=9)
    assert assert_same(bytes(data), TOPICS["plain"], AppendOrigin.COORDINATOR)[1][0][0] == 1000
    ((stored,), _) = checked(bytes(data), TOPICS["plain"], AppendOrigin.COORDINATOR)
    assert [record.offset for record in decode_batch(stored)] == [1000, 1001]


# Bytes that were given away


def test_given_bytes_are_checked_and_stored_where_they_are():
    data = encode_batch([None], [b"v" * 100], NOW_MS)
    own = memoryview(Received(data + b"the next batch, cut off"))[: len(data)]
    assert check_produced(own, config=TopicConfig(), origin=AppendOrigin.CLIENT, now_ms=NOW_MS) is own
    stamped = TopicConfig(message_timestamp_type="LogAppendTime")
    batch = check_produced(own, config=stamped, origin=AppendOrigin.CLIENT, now_ms=NOW_MS + 9)
    assert batch is not own
    assert own == data


@pytest.mark.parametrize("is_own", [True, False])
def test_what_stays_as_it_is_is_not_copied_for_a_follower(is_own):
    data = encode_batch([None], [b"v" * 100], NOW_MS, base_offset=5)
    memory = Received(data) if is_own else bytearray(data)
    planned = check_replicated(memoryview(memory).toreadonly())
    assert planned.buffers[0] == data
    assert (planned.buffers[0].obj is memory) is is_own
    planned = check_replicated(memoryview(memory))  # whoever can write there may do so
    memory[-1] ^= 1
    assert planned.buffers[0] == data
