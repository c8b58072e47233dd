"""Requests of a client whose answers it waits for in the calling thread."""

from __future__ import annotations

from typing import Protocol, TypeVar

from logstore.broker.pending import Pending, wait_for
from logstore.errors import RetriableError

T = TypeVar("T")


class HasTimeout(Protocol):
    """Settings of a client."""

    @property
    def request_timeout_ms(self) -> int: ...


def ask(pending: Pending[T], what: str, config: HasTimeout) -> T:
    """The answer to a request; ``what`` says in an error what the broker did not do.

    Raises:
        RetriableError: there was none within ``request_timeout_ms``.
    """
    result = wait_for(pending, config.request_timeout_ms / 1000)
    if result is None:
        raise RetriableError(f"the broker did not {what} within request_timeout_ms")
    return result
