"""Other Pythons of this machine."""

from __future__ import annotations

import os
import shutil


def find_python(minor: int) -> str | None:
    """The path of a Python 3.minor, or None."""
    versions = os.path.join(os.environ.get("PYENV_ROOT", os.path.expanduser("~/.pyenv")), "versions")
    folders = (
        [os.path.join(versions, name, "bin") for name in os.listdir(versions)]
        if os.path.isdir(versions)
        else []
    )
    folders += [folder for folder in os.environ.get("PATH", "").split(os.pathsep) if "shims" not in folder]
    return shutil.which(f"python3.{minor}", path=os.pathsep.join(folders))
