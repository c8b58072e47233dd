"""Messages drawn at random from their declarations: by a generator of random numbers, and by hypothesis."""

from __future__ import annotations

import uuid
from typing import NamedTuple

from hypothesis import strategies as st

from logstore.format.messages.declared import Array, fields_of
from logstore.format.messages.fields import NO_UUID, Fixed, Sized
from logstore.format.messages.message import Message
from logstore.wire.apis import APIS, ApiKey

BITS = {"b": 8, "h": 16, "H": 16, "i": 32, "q": 64}
TEXTS = ("", "a", "orders", "größe", "日本", "x" * 126, "y" * 127, "z" * 300)


class Case(NamedTuple):
    """One version of a request or response."""

    key: ApiKey
    message: Message
    version: int

    def __repr__(self):
        return f"{self.message.name} v{self.version}"

    @property
    def is_request(self):
        return self.message is APIS[self.key].request


CASES = [
    Case(key, message, version)
    for key, api in APIS.items()
    for message in (api.request, api.response)
    for version in range(message.first, message.last + 1)
]


def fields_in(case, kind):
    """Each field with whether the version has a place for it."""
    for field in fields_of(kind):
        has_place = field.is_in(case.version) and (
            field.tag is None or case.message.is_flexible(case.version)
        )
        yield field, has_place


class Chance:
    """Draws messages. ``number`` may be replaced, for readers that do not know all that a field can hold."""

    def __init__(self, random):
        self.random = random

    def message(self, case):
        return self._struct(case, case.message.kind)

    def number(self, field, kind):
        bits = BITS[kind.code]
        low, high = (0, 2**bits - 1) if kind.code.isupper() else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
        return self.random.choice((0, 1, -1 if low else 2, low, high, self.random.randint(low, high)))

    def _struct(self, case, kind):
        return kind(
            **{
                field.name: self._field(case, field)
                for field, has_place in fields_in(case, kind)
                if has_place
            }
        )

    def _field(self, case, field):
        if field.is_nullable(case.version) and self.random.random() < 0.25:
            return None
        if field.tag is not None and self.random.random() < 0.4:
            return field.default
        if isinstance(field.type, Array):
            count = self.random.choice((0, 1, 2, 3))
            return tuple(self._value(case, field, field.type.element) for _ in range(count))
        return self._value(case, field, field.type)

    def _value(self, case, field, kind):
        if isinstance(kind, Sized):
            return (
                self.text(field) if kind.is_text else self.random.randbytes(self.random.choice((0, 3, 200)))
            )
        if not isinstance(kind, Fixed):
            return self._struct(case, kind)
        if kind.name == "uuid":
            return self.random.choice((NO_UUID, uuid.UUID(bytes=self.random.randbytes(16))))
        if kind.name == "bool":
            return self.random.random() < 0.5
        if kind.name == "float64":
            return self.random.choice((0.0, -0.0, 1.5, 1e300, float("-inf")))
        return self.number(field, kind)

    def text(self, field):
        return self.random.choice(TEXTS)


def messages(case):
    """Hypothesis' strategy for the messages of a case."""
    return _structs(case, case.message.kind)


def _structs(case, kind):
    drawn = {field.name: _fields(case, field) for field, has_place in fields_in(case, kind) if has_place}
    return st.fixed_dictionaries(drawn).map(lambda values: kind(**values))


def _fields(case, field):
    if isinstance(field.type, Array):
        drawn = st.lists(_values(case, field.type.element), max_size=3).map(tuple)
    else:
        drawn = _values(case, field.type)
    return st.none() | drawn if field.is_nullable(case.version) else drawn


def _values(case, kind):
    if isinstance(kind, Sized):
        return st.text(max_size=150) if kind.is_text else st.binary(max_size=150)
    if not isinstance(kind, Fixed):
        return _structs(case, kind)
    if kind.name in ("uuid", "bool", "float64"):
        return {"uuid": st.uuids(), "bool": st.booleans(), "float64": st.floats(allow_nan=False)}[kind.name]
    bits = BITS[kind.code]
    return (
        st.integers(0, 2**bits - 1)
        if kind.code.isupper()
        else st.integers(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)
    )


def differs_at(one, other, path=""):
    """Where two messages differ, for the line that a failing test prints; None if they are the same."""
    if isinstance(one, tuple) and isinstance(other, tuple) and type(one) is type(other):
        names = getattr(one, "_fields", range(max(len(one), len(other))))
        if len(one) != len(other):
            return f"{path}: {len(one)} and {len(other)}"
        found = (
            differs_at(mine, its, f"{path}.{name}") for name, mine, its in zip(names, one, other, strict=True)
        )
        return next(filter(None, found), None)
    return None if one == other else f"{path}: {one!r} and {other!r}"
