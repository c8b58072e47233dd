"""Single appends that gather into batches, and what happens if the disk refuses them."""

import errno
import threading
from contextlib import contextmanager

import pytest

from logstore import build_info
from logstore.clock import SystemClock
from logstore.errors import (
    ClosedError,
    DiskFullError,
    InvalidRecordError,
    InvalidTimestampError,
    RecordTooLargeError,
    ReopenRequiredError,
    UsageError,
)
from logstore.format.compression import Codec
from logstore.format.gathered import MAX_RECORD_OVERHEAD_BYTES
from logstore.format.header import HEADER_BYTES
from logstore.model import Isolation, ProducerIdentity, Role
from tests.partition.helpers_rules import (
    START_MS,
    WatchedFiles,
    add,
    crash,
    headers_of,
    offsets_of,
    open_log,
    run_background,
    values_of,
)


def gathered(log):
    return log.writer.gathering.rows.row_count


def written(log):
    """The log end on disk."""
    return log.writer.core.log_end_offset


def batch_sizes(log):
    return [header.record_count for header in headers_of(log)]


# Forming batches


def test_each_append_returns_its_offset_at_once(log):
    assert [log.append(b"a") for _ in range(3)] == [0, 1, 2]
    assert (gathered(log), written(log)) == (3, 0)


def test_many_appends_become_one_batch(log):
    for number in range(100):
        log.append(b"%d" % number, key=b"k", headers={"h": b"x"}, timestamp_ms=START_MS + number)
    assert batch_sizes(log) == [100]
    assert [record.timestamp_ms for record in log] == list(range(START_MS, START_MS + 100))


def test_they_are_written_after_the_linger_time(tmp_path):
    log = open_log(tmp_path / "t-0", linger_ms=5)
    log.append(b"a")
    log._context.clock.advance(4)
    run_background(log)
    assert written(log) == 0
    log._context.clock.advance(1)
    run_background(log)
    assert (gathered(log), written(log)) == (0, 1)


def test_the_next_append_lingers_again(tmp_path):
    log = open_log(tmp_path / "t-0", linger_ms=5)
    for end in (1, 2):
        log.append(b"a")
        log._context.clock.advance(5)
        run_background(log)
        assert written(log) == end


def test_without_linger_each_is_written_at_once(tmp_path):
    log = open_log(tmp_path / "t-0", linger_ms=0)
    log.append(b"a")
    log.append(b"b")
    assert (gathered(log), written(log)) == (0, 2)
    assert batch_sizes(log) == [1, 1]


def test_they_are_written_when_a_batch_is_full(tmp_path):
    record_bytes = 100 + MAX_RECORD_OVERHEAD_BYTES
    log = open_log(tmp_path / "t-0", batch_bytes=HEADER_BYTES + 3 * record_bytes)
    for _ in range(7):
        log.append(b"x" * 100)
    assert (written(log), gathered(log)) == (6, 1)
    assert batch_sizes(log) == [3, 3, 1]


def test_a_record_larger_than_a_batch_is_one(tmp_path):
    log = open_log(tmp_path / "t-0", batch_bytes=100)
    log.append(b"a")
    log.append(b"x" * 500)
    log.append(b"b")
    assert batch_sizes(log) == [1, 1, 1]


@pytest.mark.parametrize(
    "look",
    [
        lambda log: list(log.read()),
        lambda log: log.fetch(0),
        lambda log: log.offset_at(0),
        lambda log: log.flush(),
        lambda log: log.checkpoint(),
        lambda log: log.roll(),
        lambda log: log.truncate_to(5),
        lambda log: add(log),
    ],
)
def test_whoever_looks_sees_what_was_appended(log, look):
    log.append(b"a")
    look(log)
    assert (gathered(log), written(log)) == (0, 1)


@pytest.mark.parametrize("role", [Role.ALONE, Role.LEADER])
def test_properties_tell_of_what_gathers_and_leave_it_to_gather(log, role):
    log.extend([b"a", b"b"], flush=True)
    log.set_role(role)
    for number in range(3):
        assert log.append(b"c") == 2 + number
        end = 3 + number
        assert log.log_end_offset == end
        assert log.readable_offsets(Isolation.LOG_END) == range(end)
        shown = end if role is Role.ALONE else 2
        assert (log.high_watermark, log.last_stable_offset) == (shown, shown)
        assert log.readable_offsets() == range(shown)
        assert (log.log_start_offset, log.durable_offset, log.segment_count) == (0, 2, 1)
        assert log.size_bytes == log.writer.core.active.size_bytes
        assert (gathered(log), written(log)) == (number + 1, 2)
    log.flush()
    assert batch_sizes(log) == [2, 3]


def test_a_transaction_under_way_keeps_the_stable_offset_where_it_was(log):
    add(log, b"t", producer=ProducerIdentity(1, 0, 0, transactional=True))
    log.append(b"a")
    assert (log.log_end_offset, log.last_stable_offset) == (2, 0)
    assert gathered(log) == 1


def test_read_your_writes(log):
    for number in range(5):
        offset = log.append(b"%d" % number)
        assert next(iter(log.read(offset))).value == b"%d" % number


def test_a_killed_process_loses_what_was_gathered_and_nothing_else(tmp_path):
    log = open_log(tmp_path / "t-0")
    log.append(b"a")
    assert values_of(log) == [b"a"]  # which writes it
    log.append(b"lost")
    crash(log)
    assert values_of(open_log(tmp_path / "t-0")) == [b"a"]


def test_threads_get_offsets_without_gap_or_repetition(tmp_path):
    log = open_log(tmp_path / "t-0", batch_bytes=500)
    offsets = []

    def append_many(name):
        for number in range(300):
            value = b"%d-%d" % (name, number)
            offsets.append((log.append(value), value))

    threads = [threading.Thread(target=append_many, args=(name,)) for name in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(offsets) == [(record.offset, record.value) for record in log]
    assert len(offsets) == 1200


def test_a_buffer_may_be_used_again_at_once(log):
    value, key, content = bytearray(b"value"), bytearray(b"key"), bytearray(b"h")
    log.append(value, key=memoryview(key), headers=[("h", content)])
    log.extend([(key, value)])
    value[:], key[:], content[:] = b"xxxxx", b"xxx", b"x"
    assert [(r.key, r.value, r.headers) for r in log] == [
        (b"key", b"value", (("h", b"h"),)),
        (b"key", b"value", ()),
    ]


def test_wide_buffers_are_taken_as_their_bytes(log):
    wide = memoryview(b"12345678").cast("I")
    log.append(wide)
    log.extend([wide, wide[::2]])
    assert values_of(log) == [b"12345678", b"12345678", b"1234"]


@pytest.mark.parametrize(("compression_type", "codec"), [("zstd", Codec.ZSTD), ("producer", Codec.NONE)])
def test_the_topics_codec_is_used(tmp_path, compression_type, codec):
    log = open_log(tmp_path / "t-0", compression_type=compression_type)
    log.append(b"a" * 100)
    add(log, b"b" * 100)
    assert [header.codec for header in headers_of(log)] == [codec, codec]


# Without the lock


needs_compiled = pytest.mark.skipif(not build_info().is_compiled, reason="plain Python takes the lock")


@contextmanager
def held_by_another_thread(lock):
    is_held, may_go = threading.Event(), threading.Event()

    def hold():
        with lock:
            is_held.set()
            may_go.wait(10)

    thread = threading.Thread(target=hold)
    thread.start()
    is_held.wait(10)
    try:
        yield
    finally:
        may_go.set()
        thread.join()


@needs_compiled
def test_the_first_of_a_batch_opens_the_gate(log):
    log.append(b"a")
    assert log.writer.gathering.rows.is_gate_open
    with held_by_another_thread(log.writer.guard.lock):
        assert log.append(b"b", key=b"k", headers=(("h", b"x"),), timestamp_ms=START_MS) == 1
    assert values_of(log) == [b"a", b"b"]


@needs_compiled
@pytest.mark.parametrize(
    "change",
    [
        lambda log: log.flush(),
        lambda log: add(log),
        lambda log: log.truncate_to(0),
        lambda log: log.truncate_fully_and_start_at(7),
        lambda log: log.reconfigure(log.config),
        lambda log: list(log.read()),
        lambda log: log.close(),
        lambda log: log.abandon(),
        lambda log: log.writer.guard.poison(OSError("broken")),
    ],
)
def test_whoever_changes_the_log_closes_the_gate(log, change):
    log.append(b"a")
    change(log)
    assert not log.writer.gathering.rows.is_gate_open


@pytest.mark.parametrize("settings", [{"linger_ms": 0}, {"flush_messages": 2}])
def test_it_stays_closed_where_an_append_may_have_more_to_do(tmp_path, settings):
    log = open_log(tmp_path / "t-0", **settings)
    assert [log.append(b"a") for _ in range(3)] == [0, 1, 2]
    assert log.writer.gathering.rows.gather(b"a", None, (), None, START_MS) is None
    assert written(log) >= 2


def test_after_the_end_appends_are_refused_whatever_came_before(tmp_path):
    for name, end, error in (
        ("a-0", lambda log: log.close(), ClosedError),
        ("b-0", lambda log: log.abandon(), ClosedError),
        ("c-0", lambda log: log.writer.guard.poison(OSError("broken")), ReopenRequiredError),
    ):
        log = open_log(tmp_path / name)
        log.append(b"a")
        log.append(b"b")
        end(log)
        with pytest.raises(error):
            log.append(b"refused")


def test_each_append_asks_the_clock_that_the_log_was_given(log):
    for _ in range(3):
        log.append(b"a")
        log._context.clock.advance(1)
    assert [record.timestamp_ms for record in log] == [START_MS, START_MS + 1, START_MS + 2]


def test_the_machines_clock_is_asked_when_none_was_given(tmp_path):
    clock = SystemClock()
    log = open_log(tmp_path / "t-0", clock=clock)
    before_ms = clock.now_ms()
    log.append(b"a")
    log.append(b"b")
    after_ms = clock.now_ms()
    assert all(before_ms <= record.timestamp_ms <= after_ms for record in log)
    with pytest.raises(InvalidTimestampError):
        log.append(b"c", timestamp_ms=after_ms + 4_000_000)
    log.close()


# Arguments


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ({"value": "text"}, "value is a str"),
        ({"value": 5}, "value is a int"),
        ({"key": "text"}, "key is a str"),
        ({"timestamp_ms": "now"}, "timestamp_ms"),
        ({"timestamp_ms": 1.5}, "timestamp_ms"),
        ({"timestamp_ms": True}, "timestamp_ms"),
        ({"timestamp_ms": -2}, "timestamp_ms"),
        ({"timestamp_ms": 2**63}, "timestamp_ms"),
        ({"headers": 5}, "headers is a int"),
        ({"headers": "ab"}, "header is 'a'"),
        ({"headers": [("h",)]}, "header is"),
        ({"headers": [("h", b"x", b"y")]}, "header is"),
        ({"headers": [(b"h", b"x")]}, "header is"),
        ({"headers": [("h", "text")]}, "header 'h' is a str"),
        ({"headers": [("\ud800", b"x")]}, "UTF-8"),
    ],
)
def test_a_wrong_argument_is_named_and_nothing_is_appended(log, arguments, named):
    with pytest.raises(InvalidRecordError, match=named):
        log.append(**{"value": b"v"} | arguments)
    assert log.append(b"next") == 0
    assert values_of(log) == [b"next"]


def test_a_compacted_topic_needs_a_key(tmp_path):
    log = open_log(tmp_path / "t-0", cleanup_policy="compact")
    with pytest.raises(InvalidRecordError, match="key"):
        log.append(b"v")
    assert log.append(None, key=b"") == 0


def test_a_timestamp_out_of_bounds_is_refused(log):
    with pytest.raises(InvalidTimestampError, match="after_max_ms"):
        log.append(b"v", timestamp_ms=START_MS + 3_600_001)
    assert log.append(b"v", timestamp_ms=-1) == 0


@pytest.mark.parametrize("limit", ["max_message_bytes", "segment_bytes"])
def test_a_record_that_just_fits_is_taken_and_one_more_byte_is_not(tmp_path, limit):
    size = len(open_log(tmp_path / "a-0").writer.appending.prepare([b"x" * 1000])[0])
    log = open_log(tmp_path / "t-0", **{limit: size})
    log.append(b"first")
    assert log.append(b"x" * 1000) == 1
    with pytest.raises(RecordTooLargeError, match=limit):
        log.append(b"x" * 1001)
    assert log.append(b"last") == 2
    assert offsets_of(log) == [0, 1, 2]


@pytest.mark.parametrize("limit", ["max_message_bytes", "segment_bytes"])
def test_records_of_any_size_never_make_a_batch_that_is_refused(tmp_path, limit):
    log = open_log(tmp_path / "t-0", **{limit: 600})
    for offset in range(150):
        size = offset * 17 % 510
        assert log.append(b"x" * size, timestamp_ms=START_MS - offset % 2 * 10**12) == offset
    assert offsets_of(log) == list(range(150))


def test_what_compresses_may_be_larger_than_the_limit(tmp_path):
    log = open_log(tmp_path / "t-0", compression_type="zstd", max_message_bytes=500)
    log.append(b"x" * 5000)
    assert values_of(log) == [b"x" * 5000]


def test_other_settings_hold_from_the_next_append_on(tmp_path):
    log = open_log(tmp_path / "t-0")
    log.append(b"x" * 300)
    log.reconfigure(open_log(tmp_path / "u-0", max_message_bytes=200).config)
    with pytest.raises(RecordTooLargeError):
        log.append(b"x" * 300)
    log.append(b"y")
    assert offsets_of(log) == [0, 1]


# A disk that is full for a while


@pytest.fixture
def files():
    return WatchedFiles()


@pytest.fixture
def full(tmp_path, files):
    """Two records gathered on a disk that is now full."""
    log = open_log(tmp_path / "t-0", files=files, linger_ms=5)
    add(log, b"0")
    log.append(b"1")
    log.append(b"2")
    files.refuse("write", ".log", errno.ENOSPC)
    return log


def test_a_full_disk_keeps_what_was_gathered(full, files):
    full._context.clock.advance(5)
    run_background(full)
    assert gathered(full) == 2
    files.heal()
    full.flush()
    assert values_of(full) == [b"0", b"1", b"2"]


def test_a_full_disk_refuses_further_appends_and_no_offset_is_lost(full, files):
    with pytest.raises(DiskFullError):
        full.flush()
    for _ in range(3):
        with pytest.raises(DiskFullError):
            full.append(b"refused")
    files.heal()
    assert full.append(b"3") == 3
    assert values_of(full) == [b"0", b"1", b"2", b"3"]


def test_a_full_disk_does_not_stop_reading(full):
    assert full.log_end_offset == 3
    assert values_of(full) == [b"0"]
    assert full.log_end_offset == full.high_watermark == 1  # what the disk refused cannot be read
    assert full.offset_at(0) == 0


def test_it_is_tried_again_in_the_background(full, files):
    full._context.clock.advance(5)
    run_background(full)
    files.heal()
    full._context.clock.advance(1000)
    run_background(full)
    assert (gathered(full), written(full)) == (0, 3)


def test_what_was_written_before_is_made_durable_all_the_same(full):
    assert full.writer.core.durable_offset == 0
    with pytest.raises(DiskFullError):
        full.flush()
    assert full.writer.core.durable_offset == 1


def test_without_linger_the_refused_record_is_forgotten(tmp_path, files):
    log = open_log(tmp_path / "t-0", files=files, linger_ms=0)
    files.refuse("write", ".log", errno.ENOSPC)
    for _ in range(2):
        with pytest.raises(DiskFullError):
            log.append(b"refused")
    files.heal()
    assert log.append(b"a") == 0
    assert values_of(log) == [b"a"]


def test_a_roll_on_a_full_disk_keeps_what_was_gathered(tmp_path, files):
    log = open_log(tmp_path / "t-0", files=files, segment_bytes=300)
    add(log, b"x" * 200)
    log.append(b"y" * 100)
    files.fill()
    with pytest.raises(DiskFullError):
        log.flush()
    files.heal()
    log.flush()
    assert values_of(log) == [b"x" * 200, b"y" * 100]
    assert log.segment_count == 2


def test_closing_on_a_full_disk_says_so(full):
    with pytest.raises(DiskFullError):
        full.close()
    assert full.is_closed


def test_a_background_failure_is_no_usage_error(full):
    full._context.clock.advance(5)
    run_background(full)
    with pytest.raises(DiskFullError) as caught:
        full.append(b"x")
    assert not isinstance(caught.value, UsageError)
