"""Clients that know of a later leader epoch than the log that they ask for.

A log that is alone gives each of its epochs itself. So its directory is then a copy of one that has gone on,
such as a snapshot of the disk, put in its place: nothing in it says so.
"""

from __future__ import annotations

from contextlib import suppress

from logstore.errors import LogstoreError
from logstore.model import Role
from logstore.partition.log import Log


def outgrow(log: Log, epoch: int) -> None:
    """Let the log go on in a later epoch than a client has seen, if that may be. What refuses it is told by
    what comes next: the client asks again."""
    if epoch > log.leader_epoch and log.role is Role.ALONE:
        with suppress(LogstoreError):
            log.writer.replication.outgrow(epoch)
