"""The Python in docs/segment-files.md runs as it stands, from top to bottom, on files that a broker wrote."""

import re
import shutil
from importlib.util import find_spec

import pytest

from tests.interop.fixtures import load_case
from tests.pages import ROOT, has_its_packages, typed_out

pytest.importorskip("pyarrow")

TEXT = (ROOT / "docs" / "segment-files.md").read_text()


@pytest.fixture
def names(tmp_path, monkeypatch):
    """The variables after all blocks have run, and what they printed."""
    shutil.copytree(load_case("segments").partitions[0].directory, tmp_path / "orders-0")
    monkeypatch.chdir(tmp_path)
    with typed_out("docs/segment-files.md", has_its_packages) as ran:
        return ran.names | {"printed": ran.printed}


def test_the_lines_run_and_show_what_they_promise(names, tmp_path):
    shown = re.search(r"^# (\d+ \d+ \d+)$", TEXT, re.MULTILINE)[1]
    assert names["printed"].startswith(f"{shown}\n")
    assert names["table"].num_rows == 120
    assert names["offset"] == 130
    assert names["report"]
    assert "sound: 120 records" in names["printed"]
    assert names["printed"].rstrip().endswith("120 0")
    assert [tuple(entry) for entry in names["made"]] == [(531, 4100), (570, 8300)]
    if find_spec("pandas"):
        assert len(names["frame"]) == 120
        assert len(names["batches"]) == 24
    if find_spec("matplotlib"):
        assert (tmp_path / "density.png").stat().st_size > 1_000


@pytest.mark.parametrize("page", ["README.md", "docs/verify.md", "docs/formats/offset-index.md"])
def test_the_page_is_linked(page):
    assert "segment-files.md" in (ROOT / page).read_text()
