"""What Kafka calls the fields that have another name here. Units apart: see `same_name`."""

from __future__ import annotations

RENAMED = {
    "acknowledgements": ["acknowledgement_batches"],
    "acls": ["matching_acls"],
    "apis": ["api_keys"],
    "authorized_operations": ["topic_authorized_operations"],
    "committed": ["transaction_result"],
    "config_error_code": ["topic_config_error_code"],
    "credentials": ["credential_infos"],
    "directories": ["results"],
    "duration": ["duration_filter"],
    "eligible_replicas": ["eligible_leader_replicas"],
    "error_code": ["partition_error_code"],
    "error_message": ["batch_index_error_message"],
    "filters": ["filter_results"],
    "forgotten_topics": ["forgotten_topics_data"],
    "groups": ["groups_names", "results"],
    "isr": ["isr_nodes"],
    "keys": ["configuration_keys", "coordinator_keys"],
    "last_known_eligible_replicas": ["last_known_elr"],
    "leader_epoch": ["committed_leader_epoch"],
    "max_bytes": ["partition_max_bytes"],
    "metadata": ["committed_metadata"],
    "name": ["topic", "topic_name"],
    "offset": ["committed_offset"],
    "operations": ["ops"],
    "partition": ["index", "partition_id", "partition_index"],
    "partition_count": ["count", "num_partitions"],
    "partitions": [
        "partition_data",
        "partition_indexes",
        "partition_responses",
        "partition_result",
        "results_by_partition",
    ],
    "path": ["log_dir"],
    "producer_epoch": ["v3_and_below_producer_epoch"],
    "producer_id": ["v3_and_below_producer_id"],
    "producers": ["active_producers"],
    "replicas": ["replica_nodes"],
    "resources": ["responses", "results"],
    "size_bytes": ["partition_size"],
    "topic": ["topic_name"],
    "topics": [
        "replica_election_results",
        "responses",
        "results",
        "results_by_topic_v3_and_below",
        "topic_data",
        "topic_partitions",
        "topic_results",
        "v3_and_below_topics",
    ],
    "transactional_id": ["v3_and_below_transactional_id"],
    "transactions": ["results_by_transaction", "transaction_states"],
    "users": ["results"],
}


def same_name(ours, theirs):
    """Whether a field of ours is Kafka's field."""
    ours, theirs = ours.removesuffix("_ms"), theirs.removesuffix("_ms")
    return ours == theirs or theirs in RENAMED.get(ours, ())
