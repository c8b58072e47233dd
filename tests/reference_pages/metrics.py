"""The table of docs/metrics.md, made from that of the source. The rest of the page is written by hand."""

from __future__ import annotations

from logstore.metrics.declared import TABLE
from tests.reference_pages.source import ROOT

BEGIN = "<!-- From here on `make docs` writes: change src/logstore/metrics/declared.py. -->"
_UNITS = {"By": "bytes", "s": "seconds"}
_PAGE = ROOT / "docs" / "metrics.md"


def metrics_page() -> str:
    """The page, with the table as the source has it."""
    text = _PAGE.read_text(encoding="utf-8")
    return f"{text.partition(BEGIN)[0]}{BEGIN}\n\n{_table()}"


def _table() -> str:
    lines = ["| Metric | Kind | Unit | Divided by | |", "| --- | --- | --- | --- | --- |"]
    for metric in TABLE:
        unit = _UNITS.get(metric.unit, metric.unit.strip("{}"))
        labels = ", ".join(metric.labels)
        lines.append(f"| `{metric.name}` | {metric.kind.value} | {unit} | {labels} | {metric.description} |")
    return "\n".join(lines) + "\n"
