"""Each test that the page on corruption names is there."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = ("docs/corruption.md", "docs/comparison.md", "docs/reliability.md", "docs/verify.md")
NAMED = sorted(
    {
        named
        for page in PAGES
        for named in re.findall(r"`(tests/[\w/.]+(?:::\w+)?)`", (ROOT / page).read_text())
    }
)


def test_there_are_many():
    assert len(NAMED) > 30


@pytest.mark.parametrize("named", NAMED)
def test_is_there(named):
    path, _, function = named.partition("::")
    assert (ROOT / path).exists(), path
    if function:
        names = {
            node.name
            for node in ast.walk(ast.parse((ROOT / path).read_text()))
            if isinstance(node, ast.FunctionDef)
        }
        assert function in names
