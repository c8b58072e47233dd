"""``logstore info``: what a store, a topic, or a single file is."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Annotated, Any, Final

import typer

from logstore.cli.commands import Command
from logstore.cli.commands.files import FILE_SHAPES, file_info
from logstore.cli.errors import WRONG, CommandError
from logstore.cli.opening import Settings, logs_of, reading, topics_of
from logstore.cli.options import Json, OptionalTopic, Partitions, Quiet
from logstore.cli.output import Cell, Output, Shape
from logstore.cli.times import format_time
from logstore.files import OsFiles
from logstore.format.header import decode_header
from logstore.format.metadata import MetaProperties
from logstore.logdir.identity import read_identity
from logstore.model import Isolation
from logstore.partition.watching.read_only import ReadOnlyLog
from logstore.segment_files.batches import SegmentBatch, batch_in
from logstore.store import Store
from logstore.topic import Topic

STORE: Final = Shape(
    "a directory (`info DIR`)",
    path="its absolute path",
    kind="`store`, or `broker` where a Kafka broker has made it",
    version="of `meta.properties`; null without that file, as the next three",
    cluster_id="of the cluster that it belongs to",
    node_id="of the node",
    directory_id="of the directory; null also where an older broker wrote it",
    was_clean="whether the last writer has closed it, with nothing to recover; false while one is open",
    topics="how many there are",
    partitions="how many the directory holds",
)
TOPIC: Final = Shape(
    "a topic (`info DIR TOPIC`)",
    topic="its name",
    topic_id="its id",
    partitions="how many it has, here and elsewhere",
    held="the numbers of those that the directory holds",
    settings="what differs from the defaults, in Kafka's spelling; null if it is not known",
    logs="the partitions, each as below",
)
LOG: Final = Shape(
    "a partition (in `info DIR TOPIC`)",
    partition="its number",
    directory="its path",
    role="`alone`, `leader` or `follower`",
    log_start_offset="the first offset that can be read",
    log_end_offset="the offset of the next record",
    high_watermark="below it records are replicated",
    last_stable_offset="below it every transaction is decided",
    checkpoints="`recovery_point`, `log_start_offset`, `high_watermark`, `cleaner_offset`, as stored or null",
    leader_epochs="`epoch` and `start_offset`, oldest first",
    producers="those that are known at the end of the log, each as below",
    segments="`path` and `size_bytes`, oldest first",
    last_batch="its header, as below; null in an empty log",
)

Subject = Annotated[
    str, typer.Argument(metavar="DIR|FILE", help="a store, a broker's log.dir, or a file of a segment")
]
All = Annotated[
    bool, typer.Option("--all", "-a", help="of a file, every batch or entry instead of a summary")
]

_SHOWN = 10
"""Entries of a list in text; JSON has all."""


def info(
    subject: Subject,
    topic: OptionalTopic = None,
    partition: Partitions = None,
    everything: All = False,
    json: Json = False,
    quiet: Quiet = False,
) -> int | None:
    """Show what a store, a topic or a file is.

    Of a directory its kind and ids; of a topic its settings, and of each partition offsets, checkpoints,
    leader epochs, producers and the last batch; of a segment, an index or a snapshot what is in it.
    """
    out = Output(json=json, quiet=quiet)
    is_file = topic is None and OsFiles().is_file(subject)
    if partition and topic is None:
        raise CommandError("--partition is of a topic; name it behind the directory", WRONG)
    if everything and not is_file:
        raise CommandError("--all is of a file, such as a segment or an index", WRONG)
    if is_file:
        return file_info(out, subject, everything=everything)
    with reading(subject) as store:
        settings = Settings(subject)
        if topic is None:
            _show_store(out, store, settings)
        else:
            found = store[topic]
            _show_topic(out, found, settings.of(found), logs_of(found, partition))
    return None


def _show_store(out: Output, store: Store, settings: Settings) -> None:
    identity = read_identity(OsFiles(), store.path) or MetaProperties(0, None, None)
    held = [len(topic.held_partitions) for topic in topics_of(store)]
    has_identity = identity.cluster_id is not None or identity.node_id is not None
    found = STORE(
        path=store.path,
        kind="broker" if settings.is_brokers else "store",
        version=identity.version if has_identity else None,
        cluster_id=identity.cluster_id,
        node_id=identity.node_id,
        directory_id=None if identity.directory_id is None else str(identity.directory_id),
        was_clean=store.was_clean,
        topics=len(held),
        partitions=sum(held),
    )
    if out.is_json:
        out.json(found)
    else:
        shown = found | {"was_clean": "yes" if store.was_clean else "no"}
        out.fields((name.replace("_", " "), value) for name, value in shown.items())


def _show_topic(
    out: Output, topic: Topic, settings: dict[str, str] | None, logs: Sequence[ReadOnlyLog]
) -> None:
    found = TOPIC(
        topic=topic.name,
        topic_id=str(topic.topic_id),
        partitions=len(topic),
        held=list(topic.held_partitions),
        settings=settings,
        logs=[_log_object(log) for log in logs],
    )
    if out.is_json:
        out.json(found)
        return
    shown = None if settings is None else _listed(f"{name}={value}" for name, value in settings.items())
    out.fields(
        [
            ("topic", topic.name),
            ("id", found["topic_id"]),
            ("partitions", found["partitions"]),
            ("held", len(found["held"])),
            ("settings", "not known" if shown is None else shown),
        ]
    )
    for log in found["logs"]:
        out.line()
        out.fields(_log_fields(log))


def _log_object(log: ReadOnlyLog) -> dict[str, Any]:
    state = log.stored_state()
    batch = last_batch(log)
    return LOG(
        partition=log.partition.partition,
        directory=log.directory,
        role=state.role.value,
        log_start_offset=log.log_start_offset,
        log_end_offset=log.log_end_offset,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        checkpoints={
            "recovery_point": state.recovery_point,
            "log_start_offset": state.log_start_offset,
            "high_watermark": state.high_watermark,
            "cleaner_offset": state.cleaner_offset,
        },
        leader_epochs=[entry._asdict() for entry in state.epochs],
        producers=[entry._asdict() for entry in state.producers],
        segments=[{"path": path, "size_bytes": size_bytes} for path, size_bytes in state.segments],
        last_batch=None if batch is None else batch._asdict() | {"position": None},
    )


def last_batch(log: ReadOnlyLog) -> SegmentBatch | None:
    """The batch that ends the log, without its place in the file."""
    if log.log_end_offset == log.log_start_offset:
        return None
    data = log.fetch(log.log_end_offset - 1, max_bytes=0, isolation=Isolation.LOG_END).data
    return batch_in(data, 0, decode_header(data), -1) if data else None


def _log_fields(log: dict[str, Any]) -> list[tuple[str, Cell]]:
    batch = log["last_batch"]
    last = "none"
    if batch is not None:
        last = (
            f"offsets {batch['base_offset']} to {batch['last_offset']}, {batch['record_count']} records, "
            f"{batch['size_bytes']} bytes, codec {batch['codec']}, leader epoch {batch['leader_epoch']}, "
            f"{format_time(batch['max_timestamp_ms']) or 'no time'}"
        )
    stored = log["checkpoints"]
    return [
        ("partition", log["partition"]),
        ("directory", log["directory"]),
        ("role", log["role"]),
        ("offsets", f"{log['log_start_offset']} to {log['log_end_offset']}"),
        ("high watermark", log["high_watermark"]),
        ("last stable offset", log["last_stable_offset"]),
        (
            "checkpoints",
            _listed(f"{name.replace('_', ' ')} {at}" for name, at in stored.items() if at is not None),
        ),
        (
            "leader epochs",
            _listed(f"{each['epoch']} from offset {each['start_offset']}" for each in log["leader_epochs"]),
        ),
        ("producers", _listed(_producer_text(each) for each in log["producers"])),
        ("segments", f"{len(log['segments'])}, {sum(each['size_bytes'] for each in log['segments'])} bytes"),
        ("last batch", last),
    ]


def _producer_text(each: dict[str, int]) -> str:
    text = (
        f"{each['producer_id']} (epoch {each['producer_epoch']}, last sequence {each['last_sequence']}, "
        f"last offset {each['last_offset']})"
    )
    first = each["transaction_first_offset"]
    return text if first < 0 else f"{text[:-1]}, transaction open from offset {first})"


def _listed(texts: Iterable[str]) -> str:
    remaining = iter(texts)
    shown = list(islice(remaining, _SHOWN))
    more = sum(1 for _ in remaining)
    return ", ".join([*shown, *([f"and {more} more"] if more else [])]) or "none"


COMMANDS: Final = (Command("info", info, (STORE, TOPIC, LOG, *FILE_SHAPES)),)
