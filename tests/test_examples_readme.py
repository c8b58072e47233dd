"""The Python in the README runs as it stands, from top to bottom in an empty directory. What is for Spark is
run by tests/spark/test_readme.py."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
ALL_BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)
BLOCKS = [block for block in ALL_BLOCKS if "spark" not in block]


def run_blocks(blocks):
    assert blocks
    names = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    return names


def test_the_examples_run_and_show_what_they_promise(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    run_blocks(BLOCKS)
    printed = capsys.readouterr().out
    for value in (b"paid", b"shipped", b"returned"):
        assert printed.count(str(value)) == 2, "once by the writer, once by the reader"


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", README))
def test_links_lead_somewhere(target):
    assert (Path(__file__).parents[1] / target).exists()
