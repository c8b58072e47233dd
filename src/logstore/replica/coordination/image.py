"""The texts of a tree in memory, and what a change does to them. No I/O, no clock.

A change is also what is stored: one line of JSON behind a checksum.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from logstore.errors import CorruptionError
from logstore.replica.coordination.tree import Check, Create, Delete, Refusal, Step, Stored, Why, Write

_CHECKSUM_BYTES = 9
"""Eight digits, and the end of the line."""


class Change(NamedTuple):
    """What is done in one go."""

    steps: Sequence[Step] = ()
    session: str | None = None
    """To which texts are bound that it creates."""
    opens: tuple[str, int] | None = None
    """A session that begins, and after how many ms without a sign of life it is dead."""
    closes: str | None = None
    """A session that ends: what is bound to it goes."""
    confirms: str | None = None
    """A session that still lasts."""
    is_last: bool = False
    """Nothing follows in this segment of the log."""


class _Text(NamedTuple):
    data: str
    version: int
    session: str | None


class TreeImage:
    """As it is after ``number`` changes."""

    def __init__(self) -> None:
        self.number = 0
        self.sessions: dict[str, int] = {}
        """The time of each in ms."""
        self._texts: dict[str, _Text] = {}

    def read(self, path: str) -> Stored | None:
        text = self._texts.get(path)
        return None if text is None else Stored(text.data, text.version)

    def check(self, change: Change) -> Refusal | None:
        """Why the change cannot be made; None if it can."""
        for session in (change.session, change.closes, change.confirms):
            if session is not None and session not in self.sessions:
                return Refusal(Why.MISSING)
        made: dict[str, _Text | None] = {}
        for at, step in enumerate(change.steps):
            present = made[step.path] if step.path in made else self._texts.get(step.path)
            if isinstance(step, Create):
                if present is not None:
                    return Refusal(Why.EXISTS, at)
            elif present is None:
                return Refusal(Why.MISSING, at)
            elif step.version not in (None, present.version):
                return Refusal(Why.CHANGED, at)
            if not isinstance(step, Check):
                made[step.path] = _after(step, present, change.session)
        return None

    def apply(self, change: Change) -> dict[str, Stored | None]:
        """Make a change that was checked. Returns what has changed."""
        self.number += 1
        changed: dict[str, Stored | None] = {}
        if change.opens is not None:
            self.sessions[change.opens[0]] = change.opens[1]
        if change.closes is not None:
            del self.sessions[change.closes]
            for path in [path for path, text in self._texts.items() if text.session == change.closes]:
                del self._texts[path]
                changed[path] = None
        for step in change.steps:
            if isinstance(step, Check):
                continue
            text = _after(step, self._texts.get(step.path), change.session)
            if text is None:
                del self._texts[step.path]
            else:
                self._texts[step.path] = text
            changed[step.path] = self.read(step.path)
        return changed

    def difference(self, before: TreeImage) -> dict[str, Stored | None]:
        """What has changed since an earlier image."""
        paths = self._texts.keys() | before._texts.keys()
        return {path: self.read(path) for path in paths if self._texts.get(path) != before._texts.get(path)}

    def encode(self) -> bytes:
        return _encode([self.number, self.sessions, {path: list(text) for path, text in self._texts.items()}])

    @classmethod
    def decode(cls, data: bytes) -> TreeImage:
        """
        Raises:
            CorruptionError: these are not the bytes of an image.
        """
        image = cls()
        try:
            image.number, image.sessions, texts = _decode(data)
            image._texts = {path: _Text(*text) for path, text in texts.items()}
        except (ValueError, TypeError, AttributeError) as error:
            raise CorruptionError(f"is not the state of a coordinator: {error}") from None
        return image


def _after(step: Create | Write | Delete, present: _Text | None, session: str | None) -> _Text | None:
    """The text that the step leaves."""
    if isinstance(step, Create):
        return _Text(step.data, 0, session if step.is_bound else None)
    if isinstance(step, Delete):
        return None
    assert present is not None
    return present._replace(data=step.data, version=present.version + 1)


_KINDS: Mapping[str, type[Create] | type[Write] | type[Delete]] = {
    "create": Create,
    "write": Write,
    "delete": Delete,
}


def encode_change(change: Change) -> bytes:
    """Without what it checks, which is over when it is made."""
    steps: list[list[object]] = []
    for step in change.steps:
        if isinstance(step, Create):
            steps.append(["create", *step])
        elif isinstance(step, Write):
            steps.append(["write", step.path, step.data])
        elif isinstance(step, Delete):
            steps.append(["delete", step.path])
    found: dict[str, Any] = {**change._asdict(), "steps": steps}
    return _encode({key: value for key, value in found.items() if value})


def decode_change(data: bytes) -> Change:
    """
    Raises:
        CorruptionError: these are not the bytes of a change.
    """
    try:
        found = _decode(data)
        opens = found.get("opens")
        return Change(
            tuple(_KINDS[kind](*rest) for kind, *rest in found.get("steps", ())),
            found.get("session"),
            None if opens is None else (str(opens[0]), int(opens[1])),
            found.get("closes"),
            found.get("confirms"),
            found.get("is_last", False),
        )
    except (ValueError, TypeError, KeyError, AttributeError, IndexError) as error:
        raise CorruptionError(f"is not a change: {error!r}") from None


def _encode(value: object) -> bytes:
    text = json.dumps(value, separators=(",", ":")).encode() + b"\n"
    return b"%08x\n" % zlib.crc32(text) + text


def _decode(data: bytes) -> Any:
    text = data[_CHECKSUM_BYTES:]
    if data[:_CHECKSUM_BYTES] != b"%08x\n" % zlib.crc32(text):
        raise ValueError("its checksum is another one")
    return json.loads(text)
