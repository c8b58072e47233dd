"""The pages of the documentation that are made from the source: ``make docs`` writes them.

:mod:`.source` reads signatures and docstrings, :mod:`.docstrings` makes Markdown of these, and
:mod:`.reference`, :mod:`.settings`, :mod:`.metrics` and :mod:`.protocol` put the pages together.
"""

from __future__ import annotations

from tests.reference_pages.metrics import metrics_page
from tests.reference_pages.protocol import protocol_page
from tests.reference_pages.reference import reference_pages
from tests.reference_pages.settings import settings_page
from tests.reference_pages.source import ROOT


def made_pages() -> dict[str, str]:
    """Path below docs/ -> text."""
    return {
        "settings.md": settings_page(),
        "metrics.md": metrics_page(),
        "formats/protocol.md": protocol_page(),
        **{f"reference/{name}": text for name, text in reference_pages().items()},
    }


def write_pages() -> None:
    for name, text in made_pages().items():
        path = ROOT / "docs" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
