"""The Python in docs/tables.md runs as it stands, from top to bottom."""

import pytest

from tests.pages import typed_out

pytest.importorskip("pyarrow")


def test_the_lines_run_and_show_what_they_promise(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with typed_out("docs/tables.md") as ran:
        names, printed = ran.names, ran.lines
        assert printed[:2] == ["1 b'pear' b'45'", "3 b'apple' b'35'"]
        assert names["table"] == {b"apple": b"35", b"pear": b"40"}
        assert names["columns"]["key"].to_pylist() == [b"apple", b"pear"]
        assert names["everywhere"].to_pylist() == [
            {"partition": 0, "key": b"apple", "value": b"35"},
            {"partition": 0, "key": b"pear", "value": b"40"},
        ]
        assert printed[2:] == ["2 of the rows below 6", "prices-0 6 2"]
