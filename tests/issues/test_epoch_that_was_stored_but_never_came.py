"""Storing a new leader epoch failed behind its rename: the file had the epoch, and the log went on in the old
one. After the next open the history contradicted the batches."""

from __future__ import annotations

from tests.faults.partition import WORKLOADS, make_past, run

from logstore.testing import FAULTS


def test_the_file_is_put_right_before_the_next_append():
    past = make_past()
    for at in range(1, 8):
        run(past, WORKLOADS["new epoch"], FAULTS["EMFILE"], at, times=2, seed=0)
