"""Combining batches, against a dict of offsets."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from logstore.broker.share.states import RecordState
from logstore.broker.share.stored import ShareChange, ShareState, apply_change, combine
from logstore.format.messages.share_records import ShareBatch

FEW = st.integers(0, 40)
BATCHES = st.lists(
    st.builds(
        lambda first, more, *rest: ShareBatch(first, first + more, *rest),
        FEW,
        st.integers(0, 12),
        st.sampled_from(sorted(RecordState)),
        st.integers(0, 2),
        st.sampled_from([-1, 7]),
    ),
    max_size=12,
)


def by_offset(batches, start=-1):
    """Of each offset what the last batch that has it says."""
    found = {}
    for batch in batches:
        found.update(dict.fromkeys(range(max(batch.first_offset, start), batch.last_offset + 1), batch[2:]))
    return found


@given(BATCHES, BATCHES, st.integers(-1, 60))
def test_the_later_batch_counts_of_each_offset(old, new, start):
    old = combine(-1, (), old)
    found = combine(start, old, new)
    assert by_offset(found) == by_offset([*old, *new], start)
    for before, after in pairwise(found):
        assert before.last_offset < after.first_offset
        assert before.last_offset + 1 < after.first_offset or before[2:] != after[2:], "two that say the same"
    assert all(batch.first_offset >= start for batch in found)


@given(BATCHES, st.lists(st.tuples(BATCHES, st.integers(0, 5)), max_size=4))
def test_changes_one_by_one_are_all_at_once(old, changes):
    """Which is why a table may keep them until the state is asked for."""
    state = ShareState(0, 0, 0, combine(0, (), old))
    start = 0
    for batches, more in changes:
        start += more
        state = apply_change(state, ShareChange(start, tuple(batches)))
    together = combine(start, combine(0, (), old), [each for batches, _ in changes for each in batches])
    assert by_offset(state.batches) == by_offset(together)
    assert state.start_offset == start


def test_a_change_leaves_the_rest_as_it_is():
    state = ShareState(3, 5, 10, (ShareBatch(12, 14, 2, 1),))
    assert apply_change(state, ShareChange()) == state
    assert apply_change(state, ShareChange(leader_epoch=6)).leader_epoch == 6


def test_what_is_done_with_is_counted():
    batches = (
        ShareBatch(0, 9, 0, 1),
        ShareBatch(10, 12, 2, 1),
        ShareBatch(20, 20, 4, 1),
        ShareBatch(21, 22, 1, 1),
    )
    assert ShareState(0, 0, 0, batches).delivery_complete_count == 4
