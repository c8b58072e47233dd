"""README, tutorial and how-tos, typed out."""

from __future__ import annotations

import re

import pytest

import logstore
from tests.pages import ROOT, check_output, run_page

PAGES = [
    "README.md",
    "docs/tutorial.md",
    "docs/offsets.md",
    "docs/producers.md",
    "docs/transactions.md",
    "docs/queues.md",
    "docs/consumers.md",
    "docs/groups.md",
    "docs/metrics.md",
    "docs/quotas.md",
    "docs/listening.md",
    "docs/security.md",
    "docs/connect.md",
    "docs/bridge.md",
    "docs/replication.md",
    "docs/aio.md",
    *sorted(f"docs/howto/{page.name}" for page in ROOT.glob("docs/howto/*.md")),
]
ALL_PAGES = sorted(
    str(page.relative_to(ROOT)) for pattern in ("*.md", "docs/**/*.md") for page in ROOT.glob(pattern)
)


@pytest.mark.parametrize("page", PAGES)
def test_the_page_runs_and_prints_what_it_shows(page, tmp_path, monkeypatch):
    """3 s."""
    text = (ROOT / page).read_text(encoding="utf-8")
    for word, package in (
        ("arrow", "pyarrow"),
        ("MeterProvider", "opentelemetry.sdk"),
        ("REGISTRY", "prometheus_client"),
    ):
        if word in text:
            pytest.importorskip(package)
    if "store.listen(" in text and not hasattr(logstore.Store, "listen"):
        pytest.skip("a store cannot listen")
    monkeypatch.chdir(tmp_path)
    run_page(page, tmp_path, skips=("logstore.spark", "importorskip"))


@pytest.mark.parametrize("page", ALL_PAGES)
def test_links_lead_somewhere(page):
    text = (ROOT / page).read_text(encoding="utf-8")
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", text):
        assert ((ROOT / page).parent / target).exists(), target


def test_other_output_is_noticed():
    check_output("1 ... 3\n", "1 2 3\n")
    with pytest.raises(AssertionError, match="the page shows"):
        check_output("1\n", "2\n")
