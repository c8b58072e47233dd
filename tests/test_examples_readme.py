"""The Python in the README runs as it stands, from top to bottom in an empty directory."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def test_the_examples_run_and_show_what_they_promise(tmp_path, monkeypatch, capsys):
    assert BLOCKS
    monkeypatch.chdir(tmp_path)
    names = {}
    for block in BLOCKS:
        exec(compile(block, "README.md", "exec"), names)
    printed = capsys.readouterr().out
    for value in (b"paid", b"shipped", b"returned"):
        assert printed.count(str(value)) == 2, "once by the writer, once by the reader"


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", README))
def test_links_lead_somewhere(target):
    assert (Path(__file__).parents[1] / target).exists()
