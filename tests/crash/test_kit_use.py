"""The test kit used wrongly: a test must not pass because nothing was tried."""

from __future__ import annotations

import pytest

import logstore
from logstore.testing import (
    FAULTS,
    CrashError,
    Fault,
    FaultyFiles,
    ManualClock,
    MemoryFiles,
    Moment,
    explore,
    reproduce,
)


class Orders:
    """Counts on orders that are not durable."""

    def session(self, files, said, rng):
        with logstore.open("/store", files=files, clock=ManualClock()) as store:
            log = store.require_topic("orders")[0]
            for number in range(3):
                log.append(b"%d" % number)
                files.note(b"%d" % number)

    def check(self, files, said):
        with logstore.open("/store", files=files, clock=ManualClock()) as store:
            found = {record.value for topic in store.values() for log in topic for record in log}
        assert set(said) <= found


class Careful(Orders):
    """Does the same, and counts on nothing."""

    def check(self, files, said):
        pass


class Broken(Orders):
    """Works on an empty disk only."""

    def session(self, files, said, rng):
        if files.list_directory("/"):
            raise RuntimeError("there is something")
        files.open("/f", create=True)

    def check(self, files, said):
        pass


def failure_of(scenario, **options):
    with pytest.raises(CrashError) as caught:
        explore(scenario, **options)
    return caught.value


def shape_of(files):
    """Names and sizes: ids are other ones each time."""
    return {path: len(data) for path, data in files.image.paths().items()}


def values_on(files):
    with logstore.open("/store", files=files, clock=ManualClock()) as store:
        return [record.value for topic in store.values() for log in topic for record in log]


def test_an_error_has_the_disk_as_it_was_and_the_rule_brings_both_again():
    error = failure_of(Orders(), max_states=100)
    with pytest.raises(CrashError) as again:
        reproduce(Orders(), error.rule)
    assert str(again.value) == str(error)
    assert shape_of(again.value.files) == shape_of(error.files)
    assert values_on(error.files) == []


def test_the_disk_of_a_rule_that_passes_is_returned():
    error = failure_of(Orders(), max_states=100)
    assert shape_of(reproduce(Careful(), error.rule)) == shape_of(error.files)


def test_a_session_that_failed_fails_again():
    error = failure_of(Broken(), depth=2, chained_share=1)
    assert "there is something" in str(error)
    with pytest.raises(CrashError, match="there is something"):
        reproduce(Broken(), error.rule)


class Forgetful(Careful):
    """Goes by what was said, and does again what was done and not said yet."""

    def session(self, files, said, rng):
        with logstore.open("/store", files=files, clock=ManualClock()) as store:
            orders = store.require_topic("orders")
            for order in (b"first", b"second"):
                if order not in said:
                    orders.append(order, flush=True)
                    files.note(order)

    def check(self, files, said):
        found = values_on(files)
        assert len(found) == len(set(found)), f"twice: {found}"


def test_a_session_after_one_that_was_cut_between_what_it_does_and_what_it_says():
    error = failure_of(Forgetful(), depth=2, max_states=500, chained_share=1)
    assert "twice: [b'first', b'first'" in str(error)
    with pytest.raises(CrashError, match="twice"):
        reproduce(Forgetful(), error.rule)


@pytest.mark.parametrize(
    "rule",
    [None, 7, "", "nonsense", "1 > ", "1 > x:", "1 > -1:", "1 > 99999:", "1 > 20:9.9.9.9.9", "1 > 20:50"],
)
def test_what_is_no_rule_of_the_scenario_is_refused(rule):
    with pytest.raises(ValueError, match="rule"):
        reproduce(Careful(), rule)


@pytest.mark.parametrize("option", ["max_states", "depth", "states_per_point"])
def test_an_exploration_that_checks_nothing_is_refused(option):
    with pytest.raises(ValueError, match="1 or above"):
        explore(Orders(), **{option: 0})


def test_a_session_that_works_elsewhere_is_refused():
    class Elsewhere:
        def session(self, files, said, rng):
            MemoryFiles().open("/a", create=True)

        def check(self, files, said):
            pass

    with pytest.raises(ValueError, match="does nothing on the disk"):
        explore(Elsewhere())


@pytest.mark.parametrize(
    ("fault", "options", "said"),
    [
        ("EIO", {}, "FAULTS"),
        (FAULTS["EIO"], {"kinds": ["wrte"]}, "flush directory"),
        (FAULTS["EIO"], {"kinds": "write"}, "must be a list"),
        (FAULTS["EIO"], {"kinds": []}, "this fault only strikes"),
        (FAULTS["ENOSPC"], {"kinds": ["read"]}, "this fault only strikes: create"),
        (Fault(5, frozenset({"writ"})), {}, "some of: lock, open, create, read"),
        (Fault(5, frozenset()), {}, "kinds of the fault"),
        (Fault(5, "write"), {}, "kinds of the fault"),
        (Fault(5, frozenset({"read"}), Moment.AFTER), {}, "some of: lock, open, create, write"),
        (Fault(5, frozenset({"rename"}), Moment.WITHIN), {}, "some of: write$"),
        (Fault(5, frozenset({"write"}), "within"), {}, "must be a Moment"),
        (FAULTS["EIO"], {"at": 0}, "at must be 1 or above"),
        (FAULTS["EIO"], {"at": 1.5}, "at is 1.5"),
        (FAULTS["EIO"], {"times": -1}, "times 0 or above"),
        (FAULTS["EIO"], {"times": 1.5}, "times 1.5"),
        (FAULTS["EIO"], {"path": None}, "path a text"),
    ],
)
def test_a_fault_that_never_strikes_is_refused(fault, options, said):
    files = FaultyFiles(MemoryFiles())
    with pytest.raises(ValueError, match=said):
        files.fail(fault, **options)
    files.open("/a", create=True)
    assert not files.failures


@pytest.mark.parametrize("ms", [-1, 1.5, "1", None, True])
def test_time_passes_in_whole_milliseconds_and_forward(ms):
    clock = ManualClock(1_000)
    with pytest.raises(ValueError, match="whole number"):
        clock.advance(ms)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1_000, 0)


def test_only_the_wall_clock_jumps_back():
    clock = ManualClock(1_000)
    clock.jump(-500)
    assert (clock.now_ms(), clock.monotonic_ms()) == (500, 0)
    with pytest.raises(ValueError, match="whole number"):
        clock.jump(0.5)


def test_a_fault_that_strikes_0_times_is_a_run_without_one():
    files = FaultyFiles(MemoryFiles())
    files.fail(FAULTS["EIO"], times=0)
    files.make_directory("/a")
    assert files.failures == []


@pytest.mark.parametrize("seed", [None, "7", 1.5])
def test_a_seed_that_repeats_nothing_is_refused(seed):
    """Its rule was none to `reproduce`, and with None each run was another."""
    with pytest.raises(ValueError, match=rf"^seed is {seed!r}; it must be a whole number"):
        explore(Careful(), seed=seed)


@pytest.mark.parametrize("share", [-1, 1.1, 20, "1", float("nan")])
def test_a_share_of_chains_is_from_0_to_1(share):
    with pytest.raises(ValueError, match=r"^chained_share is .*from 0 to 1"):
        explore(Careful(), chained_share=share)


@pytest.mark.parametrize("option", ["states_per_point", "max_states", "depth"])
@pytest.mark.parametrize("count", ["5", 1.5, None])
def test_a_count_is_a_whole_number(option, count):
    with pytest.raises(ValueError, match="and whole numbers"):
        explore(Careful(), **{option: count})


class Answering(Orders):
    """Says whether the disk is right, where others raise."""

    def check(self, files, said):
        with logstore.open("/store", files=files, clock=ManualClock()) as store:
            found = {record.value for topic in store.values() for log in topic for record in log}
        return set(said) <= found


def test_a_check_that_returns_false_has_found_something():
    """It was taken for one that has found nothing, whatever was lost."""
    with pytest.raises(CrashError, match="check returned False") as raised:
        explore(Answering())
    with pytest.raises(CrashError, match="check returned False"):
        reproduce(Answering(), raised.value.rule)
