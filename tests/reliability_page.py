"""Writes the figures of the long runs into ``docs/reliability.md``.

``python -m tests.reliability_page FIGURES COMMAND`` reads the lines that :mod:`tests.figures` wrote during
the command, adds up what belongs together, and replaces the command's table on the page.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.process import describe_machine

PAGE = Path(__file__).parent.parent / "docs" / "reliability.md"
START = "<!-- figures of {}: from here on written by `python -m tests.reliability_page` -->"
END = "<!-- figures of {}: end of what is written by `python -m tests.reliability_page` -->"
_MOST_DETAILS = 3


def read_rows(lines: Iterable[str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines if line.strip()]


def sum_up(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """One row for each figure: the first two parts of its name."""
    found: dict[str, dict[str, Any]] = {}
    for row in rows:
        name = ": ".join(row["name"].split("/")[:2])
        total = found.setdefault(
            name, {"name": name, "count": 0, "failures": 0, "seconds": 0.0, "details": []}
        )
        for field in ("count", "failures", "seconds"):
            total[field] += row[field]
        if row["detail"] and row["detail"] not in total["details"]:
            total["details"].append(row["detail"])
    return list(found.values())


def table(rows: Iterable[dict[str, Any]]) -> str:
    lines = ["| what was tried | how often | went wrong | time |  |", "| --- | ---: | ---: | ---: | --- |"]
    for row in sum_up(rows):
        details = [*row["details"][:_MOST_DETAILS], *["..."] * (len(row["details"]) > _MOST_DETAILS)]
        seconds = f"{row['seconds']:,.0f} s"
        lines.append(
            f"| {row['name']} | {row['count']:,} | {row['failures']:,} | {seconds} | {'; '.join(details)} |"
        )
    return "\n".join(lines)


def render(rows: list[dict[str, Any]], command: str) -> str:
    machine = describe_machine(str(PAGE.parent))
    facts = ", ".join(machine[name] for name in ("cpu", "file system", "kernel", "python"))
    dates = sorted({row["date"] for row in rows})
    commits = sorted({row["commit"] for row in rows})
    origin = f"Written by `{command}`, {' and '.join(dates)}, on {facts}; commit {' and '.join(commits)}."
    return f"{START.format(command)}\n\n{table(rows)}\n\n{origin}\n\n{END.format(command)}"


def main(path: str, command: str) -> None:
    rows = read_rows(Path(path).read_text(encoding="utf-8").splitlines())
    page = PAGE.read_text(encoding="utf-8")
    start, end = (re.escape(mark.format(command)) for mark in (START, END))
    region = re.compile(f"{start}.*{end}", re.DOTALL)
    if not region.search(page):
        raise SystemExit(f"{PAGE} has no place for the figures of {command}")
    PAGE.write_text(region.sub(lambda _: render(rows, command), page), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
