"""The version of the package and its name on the package index, each in the one place that the code reads."""

VERSION = "0.1.0"

DISTRIBUTION = "embedded-logstore"
"""What ``pip install`` takes; ``import logstore`` stays, but on the index that name is somebody else's."""


def how_to_install(extra: str) -> str:
    """The command that brings what an optional part needs."""
    return f"pip install '{DISTRIBUTION}[{extra}]'"
