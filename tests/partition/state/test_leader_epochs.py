"""The leader epoch history: growth, truncation and lookups, rule by rule and against a dictionary."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import UsageError
from logstore.format.checkpoint import EpochEntry
from logstore.partition.state.leader_epochs import UNDEFINED, LeaderEpochs

LOG_END = 100


def epochs(*entries):
    return LeaderEpochs(EpochEntry(*entry) for entry in entries)


def listed(history):
    return [tuple(entry) for entry in history.entries]


@pytest.fixture
def history():
    return epochs((1, 10), (3, 20), (7, 50))


def test_assign_adds_a_newer_epoch(history):
    assert history.assign(8, 60)
    assert (history.entries[-1], history.latest_epoch) == (EpochEntry(8, 60), 8)


@pytest.mark.parametrize("start_offset", [50, 51, 999])
def test_assign_of_the_latest_epoch_at_or_after_its_start_is_a_no_op(history, start_offset):
    assert not history.assign(7, start_offset)
    assert listed(history) == [(1, 10), (3, 20), (7, 50)]


@pytest.mark.parametrize(
    ("entry", "expected"),
    [
        ((7, 40), [(1, 10), (3, 20), (7, 40)]),  # the latest, earlier
        ((5, 60), [(1, 10), (3, 20), (5, 60)]),  # an older epoch
        ((8, 50), [(1, 10), (3, 20), (8, 50)]),  # the same start
        ((8, 15), [(1, 10), (8, 15)]),  # a newer epoch from further back
        ((3, 60), [(1, 10), (3, 60)]),
        ((0, 0), [(0, 0)]),
    ],
)
def test_assign_drops_entries_that_it_contradicts(history, entry, expected):
    assert history.assign(*entry)
    assert listed(history) == expected


@pytest.mark.parametrize("entry", [(-1, 0), (0, -1)])
def test_assign_of_negative_values_is_an_error(history, entry):
    with pytest.raises(UsageError):
        history.assign(*entry)
    assert len(history.entries) == 3


@pytest.mark.parametrize(
    ("epoch", "expected"),
    [
        (-1, UNDEFINED),
        (7, (7, LOG_END)),
        (8, UNDEFINED),
        (0, (0, 10)),  # below the first: its start
        (1, (1, 20)),
        (2, (1, 20)),  # unknown here: the largest below it
        (3, (3, 50)),
        (6, (3, 50)),
    ],
)
def test_end_offset_for(history, epoch, expected):
    assert history.end_offset_for(epoch, LOG_END) == expected


def test_end_offset_for_is_undefined_without_history():
    assert epochs().end_offset_for(0, LOG_END) == UNDEFINED == (-1, -1)


@pytest.mark.parametrize(
    ("end_offset", "kept"), [(-1, 3), (0, 0), (10, 0), (11, 1), (20, 1), (50, 2), (51, 3), (10**9, 3)]
)
def test_truncate_from_end_drops_starts_at_or_above(history, end_offset, kept):
    assert history.truncate_from_end(end_offset) == (kept < 3)
    assert listed(history) == [(1, 10), (3, 20), (7, 50)][:kept]


@pytest.mark.parametrize(
    ("start_offset", "expected"),
    [
        (-1, [(1, 10), (3, 20), (7, 50)]),
        (9, [(1, 10), (3, 20), (7, 50)]),
        (10, [(1, 10), (3, 20), (7, 50)]),
        (11, [(1, 11), (3, 20), (7, 50)]),
        (20, [(3, 20), (7, 50)]),
        (35, [(3, 35), (7, 50)]),
        (90, [(7, 90)]),
    ],
)
def test_truncate_from_start_keeps_the_last_dropped_from_there_on(history, start_offset, expected):
    changed = history.truncate_from_start(start_offset)
    assert listed(history) == expected
    assert changed == (expected != [(1, 10), (3, 20), (7, 50)])


@pytest.mark.parametrize(
    ("offset", "epoch"), [(9, None), (10, 1), (19, 1), (20, 3), (49, 3), (50, 7), (10**9, 7)]
)
def test_epoch_for_offset_is_that_of_the_largest_start_at_or_below(history, offset, epoch):
    assert history.epoch_for_offset(offset) == epoch


def test_an_empty_history_knows_nothing_and_does_not_change():
    history = epochs()
    assert (history.latest_epoch, history.epoch_for_offset(5), history.entries) == (-1, None, ())
    assert not any([history.clear(), history.truncate_from_end(0), history.truncate_from_start(5)])


def test_clear_says_whether_there_was_anything(history):
    assert history.clear()
    assert not history.clear()


def test_entries_taken_before_a_change_stay_as_they_were(history):
    before = history.entries
    history.assign(9, 90)
    assert len(before) == 3


@pytest.mark.parametrize(
    "entries", [[(1, 0), (1, 5)], [(1, 5), (2, 5)], [(2, 0), (1, 5)], [(-1, 0)], [(0, -1)]]
)
def test_a_history_that_does_not_rise_is_refused(entries):
    with pytest.raises(UsageError, match="must rise"):
        epochs(*entries)


class Reference:
    """The same rules over a dictionary, by looking at every entry."""

    def __init__(self):
        self.starts = {}

    def assign(self, epoch, start):
        latest = max(self.starts, default=None)
        if latest != epoch or start < self.starts[latest]:
            self.starts = {e: s for e, s in self.starts.items() if e < epoch and s < start}
            self.starts[epoch] = start

    def truncate_from_end(self, offset):
        if offset >= 0:
            self.starts = {e: s for e, s in self.starts.items() if s < offset}

    def truncate_from_start(self, offset):
        dropped = [e for e, s in self.starts.items() if s <= offset]
        self.starts = {e: s for e, s in self.starts.items() if s > offset}
        if dropped:
            self.starts[max(dropped)] = offset

    def epoch_for_offset(self, offset):
        return max((e for e, s in self.starts.items() if s <= offset), default=None)

    def end_offset_for(self, epoch, log_end):
        if epoch < 0 or epoch > max(self.starts, default=-1):
            return UNDEFINED
        later = [s for e, s in self.starts.items() if e > epoch]
        known = max((e for e in self.starts if e <= epoch), default=epoch)
        return known, min(later, default=log_end)


small = st.integers(0, 12)
events = st.one_of(
    st.tuples(st.just("assign"), small, small),
    st.tuples(st.sampled_from(["truncate_from_end", "truncate_from_start"]), st.integers(-1, 12)),
)


@settings(max_examples=200)
@given(st.lists(events, max_size=25))
def test_any_sequence_of_events_equals_the_reference(events):
    history, reference = LeaderEpochs(), Reference()
    for method, *arguments in events:
        before = history.entries
        changed = getattr(history, method)(*arguments)
        getattr(reference, method)(*arguments)
        assert listed(history) == sorted(reference.starts.items())
        assert changed == (history.entries != before)
        LeaderEpochs(history.entries)  # refuses what does not rise
    for value in range(-1, 14):
        assert history.epoch_for_offset(value) == reference.epoch_for_offset(value)
        assert history.end_offset_for(value, LOG_END) == reference.end_offset_for(value, LOG_END)
