"""Idempotence and open transactions: each row of the table of rules, and the window of five batches against
a reference."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.errors import (
    FencedError,
    InvalidTransactionStateError,
    LeaderFencedError,
    OutOfOrderError,
    ProducerFencedError,
)
from logstore.format.header import CONTROL_BIT, TRANSACTIONAL_BIT, BatchHeader
from logstore.format.snapshot import ProducerSnapshotEntry
from logstore.model import AbortedTransaction, AppendOrigin
from logstore.partition.state.producer_state import (
    REMEMBERED_BATCHES,
    ProducerStates,
)

CLIENT, COORDINATOR, REPLICATION = AppendOrigin
PRODUCER = 7
MAX_SEQUENCE = 2**31 - 1
DAY_MS = 86_400_000


def batch(sequence, offset=0, count=1, *, producer=PRODUCER, epoch=0, transactional=False, timestamp_ms=1000):
    return BatchHeader(
        base_offset=offset,
        batch_length=0,
        partition_leader_epoch=0,
        magic=2,
        crc=0,
        attributes=TRANSACTIONAL_BIT if transactional else 0,
        last_offset_delta=count - 1,
        base_timestamp_ms=timestamp_ms,
        max_timestamp_ms=timestamp_ms,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        record_count=count,
    )


def marker(offset, *, producer=PRODUCER, epoch=0, timestamp_ms=1000):
    header = batch(-1, offset, producer=producer, epoch=epoch, timestamp_ms=timestamp_ms)
    return header._replace(attributes=TRANSACTIONAL_BIT | CONTROL_BIT)


def append(states, *batches, origin=CLIENT, now_ms=0):
    """One append call of data batches; the answer of each."""
    plan = states.begin(origin, now_ms)
    answers = [plan.add_data(header) for header in batches]
    states.apply(plan)
    return answers


def end(states, header, *, is_abort=False, coordinator_epoch=0, origin=COORDINATOR, now_ms=0):
    plan = states.begin(origin, now_ms)
    completed = plan.add_marker(header, is_abort=is_abort, coordinator_epoch=coordinator_epoch)
    states.apply(plan)
    return completed


def state_of(states, producer=PRODUCER):
    return states.active_producers()[producer]


@pytest.fixture
def states():
    return ProducerStates()


# Sequences


@pytest.mark.parametrize("sequence", [0, 5, MAX_SEQUENCE])
def test_unknown_producer_any_sequence_is_accepted(states, sequence):
    append(states, batch(sequence))
    assert state_of(states).last_sequence == sequence


def test_same_epoch_sequence_must_follow(states):
    append(states, batch(0, count=10))
    append(states, batch(10, offset=10))
    assert state_of(states).last_sequence == 10


@pytest.mark.parametrize("sequence", [0, 9, 11, 12, -1])
def test_same_epoch_gap_or_overlap_is_out_of_order(states, sequence):
    append(states, batch(0, count=10))
    with pytest.raises(OutOfOrderError, match="must be 10"):
        append(states, batch(sequence, offset=10))


@pytest.mark.parametrize(("sequence", "count", "was_appended"), [(4, 1, False), (4, 2, False), (5, 1, True)])
def test_nothing_was_appended_before_the_first_sequence(states, sequence, count, was_appended):
    """A batch was refused, the next one was taken from the unknown producer, and the first comes again."""
    for at in range(REMEMBERED_BATCHES + 1):
        append(states, batch(5 + at, offset=at))
    with pytest.raises(OutOfOrderError) as raised:
        append(states, batch(sequence, offset=9, count=count))
    assert raised.value.was_appended is was_appended


def test_first_sequence_is_that_of_the_epoch(states):
    append(states, batch(5))
    end(states, marker(1))
    assert state_of(states).first_sequence == 5
    append(states, *(batch(at, offset=2 + at, epoch=1) for at in range(REMEMBERED_BATCHES + 1)))
    with pytest.raises(OutOfOrderError) as raised:
        append(states, batch(0, offset=9, epoch=1))
    assert raised.value.was_appended


def test_sequence_wraps_from_the_largest_int32_to_0(states):
    append(states, batch(MAX_SEQUENCE - 1, count=2))
    append(states, batch(0, offset=2))
    assert state_of(states).last_sequence == 0


def test_sequence_wraps_inside_a_batch(states):
    append(states, batch(MAX_SEQUENCE - 1, count=4))
    assert state_of(states).last_sequence == 1
    append(states, batch(2, offset=4))


def test_newer_epoch_must_begin_at_sequence_0(states):
    append(states, batch(0))
    with pytest.raises(OutOfOrderError, match="must be 0"):
        append(states, batch(1, offset=1, epoch=1))
    append(states, batch(0, offset=1, epoch=1))
    assert state_of(states).producer_epoch == 1


def test_older_epoch_is_fenced(states):
    append(states, batch(0, epoch=3))
    for origin in (CLIENT, COORDINATOR):
        with pytest.raises(ProducerFencedError, match="epoch 3 has taken over"):
            append(states, batch(1, offset=1, epoch=2), origin=origin)


def test_replicated_data_is_not_checked_for_epoch_or_sequence(states):
    append(states, batch(5, epoch=3))
    append(states, batch(99, offset=1, epoch=2), origin=REPLICATION)
    assert (state_of(states).producer_epoch, state_of(states).last_sequence) == (2, 99)


def test_coordinator_data_is_not_checked_for_sequence(states):
    append(states, batch(5))
    append(states, batch(-1, offset=1), origin=COORDINATOR)
    assert state_of(states).last_sequence == -1


def test_epoch_bumping_marker_without_data_makes_0_the_next_sequence(states):
    append(states, batch(5))
    end(states, marker(1, epoch=1))
    with pytest.raises(OutOfOrderError, match="must be 0"):
        append(states, batch(6, offset=2, epoch=1))
    append(states, batch(0, offset=2, epoch=1))


def test_marker_of_the_same_epoch_keeps_the_sequence(states):
    append(states, batch(5))
    end(states, marker(1))
    append(states, batch(6, offset=2))


# Duplicates


def test_exact_duplicate_is_answered_with_the_stored_batch(states):
    append(states, batch(0, offset=40, count=3, timestamp_ms=77))
    [found] = append(states, batch(0, offset=43, count=3))
    assert (found.base_offset, found.last_offset, found.timestamp_ms) == (40, 42, 77)
    assert len(state_of(states).batches) == 1


def test_duplicate_of_each_of_the_last_five_batches_is_found_and_of_the_sixth_is_not(states):
    for n in range(REMEMBERED_BATCHES + 1):
        append(states, batch(n * 2, offset=n * 2, count=2))
    for n in range(1, REMEMBERED_BATCHES + 1):
        [found] = append(states, batch(n * 2, offset=99, count=2))
        assert found.base_offset == n * 2
    with pytest.raises(OutOfOrderError):
        append(states, batch(0, offset=99, count=2))


@pytest.mark.parametrize(("sequence", "count"), [(0, 9), (1, 9), (0, 11)])
def test_first_and_last_sequence_must_both_match(states, sequence, count):
    append(states, batch(0, count=10))
    with pytest.raises(OutOfOrderError):
        append(states, batch(sequence, offset=10, count=count))


def test_duplicate_needs_the_same_epoch(states):
    append(states, batch(0))
    append(states, batch(0, offset=1, epoch=1))
    assert [found.base_offset for found in state_of(states).batches] == [1]
    with pytest.raises(FencedError):
        append(states, batch(0, offset=2, epoch=0))


def test_duplicate_is_found_across_the_sequence_wrap(states):
    append(states, batch(MAX_SEQUENCE - 1, count=4))
    [found] = append(states, batch(MAX_SEQUENCE - 1, offset=4, count=4))
    assert (found.base_sequence, found.last_sequence) == (MAX_SEQUENCE - 1, 1)


@pytest.mark.parametrize("origin", [COORDINATOR, REPLICATION])
def test_only_a_clients_duplicates_are_found(states, origin):
    append(states, batch(0))
    assert append(states, batch(0, offset=1), origin=origin) == [None]
    assert len(state_of(states).batches) == 2


# Several batches in one call


def test_a_call_sees_the_effects_of_its_earlier_batches(states):
    append(states, batch(0), batch(1, offset=1), batch(2, offset=2))
    assert state_of(states).last_sequence == 2


def test_nothing_is_visible_before_apply_or_after_a_refusal(states):
    append(states, batch(0))
    plan = states.begin(CLIENT, 0)
    plan.add_data(batch(1, offset=1, transactional=True))
    with pytest.raises(OutOfOrderError):
        plan.add_data(batch(5, offset=2, transactional=True))
    assert state_of(states).last_sequence == 0
    assert states.first_unstable_offset(0) is None


@pytest.mark.parametrize("second", [batch(0, offset=1), batch(1, offset=2)])
def test_a_repeat_inside_one_call_is_out_of_order_not_a_duplicate(states, second):
    append(states, batch(0))
    with pytest.raises(OutOfOrderError):
        append(states, batch(1, offset=1), second)


def test_unknown_producers_second_batch_in_a_call_must_follow(states):
    with pytest.raises(OutOfOrderError, match="must be 6"):
        append(states, batch(5), batch(7, offset=1))


# Transactions


def test_plain_data_in_an_open_transaction_is_refused(states):
    append(states, batch(0, offset=4, transactional=True))
    for origin in AppendOrigin:
        with pytest.raises(InvalidTransactionStateError, match="began at offset 4"):
            append(states, batch(1, offset=5), origin=origin)


def test_transaction_opens_at_its_first_batch_and_stays_there(states):
    append(states, batch(0, offset=4, transactional=True), batch(1, offset=5, transactional=True))
    assert state_of(states).transaction_first_offset == 4
    assert states.first_unstable_offset(0) == 4


def test_marker_completes_the_open_transaction(states):
    append(states, batch(0, offset=4, transactional=True))
    completed = end(states, marker(5), is_abort=True)
    assert completed == (PRODUCER, 4, 5, 6, True)
    assert completed.index_entry == AbortedTransaction(PRODUCER, 4, 5, 6)
    assert state_of(states).transaction_first_offset is None
    append(states, batch(1, offset=6))


def test_marker_without_a_transaction_completes_nothing_and_updates_epochs_and_timestamp(states):
    append(states, batch(0))
    assert end(states, marker(1, epoch=2, timestamp_ms=5000), coordinator_epoch=4) is None
    state = state_of(states)
    assert (state.producer_epoch, state.coordinator_epoch, state.timestamp_ms) == (2, 4, 5000)
    assert state.batches == ()


def test_marker_of_an_older_producer_epoch_is_fenced(states):
    append(states, batch(0, epoch=3, transactional=True))
    with pytest.raises(ProducerFencedError):
        end(states, marker(1, epoch=2))


def test_marker_of_an_older_coordinator_epoch_is_fenced(states):
    end(states, marker(0), coordinator_epoch=5)
    end(states, marker(1), coordinator_epoch=5)
    with pytest.raises(LeaderFencedError, match="epoch 5 has taken over"):
        end(states, marker(2), coordinator_epoch=4)


def test_replicated_marker_is_not_checked(states):
    end(states, marker(0, epoch=3), coordinator_epoch=5)
    end(states, marker(1, epoch=2), coordinator_epoch=4, origin=REPLICATION)
    assert (state_of(states).producer_epoch, state_of(states).coordinator_epoch) == (2, 4)


def test_data_and_marker_in_one_call(states):
    plan = states.begin(REPLICATION, 0)
    plan.add_data(batch(0, offset=4, transactional=True))
    completed = plan.add_marker(marker(5), is_abort=False, coordinator_epoch=0)
    assert plan.completed == [completed]
    states.apply(plan)
    assert states.first_unstable_offset(6) is None


def test_last_stable_offset_of_a_completed_transaction_is_past_its_marker(states):
    append(states, batch(0, offset=4, transactional=True))
    assert end(states, marker(9)).last_stable_offset == 10


def test_last_stable_offset_stops_at_the_oldest_open_transaction_of_another_producer(states):
    append(states, batch(0, offset=4, transactional=True))
    append(states, batch(0, offset=5, producer=8, transactional=True))
    append(states, batch(0, offset=6, producer=9, transactional=True))
    assert end(states, marker(9)).last_stable_offset == 5


@given(st.lists(st.lists(st.tuples(st.integers(1, 4), st.booleans()), max_size=4), max_size=12))
def test_open_transactions_are_those_of_a_plain_dictionary(calls):
    """In any order of opens and ends, several in one call, and from a snapshot."""
    states, opened, offset = ProducerStates(), {}, 0
    for call in calls:
        plan = states.begin(REPLICATION, 0)
        for producer, is_end in call:
            header = marker(offset, producer=producer) if is_end else None
            if header is None:
                plan.add_data(batch(0, offset=offset, producer=producer, transactional=True))
                opened.setdefault(producer, offset)
            else:
                ended = plan.add_marker(header, is_abort=False, coordinator_epoch=0)
                first_offset = opened.pop(producer, None)
                assert (None if ended is None else ended.first_offset) == first_offset
                if ended is not None:
                    assert ended.last_stable_offset == min(opened.values(), default=offset + 1)
            offset += 1
        states.apply(plan)
        states.on_high_watermark(offset)
        loaded = ProducerStates()
        loaded.load_snapshot(reversed(states.snapshot_entries()), offset, now_ms=0)
        for each in (states, loaded):
            assert each.first_unstable_offset(offset) == min(opened.values(), default=None)


def test_first_unstable_offset_is_the_oldest_open_transaction(states):
    append(states, batch(0, offset=4, transactional=True))
    append(states, batch(0, offset=6, producer=8, transactional=True))
    end(states, marker(7))
    assert states.first_unstable_offset(high_watermark=8) == 6


def test_first_unstable_offset_waits_until_the_marker_is_below_the_high_watermark(states):
    append(states, batch(0, offset=4, transactional=True))
    end(states, marker(5))
    assert states.first_unstable_offset(high_watermark=5) == 4
    assert states.first_unstable_offset(high_watermark=6) is None


def test_completed_transactions_are_dropped_once_replicated(states):
    append(states, batch(0, offset=4, transactional=True))
    end(states, marker(5))
    states.on_high_watermark(5)
    assert states.first_unstable_offset(0) == 4
    states.on_high_watermark(6)
    assert states.first_unstable_offset(0) is None


def test_transaction_is_late_after_its_timeout_and_five_minutes(states):
    append(states, batch(0, transactional=True), now_ms=1000)
    deadline_ms = 1000 + 900_000 + 300_000
    assert states.late_transactions(deadline_ms, 900_000) == []
    assert states.late_transactions(deadline_ms + 1, 900_000) == [PRODUCER]


# Expiry


def test_expiry_is_by_the_time_of_the_last_append_not_by_record_timestamps(states):
    append(states, batch(0, timestamp_ms=5), now_ms=10 * DAY_MS)
    assert states.remove_expired(11 * DAY_MS - 1, DAY_MS) == 0
    assert states.remove_expired(11 * DAY_MS, DAY_MS) == 1
    assert states.active_producers() == {}


def test_expiry_spares_open_transactions(states):
    append(states, batch(0, transactional=True))
    assert states.remove_expired(10 * DAY_MS, DAY_MS) == 0


def test_marker_counts_as_use(states):
    append(states, batch(0), now_ms=0)
    end(states, marker(1), now_ms=DAY_MS)
    assert states.remove_expired(DAY_MS + 1, DAY_MS) == 0


def test_expired_producer_may_come_back_with_any_sequence(states):
    append(states, batch(0))
    states.remove_expired(DAY_MS, DAY_MS)
    assert append(states, batch(55, offset=1)) == [None]


# Snapshots


def reloaded(states, now_ms=0):
    loaded = ProducerStates()
    loaded.load_snapshot(states.snapshot_entries(), states.map_end_offset, now_ms)
    return loaded


def test_snapshot_holds_the_last_batch_with_its_own_timestamp(states):
    append(states, batch(0), batch(1, offset=1, count=3, timestamp_ms=77), now_ms=DAY_MS)
    assert states.snapshot_entries() == [ProducerSnapshotEntry(PRODUCER, 0, 3, 3, 2, 77, -1, -1)]


def test_snapshot_of_a_producer_that_only_sent_a_marker(states):
    end(states, marker(5, timestamp_ms=2000), coordinator_epoch=9)
    assert states.snapshot_entries() == [ProducerSnapshotEntry(PRODUCER, 0, -1, -1, 0, 2000, 9, -1)]
    assert state_of(reloaded(states)).batches == ()


def test_reload_keeps_sequence_duplicate_epochs_and_transaction(states):
    end(states, marker(0), coordinator_epoch=9)
    append(states, batch(0, offset=4, count=2, transactional=True))
    states.map_end_offset = 6
    loaded = reloaded(states)
    assert loaded.map_end_offset == 6
    assert loaded.first_unstable_offset(6) == 4
    assert append(loaded, batch(0, offset=6, count=2, transactional=True))[0].base_offset == 4
    append(loaded, batch(2, offset=6, transactional=True))
    assert end(loaded, marker(7), coordinator_epoch=9).first_offset == 4


def test_reload_of_a_batch_and_a_transaction_at_offset_0(states):
    append(states, batch(0, offset=0, transactional=True))
    assert state_of(reloaded(states))._replace(used_ms=0, appended_ms=0) == state_of(states)


def test_reload_remembers_one_batch_only(states):
    append(states, batch(0), batch(1, offset=1))
    with pytest.raises(OutOfOrderError):
        append(reloaded(states), batch(0, offset=2))


def test_reload_keeps_producers_that_kafka_would_call_expired_and_counts_as_use(states):
    append(states, batch(0, timestamp_ms=5))
    loaded = reloaded(states, now_ms=100 * DAY_MS)
    assert loaded.remove_expired(101 * DAY_MS - 1, DAY_MS) == 0
    assert loaded.remove_expired(101 * DAY_MS, DAY_MS) == 1


def test_load_replaces_everything(states):
    append(states, batch(0, transactional=True))
    end(states, marker(1))
    states.load_snapshot([ProducerSnapshotEntry(8, 0, -1, -1, 0, 0, -1, 50)], end_offset=60, now_ms=0)
    assert list(states.active_producers()) == [8]
    assert states.first_unstable_offset(0) == 50


def test_clear_forgets_everything_and_sets_the_end_offset(states):
    append(states, batch(0, transactional=True))
    states.clear(end_offset=30)
    assert states.active_producers() == {}
    assert states.first_unstable_offset(0) is None
    assert states.map_end_offset == 30


int64 = st.integers(-(2**63), 2**63 - 1)
hostile_entries = st.builds(
    ProducerSnapshotEntry,
    st.integers(-1, 3),
    *[st.integers(-(2**15), 2**15 - 1), st.integers(-(2**31), 2**31 - 1), int64],
    *[st.integers(-(2**31), 2**31 - 1), int64, st.integers(-(2**31), 2**31 - 1), int64],
)


@given(st.lists(hostile_entries, max_size=4))
def test_any_snapshot_loads_and_is_stored_the_same_again(entries):
    loaded = ProducerStates()
    loaded.load_snapshot(entries, 0, 0)
    stored = loaded.snapshot_entries()
    again = ProducerStates()
    again.load_snapshot(stored, 0, 0)
    assert again.snapshot_entries() == stored
    append(
        again,
        *[batch(0, producer=entry.producer_id, transactional=True) for entry in stored],
        origin=REPLICATION,
    )


# Against a reference: the window as a list of everything ever stored


class Reference:
    """Stores every batch for ever and looks through the last five."""

    def __init__(self):
        self.stored = []  # (epoch, all sequences of the batch, offset)
        self.epoch = None

    def append(self, epoch, sequence, count):
        sequences = [(sequence + n) % 2**31 for n in range(count)]
        of_epoch = [one for one in self.stored if one[0] == epoch]
        for _, known_sequences, offset in of_epoch[-5:]:
            if epoch == self.epoch and (known_sequences[0], known_sequences[-1]) == (
                sequences[0],
                sequences[-1],
            ):
                return offset
        if self.epoch is not None and epoch < self.epoch:
            return ProducerFencedError
        wanted = (of_epoch[-1][1][-1] + 1) % 2**31 if of_epoch else 0
        if self.epoch is not None and sequence != wanted:
            return OutOfOrderError
        self.stored.append((epoch, sequences, len(self.stored) * 10))
        self.epoch = epoch
        return None


def answer(states, header):
    try:
        [found] = append(states, header)
    except (ProducerFencedError, OutOfOrderError) as error:
        return type(error)
    return found and found.base_offset


appends = st.tuples(
    st.sampled_from([0, 0, 0, 0, 1, -1]),  # change of epoch
    st.sampled_from([0, 0, 0, 1, -1]),  # where the sequence begins, from the one that should follow
    st.integers(1, 3),
)
repeats = st.integers(1, 7)  # of the last batch, of the one before, and so on


def next_batch(reference, step):
    """Epoch, sequence and count of what the step appends to what the reference has stored."""
    if isinstance(step, int):
        epoch, sequences, _ = reference.stored[-min(step, len(reference.stored))]
        return epoch, sequences[0], len(sequences)
    bump, jump, count = step
    following = 0 if bump > 0 else reference.stored[-1][1][-1] + 1
    return max(reference.epoch + bump, 0), (following + jump) % 2**31, count


@settings(max_examples=200)
@given(st.integers(MAX_SEQUENCE - 6, MAX_SEQUENCE), st.lists(appends | repeats, max_size=25))
def test_window_of_five_equals_the_reference_across_the_wrap(first_sequence, steps):
    states, reference = ProducerStates(), Reference()
    assert answer(states, batch(first_sequence, epoch=5)) is reference.append(5, first_sequence, 1) is None
    for step in steps:
        epoch, sequence, count = next_batch(reference, step)
        header = batch(sequence, offset=len(reference.stored) * 10, count=count, epoch=epoch)
        assert answer(states, header) == reference.append(epoch, sequence, count)
