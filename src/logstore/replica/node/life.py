"""What a node remembers on its disk of its own lives: ``node.json`` in the store's directory.

A node tells the coordinator whether it has lost anything since it last registered. It has lost nothing if it
was stopped, and nothing either if only its process ended: then the system has all that was written. A process
finds that out by the id that Linux gives to each start of the machine. What was found out is kept until the
node has registered: a clean stop before that does not bring back what an earlier end has taken.

What the disk has lost of what was flushed is found out where logs are opened: somebody has accepted a loss,
or a recovery has cut off more than a write that was under way, though the machine has not gone down. Then
there is :data:`.LOST_NAME`.
"""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from logstore.clock import read_boot_id
from logstore.errors import CorruptionError, UsageError
from logstore.files import Files, read_small_file
from logstore.logdir.small_json import decode_json, encode_json, read_json_file, write_json_file
from logstore.partition.state.home import LOST_NAME, MAX_NODE_BYTES, NODE_NAME, tells_loss

VERSION: Final = 1
_WHAT_TO_DO: Final = (
    "If you move it away, the node counts as one that has lost everything, and copies it from the others"
)


class _Known(NamedTuple):
    node_id: int
    last_life: int
    boot_id: str
    """Of the machine's start in which the last process ran."""
    was_stopped: bool
    has_lost: bool
    """Whether something was lost of which the coordinator was not told."""


class LifeFile:
    """The file of one node, of the process that has the directory open."""

    def __init__(self, files: Files, directory: str, node_id: int) -> None:
        """
        Raises:
            UsageError: it is of another node.
            CorruptionError: it is damaged.
        """
        self._files = files
        self._directory = directory
        self._path = f"{directory}/{NODE_NAME}"
        self._lost_path = f"{directory}/{LOST_NAME}"
        self._boot_id = read_boot_id()
        known = read_json_file(files, self._path, MAX_NODE_BYTES, _decode, _WHAT_TO_DO)
        if known is not None and known.node_id != node_id:
            raise UsageError(
                f"{directory} is of node {known.node_id}, not of node {node_id}; start it with its own id"
            )
        word = read_small_file(files, self._lost_path, MAX_NODE_BYTES)
        self._has_word = word is not None
        """Whether the disk has said that something was lost, and the coordinator was not told yet."""
        last_boot_id = "" if known is None else known.boot_id
        self.keeps_flushed = word is None or not tells_loss(word, last_boot_id)
        """Whether it has lost nothing since it last registered that it had flushed."""
        was_killed_only = known is not None and self._boot_id in (known.boot_id,) and bool(self._boot_id)
        has_lost = known is None or known.has_lost or not (known.was_stopped or was_killed_only)
        last_life = 0 if known is None else known.last_life
        self._known = _Known(node_id, last_life, self._boot_id, was_stopped=False, has_lost=has_lost)
        self._store()

    @property
    def last_life(self) -> int:
        """The last life that the node had; 0 if it had none."""
        return self._known.last_life

    @property
    def is_whole(self) -> bool:
        """Whether it has lost nothing since then."""
        return self.keeps_flushed and not self._known.has_lost

    def remember(self, life: int) -> None:
        """The coordinator gives the node this life. Durable on return."""
        self._known = self._known._replace(last_life=life)
        self._store()

    def note_registered(self) -> None:
        """The coordinator knows what was lost."""
        self._known = self._known._replace(has_lost=False)
        self._store()
        self.keeps_flushed = True
        if self._has_word:  # what is lost from now on is for the next process to tell
            self._files.remove(self._lost_path)
            self._files.flush_directory(self._directory)
            self._has_word = False

    def note_lost(self) -> None:
        """What was written may be gone: the disk has failed."""
        self._known = self._known._replace(has_lost=True)
        self._store()

    def note_stopped(self) -> None:
        """All is flushed, and nothing comes after this."""
        self._known = self._known._replace(was_stopped=True)
        self._store()

    def _store(self) -> None:
        data = encode_json(VERSION, node=self._known._asdict())
        write_json_file(self._files, self._path, data, MAX_NODE_BYTES)


def _decode(data: bytes) -> _Known:
    node: dict[str, Any] = decode_json(data, NODE_NAME, VERSION, "node", dict, "the node")["node"]
    try:
        known = _Known(**node)
    except TypeError:
        raise CorruptionError(f"{NODE_NAME} has other fields than a node has") from None
    kinds = (int, int, str, bool, bool)
    if any(type(value) is not kind for value, kind in zip(known, kinds, strict=True)):
        raise CorruptionError(f"{NODE_NAME} has a field of another type than a node has")
    return known
