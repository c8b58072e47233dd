"""The small JSON files of a store: each has a version, and one part with everything in it. What is in that
part is up to the module that owns the file."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from logstore.errors import CorruptionError, UnsupportedVersionError, UsageError
from logstore.files import Files, read_small_file, write_small_file

T = TypeVar("T")


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
