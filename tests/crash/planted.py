"""Bugs to plant: changes to the shipped code, each of which breaks one rule that keeps data safe.

A function is compiled from its changed text and replaces the right one. A bug that no longer fits the code
fails loudly.
"""

from __future__ import annotations

import importlib
import inspect
import sys
import textwrap
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, nullcontext
from typing import Any, NamedTuple

from logstore.testing import Scenario
from tests.crash.compacted import CompactedScenario
from tests.crash.follower import LEADER_THAT_FOLLOWS, FollowerScenario
from tests.crash.partition import PartitionScenario
from tests.crash.store import StoreScenario


class Change(NamedTuple):
    """A piece of a function's text, and its replacement."""

    place: str
    """``module:function`` or ``module:Class.method`` below ``logstore``."""
    right: str
    wrong: str = "pass"


_SAME_EPOCH = (
    Change("partition.state.home:LogHome._begin_after_crash_locked", "not self.has_begun_epoch", "False"),
    Change("partition.state.home:LogHome._gives_above", "return self.gives_epochs and", "return False and"),
)
"""As in a follower's log: a new leader epoch would show what is from before the crash."""


class Bug(NamedTuple):
    """One bug, and the scenario that must find it. If two things protect the same data, both are removed."""

    name: str
    changes: tuple[Change, ...]
    scenario: Scenario
    depth: int = 1
    chained_share: float = 0.02
    """The share of states that get another session."""


def _partition(*actions: str) -> Scenario:
    return PartitionScenario(actions=actions)


def _compacted(*actions: str) -> Scenario:
    return CompactedScenario(actions=actions)


_FLUSHED = "append and flush"
_ANY_STORE = StoreScenario()

BUGS = (
    Bug(
        "acknowledged before the flush",
        (
            Change(
                "partition.writing.group_commit:GroupCommit.wait_until_durable",
                "if self._log.durable_offset >= offset:",
                "if True:",
            ),
        ),
        _partition(_FLUSHED, _FLUSHED),
    ),
    Bug(
        "names of new segments not made durable",
        (
            Change(
                "partition.writing.log_state:LogState.flush_names",
                "self.context.files.flush_directory(self.directory)",
            ),
            Change("files:write_small_files", "files.flush_directory(directory)"),
        ),
        _partition(_FLUSHED, "roll", _FLUSHED, _FLUSHED),
    ),
    Bug(
        "old segment not flushed after a roll",
        (Change("partition.writing.growth:LogGrowth.roll", "self.unflushed.append(sealed)"),),
        _partition("append", "roll", _FLUSHED),
    ),
    Bug(
        "recovery without checksums",
        (Change("partition.recovery.tail:Tail.scan", "check=True", "check=False"),),
        _partition("append", "append"),
    ),
    Bug(
        "what lies behind the end in the last block left there",
        (
            Change(
                "partition.recovery.loader:Loader._cut",
                "segment.cut_to_size()",
                "segment.cut_to_size() if self._file_size > segment.size_bytes else None",
            ),
            *_SAME_EPOCH,
        ),
        _partition("append", "append"),
        depth=2,
        chained_share=1.0,
    ),
    Bug(
        "the same, if the log ends at its checkpoint",
        (
            Change(
                "partition.recovery.loader:Loader._recover",
                "self._is_settled = active.has_rest = True",
                "self._is_settled = True",
            ),
            *_SAME_EPOCH,
        ),
        _partition("append", "checkpoint", "append"),
        depth=2,
        chained_share=1.0,
    ),
    Bug(
        "a segment that lost its end taken for one with a gap behind it",
        (
            Change(
                "partition.recovery.loader:Loader._continues",
                "return end == next_base or (end < next_base and not self.is_dense)",
                "return end <= next_base",
            ),
        ),
        _partition(_FLUSHED, "append", "roll", "append"),
    ),
    Bug(
        "a durable batch taken back for what follows it",
        (
            Change(
                "partition.recovery.tail:Tail._may_be_wrong_last",
                " and self._previous_last >= self._recovery_point",
                "",
            ),
            Change("partition.recovery.tail:Tail._accept", " and not is_first", ""),
            Change(
                "partition.recovery.tail:Tail._tells_of_wrong_last",
                " or header.base_offset < self._before_gap[1]",
                "",
            ),
            Change("partition.recovery.tail:Tail._tells_of_wrong_last", "header.crc == last.crc", "False"),
            Change("partition.recovery.tail:_scan_behind", " and newest.offset < tail.end_offset", ""),
        ),
        _partition("append", "append", "append", "checkpoint", "append"),
    ),
    Bug(
        "a torn end that is not cut",
        (Change("partition.recovery.loader:Loader._cut", "segment.cut_to_size()"),),
        _partition("append", "append"),
    ),
    Bug(
        "small file renamed before it is flushed",
        (Change("files:write_new_file", "file.flush()"),),
        _partition(_FLUSHED, "checkpoint"),
    ),
    Bug(
        "name of a small file not made durable",
        (Change("files:write_small_files", "files.flush_directory(directory)"),),
        _partition(_FLUSHED, "delete before", "delete before"),
    ),
    Bug(
        "recovery point stored before the data is flushed",
        (
            Change("partition.writing.durability:Durability.checkpoint_locked", "self.flush_now_locked()"),
            Change("partition.writing.durability:Durability.prepare_checkpoint", "self.flush()"),
        ),
        _partition("append", "checkpoint"),
    ),
    Bug(
        "what recovery found not flushed",
        (
            Change("partition.writing.writer:LogWriter.settle", "core.active.flush()"),
            Change("partition.writing.durability:Durability.prepare_checkpoint", "self.flush()"),
            Change("partition.writing.durability:Durability.checkpoint_locked", "self.flush_now_locked()"),
        ),
        _partition("append", "append"),
        2,
    ),
    Bug(
        "clean marker before the flush",
        (Change("partition.writing.writer:LogWriter._close_locked", "self.durability.checkpoint_locked()"),),
        _partition("append", "append", "reopen"),
    ),
    Bug(
        "removal of the clean marker not durable, and its word not checked",
        (
            Change(
                "partition.state.home:LogHome.take_clean_marker", "self._files.flush_directory(self.path)"
            ),
            Change(
                "partition.recovery.loader:Loader._load_clean",
                "if fault is None and end == self.recovery_point:",
                "if True:",
            ),
        ),
        _partition(_FLUSHED, "reopen", "append", "append"),
    ),
    Bug(
        "log start not stored before segments are deleted",
        (
            Change(
                "partition.writing.core:LogCore.raise_log_start",
                "self._store_log_start(offset)",
            ),
        ),
        _partition(_FLUSHED, _FLUSHED, "delete before"),
    ),
    Bug(
        "recovery point not lowered before a truncation",
        (
            Change(
                "partition.state.home:LogHome.lower_recovery_point",
                "if self._recovery_points.get(partition, 0) > offset:",
                "if False:",
            ),
        ),
        _partition(_FLUSHED, _FLUSHED, "checkpoint", "truncate"),
    ),
    Bug(
        "index entries believed unseen",
        (
            Change("partition.segments.indexes:IndexBuilder.keep_below", "self.truncate_to(offset)"),
            Change(
                "partition.recovery.tail:_scan_behind",
                "last.position, first_last_offset=last.offset)",
                "last.position)",
            ),
            Change(
                "partition.recovery.tail:_scan_behind",
                "first_last_offset=last.offset, newest=",
                "newest=",
            ),
        ),
        _partition("append", "append", "append", "append"),
    ),
    Bug(
        "no recovery point before the second segment",
        (
            Change(
                "partition.writing.growth:LogGrowth._prepare_roll",
                "self.context.home.ensure_recovery_point(self.partition)",
            ),
            Change(
                "logdir.open_logs:OpenLogs.open_new",
                "self._context.home.ensure_recovery_points(partitions)",
            ),
        ),
        StoreScenario(actions=("create", "write", "roll", "write")),
    ),
    Bug(
        "topic deleted without saying so first",
        (
            Change(
                "logdir.topics:TopicTable.hide",
                "return self._put(entry.in_state(TopicState.DELETING))",
                "return entry",
            ),
        ),
        StoreScenario(actions=("create", "write", "remove")),
    ),
    Bug(
        "directory of an unfinished growth left behind",
        (Change("logdir.topics:TopicTable._partitions_ever", "numbers.add(parsed.partition)"),),
        StoreScenario(actions=("create", "add partitions", "remove", "create")),
        3,
    ),
    Bug(
        "the old files of an erasure left to be removed later",
        (
            Change("partition.cleaning.erasing:Erasure._replace", "log.removal.remove(renamed)"),
            Change(
                "partition.cleaning.erasing:Erasure._remove_leftovers", 'files.remove(f"{directory}/{name}")'
            ),
        ),
        _partition(_FLUSHED, "append", "erase"),
    ),
    Bug(
        "removal by an erasure not made durable",
        (Change("partition.cleaning.erasing:Erasure._remove_leftovers", "files.flush_directory(directory)"),),
        _partition(_FLUSHED, "append", "erase"),
    ),
    Bug(
        "a compacted log rolls without a flush",
        (Change("partition.writing.growth:LogGrowth._prepare_roll", "old.flush()"),),
        _compacted("append", "roll", "append"),
    ),
    Bug(
        "a leader follows without flushing what it sealed",
        (
            Change(
                "partition.writing.replication:Replication.set_role",
                "self._durability.flush_now_locked()",
            ),
        ),
        FollowerScenario(actions=LEADER_THAT_FOLLOWS),
        depth=2,  # a log that was opened as a leader's has no gaps, and does not flush when it rolls
        chained_share=1.0,
    ),
    Bug(
        "a durable batch behind a gap doubted for one of the file's past",
        (
            Change(
                "partition.recovery.tail:Tail._tells_of_wrong_last",
                " or header.base_offset < self._before_gap[1]",
                "",
            ),
        ),
        FollowerScenario(actions=("replicate", "replicate", "flush", "replicate")),
    ),
    Bug(
        "a compacted segment not flushed",
        (Change("partition.cleaning.cleaned_segment:CleanedSegment.finish", "self._log.flush()"),),
        _compacted(_FLUSHED, _FLUSHED, "compact", _FLUSHED),
    ),
    Bug(
        "segments go before what replaces them is durable under its name",
        (
            Change(
                "partition.writing.core:LogCore.replace_segments",
                "flush_directory(self.directory)\n        renamed =",
                "renamed =",
            ),
        ),
        _compacted(_FLUSHED, _FLUSHED, "compact", _FLUSHED),
    ),
    Bug(
        "what a finished swap replaces is left there",
        (Change("partition.recovery.leftovers:_finish_swap", "_remove_all(files, directory, replaced)"),),
        _compacted(_FLUSHED, "roll", _FLUSHED, "roll", _FLUSHED, "compact"),
    ),
    Bug(
        "an unfinished swap is finished",
        (
            Change(
                "partition.recovery.leftovers:clean_leftovers",
                "_remove_unfinished(files, directory, names)",
            ),
        ),
        _compacted(_FLUSHED, "roll", _FLUSHED, "compact"),
    ),
    Bug(
        "compaction of what is not yet durable",
        (
            Change("partition.writing.growth:LogGrowth._prepare_roll", "old.flush()"),
            Change("partition.cleaning.compaction:Compaction._prepare", "log.durability.checkpoint()"),
        ),
        _compacted("append", "append", "compact", "append"),
    ),
    Bug(
        "tombstones removed at first sight",
        (
            Change(
                "partition.cleaning.cleaned_batches:BatchCleaner._staying",
                "tombstones and horizon_ms is not None and self._rules.now_ms >= horizon_ms",
                "tombstones",
            ),
        ),
        _compacted("append", "append", "append", "compact"),
    ),
)


@contextmanager
def planted(bug: Bug) -> Iterator[None]:
    """The code has the bug inside this context."""
    with ExitStack() as stack:
        for change in bug.changes:
            stack.enter_context(_changed(bug.name, change))
        yield


@contextmanager
def _changed(name_of_bug: str, change: Change) -> Iterator[None]:
    module_name, _, path = change.place.partition(":")
    module = importlib.import_module(f"logstore.{module_name}")
    *owners, name = path.split(".")
    owner: Any = module
    for part in owners:
        owner = getattr(owner, part)
    before = owner.__dict__[name]
    text = getattr(before, "changed_text", None) or textwrap.dedent(inspect.getsource(before))
    assert text.count(change.right) == 1, f"{name_of_bug}: {change.right!r} is not once in {change.place}"
    changed_text = text.replace(change.right, change.wrong)
    made: dict[str, Any] = {}
    exec(compile(changed_text, f"<{name_of_bug}>", "exec"), module.__dict__, made)
    function = made[name]
    function.changed_text = changed_text
    with _callers_of(module, name, before, function) if not owners else nullcontext():
        setattr(owner, name, function)
        try:
            yield
        finally:
            setattr(owner, name, before)


@contextmanager
def _callers_of(module: Any, name: str, before: Any, function: Any) -> Iterator[None]:
    """Let modules that imported a function by name call the changed one too."""
    users = [
        user
        for user_name, user in list(sys.modules.items())
        if user_name.startswith("logstore.") and user is not module and getattr(user, name, None) is before
    ]
    for user in users:
        setattr(user, name, function)
    try:
        yield
    finally:
        for user in users:
            setattr(user, name, before)
