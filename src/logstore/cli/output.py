"""What commands print: tables and fields for people, JSON lines for programs, remarks and progress.

Standard output has what was asked for, standard error all else. Colours and bars are there on a terminal
only, and NO_COLOR turns colours off. Everything that comes from a log or a disk is escaped on its way.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

from rich.cells import cell_len
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TimeRemainingColumn
from rich.text import Text

from logstore.cli import streams
from logstore.cli.escaping import escaped, json_text

Cell = str | int | None
OnBytes = Callable[[int, int], None]
"""Called with the bytes that are done, and all."""

_BLOCK_ROWS = 1_000
_NOTHING = "-"


class Shape:
    """The fields of one kind of JSON object, each with what it means: the documentation's tables are held to
    these."""

    def __init__(self, title: str, **fields: str) -> None:
        self.title = title
        self.fields: Mapping[str, str] = fields

    def __call__(self, **values: Any) -> dict[str, Any]:
        """An object of these fields, in their order."""
        if values.keys() != self.fields.keys():
            raise TypeError(f"{self.title}: {sorted(values.keys() ^ self.fields.keys())}")
        return {name: values[name] for name in self.fields}


class Output:
    """Where one command writes."""

    def __init__(self, *, json: bool = False, quiet: bool = False) -> None:
        self.is_json = json
        self.is_quiet = quiet
        self._console = Console(file=sys.stdout, highlight=False, markup=False, emoji=False)

    # Standard output

    def json(self, value: Mapping[str, Any]) -> None:
        """One object, as a line."""
        streams.write(f"{json_text(value)}\n", "utf-8")  # whatever the terminal's: RFC 8259

    def line(self, text: str = "", style: str = "") -> None:
        """One line."""
        streams.write(f"{self.painted(escaped(text), style)}\n")

    def fields(self, pairs: Iterable[tuple[str, Cell]]) -> None:
        """Names and values, one a line."""
        found = list(pairs)
        width = max((len(name) for name, _ in found), default=0)
        for name, value in found:
            shown = _NOTHING if value is None else escaped(str(value))
            streams.write(f"{self.painted(name.ljust(width), 'cyan')}  {shown}\n")

    def table(self, headings: Sequence[str], rows: Iterable[Sequence[Cell]]) -> None:
        """Aligned columns; numbers to the right. A block of rows at a time: columns may grow wider between
        two blocks."""
        remaining = iter(rows)
        widths = [len(heading) for heading in headings]
        is_first = True
        while (block := list(islice(remaining, _BLOCK_ROWS))) or is_first:
            cells = [[_NOTHING if cell is None else escaped(str(cell)) for cell in row] for row in block]
            for row in cells:
                widths = [max(width, cell_len(cell)) for width, cell in zip(widths, row, strict=True)]
            numeric = [_is_numeric([row[at] for row in block]) for at in range(len(headings))]
            if is_first:
                streams.write(f"{self.painted(_aligned(headings, widths, numeric), 'bold')}\n")
                is_first = False
            streams.write("".join([f"{_aligned(row, widths, numeric)}\n" for row in cells]))

    def painted(self, text: str, style: str) -> str:
        """The text with colours, where the output has any. It must be escaped already."""
        if not style or not self.has_colours:
            return text
        with self._console.capture() as captured:
            self._console.print(Text(text, style), end="", soft_wrap=True)
        return captured.get()

    @property
    def has_colours(self) -> bool:
        console = self._console
        return console.is_terminal and not console.no_color and not console.is_dumb_terminal

    @property
    def is_terminal(self) -> bool:
        """Whether bytes written as they are would reach a terminal."""
        return sys.stdout.isatty()

    # Standard error

    def remark(self, text: str) -> None:
        """What is worth knowing beside the answer."""
        if not self.is_quiet:
            streams.tell(text)

    @contextmanager
    def progress(self, label: str) -> Iterator[OnBytes | None]:
        """A bar on a terminal; elsewhere None."""
        console = Console(stderr=True, highlight=False)
        if self.is_quiet or not console.is_terminal or console.is_dumb_terminal:
            yield None
            return
        columns = TextColumn("{task.description}", markup=False), BarColumn(), DownloadColumn()
        with Progress(*columns, TimeRemainingColumn(), console=console, transient=True) as bar:
            task = bar.add_task(escaped(label), total=None)
            yield lambda done, total: bar.update(task, completed=done, total=max(done, total))


def _is_numeric(cells: Sequence[Cell]) -> bool:
    return any(isinstance(cell, int) for cell in cells) and not any(isinstance(cell, str) for cell in cells)


def _aligned(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = [
        " " * (width - cell_len(cell)) + cell if to_right else cell + " " * (width - cell_len(cell))
        for cell, width, to_right in zip(cells, widths, numeric, strict=True)
    ]
    return "  ".join(padded).rstrip()
