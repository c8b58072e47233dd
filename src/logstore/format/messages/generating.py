"""Writes the functions that encode and decode one version of a message, for ``message``.

Straight code, in which fields of fixed size that stand side by side are one ``struct`` call, and so is an
array of numbers.
"""

from __future__ import annotations

import contextlib
import struct
import uuid
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Any, Final

from logstore.errors import CorruptionError, UnsupportedVersionError, UsageError
from logstore.format.messages.declared import Array, Field, fields_of, smallest_size
from logstore.format.messages.fields import Fixed, Sized
from logstore.format.varint import decode_unsigned_varint, encode_unsigned_varint

MAX_SHORT_LENGTH: Final = 32_767
_SMALL: Final = tuple(bytes([number]) for number in range(128))


class Writer(ABC):
    """Writes the source of one function."""

    head = ""

    def __init__(self, kind: Any, version: int, *, is_flexible: bool) -> None:
        self.version = version
        self.is_flexible = is_flexible
        self.title = f"{type(self).__name__} of {kind.__name__} version {version}"
        self.lines: list[str] = []
        self.names: dict[str, Any] = {
            "CorruptionError": CorruptionError,
            "UnsupportedVersionError": UnsupportedVersionError,
            "UsageError": UsageError,
            "new": tuple.__new__,
            "pack_many": struct.pack,
            "unpack_many": struct.unpack_from,
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

    @abstractmethod
    def write(self, kind: Any) -> None:
        """The source, for a message."""

    def line(self, text: str) -> None:
        self.lines.append("    " * self._depth + text)

    def new_name(self, prefix: str) -> str:
        self._count += 1
        return f"{prefix}{self._count}"

    def constant(self, prefix: str, value: Any) -> str:
        name = self.new_name(prefix)
        self.names[name] = value
        return name

    @contextlib.contextmanager
    def indented(self, opening: str) -> Iterator[None]:
        self.line(opening)
        self._depth += 1
        yield
        self._depth -= 1

    def compiled(self) -> Any:
        """The function."""
        names = self.names
        exec(compile("\n".join(self.lines), f"<{self.title}>", "exec"), names)  # noqa: S102, of our own declarations only
        return names["run"]

    def plain_length(self, kind: Sized | Array) -> Fixed | None:
        """The type of its length; None if that is a varint."""
        if isinstance(kind, Sized):
            if self.is_flexible and not kind.is_classic:
                return None
            return Fixed("int16", "h") if kind.short else Fixed("int32", "i")
        return None if self.is_flexible else Fixed("int32", "i")


class Decoder(Writer):
    head = "def run(data, at, size):"

    def write(self, kind: Any) -> None:
        self._has_views = False
        self.line(f"return {self._struct(kind)}, at")
        if self._has_views:
            self.lines.insert(1, "    view = memoryview(data)")

    def _struct(self, kind: Any) -> str:
        """Write what reads a struct, and return the expression that makes it."""
        targets: list[str] = []
        run: list[tuple[str, Fixed]] = []
        tags: list[tuple[Field, str]] = []
        for field in fields_of(kind):
            if not field.is_in(self.version) or (field.tag is not None and not self.is_flexible):
                targets.append(self.constant("default", field.default))
                continue
            target = self.new_name("v")
            targets.append(target)
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
        return f"new({self.constant('kind', kind)}, ({', '.join(targets)},))"

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

    def _read(self, field: Field, target: str) -> None:
        if isinstance(field.type, Fixed):
            self._read_run([(target, field.type)])
        elif isinstance(field.type, Sized):
            self._read_sized(field, target)
        elif isinstance(field.type, Array):
            self._read_array(field, target)
        elif field.is_nullable(self.version):
            self._read_run([(target, Fixed("int8", "b"))])
            with self.indented(f"if {target} {'< 0' if field.tag is None else '<= 0'}:"):
                self.line(f"{target} = None")
            with self.indented("else:"):
                self.line(f"{target} = {self._struct(field.type)}")
        else:
            self.line(f"{target} = {self._struct(field.type)}")

    def _read_length(self, length: str, kind: Sized | Array) -> None:
        """A length, -1 for null, into the variable ``length``."""
        plain = self.plain_length(kind)
        if plain is not None:
            self._read_run([(length, plain)])
            return
        self.line(f"{length} = data[at] - 1")
        with self.indented(f"if {length} < 127:"):
            self.line("at += 1")
        with self.indented("elif data[at + 1] < 128:"):
            self.line(f"{length} += (data[at + 1] << 7) - 128")
            self.line("at += 2")
        with self.indented("else:"):
            self.line(f"{length}, at = read_varint(data, at)")
            self.line(f"{length} -= 1")

    def _refuse(self, condition: str, what: str) -> None:
        with self.indented(f"if {condition}:"):
            self.line(f"raise CorruptionError({what})")

    def _read_null(self, field: Field, length: str, target: str) -> None:
        """The branch for a length below 0."""
        with self.indented(f"if {length} < 0:"):
            if field.is_nullable(self.version):
                self.line(f"{target} = None")
            else:
                self.line(f"raise CorruptionError('has no {field.name}')")

    def _read_sized(self, field: Field, target: str) -> None:
        length = self.new_name("n")
        self._read_length(length, field.type)
        self._read_null(field, length, target)
        with self.indented("else:"):
            self.line(f"end = at + {length}")
            self._refuse(
                "end > size", f"f'has {{{length}}} bytes of {field.name} where {{size - at}} are left'"
            )
            piece = "bytes(data[at:end])"
            if field.type.is_text:
                piece = "str(data[at:end], 'utf-8')"
            elif field.type.is_view:
                piece = "view[at:end]"
                self._has_views = True
            self.line(f"{target} = {piece}")
            self.line("at = end")

    def _read_array(self, field: Field, target: str) -> None:
        length = self.new_name("n")
        self._read_length(length, field.type)
        self._read_null(field, length, target)
        kind = field.type.element
        smallest = smallest_size(kind, self.version, is_flexible=self.is_flexible)
        with self.indented("else:"):
            self._refuse(
                f"{length} * {smallest} > size - at",
                f"f'has {{{length}}} {field.name} in {{size - at}} bytes'",
            )
            if isinstance(kind, Fixed) and kind.name != "uuid":
                self.line(f"{target} = unpack_many(f'>{{{length}}}{kind.code}', data, at)")
                self.line(f"at += {length} * {smallest}")
                return
            self.line(f"{target} = []")
            with self.indented(f"for _ in range({length}):"):
                element = self.new_name("v")
                self._read(Field(field.name, kind, None), element)
                self.line(f"{target}.append({element})")
            self.line(f"{target} = tuple({target})")

    def _read_tags(self, tags: list[tuple[Field, str]]) -> None:
        for field, target in tags:
            self.line(f"{target} = {self.constant('default', field.default)}")
        with self.indented("if data[at] == 0:"):  # a call less for each struct without any
            self.line("at += 1")
        with self.indented("else:"):
            self._read_given_tags(tags)

    def _read_given_tags(self, tags: list[tuple[Field, str]]) -> None:
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


class Encoder(Writer):
    head = "def run(parts, message):"

    def write(self, kind: Any) -> None:
        self.line("append = parts.append")
        self._struct(kind, "message")

    def _struct(self, kind: Any, source: str) -> None:
        run: list[tuple[str, Fixed]] = []
        tags: list[Field] = []
        for field in fields_of(kind):
            value = f"{source}.{field.name}"
            if not field.is_in(self.version):
                self._check_unset(field, value)
            elif field.tag is not None:
                tags.append(field)
            elif isinstance(field.type, Fixed):
                run.append((value, field.type))
            else:
                self._write_run(run)
                self._write_field(field, value)
        self._write_run(run, has_no_tags=self.is_flexible and not tags)
        if tags and self.is_flexible:
            self._write_tags(tags, source)

    def _check_unset(self, field: Field, value: str) -> None:
        """Refuse a value that the version has no place for, if it may not be left out."""
        if field.versions.is_needed:
            with self.indented(f"if {value} != {self.constant('default', field.default)}:"):
                what = f"has no {field.name}, which is in versions {field.versions}"
                self.line(f"raise UnsupportedVersionError({what!r})")

    def _write_run(self, run: list[tuple[str, Fixed]], *, has_no_tags: bool = False) -> None:
        """Fields of fixed size; and the end of a struct without tagged fields, which is a zero."""
        if not run:
            if has_no_tags:
                self.line("append(b'\\0')")
            return
        layout = struct.Struct(">" + "".join(fixed.code for _, fixed in run) + "x" * has_no_tags)
        pack = self.constant("pack", layout.pack)
        values = [f"{value}.bytes" if fixed.name == "uuid" else value for value, fixed in run]
        self.line(f"append({pack}({', '.join(values)}))")
        run.clear()

    def _write_field(self, field: Field, value: str) -> None:
        if isinstance(field.type, Fixed):
            self._write_run([(value, field.type)])
        elif isinstance(field.type, Sized):
            self._write_sized(field, value)
        elif isinstance(field.type, Array):
            self._write_array(field, value)
        elif field.is_nullable(self.version):
            with self.indented(f"if {value} is None:"):
                null = b"\xff" if field.tag is None else b"\0"  # as Kafka's generated classes have it
                self.line(f"append({null!r})")
            with self.indented("else:"):
                self.line("append(b'\\x01')")
                self._struct(field.type, value)
        else:
            self._struct(field.type, value)

    def _length(self, length: str, kind: Sized | Array) -> str:
        """The expression of an encoded length."""
        plain = self.plain_length(kind)
        if plain is None:
            return f"(small[{length} + 1] if {length} < 127 else write_varint({length} + 1))"
        return f"{self.constant('pack', struct.Struct('>' + plain.code).pack)}({length})"

    def _write_null(self, field: Field, value: str) -> None:
        """The branch for None."""
        with self.indented(f"if {value} is None:"):
            if field.is_nullable(self.version):
                plain = self.plain_length(field.type)
                null = b"\0" if plain is None else b"\xff" * struct.calcsize(plain.code)
                self.line(f"append({null!r})")
            else:
                self.line(f"raise UsageError('{field.name} is None; it must have a value')")

    def _write_sized(self, field: Field, value: str) -> None:
        self._write_null(field, value)
        with self.indented("else:"):
            given = self.new_name("b")
            self.line(f"{given} = {value}.encode()" if field.type.is_text else f"{given} = {value}")
            length = self.new_name("n")
            self.line(f"{length} = len({given})")
            if field.type.short:
                with self.indented(f"if {length} > {MAX_SHORT_LENGTH}:"):
                    refusal = f"{field.name} has {{{length}}} bytes; {MAX_SHORT_LENGTH} are allowed"
                    self.line(f"raise UsageError(f{refusal!r})")
            if field.type.is_text:
                self.line(f"append({self._length(length, field.type)} + {given})")
            else:
                self.line(f"append({self._length(length, field.type)})")
                self.line(f"append({given})")

    def _write_array(self, field: Field, value: str) -> None:
        self._write_null(field, value)
        with self.indented("else:"):
            length, element = self.new_name("n"), self.new_name("e")
            self.line(f"{length} = len({value})")
            encoded = self._length(length, field.type)
            kind = field.type.element
            if isinstance(kind, Fixed) and kind.name != "uuid":
                self.line(f"append({encoded} + pack_many(f'>{{{length}}}{kind.code}', *{value}))")
                return
            self.line(f"append({encoded})")
            with self.indented(f"for {element} in {value}:"):
                self._write_field(Field(field.name, kind, None), element)

    def _write_tags(self, tags: list[Field], source: str) -> None:
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

    def _write_tag(self, field: Field, value: str, given: str) -> None:
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
