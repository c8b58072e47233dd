"""The Python in docs/handover.md runs as it stands, and prints what it says; its commands are there."""

import re

import pytest

from logstore.__main__ import main
from tests.pages import ROOT, promised_by, typed_out

PAGE = "docs/handover.md"
TEXT = (ROOT / PAGE).read_text(encoding="utf-8")


def test_the_lines_run_and_show_what_they_promise(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with typed_out(PAGE) as ran:
        assert ran.lines == promised_by(PAGE)
        assert len(ran.lines) == 3


@pytest.mark.parametrize("line", re.findall(r"^ *python -m logstore (.*)$", TEXT, re.MULTILINE))
def test_the_commands_are_understood(line, tmp_path, capsys):
    arguments = line.replace("/var/lib", str(tmp_path)).split()
    assert main(arguments) == 3
    assert "does not exist" in capsys.readouterr().err
