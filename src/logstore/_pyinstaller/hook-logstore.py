"""What is imported by its name: PyInstaller sees import statements only."""

from PyInstaller.utils.hooks import collect_submodules

hiddenimports = [
    "logstore._compiled",
    *collect_submodules("logstore.wire.handlers"),
    *collect_submodules("logstore.wire.messages"),
]
