"""The Python in docs/compaction.md runs as it stands, from top to bottom, and prints what the page says."""

import re
from dataclasses import fields

import pytest

from logstore.config import StoreConfig
from tests.pages import ROOT, blocks_of, run_blocks

PAGE = (ROOT / "docs" / "compaction.md").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What each block of Python printed, with the text that follows it, if any."""
    names, found = {}, []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("shop"))
        try:
            for kind, block in blocks_of("docs/compaction.md"):
                if kind == "text":
                    found[-1] = (found[-1][0], block)
                elif kind == "python":
                    found.append((run_blocks([block], names), None))
        finally:
            names["store"].close()
            names["log"].close()
    return found


def test_it_prints_what_the_page_says(printed):
    shown = [(out, text) for out, text in printed if text is not None]
    assert shown
    assert [out for out, _ in shown] == [text for _, text in shown]


def test_the_status_is_that_of_the_partition(printed):
    assert any(re.fullmatch(r"prices-0 (idle|cleaning) \d+% dirty None\n", out) for out, _ in printed), (
        printed
    )


def test_the_settings_and_their_defaults_are_these():
    rows = re.findall(r"^\| `(log_cleaner_\w+)` \| (.*?) \|", PAGE, re.MULTILINE)
    told = {name: value.strip("`").replace(",", "") for name, value in rows}
    assert set(told) == {field.name for field in fields(StoreConfig) if field.name.startswith("log_cleaner_")}
    for name, text in told.items():
        value = getattr(StoreConfig(), name)
        number, _, unit = text.partition(" ")
        assert str(value) == text or int(number) * {"MiB": 2**20}[unit] == value
