"""The Python in docs/compaction.md runs as it stands, from top to bottom, and prints what the page says."""

import re
from contextlib import redirect_stdout
from dataclasses import fields
from io import StringIO
from pathlib import Path

import pytest

from logstore.config import StoreConfig

PAGE = (Path(__file__).parents[1] / "docs" / "compaction.md").read_text()
BLOCKS = re.findall(r"^```(python|text)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def printed(tmp_path_factory):
    """What each block of Python printed, with the text that follows it, if any."""
    names, found = {}, []
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(tmp_path_factory.mktemp("shop"))
        try:
            for kind, block in BLOCKS:
                if kind == "text":
                    found[-1] = (found[-1][0], block)
                    continue
                out = StringIO()
                with redirect_stdout(out):
                    exec(compile(block, "compaction.md", "exec"), names)
                found.append((out.getvalue(), None))
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
