"""The public names as the source has them: signatures, docstrings, and where each stands.

Everything is read from the syntax tree. Nothing is imported, so a page is the same on every version of Python
and with or without the compiled module.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
_SOURCE = ROOT / "src"
_SECTION = re.compile(r"^    # ([A-Z].*)$")
_WIDEST_SIGNATURE = 100

Definition = ast.ClassDef | ast.FunctionDef | ast.Assign | ast.AnnAssign


@dataclass(frozen=True)
class Module:
    name: str
    lines: list[bytes]
    tree: ast.Module

    def source_of(self, node: ast.expr) -> str:
        """The text of an expression, on one line. As :func:`ast.get_source_segment`, which splits the whole
        text each time."""
        first, last = node.lineno - 1, (node.end_lineno or 0) - 1
        lines = self.lines[first : last + 1]
        lines[-1] = lines[-1][: node.end_col_offset]
        lines[0] = lines[0][node.col_offset :]
        return " ".join(b"\n".join(lines).decode().split())


@dataclass(frozen=True)
class Member:
    """What a class has: a method, a property, or a field with its value."""

    name: str
    kind: str
    """method, property or field."""
    signature: str
    doc: str
    section: str = ""
    """The comment that heads its part of the class."""


@dataclass(frozen=True)
class Symbol:
    """A public class, function or constant."""

    name: str
    kind: str
    """class, function or constant."""
    signature: str
    doc: str
    bases: tuple[str, ...] = ()
    members: tuple[Member, ...] = field(default=())
    constructor_doc: str = ""


@cache
def module(name: str) -> Module:
    base = _SOURCE / name.replace(".", "/")
    path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    text = path.read_text(encoding="utf-8")
    return Module(name, text.encode().split(b"\n"), ast.parse(text))


def find(module_name: str, name: str) -> tuple[Module, Definition, str]:
    """Where a name is defined, through imports, with the docstring below it if it is a constant."""
    found = module(module_name)
    for place in (found.tree, *(node for node in found.tree.body if isinstance(node, ast.If))):
        for node, doc in _with_docs(place.body):
            if isinstance(node, ast.ClassDef | ast.FunctionDef) and node.name == name:
                return found, node, ast.get_docstring(node) or ""
            if isinstance(node, ast.Assign | ast.AnnAssign) and name in _targets(node):
                return found, node, doc
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("logstore"):
                for alias in node.names:
                    if (alias.asname or alias.name) == name:
                        return find(str(node.module), alias.name)
    raise LookupError(f"{module_name} has no {name}")


def symbol(module_name: str, name: str) -> Symbol:
    found, node, doc = find(module_name, name)
    if isinstance(node, ast.FunctionDef):
        return Symbol(name, "function", _signature(found, node, name), doc)
    if isinstance(node, ast.ClassDef):
        bases = tuple(found.source_of(base).partition("[")[0] for base in node.bases)
        members = tuple(_members(found, node))
        signature, constructor_doc = _constructor(found, node, name, members)
        return Symbol(name, "class", signature, doc, bases, members, constructor_doc)
    value = found.source_of(node.value) if node.value is not None else ""
    signature = f"{name} = {value}"
    return Symbol(name, "constant", signature if len(signature) <= _WIDEST_SIGNATURE else name, doc)


def _with_docs(body: list[ast.stmt]) -> Iterator[tuple[ast.stmt, str]]:
    """Each statement with the docstring below it."""
    for node, below in zip(body, [*body[1:], None], strict=True):
        is_text = isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant)
        text = below.value.value if is_text else ""
        yield node, ast.get_docstring(ast.Module([below], [])) or "" if isinstance(text, str) and text else ""


def _targets(node: ast.Assign | ast.AnnAssign) -> list[str]:
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [target.id for target in targets if isinstance(target, ast.Name)]


# Members ----------------------------------------------------------------------------------------------------


def _members(found: Module, node: ast.ClassDef) -> Iterator[Member]:
    """Those of the class in front of its first section, then those of the classes below it, then the rest."""
    own = list(_own_members(found, node))
    names = {member.name for member in own}
    inherited = []
    for base in node.bases:
        name = found.source_of(base).partition("[")[0]
        try:
            below, definition, _ = find(found.name, name)
        except LookupError:
            continue  # not logstore's
        if isinstance(definition, ast.ClassDef):
            inherited += [each for each in _members(below, definition) if each.name not in names]
    yield from (member for member in own if not member.section)
    yield from inherited
    yield from (member for member in own if member.section)


def _own_members(found: Module, node: ast.ClassDef) -> Iterator[Member]:
    has_fields = any(
        found.source_of(base) in ("NamedTuple", "Enum", "IntEnum") for base in node.bases
    ) or any("dataclass" in found.source_of(each) for each in node.decorator_list)
    for each, below in _with_docs(node.body):
        heads = [_SECTION.match(line.decode()) for line in found.lines[node.lineno : each.lineno]]
        section = next((match[1] for match in reversed(heads) if match), "")
        if isinstance(each, ast.Assign | ast.AnnAssign):
            for name in _targets(each):
                if not name.startswith("_") and (below or has_fields):
                    yield Member(name, "field", _field(found, each, name), below, section)
        elif isinstance(each, ast.FunctionDef) and each.name == "__init__":
            for statement, below_it in _with_docs(each.body):
                target = getattr(statement, "target", None) or getattr(statement, "targets", [None])[0]
                if isinstance(target, ast.Attribute) and below_it and not target.attr.startswith("_"):
                    yield Member(target.attr, "field", _field(found, statement, target.attr), below_it)
        elif isinstance(each, ast.FunctionDef) and not each.name.startswith("_"):
            marks = {found.source_of(mark) for mark in each.decorator_list}
            doc = ast.get_docstring(each) or ""
            if marks & {"property", "cached_property"}:
                kind, signature = "property", f"{each.name}: {_annotation(found, each.returns)}"
            else:
                kind, signature = "method", _signature(found, each, each.name, has_self=True)
            if doc:
                yield Member(each.name, kind, signature, doc, section)


def _annotation(found: Module, node: ast.expr | None) -> str:
    return "" if node is None else found.source_of(node).strip('"')


def _field(found: Module, node: ast.stmt, name: str) -> str:
    if isinstance(node, ast.AnnAssign):
        is_shown = (
            node.value is not None and node.simple and not found.source_of(node.value).startswith("field(")
        )
        value = f" = {found.source_of(node.value)}" if is_shown and node.value else ""
        return f"{name}: {_annotation(found, node.annotation)}{value}"
    assert isinstance(node, ast.Assign)
    is_constant = isinstance(node.value, ast.Constant | ast.UnaryOp)
    return f"{name} = {found.source_of(node.value)}" if is_constant else name


# Signatures -------------------------------------------------------------------------------------------------


def _signature(found: Module, node: ast.FunctionDef, name: str, *, has_self: bool = False) -> str:
    is_static = any(found.source_of(mark) == "staticmethod" for mark in node.decorator_list)
    result = _annotation(found, node.returns)
    return _call(name, _parameters(found, node.args)[has_self and not is_static :], result)


def _parameters(found: Module, arguments: ast.arguments) -> list[str]:
    def one(argument: ast.arg, default: ast.expr | None) -> str:
        annotation = f": {_annotation(found, argument.annotation)}" if argument.annotation else ""
        equals = " = " if annotation else "="
        return argument.arg + annotation + (f"{equals}{found.source_of(default)}" if default else "")

    plain = [*arguments.posonlyargs, *arguments.args]
    defaults = [None] * (len(plain) - len(arguments.defaults)) + arguments.defaults
    parameters = [one(*pair) for pair in zip(plain, defaults, strict=True)]
    if arguments.vararg:
        parameters.append("*" + one(arguments.vararg, None))
    elif arguments.kwonlyargs:
        parameters.append("*")
    parameters += [one(*pair) for pair in zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True)]
    if arguments.kwarg:
        parameters.append("**" + one(arguments.kwarg, None))
    return parameters


def _constructor(
    found: Module, node: ast.ClassDef, name: str, members: tuple[Member, ...]
) -> tuple[str, str]:
    """How it is called, and what its docstring says."""
    for each in node.body:
        if isinstance(each, ast.FunctionDef) and each.name in ("__init__", "__new__"):
            return _call(name, _parameters(found, each.args)[1:], ""), ast.get_docstring(each) or ""
    fields = [member.signature for member in members if member.kind == "field"]
    if fields and any("kw_only=True" in found.source_of(mark) for mark in node.decorator_list):
        fields.insert(0, "*")
    return _call(name, fields, ""), ""


def _call(name: str, parameters: list[str], result: str) -> str:
    arrow = f" -> {result}" if result else ""
    flat = f"{name}({', '.join(parameters)}){arrow}"
    if len(flat) <= _WIDEST_SIGNATURE:
        return flat
    return f"{name}(\n" + "".join(f"    {each},\n" for each in parameters) + f"){arrow}"
