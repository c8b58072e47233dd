"""The promotion of a standby: copies become the store's own.

Which topics are copies of which leader is noted in the store (``followed.json``): so it does not need the
leader, nor that the leader still has them. The promotion of all topics is decided by one write of these
notes, and what a crash leaves undone then, the next promotion does.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

from logstore.clients.transactions.status import abort_open
from logstore.errors import StorageError, UsageError
from logstore.logdir.followed import Followed, change_followed, read_followed
from logstore.model import Role
from logstore.partition.log import Log
from logstore.partition.state.leader_epochs import EPOCHS_ELSEWHERE
from logstore.store import Store
from logstore.turns import flushed_at_a_time, take_turns
from logstore.warning import warn


def begin_promotion(store: Store, leader: Sequence[str], topics: Collection[str] | None) -> list[str]:
    """Decide, durably, that copies are the store's own: nothing is copied into them from now on.

    Args:
        leader: its addresses; each topic that a standby has copied from one of them is meant, or from the
            same cluster.
        topics: None, or the names of those that are meant.

    Returns:
        The names of the topics whose promotion has begun.

    Raises:
        UsageError: all copies that are here are another leader's.
        StorageError: the disk failed; nothing is decided.
    """
    directory = store.directory
    with change_followed(directory.context.files, directory.path) as followed:
        copies = _copies_in(store, followed, topics)
        names = _names_of(copies, leader)
        if copies and not names:
            name, other = next(iter(copies.items()))
            ours, theirs = ", ".join(leader), ", ".join(other.leader)
            raise UsageError(
                f"{store.path} has no copies of {ours}, and topic {name!r} is a copy of {theirs}: "
                "follow that leader, and promote(); it need not answer"
            )
        followed.update({name: copies[name]._replace(is_promoted=True) for name in names})
    return names


def copies_of(store: Store, leader: Sequence[str], topics: Collection[str] | None) -> list[str]:
    """The names of the topics, of those that are meant, that a store has as copies of a leader; if it has
    only another's, the names of these.

    Args:
        leader: its addresses, each also several with commas between them.
    """
    directory = store.directory
    copies = _copies_in(store, read_followed(directory.context.files, directory.path), topics)
    return _names_of(copies, [each for given in leader for each in addresses_in(given)]) or sorted(copies)


def _copies_in(
    store: Store, followed: Mapping[str, Followed], topics: Collection[str] | None
) -> dict[str, Followed]:
    return {
        name: each
        for name, each in followed.items()
        if each.leader and name in store and (topics is None or name in topics)
    }


def addresses_in(given: object) -> list[str]:
    """The addresses in what a leader was given as."""
    return [each.strip() for each in str(given).split(",")]


def was_promoted(store: Store, topics: Collection[str] | None) -> bool:
    """Whether any topics of the store, or of those that are named, were promoted at some time."""
    directory = store.directory
    return any(
        each.is_promoted and name in store and (topics is None or name in topics)
        for name, each in read_followed(directory.context.files, directory.path).items()
    )


def _names_of(copies: dict[str, Followed], leader: Sequence[str]) -> list[str]:
    """The copies of a leader; also those that it had when it had other addresses."""
    addresses = set(leader)
    clusters = {each.cluster_id for each in copies.values() if addresses.intersection(each.leader)}
    return sorted(name for name, each in copies.items() if each.cluster_id in clusters)


def promote_topics(store: Store, names: Collection[str], aborted: set[tuple[int, int]]) -> None:
    """Make the logs of topics the store's own. One that is damaged stays a copy, and a warning says so.

    Args:
        aborted: gets the producers, by id and epoch, whose transactions were open, and are aborted: the
            markers that would have ended them were not copied, and no coordinator here knows of them.

    Raises:
        StorageError: the disk failed for a log or more; the others are the store's own.

    Cost: some fsyncs for each log, of eight at a time.
    """
    directory = store.directory
    at_a_time = flushed_at_a_time(directory.context.files)
    copies = [log for log in directory.logs() if log.partition.topic in names and log.role is Role.FOLLOWER]
    ready: list[Log] = []
    failures: list[StorageError] = []

    def prepare(log: Log) -> None:
        aborted.update(_prepare(log))
        ready.append(log)

    def of_each(step: Callable[[Log], None], logs: Sequence[Log]) -> None:
        try:
            take_turns(step, logs, at_a_time=at_a_time)
        except StorageError as error:  # the others have taken it
            failures.append(error)

    of_each(prepare, copies)
    directory.context.home.store_checkpoints()  # once: they have a line for each log
    of_each(_make_own, ready)
    for partition in directory.damaged:
        if partition.topic in names:
            warn("%s is damaged, and stays a copy; when it is mended, log.set_role(Role.ALONE)", partition)
    if failures:
        raise failures[0]


def _prepare(log: Log) -> set[tuple[int, int]]:
    """A crash in between leaves a follower, which is promoted again."""
    log.assign_leader_epoch(log.leader_epoch + EPOCHS_ELSEWHERE)
    aborted = abort_open(log)
    log.prepare_checkpoint()
    return aborted


def _make_own(log: Log) -> None:
    log.set_role(Role.ALONE)


def end_promotion(store: Store, names: Collection[str]) -> None:
    """Note that it is done: the topics are no copies any more."""
    directory = store.directory
    with change_followed(directory.context.files, directory.path) as followed:
        for name in names:
            if name in followed:
                followed[name] = followed[name]._replace(leader=())
