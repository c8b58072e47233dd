"""What replication needs from a log: leader epochs, the log's role and its high watermark."""

from __future__ import annotations

from logstore.arguments import shown
from logstore.errors import UsageError
from logstore.model import Role
from logstore.partition.arguments import MAX_EPOCH, check_offset
from logstore.partition.state.context import LogContext
from logstore.partition.writing.durability import Durability
from logstore.partition.writing.gathering import Gathering
from logstore.partition.writing.guard import Guard
from logstore.warning import warn


class Replication:
    """The replication state of one log."""

    def __init__(
        self, context: LogContext, guard: Guard, gathering: Gathering, durability: Durability
    ) -> None:
        self._context = context
        self._guard = guard
        self._durability = durability
        self._waits = guard.core.waits
        self._gathering = gathering

    def assign_leader_epoch(self, epoch: int) -> None:
        """See :meth:`.Log.assign_leader_epoch`."""
        with self._guard.own_lock(), self._guard as core:
            if type(epoch) is not int or not core.leader_epoch <= epoch <= MAX_EPOCH:
                raise UsageError(
                    f"epoch is {shown(epoch)}; it must be a number from {core.leader_epoch} to {MAX_EPOCH}"
                )
            self._gathering.drain_locked()
            self._context.home.check_held()
            core.assign_epoch(epoch)
            self._waits.note_view(core.view)  # a fetch that names the old epoch is refused from now on

    def outgrow(self, epoch: int) -> None:
        """A client was told of this leader epoch. If it is later than that of the log, nothing here knows of
        it: clients would take the log's for outdated, and wait for a later one without end. So the log goes
        on in one beyond it.

        Raises:
            UsageError: this thread has the log's lock.
            StorageError: the epoch cannot be stored.
        """
        with self._guard.own_lock(), self._guard as core:
            if core.is_outgrown_by(epoch):
                self._gathering.drain_locked()
                before = core.leader_epoch
                core.outgrow(epoch)
                self._waits.note_view(core.view)
                warn(
                    "%s: a client has seen it in leader epoch %d, and here it was in %d, as in a copy of a "
                    "directory that has gone on; it goes on in %d, which tells clients what is gone",
                    core.partition,
                    epoch,
                    before,
                    core.leader_epoch,
                )

    def set_role(self, role: Role) -> None:
        """See :meth:`.Log.set_role`."""
        if not isinstance(role, Role):
            raise UsageError(f"role is {shown(role)}; it must be one of {', '.join(map(str, Role))}")
        with self._guard.own_lock(), self._guard as core:
            self._gathering.drain_locked()
            if role is not core.role or role is not core.stored_role:
                if (
                    core.stored_role is Role.FOLLOWER and role is not Role.FOLLOWER
                ):  # its gaps would look like lost data above the recovery point
                    self._durability.checkpoint_locked()
                    self._context.home.store_checkpoints()
                elif role is Role.FOLLOWER and core.unflushed:  # the loss of their ends would look like gaps
                    self._durability.flush_now_locked()
                core.set_role(role)
                self._waits.notify(core.view)

    def lead(self, epoch: int) -> None:
        """See :meth:`.Log.lead`."""
        with self._guard.own_lock(), self._guard as core:
            if core.stored_role is not Role.FOLLOWER:
                raise UsageError(f"{core.partition} is no replica; set_role(Role.FOLLOWER) makes it one")
            if type(epoch) is not int or not core.leader_epoch <= epoch <= MAX_EPOCH:
                raise UsageError(
                    f"epoch is {shown(epoch)}; it must be a number from {core.leader_epoch} to {MAX_EPOCH}"
                )
            self._gathering.drain_locked()
            core.lead(epoch)
            self._waits.notify(core.view)
            self._waits.note_view(core.view)  # a fetch that names the old epoch is refused from now on

    def stop_leading(self) -> None:
        """See :meth:`.Log.stop_leading`."""
        with self._guard.own_lock(), self._guard as core:
            if core.stored_role is not Role.FOLLOWER:
                raise UsageError(f"{core.partition} is no replica; set_role(Role.FOLLOWER) makes it one")
            self._gathering.drain_locked()
            core.stop_leading()
            self._waits.notify(core.view)

    def update_high_watermark(self, offset: int) -> int:
        """See :meth:`.Log.update_high_watermark`."""
        check_offset(offset, "offset")
        with self._guard.own_lock(), self._guard as core:
            if core.role is Role.ALONE:
                raise UsageError(
                    "this log is its partition's only replica: its high watermark is its end until set_role()"
                )
            bounded = max(min(offset, core.log_end_offset), core.log_start_offset, core.high_watermark)
            if bounded != core.high_watermark:
                core.high_watermark = bounded
                core.publish()
                self._waits.notify(core.view)
            return bounded
