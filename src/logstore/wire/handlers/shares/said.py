"""What a client says of records, as the broker takes it: checked, and cut where its kind changes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby
from typing import Final, NamedTuple

from logstore.broker.codes import ErrorCode
from logstore.broker.share.partition import Acknowledgement
from logstore.broker.share.requests import (
    AcknowledgeBatch,
    AcknowledgePartition,
    ShareAcknowledgeRequest,
    TopicIdPartition,
)
from logstore.errors import LogstoreError
from logstore.logdir.acls import Operation
from logstore.model import TopicPartition
from logstore.warning import warn
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.resolving import resolve
from logstore.wire.handlers.share_sessions import Member, Place
from logstore.wire.messages.shares.acknowledged import Acknowledgements, Topic

_KINDS: Final = {int(each): each for each in Acknowledgement if each >= 0}


class Said(NamedTuple):
    """What a request says, partition by partition."""

    partitions: tuple[AcknowledgePartition, ...]
    refused: dict[Place, ErrorCode]

    @classmethod
    def of(cls, call: Call, topics: Iterable[Topic], *, may_renew: bool) -> Said:
        """``may_renew``: the request says that locks are to be renewed."""
        found: dict[Place, AcknowledgePartition] = {}
        refused: dict[Place, ErrorCode] = {}
        for topic in topics:
            for each in topic.partitions:
                if not each.acknowledgements:
                    continue
                place = (topic.topic_id, each.partition)
                batches = _batches(each.acknowledgements, may_renew=may_renew)
                partition, code = place_of(call, place)
                if batches is None or partition is None:
                    refused[place] = ErrorCode.INVALID_REQUEST if batches is None else code
                else:
                    found[place] = AcknowledgePartition(partition, batches, is_whole=True)
        return cls(tuple(found.values()), refused)


def place_of(call: Call, place: Place) -> tuple[TopicIdPartition | None, ErrorCode]:
    """A partition that the client may read; or why not."""
    name, code = resolve(call, Operation.READ, "", place[0])
    if code is not ErrorCode.NONE:
        return None, code
    return TopicIdPartition(TopicPartition(name, place[1]), place[0]), code


def _batches(said: Iterable[Acknowledgements], *, may_renew: bool) -> tuple[AcknowledgeBatch, ...] | None:
    """None if they make no sense: they are to be in order, each with one kind or a kind for each offset."""
    found: list[AcknowledgeBatch] = []
    end = 0
    for first, last, kinds in said:
        if not end <= first <= last or not kinds or len(kinds) not in (1, last - first + 1):
            return None
        if not all(each in _KINDS for each in kinds) or (Acknowledgement.RENEW in kinds and not may_renew):
            return None
        found += _runs(first, last, kinds)
        end = last + 1
    return tuple(found)


def _runs(first: int, last: int, kinds: tuple[int, ...]) -> Iterator[AcknowledgeBatch]:
    if len(kinds) == 1:
        yield AcknowledgeBatch(first, last, _KINDS[kinds[0]])
        return
    for kind, run in groupby(kinds):
        count = sum(1 for _ in run)
        yield AcknowledgeBatch(first, first + count - 1, _KINDS[kind])
        first += count


def check(call: Call, group: str | None, member_id: str | None) -> ErrorCode:
    """Whether the client may ask something of a share group, and names what is needed."""
    if not group or not member_id:
        return ErrorCode.INVALID_REQUEST
    if not call.allows_group(Operation.READ, group):
        return ErrorCode.GROUP_AUTHORIZATION_FAILED
    return ErrorCode.NONE


def release_rest(call: Call, member: Member) -> None:
    """The connection on which a session began is gone: what the member has goes to the others."""
    request = ShareAcknowledgeRequest(member.group, member.member_id, (), releases_rest=True)
    try:
        call.node.broker.share_acknowledge(request)
    except LogstoreError as error:  # the store is being closed: all locks end with it
        warn("share group %r: %s", member.group, error)
