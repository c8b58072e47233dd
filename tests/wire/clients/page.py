"""The table of docs/clients.md: a row for each feature, a column for each client."""

from __future__ import annotations

import datetime
import re
from collections.abc import Mapping
from pathlib import Path

from tests.wire.clients.columns import Cell, Client
from tests.wire.clients.features import FEATURES

PATH = Path(__file__).parents[3] / "docs" / "clients.md"
TABLE = re.compile(r"(<!-- clients: written by [^\n]* -->\n).*?(<!-- end of what is written -->)", re.DOTALL)
MARKS = {None: "-", True: "yes", False: "**no**"}


def row(cells: list[str]) -> str:
    return "| " + " | ".join(cells) + " |\n"


def table(columns: Mapping[Client, Mapping[str, Cell]]) -> str:
    lines = [row(["", *(each.name for each in columns)]), row(["---"] * (len(columns) + 1))]
    for feature in FEATURES:
        marks = [MARKS[found[feature.name].works] for found in columns.values()]
        lines.append(row([feature.title, *marks]))
    versions = ", ".join(f"{each.name} ({each.version()})" for each in columns)
    today = datetime.datetime.now(datetime.UTC).date()
    return f"\n{''.join(lines)}\nFound on {today}: {versions}.\n\n"


def write(columns: Mapping[Client, Mapping[str, Cell]]) -> None:
    new = table(columns)
    PATH.write_text(TABLE.sub(lambda match: match[1] + new + match[2], PATH.read_text()))


def column_of(client: Client) -> dict[str, str]:
    """What the page says of a client, by the titles of the features."""
    found = TABLE.search(PATH.read_text())
    assert found is not None, f"{PATH} has no table"
    rows = [line.strip("|\n").split("|") for line in found[0].splitlines() if line.startswith("|")]
    names, _, *body = [[cell.strip() for cell in each] for each in rows]
    at = names.index(client.name)
    return {each[0]: each[at] for each in body}
