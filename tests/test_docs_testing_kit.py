"""The examples of docs/testing-kit.md run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parent.parent / "docs" / "testing-kit.md"


def test_the_examples_run(capsys):
    names: dict[str, object] = {}
    examples = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert len(examples) >= 2
    for example in examples:
        exec(compile(example, str(PAGE), "exec"), names)
    said = capsys.readouterr().out
    assert "refused: /store/orders-0/00000000000000000000.log" in said
    assert int(re.search(r"(\d+) operations", said)[1]) > 100
