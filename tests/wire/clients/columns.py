"""Runs a client through the features, and says of each what was found."""

from __future__ import annotations

import importlib
import shutil
import traceback
from collections.abc import Iterable, Mapping
from functools import cached_property
from importlib.util import find_spec
from typing import Any, NamedTuple, Protocol

from tests.wire.clients.features import FEATURES, Said, Task
from tests.wire.clients.rig import Rig

Answers = Mapping[str, Said | Exception]
"""What the client has seen, or how it failed, by the task's name."""


class Client(Protocol):
    """A client that can be told what to do."""

    name: str
    needs_java: bool

    def missing(self) -> str | None:
        """Why it cannot be run here, or None."""

    def version(self) -> str:
        """The one that is here."""

    def lacks(self) -> Iterable[str]:
        """The features that it does not have; of others it is asked."""

    def run(self, tasks: Iterable[Task]) -> Answers:
        """Do everything."""


class Cell(NamedTuple):
    """``works`` is None if the client has no such feature."""

    works: bool | None
    problem: str = ""


def column(client: Client) -> dict[str, Cell]:
    """What is found of each feature, by its name."""
    lacks = set(client.lacks())
    unknown = lacks - {each.name for each in FEATURES}
    assert not unknown, f"{client.name} lacks what is no feature: {unknown}"
    asked = [each for each in FEATURES if each.name not in lacks]
    found = {each.name: Cell(None) for each in FEATURES}
    with Rig() as rig:
        tasks = {each.name: each.task(rig) for each in asked}
        for feature in asked:
            feature.prepare(rig, tasks[feature.name])
        answers = client.run(tasks.values())
        for feature in asked:
            try:
                said = answers[feature.name]
                if isinstance(said, Exception):
                    raise said
                feature.check(rig, tasks[feature.name], said)
                found[feature.name] = Cell(True)
            except Exception:
                found[feature.name] = Cell(False, traceback.format_exc())
    return found


class ClientError(Exception):
    """What a client of another language says of its failure."""


def lacking(operations: Iterable[str], lacks: Iterable[str] = ()) -> set[str]:
    """The features of a client that can be told these operations, but for some."""
    known = set(operations)
    return {each.name for each in FEATURES if each.operation not in known} | set(lacks)


class PythonClient:
    """A module with a function for each operation that the client has, its ``version``, and ``LACKS``: the
    features that it does not have all the same."""

    needs_java = False

    def __init__(self, name: str, module: str, *, package: str = "", program: str = "") -> None:
        self.name = name
        self._module_name = module
        self._package, self._program = package, program

    def missing(self) -> str | None:
        if self._package and find_spec(self._package) is None:
            return f"no package {self._package}"
        if self._program and shutil.which(self._program) is None:
            return f"no program {self._program}"
        return None

    @cached_property
    def _module(self) -> Any:
        return importlib.import_module(f"tests.wire.clients.{self._module_name}")

    def version(self) -> str:
        return self._module.version()

    def lacks(self) -> set[str]:
        operations = {each.operation for each in FEATURES}
        return lacking((each for each in operations if hasattr(self._module, each)), self._module.LACKS)

    def run(self, tasks: Iterable[Task]) -> Answers:
        return {each.name: self._do(each) for each in tasks}

    def _do(self, task: Task) -> Said | Exception:
        try:
            return getattr(self._module, task.operation)(task) or {}
        except Exception as error:
            return error
