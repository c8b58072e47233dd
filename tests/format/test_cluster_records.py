"""Records of a cluster's metadata log: those that tell of topics, and what is no such record."""

from __future__ import annotations

import contextlib
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from logstore.errors import CorruptionError, LogstoreError, UnsupportedVersionError
from logstore.format.cluster_records import (
    ABORT_TRANSACTION_RECORD,
    BEGIN_TRANSACTION_RECORD,
    CLUSTER_LAYOUTS,
    CONFIG_RECORD,
    END_TRANSACTION_RECORD,
    PARTITION_CHANGE_RECORD,
    PARTITION_RECORD,
    REMOVE_TOPIC_RECORD,
    TOPIC_RECORD,
    decode_cluster_record,
)

ID = uuid.UUID("35baa889-ea69-43fa-bd50-47eb20e361ae")
OTHER = uuid.UUID(int=7)

# Frame version, type, version; fields; number of tagged fields, and for each its tag, size and bytes.
RECORDS = [
    (TOPIC_RECORD, "010200 07 6f7264657273" + ID.hex + "00", {"name": "orders", "topic_id": ID}),
    (REMOVE_TOPIC_RECORD, "010900" + ID.hex + "00", {"topic_id": ID}),
    (
        CONFIG_RECORD,
        "010400 02 02 74 0d 726574656e74696f6e2e6d73 03 2d31 00",
        {"resource_type": 2, "resource_name": "t", "name": "retention.ms", "value": "-1"},
    ),
    (
        CONFIG_RECORD,
        "010400 02 02 74 02 61 00 00",
        {"resource_type": 2, "resource_name": "t", "name": "a", "value": None},
    ),
    (BEGIN_TRANSACTION_RECORD, "011700 01 00 02 02 68", {"name": "h"}),
    (BEGIN_TRANSACTION_RECORD, "011700 00", {"name": None}),
    (END_TRANSACTION_RECORD, "011800 00", {}),
    (ABORT_TRANSACTION_RECORD, "011900 00", {"reason": None}),
    (
        PARTITION_RECORD,
        "010301 00000002"
        + ID.hex
        + "02 00000001 02 00000001 01 01 00000001 00000005 00000006 02"
        + OTHER.hex
        + "00",
        {
            "partition": 2,
            "topic_id": ID,
            "replicas": [1],
            "isr": [1],
            "removing_replicas": [],
            "adding_replicas": [],
            "leader": 1,
            "leader_recovery_state": 0,
            "leader_epoch": 5,
            "partition_epoch": 6,
            "directories": [OTHER],
            "eligible_leader_replicas": None,
            "last_known_elr": None,
        },
    ),
    (
        PARTITION_CHANGE_RECORD,
        "010500 00000000" + ID.hex + "03 01 04 ffffffff 02 09 03 00000001 00000002 63 01 ff",
        {
            "partition": 0,
            "topic_id": ID,
            "isr": None,
            "leader": -1,
            "replicas": [1, 2],
            "removing_replicas": None,
            "adding_replicas": None,
            "leader_recovery_state": -1,
            "eligible_leader_replicas": None,
            "last_known_elr": None,
            "directories": None,
        },
    ),
]


@pytest.mark.parametrize(("layout", "text", "fields"), RECORDS)
def test_a_record_is_read(layout, text, fields):
    record = decode_cluster_record(bytes.fromhex(text))
    assert record is not None
    assert record.layout is layout
    assert record.fields == fields


@pytest.mark.parametrize(("layout", "text", "fields"), RECORDS)
def test_a_record_that_is_cut_is_damage(layout, text, fields):
    data = bytes.fromhex(text)
    for size in range(3, len(data)):
        with pytest.raises(CorruptionError):
            decode_cluster_record(data[:size])
    with pytest.raises(CorruptionError, match="followed by 1 bytes"):
        decode_cluster_record(data + b"\0")


def test_other_types_are_passed_over():
    assert decode_cluster_record(bytes.fromhex("011400 00")) is None  # NoOpRecord


def test_newer_versions_are_not_guessed_at():
    with pytest.raises(UnsupportedVersionError, match="TopicRecord has version 1; up to 0 is known"):
        decode_cluster_record(bytes.fromhex("010201"))
    with pytest.raises(UnsupportedVersionError, match="frame version 2"):
        decode_cluster_record(bytes.fromhex("020200"))


def test_lengths_are_held_against_the_bytes():
    with pytest.raises(CorruptionError, match="ends after its record"):
        decode_cluster_record(bytes.fromhex("010200 7f 6f"))
    with pytest.raises(CorruptionError, match="above the limit"):
        decode_cluster_record(bytes.fromhex("010200 ffffff7f 6f"))
    with pytest.raises(CorruptionError, match="do not fit"):
        decode_cluster_record(bytes.fromhex("010300 00000002" + ID.hex + "ffff03"))
    with pytest.raises(CorruptionError, match="a string is null"):
        decode_cluster_record(bytes.fromhex("010200 00" + ID.hex + "00"))


@given(st.sampled_from(CLUSTER_LAYOUTS), st.integers(0, 2), st.binary(max_size=120))
def test_any_bytes_are_a_record_or_an_error_of_ours(layout, version, data):
    with contextlib.suppress(LogstoreError):
        decode_cluster_record(bytes([1, layout.key, version]) + data)
