"""What clients may do, as Kafka's ACLs say it (KIP-11, KIP-290).

Lock: ``_lock`` is held while ACLs change, also while the file is written. A check never waits for it: it
takes the current :class:`.AclIndex`, which is replaced in one assignment.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable

from logstore.logdir.acls import (
    Acl,
    AclFilter,
    Operation,
    ResourceType,
    check_acl,
    check_filter,
    read_acls,
    write_acls,
)
from logstore.logdir.directory import LogDirectory
from logstore.wire.security.acl_index import AclIndex


class Acls:
    """The ACLs of one store. There is one such object for each open directory."""

    def __init__(self, directory: LogDirectory) -> None:
        """
        Raises:
            CorruptionError: ``acls.json`` is damaged; says what to do.
            UnsupportedVersionError: a newer logstore wrote it.
        """
        self._directory = directory
        self._lock = threading.Lock()
        self._index = AclIndex(read_acls(directory.context.files, directory.path))

    def __len__(self) -> int:
        return len(self._index.acls)

    def __repr__(self) -> str:
        return f"<Acls of {self._directory.path}>"

    def says(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
    ) -> bool | None:
        """Whether a client may do it; None if no ACL says anything of the resource. 1 µs, without a lock."""
        return self._index.allows(principal, host, operation, resource_type, name)

    def says_of_any(
        self, principal: str, host: str, operation: Operation, resource_type: ResourceType
    ) -> bool | None:
        """The same of some resource of the type, if there were one (KIP-679)."""
        return self._index.allows_any(principal, host, operation, resource_type)

    def add(self, bindings: Iterable[Acl]) -> None:
        """Add ACLs, durably: all of them, or none. What is there already stays.

        Raises:
            UsageError: one of them is no ACL; says what is wrong.
            StorageError: the disk refused. Nothing has changed.
            ClosedError: the store is closed.
        """
        added = frozenset(map(check_acl, bindings))
        with self._lock:
            self._store_locked(self._index.acls | added)

    def remove(self, filters: Iterable[AclFilter]) -> tuple[tuple[Acl, ...], ...]:
        """Remove what matches one of the filters, durably: all of it, or nothing.

        Returns what each filter matched, in order; an ACL that two of them match is in both.

        Raises:
            LogstoreError: as :meth:`add`.
        """
        wanted = tuple(map(check_filter, filters))
        with self._lock:
            found = tuple(_matching(self._index, each) for each in wanted)
            self._store_locked(self._index.acls.difference(*found))
        return found

    def matching(self, wanted: AclFilter | None = None) -> tuple[Acl, ...]:
        """The ACLs that a filter matches, in order; all of them without one.

        Raises:
            UsageError: it is no filter.
        """
        return _matching(self._index, AclFilter() if wanted is None else check_filter(wanted))

    def _store_locked(self, acls: frozenset[Acl]) -> None:
        """
        Raises:
            ClosedError, FencedError, StorageError: nothing has changed.
            UsageError: they are too many.
        """
        self._directory.check_open()
        if acls == self._index.acls:
            return
        context = self._directory.context
        context.home.check_held()
        write_acls(context.files, self._directory.path, acls)
        self._index = AclIndex(acls)


def stamp_of(acls: Acls) -> object:
    """Another object after each change of them."""
    return acls._index


def _matching(index: AclIndex, wanted: AclFilter) -> tuple[Acl, ...]:
    return tuple(sorted(filter(wanted.matches, index.acls)))
