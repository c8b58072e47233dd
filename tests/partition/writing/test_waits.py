"""Waits that take no thread: told once, when the log gets there, when the time is over, or at its end."""

import random
import sys
import threading

import pytest

from logstore.clock import SystemClock
from logstore.errors import ClosedError, RetriableError, StorageError, UsageError
from logstore.model import Isolation, ProducerIdentity, Role
from tests.partition.helpers_rules import START_MS, WatchedFiles, add, open_log, run_background


@pytest.fixture
def log(tmp_path):
    return open_log(tmp_path / "t-0")


def pass_time(log, milliseconds):
    log._context.clock.advance(milliseconds)
    run_background(log)


def waiting(log, offset, **options):
    """What the wait was told, in a list."""
    told = []
    log.when(offset, told.append, **options)
    return told


def test_a_long_poll_is_told_when_a_record_is_there(log):
    told = waiting(log, 2, timeout=60)
    add(log, b"a")
    assert told == []
    add(log, b"b")
    assert told == [True]
    add(log, b"c")
    pass_time(log, 100_000)
    assert told == [True]


def test_what_is_there_already_is_told_at_once(log):
    add(log, b"a", b"b")
    assert waiting(log, 2) == [True]
    assert waiting(log, 0, isolation=Isolation.DURABLE) == [True]
    assert not log.writer.waits.is_watched


@pytest.mark.parametrize("start_over", [False, True])
def test_who_waits_for_records_that_are_cut_off_is_told(log, start_over):
    """What takes their place is not what he waits for. Who waits for what comes waits on."""
    add(log, b"a", b"b")
    log.flush()
    add(log, b"c", b"d")
    lost = waiting(log, 4, isolation=Isolation.DURABLE)
    next_one = waiting(log, 5)
    if start_over:
        log.truncate_fully_and_start_at(2)
    else:
        log.truncate_to(2)
    assert (lost, next_one) == ([False], [])
    add(log, b"x", b"y")
    log.flush()
    assert (lost, next_one) == ([False], [])
    add(log, b"z")
    assert next_one == [True]
    assert not log.writer.waits.is_watched


def test_a_wait_expires_by_the_clock(log):
    told = waiting(log, 1, timeout=0.5)
    pass_time(log, 499)
    assert told == []
    pass_time(log, 1)
    assert told == [False]
    assert not log.writer.waits.is_watched
    add(log, b"a")
    assert told == [False]


def test_a_timeout_of_nothing_expires_in_the_background(log):
    told = waiting(log, 1, timeout=0)
    run_background(log)
    assert told == [False]


def test_a_wait_can_be_cancelled_once(log):
    told = []
    wait = log.when(1, told.append, timeout=1)
    assert wait.cancel()
    assert not wait.cancel()
    add(log, b"a")
    pass_time(log, 5_000)
    assert (told, wait.is_over) == ([], True)
    assert not log.writer.waits.is_watched


def test_an_acknowledgement_waits_for_the_disk(log):
    told = waiting(log, 1, isolation=Isolation.DURABLE)
    add(log, b"a")
    assert told == []
    pass_time(log, log.config.flush_ms)
    assert told == [True]


def test_it_may_hurry_the_disk(log):
    log.append(b"a")  # which gathers
    told = waiting(log, 1, isolation=Isolation.DURABLE, flush=True)
    run_background(log)
    assert told == [True]
    assert log.durable_offset == 1


def test_an_acknowledgement_waits_for_the_replicas(log):
    log.set_role(Role.LEADER)
    add(log, b"a", b"b")
    told = waiting(log, 2)
    log.update_high_watermark(1)
    assert told == []
    log.update_high_watermark(2)
    assert told == [True]


def test_a_committed_reader_waits_for_the_marker(log):
    add(log, b"a", producer=ProducerIdentity(7, 0, 0, transactional=True))
    told = waiting(log, 1, isolation=Isolation.COMMITTED)
    add(log, b"b")
    assert told == []
    log.append_end_marker(7, 0, committed=True)
    assert told == [True]


@pytest.mark.parametrize("end", ["close", "abandon"])
def test_the_end_of_the_log_is_the_end_of_the_wait(log, end):
    told = waiting(log, 5)
    changes = []
    log.on_change(lambda: changes.append(log.is_closed))
    getattr(log, end)()
    assert told == [False]
    assert changes[-1] is True
    with pytest.raises(ClosedError):
        log.when(1, told.append)
    with pytest.raises(ClosedError):
        log.on_change(print)


def test_a_failed_flush_ends_every_wait(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files)
    add(log, b"a")
    told = [waiting(log, 1, isolation=Isolation.DURABLE), waiting(log, 9)]
    files.refuse("flush", ".log")
    with pytest.raises(StorageError):
        log.flush()
    assert told == [[False], [False]]
    assert waiting(log, 9) == [False]


def test_of_many_waits_each_is_told_of_its_own_offset(log):
    """Held against a plain list, over appends, flushes, truncations, cancellations and time."""
    chance = random.Random(7)
    log.set_role(Role.LEADER)
    expected, told, waits = {}, {}, {}

    def limit(isolation):
        return log.readable_offsets(isolation).stop

    def settle():
        for number, (offset, isolation, _) in list(expected.items()):
            if limit(isolation) >= offset:
                assert told.pop(number) is True, number
                del expected[number]
        assert not told.keys() & expected.keys()

    now_ms = START_MS
    for number in range(3_000):
        what = chance.random()
        if what < 0.5:
            isolation = chance.choice(list(Isolation))
            offset, timeout_ms = log.log_end_offset + chance.randrange(-3, 30), chance.choice([None, 5, 500])
            offset = max(offset, 0)
            due_ms = None if timeout_ms is None else now_ms + timeout_ms
            expected[number] = (offset, isolation, due_ms)
            waits[number] = log.when(
                offset,
                lambda is_reached, number=number: told.__setitem__(number, is_reached),
                isolation=isolation,
                timeout=None if timeout_ms is None else timeout_ms / 1000,
            )
        elif what < 0.7:
            add(log, *[b"v"] * chance.randrange(1, 4))
        elif what < 0.8:
            log.flush()
        elif what < 0.9:
            log.update_high_watermark(chance.randrange(log.log_end_offset + 1))
        elif what < 0.93 and log.log_end_offset:
            old_end = log.log_end_offset
            log.truncate_to(chance.randrange(max(old_end - 5, 0), old_end))
            for lost, (offset, isolation, _) in list(expected.items()):
                if limit(isolation) < offset <= old_end:
                    assert told.pop(lost) is False
                    del expected[lost]
        elif what < 0.96 and expected:
            gone = chance.choice(list(expected))
            assert waits[gone].cancel()
            del expected[gone]
        else:
            now_ms += 3
            log._context.clock.advance(3)
            run_background(log)
            for late, (_, _, due_ms) in list(expected.items()):
                if due_ms is not None and due_ms <= now_ms:
                    assert told.pop(late) is False
                    del expected[late]
        settle()
    assert sum(map(len, log.writer.waits._entries.values())) >= len(expected) > 5


def test_a_callback_is_told_of_every_change_until_it_is_taken_back(log):
    ends = []
    stop = log.on_change(lambda: ends.append((log.log_end_offset, log.durable_offset)))
    add(log, b"a")
    log.flush()
    log.truncate_to(0)
    assert ends[0] == (1, 0)
    assert (1, 1) in ends
    assert ends[-1] == (0, 0)
    stop()
    stop()
    add(log, b"b")
    assert ends[-1] == (0, 0)
    assert not log.writer.waits.is_watched


def test_a_callback_may_ask_where_the_log_ends_when_single_appends_are_written(log):
    ends = []
    log.on_change(lambda: ends.append((log.log_end_offset, len(list(log.read())))))
    log.append(b"a")
    log.append(b"b")
    log.flush()
    assert ends == [(2, 2), (2, 2)]


def test_what_a_callback_raises_stops_nothing(log, caplog):
    def fail(*_):
        raise ValueError("of the caller")

    log.on_change(fail)
    log.when(1, fail)
    add(log, b"a")
    log.flush()
    assert not log.needs_reopen
    assert caplog.text.count("of the caller") >= 3


ENDS = [SystemExit, KeyboardInterrupt]
CHANGES = {
    "extend": lambda log: log.extend([b"a"]),
    "append": lambda log: (log.append(b"a"), log.writer.write_gathered()),
    "flush": lambda log: (log.extend([b"a"]), log.flush()),
    "extend, flush": lambda log: log.extend([b"a"], flush=True),
    "roll": lambda log: (log.append(b"a"), log.roll()),
}


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("change", CHANGES)
def test_what_ends_the_program_is_raised_when_the_change_is_whole(log, change, end):
    raised, others = [], []

    def leave(*_):
        if not raised and (change != "flush" or log.durable_offset):
            raised.append(end("of the caller"))
            raise raised[0]

    log.on_change(leave)
    log.on_change(lambda: others.append(1))
    with pytest.raises(end, match="of the caller"):
        CHANGES[change](log)
    assert others
    assert not log.needs_reopen
    assert log.extend([b"b"], flush=True) == range(1, 2)
    assert [record.value for record in log.read()] == [b"a", b"b"]


@pytest.mark.parametrize("end", ENDS)
def test_what_ends_the_program_in_another_wait(log, end):
    def leave(_):
        raise end("of the caller")

    with pytest.raises(end):
        log.when(0, leave)
    log.when(1, leave, timeout=1)
    with pytest.raises(end):
        pass_time(log, 1_000)
    log.when(1, leave)
    with pytest.raises(end):
        log.close()
    assert log.is_closed


def test_in_another_thread_it_is_a_warning(log, caplog):
    stop = log.on_change(lambda: sys.exit("of the caller"))
    thread = threading.Thread(target=add, args=(log, b"a"))
    thread.start()
    thread.join()
    stop()
    assert log.log_end_offset == 1
    assert "SystemExit: of the caller" in caplog.text


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (("1", print), {}),
        ((1, "print"), {}),
        ((1, print), {"isolation": "durable"}),
        ((1, print), {"timeout": "1"}),
        ((1, print), {"timeout": -1}),
        ((1, print), {"timeout": float("nan")}),
        ((1, None), {}),
    ],
)
def test_wrong_arguments_are_refused(log, arguments, options):
    with pytest.raises(UsageError):
        log.on_change(None)
    with pytest.raises(UsageError):
        log.flush(timeout=-1)
    with pytest.raises(UsageError):
        log.when(*arguments, **options)
    assert not log.writer.waits.is_watched


# Flushes with a time-out ------------------------------------------------------------------------------------


def test_a_flush_with_a_timeout_is_a_flush(tmp_path):
    log = open_log(tmp_path / "t-0", clock=SystemClock())
    log.append(b"a")
    log.flush(timeout=30)
    assert log.durable_offset == 1
    log.flush(timeout=0)
    log.close()


def test_it_gives_up_on_a_slow_disk_and_the_flush_goes_on(tmp_path):
    may_go_on = threading.Event()

    def stall(operation, path):
        if operation == "flush" and path.endswith(".log"):
            may_go_on.wait(30)

    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files, clock=SystemClock())
    files.before = stall
    log.append(b"a")
    with pytest.raises(RetriableError, match="goes on in the background"):
        log.flush(timeout=0.05)
    reached = threading.Event()
    log.when(1, lambda is_reached: reached.set(), isolation=Isolation.DURABLE)
    assert not reached.is_set()
    may_go_on.set()
    assert reached.wait(30)
    log.close()


def test_it_says_what_failed(tmp_path):
    files = WatchedFiles()
    log = open_log(tmp_path / "t-0", files=files, clock=SystemClock())
    log.append(b"a")
    files.refuse("flush", ".log")
    with pytest.raises(StorageError, match="refused by the test"):
        log.flush(timeout=30)
    log.abandon()


def test_polls_of_a_log_that_never_grows_leave_nothing_behind(log):
    """A consumer polls an idle partition twice a second, for years, beside one that waits on."""
    first = log.when(1, print)
    for offset in (1, 5, 5, 5):
        for _ in range(100):
            log.when(offset, print).cancel()
    entries = log.writer.waits._entries
    assert sum(map(len, entries.values())) < 20
    assert not first.is_over
    first.cancel()
