"""What a store notes of its pushes, as offsets of a group of its own.

The cluster's offsets say how far all is. But a cluster forgets those of a group that has not committed for
long, 7 days with Kafka's defaults, and from then on looks like one into which nothing was ever pushed. A note
here tells the two apart. It may be behind, and is not where a push goes on.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Mapping

from logstore.clients.offsets import Offsets
from logstore.errors import LogstoreError, OutOfOrderError
from logstore.format.metadata import encode_base64_uuid
from logstore.model import OffsetAndMetadata, TopicPartition
from logstore.store import Store


class PushedNotes:
    """The notes of one name. Used by one thread."""

    def __init__(self, store: Store, group: str) -> None:
        self._store = store
        self._group = group
        self.cluster_id = ""
        """To be set before anything is noted, or asked for."""

    @property
    def _offsets(self) -> Offsets:
        return self._store.offsets(f"{self._group}@{self.cluster_id}")

    def note(self, positions: Mapping[TopicPartition, int], ids: Mapping[str, uuid.UUID | None]) -> None:
        """What cannot be noted, as on a full disk, holds up nothing.

        Args:
            ids: of the topics at the cluster.
        """
        values = {
            partition: OffsetAndMetadata(position, encode_base64_uuid(topic_id))
            for partition, position in positions.items()
            if (topic_id := ids.get(partition.topic)) is not None
        }
        if values:
            with contextlib.suppress(LogstoreError):
                self._offsets.commit(values)

    def check_new(self, partition: TopicPartition, own_id: uuid.UUID, topic_id: uuid.UUID | None) -> None:
        """
        Args:
            own_id: of the topic here; ``topic_id``: of the one at the cluster.

        Raises:
            OutOfOrderError: the cluster has no offset of the partition, although it was pushed there.
        """
        noted = self._offsets.get(partition)
        if noted is None or topic_id is None or noted.metadata != encode_base64_uuid(topic_id):
            return
        own = encode_base64_uuid(own_id)
        raise OutOfOrderError(
            f"{partition} was pushed up to offset {noted.offset}, as is noted here, and the cluster has no "
            f"offset of group {self._group!r} for it any more: it keeps those of a group that commits "
            "nothing for offsets.retention.minutes, 7 days by default. If the records are there, commit "
            f"it by offsets({self._group!r}) of the connection: commit({{{tuple(partition)}: "
            f"OffsetAndMetadata({noted.offset}, '{own} {noted.offset}')}}). If not, push under another name, "
            "and all is pushed again"
        )
