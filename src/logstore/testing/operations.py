"""What a program does to a disk, as values: the trace that :class:`~logstore.testing.memory.MemoryFiles`
keeps, from which :mod:`~logstore.testing.crash` makes the states that a power cut may leave.

Files and directories go by numbers (inodes): a name may move while a write to its file is under way. Each
operation also has the path that it was done under, for people.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Write(NamedTuple):
    """Bytes into a file."""

    path: str
    file: int
    position: int
    data: bytes

    def __str__(self) -> str:
        return f"write {self.path} {self.position}+{len(self.data)}"


class Truncate(NamedTuple):
    """A file cut, or grown with zeros."""

    path: str
    file: int
    size_bytes: int

    def __str__(self) -> str:
        return f"truncate {self.path} {self.size_bytes}"


class FlushFile(NamedTuple):
    """Everything done to a file so far is on the disk."""

    path: str
    file: int

    def __str__(self) -> str:
        return f"flush {self.path}"


class LoseUnflushed(NamedTuple):
    """A flush failed: nobody knows what of the changes since the last one is on the disk, and no later flush
    will write them. Whoever reads still sees them."""

    path: str
    file: int

    def __str__(self) -> str:
        return f"fail to flush {self.path}"


class Create(NamedTuple):
    """A new empty file."""

    path: str
    directory: int
    name: str
    file: int

    def __str__(self) -> str:
        return f"create {self.path}"


class Link(NamedTuple):
    """A second name of a file."""

    path: str
    directory: int
    name: str
    file: int

    def __str__(self) -> str:
        return f"link {self.path}"


class MakeDirectory(NamedTuple):
    """A new empty directory."""

    path: str
    directory: int
    name: str
    made: int

    def __str__(self) -> str:
        return f"mkdir {self.path}"


class Rename(NamedTuple):
    """A file or a directory under another name of the same directory; what had that name is gone."""

    path: str
    directory: int
    name: str
    new_name: str

    def __str__(self) -> str:
        return f"rename {self.path} -> {self.new_name}"


class Exchange(NamedTuple):
    """Two names of a directory that change places in one step."""

    path: str
    directory: int
    name: str
    other_name: str

    def __str__(self) -> str:
        return f"exchange {self.path} <-> {self.other_name}"


class Remove(NamedTuple):
    """A name gone, of a file or of an empty directory."""

    path: str
    directory: int
    name: str

    def __str__(self) -> str:
        return f"remove {self.path}"


class FlushDirectory(NamedTuple):
    """Everything done to the names of a directory so far is on the disk."""

    path: str
    directory: int

    def __str__(self) -> str:
        return f"flush directory {self.path}"


class Note(NamedTuple):
    """Not an operation: what the program that uses the disk has said at this point."""

    said: Any

    def __str__(self) -> str:
        return f"# {self.said}"


FileOperation = Write | Truncate
"""What changes the contents of a file."""

NameOperation = Create | Link | MakeDirectory | Rename | Exchange | Remove
"""What changes the names of a directory."""

Operation = FileOperation | NameOperation | FlushFile | LoseUnflushed | FlushDirectory
"""What a power cut may come between."""

Trace = list[Operation | Note]
