"""The program: ``logstore`` and ``python -m logstore``. The commands are in :mod:`logstore.cli`."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Sequence

_FAULT = 3
"""The exit code after an unexpected error. Python's own is 1, which stands for damage here."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command that the arguments (default: the program's own) name; returns the exit code."""
    try:
        return _run(arguments)
    except KeyboardInterrupt:  # while the command line is imported; after that it ends by itself
        return 130
    except Exception:
        traceback.print_exc()
        print(
            "error: a fault of logstore, which says nothing of the files: report it with the lines above",
            file=sys.stderr,
        )
        return _FAULT


def _run(arguments: Sequence[str] | None) -> int:
    words = sys.argv[1:] if arguments is None else list(arguments)
    try:
        if words[:1] == ["serve"]:
            from logstore.cli import serving  # what starts often starts without Typer

            wanted = serving.parse_plain(words[1:])
            if wanted is not None:
                return serving.run_plain(wanted)
        from logstore.cli.app import app  # typer and rich are optional
    except ImportError as error:
        print(error, file=sys.stderr)
        return 3
    try:
        app(None if arguments is None else list(arguments))
    except SystemExit as ended:
        return ended.code if isinstance(ended.code, int) else 0
    return 0


if __name__ == "__main__":
    sys.exit(main())
