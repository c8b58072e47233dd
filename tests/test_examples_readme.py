"""The blocks of the README for others that run them, and its links. tests/test_docs_pages.py runs them, and
tests/spark/test_readme.py what is for Spark."""

import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
ALL_BLOCKS = re.findall(r"^```python\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)


def run_blocks(blocks):
    assert blocks
    names = {}
    for block in blocks:
        exec(compile(block, "README.md", "exec"), names)
    return names


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", README))
def test_links_lead_somewhere(target):
    assert (Path(__file__).parents[1] / target).exists()
