"""The Python in docs/backup.md runs as it stands, and prints what it says."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "backup.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_lines_run_and_show_what_they_promise(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    try:
        for block in BLOCKS:
            exec(compile(block, "backup.md", "exec"), names)
    finally:
        names["store"].close()
    printing = [line for block in BLOCKS for line in block.splitlines() if "print(" in line]
    promised = [line.rpartition("# ")[2] for line in printing]
    assert capsys.readouterr().out.splitlines() == promised
    assert len(promised) == 6


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGE))
def test_links_lead_somewhere(target):
    assert (ROOT / "docs" / target).exists()
