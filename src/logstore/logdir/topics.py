"""The topics of a directory that this process owns: their catalogue entries and partition directories.

Knows in which order to store entries and to create and rename directories, so that after a crash at any point
a topic exists, or does not, or the next open finishes the work. Does not know logs.

Lock: every change needs the caller's. The entries are replaced in one assignment, so reading needs none.
"""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from logstore.config import TopicConfig
from logstore.errors import CorruptionError, DiskFullError, LogstoreError, StorageError, TopicExistsError
from logstore.files import DirectoryEntry, Files, Removals
from logstore.format.names import (
    LOG_SUFFIX,
    DirectoryKind,
    DirectoryName,
    deleted_directory_name,
    has_name_clash,
    partition_directory_name,
)
from logstore.large_files import make_directory_for_owner
from logstore.logdir.catalogue import CatalogueWriter, TopicEntry, TopicState, read_catalogue
from logstore.logdir.held import shown_numbers
from logstore.logdir.identity import (
    foreign_topic_id,
    holds_partition,
    is_brokers_directory,
    list_partitions,
    list_strays,
    partitions_among,
    stored_topic_id,
    strays_of,
    unknown_partitions,
)
from logstore.model import Role, TopicPartition
from logstore.partition.state.home import LogHome
from logstore.partition.state.sidecars import METADATA_NAME, begin_directory, read_topic_id
from logstore.turns import flushed_at_a_time, take_turns
from logstore.warning import inform, warn


@dataclass(frozen=True, kw_only=True, slots=True)
class NewTopic:
    """A topic to create."""

    name: str
    partition_count: int
    config: TopicConfig | None
    """None takes the store's defaults."""
    held: Iterable[int] | None = None
    """The partitions that the directory holds; None for all."""
    topic_id: uuid.UUID | None = None
    """The id of the same topic elsewhere, taken if it is free here."""


class TopicTable:
    """Topics by name. What a failed change leaves behind is hidden at once; the next change of a topic with
    that name, or the next open, removes it."""

    def __init__(self, files: Files, home: LogHome, default: TopicConfig) -> None:
        self._files = files
        self._home = home
        self._path = home.path
        self._default = default
        self._catalogue = CatalogueWriter(files, home.path)
        self.entries: dict[str, TopicEntry] = {}
        """All of them by name, in any state: another mapping after each change."""
        self.adopted: set[str] = set()
        """Topics found at this open without a catalogue entry."""
        self._is_stored = False
        self._implied: list[str] = []
        """Topics whose entry has no time limit, because an older logstore had a default for it."""
        self._left: list[str] = []
        """The directories of deleted partitions that an earlier process has left."""
        self._marks: list[str] = []
        """Those that say that their topic was deleted, until the catalogue does."""

    # Looking

    def names(self) -> list[str]:
        return sorted(entry.name for entry in self.live())

    def live(self) -> list[TopicEntry]:
        return [entry for entry in self.entries.values() if entry.state is TopicState.LIVE]

    def get(self, name: str) -> TopicEntry | None:
        entry = self.entries.get(name)
        return entry if entry is not None and entry.state is TopicState.LIVE else None

    def directory_of(self, partition: TopicPartition) -> str:
        return f"{self._path}/{partition_directory_name(*partition)}"

    # Opening

    def load(self, contents: Sequence[DirectoryEntry]) -> None:
        """Read the catalogue, and add topics for partition directories that it does not know: a broker wrote
        them, or a user copied them here. Changes nothing. ``contents`` are those of the directory.

        Raises:
            CorruptionError, UnsupportedVersionError: the catalogue cannot be read.
        """
        stored = read_catalogue(self._files, self._path)
        entries = dict(stored or {})
        if is_brokers_directory(self._files, self._path, {each.name for each in contents}):
            self._home.gives_epochs = False
            entries = as_broker_left(self._files, self._path, entries) if entries else {}
        self._is_stored = entries == stored
        self._implied = sorted(entry.name for entry in entries.values() if entry.has_implied_retention)
        listed = partitions_among(contents)
        self._left = [f"{self._path}/{name}" for name, kind in listed if kind.kind is DirectoryKind.DELETED]
        for name in deleted_unstored(self._files, self._path, listed, entries):
            entries[name] = entries[name].in_state(TopicState.DELETING)
            self._is_stored = False
        for name, numbers in unknown_partitions(self._files, self._path, listed, entries).items():
            topic_id = stored_topic_id(self._files, self._path, name, numbers) or uuid.uuid4()
            for other in entries.values():
                if other.topic_id == topic_id:
                    warn("topic %s has the id of topic %s: was its directory copied?", name, other.name)
            entries[name] = entry_of_directories(name, topic_id, numbers, self._default)
            self.adopted.add(name)
            self._is_stored = False
        self.entries = entries

    def finish_interrupted(self) -> list[TopicEntry]:
        """Finish interrupted creations and deletions, and remove what deletions left. Returns the topics that
        there are then."""
        for entry in list(self.entries.values()):
            if entry.state is TopicState.CREATING:
                self._finish_creation(entry)
            elif entry.state is TopicState.DELETING:
                inform("deleted topic %r: what delete_topic had begun is finished", entry.name)
                self._left += self._take_away(entry)
            elif entry.letting_go:
                inform(
                    "let go partitions %s of topic %r: what let_go had begun is finished",
                    shown_numbers(entry.letting_go),
                    entry.name,
                )
                self._left += self._take_parts_away(entry)
        if not self._is_stored or self._implied:
            self._store_what_was_finished()
        self._remove_left()
        return self.live()

    def _finish_creation(self, entry: TopicEntry) -> None:
        """Finish an interrupted creation if all directories are there; else undo it, which needs no room. One
        that was refused has lost them."""
        directories = [self.directory_of(TopicPartition(entry.name, n)) for n in entry.held_partitions]
        if not all(self._belongs_to(entry, directory) for directory in directories):
            if not any(self._is_taken(entry, each) or self._has_records(each) for each in directories):
                inform("topic %r is not made: its creation was refused or broken off", entry.name)
                self._left += self._take_away(entry)
                return
            self._make_directories([(entry, entry.held_partitions)], Role.ALONE)
        for directory in directories:
            self._files.flush_directory(directory)
        self._show({**self.entries, entry.name: entry.in_state(TopicState.LIVE)})

    def _has_records(self, directory: str) -> bool:
        return self._files.is_directory(directory) and any(
            not each.is_directory
            and each.name.endswith(LOG_SUFFIX)
            and self._files.size_bytes(f"{directory}/{each.name}") > 0
            for each in self._files.list_directory(directory)
        )

    def _store_what_was_finished(self) -> None:
        """Without room for it, the next open finds the same and finishes it again."""
        try:
            self._store(self.entries)
        except DiskFullError:
            if self.adopted:
                raise
            left, self._left = self._left, []
            self._remove_making_room(left)
        if self._is_stored:
            self._tell_implied()
        else:
            warn("%s: no room to store which topics there are: the next change or open does it", self._path)

    def _remove_left(self) -> None:
        if not self._left:
            return
        removals, files = Removals.of(self._files)
        self.remove_directories(self._left, files)
        self._left = []
        if removals.count:
            inform(
                "%s: removed %d files, %d bytes: left of deleted topics by an earlier process",
                self._path,
                removals.count,
                removals.size_bytes,
            )

    def _tell_implied(self) -> None:
        """Warn once: from now on the catalogue says that these topics keep their records."""
        names, self._implied = [name for name in self._implied if self.get(name) is not None], []
        if names:
            warn(
                "no time limit was set for %s: the default was seven days, but from now on nothing is "
                "deleted; to keep that limit, call topic.configure(retention_ms=604_800_000)",
                ", ".join(map(repr, names)),
            )

    # Creating

    def new_entry(self, topic: NewTopic, beside: Sequence[TopicEntry] = ()) -> TopicEntry:
        """The entry of a topic that can be created, together with those ``beside`` it.

        Raises:
            TopicExistsError: the topic exists, or one whose name differs only in ``.`` and ``_``; or a
                partition directory of that name was put there since the store was opened.
        """
        self._check_free(topic.name, beside)
        if topic.name in self.entries:
            self._finish_failed(self.entries[topic.name])
        wanted = topic.topic_id
        entry = TopicEntry(
            name=topic.name,
            topic_id=wanted if wanted is not None and self._is_free(wanted, beside) else uuid.uuid4(),
            partition_count=topic.partition_count,
            config=topic.config or self._default,
            state=TopicState.CREATING,
        ).holding(range(topic.partition_count) if topic.held is None else topic.held)
        self._check_vacant(entry, entry.held_partitions)
        return entry

    def begin(self, entries: Sequence[TopicEntry], role: Role = Role.ALONE) -> None:
        """Store that topics are being created, and create the directories of the partitions that they hold.
        :meth:`finish` completes it; after a crash before that, the next open does, or undoes it."""
        self._put_all(entries)
        self._make_directories([(entry, entry.held_partitions) for entry in entries], role)

    def finish(self, entries: Sequence[TopicEntry]) -> list[TopicEntry]:
        """Complete creations or a growth, durably."""
        live = [entry.in_state(TopicState.LIVE) for entry in entries]
        self._put_all(live)
        return live

    def undo(self, name: str) -> None:
        """Undo a failed creation. If that fails too, the next open finishes the creation or the undoing."""
        entry = self.entries.get(name)
        if entry is not None and entry.state is TopicState.CREATING:
            with contextlib.suppress(LogstoreError):  # the original error says more
                self._finish_failed(entry)

    def _finish_failed(self, entry: TopicEntry) -> None:
        """Remove what a failed creation or deletion left."""
        self._show({**self.entries, entry.name: entry.in_state(TopicState.DELETING)})
        try:
            self._store(self.entries)
        except DiskFullError:
            self._remove_making_room(self._take_away(entry))
        else:
            self.take_out(entry)

    def _check_free(self, name: str, beside: Sequence[TopicEntry]) -> None:
        if self.get(name) is not None or any(other.name == name for other in beside):
            raise TopicExistsError(f"topic {name!r} exists already; require_topic() returns it")
        if "." not in name and "_" not in name:
            return  # no name is like it, however many there are
        for other in chain(self.entries.values(), beside):
            if other.name != name and has_name_clash(other.name, name):
                raise TopicExistsError(
                    f"topic {name!r} clashes with {other.name!r}: Kafka treats . and _ as the same"
                )

    def _is_free(self, topic_id: uuid.UUID, beside: Sequence[TopicEntry]) -> bool:
        return all(each.topic_id != topic_id for each in chain(self.entries.values(), beside))

    def _check_vacant(self, entry: TopicEntry, numbers: Iterable[int]) -> None:
        for number in numbers:
            directory = self.directory_of(TopicPartition(entry.name, number))
            if self._is_taken(entry, directory):
                raise TopicExistsError(
                    f"{directory} holds a partition of another topic. Move it away; or close and open the "
                    "store, which then finds it as a topic"
                )

    def _is_taken(self, entry: TopicEntry, directory: str) -> bool:
        """Whether the directory holds a partition that is not the topic's."""
        if not self._files.is_directory(directory):
            return False
        try:
            found = read_topic_id(self._files, directory)
        except CorruptionError:
            return True
        return holds_partition(self._files, directory) if found is None else found != entry.topic_id

    def _make_directories(self, made: Iterable[tuple[TopicEntry, Iterable[int]]], role: Role) -> None:
        """Create the directories of new partitions, by their topics and numbers. Forgets everything about an
        earlier partition of the same name, so that none of it carries over. One whose directory is there
        already keeps its role. What is in them becomes durable when their logs are opened."""
        pairs = [(entry, TopicPartition(entry.name, number)) for entry, numbers in made for number in numbers]
        self._home.forget([partition for _, partition in pairs])

        def make(pair: tuple[TopicEntry, TopicPartition]) -> None:
            entry, partition = pair
            directory = self.directory_of(partition)
            if self._is_taken(entry, directory):
                return  # opening it raises
            is_new = not self._files.is_directory(directory)
            if is_new:
                make_directory_for_owner(self._files, directory)
            begin_directory(self._files, directory, entry.topic_id, role if is_new else Role.ALONE)

        take_turns(make, pairs, at_a_time=flushed_at_a_time(self._files))
        self._files.flush_directory(self._path)

    # Changing

    def begin_growth(
        self,
        entry: TopicEntry,
        numbers: Sequence[int],
        partition_count: int | None = None,
        role: Role = Role.ALONE,
    ) -> TopicEntry:
        """Create the directories of more partitions; ``partition_count``, if given, is the topic's new total.
        They are not held until :meth:`finish`: a crash before it leaves empty directories, which the next
        growth uses.

        Raises:
            TopicExistsError: one of the directories holds a partition of another topic.
        """
        if not set(numbers).isdisjoint(entry.letting_go):
            entry = self.take_out_parts(entry)[0]  # an earlier let_go() failed half-way
        self._check_vacant(entry, numbers)
        self._make_directories([(entry, numbers)], role)
        return entry.holding([*entry.held_partitions, *numbers], partition_count)

    def configure(self, entry: TopicEntry, config: TopicConfig) -> TopicEntry:
        """Store other settings, durably."""
        return self._put(replace(entry, config=config))

    # Deleting

    def hide(self, entry: TopicEntry) -> TopicEntry:
        """Store, durably, that a topic is being deleted: a later crash cannot bring part of it back."""
        return self._put(entry.in_state(TopicState.DELETING))

    def take_out(self, entry: TopicEntry) -> list[str]:
        """Remove a hidden topic; returns its directories under their new names, for
        :meth:`remove_directories`."""
        renamed = self._take_away(entry)
        try:
            self._store(self.entries)
        except DiskFullError:
            self._remove_making_room(renamed)
            return []
        return renamed

    def set_aside(self, entry: TopicEntry) -> list[str]:
        """Rename the directories of a topic, all or none, where there is no room to store that it is deleted:
        the new names say so. Returns them, for :meth:`take_out_aside`. None: no directory has the topic's id.
        """
        renamed: list[tuple[str, str]] = []
        try:
            ever = self._partitions_ever(entry)
            for partition in sorted(ever, key=lambda each: not entry.holds(each.partition)):
                renamed += self._rename_away(entry, partition)
            self._files.flush_directory(self._path)
            if any(self._belongs_to(entry, gone) for _, gone in renamed):
                return [gone for _, gone in renamed]
        except BaseException:
            self._put_back(renamed)
            raise
        self._put_back(renamed)
        return []

    def _put_back(self, renamed: Iterable[tuple[str, str]]) -> None:
        for directory, gone in renamed:
            self._files.rename(gone, directory)
        self._files.flush_directory(self._path)

    def take_out_aside(self, entry: TopicEntry, renamed: Sequence[str]) -> None:
        """Remove a topic that was set aside, with its files, which makes room."""
        self._remove_making_room([*renamed, *self._take_away(entry)])

    def _remove_making_room(self, directories: Sequence[str]) -> None:
        """Remove the directories of deleted partitions, and store the catalogue if there is room then. Until
        it is stored, one of each topic stays, with nothing in it but the topic's id: see
        :func:`deleted_unstored`."""
        marks: dict[uuid.UUID, str] = {}
        for directory in directories:
            with contextlib.suppress(CorruptionError):
                if (topic_id := read_topic_id(self._files, directory)) is not None:
                    marks.setdefault(topic_id, directory)
        self._marks += marks.values()
        self.remove_directories([each for each in directories if each not in self._marks])
        for mark in marks.values():
            with contextlib.suppress(StorageError):
                _remove_files(self._files, mark, but=METADATA_NAME)
        self._store_if_room()

    def _store_if_room(self) -> None:
        with contextlib.suppress(DiskFullError):
            self._store(self.entries)

    def store_marked(self) -> None:
        """Store the catalogue, if there was no room for it when a topic was deleted."""
        if self._marks:
            self._store_if_room()

    def _take_away(self, entry: TopicEntry) -> list[str]:
        renamed = self._forget_and_rename(entry, self._partitions_ever(entry))
        self._show({name: other for name, other in self.entries.items() if name != entry.name})
        return renamed

    def _forget_and_rename(self, entry: TopicEntry, partitions: Sequence[TopicPartition]) -> list[str]:
        with contextlib.suppress(DiskFullError):  # new partitions with these names are not made before it is
            self._home.forget(partitions)
        return self.rename_away(entry, partitions)

    def rename_away(self, entry: TopicEntry, partitions: Iterable[TopicPartition]) -> list[str]:
        """Durably rename the directories of partitions to deleted ones; returns the new names. Without a word
        in the catalogue they are missing from then on, and can still be deleted."""
        renamed = [gone for each in partitions for _, gone in self._rename_away(entry, each)]
        self._files.flush_directory(self._path)
        return renamed

    def _rename_away(self, entry: TopicEntry, partition: TopicPartition) -> list[tuple[str, str]]:
        """The old name and the new one; nothing if there is no such directory."""
        directory = self.directory_of(partition)
        if not self._files.is_directory(directory) or self._is_anothers(entry, directory):
            return []
        gone = f"{self._path}/{deleted_directory_name(*partition, uuid.uuid4().hex)}"
        self._files.rename(directory, gone)
        return [(directory, gone)]

    def hide_parts(self, entry: TopicEntry, numbers: Iterable[int]) -> TopicEntry:
        """Store, durably, that partitions are no longer held."""
        going = set(numbers)
        left = entry.holding(set(entry.held_partitions) - going)
        return self._put(replace(left, letting_go=tuple(sorted(going.union(entry.letting_go)))))

    def take_out_parts(self, entry: TopicEntry) -> tuple[TopicEntry, list[str]]:
        """Remove the hidden partitions of a topic; returns the topic, and the partitions' directories under
        their new names, for :meth:`remove_directories`."""
        renamed = self._take_parts_away(entry)
        self._store(self.entries)
        return self.entries[entry.name], renamed

    def _take_parts_away(self, entry: TopicEntry) -> list[str]:
        renamed = self._forget_and_rename(entry, [TopicPartition(entry.name, n) for n in entry.letting_go])
        self._show({**self.entries, entry.name: replace(entry, letting_go=())})
        return renamed

    def _partitions_ever(self, entry: TopicEntry) -> list[TopicPartition]:
        """The partitions of a topic, and those that a growth created and did not finish: if their directories
        stayed, the next open would make a topic of them again."""
        numbers = {*entry.held_partitions, *entry.letting_go}
        start = f"{entry.name}-"
        listed = [  # before they are parsed: thousands of others may be there, also of deleted topics
            each
            for each in self._files.list_directory(self._path)
            if each.name.startswith(start) and each.name.removeprefix(start).isdecimal()
        ]
        for name, parsed in partitions_among(listed):
            is_live = parsed.kind is DirectoryKind.LIVE and parsed.topic == entry.name
            if is_live and self._belongs_to(entry, f"{self._path}/{name}"):
                numbers.add(parsed.partition)
        return [TopicPartition(entry.name, number) for number in sorted(numbers)]

    def _is_anothers(self, entry: TopicEntry, directory: str) -> bool:
        """Whether the directory says that it belongs to another topic: it is then not deleted with this one,
        and the next open makes a topic of it."""
        with contextlib.suppress(CorruptionError):
            foreign = foreign_topic_id(self._files, directory, entry.topic_id)
            if foreign is not None:
                warn("%s stays: it belongs to topic %s, not to %s", directory, foreign, entry.topic_id)
                return True
        return False

    def _belongs_to(self, entry: TopicEntry, directory: str) -> bool:
        """Whether the directory says that it belongs to the topic. If its id is damaged, it must not be
        deleted: false."""
        with contextlib.suppress(CorruptionError):
            return read_topic_id(self._files, directory) == entry.topic_id
        return False

    def remove_directories(self, directories: Iterable[str], files: Files | None = None) -> None:
        """Remove partition directories with their files. What cannot be removed stays, without harm; the next
        open tries again."""
        for directory in directories:
            try:
                _remove_directory(files or self._files, directory)
            except StorageError as error:
                warn("a deleted partition cannot be removed: %s", error)

    # Storing

    def _put(self, entry: TopicEntry) -> TopicEntry:
        """Store the catalogue with this entry, then show it."""
        self._put_all([entry])
        return entry

    def _put_all(self, entries: Sequence[TopicEntry]) -> None:
        changed = {**self.entries, **{entry.name: entry for entry in entries}}
        self._store(changed)
        self._show(changed)

    def _show(self, entries: dict[str, TopicEntry]) -> None:
        self.entries = entries
        self._is_stored = False

    def _store(self, entries: dict[str, TopicEntry]) -> None:
        self._home.check_held()
        self._catalogue.write(entries.values())
        self._is_stored = True
        marks, self._marks = self._marks, []
        self.remove_directories(marks)


def _remove_directory(files: Files, directory: str) -> None:
    if files.is_directory(directory):
        _remove_files(files, directory)
        files.remove_directory(directory)


def _remove_files(files: Files, directory: str, *, but: str | None = None) -> None:
    for entry in files.list_directory(directory):
        if not entry.is_directory and entry.name != but:
            files.remove(f"{directory}/{entry.name}")


def deleted_unstored(
    files: Files, path: str, listed: Iterable[tuple[str, DirectoryName]], entries: Mapping[str, TopicEntry]
) -> list[str]:
    """The topics that were deleted while there was no room to store it: none of the partitions that they hold
    is there, and one is under the name of a deleted one, with the topic's id. ``listed``: see
    :func:`list_partitions`."""
    parsed = dict(listed)
    deleted = {name: found for name, found in parsed.items() if found.kind is DirectoryKind.DELETED}
    if not deleted:
        return []
    empty = {
        entry.topic_id: entry
        for entry in entries.values()
        if entry.state is TopicState.LIVE
        and not any(partition_directory_name(entry.name, n) in parsed for n in entry.held_partitions)
    }
    topics: dict[str, None] = {}
    for name, found in deleted.items() if empty else ():
        with contextlib.suppress(CorruptionError):
            topic_id = read_topic_id(files, f"{path}/{name}")
            entry = None if topic_id is None else empty.get(topic_id)
            if entry is not None and entry.holds(found.partition):
                topics[entry.name] = None
    return list(topics)


def as_broker_left(files: Files, path: str, stored: Mapping[str, TopicEntry]) -> dict[str, TopicEntry]:
    """The entries of a catalogue in a broker's directory, updated by what the broker has changed since.
    Topics that it has deleted are gone, also if it has made others of their names: those have no entry.
    Others may have more partitions, and more may be held. Topics whose directories it has set aside stay, so
    that their users get an error that says so. A partition that was held and does not exist counts as
    missing, even if the broker has moved it elsewhere."""
    entries = dict(stored)
    found = unknown_partitions(files, path, list_partitions(files, path), ())
    strays = list_strays(files, path)
    for name, entry in stored.items():
        if entry.state is not TopicState.LIVE:
            continue
        if name in found and _is_another(files, path, entry, found[name]):
            del entries[name]
        elif name in found:
            held = found[name].difference(entry.letting_go).union(entry.held_partitions)
            entries[name] = entry.holding(held, max(entry.partition_count, max(held) + 1))
        elif not any(strays_of(TopicPartition(name, n), strays) for n in entry.held_partitions):
            del entries[name]
    return entries


def _is_another(files: Files, path: str, entry: TopicEntry, numbers: Iterable[int]) -> bool:
    """Whether a topic of an entry's name is another one: none of its directories has the entry's id, and all
    have the same other one. Some that were put in the wrong place are not taken for that."""
    ids = set()
    for number in numbers:
        with contextlib.suppress(CorruptionError):  # a damaged id says nothing
            ids.add(read_topic_id(files, f"{path}/{partition_directory_name(entry.name, number)}"))
        if entry.topic_id in ids:
            return False
    return len(ids) == 1 and None not in ids


def entry_of_directories(
    name: str, topic_id: uuid.UUID, numbers: Iterable[int], default: TopicConfig
) -> TopicEntry:
    """The entry of a topic that is in no catalogue. It holds the partitions found; the highest number gives
    the count, since others may be elsewhere."""
    held = set(numbers)
    entry = TopicEntry(
        name=name, topic_id=topic_id, partition_count=max(held) + 1, config=keep_everything(default)
    )
    return entry.holding(held)


def keep_everything(config: TopicConfig) -> TopicConfig:
    """The settings for a topic whose own are not known: no record may be deleted because of a default."""
    return replace(config, cleanup_policy="delete", retention_ms=-1, retention_bytes=-1)
