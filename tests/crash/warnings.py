"""Checks what logstore warns of while a state is checked."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGER = logging.getLogger("logstore")


class _Collector(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.messages: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.messages.append(record.getMessage())


@contextmanager
def no_damage_ignored() -> Iterator[None]:
    """Raise if logstore tolerates a damaged file inside: a power cut must not damage files that are written
    whole."""
    collector = _Collector()
    propagates, _LOGGER.propagate = _LOGGER.propagate, False
    _LOGGER.addHandler(collector)
    try:
        yield
    finally:
        _LOGGER.removeHandler(collector)
        _LOGGER.propagate = propagates
    damaged = [message for message in collector.messages if "damaged" in message]
    assert not damaged, damaged[0]
