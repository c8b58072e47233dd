"""docs/settings.md, docs/reference/ and the tables of docs/metrics.md and docs/formats/protocol.md are what
`make docs` writes, whole, and lead somewhere."""

import re
from dataclasses import fields
from functools import cache

import pytest

import logstore
from logstore import StoreConfig, TopicConfig, segment_files, serializing, testing
from tests.reference_pages import made_pages
from tests.reference_pages.docstrings import parse
from tests.reference_pages.reference import FOR_ENGINES, addresses, symbols
from tests.reference_pages.source import ROOT

DOCS = ROOT / "docs"
NAMES = [
    "settings.md",
    "metrics.md",
    "formats/protocol.md",
    *sorted(f"reference/{path.name}" for path in (DOCS / "reference").iterdir()),
]
pages = cache(made_pages)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_what_the_source_says(name):
    assert (DOCS / name).read_text(encoding="utf-8") == pages()[name], "run `make docs`, and commit the pages"


def test_these_are_the_pages():
    assert set(NAMES) == set(pages())


def test_every_public_name_has_an_entry():
    assert {name for name in logstore.__all__ if name not in addresses()} == set()
    assert {name for name in segment_files.__all__ if name not in addresses()} == set()
    assert {name for name in testing.__all__ if f"testing-kit:{name}" not in addresses()} == set()
    named = {name for name in vars(serializing) if name.startswith("Serialize")}
    assert {name for name in named if name not in addresses()} == set()


def test_every_public_method_of_a_log_has_an_entry():
    public = {name for name in dir(logstore.Log) if not name.startswith("_")}
    assert {name for name in public if not {f"Log.{name}"} & {*addresses()}} == set()


def test_what_is_for_engines_is_there():
    members = {
        f"{each.name}.{member.name}"
        for page in symbols().values()
        for each in page
        for member in each.members
    }
    assert {*FOR_ENGINES} - members == set()


@pytest.mark.parametrize("kind", [TopicConfig, StoreConfig])
def test_every_setting_is_described(kind):
    page = pages()["settings.md"]
    for field in fields(kind):
        assert re.search(rf"^#### {field.name}\n\n(.+\n)+\n\w*[^\n]{{20}}", page, re.MULTILINE), field.name


def anchors(text):
    text = re.sub(r"```.*?```", "", text, flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    return {re.sub(r"[^\w -]", "", each.lower()).replace(" ", "-") for each in headings}


@pytest.mark.parametrize("name", NAMES)
def test_every_link_leads_to_a_heading(name):
    for target in re.findall(r"\]\(([^)]*)\)", pages()[name]):
        assert target != "None"
        file, _, anchor = target.partition("#")
        path = (DOCS / name).parent / file if file else DOCS / name
        assert path.is_file(), target
        assert not anchor or anchor in anchors(path.read_text(encoding="utf-8")), target


@pytest.mark.parametrize("name", NAMES)
def test_no_markup_of_docstrings_is_left(name):
    assert not re.search(r":(meth|class|attr|func|mod|data):|``[^`]|::$", pages()[name].replace("```", ""))
    assert not re.search(r"^\*\*Raises:\*\*\n\n(?!\* )", pages()[name], re.MULTILINE)


def test_the_example_of_the_settings_runs(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    (example,) = re.findall(r"```python\n(import.*?)```", pages()["settings.md"], re.DOTALL)
    exec(compile(example, "settings.md", "exec"), {})
    assert capsys.readouterr().out == "604800000 16777216\n"
    with logstore.open("data") as store:
        assert store["orders"].config == TopicConfig(compression_type="zstd")
        assert store["events"].config.compression_type == "producer"
        assert store["events"].config.segment_bytes == 16 * 1024 * 1024
        assert store.keys() == {"orders", "events"}


def test_arguments_that_must_be_named_are_shown_so():
    """``Sasl("alice", "secret")``, as the page had it, is a TypeError."""
    shown = {each.name: each.signature for page in symbols().values() for each in page}
    assert shown["Sasl"].startswith("Sasl(*, username")
    assert shown["RemoteConfig"].startswith("RemoteConfig(\n    *,\n")


def test_a_docstring_comes_apart():
    parsed = parse(
        "One line\nand more.\n\nArgs:\n    a, b: two\n        lines.\n\nRaises:\n    E: why.\n\nCost: x."
    )
    assert parsed.paragraphs == ["One line\nand more.", "Cost: x."]
    assert parsed.sections == {"Args": [("a, b", "two lines.")], "Raises": [("E", "why.")]}
