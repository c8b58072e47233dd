"""The Python in docs/waiting.md runs as it stands, from top to bottom."""

from tests.pages import typed_out


def test_the_lines_run_and_show_what_they_promise(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with typed_out("docs/waiting.md") as ran:
        *printed, refusal = ran.lines
    assert printed == ["True True 100", "a thread for each of 1,000 polls: False", "[]", "[101]"]
    assert refusal.endswith("use what is open, close it first, or wait longer; waited 100 ms")
