"""The common part of the crash explorer's scenarios: sessions of actions, drawn by weight or given."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from logstore.testing import MemoryFiles
from tests.crash.warnings import no_damage_ignored


class RandomScenario(ABC):
    """Sessions of random actions, or of given ones."""

    table: ClassVar[Mapping[str, tuple[int, Callable[[Any], None]]]]
    """Name -> weight, and the action on a session."""
    first: ClassVar[Sequence[str]] = ()
    """The actions that begin each random session."""

    def __init__(self, *, actions: Sequence[str] = (), length: int = 8) -> None:
        self._actions = actions
        self._length = length

    @abstractmethod
    def begin(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> Any:
        """Open what the session works on."""

    @abstractmethod
    def check_state(self, files: MemoryFiles, said: Sequence[Any]) -> None:
        """Raise unless the disk has allowed contents."""

    def session(self, files: MemoryFiles, said: Sequence[Any], rng: random.Random) -> None:
        session = self.begin(files, said, rng)
        weights = [weight for weight, _ in self.table.values()]
        for name in self._actions or [*self.first, *rng.choices(list(self.table), weights, k=self._length)]:
            self.table[name][1](session)

    def check(self, files: MemoryFiles, said: Sequence[Any]) -> None:
        with no_damage_ignored():
            self.check_state(files, said)
