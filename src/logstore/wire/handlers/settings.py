"""The settings of a listener. Names are Kafka's with underscores for dots."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from logstore.arguments import shown
from logstore.config import Checked, check_flag, check_range
from logstore.errors import InvalidConfigError

_AFTER_COMMA: Final = re.compile(r",\s*User:")
_RANGES = (
    ("max_connections", 1, 1_000_000),
    ("socket_request_max_bytes", 1024, 2**31 - 1),
    ("connections_max_idle_ms", 1, 2**40),
    ("socket_step_timeout_ms", 1, 2**40),
    ("num_partitions", 1, 100_000),
    ("max_incremental_fetch_session_cache_slots", 0, 1_000_000),
    ("group_share_max_share_sessions", 1, 1_000_000),
    ("fetch_max_bytes", 1024, 2**31 - 1),
    ("fetch_memory_bytes", 0, 2**40),
    ("connections_max_reauth_ms", 0, 2**40),
    ("connection_failed_authentication_delay_ms", 0, 60_000),
    ("max_request_partition_size_limit", 1, 1_000_000),
    ("num_request_threads", 1, 10_000),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class ListenerConfig(Checked):
    """The settings of one listener.

    Raises:
        InvalidConfigError: a name is unknown, or a value is out of range; names the setting.
    """

    max_connections: int = 1_000
    """How many clients may be connected at a time. Further ones are closed at once.

    Kafka: no limit."""
    socket_request_max_bytes: int = 100 * 1024 * 1024
    """The largest request. The connection of a larger one is closed."""
    connections_max_idle_ms: int = 600_000
    """A connection on which nothing is asked for so long is closed."""
    socket_step_timeout_ms: int = 30_000
    """How long a request may take to arrive once it has begun, and an answer to be taken; and TLS and a login
    together. The connection of a slower client is closed: it holds memory, and a place. Of our own."""
    num_request_threads: int = 32
    """How many requests are worked on at a time. Connections that are idle, and requests that wait for
    records, disk or members, take no thread. Kafka: ``num.network.threads`` and ``num.io.threads``."""
    auto_create_topics_enable: bool = True
    """Whether a topic that a client asks for is created, if it wants that."""
    num_partitions: int = 1
    """How many partitions such a topic gets, and one that is created without a number."""
    fetch_max_bytes: int = 55 * 1024 * 1024
    """The most that a fetch gives, even if the client takes more. A broker setting in Kafka, too."""
    fetch_memory_bytes: int = 128 * 1024 * 1024
    """How much memory the records may take that clients have asked for and not taken yet, all together. The
    less of it is free, the less a fetch gives, but always 256 KiB, or one batch if that is larger. Of our
    own: Kafka sends from its files."""
    max_incremental_fetch_session_cache_slots: int = 1_000
    """How many fetch sessions are remembered (KIP-227). Those of further clients send all their partitions
    with each request."""
    group_share_max_share_sessions: int = 2_000
    """How many share sessions there may be at a time: members of share groups that take records (KIP-932).
    Further ones are refused until one ends."""
    sasl_enabled_mechanisms: str = ""
    """How clients log in, separated by commas: ``SCRAM-SHA-256``, ``SCRAM-SHA-512``, ``PLAIN``. Empty: they
    do not, and are all ``User:ANONYMOUS``. Users are those of :attr:`.Store.users`."""
    connections_max_reauth_ms: int = 0
    """After so long a client has to log in again (KIP-368). 0: never."""
    connection_failed_authentication_delay_ms: int = 100
    """How long a client waits for the answer when its login fails (KIP-306): it guesses no faster. No thread
    waits."""
    authorize: bool = False
    """Whether clients may do only what :attr:`.Store.acls` allow them.

    Kafka: ``authorizer.class.name``."""
    super_users: str = ""
    """Who may do everything, whatever ACLs say: principals such as ``User:admin``, separated by
    semicolons."""
    allow_everyone_if_no_acl_found: bool = False
    """Whether everybody may do everything with resources of which no ACL says anything."""
    max_request_partition_size_limit: int = 2_000
    """How many partitions one page of DescribeTopicPartitions has at most."""

    def __post_init__(self) -> None:
        for setting, low, high in _RANGES:
            check_range(self, setting, low, high)
        for flag in ("auto_create_topics_enable", "authorize", "allow_everyone_if_no_acl_found"):
            check_flag(self, flag)
        for text in ("sasl_enabled_mechanisms", "super_users"):
            if type(getattr(self, text)) is not str:
                raise InvalidConfigError(f"{text} is {shown(getattr(self, text))}; it must be text")
        if _AFTER_COMMA.search(self.super_users):  # a certificate's name may have commas
            raise InvalidConfigError(
                f"super_users is {shown(self.super_users)}; separate principals by semicolons, not commas"
            )

    @property
    def mechanisms(self) -> tuple[str, ...]:
        """``sasl_enabled_mechanisms``, taken apart."""
        return _parts(self.sasl_enabled_mechanisms, ",")

    @property
    def super_user_names(self) -> tuple[str, ...]:
        """``super_users``, taken apart."""
        return _parts(self.super_users, ";")


def _parts(text: str, separator: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(separator) if part.strip())
