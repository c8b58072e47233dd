"""The examples of docs/testing-kit.md run as they stand there."""

from __future__ import annotations

import re

from tests.pages import python_of, run_blocks

_MOVED = "moved: consumer 1 has read b'first' at orders-0:0, and it is at nowhere\n"


def test_the_examples_run():
    examples = python_of("docs/testing-kit.md")
    assert len(examples) >= 2
    said = run_blocks(examples, {})
    assert "refused: /store/orders-0/00000000000000000000.log" in said
    assert int(re.search(r"(\d+) operations", said)[1]) > 100
    assert "3 requests, 1 record\n" in said
    assert said.endswith("lost: b'first', which was acknowledged at orders-0:0\n" + _MOVED)
