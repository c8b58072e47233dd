"""The Python in docs/erasing.md runs as it stands, and prints what it says."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "erasing.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_lines_run_and_show_what_they_promise(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    try:
        for block in BLOCKS:
            exec(compile(block, "erasing.md", "exec"), names)
    finally:
        names["store"].close()
    promised = [line.rpartition("# ")[2] for block in BLOCKS for line in block.splitlines() if "# " in line]
    printed = capsys.readouterr().out.splitlines()
    assert printed == [line for line in promised if line[0] in "[0123456789"]
    assert len(printed) == 4


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGE))
def test_links_lead_somewhere(target):
    assert (ROOT / "docs" / target).exists()
