"""logstore twice in one process: as it runs here, and a second time with the plain loops.

A package is imported once and keeps its choice of loops. The second one is imported under the same names
while the first is put away; afterwards each has its own modules, and its own errors, records and logs.
"""

from __future__ import annotations

import importlib
import os
import pkgutil
import re
import sys
from contextlib import contextmanager
from functools import cached_property
from typing import NamedTuple

from logstore import build

_THE_LIBRARYS_WORDS = re.compile(r": decompression error: [^(]*")
"""Why a damaged frame does not unpack: what is noticed first goes by how much is unpacked at a time."""


class Refused(NamedTuple):
    """An error of logstore, in a form that compares with another engine's."""

    kind: str
    text: str
    position: int | None
    base_offset: int | None


def _is_ours(name):
    return name == "logstore" or name.startswith("logstore.")


class Engine:
    """The modules of one logstore, as attributes: ``engine.partition.log``."""

    def __init__(self, modules):
        self.modules = modules
        self.root = modules["logstore"]

    @cached_property
    def errors(self):
        return self.modules["logstore.errors"]

    @cached_property
    def loops(self):
        return self.modules["logstore.format.loops"]

    def __getattr__(self, name):
        module = self.modules[f"logstore.{name}"]
        setattr(self, name, module)
        return module

    @contextmanager
    def in_place(self):
        """While inside, imports in functions find this engine's modules too."""
        before = {name: sys.modules.get(name) for name in self.modules}
        sys.modules.update(self.modules)
        try:
            yield
        finally:
            sys.modules.update({name: module for name, module in before.items() if module is not None})

    def outcome(self, call, *arguments, **options):
        """What comes out, in a form that compares with another engine's: the value, or the error in words."""
        try:
            return call(*arguments, **options)
        except self.errors.LogstoreError as error:
            place = getattr(error, "position", None), getattr(error, "base_offset", None)
            return Refused(type(error).__name__, _THE_LIBRARYS_WORDS.sub("", str(error)), *place)


def _import_all(package):
    names = [found.name for found in pkgutil.walk_packages(package.__path__, "logstore.")]
    for name in names:
        if name != "logstore._compiled" and not name.endswith("compiled"):
            importlib.import_module(name)
    return {name: module for name, module in sys.modules.items() if _is_ours(name)}


def _import_plain():
    away = {name: sys.modules.pop(name) for name in [*sys.modules] if _is_ours(name)}
    before = os.environ.get(build.VARIABLE)
    os.environ[build.VARIABLE] = "plain"
    try:
        return _import_all(importlib.import_module("logstore"))
    finally:
        for name in [name for name in sys.modules if _is_ours(name)]:
            del sys.modules[name]
        sys.modules.update(away)
        if before is None:
            del os.environ[build.VARIABLE]
        else:
            os.environ[build.VARIABLE] = before


def _import_here():
    return _import_all(importlib.import_module("logstore"))


HERE = Engine(_import_here())
PLAIN = Engine(_import_plain()) if build.compiled is not None else HERE
ENGINES = (HERE, PLAIN) if build.compiled is not None else (HERE,)
