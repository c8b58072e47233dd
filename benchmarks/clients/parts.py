"""All measurements, by part and case."""

from __future__ import annotations

from functools import partial

from benchmarks.clients.measuring import (
    CONFLUENT,
    FULL,
    OURS,
    OURS_FLUSHED,
    QUEUE,
    QUEUE_FLUSHED,
    SQLITE,
    SQLITE_FLUSHED,
    Part,
    Sizes,
)
from benchmarks.clients.offsets import (
    measure_commits,
    measure_loading,
    measure_mock_commits,
    measure_sqlite_commits,
    measure_sqlite_loading,
)
from benchmarks.clients.partitions import measure_partitions
from benchmarks.clients.rates import (
    measure_columns,
    measure_confluent,
    measure_logstore,
    measure_queue,
    measure_sqlite,
    poll_columns,
    read_columns,
)
from benchmarks.clients.transactions import (
    measure_mock_transactions,
    measure_open_producers,
    measure_open_transactions,
    measure_sqlite_transactions,
    measure_transactions,
)
from benchmarks.clients.waiting import measure_delays, measure_idle, measure_mock_delays

ALONE = "no others"
BESIDE_IDLE = "others wait beside"
IDLE = "consumers that wait"
CLEAN = "after a clean stop"
KILLED = "after a kill"
POLL_ARROW = "poll_arrow"
READ_ARROW = "read_arrow"
OPEN = "open transactions"
OPEN_FLUSHED = "open transactions, flushed"
OPEN_PRODUCERS = "open transactions, with a producer each"


def _rounds(sizes: Sizes) -> int:
    return sizes.rounds


def _partition_rounds(sizes: Sizes) -> int:
    return sizes.partition_rounds


PARTS: dict[str, Part] = {
    "rates": Part(
        {
            OURS: measure_logstore,
            CONFLUENT: measure_confluent,
            SQLITE: measure_sqlite,
            QUEUE: measure_queue,
            OURS_FLUSHED: partial(measure_logstore, flushes=True),
            SQLITE_FLUSHED: partial(measure_sqlite, flushes=True),
            QUEUE_FLUSHED: partial(measure_queue, flushes=True),
        },
        _rounds,
    ),
    "columns": Part(
        {
            POLL_ARROW: partial(measure_columns, poll_columns),
            READ_ARROW: partial(measure_columns, read_columns),
        },
        _rounds,
    ),
    "delays": Part(
        {
            ALONE: partial(measure_delays, are_others_idle=False),
            BESIDE_IDLE: partial(measure_delays, are_others_idle=True),
            CONFLUENT: measure_mock_delays,
        },
        _rounds,
    ),
    "waiting": Part({IDLE: measure_idle}, _rounds),
    "commits": Part(
        {
            OURS: measure_commits,
            CONFLUENT: measure_mock_commits,
            SQLITE: measure_sqlite_commits,
            OURS_FLUSHED: partial(measure_commits, flushes=True),
            SQLITE_FLUSHED: partial(measure_sqlite_commits, flushes=True),
        },
        _rounds,
    ),
    "loading": Part(
        {
            CLEAN: partial(measure_loading, is_killed=False),
            KILLED: partial(measure_loading, is_killed=True),
            SQLITE: measure_sqlite_loading,
        },
        _rounds,
    ),
    "partitions": Part(
        {str(number): partial(measure_partitions, number=number) for number in range(len(FULL.partitions))},
        _partition_rounds,
    ),
    "transactions": Part(
        {
            OURS: measure_transactions,
            CONFLUENT: measure_mock_transactions,
            SQLITE: measure_sqlite_transactions,
            OURS_FLUSHED: partial(measure_transactions, flushes=True),
            SQLITE_FLUSHED: partial(measure_sqlite_transactions, flushes=True),
        },
        _rounds,
    ),
    "open": Part(
        {
            OPEN: measure_open_transactions,
            OPEN_FLUSHED: partial(measure_open_transactions, flushes=True),
            OPEN_PRODUCERS: measure_open_producers,
        },
        lambda _: 1,
    ),
}
