"""Decides what a handover copies, and whether it may. Changes nothing.

Finds every reason against the handover before anything is copied, and reports all of them together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from logstore.arguments import did_you_mean
from logstore.config import TopicConfig
from logstore.errors import CorruptionError, DiskFullError, LogstoreError, UnknownTopicError, UsageError
from logstore.exchange.marks import read_mark, staged_marks
from logstore.exchange.place import Place
from logstore.exchange.report import HandedPartition
from logstore.exchange.share_groups import CarriedState, plan_share_groups
from logstore.files import Files, read_whole_file
from logstore.format.index import used_bytes
from logstore.format.layout import BATCH_HEADER, OFFSET_INDEX_ENTRY, TIME_INDEX_ENTRY
from logstore.format.names import (
    DELETED_SUFFIX,
    INDEX_SUFFIX,
    INTERNAL_PREFIX,
    LOG_SUFFIX,
    OFFSETS_TOPIC,
    SHARE_STATE_TOPIC,
    TIME_INDEX_SUFFIX,
    segment_file_name,
)
from logstore.large_files import foreign_owner, free_bytes
from logstore.logdir.catalogue import TopicEntry
from logstore.logdir.held import shown_numbers
from logstore.logdir.identity import list_strays, read_identity
from logstore.model import TopicPartition
from logstore.partition.recovery.leftovers import list_segment_files, segment_bases
from logstore.partition.segments.walk import PIECE_BYTES, Piece, Walk
from logstore.partition.state.sidecars import read_epochs, read_snapshot, read_topic_id

_KAFKA_RETENTION_MS = 604_800_000
_UNLIMITED = -1
_MOVE_TOGETHER = (
    "start it and let it move all partitions of the topic into one of them (kafka-reassign-partitions.sh, "
    "with log_dirs)"
)
_INDEX_ENTRIES = {INDEX_SUFFIX: OFFSET_INDEX_ENTRY, TIME_INDEX_SUFFIX: TIME_INDEX_ENTRY}


@dataclass(slots=True)
class PlannedPartition:
    """One partition, and what will be done with it."""

    partition: TopicPartition
    source_directory: str
    target_directory: str
    config: TopicConfig
    """The settings used to finish the copy."""
    is_foreign: bool
    """Whether the settings under which the source was written are not known."""
    topic_id: str
    """The topic id of the source."""
    log_start_offset: int
    log_end_offset: int
    file_bytes: dict[str, int]
    """How much of each file of the source's segments is copied."""
    epoch_limit: int | None
    """The highest leader epoch that a batch may have; None if there is no limit."""
    latest_epoch: int
    """The latest leader epoch of the source; 2^31 - 1 if that is not known."""
    open_producers: tuple[int, ...]
    was_placed: bool = False
    """Whether the target has it already, as after an earlier call."""

    @property
    def size_bytes(self) -> int:
        return sum(self.file_bytes.values())

    @property
    def lowers_epochs(self) -> bool:
        return self.epoch_limit is not None and self.latest_epoch > self.epoch_limit

    @property
    def told(self) -> HandedPartition:
        return HandedPartition(
            partition=self.partition,
            log_start_offset=self.log_start_offset,
            log_end_offset=self.log_end_offset + len(self.open_producers),  # each gets a marker
            size_bytes=self.size_bytes,
            lowered_epoch=self.epoch_limit if self.lowers_epochs else None,
            aborted=self.open_producers,
            was_placed=self.was_placed,
        )


@dataclass(slots=True)
class Plan:
    """The whole handover."""

    partitions: list[PlannedPartition] = field(default_factory=list)
    missing_topics: dict[str, tuple[int, TopicConfig]] = field(default_factory=dict)
    """Topics to create in the target store: name -> number of partitions, settings."""
    share_states: list[CarriedState] = field(default_factory=list)
    """How far share groups have come."""
    notes: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def check(self, source: str, target: str) -> None:
        """
        Raises:
            UsageError: there are reasons against the handover; lists all of them.
        """
        if self.problems:
            listed = "\n".join(f"  - {problem}" for problem in self.problems)
            raise UsageError(f"{source} is not handed over to {target}; nothing was changed:\n{listed}")


def choose_topics(source: Place, names: Iterable[str] | None, *, is_to_broker: bool) -> list[str]:
    """The topics to hand over: the named ones, or all except a broker's internal ones. The states of share
    groups may be among them.

    Raises:
        UnknownTopicError: the source has no such topic.
        UsageError: an internal topic should go to a broker, which has its own; or there is no topic.
    """
    there = source.topic_names()
    if names is None:
        chosen = [name for name in there if not name.startswith(INTERNAL_PREFIX)]
        if not chosen:
            raise UsageError(f"{source.path} has no topics to hand over")
        return chosen
    if isinstance(names, str):
        raise UsageError(f"topics is {names!r}; give a list of names")
    chosen = list(dict.fromkeys(names))
    unknown = [name for name in chosen if name not in there]
    if unknown:
        hint = did_you_mean(unknown[0] if len(unknown) == 1 else None, there)
        raise UnknownTopicError(f"there is no topic {', '.join(map(repr, unknown))} in {source.path}{hint}")
    for name in chosen:
        if (
            is_to_broker
            and name.startswith(INTERNAL_PREFIX)
            and name not in (OFFSETS_TOPIC, SHARE_STATE_TOPIC)
        ):
            raise UsageError(f"topic {name!r} is internal to a broker and its cluster; leave it out")
    if chosen == [SHARE_STATE_TOPIC]:
        raise UsageError(
            f"topic {SHARE_STATE_TOPIC!r} is handed over with others: name those that share groups work on"
        )
    return chosen


def plan_handover(
    source: Place,
    target: Place | None,
    target_path: str,
    topics: list[str],
    *,
    abort_transactions: bool,
    accept_settings: bool,
) -> Plan:
    """Plan the handover; ``target`` is None if the target store does not exist yet.

    Raises:
        CorruptionError: a file that must be read for the plan is damaged.
        DiskFullError: the copies do not fit.
    """
    plan = Plan()
    if target is not None:
        _check_place(plan, target)
    for name in topics:
        if name == SHARE_STATE_TOPIC:
            continue
        _plan_topic(plan, source, target, target_path, name, accept_settings=accept_settings)
    if SHARE_STATE_TOPIC in topics:
        _plan_share_states(plan, source, target)
    if not abort_transactions:
        _refuse_open_transactions(plan)
    if not plan.problems:
        _check_room(plan, source, target, target_path)
    return plan


def _check_place(plan: Plan, target: Place) -> None:
    owner = foreign_owner(target.files, target.path)
    if owner is not None:
        plan.problems.append(
            f"{target.path} belongs to user {owner}, who could not use files of another user: run the "
            f"handover as that user (sudo -u '#{owner}' ...)"
        )
    if target.is_brokers and target.cluster is None:
        plan.problems.append(
            f"{target.path} is a broker's, but its metadata log, which has topic ids and replicas, is not "
            "there: give the directory of metadata.log.dir as target_metadata. A broker with ZooKeeper has "
            "none, and topics cannot be handed to it"
        )


def _plan_topic(
    plan: Plan,
    source: Place,
    target: Place | None,
    target_path: str,
    name: str,
    *,
    accept_settings: bool,
) -> None:
    entry = source.topic(name)
    partition_count = source.partition_count(name)
    if len(entry.held_partitions) < partition_count:
        plan.problems.append(_held_in_part(source, entry, partition_count))
        return
    try:
        config, left_out = source.settings_of(name)
    except LogstoreError as error:
        plan.problems.append(f"the settings of topic {name!r}: {error}")
        return
    is_foreign = source.is_brokers and (source.cluster is None or name not in source.cluster)
    if is_foreign:
        plan.notes.append(_unknown(source, name))
    if left_out:
        plan.notes.append(f"topic {name!r}: logstore does not have {', '.join(left_out)}")
    if target is None or (not target.is_brokers and name not in target.topic_names()):
        plan.missing_topics[name] = partition_count, config
    elif not _check_topic(plan, target, name, partition_count):
        return
    elif target.is_brokers and not accept_settings:
        plan.problems += _losses_by_settings(target, name, config)
    for number in entry.held_partitions:
        partition = TopicPartition(name, number)
        try:
            plan.partitions.append(_plan_partition(plan, source, target, target_path, partition, is_foreign))
        except _RefusedError as refused:
            plan.problems.append(str(refused))
        except CorruptionError as error:
            plan.problems.append(f"{partition} of the source cannot be read: {error}")


def _unknown(source: Place, name: str) -> str:
    """What a broker's directory does not tell of a topic."""
    if source.cluster is not None:
        return f"the settings of topic {name!r} are not known: it is not in the metadata log"
    return (
        f"the settings of topic {name!r} are not known, nor whether it has partitions elsewhere behind its "
        "last one here: there is no metadata log. If the broker has one, give its place as source_metadata"
    )


def _held_in_part(place: Place, entry: TopicEntry, partition_count: int) -> str:
    told = (
        f"topic {entry.name!r}: {place.path} holds partitions {shown_numbers(entry.held_partitions)} of "
        f"{partition_count} only, and a topic is handed over whole. "
    )
    if not place.is_brokers:
        return f"{told}Copy the directories of all partitions into one store, and hand that over"
    return (
        f"{told}If the broker has the others in another of its log.dirs, {_MOVE_TOGETHER}. If other brokers "
        "have them, copy the directories of all partitions into one store, with their lines of "
        "log-start-offset-checkpoint, and hand that over"
    )


def _plan_share_states(plan: Plan, source: Place, target: Place | None) -> None:
    elsewhere = [problem for place in (source, target) for problem in _share_states_elsewhere(place)]
    if elsewhere:
        plan.problems += elsewhere
        return
    ends = {each.partition: each.log_end_offset for each in plan.partitions}
    plan.share_states, problems = plan_share_groups(source, target, ends, plan.missing_topics)
    plan.problems += problems


def _share_states_elsewhere(place: Place | None) -> list[str]:
    """What is against a place that has not all partitions of the topic with the states. Which of them has a
    state follows from how many there are."""
    if place is None:
        return []
    if SHARE_STATE_TOPIC in place.topic_names():
        entry, count = place.topic(SHARE_STATE_TOPIC), place.partition_count(SHARE_STATE_TOPIC)
        return [_held_in_part(place, entry, count)] if len(entry.held_partitions) < count else []
    if place.cluster is None or SHARE_STATE_TOPIC not in place.cluster:
        return []
    return [f"topic {SHARE_STATE_TOPIC!r} is in another of the broker's log.dirs: {_MOVE_TOGETHER}"]


class _RefusedError(Exception):
    """A partition that cannot be handed over, and why."""


def _check_topic(plan: Plan, target: Place, name: str, partition_count: int) -> bool:
    """Check that the target has the topic with the same partitions; adds a problem if not."""
    if not target.is_brokers:
        entry = target.topic(name)
        if entry.held is not None:
            plan.problems.append(_held_in_part(target, entry, entry.partition_count))
            return False
        count: int | None = entry.partition_count
    elif target.cluster is None:
        return False
    else:
        told = target.cluster.get(name)
        count = None if told is None else told.partition_count
    if count is None:
        plan.problems.append(
            f"the broker has no topic {name!r}: start it and create the topic, with {partition_count} "
            "partitions, replication factor 1 and its settings; then stop it"
        )
    elif count != partition_count:
        plan.problems.append(
            f"topic {name!r} has {partition_count} partitions in the source and {count} in the target: "
            "clients would look for keys in the wrong partitions"
        )
    return count == partition_count


def _losses_by_settings(target: Place, name: str, config: TopicConfig) -> Iterator[str]:
    """The limits of the broker's topic that would soon delete records that the source keeps."""
    assert target.cluster is not None
    settings = target.cluster[name].settings
    how = f"set it with kafka-configs.sh --alter --topic {name} --add-config, or accept the broker's settings"
    policy = settings.get("cleanup.policy", "delete")
    if "compact" in policy and not config.compacts:
        yield f"topic {name!r} is compacted by the broker and not in the source; {how}"
    if "delete" not in policy:
        return
    told = settings.get("retention.ms")
    theirs, ours = int(told or _KAFKA_RETENTION_MS), config.retention_ms if config.deletes else _UNLIMITED
    if theirs != _UNLIMITED and (ours == _UNLIMITED or theirs < ours):
        what = f"is {told}" if told else f"is not set (Kafka's default is {_KAFKA_RETENTION_MS}, 7 days)"
        yield f"topic {name!r}: retention.ms of the broker {what}, that of the source is {ours}; {how}"
    theirs = int(settings.get("retention.bytes", _UNLIMITED))
    ours = config.retention_bytes if config.deletes else _UNLIMITED
    if theirs != _UNLIMITED and (ours == _UNLIMITED or theirs < ours):
        yield f"topic {name!r}: retention.bytes of the broker is {theirs}, that of the source {ours}; {how}"


def _plan_partition(
    plan: Plan,
    source: Place,
    target: Place | None,
    target_path: str,
    partition: TopicPartition,
    is_foreign: bool,
) -> PlannedPartition:
    log = source.log(partition)
    directory = source.directory_of(partition)
    files = source.files
    limit = None
    if target is not None and target.is_brokers:
        limit = _check_brokers_partition(target, partition)
    end_offset = log.log_end_offset
    snapshot = read_snapshot(files, directory, end_offset) or []
    planned = PlannedPartition(
        partition=partition,
        source_directory=directory,
        target_directory=f"{target_path}/{directory.rpartition('/')[2]}",
        config=source.settings_of(partition.topic)[0],
        is_foreign=is_foreign,
        topic_id=str(source.topic(partition.topic).topic_id),
        log_start_offset=log.log_start_offset,
        log_end_offset=end_offset,
        file_bytes=_bytes_to_copy(files, directory),
        epoch_limit=limit,
        latest_epoch=_latest_epoch(source, directory),
        open_producers=tuple(each.producer_id for each in snapshot if each.transaction_first_offset >= 0),
    )
    if target is not None and partition.topic not in plan.missing_topics:
        _check_target_partition(target, planned)
    return planned


def _bytes_to_copy(files: Files, directory: str) -> dict[str, int]:
    """How much of each segment file to copy: all, but not the zeros behind the entries of the last indexes. A
    broker makes those at full size, 20 MiB for a partition, and cuts them when it stops cleanly."""
    names = list_segment_files(files, directory)
    last = max(segment_bases(names), default=-1)
    found = {}
    for name, parsed in sorted(names.items()):
        if parsed.state == DELETED_SUFFIX:
            continue
        path, layout = f"{directory}/{name}", _INDEX_ENTRIES.get(parsed.suffix)
        if layout is None or parsed.base_offset != last:
            found[name] = files.size_bytes(path)
        else:
            found[name] = used_bytes(read_whole_file(files, path), layout)
    return found


def _latest_epoch(source: Place, directory: str) -> int:
    """The latest leader epoch of a log. Without a history, batches may have any epoch."""
    epochs = read_epochs(source.files, directory)
    return 2**31 - 1 if epochs is None else epochs.latest_epoch


def _check_brokers_partition(target: Place, partition: TopicPartition) -> int:
    """The latest leader epoch in which the broker has led the partition. Its next epoch is not lower, and the
    log must not have a higher one.

    Raises:
        _RefusedError: other brokers have a replica, or the directory belongs to another topic.
    """
    assert target.cluster is not None
    told = target.cluster[partition.topic]
    identity = read_identity(target.files, target.path)
    replicas = told.replicas.get(partition.partition, ())
    node_id = identity.node_id if identity is not None else None
    if replicas != (node_id,):
        raise _RefusedError(
            f"{partition} has its replicas on the nodes {list(replicas)}; it must be on {node_id} alone: "
            "an empty replica elsewhere could become the leader, and the records would be truncated. Create "
            "the topic with replication factor 1, and add replicas after the handover"
        )
    directory = target.directory_of(partition)
    if not target.files.is_directory(directory):
        strays = list_strays(target.files, target.path)
        for mark in staged_marks(target.files, target.path, partition, strays).values():
            directory = f"{target.path}/{mark.set_aside}" if mark is not None else directory
    if not target.files.is_directory(directory):
        raise _RefusedError(
            f"{directory} does not exist. If the broker keeps {partition} in another of its log.dirs, "
            f"{_MOVE_TOGETHER}; if it has not created it yet, start it"
        )
    topic_id = read_topic_id(target.files, directory)
    if topic_id != told.topic_id:
        raise _RefusedError(
            f"{directory} belongs to a topic with id {topic_id}, but in the broker's metadata "
            f"{told.name!r} has {told.topic_id}"
        )
    epochs = read_epochs(target.files, directory)
    return 0 if epochs is None else max(epochs.latest_epoch, 0)


def _check_target_partition(target: Place, planned: PlannedPartition) -> None:
    """
    Raises:
        _RefusedError: it has records that did not come from this handover.
    """
    directory, files = planned.target_directory, target.files
    if not files.is_directory(directory):
        return  # opening a store reports that; or an interrupted call has set it aside
    mark = read_mark(files, directory)
    if mark is not None:
        planned.was_placed = (mark.topic_id, mark.source_end_offset) == (
            planned.topic_id,
            planned.log_end_offset,
        )
        if not planned.was_placed:
            raise _RefusedError(
                f"{planned.partition} was placed in the target by an interrupted handover of another log, or "
                f"of this one when it ended at offset {mark.source_end_offset} (now "
                f"{planned.log_end_offset}). Delete the topic in the target, and start again"
            )
        return
    planned.was_placed = _holds_log(target, planned)
    for name, parsed in list_segment_files(files, directory).items():
        is_log = parsed.suffix == LOG_SUFFIX and parsed.state != DELETED_SUFFIX
        if is_log and not planned.was_placed and files.size_bytes(f"{directory}/{name}"):
            raise _RefusedError(
                f"{planned.partition} has records in the target ({directory}/{name}), which would be lost; "
                "hand over to an empty topic"
            )


def _holds_log(target: Place, planned: PlannedPartition) -> bool:
    """Whether the target has every batch of the source already, compared byte by byte, as after an earlier
    call that removed its mark. Records appended since do no harm. If something was deleted, cut or compacted
    in the target since, this cannot be shown: False. Nor can it if the source has no batches; deleted records
    serve as long as their segment is there. Cost: reads the source's log from its start on, and as much of
    the target's, up to the first difference."""
    bases = _bases_from(target.files, planned.source_directory, planned.log_start_offset)
    if not any(_log_bytes(target.files, planned.source_directory, base) for base in bases):
        return False
    try:
        log = target.log(planned.partition)
        start_offset, end_offset = log.log_start_offset, log.log_end_offset
    except LogstoreError:
        return False
    if start_offset > planned.log_start_offset or end_offset < planned.log_end_offset:
        return False
    return all(_holds_segment(target.files, planned, base, is_last=base == bases[-1]) for base in bases)


def _bases_from(files: Files, directory: str, log_start_offset: int) -> list[int]:
    """The segments of a log that are not wholly below its start: those go when the target is opened."""
    bases = segment_bases(list_segment_files(files, directory))
    below = sum(base <= log_start_offset for base in bases)
    return bases[max(below - 1, 0) :]


def _log_bytes(files: Files, directory: str, base: int) -> int:
    return files.size_bytes(f"{directory}/{segment_file_name(base, LOG_SUFFIX)}")


def _holds_segment(files: Files, planned: PlannedPartition, base: int, *, is_last: bool) -> bool:
    """Whether the target has a segment of the source with the same batches; in the last one there may be more
    behind them."""
    name = segment_file_name(base, LOG_SUFFIX)
    if not files.is_file(f"{planned.target_directory}/{name}"):
        return False
    with (
        closing(files.open(f"{planned.source_directory}/{name}")) as ours,
        closing(files.open(f"{planned.target_directory}/{name}")) as theirs,
    ):
        size_bytes, next_offset = ours.size_bytes(), base
        if not is_last and theirs.size_bytes() != size_bytes:
            return False
        walk = Walk(ours.read_at, 0, size_bytes, check=True, piece_bytes=PIECE_BYTES)
        for piece in walk:
            there = theirs.read_at(piece.position, piece.end)
            if _without_epochs(there, piece) != _without_epochs(piece.buffer[: piece.end], piece):
                return False
            next_offset = piece.batches[-1][1].next_offset
    return next_offset == planned.log_end_offset if is_last else walk.position == size_bytes


def _without_epochs(data: bytes, piece: Piece) -> bytes:
    """Bytes that should be those of a piece, without the leader epochs, which may have been lowered."""
    changed = bytearray(data)
    for position, header in piece.batches:
        at = position + BATCH_HEADER.position_of("partition_leader_epoch")
        if header.magic >= 2 and at + 4 <= len(changed):
            changed[at : at + 4] = bytes(4)
    return bytes(changed)


def _refuse_open_transactions(plan: Plan) -> None:
    for planned in plan.partitions:
        if planned.open_producers and not planned.was_placed:
            plan.problems.append(describe_open_transactions(planned.partition, planned.open_producers))


def describe_open_transactions(partition: TopicPartition, producer_ids: Iterable[int]) -> str:
    """Why a partition with open transactions is refused."""
    return (
        f"{partition} has open transactions, of producers {', '.join(map(str, producer_ids))}. In the target "
        "they would never end, and readers of committed data would wait forever. End them first, or abort "
        "them in the copy with abort_transactions"
    )


def _check_room(plan: Plan, source: Place, target: Place | None, target_path: str) -> None:
    """
    Raises:
        DiskFullError: the copies do not fit.
    """
    path = target_path
    while target is None and not source.files.is_directory(path):
        path = path.rpartition("/")[0] or "/"
    needed = sum(planned.size_bytes for planned in plan.partitions if not planned.was_placed)
    free = free_bytes(source.files, path)
    if free is not None and needed > free:
        import errno

        raise DiskFullError(errno.ENOSPC, f"{needed} bytes must be copied, {free} are free", target_path)
