"""The stores that an exporter exports: one, or several by names."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Protocol

from logstore.arguments import shown
from logstore.errors import ClosedError, UsageError
from logstore.metrics.snapshot import Metrics

LABEL = "store"
"""The label that tells several stores apart."""


class HasMetrics(Protocol):
    """A store."""

    def metrics(self) -> Metrics:
        """See :meth:`.Store.metrics`."""
        ...


class ExportedStores:
    """One store without a name, or several with names."""

    def __init__(self, store: HasMetrics | None, named: Mapping[str, HasMetrics]) -> None:
        """
        Raises:
            UsageError: these are no stores, or there is one without a name beside others.
        """
        if (store is None) == (not named):
            raise UsageError("give one store, or several by names: orders=store, audit=other")
        for each in (store, *named.values()):
            if each is not None and not hasattr(each, "metrics"):
                raise UsageError(f"{shown(each)} is no store")
        self._stores: dict[str, HasMetrics] = {"": store} if store is not None else dict(named)
        self.labels: tuple[str, ...] = (LABEL,) if named else ()
        """The labels in front of each metric's own."""

    def metrics(self) -> Iterator[tuple[tuple[str, ...], Metrics]]:
        """A snapshot of each store that is open, with the values of :attr:`labels`."""
        for name, store in self._stores.items():
            try:
                yield (name,) if self.labels else (), store.metrics()
            except ClosedError:
                continue
