"""``logstore groups``: who is in the consumer groups of a store, how far they are, and where they go on."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any, Final

import typer

from logstore.cli.commands import Command
from logstore.cli.errors import WRONG, CommandError
from logstore.cli.opening import reading, told_of_queue, writing
from logstore.cli.options import Directory, DryRun, Json, Partitions, Quiet
from logstore.cli.output import Output, Shape
from logstore.cli.times import Place, Target, parse_target
from logstore.clients.groups.groups import Groups
from logstore.clients.groups.status import GroupStatus
from logstore.model import TopicPartition, datetime_of

GROUP: Final = Shape(
    "a consumer group (`groups DIR`)",
    group="its name",
    state="`Stable` if members are stored, else `Empty`",
    protocol_type="`consumer`, or what else its members are; empty if it never had any",
    assignor="how it divides partitions; empty without members",
    members="each with `member_id`, `instance_id`, `client_id`, `client_host` and `partitions`",
    offsets="what it has committed: `topic`, `partition`, `offset`, `metadata`, and `lag` behind the high "
    "watermark, which is null where the directory does not hold the partition",
)
RESET: Final = Shape(
    "an offset that is reset (`groups DIR GROUP --reset`)",
    group="the group",
    topic="the topic",
    partition="its number",
    before="the committed offset; null if there was none",
    after="the new one",
    is_dry_run="whether nothing was changed",
)
DELETED: Final = Shape(
    "a deleted group (`groups DIR GROUP --delete`)",
    group="the group",
    offsets="how many offsets it had committed",
)

GroupName = Annotated[
    str | None, typer.Argument(metavar="[GROUP]", help="one group only", show_default=False)
]
Reset = Annotated[
    Target | None,
    typer.Option(
        "--reset",
        metavar="earliest|latest|OFFSET|TIME",
        parser=parse_target,
        help="let the group go on there; it must have no members",
    ),
]
TopicNames = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="TOPIC", help="all partitions of this one; may be repeated"),
]
Delete = Annotated[bool, typer.Option("--delete", help="delete the group; it must have no members")]


def groups(
    directory: Directory,
    group: GroupName = None,
    reset: Reset = None,
    topic: TopicNames = None,
    partition: Partitions = None,
    delete: Delete = False,
    dry_run: DryRun = False,
    json: Json = False,
    quiet: Quiet = False,
) -> None:
    """List consumer groups, or show who is in one, and how far it is.

    With --reset or --delete, change one. Without --topic, --reset is for the partitions that the group has
    committed offsets of. No other process may have the store open for writing then; a dry run works beside
    one.
    """
    out = Output(json=json, quiet=quiet)
    _check(group, reset, topic, partition, delete, dry_run)
    if group is None:
        with reading(directory) as store:
            _list(out, list(store.groups().values()))
        return
    is_change = delete or (reset is not None and not dry_run)
    with (writing if is_change else reading)(directory) as store:
        found = store.groups()
        if group not in found and (told := told_of_queue(store, group)):
            raise CommandError(told)
        if reset is not None:
            partitions = [TopicPartition(each, number) for each in topic or () for number in partition or ()]
            _reset(out, found, group, reset, topic, partitions, dry_run)
        elif delete:
            _delete(out, found, group)
        else:
            _show(out, found[group])


def _check(
    group: str | None,
    reset: Target | None,
    topic: list[str] | None,
    partition: list[int] | None,
    delete: bool,
    dry_run: bool,
) -> None:
    """
    Raises:
        CommandError: the options do not go together.
    """
    is_change = delete or reset is not None
    if delete and reset is not None:
        raise CommandError("--reset and --delete do not go together", WRONG)
    if is_change and group is None:
        raise CommandError("name the group that is to be changed, behind the directory", WRONG)
    if dry_run and reset is None:
        raise CommandError("--dry-run goes with --reset", WRONG)
    if (topic or partition) and reset is None:
        raise CommandError("--topic and --partition go with --reset", WRONG)
    if partition and len(topic or ()) != 1:
        raise CommandError("--partition is of one topic; name it with --topic", WRONG)


def _list(out: Output, found: list[GroupStatus]) -> None:
    if out.is_json:
        for each in found:
            out.json(_group_object(each))
        return
    out.table(
        ("GROUP", "STATE", "ASSIGNOR", "MEMBERS", "OFFSETS", "LAG"),
        (
            (
                each.name,
                each.state,
                each.assignor or None,
                len(each.members),
                len(each.offsets),
                _lag_of_all(each),
            )
            for each in found
        ),
    )


def _lag_of_all(found: GroupStatus) -> int | str:
    """The sum, as far as it is known."""
    known = sum(found.lag.values())
    return known if len(found.lag) == len(found.offsets) else f"at least {known}"


def _show(out: Output, found: GroupStatus) -> None:
    if out.is_json:
        out.json(_group_object(found))
        return
    out.fields([("group", found.name), ("state", found.state), ("assignor", found.assignor or None)])
    if found.members:
        out.line()
        out.table(
            ("MEMBER", "INSTANCE", "CLIENT", "HOST", "PARTITIONS"),
            (
                (
                    each.member_id,
                    each.instance_id,
                    each.client_id,
                    each.client_host,
                    ", ".join(map(str, each.partitions)) or None,
                )
                for each in found.members
            ),
        )
    if found.offsets:
        out.line()
        out.table(
            ("TOPIC", "PARTITION", "COMMITTED", "LAG", "METADATA"),
            (
                (*each, value.offset, found.lag.get(each), value.metadata or None)
                for each, value in found.offsets.items()
            ),
        )


def _group_object(found: GroupStatus) -> dict[str, Any]:
    return GROUP(
        group=found.name,
        state=found.state,
        protocol_type=found.protocol_type,
        assignor=found.assignor,
        members=[
            each._asdict() | {"partitions": [partition._asdict() for partition in each.partitions]}
            for each in found.members
        ],
        offsets=[
            each._asdict() | {"offset": value.offset, "metadata": value.metadata, "lag": found.lag.get(each)}
            for each, value in found.offsets.items()
        ],
    )


def _reset(
    out: Output,
    found: Groups,
    group: str,
    wanted: Target,
    topics: list[str] | None,
    partitions: list[TopicPartition] | None,
    dry_run: bool,
) -> None:
    where: dict[str, Any] = {"partitions": partitions} if partitions else {"topics": topics}
    to, place = wanted.end or "latest", wanted.place
    if place is not None and place.offset is not None:  # of each of the partitions
        chosen = found.reset(group, to, **where, dry_run=True)
        changed = found.reset(group, dict.fromkeys(chosen, place.offset), dry_run=dry_run)
    else:
        when = to if place is None else _moment_of(place)
        changed = found.reset(group, when, **where, dry_run=dry_run)
    rows = [
        RESET(group=group, **each._asdict(), **change._asdict(), is_dry_run=dry_run)
        for each, change in changed.items()
    ]
    if out.is_json:
        for row in rows:
            out.json(row)
    else:
        shown = ("topic", "partition", "before", "after")
        out.table([each.upper() for each in shown], ([row[each] for each in shown] for row in rows))
    if dry_run:
        out.remark("dry run: nothing was changed")


def _moment_of(place: Place) -> datetime:
    try:
        moment = datetime_of(place.timestamp_ms or 0)
    except OverflowError:
        moment = None
    if moment is None:
        raise CommandError(f"{place.timestamp_ms}ms is after the year 9999", WRONG)
    return moment


def _delete(out: Output, found: Groups, group: str) -> None:
    row = DELETED(group=group, offsets=len(found[group].offsets))
    found.delete(group)
    if out.is_json:
        out.json(row)
    else:
        out.remark(f"group {group!r} was deleted, with {row['offsets']} committed offsets")


COMMANDS: Final = (Command("groups", groups, (GROUP, RESET, DELETED)),)
"""How groups are."""
