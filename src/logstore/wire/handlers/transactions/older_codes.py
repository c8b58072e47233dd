"""What versions that do not know an error are told instead."""

from __future__ import annotations

from typing import Final

from logstore.broker.codes import ErrorCode

_FENCED: Final = 2
"""From this version on clients of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn know PRODUCER_FENCED
(KIP-588)."""


def as_known(code: ErrorCode, version: int, *, fenced_since: int = _FENCED) -> ErrorCode:
    """The code, or the one that an older version has for a producer that was shut out."""
    if code is ErrorCode.PRODUCER_FENCED and version < fenced_since:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code
