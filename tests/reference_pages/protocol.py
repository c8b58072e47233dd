"""The tables of docs/formats/protocol.md, made from the declarations. The rest is written by hand."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Any

from logstore.format.messages.declared import Array, Field, fields_of
from logstore.format.messages.fields import Fixed, Sized, Versions
from logstore.format.messages.message import Message
from logstore.wire.apis import APIS, Api
from tests.reference_pages.docstrings import inline
from tests.reference_pages.source import ROOT, module, symbol

BEGIN = "<!-- From here on `make docs` writes: change src/logstore/wire. -->"
_PAGE = ROOT / "docs" / "formats" / "protocol.md"


def protocol_page() -> str:
    """The page, with the tables as the source has them."""
    text = _PAGE.read_text(encoding="utf-8")
    return f"{text.partition(BEGIN)[0]}{BEGIN}\n\n{_contents()}\n{''.join(map(_section, APIS.values()))}"


def _contents() -> str:
    lines = [
        "## The requests",
        "",
        "| Key | Request | Versions | Flexible | |",
        "|---|---|---|---|---|",
    ]
    for api in APIS.values():
        name = f"[{api.name}](#{api.name.lower()})"
        lines.append(f"| {int(api.key)} | {name} | {_all(api)} | {_flexible(api)} | {_about(api)} |")
    return "\n".join(lines) + "\n"


def _section(api: Api) -> str:
    lines = [f"\n## {api.name}\n", _about(api) + "\n"]
    for message in (api.request, api.response):
        about = _text(symbol(message.kind.__module__, message.kind.__name__).doc)
        lines += [f"**{message.name.removeprefix(api.name)}.** {about}\n", *_table(message)]
    return "\n".join(lines) + "\n"


def _table(message: Message[Any]) -> Iterator[str]:
    rows = list(_rows(message, message.kind, Versions(message.first, message.last), ""))
    if rows:
        yield from ("| Field | Type | Versions | Notes |", "|---|---|---|---|")
        yield from rows
        yield ""


def _rows(message: Message[Any], kind: Any, span: Versions, path: str) -> Iterator[str]:
    docs = _docs(kind.__module__, kind.__name__)
    for field in fields_of(kind):
        here = span.both(field.versions)
        notes = " ".join(part for part in (*_notes(field, span), _text(docs[field.name])) if part)
        yield f"| {path}{field.name} | {_type(field.type)} | {_versions(here, message)} | {notes} |"
        inner = field.type.element if isinstance(field.type, Array) else field.type
        if isinstance(inner, type):
            yield from _rows(message, inner, Versions(here.first, here.last), f"{path}{field.name}.")


def _notes(field: Field, span: Versions) -> Iterator[str]:
    if field.tag is not None:
        yield f"Tag {field.tag}."
    if field.nullable is not None:
        since = f" from version {field.nullable.first} on" if field.nullable.first > span.first else ""
        yield f"May be null{since}."


def _versions(here: Versions, message: Message[Any]) -> str:
    return "all" if (here.first, here.last) == (message.first, message.last) else str(here)


def _type(kind: Any) -> str:
    if isinstance(kind, Array):
        return f"array of {'structs' if isinstance(kind.element, type) else _type(kind.element)}"
    return kind.name if isinstance(kind, Fixed | Sized) else "struct"


def _all(api: Api) -> str:
    return f"{api.first}" if api.first == api.last else f"{api.first}-{api.last}"


def _flexible(api: Api) -> str:
    return "never" if api.request.flexible is None else f"{api.request.flexible}+"


def _about(api: Api) -> str:
    return _text(_doc_of(api.request.kind.__module__))


@cache
def _docs(module_name: str, name: str) -> dict[str, str]:
    return {member.name: member.doc for member in symbol(module_name, name).members}


def _doc_of(module_name: str) -> str:
    (first, *_) = module(module_name).tree.body
    return str(first.value.value)  # type: ignore[attr-defined]


def _text(doc: str) -> str:
    return inline(" ".join(doc.split()), lambda *_: None)
