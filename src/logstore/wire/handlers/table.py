"""Which module answers which request: the one with the name of that which declares its messages. Both are
imported when the first such request comes (:mod:`logstore.wire.apis`)."""

from __future__ import annotations

from functools import cache
from importlib import import_module

from logstore.wire.apis import APIS, ApiKey
from logstore.wire.handlers.call import Answers


@cache
def answers_of(key: ApiKey) -> Answers:
    """The module that answers it."""
    module: Answers = import_module(f"logstore.wire.handlers.{APIS[key].module}")
    return module
