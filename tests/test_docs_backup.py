"""The Python in docs/backup.md runs as it stands, and prints what it says."""

from tests.pages import promised_by, typed_out

PAGE = "docs/backup.md"


def test_the_lines_run_and_show_what_they_promise(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with typed_out(PAGE) as ran:
        assert ran.lines == promised_by(PAGE)
        assert len(ran.lines) == 6
