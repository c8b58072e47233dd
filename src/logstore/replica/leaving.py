"""A node's directory becomes a store that is alone again, and can be the first node of another cluster."""

from __future__ import annotations

from logstore.errors import UsageError
from logstore.files import PathLike
from logstore.model import Role, TopicPartition
from logstore.partition.state.home import LOST_NAME, NODE_NAME
from logstore.partition.state.leader_epochs import EPOCHS_ELSEWHERE
from logstore.replica.node.controller.adopting import was_node
from logstore.store import open_store
from logstore.warning import inform


def leave_cluster(path: PathLike) -> None:
    """Make the topics in a node's directory its own: it is a node of its cluster no more, and belongs to
    another one, with a cluster id of its own. For the node that has everything, when the coordinator is lost
    for good: ``docs/replication.md`` says what to do then.

    Nothing is removed from the topics. If the old cluster comes back, it refuses this directory. A call that
    was interrupted is made again. Cost: a few fsyncs for each partition.

    Args:
        path: the node's directory; the node must not run.

    Raises:
        UsageError: it is no directory of a node.
        LockedError: a process has it open.
        CorruptionError: a partition is damaged; says what to do. The directory is still the node's.
        StorageError: the disk failed. The directory is still the node's.
    """
    with open_store(path, create=False) as store:
        directory = store.directory
        if not was_node(store):
            raise UsageError(
                f"{directory.path} has no cluster to leave; it can be the first node of a new one as it is"
            )
        for name in directory.topic_names():
            for number in directory.topic(name).held_partitions:
                log = directory.log(TopicPartition(name, number))
                if log.role is not Role.ALONE:
                    log.assign_leader_epoch(log.leader_epoch + EPOCHS_ELSEWHERE)
                    log.set_role(Role.ALONE)
        directory.leave()
        # Until this is done, the directory is a node's, and the call can be made again.
        for name in (NODE_NAME, LOST_NAME):
            if directory.files.is_file(f"{directory.path}/{name}"):
                directory.files.remove(f"{directory.path}/{name}")
        directory.files.flush_directory(directory.path)
        inform("%s has left its cluster", directory.path)
