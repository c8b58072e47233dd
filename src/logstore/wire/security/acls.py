"""What clients may do, as Kafka's ACLs say it (KIP-11, KIP-290).

A check never waits for a change: it takes the current :class:`.AclIndex`, which is replaced in one
assignment.
"""

from __future__ import annotations

from collections.abc import Iterable

from logstore.logdir.acls import (
    ACLS_FILE,
    Acl,
    AclFilter,
    Operation,
    ResourceType,
    check_acl,
    check_filter,
)
from logstore.logdir.directory import LogDirectory
from logstore.logdir.kept import Kept
from logstore.wire.security.acl_index import AclIndex


class Acls:
    """The ACLs of one store, or of its cluster if it is a node of one: then all nodes have a change a moment
    after it returns. There is one such object for each open directory."""

    def __init__(self, directory: LogDirectory) -> None:
        """
        Raises:
            CorruptionError: ``acls.json`` is damaged; says what to do.
            UnsupportedVersionError: a newer logstore wrote it.
        """
        self._directory = directory
        self._index = AclIndex(frozenset())
        self._kept = Kept(directory, ACLS_FILE, frozenset(), self._use)
        self._kept.load()

    def _use(self, acls: frozenset[Acl]) -> None:
        self._index = AclIndex(acls)

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
            RetriableError: the store is a node of a cluster that cannot be asked now.
            ClosedError: the store is closed.
        """
        added = frozenset(map(check_acl, bindings))
        self._kept.change(lambda acls: acls | added)

    def remove(self, filters: Iterable[AclFilter]) -> tuple[tuple[Acl, ...], ...]:
        """Remove what matches one of the filters, durably: all of it, or nothing.

        Returns what each filter matched, in order; an ACL that two of them match is in both.

        Raises:
            LogstoreError: as :meth:`add`.
        """
        wanted = tuple(map(check_filter, filters))
        found: tuple[tuple[Acl, ...], ...] = ()

        def change(acls: frozenset[Acl]) -> frozenset[Acl]:
            nonlocal found
            found = tuple(_matching(acls, each) for each in wanted)
            return acls.difference(*found)

        self._kept.change(change)
        return found

    def matching(self, wanted: AclFilter | None = None) -> tuple[Acl, ...]:
        """The ACLs that a filter matches, in order; all of them without one.

        Raises:
            UsageError: it is no filter.
        """
        return _matching(self._index.acls, AclFilter() if wanted is None else check_filter(wanted))


def stamp_of(acls: Acls) -> object:
    """Another object after each change of them."""
    return acls._index


def kept_acls(acls: Acls) -> Kept[frozenset[Acl]]:
    """Where they are kept, for the node that the store is."""
    return acls._kept


def _matching(acls: frozenset[Acl], wanted: AclFilter) -> tuple[Acl, ...]:
    return tuple(sorted(filter(wanted.matches, acls)))
