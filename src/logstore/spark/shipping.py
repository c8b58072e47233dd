"""The package as a zip, for a cluster whose workers do not have it installed."""

from __future__ import annotations

import os
import zipfile

import logstore

_PACKAGES = ("logstore", "pyspark_logstore")


def pack(path: str | os.PathLike[str]) -> str:
    """Write this package as a zip, for ``addPyFile`` or ``spark.submit.pyFiles``; returns its path.

    Only Python code: a compiled module cannot be loaded from a zip, so workers run the plain loops. They must
    have ``pyarrow``, ``crc32c``, ``lz4``, ``python-snappy`` and ``zstandard`` installed.
    """
    root = os.path.dirname(os.path.dirname(os.path.abspath(logstore.__file__)))
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for package in _PACKAGES:
            for place, folders, names in os.walk(os.path.join(root, package)):
                folders.sort()
                for name in sorted(names):
                    if name.endswith(".py"):
                        source = os.path.join(place, name)
                        archive.write(source, os.path.relpath(source, root))
    return os.path.abspath(path)
