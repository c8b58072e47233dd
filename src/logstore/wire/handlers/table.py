"""Which module answers which request: the one with the name of that which declares its messages. Both are
imported when the first such request comes (:mod:`logstore.wire.apis`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module
from typing import Final

from logstore.wire.apis import APIS, ApiKey
from logstore.wire.handlers.call import Answers


class _Handlers(Mapping[ApiKey, Answers]):
    """In the order of the keys."""

    def __init__(self) -> None:
        self._imported: dict[ApiKey, Answers] = {}

    def __getitem__(self, key: ApiKey) -> Answers:
        found = self._imported.get(key)
        if found is None:
            module: Answers = import_module(f"logstore.wire.handlers.{APIS[key].module}")
            found = self._imported[key] = module
        return found

    def __iter__(self) -> Iterator[ApiKey]:
        return iter(APIS)

    def __len__(self) -> int:
        return len(APIS)


HANDLERS: Final = _Handlers()


def served() -> dict[int, tuple[int, int]]:
    """The versions of each that clients are told of."""
    return {key: (api.first_advertised, api.last) for key, api in APIS.items()}
