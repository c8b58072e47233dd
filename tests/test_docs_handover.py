"""The Python in docs/handover.md runs as it stands, and prints what it says; its commands are there."""

import re
from pathlib import Path

import pytest

from logstore.__main__ import main

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "handover.md").read_text()
[BLOCK] = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_lines_run_and_show_what_they_promise(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    exec(compile(BLOCK, "handover.md", "exec"), {})
    promised = [line.rpartition("# ")[2] for line in BLOCK.splitlines() if "# " in line]
    assert capsys.readouterr().out.splitlines() == promised
    assert len(promised) == 3


@pytest.mark.parametrize("line", re.findall(r"^ *python -m logstore (.*)$", PAGE, re.MULTILINE))
def test_the_commands_are_understood(line, tmp_path, capsys):
    arguments = line.replace("/var/lib", str(tmp_path)).split()
    assert main(arguments) == 3
    assert "does not exist" in capsys.readouterr().err


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGE))
def test_links_lead_somewhere(target):
    assert (ROOT / "docs" / target).exists()
