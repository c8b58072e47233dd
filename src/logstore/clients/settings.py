"""The settings of producers. Names are Kafka's with underscores for dots."""

from __future__ import annotations

from dataclasses import dataclass

from logstore.arguments import shown
from logstore.broker.requests import ACKS_ALL, ACKS_LEADER, ACKS_NONE
from logstore.config import Checked, check_choice, check_flag, check_range
from logstore.errors import InvalidConfigError

_RANGES = (
    ("batch_size", 1, 64 * 1024 * 1024),
    ("linger_ms", 0, 2**31 - 1),
    ("buffer_memory", 1, 2**40),
    ("max_block_ms", 0, 2**63 - 1),
    ("delivery_timeout_ms", 0, 2**31 - 1),
    ("request_timeout_ms", 1, 2**31 - 1),
    ("retries", 0, 2**31 - 1),
    ("retry_backoff_ms", 0, 2**31 - 1),
    ("max_in_flight", 1, 5),
)
_CODECS = {"none", "gzip", "snappy", "lz4", "zstd"}
_ACKS = {
    "all": ACKS_ALL,
    -1: ACKS_ALL,
    0: ACKS_NONE,
    1: ACKS_LEADER,
    "0": ACKS_NONE,
    "1": ACKS_LEADER,
    "-1": -1,
}


@dataclass(frozen=True, kw_only=True, slots=True)
class ProducerConfig(Checked):
    """The settings of one producer.

    Raises:
        InvalidConfigError: a name is unknown, a value is out of range, or two contradict each other; names
            the setting.
    """

    acks: str | int = "all"
    """When a record counts as delivered. ``0``: it was handed over. ``1``: it is in the log, and survives the
    end of the process. ``"all"``: every in-sync replica has it. Where there is one replica, a power cut
    cannot take it; one flush serves all who wait for it (see ``acks_all_durable`` of the topic)."""
    linger_ms: int = 5
    """How long a record may wait for others, to share a batch with them. 0 sends at once what is there;
    records that come while a batch is being sent still share the next."""
    batch_size: int = 262_144
    """Send a batch when it has so many bytes, before compression.

    Kafka: 16 KiB, which suits many connections. Larger batches compress better."""
    compression: str = "none"
    """The codec of the batches: ``none``, ``gzip``, ``snappy``, ``lz4`` or ``zstd``."""
    buffer_memory: int = 32 * 1024 * 1024
    """Bytes of records that may wait to be delivered. When they are used up, ``send()`` waits."""
    max_block_ms: int = 60_000
    """How long ``send()`` may wait for memory."""
    enable_idempotence: bool = True
    """A batch that is sent again is stored once, and batches stay in order (KIP-98)."""
    max_in_flight: int = 5
    """Batches of a partition that may wait for their result. Without idempotence 1 keeps the order when one
    of them is sent again. Kafka: ``max.in.flight.requests.per.connection``."""
    delivery_timeout_ms: int = 120_000
    """A record that is not delivered by then, with all retries, has failed."""
    request_timeout_ms: int = 30_000
    """How long ``acks="all"`` may take before a batch is sent again."""
    retries: int = 2**31 - 1
    """How often a batch is sent again, within ``delivery_timeout_ms``."""
    retry_backoff_ms: int = 100
    """How long to wait before that."""

    def __post_init__(self) -> None:
        for setting, low, high in _RANGES:
            check_range(self, setting, low, high)
        check_choice(self, "compression", _CODECS)
        check_flag(self, "enable_idempotence")
        if type(self.acks) not in (int, str) or self.acks not in _ACKS:
            raise InvalidConfigError(f"acks is {shown(self.acks)}; it must be 0, 1 or 'all'")
        if self.enable_idempotence and self.required_acks == ACKS_NONE:
            raise InvalidConfigError(
                "acks is 0 with enable_idempotence: without an acknowledgement no batch is sent again; "
                "enable_idempotence=False goes with it"
            )

    @property
    def required_acks(self) -> int:
        """``acks`` as the protocol has it."""
        return _ACKS[self.acks]
