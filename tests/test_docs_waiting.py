"""The Python in docs/waiting.md runs as it stands, from top to bottom."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "waiting.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_lines_run_and_show_what_they_promise(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    try:
        for block in BLOCKS:
            exec(compile(block, "waiting.md", "exec"), names)
    finally:
        names["store"].close()
    *printed, refusal = capsys.readouterr().out.splitlines()
    assert printed == ["True True 100", "a thread for each of 1,000 polls: False", "[]", "[101]"]
    assert refusal.endswith("use what is open, close it first, or wait longer; waited 100 ms")


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGE))
def test_links_lead_somewhere(target):
    assert (ROOT / "docs" / target).exists()
