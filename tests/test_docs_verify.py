"""The Python in docs/verify.md and docs/install.md runs as it stands."""

import re
from pathlib import Path

import pytest

from logstore.build import BuildInfo
from tests.logdir.helpers import flip_byte, log_files, open_store

DOCS = Path(__file__).parents[1] / "docs"


def run(page, **names):
    for block in re.findall(r"^```python\n(.*?)^```$", (DOCS / page).read_text(), re.MULTILINE | re.DOTALL):
        exec(compile(block, page, "exec"), names)
    return names


@pytest.mark.damaged
def test_a_report_is_printed_where_something_is_wrong(tmp_path, capsys):
    with open_store(tmp_path / "store") as store:
        log = store.create_topic("t")[0]
        log.extend([b"v"] * 3, flush=True)
        assert run("verify.md", store=store)["report"]
        assert capsys.readouterr().out == ""
        flip_byte(log_files(log.directory)[0], 65)
        assert not run("verify.md", store=store)["report"]
        assert "1 problem:" in capsys.readouterr().out


def test_what_runs_is_shown_as_the_page_has_it(capsys):
    run("install.md")
    printed = capsys.readouterr().out
    shown = re.search(r"^# (BuildInfo\(.*\))$", (DOCS / "install.md").read_text(), re.MULTILINE)[1]
    for text in (printed, shown):
        assert tuple(re.findall(r"[(,] ?(\w+)=", text)) == BuildInfo._fields
