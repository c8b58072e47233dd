"""The figures of the long runs, for the page on reliability.

A run appends its figures to the file that ``LOGSTORE_FIGURES`` names; without it nothing is written.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
from datetime import UTC, datetime
from functools import cache


def report(name: str, *, count: int, failures: int, seconds: float, detail: str = "") -> None:
    """One figure: ``count`` things were tried, ``failures`` of them went wrong."""
    path = os.environ.get("LOGSTORE_FIGURES")
    if not path:
        return
    row = {
        "name": name,
        "count": count,
        "failures": failures,
        "seconds": round(seconds, 1),
        "detail": detail,
        "date": _today(),
        "python": platform.python_version(),
        "commit": _commit(),
    }
    with open(path, "a", encoding="utf-8") as file:
        file.write(json.dumps(row) + "\n")


def origin() -> str:
    """Date, Python version and commit of a run."""
    return f"{_today()}, CPython {platform.python_version()}, commit {_commit()}"


def _today() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%d")


@cache
def _commit() -> str:
    command = ["git", "rev-parse", "--short=12", "HEAD"]
    found = subprocess.run(command, capture_output=True, text=True, check=False)
    return found.stdout.strip() or "unknown"
