"""docs/command-line.md shows what the commands write, and its tables are those of the source.

``python -m tests.test_docs_command_line`` writes both anew.
"""

from __future__ import annotations

import contextlib
import html
import os
import re
import shlex
import tempfile
from pathlib import Path

import pytest

pytest.importorskip("typer")

from logstore.cli.app import COMMANDS
from logstore.cli.errors import EXIT_CODES
from logstore.cli.records import ENCODINGS
from tests.cli.helpers import run

ROOT = Path(__file__).parents[1]
PATH = ROOT / "docs" / "command-line.md"
PAGE = PATH.read_text()
DRAWING = ROOT / "docs" / "images" / "command_line.py"
PICTURE = DRAWING.with_name("command-line.svg")
BLOCK = re.compile(r"^```console\n(.*?)^```$", re.MULTILINE | re.DOTALL)
TABLES = re.compile(
    r"(<!-- ([a-z ]+): written by [^\n]* -->\n).*?(<!-- end of what is written -->)", re.DOTALL
)

CHANGING = [
    (re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"), "60d3a7c1-7c3f-4a8e-9a35-6c1e35d4b1f0"),
    (re.compile(r"in \d+ ms"), "in 3 ms"),
]
"""Ids and durations."""


def make_store():
    """The store of the page, in the present directory."""
    [block] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)
    exec(compile(block, "command-line.md", "exec"), {})


def filled(block, directory):
    """A block of commands with what they write; ``echo $?`` shows how the last one ended."""
    shown, code = [], 0
    for command in re.findall(r"^\$ (.*)$", block, re.MULTILINE):
        shown.append(f"$ {command}\n")
        if command == "echo $?":
            shown.append(f"{code}\n")
            continue
        done = run(*shlex.split(command)[1:])
        code = done.code
        shown.append(done.out + done.err)
    text = "".join(shown).replace(str(directory), "/srv")
    for pattern, stable in CHANGING:
        text = pattern.sub(stable, text)
    return f"```console\n{text}```"


def table(name):
    if name == "exit codes":
        rows = [f"| {code} | {meaning} |" for code, meaning in EXIT_CODES.items()]
        return "\n".join(["| Code | Meaning |", "|---:|---|", *rows]) + "\n"
    shapes = {shape.title: shape for command in COMMANDS for shape in command.shapes}
    parts = []
    for title, shape in shapes.items():
        fields = dict(shape.fields) | (ENCODINGS if "value" in shape.fields else {})
        rows = [f"| `{field}` | {meaning} |" for field, meaning in fields.items()]
        heading = f"### {title[0].upper()}{title[1:]}"
        parts.append("\n".join([heading, "", "| Field | Meaning |", "|---|---|", *rows]) + "\n")
    return "\n" + "\n".join(parts) + "\n"


def page(directory):
    text = BLOCK.sub(lambda match: filled(match[1], directory), PAGE)
    return TABLES.sub(lambda match: match[1] + table(match[2]) + match[3], text)


def test_the_page_is_what_the_commands_write(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_store()
    assert page(tmp_path).splitlines() == PAGE.splitlines()
    assert len(BLOCK.findall(PAGE)) == 9


def test_no_two_shapes_have_the_same_title():
    shapes = {id(shape): shape.title for command in COMMANDS for shape in command.shapes}
    assert len(set(shapes.values())) == len(shapes)


def test_every_command_is_on_the_page():
    for command in COMMANDS:
        assert re.search(rf"logstore {command.name}\b", PAGE), command.name


@pytest.mark.parametrize(
    "document", ["README.md", "docs/handover.md", "docs/verify.md", "docs/segment-files.md"]
)
def test_the_page_is_linked(document):
    assert "command-line.md" in (ROOT / document).read_text()


def drawn_lines():
    """The lines of the picture, colours aside."""
    pieces = re.findall(
        r'<text [^>]*clip-path="url\(#terminal-line-(\d+)\)">([^<]*)</text>', PICTURE.read_text()
    )
    lines = {}
    for number, text in pieces:
        lines[number] = lines.get(number, "") + html.unescape(text).replace("\xa0", " ").strip("\n")
    return [" ".join(line.split()) for line in lines.values() if line.strip()]


def test_the_picture_shows_what_the_commands_write(tmp_path, monkeypatch):
    """``python docs/images/command_line.py`` draws it."""
    monkeypatch.chdir(tmp_path)
    make_store()
    commands = re.search(r"^COMMANDS = \((.*?)^\)", DRAWING.read_text(), re.MULTILINE | re.DOTALL)[1]
    shown = [filled(f"$ {command}\n", tmp_path) for command in re.findall(r'"(.*)"', commands)]
    lines = [line for text in shown for line in text.splitlines() if line and not line.startswith("```")]
    expected = [" ".join(re.sub(r"[0-9a-f-]{36}", "...", line).split()) for line in lines]
    assert drawn_lines() == expected
    assert len(expected) > 20


def main():
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        make_store()
        PATH.write_text(page(os.path.realpath(directory)))


if __name__ == "__main__":
    main()
