"""File operations as values: the trace that :class:`~logstore.testing.memory.MemoryFiles` keeps, from which
:mod:`~logstore.testing.crash` computes the states that a power cut may leave.

Files and directories are identified by numbers (inodes), because a name may change between the writes to its
file. Each operation also has its path, for people.
"""

from __future__ import annotations

from typing import Any, NamedTuple


class Write(NamedTuple):
    """Bytes written into a file."""

    path: str
    file: int
    position: int
    data: bytes

    def __str__(self) -> str:
        return f"write {self.path} {self.position}+{len(self.data)}"


class Truncate(NamedTuple):
    """A file is cut, or grown with zeros."""

    path: str
    file: int
    size_bytes: int

    def __str__(self) -> str:
        return f"truncate {self.path} {self.size_bytes}"


class FlushFile(NamedTuple):
    """Puts all changes of a file so far on the disk."""

    path: str
    file: int

    def __str__(self) -> str:
        return f"flush {self.path}"


class LoseUnflushed(NamedTuple):
    """A failed flush: it is unknown which changes since the last flush are on the disk, and no later flush
    will write them. Readers still see them."""

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
    """A file or directory gets another name in the same directory; what had that name is gone."""

    path: str
    directory: int
    name: str
    new_name: str

    def __str__(self) -> str:
        return f"rename {self.path} -> {self.new_name}"


class Exchange(NamedTuple):
    """Two names of a directory swap in one step."""

    path: str
    directory: int
    name: str
    other_name: str

    def __str__(self) -> str:
        return f"exchange {self.path} <-> {self.other_name}"


class Remove(NamedTuple):
    """The name of a file or of an empty directory is removed."""

    path: str
    directory: int
    name: str

    def __str__(self) -> str:
        return f"remove {self.path}"


class FlushDirectory(NamedTuple):
    """Puts all changes of a directory's names so far on the disk."""

    path: str
    directory: int

    def __str__(self) -> str:
        return f"flush directory {self.path}"


class Note(NamedTuple):
    """Not an operation: something that the program noted at this point."""

    said: Any

    def __str__(self) -> str:
        return f"# {self.said}"


FileOperation = Write | Truncate
"""Operations that change the contents of a file."""

NameOperation = Create | Link | MakeDirectory | Rename | Exchange | Remove
"""Operations that change the names of a directory."""

Operation = FileOperation | NameOperation | FlushFile | LoseUnflushed | FlushDirectory
"""All operations; a power cut may come between any two."""

Trace = list[Operation | Note]
