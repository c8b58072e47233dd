"""What the demo shows while it runs: headings, lines, tables, and progress, live or as plain lines."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

_PLAIN_STEPS = 5
_console = Console(highlight=False)


def heading(text: str) -> None:
    _console.print(f"\n{text}", style="bold cyan", markup=False, soft_wrap=True)


def line(text: str) -> None:
    _console.print(f"  {text}", markup=False, soft_wrap=True)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, notes: int = 0) -> None:
    """The first column is text, the others are figures, but for the last ``notes``."""
    drawn = Table(box=None, padding=(0, 2), show_header=any(headings))
    for number, text in enumerate(headings):
        is_text = number == 0 or number >= len(headings) - notes
        drawn.add_column(text, justify="left" if is_text else "right", no_wrap=True)
    for row in rows:
        drawn.add_row(*row)
    _console.print(drawn)


@contextmanager
def progress(title: str, total: int) -> Iterator[Callable[[int], None]]:
    """Gives a function that shows how far things are: a bar on a terminal, else a line for each fifth."""
    if _console.is_terminal:
        with _bar() as bar:
            task = bar.add_task(title, total=total)
            yield lambda done: bar.update(task, completed=done)
    else:
        yield _plain_progress(title, total)


def _bar() -> Progress:
    return Progress(
        TextColumn("  {task.description}"),
        BarColumn(bar_width=40),
        MofNCompleteColumn(),
        TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(),
        console=_console,
        refresh_per_second=20,
    )


def _plain_progress(title: str, total: int) -> Callable[[int], None]:
    shown = -1

    def show(done: int) -> None:
        nonlocal shown
        step = done * _PLAIN_STEPS // max(total, 1)
        if step > shown:
            shown = step
            line(f"{title} {done:,} of {total:,}")

    return show
