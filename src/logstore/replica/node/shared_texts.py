"""What the nodes of a cluster have in common besides topics and groups: users, ACLs and quotas.

The coordinator has them. Each node knows them, and has a copy in its directory, so that clients log in and
are held to ACLs and quotas also while the coordinator is away. Changes need it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from logstore.errors import (
    ClosedError,
    CorruptionError,
    FencedError,
    RetriableError,
    UnsupportedVersionError,
)
from logstore.logdir.kept import Kept
from logstore.replica.coordination.interface import Session, View
from logstore.warning import warn


class SharedTexts:
    """Those of one node. Its own thread calls it, and never the coordinator's, which keeps the lease: copies
    are written to the disk."""

    def __init__(
        self, kept: Mapping[str, Kept[Any]], cluster_id: str, session: Callable[[], Session | None]
    ) -> None:
        """``kept``: what is shared from now on, by the names of the coordinator's texts."""
        self._kept = kept
        self._seen: dict[str, int] = {}
        """The versions of the last view."""
        for name, each in kept.items():
            each.share(_Text(name, session), cluster_id)

    def take(self, view: View, names: Iterable[str]) -> None:
        """These have changed. What the node knows better, because it has made a later change, stays."""
        for name in names:
            kept, text = self._kept[name], view.texts.get(name)
            if text is None or text.version < self._seen.get(name, 0):
                kept.forget_version()
            if text is None:
                continue
            self._seen[name] = text.version
            try:
                kept.take(text.data.encode(), text.version)
            except (CorruptionError, UnsupportedVersionError) as error:
                _warn_of_damage(name, error)

    def give(self, *, is_first: bool) -> None:
        """What the cluster does not have is from now on what this node has, if it is the first node; or else
        nothing. The node has registered.

        Raises:
            RetriableError: the coordinator cannot be reached.
            UsageError: something is too large.
        """
        for name, kept in self._kept.items():
            try:
                kept.give(is_first=is_first)
            except (CorruptionError, UnsupportedVersionError) as error:
                _warn_of_damage(name, error)

    def write_copies(self) -> None:
        """Try again what the disk has not taken."""
        for kept in self._kept.values():
            kept.write_copy()


def _warn_of_damage(name: str, error: Exception) -> None:
    warn(
        "the %s of the cluster cannot be read, and stay here as they were: the text /logstore/%s of the "
        "coordinator %s. Remove it: the next change puts a node's copy in its place",
        name,
        name,
        error,
    )


class _Text:
    """See :class:`~logstore.logdir.kept.SharedText`. What its errors say, clients are told: not where the
    coordinator is."""

    def __init__(self, name: str, session: Callable[[], Session | None]) -> None:
        self._name = name
        self._session = session

    def replace(self, change: Callable[[bytes | None], bytes]) -> tuple[bytes, int]:
        session = self._session()
        if session is None or session.is_lost:
            raise RetriableError(
                f"this node is not one of the cluster now: the {self._name} were not changed"
            )
        try:
            data, version = session.replace_text(
                self._name, lambda found: change(None if found is None else found.encode()).decode()
            )
        except (ClosedError, FencedError) as error:
            raise RetriableError(
                f"this node is not one of the cluster any more: the {self._name} were not changed"
            ) from error
        except CorruptionError as error:
            raise CorruptionError(
                f"the {self._name} of the cluster are damaged, and were not changed: the coordinator's text "
                f"{error}"
            ) from error
        except RetriableError as error:
            raise RetriableError(
                f"the coordinator does not answer; the {self._name} may have been changed: look again"
            ) from error
        return data.encode(), version
