"""The consumer groups of a store, for asyncio."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from logstore.aio.shell import Shell
from logstore.clients.groups.groups import Groups
from logstore.clients.groups.resetting import OffsetReset, ResetTo
from logstore.clients.groups.status import GroupStatus
from logstore.clients.offsets import PartitionName
from logstore.model import BoundToProcess, TopicPartition


class AsyncGroups(BoundToProcess):
    """The consumer groups of a store. Made by :meth:`.AsyncStore.groups`. The calls are those of
    :class:`.Groups`, with its arguments and errors, each in a thread. A cancelled change was made whole or
    not at all."""

    def __init__(self, shell: Shell, groups: Groups) -> None:
        self.sync = groups
        """The synchronous groups. Their calls may block the loop."""
        self._shell = shell

    async def names(self) -> list[str]:
        """The names, in order: ``list(groups)``."""
        return await self._shell.run(list, self.sync)

    async def describe(self, name: str) -> GroupStatus:
        """One group: ``groups[name]``.

        Raises:
            UnknownGroupError: there is no such group.
        """
        return await self._shell.run(self.sync.__getitem__, name)

    async def describe_all(self) -> dict[str, GroupStatus]:
        """All groups, as of one look: ``dict(groups.items())``."""
        return await self._shell.run(lambda: dict(self.sync.items()))

    async def delete(self, name: str) -> None:
        """Delete a group that has no members: :meth:`.Groups.delete`."""
        await self._shell.run(self.sync.delete, name)

    async def delete_offsets(
        self, name: str, partitions: Iterable[PartitionName]
    ) -> tuple[TopicPartition, ...]:
        """Delete committed offsets of a group: :meth:`.Groups.delete_offsets`."""
        return await self._shell.run(self.sync.delete_offsets, name, partitions)

    async def remove_members(self, name: str, instance_ids: Iterable[str]) -> None:
        """Remove static members whose programs are gone: :meth:`.Groups.remove_members`."""
        await self._shell.run(self.sync.remove_members, name, instance_ids)

    async def reset(
        self,
        name: str,
        to: ResetTo,
        *,
        topics: Iterable[str] | None = None,
        partitions: Iterable[PartitionName] | None = None,
        dry_run: bool = False,
    ) -> dict[TopicPartition, OffsetReset]:
        """Let a group without members go on somewhere else: :meth:`.Groups.reset`."""
        reset = partial(self.sync.reset, name, to, topics=topics, partitions=partitions, dry_run=dry_run)
        return await self._shell.run(reset)

    def __repr__(self) -> str:
        return f"<Async{repr(self.sync).removeprefix('<')}"
