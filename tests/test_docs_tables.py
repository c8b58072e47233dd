"""The Python in docs/tables.md runs as it stands, from top to bottom."""

import re
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "tables.md").read_text()
BLOCKS = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def test_the_lines_run_and_show_what_they_promise(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names = {}
    try:
        for block in BLOCKS:
            exec(compile(block, "tables.md", "exec"), names)
    finally:
        names["store"].close()
    printed = capsys.readouterr().out.splitlines()
    assert printed[:2] == ["1 b'pear' b'45'", "3 b'apple' b'35'"]
    assert names["table"] == {b"apple": b"35", b"pear": b"40"}
    assert names["columns"]["key"].to_pylist() == [b"apple", b"pear"]
    assert names["everywhere"].to_pylist() == [
        {"partition": 0, "key": b"apple", "value": b"35"},
        {"partition": 0, "key": b"pear", "value": b"40"},
    ]
    assert printed[2:] == ["2 of the rows below 6", "prices-0 6 2"]


@pytest.mark.parametrize("target", re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", PAGE))
def test_links_lead_somewhere(target):
    assert (ROOT / "docs" / target).exists()
