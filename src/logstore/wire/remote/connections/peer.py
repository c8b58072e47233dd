"""What a broker has said of itself: which requests it serves, and which features are on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from logstore.errors import UnsupportedVersionError
from logstore.wire.apis import api_of


class Peer(NamedTuple):
    """One broker, as it answered ApiVersions."""

    versions: Mapping[int, tuple[int, int]]
    """Key -> oldest and newest version."""
    features: Mapping[str, int] = {}
    """Features that are on, by name, with their levels (KIP-584)."""

    def serves(self, key: int, version: int) -> bool:
        """Whether it serves this version of a request."""
        first, last = self.versions.get(key, (0, -1))
        return first <= version <= last

    def common(self, key: int, first: int, last: int) -> int:
        """The newest version of a request that it and we know, from ``first`` to ``last``.

        Raises:
            UnsupportedVersionError: there is none.
        """
        api = api_of(key)
        if key not in self.versions:
            raise UnsupportedVersionError(f"the broker does not serve {api.name}")
        oldest, newest = self.versions[key]
        version = min(newest, last, api.last)
        least = max(oldest, first, api.first)
        if version < least:
            raise UnsupportedVersionError(
                f"the broker serves {api.name} in versions {oldest} to {newest}; needed is one of "
                f"{max(first, api.first)} to {min(last, api.last)}"
            )
        return version
