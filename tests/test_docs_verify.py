"""The Python in docs/verify.md and docs/install.md runs as it stands."""

import re

import pytest

from logstore.build import BuildInfo
from tests.logdir.helpers import flip_byte, log_files, open_store
from tests.pages import python_of, run_blocks


@pytest.mark.damaged
def test_a_report_is_printed_where_something_is_wrong(tmp_path):
    with open_store(tmp_path / "store") as store:
        log = store.create_topic("t")[0]
        log.extend([b"v"] * 3, flush=True)
        names = {"store": store}
        assert run_blocks(python_of("docs/verify.md"), names) == ""
        assert names["report"]
        flip_byte(log_files(log.directory)[0], 65)
        assert "1 problem:" in run_blocks(python_of("docs/verify.md"), names)
        assert not names["report"]


def test_what_runs_is_shown_as_the_page_has_it():
    blocks = python_of("docs/install.md")
    printed = run_blocks(blocks, {})
    shown = re.search(r"^# (BuildInfo\(.*\))$", "".join(blocks), re.MULTILINE)[1]
    for text in (printed, shown):
        assert tuple(re.findall(r"[(,] ?(\w+)=", text)) == BuildInfo._fields
