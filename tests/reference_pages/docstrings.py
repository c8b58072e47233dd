"""Docstrings as Markdown: roles become links, sections become lists."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass, field
from inspect import cleandoc

WIDTH = 118

Link = Callable[[str, str], str | None]
"""Role and target -> address; None if no page has it."""

_SECTION = re.compile(r"^(Args|Raises|Returns|Yields):$")
_INLINE = re.compile(r"``(?P<code>.+?)``|:(?P<role>\w+):`(?P<target>[^`]+)`")
_DOCUMENT = re.compile(r"docs/([\w/-]+\.md)")
_LISTS = re.compile(r"(?m)^(?=[*+#>-] |1[.)] )")


@dataclass
class Parsed:
    """A docstring, as ``ast.get_docstring`` gives it."""

    paragraphs: list[str] = field(default_factory=list)
    """Code is a paragraph that is indented."""
    sections: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """Of Args, Raises and the like: the entries, each a name and a text."""


def parse(doc: str) -> Parsed:
    parsed = Parsed()
    block: list[str] = []
    section: list[str] | None = None
    sections: dict[str, list[str]] = {}

    def end_block() -> None:
        if any(block):
            parsed.paragraphs.append("\n".join(block))
        block.clear()

    for line in doc.splitlines():
        if head := _SECTION.match(line):
            end_block()
            section = sections.setdefault(head[1], [])
        elif section is not None and (not line or line.startswith(" ")):
            section.append(line)
        else:
            section = None
            if not line:
                end_block()
            else:
                block.append(line)
    end_block()
    parsed.sections = {name: _entries(name, lines) for name, lines in sections.items()}
    return parsed


def _entries(section: str, lines: list[str]) -> list[tuple[str, str]]:
    entries: list[tuple[str, str]] = []
    for line in cleandoc("\n" + "\n".join(lines)).splitlines():
        if line.startswith(" ") or section in ("Returns", "Yields"):
            name, text = entries.pop() if entries else ("", "")
            entries.append((name, f"{text} {line.strip()}".strip()))
        elif line:
            name, _, text = line.partition(":")
            entries.append((name, text.strip()))
    return entries


def summary(doc: str) -> str:
    """The first sentence."""
    paragraphs = parse(doc).paragraphs
    text = " ".join(paragraphs[0].split()) if paragraphs else ""
    return re.split(r"(?<=[.!?])\s", text, maxsplit=1)[0].rstrip(".")


def inline(text: str, link: Link) -> str:
    """One paragraph, without line breaks."""

    def replace(match: re.Match[str]) -> str:
        if (code := match["code"]) is not None:
            document = _DOCUMENT.fullmatch(code)
            address = document and link("doc", document[1])
            return f"[{code}]({address})" if address else f"`{code}`"
        shown, _, target = match["target"].rpartition("<")
        target = target.rstrip(">")
        if not shown:
            is_short = target.startswith("~")
            target = target.lstrip("~.")
            shown = target.rpartition(".")[2] if is_short else target
            if match["role"] in ("meth", "func") and not shown.endswith(")"):
                shown += "()"
        address = link(match["role"], target)
        return f"[`{shown.strip()}`]({address})" if address else f"`{shown.strip()}`"

    parts, end = [], 0
    text = " ".join(text.split())
    for match in _INLINE.finditer(text):
        parts += [_escape(text[end : match.start()]), replace(match)]
        end = match.end()
    return "".join([*parts, _escape(text[end:])])


def _escape(text: str) -> str:
    return text.replace("<", "\\<")


def fill(text: str, indent: str = "", first: str = "") -> str:
    filled = textwrap.fill(
        text,
        WIDTH,
        initial_indent=first,
        subsequent_indent=indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    head, newline, rest = filled.partition("\n")
    return head + newline + _LISTS.sub(r"\\", rest)


def render(doc: str, link: Link) -> str:
    """A whole docstring."""
    parsed = parse(doc)
    blocks: list[str] = []
    code: list[str] = []

    def end_code() -> None:
        if code:
            blocks.append("```python\n" + textwrap.dedent("\n\n".join(code)) + "\n```")
        code.clear()

    for paragraph in parsed.paragraphs:
        if paragraph.startswith(" "):
            code.append(paragraph)
            continue
        end_code()
        if re.match(r"[*-] ", paragraph):
            items = re.split(r"(?m)^[*-] ", paragraph)[1:]
            blocks.append("\n".join(fill(inline(item, link), "  ", "* ") for item in items))
        elif text := paragraph.removesuffix("::"):
            blocks.append(fill(inline(text if text == paragraph else f"{text}:", link)))
    end_code()
    for name, entries in parsed.sections.items():
        title = {"Args": "Arguments"}.get(name, name)
        if name in ("Returns", "Yields"):
            blocks.append(fill(f"**{title}:** {inline(entries[0][1], link)}"))
            continue
        lines = []
        for names, text in entries:
            shown = _errors(names, link) if name == "Raises" else _names(names)
            lines.append(fill(f"{shown}: {inline(text, link)}", "  ", "* "))
        blocks.append(f"**{title}:**\n\n" + "\n".join(lines))
    return "\n\n".join(blocks)


def _names(names: str) -> str:
    return ", ".join(f"`{name.strip()}`" for name in names.split(","))


def _errors(names: str, link: Link) -> str:
    def one(name: str) -> str:
        address = link("class", name)
        return f"[`{name}`]({address})" if address else f"`{name}`"

    return re.sub(r"\w+", lambda match: one(match[0]) if match[0][0].isupper() else match[0], names)
