"""Encodes and decodes the messages that :mod:`~logstore.format.messages.fields` declares.

For each message and version one encoder and one decoder are generated from the declaration, when they are
first used: straight code, in which fields of fixed size that stand side by side are one ``struct`` call.

Reading takes no memory on the word of a length: it is held against the bytes that are there first. Unknown
tagged fields are passed over, as KIP-482 wants.
"""

from __future__ import annotations

import struct
import types
import typing
import uuid
from collections.abc import Callable, Iterator
from typing import Any, Final, Generic, NamedTuple, TypeVar

from logstore.errors import CorruptionError, UnsupportedVersionError, UsageError
from logstore.format.messages.fields import Fixed, Sized, Tagged, Versions
from logstore.format.varint import decode_unsigned_varint, encode_unsigned_varint
from logstore.model import Bytes

T = TypeVar("T", bound=tuple[Any, ...])
_Encode = Callable[[list[Bytes], Any], None]
_Decode = Callable[[Bytes, int, int], tuple[Any, int]]

MAX_SHORT_LENGTH: Final = 32_767
_VERSION: Final = struct.Struct(">h")
_SMALL: Final = tuple(bytes([number]) for number in range(128))


class Message(Generic[T]):
    """A message, in the versions ``first`` to ``last``; from ``flexible`` on with KIP-482's encoding."""

    def __init__(self, kind: type[T], first: int, last: int, *, flexible: int | None = None) -> None:
        self.kind = kind
        self.first = first
        self.last = last
        self.flexible = flexible
        self._encoders: dict[int, _Encode] = {}
        self._decoders: dict[int, _Decode] = {}

    @property
    def name(self) -> str:
        """Kafka's name for it."""
        return self.kind.__name__

    def is_flexible(self, version: int) -> bool:
        """Whether the version has compact lengths and tagged fields."""
        return self.flexible is not None and version >= self.flexible

    def encode(self, message: T, version: int) -> bytes:
        """The message's bytes.

        Raises:
            UnsupportedVersionError: it has no such version.
            UsageError: a field does not fit: a number or a length is too large, a null is not allowed, or
                text is not Unicode.
        """
        return b"".join(self.encode_parts(message, version))

    def encode_parts(self, message: T, version: int) -> list[Bytes]:
        """The message's bytes in pieces; those of its ``Records`` are the very objects that it holds."""
        encode = self._encoders.get(version)
        if encode is None:
            encode = self._encoders[version] = _compile(self._source(version, _Encoder))
        parts: list[Bytes] = []
        try:
            encode(parts, message)
        except (struct.error, AttributeError, TypeError, UnicodeEncodeError) as error:
            raise UsageError(f"{self.name} version {version} cannot be encoded: {error}") from None
        return parts

    def decode(self, data: Bytes, version: int, position: int = 0) -> tuple[T, int]:
        """The message at ``position``, and the position after it.

        Raises:
            UnsupportedVersionError: it has no such version.
            CorruptionError: the bytes end early, or a length is out of bounds, or text is not UTF-8.
        """
        decode = self._decoders.get(version)
        if decode is None:
            decode = self._decoders[version] = _compile(self._source(version, _Decoder))
        try:
            return typing.cast("tuple[T, int]", decode(data, position, len(data)))
        except (struct.error, IndexError):
            what = "ends early"
        except UnicodeDecodeError as error:
            what = f"has text that is not UTF-8 ({error.reason})"
        except CorruptionError as error:
            what = error.reason
        raise CorruptionError(f"{self.name} version {version} {what}", position=position)

    def encode_versioned(self, message: T, version: int) -> bytes:
        """The key or the value of a record in one of Kafka's own topics: the version in two bytes, and the
        message. Raises as :meth:`encode`."""
        return _VERSION.pack(version) + self.encode(message, version)

    def decode_versioned(self, data: Bytes) -> T:
        """The message of such a key or value. Raises as :meth:`decode`."""
        return self.decode(data, version_of(data), _VERSION.size)[0]

    def _source(self, version: int, writer: type[_Writer]) -> _Writer:
        if not self.first <= version <= self.last:
            raise UnsupportedVersionError(
                f"{self.name} has version {version}; {self.first} to {self.last} are known"
            )
        return writer(self.kind, version, is_flexible=self.is_flexible(version))


def version_of(data: Bytes) -> int:
    """The version with which a key or value of Kafka's own topics begins.

    Raises:
        CorruptionError: it is too short for one.
    """
    if len(data) < _VERSION.size:
        raise CorruptionError(f"{len(data)} bytes are too few for a key or value with its version")
    return int(_VERSION.unpack_from(data)[0])


def _compile(writer: _Writer) -> Any:
    text = "\n".join(writer.lines)
    names = writer.names
    exec(compile(text, f"<{writer.title}>", "exec"), names)  # noqa: S102, of our own declarations only
    return names["run"]


# What a declaration says ------------------------------------------------------------------------------------


class _Field(NamedTuple):
    name: str
    type: Any
    """Fixed, Sized, a struct's class, or an _Array."""
    is_nullable: bool
    tag: int | None
    default: Any


class _Array(NamedTuple):
    element: Any


def _fields_of(kind: Any, version: int) -> Iterator[_Field]:
    """The fields that a version of a message or struct has."""
    hints = typing.get_type_hints(kind, include_extras=True)
    for name in kind._fields:
        declared, extras = _without_extras(hints[name])
        spans = [extra for extra in extras if isinstance(extra, Versions)]
        if not all(span.first <= version <= span.last for span in spans):
            continue
        tag = next((extra.tag for extra in extras if isinstance(extra, Tagged)), None)
        declared, is_nullable = _without_none(declared)
        yield _Field(name, _type_of(declared), is_nullable, tag, kind._field_defaults[name])


def _without_extras(hint: Any) -> tuple[Any, list[Any]]:
    """``Annotated[X | None, since(3)]`` is ``X | None`` and [since(3)]; a plain type stays as it is."""
    extras = [extra for extra in getattr(hint, "__metadata__", ()) if isinstance(extra, Versions | Tagged)]
    if not extras:
        return hint, []
    kept = tuple(extra for extra in hint.__metadata__ if not isinstance(extra, Versions | Tagged))
    return (typing.Annotated[(hint.__origin__, *kept)] if kept else hint.__origin__), extras


def _without_none(hint: Any) -> tuple[Any, bool]:
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        given = [one for one in typing.get_args(hint) if one is not type(None)]
        return given[0], True
    return hint, False


def _type_of(hint: Any) -> Any:
    for extra in getattr(hint, "__metadata__", ()):
        if isinstance(extra, Fixed | Sized):
            return extra
    if typing.get_origin(hint) is tuple:
        return _Array(_type_of(typing.get_args(hint)[0]))
    return hint


# What is generated ------------------------------------------------------------------------------------------


class _Writer:
    """Writes the source of one function."""

    head = ""

    def __init__(self, kind: Any, version: int, *, is_flexible: bool) -> None:
        self.version = version
        self.is_flexible = is_flexible
        self.title = f"{type(self).__name__} of {kind.__name__} version {version}"
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "CorruptionError": CorruptionError,
            "UsageError": UsageError,
            "UUID": uuid.UUID,
            "read_varint": decode_unsigned_varint,
            "write_varint": encode_unsigned_varint,
            "small": _SMALL,
        }
        self._depth = 0
        self._count = 0
        self.line(self.head)
        self._depth = 1
        self.write(kind)

    def write(self, kind: Any) -> None:
        raise NotImplementedError

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    def new_name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def constant(self, prefix: str, value: Any) -> str:
        name = self.new_name(prefix)
        self.names[name] = value
        return name

    def indented(self, opening: str) -> _Indented:
        self.line(opening)
        return _Indented(self)


class _Indented:
    def __init__(self, writer: _Writer) -> None:
        self._writer = writer

    def __enter__(self) -> None:
        self._writer._depth += 1

    def __exit__(self, *_: object) -> None:
        self._writer._depth -= 1


class _Decoder(_Writer):
    head = "def run(data, at, size):"

    def write(self, kind: Any) -> None:
        self.line(f"return {self._struct(kind)}, at")

    def _struct(self, kind: Any) -> str:
        """Write what reads a struct, and return the expression that makes it."""
        targets: dict[str, str] = {}
        run: list[tuple[str, Fixed]] = []
        tags: list[tuple[_Field, str]] = []
        for field in _fields_of(kind, self.version):
            if field.tag is not None and not self.is_flexible:
                continue
            target = targets[field.name] = self.new_name("v")
            if field.tag is not None:
                tags.append((field, target))
            elif isinstance(field.type, Fixed):
                run.append((target, field.type))
            else:
                self._read_run(run)
                self._read(field, target)
        self._read_run(run)
        if self.is_flexible:
            self._read_tags(tags)
        made = self.constant("make", kind)
        return f"{made}({', '.join(f'{name}={target}' for name, target in targets.items())})"

    def _read_run(self, run: list[tuple[str, Fixed]]) -> None:
        if not run:
            return
        layout = struct.Struct(">" + "".join(fixed.code for _, fixed in run))
        unpack = self.constant("unpack", layout.unpack_from)
        self.line(f"{', '.join(target for target, _ in run)}, = {unpack}(data, at)")
        self.line(f"at += {layout.size}")
        for target, fixed in run:
            if fixed.name == "uuid":
                self.line(f"{target} = UUID(bytes={target})")
        run.clear()

    def _read(self, field: _Field, target: str) -> None:
        if isinstance(field.type, Fixed):
            self._read_run([(target, field.type)])
        elif isinstance(field.type, Sized):
            self._read_sized(field, target)
        elif isinstance(field.type, _Array):
            self._read_array(field, target)
        elif field.is_nullable:
            self._read_run([(target, Fixed("int8", "b"))])
            with self.indented(f"if {target} < 0:"):
                self.line(f"{target} = None")
            with self.indented("else:"):
                self.line(f"{target} = {self._struct(field.type)}")
        else:
            self.line(f"{target} = {self._struct(field.type)}")

    def _read_length(self, length: str, *, short: bool) -> None:
        """A length, -1 for null, into the variable ``length``."""
        if not self.is_flexible:
            self._read_run([(length, Fixed("int16", "h") if short else Fixed("int32", "i"))])
            return
        self.line(f"{length} = data[at] - 1")
        with self.indented(f"if {length} < 127:"):
            self.line("at += 1")
        with self.indented("else:"):
            self.line(f"{length}, at = read_varint(data, at)")
            self.line(f"{length} -= 1")

    def _refuse(self, condition: str, what: str) -> None:
        with self.indented(f"if {condition}:"):
            self.line(f"raise CorruptionError({what})")

    def _read_null(self, field: _Field, length: str, target: str) -> None:
        """The branch for a length below 0."""
        with self.indented(f"if {length} < 0:"):
            if field.is_nullable:
                self.line(f"{target} = None")
            else:
                self.line(f"raise CorruptionError('has no {field.name}')")

    def _read_sized(self, field: _Field, target: str) -> None:
        length = self.new_name("n")
        self._read_length(length, short=field.type.short)
        self._read_null(field, length, target)
        with self.indented("else:"):
            self.line(f"end = at + {length}")
            self._refuse(
                "end > size", f"f'has {{{length}}} bytes of {field.name} where {{size - at}} are left'"
            )
            piece = "data[at:end]"
            if field.type.is_text:
                piece = f"str({piece}, 'utf-8')"
            else:
                piece = "memoryview(data)[at:end]" if field.type.is_view else f"bytes({piece})"
            self.line(f"{target} = {piece}")
            self.line("at = end")

    def _read_array(self, field: _Field, target: str) -> None:
        length = self.new_name("n")
        self._read_length(length, short=False)
        self._read_null(field, length, target)
        with self.indented("else:"):
            self._refuse(
                f"{length} > size - at", f"f'has {{{length}}} {field.name} in {{size - at}} bytes'"
            )  # each takes a byte at least
            self.line(f"{target} = []")
            with self.indented(f"for _ in range({length}):"):
                element = self.new_name("v")
                self._read(_Field(field.name, field.type.element, False, None, None), element)
                self.line(f"{target}.append({element})")
            self.line(f"{target} = tuple({target})")

    def _read_tags(self, tags: list[tuple[_Field, str]]) -> None:
        for field, target in tags:
            self.line(f"{target} = {self.constant('default', field.default)}")
        count, tag, length, end = (self.new_name(name) for name in ("count", "tag", "n", "end"))
        self.line(f"{count}, at = read_varint(data, at)")
        self._refuse(f"{count} > size - at", f"f'has {{{count}}} tagged fields in {{size - at}} bytes'")
        with self.indented(f"for _ in range({count}):"):
            self.line(f"{tag}, at = read_varint(data, at)")
            self.line(f"{length}, at = read_varint(data, at)")
            self.line(f"{end} = at + {length}")
            self._refuse(
                f"{end} > size", f"f'has a tagged field of {{{length}}} bytes where {{size - at}} are left'"
            )
            for field, target in tags:
                with self.indented(f"if {tag} == {field.tag}:"):
                    self._read(field, target)
                    self._refuse(f"at != {end}", f"'has a {field.name} of another size than it says'")
            self.line(f"at = {end}")


class _Encoder(_Writer):
    head = "def run(parts, message):"

    def write(self, kind: Any) -> None:
        self.line("append = parts.append")
        self._struct(kind, "message")

    def _struct(self, kind: Any, source: str) -> None:
        run: list[tuple[str, Fixed]] = []
        tags: list[_Field] = []
        for field in _fields_of(kind, self.version):
            value = f"{source}.{field.name}"
            if field.tag is not None:
                tags.append(field)
            elif isinstance(field.type, Fixed):
                run.append((value, field.type))
            else:
                self._write_run(run)
                self._write_field(field, value)
        self._write_run(run)
        if self.is_flexible:
            self._write_tags(tags, source)

    def _write_run(self, run: list[tuple[str, Fixed]]) -> None:
        if not run:
            return
        layout = struct.Struct(">" + "".join(fixed.code for _, fixed in run))
        pack = self.constant("pack", layout.pack)
        values = [f"{value}.bytes" if fixed.name == "uuid" else value for value, fixed in run]
        self.line(f"append({pack}({', '.join(values)}))")
        run.clear()

    def _write_field(self, field: _Field, value: str) -> None:
        if isinstance(field.type, Fixed):
            self._write_run([(value, field.type)])
        elif isinstance(field.type, Sized):
            self._write_sized(field, value)
        elif isinstance(field.type, _Array):
            self._write_array(field, value)
        elif field.is_nullable:
            with self.indented(f"if {value} is None:"):
                self.line("append(b'\\xff')")
            with self.indented("else:"):
                self.line("append(b'\\x01')")
                self._struct(field.type, value)
        else:
            self._struct(field.type, value)

    def _write_length(self, length: str, *, short: bool) -> None:
        if self.is_flexible:
            self.line(f"append(small[{length} + 1] if {length} < 127 else write_varint({length} + 1))")
        else:
            self._write_run([(length, Fixed("int16", "h") if short else Fixed("int32", "i"))])

    def _write_null(self, field: _Field, value: str, *, short: bool) -> None:
        """The branch for None."""
        with self.indented(f"if {value} is None:"):
            if field.is_nullable:
                null = b"\0" if self.is_flexible else b"\xff" * (2 if short else 4)
                self.line(f"append({null!r})")
            else:
                self.line(f"raise UsageError('{field.name} is None; it must have a value')")

    def _write_sized(self, field: _Field, value: str) -> None:
        self._write_null(field, value, short=field.type.short)
        with self.indented("else:"):
            given = self.new_name("b")
            self.line(f"{given} = {value}.encode()" if field.type.is_text else f"{given} = {value}")
            length = self.new_name("n")
            self.line(f"{length} = len({given})")
            if field.type.short:
                with self.indented(f"if {length} > {MAX_SHORT_LENGTH}:"):
                    refusal = f"{field.name} has {{{length}}} bytes; {MAX_SHORT_LENGTH} are allowed"
                    self.line(f"raise UsageError(f{refusal!r})")
            self._write_length(length, short=field.type.short)
            self.line(f"append({given})")

    def _write_array(self, field: _Field, value: str) -> None:
        self._write_null(field, value, short=False)
        with self.indented("else:"):
            length, element = self.new_name("n"), self.new_name("e")
            self.line(f"{length} = len({value})")
            self._write_length(length, short=False)
            with self.indented(f"for {element} in {value}:"):
                self._write_field(_Field(field.name, field.type.element, False, None, None), element)

    def _write_tags(self, tags: list[_Field], source: str) -> None:
        if not tags:
            self.line("append(b'\\0')")
            return
        sources = {
            f"{source}.{field.name}": field for field in sorted(tags, key=lambda field: field.tag or 0)
        }
        defaults = {value: self.constant("default", field.default) for value, field in sources.items()}
        with self.indented(f"if {' and '.join(f'{value} == {same}' for value, same in defaults.items())}:"):
            self.line("append(b'\\0')")
        with self.indented("else:"):
            given, outer = self.new_name("tags"), self.new_name("outer")
            self.line(f"{given} = []")
            self.line(f"{outer} = append")
            for value, field in sources.items():
                with self.indented(f"if {value} != {defaults[value]}:"):
                    self._write_tag(field, value, given)
            self.line(f"append = {outer}")
            self.line(f"append(small[len({given})])")
            with self.indented(f"for {given}_one in {given}:"):
                self.line(f"append({given}_one)")

    def _write_tag(self, field: _Field, value: str, given: str) -> None:
        tag = encode_unsigned_varint(field.tag or 0)
        if isinstance(field.type, Fixed) and field.type.name != "uuid":
            layout = struct.Struct(">" + field.type.code)
            start = self.constant("start", tag + encode_unsigned_varint(layout.size))
            self.line(f"{given}.append({start} + {self.constant('pack', layout.pack)}({value}))")
            return
        pieces, joined = self.new_name("pieces"), self.new_name("joined")
        self.line(f"{pieces} = []")
        self.line(f"append = {pieces}.append")
        self._write_field(field, value)
        self.line(f"{joined} = b''.join({pieces})")
        self.line(f"{given}.append({self.constant('tag', tag)} + write_varint(len({joined})) + {joined})")
