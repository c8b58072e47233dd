"""A follower's fetch session with its leader: what was asked of a partition stands until it is asked
otherwise, and a result has those of which there is news. Of thousands of partitions only those cost anything
of which there is.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple
from uuid import UUID

from logstore.broker.codes import NONE, ErrorCode
from logstore.broker.requests import FetchedPartition, FetchPartition, FetchRequest
from logstore.model import TopicPartition
from logstore.wire.messages.records import fetch
from logstore.wire.remote.connections.codes import code_of_number, why_of_number
from logstore.wire.remote.connections.questions import Reply
from logstore.wire.remote.fetches.messages import (
    LAST_BY_NAME,
    Seen,
    SessionNumbers,
    fetched,
    message_of,
    why_nonsense,
)
from logstore.wire.remote.translate.records import LEFT_OUT


class FetchNews(NamedTuple):
    """What a leader has told: its news, and for each row that is new in the request at least that there is
    nothing new."""

    partitions: tuple[FetchedPartition, ...] = ()
    error: ErrorCode = NONE
    """Of the whole request: then nothing is known of any partition."""
    message: str | None = None


class FollowingSession:
    """See the module. Only versions of the protocol that have sessions are spoken."""

    def __init__(self) -> None:
        self._numbers = SessionNumbers()
        self._uses_ids = False
        self._is_full = True
        """Whether the request that is under way names everything."""
        self._wanted: dict[TopicPartition, FetchPartition] = {}
        """What stands."""
        self._changed: dict[TopicPartition, FetchPartition] = {}
        """What of it the leader was not asked yet."""
        self._forgotten: dict[tuple[TopicPartition, UUID | None], FetchPartition] = {}
        """What stands no more, which the leader does not know yet."""
        self._unanswered: dict[TopicPartition, FetchPartition] = {}
        """Rows of the request that is under way which the leader has not heard before."""
        self._quiet: dict[TopicPartition, FetchedPartition] = {}
        """What it has told last of each, without what it gave."""
        self._topics: dict[UUID | None, str] = {}
        self._unnamed: set[TopicPartition] = set()

    @property
    def has_ids(self) -> bool:
        """Whether the ids of all topics are known."""
        return not self._unnamed

    def change(self, rows: Iterable[FetchPartition], forgotten: Iterable[TopicPartition] = ()) -> None:
        """Ask for these, and for those no more. What stands already costs the leader nothing."""
        for partition in forgotten:
            self._unnamed.discard(partition)
            before = self._wanted.pop(partition, None)
            if before is not None:
                self._changed.pop(partition, None)
                self._forgotten[partition, before.topic_id] = before
        for row in rows:
            partition, topic_id = row.partition, row.topic_id
            before = self._wanted.get(partition)
            if before == row:
                continue
            if before is not None and before.topic_id != topic_id:  # another topic has its name now
                self._forgotten[partition, before.topic_id] = before
            self._forgotten.pop((partition, topic_id), None)
            self._wanted[partition] = self._changed[partition] = row
            self._topics[topic_id] = partition.topic
            if topic_id is None:
                self._unnamed.add(partition)
            else:
                self._unnamed.discard(partition)

    def build(self, request: FetchRequest, version: int) -> fetch.FetchRequest:
        """The request in a version of the protocol. Its partitions do not count: see :meth:`change`."""
        uses_ids = version > LAST_BY_NAME
        if uses_ids is not self._uses_ids:
            self._numbers.restart()
        self._uses_ids = uses_ids
        self._is_full = not self._numbers.is_begun
        changed, forgotten = self._changed, self._forgotten
        self._changed, self._forgotten = {}, {}  # if this fails, the next request names everything
        if self._is_full:
            self._unanswered, self._quiet = self._wanted.copy(), {}
            self._topics = {row.topic_id: row.partition.topic for row in self._wanted.values()}
            return message_of(request, version, self._numbers.pair, self._wanted.values())
        gone = [row for (each, _), row in forgotten.items() if uses_ids or each not in self._wanted]
        for row in gone:
            self._unanswered.pop(row.partition, None)
            self._quiet.pop(row.partition, None)
        self._unanswered |= changed
        return message_of(request, version, self._numbers.pair, changed.values(), gone)

    def news_of(self, reply: Reply) -> FetchNews | None:
        """What a reply means; None if the session is lost, and the request is to be built and sent again."""
        if reply.error is not ErrorCode.NONE:
            self._numbers.restart()
            return FetchNews((), reply.error, reply.message)
        try:
            return self._take(reply.response)
        except Exception as error:  # a broker's word may be anything
            self._numbers.restart()
            return FetchNews((), ErrorCode.UNKNOWN_SERVER_ERROR, why_nonsense(error))

    def _take(self, response: fetch.FetchResponse) -> FetchNews | None:
        match self._numbers.take(response, was_full=self._is_full):
            case Seen.LOST:
                return None
            case Seen.REFUSED:
                number = response.error_code
                return FetchNews((), code_of_number(number), why_of_number(number))
            case Seen.NOTHING:
                return FetchNews()
        found = []
        for topic in response.topics:
            name = self._topics.get(topic.topic_id, "") if self._uses_ids else topic.name
            for each in topic.partitions:
                wanted = self._wanted.get(TopicPartition(name, each.partition))
                if wanted is not None:
                    self._unanswered.pop(wanted.partition, None)
                    found.append(self._note(fetched(wanted, each)))
        unanswered, self._unanswered = self._unanswered, {}
        return FetchNews((*found, *map(self._outcome_without_news, unanswered.values())))

    def _note(self, outcome: FetchedPartition) -> FetchedPartition:
        if outcome.error is NONE and outcome.diverging is None:
            self._quiet[outcome.partition] = outcome._replace(data=b"", aborted=())
        return outcome

    def _outcome_without_news(self, row: FetchPartition) -> FetchedPartition:
        if self._is_full:
            return FetchedPartition(row.partition, ErrorCode.UNKNOWN_SERVER_ERROR, message=LEFT_OUT)
        known = self._quiet.get(row.partition) or FetchedPartition(row.partition, NONE)
        return known._replace(next_offset=row.offset, topic_id=row.topic_id)
