"""Pages typed out: their blocks run from top to bottom in one directory, and print what the page shows.

* A block of Python runs in the page's namespace. If its first line is ``# name.py`` it becomes such a file.
* A block without a language right behind it is its output. ``...`` in it stands for anything.
* In a console block, ``$ python name.py`` runs; the lines below are its output. Other commands are not run.
"""

from __future__ import annotations

import contextlib
import io
import re
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

ROOT = Path(__file__).parents[1]
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


class Block(NamedTuple):
    language: str
    text: str


def blocks_of(page: str) -> list[Block]:
    text = (ROOT / page).read_text(encoding="utf-8")
    return [Block(*found) for found in _BLOCK.findall(text)]


def check_output(shown: str, printed: str) -> None:
    pattern = ".*".join(map(re.escape, shown.split("...")))
    assert re.fullmatch(pattern, printed, re.DOTALL), f"printed:\n{printed}\nthe page shows:\n{shown}"


def run_page(page: str, directory: Path, *, skips: tuple[str, ...] = ()) -> dict[str, Any]:
    """``skips``: blocks that contain one of these are not run. Call it in ``directory``."""
    names: dict[str, Any] = {"__name__": "page"}
    blocks = blocks_of(page)
    count = 0
    for block, behind in zip(blocks, [*blocks[1:], Block("end", "")], strict=True):
        if any(word in block.text for word in skips):
            continue
        if block.language == "python":
            count += 1
            name = re.match(r"# (\w+\.py)\n", block.text)
            if name:
                text = block.text.replace("timeout=60", "timeout=1")  # nobody is typing meanwhile
                (directory / name[1]).write_text(text, encoding="utf-8")
                continue
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(block.text, page, "exec"), names)
            if behind.language == "":
                check_output(behind.text, printed.getvalue())
        elif block.language == "console":
            run_console(block.text, directory)
    assert count, f"{page} has no Python"
    return names


def run_console(text: str, directory: Path) -> None:
    for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
        words = command.split()
        if words[0] == "python" and words[1].endswith(".py") and len(words) == 2:
            done = subprocess.run(
                [sys.executable, words[1]], cwd=directory, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, done.stderr
            check_output(shown, done.stdout)
