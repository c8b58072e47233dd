"""Which module answers which request."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from logstore.wire.apis import APIS, ApiKey
from logstore.wire.handlers.call import Answers
from logstore.wire.handlers.cluster import (
    alter_partition_reassignments,
    api_versions,
    describe_cluster,
    describe_log_dirs,
    describe_topic_partitions,
    elect_leaders,
    list_partition_reassignments,
    metadata,
)
from logstore.wire.handlers.groups import (
    consumer_group_describe,
    consumer_group_heartbeat,
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from logstore.wire.handlers.quotas import alter_client_quotas, describe_client_quotas
from logstore.wire.handlers.records import (
    delete_records,
    fetch,
    list_offsets,
    offset_for_leader_epoch,
    produce,
)
from logstore.wire.handlers.security import (
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    describe_acls,
    describe_user_scram_credentials,
    sasl_authenticate,
    sasl_handshake,
)
from logstore.wire.handlers.shares import (
    delete_share_group_state,
    initialize_share_group_state,
    read_share_group_state,
    share_acknowledge,
    share_fetch,
    share_group_describe,
    share_group_heartbeat,
    write_share_group_state,
)
from logstore.wire.handlers.topics import (
    alter_configs,
    create_partitions,
    create_topics,
    delete_topics,
    describe_configs,
    incremental_alter_configs,
    list_config_resources,
)
from logstore.wire.handlers.transactions import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    describe_producers,
    describe_transactions,
    end_txn,
    init_producer_id,
    list_transactions,
    txn_offset_commit,
    write_txn_markers,
)

HANDLERS: Final[Mapping[ApiKey, Answers]] = MappingProxyType(
    {
        ApiKey.PRODUCE: produce,
        ApiKey.FETCH: fetch,
        ApiKey.LIST_OFFSETS: list_offsets,
        ApiKey.METADATA: metadata,
        ApiKey.OFFSET_COMMIT: offset_commit,
        ApiKey.OFFSET_FETCH: offset_fetch,
        ApiKey.FIND_COORDINATOR: find_coordinator,
        ApiKey.JOIN_GROUP: join_group,
        ApiKey.HEARTBEAT: heartbeat,
        ApiKey.LEAVE_GROUP: leave_group,
        ApiKey.SYNC_GROUP: sync_group,
        ApiKey.DESCRIBE_GROUPS: describe_groups,
        ApiKey.LIST_GROUPS: list_groups,
        ApiKey.SASL_HANDSHAKE: sasl_handshake,
        ApiKey.API_VERSIONS: api_versions,
        ApiKey.CREATE_TOPICS: create_topics,
        ApiKey.DELETE_TOPICS: delete_topics,
        ApiKey.DELETE_RECORDS: delete_records,
        ApiKey.INIT_PRODUCER_ID: init_producer_id,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
        ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions_to_txn,
        ApiKey.ADD_OFFSETS_TO_TXN: add_offsets_to_txn,
        ApiKey.END_TXN: end_txn,
        ApiKey.WRITE_TXN_MARKERS: write_txn_markers,
        ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit,
        ApiKey.DESCRIBE_ACLS: describe_acls,
        ApiKey.CREATE_ACLS: create_acls,
        ApiKey.DELETE_ACLS: delete_acls,
        ApiKey.DESCRIBE_CONFIGS: describe_configs,
        ApiKey.ALTER_CONFIGS: alter_configs,
        ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs,
        ApiKey.SASL_AUTHENTICATE: sasl_authenticate,
        ApiKey.CREATE_PARTITIONS: create_partitions,
        ApiKey.DELETE_GROUPS: delete_groups,
        ApiKey.ELECT_LEADERS: elect_leaders,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: alter_partition_reassignments,
        ApiKey.LIST_PARTITION_REASSIGNMENTS: list_partition_reassignments,
        ApiKey.OFFSET_DELETE: offset_delete,
        ApiKey.DESCRIBE_CLIENT_QUOTAS: describe_client_quotas,
        ApiKey.ALTER_CLIENT_QUOTAS: alter_client_quotas,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: describe_user_scram_credentials,
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: alter_user_scram_credentials,
        ApiKey.DESCRIBE_CLUSTER: describe_cluster,
        ApiKey.DESCRIBE_PRODUCERS: describe_producers,
        ApiKey.DESCRIBE_TRANSACTIONS: describe_transactions,
        ApiKey.LIST_TRANSACTIONS: list_transactions,
        ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_group_heartbeat,
        ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_group_describe,
        ApiKey.LIST_CONFIG_RESOURCES: list_config_resources,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
        ApiKey.SHARE_GROUP_HEARTBEAT: share_group_heartbeat,
        ApiKey.SHARE_GROUP_DESCRIBE: share_group_describe,
        ApiKey.SHARE_FETCH: share_fetch,
        ApiKey.SHARE_ACKNOWLEDGE: share_acknowledge,
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: initialize_share_group_state,
        ApiKey.READ_SHARE_GROUP_STATE: read_share_group_state,
        ApiKey.WRITE_SHARE_GROUP_STATE: write_share_group_state,
        ApiKey.DELETE_SHARE_GROUP_STATE: delete_share_group_state,
    }
)
"""In the order of the keys."""


def served(handlers: Mapping[ApiKey, Answers] = HANDLERS) -> dict[int, tuple[int, int]]:
    """The versions of each that clients are told of."""
    return {key: (APIS[key].first_advertised, APIS[key].last) for key in handlers}
