"""The pages on batches say what the code does: layout tables are current, and every byte example is run."""

import doctest
import re
from pathlib import Path

import pytest

from logstore.format.control import CONTROL_KEY, END_MARKER_VALUE
from logstore.format.layout import BATCH_HEADER, LEGACY_HEADER

FORMATS = Path(__file__).parents[2] / "docs" / "formats"
PAGES = ("batch", "record", "control", "legacy", "compression")
LAYOUTS = (
    ("batch", BATCH_HEADER),
    ("legacy", LEGACY_HEADER),
    ("control", CONTROL_KEY),
    ("control", END_MARKER_VALUE),
)

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\(([^)#:]+)\)")


def _page(name):
    return (FORMATS / f"{name}.md").read_text()


def _examples():
    """Page, title, hexadecimal bytes and session of each example."""
    for name in PAGES:
        blocks = FENCE.findall(_page(name))
        for (language, text), (_, session) in zip(blocks, [*blocks[1:], ("", "")], strict=True):
            if language == "bytes":
                title, _, digits = text.partition("\n")
                yield pytest.param(name, digits, session, id=f"{name}: {title.removeprefix('# ')}")


@pytest.mark.parametrize(("name", "digits", "session"), list(_examples()))
def test_every_byte_example(name, digits, session):
    data = bytes.fromhex(digits)
    example = doctest.DocTestParser().get_doctest(session, {"data": data}, name, f"{name}.md", 0)
    assert "data" in session, "the bytes are not decoded"
    assert any(line.want for line in example.examples), "no value is stated"
    report = []
    results = doctest.DocTestRunner(verbose=False).run(example, out=report.append)
    assert results.failed == 0, "".join(report)


@pytest.mark.parametrize("name", PAGES)
def test_every_page_has_examples_that_are_paired_with_a_session(name):
    languages = [language for language, _ in FENCE.findall(_page(name))]
    assert languages
    assert languages == ["bytes", "pycon"] * (len(languages) // 2)


@pytest.mark.parametrize(("name", "layout"), LAYOUTS, ids=lambda value: getattr(value, "name", value))
def test_layout_tables_are_those_of_the_code(name, layout):
    assert layout.describe() in _page(name)


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere(name):
    links = LINK.findall(_page(name))
    assert links
    assert [link for link in links if not (FORMATS / link).exists()] == []
