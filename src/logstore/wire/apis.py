"""The table of Kafka's requests that are known here: key, name, versions, and what is sent each way.

What a message consists of is declared in :mod:`logstore.wire.messages`, in a module with the request's name.
It is imported when the first such message is read or written: most programs meet a few of them, and a broker
that imports all starts half as long again.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from functools import cached_property
from importlib import import_module
from types import MappingProxyType
from typing import Any, Final

from logstore.errors import UnsupportedVersionError
from logstore.format.messages.message import Message


class ApiKey(IntEnum):
    """The number with which a request begins."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


class Api:
    """One kind of request, and its response.

    Args:
        folder: where its messages are.
        first: the oldest version: that of Kafka 4.0.
        last: the newest version: that of Kafka 4.2.
        flexible: the first version with KIP-482's encoding; None if there is none.
    """

    def __init__(self, key: ApiKey, folder: str, first: int, last: int, flexible: int | None = None) -> None:
        self.key = key
        self.module = f"{folder}.{key.name.lower()}"
        """Of its messages within :mod:`logstore.wire.messages`, and of what answers it within
        :mod:`logstore.wire.handlers`."""
        self.first = first
        self.last = last
        self._flexible = flexible

    @property
    def name(self) -> str:
        """Kafka's name for it."""
        return self.key.name.title().replace("_", "")

    @cached_property
    def request(self) -> Message[Any]:
        """What is asked."""
        return self._message("Request")

    @cached_property
    def response(self) -> Message[Any]:
        """What is answered, in the same versions."""
        return self._message("Response")

    def _message(self, suffix: str) -> Message[Any]:
        declared = getattr(import_module(f"logstore.wire.messages.{self.module}"), self.name + suffix)
        return Message(declared, self.first, self.last, flexible=self._flexible)

    @property
    def first_advertised(self) -> int:
        """The oldest version that a broker says it serves.

        That is the oldest that it does serve, with one exception: Produce is said to begin with 0, as Kafka
        4 says it (KAFKA-18659). librdkafka 2.0 looks for the oldest versions: without them it leaves batches
        uncompressed that gzip, snappy or LZ4 should compress.
        """
        return 0 if self.key is ApiKey.PRODUCE else self.first

    def is_flexible(self, version: int) -> bool:
        """Whether the version has compact lengths and tagged fields. Also for versions that are not known
        yet, which keep them."""
        return self._flexible is not None and version >= self._flexible


_TABLE: Final = (
    Api(ApiKey.PRODUCE, "records", 3, 13, 9),
    Api(ApiKey.FETCH, "records", 4, 18, 12),
    Api(ApiKey.LIST_OFFSETS, "records", 1, 11, 6),
    Api(ApiKey.METADATA, "cluster", 0, 13, 9),
    Api(ApiKey.OFFSET_COMMIT, "groups", 2, 10, 8),
    Api(ApiKey.OFFSET_FETCH, "groups", 1, 10, 6),
    Api(ApiKey.FIND_COORDINATOR, "groups", 0, 6, 3),
    Api(ApiKey.JOIN_GROUP, "groups", 0, 9, 6),
    Api(ApiKey.HEARTBEAT, "groups", 0, 4, 4),
    Api(ApiKey.LEAVE_GROUP, "groups", 0, 5, 4),
    Api(ApiKey.SYNC_GROUP, "groups", 0, 5, 4),
    Api(ApiKey.DESCRIBE_GROUPS, "groups", 0, 6, 5),
    Api(ApiKey.LIST_GROUPS, "groups", 0, 5, 3),
    Api(ApiKey.SASL_HANDSHAKE, "security", 0, 1),
    Api(ApiKey.API_VERSIONS, "cluster", 0, 4, 3),
    Api(ApiKey.CREATE_TOPICS, "topics", 2, 7, 5),
    Api(ApiKey.DELETE_TOPICS, "topics", 1, 6, 4),
    Api(ApiKey.DELETE_RECORDS, "records", 0, 2, 2),
    Api(ApiKey.INIT_PRODUCER_ID, "transactions", 0, 5, 2),
    Api(ApiKey.OFFSET_FOR_LEADER_EPOCH, "records", 2, 4, 4),
    Api(ApiKey.ADD_PARTITIONS_TO_TXN, "transactions", 0, 5, 3),
    Api(ApiKey.ADD_OFFSETS_TO_TXN, "transactions", 0, 4, 3),
    Api(ApiKey.END_TXN, "transactions", 0, 5, 3),
    Api(ApiKey.WRITE_TXN_MARKERS, "transactions", 1, 2, 1),
    Api(ApiKey.TXN_OFFSET_COMMIT, "transactions", 0, 5, 3),
    Api(ApiKey.DESCRIBE_ACLS, "security", 1, 3, 2),
    Api(ApiKey.CREATE_ACLS, "security", 1, 3, 2),
    Api(ApiKey.DELETE_ACLS, "security", 1, 3, 2),
    Api(ApiKey.DESCRIBE_CONFIGS, "topics", 1, 4, 4),
    Api(ApiKey.ALTER_CONFIGS, "topics", 0, 2, 2),
    Api(ApiKey.DESCRIBE_LOG_DIRS, "cluster", 1, 4, 2),
    Api(ApiKey.SASL_AUTHENTICATE, "security", 0, 2, 2),
    Api(ApiKey.CREATE_PARTITIONS, "topics", 0, 3, 2),
    Api(ApiKey.DELETE_GROUPS, "groups", 0, 2, 2),
    Api(ApiKey.ELECT_LEADERS, "cluster", 0, 2, 2),
    Api(ApiKey.INCREMENTAL_ALTER_CONFIGS, "topics", 0, 1, 1),
    Api(ApiKey.ALTER_PARTITION_REASSIGNMENTS, "cluster", 0, 1, 0),
    Api(ApiKey.LIST_PARTITION_REASSIGNMENTS, "cluster", 0, 0, 0),
    Api(ApiKey.OFFSET_DELETE, "groups", 0, 0),
    Api(ApiKey.DESCRIBE_CLIENT_QUOTAS, "quotas", 0, 1, 1),
    Api(ApiKey.ALTER_CLIENT_QUOTAS, "quotas", 0, 1, 1),
    Api(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "security", 0, 0, 0),
    Api(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "security", 0, 0, 0),
    Api(ApiKey.DESCRIBE_CLUSTER, "cluster", 0, 2, 0),
    Api(ApiKey.DESCRIBE_PRODUCERS, "transactions", 0, 0, 0),
    Api(ApiKey.DESCRIBE_TRANSACTIONS, "transactions", 0, 0, 0),
    Api(ApiKey.LIST_TRANSACTIONS, "transactions", 0, 2, 0),
    Api(ApiKey.CONSUMER_GROUP_HEARTBEAT, "groups", 0, 1, 0),
    Api(ApiKey.CONSUMER_GROUP_DESCRIBE, "groups", 0, 1, 0),
    Api(ApiKey.LIST_CONFIG_RESOURCES, "topics", 0, 1, 0),
    Api(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "cluster", 0, 0, 0),
    Api(ApiKey.SHARE_GROUP_HEARTBEAT, "shares", 1, 1, 0),
    Api(ApiKey.SHARE_GROUP_DESCRIBE, "shares", 1, 1, 0),
    Api(ApiKey.SHARE_FETCH, "shares", 1, 2, 0),
    Api(ApiKey.SHARE_ACKNOWLEDGE, "shares", 1, 2, 0),
    Api(ApiKey.INITIALIZE_SHARE_GROUP_STATE, "shares", 0, 0, 0),
    Api(ApiKey.READ_SHARE_GROUP_STATE, "shares", 0, 0, 0),
    Api(ApiKey.WRITE_SHARE_GROUP_STATE, "shares", 0, 1, 0),
    Api(ApiKey.DELETE_SHARE_GROUP_STATE, "shares", 0, 0, 0),
    Api(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, "shares", 0, 1, 0),
    Api(ApiKey.ALTER_SHARE_GROUP_OFFSETS, "shares", 0, 0, 0),
    Api(ApiKey.DELETE_SHARE_GROUP_OFFSETS, "shares", 0, 0, 0),
)

APIS: Final[Mapping[ApiKey, Api]] = MappingProxyType({api.key: api for api in _TABLE})
"""Every request that is known here, in the order of the keys."""

_BY_NUMBER: Final[dict[int, Api]] = dict(APIS.items())


def find_api(key: int) -> Api | None:
    """The row of a key; None if there is none."""
    return _BY_NUMBER.get(key)


def api_of(key: int) -> Api:
    """The row of a key.

    Raises:
        UnsupportedVersionError: there is none.
    """
    api = _BY_NUMBER.get(key)
    if api is None:
        raise UnsupportedVersionError(f"no request has the key {key}")
    return api
