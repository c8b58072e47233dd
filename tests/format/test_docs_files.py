"""The pages about files: every byte example is decoded, every Python line run, every table kept in step.

In a page, a ``bytes`` block sets ``data`` for the ``pycon`` blocks that follow; those are doctests.
"""

import doctest
import re
from pathlib import Path

import pytest

from logstore.format import cluster_records, layout, names

PAGES = Path(__file__).parents[2] / "docs" / "formats"

TABLES = {
    "directory": (),
    "offset-index": (layout.OFFSET_INDEX_ENTRY,),
    "time-index": (layout.TIME_INDEX_ENTRY,),
    "transaction-index": (layout.TRANSACTION_INDEX_ENTRY,),
    "producer-snapshot": (layout.SNAPSHOT_HEADER, layout.SNAPSHOT_ENTRY),
    "checkpoints": (),
    "committed-offsets": (),
    "share-group-state": (),
    "protocol": (),
    "metadata": (),
    "cluster-metadata": (
        cluster_records.TOPIC_RECORD,
        cluster_records.PARTITION_RECORD,
        cluster_records.PARTITION_CHANGE_RECORD,
        cluster_records.CONFIG_RECORD,
        cluster_records.REMOVE_TOPIC_RECORD,
    ),
}

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)

every_page = pytest.mark.parametrize("page", TABLES)


def read(page):
    return (PAGES / f"{page}.md").read_text(encoding="utf-8")


def decode_bytes(text):
    return bytes.fromhex("".join(line.split("#")[0] for line in text.splitlines()))


def run(page_text):
    """Run a page's Python from top to bottom; the doctest report of every line that is not as stated."""
    report = []
    values = {}
    runner = doctest.DocTestRunner(verbose=False)
    for language, text in BLOCK.findall(page_text):
        if language == "bytes":
            values["data"] = decode_bytes(text)
        elif language == "pycon":
            example = doctest.DocTestParser().get_doctest(text, values, "example", None, 0)
            runner.run(example, out=report.append, clear_globs=False)
            values = example.globs
    return "".join(report)


@every_page
def test_examples_give_what_the_page_states(page):
    assert run(read(page)) == ""


@every_page
def test_every_byte_example_is_used_by_the_python_after_it(page):
    found = BLOCK.findall(read(page))
    for (language, _), (after, text) in zip(found, [*found[1:], ("", "")], strict=True):
        if language == "bytes":
            assert after == "pycon"
            assert "data" in text


@every_page
def test_layout_tables_are_those_that_the_code_uses(page):
    for declared in TABLES[page]:
        assert declared.describe() in read(page)


@every_page
def test_links_between_pages_lead_somewhere(page):
    for target in re.findall(r"\]\(([\w-]+\.md)\)", read(page)):
        assert (PAGES / target).is_file()


def test_the_directory_page_shows_every_kind_of_file():
    page = read("directory")
    suffixes = [value for name, value in vars(names).items() if name.endswith("_SUFFIX")]
    for name in [
        *suffixes,
        ".lock",
        "meta.properties",
        ".kafka_cleanshutdown",
        "partition.metadata",
        "topics.json",
        "quotas.json",
        "users.json",
        "acls.json",
        "followed.json",
    ]:
        assert name in page
    for name in ("recovery-point", "log-start", "replication", "cleaner"):
        assert f"{name}-offset-checkpoint" in page


def test_a_wrong_statement_would_be_noticed():
    assert "Got:\n    1" in run("```bytes\n00 01  # two\n```\n```pycon\n>>> data[1]\n2\n```\n")
