"""The small JSON files of a store: each has a version, and one part with everything in it. What is in that
part is up to the module that owns the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Generic, NamedTuple, TypeVar

from logstore.errors import CorruptionError, UnsupportedVersionError, UsageError
from logstore.files import Files, is_open_to_others, read_small_file, write_small_file
from logstore.warning import warn

T = TypeVar("T")

_COPY_OF: Final = "copy_of"
_COPY_VERSION: Final = "copy_version"
"""The parts that say that a file is a node's copy: of which cluster, and of which version there."""


class Copy(NamedTuple):
    """What a file is a copy of."""

    cluster_id: str
    version: int


@dataclass(frozen=True, kw_only=True)
class JsonFile(Generic[T]):
    """What a module that owns such a file knows of it."""

    name: str
    limit_bytes: int
    encode: Callable[[T], bytes]
    decode: Callable[[bytes], T]
    """Raises CorruptionError and UnsupportedVersionError."""
    parts: Callable[[T], Mapping[str, object]]
    """What is in a value, by names for people."""
    what_to_do: str
    """What an error tells the owner of a damaged file."""
    is_private: bool = False
    """Whether passwords could be guessed from it."""

    def load(self, files: Files, directory: str) -> tuple[T, bytes] | None:
        """What the file of a directory holds, also as bytes; None if there is none. Warns if others than the
        owner may read a private one, as a copy of a directory may leave it.

        Raises:
            CorruptionError: the file is damaged; says where, and what to do.
            UnsupportedVersionError: a newer logstore wrote it.
        """
        path = f"{directory}/{self.name}"

        def decode(data: bytes) -> tuple[T, bytes]:
            if self.is_private and is_open_to_others(files, path):
                warn(
                    "%s can be read by other users of this machine, who could guess passwords: chmod 600 it",
                    path,
                )
            return self.decode(data), data

        return read_json_file(files, path, self.limit_bytes, decode, self.what_to_do)

    def read(self, files: Files, directory: str) -> T | None:
        """What the file of a directory holds. As :meth:`load`."""
        found = self.load(files, directory)
        return None if found is None else found[0]

    def write(self, files: Files, directory: str, data: bytes) -> None:
        """Replace the file by the bytes of a value, durably and atomically.

        Raises:
            UsageError: it would be larger than what is read. The file is as it was.
        """
        path = f"{directory}/{self.name}"
        write_json_file(files, path, data, self.limit_bytes, private=self.is_private)


def read_json_file(
    files: Files, path: str, limit_bytes: int, decode: Callable[[bytes], T], what_to_do: str
) -> T | None:
    """What such a file holds; None if there is none.

    Args:
        decode: from the bytes to the value; raises CorruptionError.
        what_to_do: what an error tells the owner of a damaged file.

    Raises:
        CorruptionError: the file is damaged, or larger than that; says where, and what to do.
        UnsupportedVersionError: a newer logstore wrote it.
    """
    data = read_small_file(files, path, limit_bytes)
    if data is None:
        return None
    try:
        return decode(data)
    except CorruptionError as error:
        raise CorruptionError(f"{error.reason}. {what_to_do}").located(path) from None
    except UnsupportedVersionError as error:
        raise of_newer_version(path, error) from None


def of_newer_version(path: str, error: UnsupportedVersionError) -> UnsupportedVersionError:
    """The error of a file with its path, and what to do."""
    return UnsupportedVersionError(f"{path}: {error}. A newer logstore wrote it: open the store with that")


def write_json_file(files: Files, path: str, data: bytes, limit_bytes: int, *, private: bool = False) -> None:
    """Replace such a file, durably and atomically.

    Raises:
        UsageError: it would be larger than what is read. The file is as it was.
    """
    if len(data) > limit_bytes:
        name = path.rpartition("/")[2]
        raise UsageError(f"{name} would have {len(data)} bytes; {limit_bytes} are allowed")
    write_small_file(files, path, data, private=private)


def encode_json(version: int, **parts: Any) -> bytes:
    """The bytes of such a file."""
    import json  # here and below: only programs that have such a file need it

    return json.dumps({"version": version, **parts}, indent=1).encode() + b"\n"


def marked_as_copy(data: bytes, copy: Copy) -> bytes:
    """The bytes of a file that was decoded, as a copy."""
    import json

    return encode_json(**{**json.loads(data), _COPY_OF: copy.cluster_id, _COPY_VERSION: copy.version})


def copy_mark(data: bytes) -> Copy | None:
    """What the bytes of a file that was decoded are a copy of; None if they are not."""
    import json

    content = json.loads(data)
    cluster_id, version = content.get(_COPY_OF), content.get(_COPY_VERSION)
    is_marked = type(cluster_id) is str and type(version) is int
    return Copy(cluster_id, version) if is_marked else None


def decode_json(data: bytes, name: str, version: int, part: str, kind: type, what: str) -> dict[str, Any]:
    """All parts of such a file, of which ``part`` is a ``kind``.

    Args:
        name: of the file, and ``what`` that part is: for errors.
        version: the newest that is known.

    Raises:
        CorruptionError: it is no JSON, or has no such part.
        UnsupportedVersionError: a newer logstore wrote it.
    """
    import json

    try:
        content = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise CorruptionError(f"is not JSON: {error}") from None
    found = content.get("version") if isinstance(content, dict) else None
    if type(found) is not int or not isinstance(content.get(part), kind):
        raise CorruptionError(f"has no version, or no {what}")
    if found > version:
        raise UnsupportedVersionError(f"{name} has version {found}; only {version} is known")
    parts: dict[str, Any] = content
    return parts
