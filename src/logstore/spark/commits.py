"""Turns staged files into records, exactly once: the protocol of a commit.

The steps, each durable before the next begins, and what a crash after it leaves:

1. Tasks have written their files. *Left: unneeded files; a later commit removes them.*
2. The files are checked: each checksum, each rule of the topics. Batches of files that are large enough to
   become segments get their places in the files. From here on only the disk can refuse. *Left: the same.*
3. ``prepared`` is appended to the commits topic: which files, and for each log its end and the sequence with
   which the batch begins there. **The commit point**: one batch in one log exists or does not. *Left: a
   prepared batch, which the next commit of any sink finishes first.*
4. The files' batches are appended to the logs, as those of the sink's idempotent producer, or the files
   become segments. *Left: some of them. The log's knowledge of the producer tells which; the rest follows in
   the same order, at other offsets if other writers have appended in between: nothing is ever cut off.*
5. ``done`` is appended. *Left: unneeded files.*
6. The sink's files up to this batch are removed.

A batch that is already done, or older than the last one done, is not appended again: its new files are
removed. A prepared batch is finished with the files it was prepared with, because a repeated run may have
divided its rows in another way.

Readers may see part of a batch while it is being appended. Knows nothing of Spark.
"""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Callable, Collection, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from logstore.arguments import check_least, check_list, shown
from logstore.clock import Clock, SystemClock
from logstore.config import StoreConfig
from logstore.errors import (
    LogstoreError,
    StorageError,
    UnknownTopicError,
    UsageError,
)
from logstore.files import Files, OsFiles, Removals, check_path
from logstore.logdir.directory import LogDirectory
from logstore.logdir.upkeep import flush_each
from logstore.model import Role, TopicPartition
from logstore.partition.log import Log
from logstore.spark.adoption import Adoption
from logstore.spark.flush_ahead import FlushAhead
from logstore.spark.ledger import Done, Ledger, Place, Prepared
from logstore.spark.placing import Placed, Placing, is_to_move, producer_id_of
from logstore.spark.staging import StagedFile, Target, staged_among
from logstore.store import Store, check_no_address, open_store, store_of
from logstore.turns import flushed_at_a_time, take_turns
from logstore.warning import inform, warn

STRAY_AFTER_MS: Final = 2 * 24 * 3600 * 1000
"""A staged file last written this long ago belongs to a dead job."""
_CONFIG: Final = StoreConfig(log_cleaner_enable=False)  # no threads for so short a time


reached: Callable[[str], None] = lambda step: None  # noqa: E731
"""Called at each step with its name; tests end the process there."""


class Outcome(enum.Enum):
    """The result of a commit."""

    COMMITTED = "committed"
    REPEATED = "repeated"
    """The batch was committed before: nothing was appended."""


@contextlib.contextmanager
def opened(
    path: str, lock_timeout_ms: int, files: Files | None = None, clock: Clock | None = None
) -> Iterator[Store]:
    """The store, open for writing; waits while another process has it open. After a clean stop only those
    logs are opened that are asked for: a batch of a thousand partitions may be for ten of them.

    Raises:
        LockedError: another process had it open the whole time; names it.
    """
    store = store_of(
        partial(
            LogDirectory,
            path,
            create=False,
            config=_CONFIG,
            files=files,
            clock=clock,
            timeout=lock_timeout_ms / 1000,
            opens_when_asked=True,
        )
    )
    with store:
        yield store


class _Plan(NamedTuple):
    """What is known of a batch before its commit point."""

    logs: dict[Target, Log]
    places: tuple[Place, ...]
    placed: Placed


class Commits:
    """Commits into one open store."""

    def __init__(self, store: Store, files: Files | None = None, clock: Clock | None = None) -> None:
        self._store = store
        self._path = store.path
        self._files = files or OsFiles()
        self._clock = clock or SystemClock()
        self._ledger = Ledger(store)
        self._placing = Placing(self._files, self._path, self._clock)

    def commit(
        self, sink: str, batch_id: int, files: Sequence[StagedFile], *, is_job: bool = False
    ) -> Outcome:
        """Append the records of staged files, in their order, exactly once.

        Args:
            sink: identifies the writer: the same for all its batches, and for each repetition of one.
            batch_id: rises from batch to batch.
            files: what the tasks reported, in their order.
            is_job: the sink has only this batch; it is forgotten after some days.

        Raises:
            UsageError: a topic was deleted or changed while the tasks ran, or is a copy of a leader's; a file
                breaks its rules; or the sink has had a later batch, and so goes on from an old state.
            CorruptionError: a file is not what its task wrote.
            StorageError: the disk failed. If the batch is prepared it stays so, and is finished later.
        """
        self._finish_others(sink)
        state = self._ledger.states.get(sink)
        if isinstance(state, Prepared):
            self._finish(state)
            state = self._ledger.states[sink]
        if isinstance(state, Done) and state.batch_id >= batch_id:
            self._check_repeated(state, batch_id, files)
            reached("repeated")
            self.remove_strays(sink, batch_id)
            return Outcome.REPEATED
        if not any(staged.parts for staged in files):
            self.remove_strays(sink, batch_id)
            return Outcome.COMMITTED
        self._ledger.ensure_topic()
        plan = self._plan(sink, files)
        prepared = Prepared(sink, batch_id, is_job, tuple(files), plan.places)
        self._files.flush_directory(self._path)
        reached("before prepared")
        self._ledger.note(prepared)
        reached("after prepared")
        self._append(prepared, plan.logs, plan.placed)
        self._ledger.tidy(self._clock)
        return Outcome.COMMITTED

    def finish_all(self) -> list[tuple[str, int]]:
        """Finish the batches that any sink has left prepared, and remove files of dead jobs. Returns (sink,
        batch id) of each finished batch."""
        prepared = self._ledger.prepared()
        for state in prepared:
            self._finish(state)
        self.remove_strays()
        return [(state.sink, state.batch_id) for state in prepared]

    def give_up(self, sink: str) -> None:
        """Count the batch that a sink has prepared as done: records that are not in the logs yet never will
        be.

        Raises:
            UsageError: the store has seen no batch of such a sink.
        """
        state = self._ledger.states.get(sink)
        if state is None:
            prepared = [each.sink for each in self._ledger.prepared()]
            named = ", ".join(map(shown, prepared))
            which = f"unfinished is one of {named}" if prepared else "none is unfinished"
            raise UsageError(f"the store has no batch of the sink {shown(sink)}; {which}")
        if isinstance(state, Prepared):
            self._note_done(state, state.batch_id)
            self.remove_strays(sink, state.batch_id)

    def _check_repeated(self, done: Done, batch_id: int, files: Sequence[StagedFile]) -> None:
        """Tell a batch that is repeated from one of a query that goes on from an old checkpoint: its batches
        have numbers that are done, but may have rows that no batch had. Only the last batch is repeated.

        Raises:
            UsageError: a later batch is done.
        """
        if batch_id < done.batch_id:
            raise UsageError(
                f"batch {batch_id} of {done.sink!r} comes after its batch {done.batch_id}, which is in the "
                f"topics of {self._path} already: its checkpoint is a copy or was restored, or two queries "
                "have the same checkpoint or sinkId. Nothing was written, as its rows may be there already. "
                "Continue with the newest checkpoint; or begin with a new one, another sinkId if there is "
                "one, and startingOffsets behind what was written"
            )
        record_count = sum(part.record_count for staged in files for part in staged.parts)
        if done.record_count not in (None, record_count):
            why = (
                "this is another write with the same writeId"
                if done.is_job
                else "its checkpoint is a copy or was restored, or two queries have one checkpoint or sinkId"
            )
            warn(
                "%s: batch %d of %r is done already and left out, but had %d records then and has %d now. If "
                "%s, they are missing in the topics",
                self._path,
                batch_id,
                done.sink,
                done.record_count,
                record_count,
                why,
            )

    def _finish_others(self, sink: str) -> None:
        """Finish other sinks' prepared batches. One that cannot be finished does not stop the others."""
        for state in self._ledger.prepared():
            if state.sink != sink:
                try:
                    self._finish(state)
                except LogstoreError as error:
                    warn("batch %d of %s cannot be finished: %s", state.batch_id, state.sink, error)

    # Before the commit point

    def _plan(self, sink: str, files: Sequence[StagedFile]) -> _Plan:
        """Check the files, find the places of their batches, and write these into the files that will be
        moved."""
        counts, before = _count(files)
        logs = {target: self._target_log(target) for target in counts}
        places = {
            target: Place(target, log.log_end_offset, _next_sequence(log, sink), counts[target])
            for target, log in logs.items()
        }
        placed: Placed = {}

        def check(staged: StagedFile) -> None:
            target = staged.parts[0].target
            if is_to_move(staged, logs[target].config):
                place = places[target].behind(before[staged.name])
                if self._placing.place(staged, logs[target], place, sink):
                    placed[staged.name] = place.end_offset
                    return
            self._placing.check(staged, logs)

        take_turns(check, files, at_a_time=flushed_at_a_time(self._files))
        flush_each([*logs.values()], self._files)  # else a power cut could lose records below the places
        return _Plan(logs, tuple(places.values()), placed)

    def _target_log(self, target: Target) -> Log:
        """
        Raises:
            UnknownTopicError: the topic was deleted; another one may have its name.
            UsageError: the log is a copy of a leader's, which would cut the records off again.
        """
        directory = self._store.directory
        if str(directory.topic(target.topic).topic_id) != target.topic_id:
            raise UnknownTopicError(
                f"topic {target.topic!r} was deleted and created again while the rows were being written"
            )
        log = directory.log(TopicPartition(target.topic, target.partition))
        if log.role is Role.FOLLOWER:
            raise UsageError(f"{log.partition}: {directory.context.home.why_copied_only}")
        return log

    # After the commit point

    def _finish(self, prepared: Prepared) -> None:
        """Finish a batch that an earlier commit has left prepared."""
        self._append(prepared, self._present_logs(prepared))

    def _append(self, prepared: Prepared, logs: dict[Target, Log], placed: Placed | None = None) -> None:
        """Append the missing records of a prepared batch, and note that it is done. Without ``placed`` the
        batch is one that an earlier commit has left prepared.

        Files are then missing if the batch was aborted because the disk reported an error for its
        ``prepared`` record, which reached the disk nevertheless. If no record of the batch is in a log
        either, it counts as never prepared. Files only for deleted topics prove nothing: they may have been
        moved there before.
        """
        adoption = Adoption(prepared, logs, self._placing, placed)
        if placed is None and adoption.is_untouched:
            if not all(
                self._files.is_file(self._placing.path_of(each)) for each in _files_of(prepared, logs)
            ):
                warn("batch %d of %s was aborted", prepared.batch_id, prepared.sink)
                self._note_done(prepared, prepared.batch_id - 1)
                return
            adoption = Adoption(self._in_sequence(prepared, logs), logs, self._placing)
        with FlushAhead(partial(flush_each, [*logs.values()], self._files)) as ahead:
            for staged in prepared.files:
                for size_bytes in adoption.adopt(staged):
                    ahead.note(size_bytes)
                    reached("mid-adoption")
        reached("before done")
        self._note_done(prepared, prepared.batch_id)
        reached("after done")
        self.remove_strays(prepared.sink, prepared.batch_id)
        reached("after cleanup")

    def _note_done(self, prepared: Prepared, batch_id: int) -> None:
        """Note that the batch is done, or the one before it if this one was aborted."""
        is_done = batch_id == prepared.batch_id
        record_count = sum(place.record_count for place in prepared.places) if is_done else None
        self._ledger.note(Done(prepared.sink, batch_id, prepared.is_job, self._clock.now_ms(), record_count))

    def _in_sequence(self, prepared: Prepared, logs: dict[Target, Log]) -> Prepared:
        """The batch with the sequences that the logs expect now. These have changed if a log had forgotten
        its producers and, when reopened, found them in a snapshot."""
        places = [
            place._replace(sequence=_next_sequence(logs[place.target], prepared.sink))
            if place.target in logs
            else place
            for place in prepared.places
        ]
        if tuple(places) != prepared.places:
            prepared = prepared._replace(places=tuple(places))
            self._ledger.note(prepared)
        return prepared

    def _present_logs(self, prepared: Prepared) -> dict[Target, Log]:
        logs = {}
        for target in [place.target for place in prepared.places]:
            try:
                logs[target] = self._target_log(target)
            except UnknownTopicError as error:
                warn("records for %s are dropped: %s", target, error)
        return logs

    # Files

    def remove_strays(self, sink: str = "", up_to: int = -1) -> None:
        """Remove the staged files of a sink's batches up to ``up_to``, and those of dead jobs, except files
        that a prepared batch needs. What the disk refuses to remove stays for the next time."""
        needed, removals = self._ledger.staged_names(), Removals(self._files)
        files = [entry.name for entry in self._files.list_directory(self._path) if not entry.is_directory]
        for name, is_done in staged_among(files, sink, up_to=up_to).items():
            path = f"{self._path}/{name}"
            with contextlib.suppress(StorageError):
                if name not in needed and (is_done or self._is_of_dead_job(path)):
                    removals.remove(path)
        if removals.count:
            what = (
                f"those of {sink!r} up to batch {up_to}, and of dead jobs" if sink else "those of dead jobs"
            )
            inform(
                "%s: removed %d staged files, %d bytes: %s, which are not needed",
                self._path,
                removals.count,
                removals.size_bytes,
                what,
            )

    def _is_of_dead_job(self, path: str) -> bool:
        return self._files.modified_ms(path) < self._clock.now_ms() - STRAY_AFTER_MS


def _files_of(prepared: Prepared, logs: Collection[Target]) -> Sequence[StagedFile]:
    """The files with records for any of the logs; all files, if there is no log."""
    found = [each for each in prepared.files if any(part.target in logs for part in each.parts)]
    return found or prepared.files


def _next_sequence(log: Log, sink: str) -> int:
    """The sequence of a sink's next record."""
    last = log.last_of_producer(producer_id_of(sink))
    return 0 if last is None else last.next_sequence


def _count(files: Sequence[StagedFile]) -> tuple[dict[Target, int], dict[str, int]]:
    """How many records each target gets in all; and, for each file, how many its first target gets from the
    files before it."""
    counts: dict[Target, int] = {}
    before = {}
    for staged in files:
        before[staged.name] = counts.get(staged.parts[0].target, 0)
        for part in staged.parts:
            counts[part.target] = counts.get(part.target, 0) + part.record_count
    return counts, before


def commit(
    path: str,
    sink: str,
    batch_id: int,
    files: Sequence[StagedFile],
    *,
    is_job: bool = False,
    lock_timeout_ms: int = 60_000,
) -> Outcome:
    """Open the store, :meth:`Commits.commit`, and close it."""
    with opened(path, lock_timeout_ms) as store:
        return Commits(store).commit(sink, batch_id, files, is_job=is_job)


def abort(path: str, sink: str, batch_id: int) -> None:
    """Remove the files of a failed batch, unless it is prepared. Needs no lock. Files that cannot be removed,
    or judged, stay for the next commit."""
    with contextlib.suppress(LogstoreError), open_store(path, read_only=True) as store:
        Commits(store).remove_strays(sink, batch_id)


def recover(
    path: str, *, give_up: Sequence[str] = (), lock_timeout_ms: int = 60_000
) -> list[tuple[str, int]]:
    """Finish the batches that dead jobs and queries have left prepared, and remove unneeded staged files. The
    next commit of any sink does the same. Returns (sink, batch id) of each batch that was finished.

    Args:
        path: the store's directory.
        give_up: sinks whose prepared batch cannot be finished, as an error has told you: its records that are
            not in the logs yet are dropped.
        lock_timeout_ms: how long to wait for another process that has the store open.

    Raises:
        UsageError: there is no store; ``give_up`` is no list, or names a sink that has never written here; or
            ``lock_timeout_ms`` is no whole number, 0 or above.
    """
    check_list(give_up, "give_up", "sinks' ids")
    name = check_path(path)
    check_no_address(name)
    check_least("lock_timeout_ms", lock_timeout_ms, 0)
    with opened(name, lock_timeout_ms) as store:
        commits = Commits(store)
        for sink in give_up:
            commits.give_up(sink)
        return commits.finish_all()
