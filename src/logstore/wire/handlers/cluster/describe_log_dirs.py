"""DescribeLogDirs."""

from __future__ import annotations

from collections import defaultdict

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Answered, Pending
from logstore.broker.requests import DescribeLogDirsRequest as Asked
from logstore.broker.requests import DescribeLogDirsResult as Found
from logstore.broker.requests import LogDirectorySize
from logstore.logdir.acls import Operation
from logstore.model import TopicPartition
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.then import then
from logstore.wire.messages.cluster.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    LogDirectory,
    Partition,
    Topic,
)


def answer(call: Call, request: DescribeLogDirsRequest, version: int) -> Pending[DescribeLogDirsResponse]:
    """The sizes of partitions, and the room on the volume."""
    if not call.allows_cluster(Operation.DESCRIBE):
        return Answered(refuse(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, version))
    partitions = None
    if request.topics is not None:
        partitions = tuple(
            TopicPartition(topic.name, each) for topic in request.topics for each in topic.partitions
        )
    return then(call.broker.describe_log_dirs(Asked(partitions)), _response)


def _response(found: Found) -> DescribeLogDirsResponse:
    return DescribeLogDirsResponse(
        error_code=found.error, directories=tuple(_directory(each) for each in found.directories)
    )


def _directory(found: LogDirectorySize) -> LogDirectory:
    topics: defaultdict[str, list[Partition]] = defaultdict(list)
    for (name, number), size_bytes in sorted(found.sizes.items()):
        topics[name].append(Partition(number, size_bytes))
    return LogDirectory(
        found.error,
        found.path,
        tuple(Topic(name, tuple(parts)) for name, parts in topics.items()),
        found.total_bytes,
        found.usable_bytes,
    )


def refuse(request: DescribeLogDirsRequest, code: ErrorCode, version: int) -> DescribeLogDirsResponse:
    """The error. Clients of versions that have no place for it take no directories for a denial."""
    return DescribeLogDirsResponse(error_code=code)
