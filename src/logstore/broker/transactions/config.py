"""The settings of a transaction coordinator, by Kafka's names."""

from __future__ import annotations

from dataclasses import dataclass, fields

from logstore.errors import InvalidConfigError

_MAX_INT32 = 2**31 - 1


@dataclass(frozen=True, kw_only=True)
class TransactionConfig:
    """Limits and delays, in milliseconds."""

    transaction_max_timeout_ms: int = 900_000
    """Producers that ask for more are refused. An open transaction holds up readers of committed records."""
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = 10_000
    """How often transactions are looked through for those whose time is up."""
    transactional_id_expiration_ms: int = 604_800_000
    """After so long without a transaction an id is forgotten."""
    end_linger_ms: int = 100
    """The end of a transaction is stored so long after its markers, unless more of the id comes first."""
    marker_retry_ms: int = 500
    """A partition that cannot take its marker is tried again after so long."""
    marker_patience_ms: int = 1_000
    """For so long the answer to a producer waits for markers in partitions that are led elsewhere."""

    def __post_init__(self) -> None:
        """
        Raises:
            InvalidConfigError: a value is no whole number from 1 to 2^31 - 1.
        """
        for field in fields(self):
            value = getattr(self, field.name)
            if type(value) is not int or not 1 <= value <= _MAX_INT32:
                raise InvalidConfigError(
                    f"{field.name} is {value!r}; it must be a whole number from 1 to {_MAX_INT32}"
                )
