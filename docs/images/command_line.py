"""Draws docs/images/command-line.svg: commands in a terminal, on the store of docs/command-line.md.

``python docs/images/command_line.py`` runs them and writes the picture anew.
"""

from __future__ import annotations

import contextlib
import os
import pty
import re
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

PAGE = Path(__file__).parents[1] / "command-line.md"
PICTURE = Path(__file__).with_name("command-line.svg")
COLUMNS = 112
COMMANDS = (
    "logstore ls shop",
    "logstore ls shop orders",
    "logstore tail shop orders -n 3",
    "logstore info shop orders --partition 0",
    "logstore verify shop --quiet",
    "logstore cat shop order",
)


def in_terminal(arguments: list[str]) -> str:
    """What a command writes to a terminal, colours and all."""
    master, slave = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "COLUMNS": str(COLUMNS)}
    environment.pop("NO_COLOR", None)
    child = subprocess.Popen(
        [sys.executable, "-m", "logstore", *arguments], stdout=slave, stderr=slave, env=environment
    )
    os.close(slave)
    written = b""
    with contextlib.suppress(OSError):  # the end
        while piece := os.read(master, 65_536):
            written += piece
    os.close(master)
    child.wait()
    return written.decode().replace("\r\n", "\n")


def draw() -> str:
    """The picture; in the present directory a store is made."""
    [block] = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    exec(compile(block, PAGE.name, "exec"), {})
    with open(os.devnull, "w") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, highlight=False)
        for command in COMMANDS:
            console.print(Text(f"$ {command}", "bold green"))
            shown = in_terminal(shlex.split(command)[1:]).replace(str(Path.cwd()), "/srv")
            shown = re.sub(r"in \d+ ms", "in 3 ms", shown)
            console.print(Text.from_ansi(re.sub(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "...", shown)))
    svg = console.export_svg(title="logstore", unique_id="terminal")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # they would be loaded from elsewhere


def main() -> None:
    with tempfile.TemporaryDirectory() as directory, contextlib.chdir(directory):
        PICTURE.write_text(draw())


if __name__ == "__main__":
    main()
