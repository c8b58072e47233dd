"""Which code runs the hot loops: the compiled module, or the plain Python that it is held to.

The choice is made once, at import: the compiled module if this installation has it. The environment variable
``LOGSTORE_LOOPS`` overrides: ``plain`` never uses it, ``compiled`` insists on it.
"""

from __future__ import annotations

import os
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from logstore._version import DISTRIBUTION

if TYPE_CHECKING:
    from types import ModuleType

VARIABLE = "LOGSTORE_LOOPS"

INSTALL_AGAIN = (
    "install it again where a C compiler is found: pip install . in a checkout, or from an index "
    f"pip install --force-reinstall --no-binary {DISTRIBUTION} {DISTRIBUTION}"
)


class BuildInfo(NamedTuple):
    """How this installation runs."""

    is_compiled: bool
    """Whether the hot loops are the compiled ones."""
    reason: str
    """Why, in words."""
    crc32c: str
    """What computes checksums: a kernel of the compiled module, or the crc32c package."""


def _load(choice: str) -> tuple[ModuleType | None, str]:
    if choice not in ("", "plain", "compiled"):
        raise ImportError(f"{VARIABLE} is {choice!r}; it must be 'plain', 'compiled' or empty")
    if choice == "plain":
        return None, f"{VARIABLE}=plain"
    try:
        return import_module("logstore._compiled"), (
            f"{VARIABLE}=compiled" if choice else "the compiled module is installed"
        )
    except ImportError as error:
        if choice == "compiled":
            raise ImportError(
                f"{VARIABLE}=compiled, but this installation has no compiled module ({error}); "
                f"{INSTALL_AGAIN}"
            ) from error
        return None, f"this installation has no compiled module ({error})"


_module, _reason = _load(os.environ.get(VARIABLE, ""))

compiled: Any = _module
"""The compiled module, or None."""

is_fallback = _module is None and not os.environ.get(VARIABLE)
"""Plain Python runs, and nobody has chosen it."""


def build_info() -> BuildInfo:
    """Whether the compiled hot loops are in use, and why; for bug reports and benchmarks."""
    return BuildInfo(_module is not None, _reason, compiled.CRC32C_KERNEL if compiled else "crc32c package")
