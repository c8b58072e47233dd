"""For PyInstaller, which packs a program with its modules: how it finds what is imported by name here."""

from __future__ import annotations

import os


def hook_directories() -> list[str]:
    """The entry point ``pyinstaller40``: directories with hooks."""
    return [os.path.dirname(__file__)]
