"""Checks a store without changing it: its own files, and each of its logs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from logstore.errors import (
    ClosedError,
    CorruptionError,
    ForkedError,
    LogstoreError,
    UnknownTopicError,
    is_denied,
)
from logstore.files import Files
from logstore.format.names import partition_directory_name
from logstore.logdir.acls import read_acls
from logstore.logdir.catalogue import TopicEntry, read_catalogue
from logstore.logdir.followed import read_followed
from logstore.logdir.group_settings import read_group_settings
from logstore.logdir.identity import foreign_topic_id, read_identity, wrong_topic_id
from logstore.logdir.quotas import read_quotas
from logstore.logdir.users import read_users
from logstore.model import TopicPartition
from logstore.partition.checking.facts import LogFacts
from logstore.partition.checking.facts_of_files import facts_of_files
from logstore.partition.checking.files import StoredCheckpoints
from logstore.partition.checking.findings import (
    Finding,
    FindingKind,
    Findings,
    OnVerifyProgress,
    VerifyReport,
    join_reports,
    not_opened_finding,
)
from logstore.partition.checking.verify import ProgressSteps, verify_log
from logstore.partition.state.context import LogContext
from logstore.partition.state.home import (
    ACLS_NAME,
    CATALOGUE_NAME,
    FOLLOWED_NAME,
    GROUPS_NAME,
    META_PROPERTIES_NAME,
    QUOTAS_NAME,
    USERS_NAME,
)
from logstore.partition.state.sidecars import METADATA_NAME

if TYPE_CHECKING:
    from logstore.logdir.directory import LogDirectory
    from logstore.logdir.watched import WatchedDirectory

_Source = Callable[[], LogFacts]


def verify_topics(
    directory: LogDirectory | WatchedDirectory,
    names: Sequence[str],
    on_progress: OnVerifyProgress | None,
    *,
    with_store: bool,
) -> VerifyReport:
    """Check the logs of some topics. With ``with_store`` also check the files that belong to no topic, and
    leave out topics that are deleted meanwhile.

    Raises:
        UnknownTopicError: a topic was deleted, without ``with_store``.
        ClosedError: the store is closed.
    """
    context = directory.context
    started_ms = context.clock.monotonic_ms()
    checkpoints = StoredCheckpoints(context.files, context.home.path)
    sources: dict[TopicPartition, _Source] = {}
    total_bytes = 0
    for name in names:
        with _leaving_out(with_store):
            topic = directory.topic(name)
            for number in topic.held_partitions:
                source = _source_of(directory, topic, number, checkpoints)
                total_bytes += source().log_bytes if on_progress is not None else 0
                sources[TopicPartition(name, number)] = source
    steps = None if on_progress is None else ProgressSteps(on_progress, total_bytes)
    reports = []
    for partition, source in sources.items():
        if steps is not None:
            steps.partition = partition
        with _leaving_out(with_store):
            reports.append(verify_log(source, context.clock, steps))
    own = _own_report(context, checkpoints, with_store=with_store)
    return join_reports([own, *reports], context.clock.monotonic_ms() - started_ms)


def verify_partition(directory: LogDirectory | WatchedDirectory, partition: TopicPartition) -> VerifyReport:
    """Check one log, for callers that divide the work. :func:`verify_store_files` checks the rest.

    Raises:
        UnknownTopicError: the topic no longer exists.
    """
    context = directory.context
    checkpoints = StoredCheckpoints(context.files, context.home.path)
    source = _source_of(directory, directory.topic(partition.topic), partition.partition, checkpoints)
    return verify_log(source, context.clock, None)


def verify_store_files(directory: LogDirectory | WatchedDirectory) -> VerifyReport:
    """Check the files that belong to no log: catalogue, identity, quotas, checkpoints."""
    context = directory.context
    return _own_report(context, StoredCheckpoints(context.files, context.home.path), with_store=True)


def _own_report(context: LogContext, checkpoints: StoredCheckpoints, *, with_store: bool) -> VerifyReport:
    whole = Findings(partition_count=0)
    for finding in checkpoints.findings:
        whole.problem(finding)
    if with_store:
        _check_store_files(context, whole)
    return whole.report(0)


def _source_of(
    directory: LogDirectory | WatchedDirectory, topic: TopicEntry, number: int, checkpoints: StoredCheckpoints
) -> _Source:
    """Where the facts about one partition come from: its log, or if that is damaged, its files."""
    partition = TopicPartition(topic.name, number)
    path = f"{directory.path}/{partition_directory_name(*partition)}"
    files = directory.context.files

    def by_its_files() -> LogFacts:
        return facts_of_files(files, path, partition, checkpoints, topic.config, is_clean=False)

    def not_opened(error: LogstoreError) -> LogFacts:
        facts = by_its_files()
        return replace(facts, findings=[*facts.findings, not_opened_finding(path, error)])

    def source() -> LogFacts:
        _check_there(directory, topic)
        try:
            facts = directory.log(partition).facts_to_check(checkpoints)
        except ForkedError:
            raise
        except UnknownTopicError as error:
            if not directory.topic(topic.name).holds(number):
                raise  # its directory was all that told of it, as in a broker's directory
            facts = not_opened(error)
        except ClosedError:  # it is being closed or reopened
            directory.check_open()
            facts = by_its_files()
        except LogstoreError as error:
            if is_denied(error):
                raise
            facts = not_opened(error)
        wrong = _wrong_topic_id(directory.context.files, path, topic)
        return replace(facts, findings=[*facts.findings, *wrong])

    return source


def _leaving_out(is_wanted: bool) -> AbstractContextManager[None]:
    """A context for a topic that may have been deleted; leaves it out if ``is_wanted``."""
    return suppress(UnknownTopicError) if is_wanted else nullcontext()


def _check_there(directory: LogDirectory | WatchedDirectory, topic: TopicEntry) -> None:
    """
    Raises:
        UnknownTopicError: the topic was deleted, even if another one has its name now.
        ClosedError: the store was closed.
    """
    if directory.topic(topic.name).topic_id != topic.topic_id:
        raise UnknownTopicError(f"topic {topic.name!r} was deleted from {directory.path} and created again")


def _wrong_topic_id(files: Files, path: str, topic: TopicEntry) -> list[Finding]:
    try:
        foreign = foreign_topic_id(files, path, topic.topic_id)
    except LogstoreError:
        return []  # the check of the partition reports it
    if foreign is None:
        return []
    reason = wrong_topic_id(foreign, topic.name, topic.topic_id)
    return [Finding(kind=FindingKind.METADATA, path=f"{path}/{METADATA_NAME}", reason=reason)]


def _check_store_files(context: LogContext, findings: Findings) -> None:
    """Check the catalogue, the identity, the quotas, the users and the ACLs."""
    files, path = context.files, context.home.path

    def check(name: str, kind: FindingKind, read: Callable[[], object]) -> None:
        try:
            read()
        except LogstoreError as error:
            if is_denied(error):
                raise
            reason = error.reason if isinstance(error, CorruptionError) else str(error)
            findings.problem(Finding(kind=kind, path=f"{path}/{name}", reason=reason))

    check(CATALOGUE_NAME, FindingKind.METADATA, lambda: read_catalogue(files, path))
    check(META_PROPERTIES_NAME, FindingKind.METADATA, lambda: read_identity(files, path))
    check(QUOTAS_NAME, FindingKind.METADATA, lambda: read_quotas(files, path))
    check(USERS_NAME, FindingKind.METADATA, lambda: read_users(files, path))
    check(ACLS_NAME, FindingKind.METADATA, lambda: read_acls(files, path))
    check(FOLLOWED_NAME, FindingKind.METADATA, lambda: read_followed(files, path))
    check(GROUPS_NAME, FindingKind.METADATA, lambda: read_group_settings(files, path))
