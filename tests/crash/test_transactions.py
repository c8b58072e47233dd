"""Power cuts at every point of transactions: begin, add, prepare, mark, complete, time-out, and recovery."""

from __future__ import annotations

import pytest

from logstore.broker.codes import ErrorCode
from logstore.broker.local import LocalBroker
from logstore.broker.storing.transactions import LocalLogs, TopicStorage
from logstore.broker.transactions import coordinator
from logstore.broker.transactions.states import TransactionState
from logstore.partition.state.producer_state import ProducerStates
from logstore.testing import CrashError, explore
from tests.crash.exploring import explore_many
from tests.crash.transactions import TransactionsScenario
from tests.rotation import rotating, seed_of_turn


@pytest.mark.parametrize("takes_epoch", [True, False])
def test_single_cuts(takes_epoch):
    scenario = TransactionsScenario(length=4, takes_epoch=takes_epoch)
    assert explore(scenario, seed=1, max_states=150).state_count >= 50


@pytest.mark.slow
@pytest.mark.parametrize(
    ("length", "takes_epoch"), rotating([(4, True), (8, False), (4, False), (8, True)], 16)
)
def test_chains_of_cuts(length, takes_epoch):
    """Other sessions with each commit."""
    scenario = TransactionsScenario(length=length, takes_epoch=takes_epoch)
    explore_many("crash states of transactions", scenario, 70_000 + 100 * seed_of_turn(), 400)


def decisions_are_not_durable(patch):
    patch.setattr(coordinator, "_DURABLE", frozenset())


def what_was_written_is_not_durable(patch):
    patch.setattr(LocalLogs, "make_durable", lambda self, partitions, done: done(ErrorCode.NONE))


def markers_come_before_the_decision(patch):
    store = TopicStorage.store

    def mark_first(self, transaction, done, *, durable):
        if transaction.state.is_ending:
            LocalLogs(self._directory, self.coordinator_epoch).append_markers(
                transaction, transaction.partitions
            )
        store(self, transaction, done, durable=durable)

    patch.setattr(TopicStorage, "store", mark_first)


def offsets_are_committed_beside_the_transaction(patch):
    commit = LocalBroker.offset_commit
    patch.setattr(
        LocalBroker, "offset_commit", lambda self, request: commit(self, request._replace(transaction=None))
    )


def the_end_of_a_transaction_is_not_durable(patch):
    """Which matters where the next one has the same epoch."""
    store = TopicStorage.store

    def store_lazily(self, transaction, done, *, durable):
        is_end = transaction.state.value.startswith("Complete")
        store(self, transaction, done, durable=durable and not is_end)

    patch.setattr(TopicStorage, "store", store_lazily)


def the_next_transaction_does_not_wait_for_the_markers(patch):
    """What is stored of it takes the place of the decision, from which a recovery would write them again."""

    def mark(self, entry, partitions, answer=None):
        with entry.writing:
            self._logs.append_markers(entry.transaction, partitions)
        if answer is not None:
            answer()
        self._complete(entry)

    patch.setattr(coordinator.TransactionCoordinator, "_mark", mark)


def what_is_left_of_others_is_not_aborted(patch):
    patch.setattr(coordinator.TransactionCoordinator, "_abort_lost", lambda self, known, partitions: None)


def the_next_producer_has_the_epoch_of_the_last(patch):
    """It is told of another: what is stored is the old one."""
    store = TopicStorage.store

    def store_old(self, transaction, done, *, durable):
        if transaction.state is TransactionState.EMPTY and transaction.producer_epoch:
            transaction = transaction._replace(producer_epoch=transaction.producer_epoch - 1)
        store(self, transaction, done, durable=durable)

    patch.setattr(TopicStorage, "store", store_old)


def an_epoch_is_given_out_before_it_is_durable(patch):
    lazy = coordinator._DURABLE - {TransactionState.EMPTY}
    patch.setattr(coordinator, "_DURABLE", lazy)


def the_last_stable_offset_is_past_an_open_transaction(patch):
    patch.setattr(ProducerStates, "first_unstable_offset", lambda self, high_watermark: None)


PLANTS = [
    (decisions_are_not_durable, True),
    (what_was_written_is_not_durable, True),
    (markers_come_before_the_decision, True),
    (offsets_are_committed_beside_the_transaction, True),
    (the_end_of_a_transaction_is_not_durable, False),
    (the_next_transaction_does_not_wait_for_the_markers, True),
    (what_is_left_of_others_is_not_aborted, True),
    (the_next_producer_has_the_epoch_of_the_last, True),
    (the_next_producer_has_the_epoch_of_the_last, False),
    (an_epoch_is_given_out_before_it_is_durable, True),
    (the_last_stable_offset_is_past_an_open_transaction, True),
]


@pytest.mark.parametrize(("plant", "takes_epoch"), rotating(PLANTS, 4))
def test_planted_bugs_are_found(monkeypatch, plant, takes_epoch):
    plant(monkeypatch)
    scenario = TransactionsScenario(
        actions=("commit", "send", "commit", "commit", "restart", "send"), takes_epoch=takes_epoch
    )
    with pytest.raises(CrashError):
        explore(scenario, seed=0, max_states=400)
