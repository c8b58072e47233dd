"""End transactions in partitions: how a transaction coordinator tells the leaders."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Bool, Int8, Int16, Int32, Int64, String, since


class Topic(NamedTuple):
    """Partitions of one topic that get the marker."""

    name: String = ""
    partitions: tuple[Int32, ...] = ()


class Marker(NamedTuple):
    """The end of one transaction."""

    producer_id: Int64 = 0
    producer_epoch: Int16 = 0
    committed: Bool = False
    """False: aborted."""
    topics: tuple[Topic, ...] = ()
    coordinator_epoch: Int32 = 0
    transaction_version: Annotated[Int8, since(2)] = 0
    """2: the epoch of each transaction is higher (KIP-890)."""


class WriteTxnMarkersRequest(NamedTuple):
    """The markers."""

    markers: tuple[Marker, ...] = ()


class PartitionResult(NamedTuple):
    """What became of a marker."""

    partition: Int32 = 0
    error_code: Int16 = 0


class TopicResult(NamedTuple):
    """The partitions of one topic."""

    name: String = ""
    partitions: tuple[PartitionResult, ...] = ()


class MarkerResult(NamedTuple):
    """The partitions of one producer."""

    producer_id: Int64 = 0
    topics: tuple[TopicResult, ...] = ()


class WriteTxnMarkersResponse(NamedTuple):
    """What became of the markers."""

    markers: tuple[MarkerResult, ...] = ()
