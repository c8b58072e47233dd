"""The Python in docs/notebooks.md runs as it stands, and a notebook shows of it what the page says."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "notebooks.md").read_text()
PROGRAM = runpy.run_path(str(ROOT / "docs" / "images" / "notebooks.py"))


def test_the_cells_run_and_show_tables(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    cells = PROGRAM["run_cells"](PAGE)
    shown = [re.sub("<[^>]*>", " ", html) for _, html in cells]
    assert re.match(r" *Store .*/shop .* orders +3 +3 ", shown[0])
    assert re.search(r"b&#x27;alice&#x27; +b&#x27;shipped&#x27;", shown[1])
    assert re.match(r" *Record .* topic +orders ", shown[2])
    assert re.match(r" *VerifyReport: sound .* record_count +3 ", shown[3])
    assert PROGRAM["html_of"](cells).count("VerifyReport: sound") == 2


def test_the_picture_is_there():
    assert (ROOT / "docs" / "images" / "notebooks.png").read_bytes().startswith(b"\x89PNG")
