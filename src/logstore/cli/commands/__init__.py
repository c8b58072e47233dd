"""The commands, one module each, or one for a family of a few.

A module has ``COMMANDS``: what :mod:`~logstore.cli.app` registers, and what the documentation is held to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from logstore.cli.output import Shape


class Command(NamedTuple):
    """One command."""

    name: str
    function: Callable[..., int | None]
    """Typer reads its signature and its docstring; returns the exit code, None for 0."""
    shapes: tuple[Shape, ...]
    """The JSON objects that it writes."""
