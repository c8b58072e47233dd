"""The Python in docs/erasing.md runs as it stands, and prints what it says."""

from tests.pages import python_of, typed_out

PAGE = "docs/erasing.md"


def test_the_lines_run_and_show_what_they_promise(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = [line.rpartition("# ")[2] for line in "".join(python_of(PAGE)).splitlines() if "# " in line]
    with typed_out(PAGE) as ran:
        assert ran.lines == [line for line in said if line[0] in "[0123456789"]
        assert len(ran.lines) == 4
