"""A history, and what is wrong with it when one thing of it is changed."""

from __future__ import annotations

import random

import pytest

from logstore.testing.history import History, Kind


def tell(history, *, count=40):
    """Two clients send to two partitions, what is sent is there; one of them reads all. Returns the logs."""
    logs = {"p0": [], "p1": []}
    for number in range(count):
        value, partition = f"v{number}", f"p{number % 2}"
        history.sent(f"client {number % 3}", value)
        logs[partition].append((len(logs[partition]) * 2, value))  # offsets may have gaps
        if number % 4:
            history.acknowledged(value, partition, logs[partition][-1][0])
    for partition, log in logs.items():
        for offset, value in log:
            history.read("reader", partition, offset, value)
    return logs


def kinds(history, logs, **options):
    return {each.kind for each in history.check(logs, **options)}


def test_a_good_history():
    history = History()
    assert history.check(tell(history)) == []
    assert history.acknowledged_count == 30


def test_what_is_wrong_can_be_compared_with_a_text():
    history = History()
    history.sent("a", 1)
    history.acknowledged(1, "p", 0)
    (anomaly,) = history.check({})
    assert (anomaly.kind, str(anomaly)) == ("lost", "lost: 1, which was acknowledged at p:0")


def test_a_value_is_sent_once():
    history = History()
    history.sent("a", 1)
    with pytest.raises(ValueError, match="was sent before"):
        history.sent("b", 1)


@pytest.mark.parametrize("seed", range(20))
def test_each_kind_is_found(seed):
    chance = random.Random(seed)
    history = History()
    logs = tell(history)
    log = logs[chance.choice(["p0", "p1"])]
    place = chance.randrange(2, len(log) - 2)

    changed = [each for at, each in enumerate(log) if at != place]
    acknowledged = int(log[place][1][1:]) % 4
    assert kinds(history, {**logs, "p0" if log is logs["p0"] else "p1": changed}) >= (
        {Kind.LOST, Kind.MOVED} if acknowledged else {Kind.MOVED}
    )
    name = "p0" if log is logs["p0"] else "p1"
    offset, value = log[place]
    assert Kind.PHANTOM in kinds(history, {**logs, name: [*log, (999, "never")]})
    assert Kind.DUPLICATE in kinds(history, {**logs, name: [*log, (999, value)]})
    assert Kind.DUPLICATE not in kinds(history, {**logs, name: [*log, (999, value)]}, is_once=False)
    swapped = list(log)
    swapped[place], swapped[place + 1] = (offset, log[place + 1][1]), (log[place + 1][0], value)
    assert Kind.MOVED in kinds(history, {**logs, name: swapped})


def test_what_was_refused_is_not_there():
    history = History()
    history.sent("a", 1)
    history.refused(1)
    assert kinds(history, {"p": []}) == set()
    assert kinds(history, {"p": [(0, 1)]}) == {Kind.PHANTOM}
    history.read("r", "p", 0, 1)
    assert kinds(history, {"p": []}) == {Kind.PHANTOM}


def test_real_time():
    history = History()
    history.sent("a", 1)
    history.acknowledged(1, "p", 5)
    history.sent("b", 2)
    assert kinds(history, {"p": [(5, 1), (6, 2)]}) == set()
    assert kinds(history, {"p": [(5, 1), (4, 2)]}) == {Kind.REORDERED}
    assert kinds(history, {"p": [(5, 1)], "q": [(4, 2)]}) == set()


def test_all_that_was_told_counts_from_the_first_time_on():
    """Only the last acknowledgement of a value did, and only from then on."""
    history = History()
    history.sent("a", 1)
    history.acknowledged(1, "p", 5)
    history.sent("b", 2)
    history.acknowledged(1, "p", 5)
    assert kinds(history, {"p": [(4, 2), (5, 1)]}) == {Kind.REORDERED}
    history.acknowledged(1, "p", 6)
    assert history.acknowledged_count == 1
    told = [str(each) for each in history.check({"p": [(6, 1)]})]
    assert told == ["moved: 1 was acknowledged at p:5, and is at p:6"]
    assert kinds(history, {"p": [(5, 1), (6, 1)]}, is_once=False) == set()
    assert [str(each) for each in history.check({})] == ["lost: 1, which was acknowledged at p:5, p:6"]


@pytest.mark.parametrize("offset", ["0", None, 1.5])
def test_an_offset_is_a_number(offset):
    """It was "acknowledged at p:0, and is at p:0"."""
    for tell_it in (
        lambda: History().acknowledged(1, "p", offset),
        lambda: History().read("r", "p", offset, 1),
    ):
        with pytest.raises(ValueError, match=rf"^offset of 1 in p is {offset!r}; it must be a whole number"):
            tell_it()


@pytest.mark.parametrize("logs", [None, [(0, 1)], {"p": [1]}, {"p": [("0", 1)]}, {"p": None}])
def test_what_is_there_is_told_by_partition(logs):
    """ "'list' object has no attribute 'items'"."""
    with pytest.raises(ValueError, match=r"such as \{'orders-0': \[\(0, b'first'\)\]\}"):
        History().check(logs)


def test_a_client_s_own_order():
    history = History()
    for value in (1, 2, 3):
        history.sent("a", value)
    wrong = {"p": [(0, 1), (1, 3), (2, 2)]}
    assert kinds(history, wrong) == {Kind.OUT_OF_ORDER}
    assert kinds(history, wrong, is_in_order=False) == set()


def test_readers():
    log = {"p": [(0, "a"), (2, "b"), (3, "c")]}

    def reading(*values):
        history = History()
        for value in "abc":
            history.sent("x", value)
        offsets = {value: offset for offset, value in log["p"]}
        for value in values:
            if value == "back":
                history.set_back("r")
            else:
                history.read("r", "p", offsets[value], value)
        return kinds(history, log)

    assert reading("a", "b", "c") == reading("b", "c") == reading("a", "b", "back", "a", "b", "c") == set()
    assert reading("a", "c") == {Kind.SKIPPED}
    assert reading("a", "b", "a") == {Kind.BACKWARDS}


@pytest.mark.parametrize("is_once", [True, False])
def test_two_values_at_one_offset(is_once):
    history = History()
    for value in ("a", "b"):
        history.sent("client", value)
        history.acknowledged(value, "p0", 3)
    logs = {"p0": [(3, "a"), (3, "b")]}
    assert [str(each) for each in history.check(logs, is_once=is_once)] == [
        "duplicate: 'a' and 'b' are both at p0:3"
    ]
