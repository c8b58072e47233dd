"""Exceptions at any line, as from MemoryError and Ctrl-C.

A trace function counts the calls and lines that run in chosen modules, and raises at the Nth. It leaves out
the places where Python raises no such exception: lines that only move values between names, attributes and
branches, and the end of a ``with`` block. (The interpreter looks for signals when a function begins, when a
call returns, when a generator goes on, and when it jumps back.) The instructions are those of Python 3.11.
"""

from __future__ import annotations

import dis
import functools
import sys
from collections import Counter
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any, Protocol

import logstore.files
import logstore.format
import logstore.large_files
import logstore.logdir
import logstore.partition

_PLACES = (
    *logstore.partition.__path__,
    *logstore.logdir.__path__,
    *logstore.format.__path__,
    logstore.files.__file__,
    logstore.large_files.__file__,
)

_QUIET_NAMES = """
    NOP CACHE EXTENDED_ARG RESUME POP_TOP COPY SWAP LOAD_FAST STORE_FAST LOAD_CONST LOAD_GLOBAL LOAD_ATTR
    STORE_ATTR LOAD_DEREF STORE_DEREF LOAD_CLOSURE PUSH_NULL IS_OP UNARY_NOT RETURN_VALUE RERAISE POP_EXCEPT
    PUSH_EXC_INFO CHECK_EXC_MATCH RAISE_VARARGS JUMP_FORWARD POP_JUMP_FORWARD_IF_FALSE JUMP_IF_FALSE_OR_POP
    POP_JUMP_FORWARD_IF_TRUE POP_JUMP_FORWARD_IF_NONE POP_JUMP_FORWARD_IF_NOT_NONE JUMP_IF_TRUE_OR_POP
    COPY_FREE_VARS MAKE_CELL YIELD_VALUE
"""
_QUIET = frozenset(_QUIET_NAMES.split())
"""Instructions of Python 3.11 that neither call, compute nor jump back."""
_CALLING = ("PRECALL", "CALL")

Place = tuple[str, int]
"""A file and a line in it."""


@functools.cache
def _leaving_positions(code: CodeType) -> frozenset[int]:
    """The places in a function where a ``with`` block ends, normally or because of an error."""
    found = set()
    window: list[Any] = []
    for instruction in dis.get_instructions(code):
        if instruction.opname in ("CACHE", "EXTENDED_ARG"):
            continue
        window = [*window[-3:], instruction]
        nones = window[-3:]
        if len(nones) == 3 and all(i.opname == "LOAD_CONST" and i.argval is None for i in nones):
            found.add(nones[0].offset)
            if window[0].opname == "SWAP":  # what is returned goes below
                found.add(window[0].offset)
        if instruction.opname == "WITH_EXCEPT_START":
            found.update(i.offset for i in window)
    return frozenset(found)


@functools.cache
def _quiet_lines(code: CodeType) -> frozenset[int]:
    """The lines of a function that cannot be interrupted."""
    loud, all_lines, releases = set(), set(), set()
    line = code.co_firstlineno
    for instruction in dis.get_instructions(code):
        line = instruction.starts_line or line
        all_lines.add(line)
        if instruction.opname == "LOAD_METHOD" and instruction.argval == "release":
            releases.add(line)  # the only call of its line, and signals are looked for after it returns
        elif instruction.opname not in _QUIET and not (line in releases and instruction.opname in _CALLING):
            loud.add(line)
    return frozenset(all_lines - loud)


class Interrupter:
    """Raises ``error`` at call or line number ``at`` of those that run in an action; with 0, only counts."""

    def __init__(self, error: type[BaseException], at: int = 0, places: tuple[str, ...] = _PLACES) -> None:
        self._error = error
        self._at = at
        self._prefixes = places
        self.places: list[Place] = []
        """What ran, line by line."""
        self.has_struck = False

    def __call__(self, action: Callable[[], Any]) -> Any:
        sys.settrace(self._on_call)
        try:
            return action()
        finally:
            sys.settrace(None)

    def _on_call(self, frame: FrameType, event: str, argument: Any) -> Any:
        if not frame.f_code.co_filename.startswith(self._prefixes):
            return None
        self._count(frame)
        return self._on_line

    def _on_line(self, frame: FrameType, event: str, argument: Any) -> Any:
        if (
            event == "line"
            and frame.f_lineno not in _quiet_lines(frame.f_code)
            and frame.f_lasti not in _leaving_positions(frame.f_code)
        ):
            self._count(frame)
        return self._on_line

    def _count(self, frame: FrameType) -> None:
        if not self.has_struck:
            self.places.append((frame.f_code.co_filename, frame.f_lineno))
            if len(self.places) == self._at:
                self.has_struck = True
                raise self._error("raised by the test")


def uninterrupted(action: Callable[[], object]) -> None:
    """Run a part of a workload that belongs to the test, without interrupting it."""
    tracing = sys.gettrace()
    sys.settrace(None)
    action()
    sys.settrace(tracing)


class Work(Protocol):
    """What is interrupted, and looks afterwards whether it is whole."""

    def run(self, interrupter: Interrupter) -> object: ...

    def check(self) -> object: ...


def interrupt_at_lines(make: Callable[[], Work], places: tuple[str, ...], first: int, step: int) -> int:
    """Interrupt a piece of work by Ctrl-C at some of its lines, each time a new one. Returns how often."""
    counting = Interrupter(KeyboardInterrupt, places=places)
    make().run(counting)
    count = 0
    for at in choose_lines(counting.places, 2)[first::step]:
        work, interrupter = make(), Interrupter(KeyboardInterrupt, at, places=places)
        work.run(interrupter)
        count += interrupter.has_struck
        try:
            work.check()
        except Exception as failure:
            failure.add_note(f"KeyboardInterrupt at {counting.places[at - 1]}, number {at}")
            raise
    return count


def choose_lines(places: list[Place], occurrences: int) -> list[int]:
    """Numbers for :class:`Interrupter`: each line that ran, the first ``occurrences`` times and the last."""
    counts: Counter[Place] = Counter()
    last = {place: number for number, place in enumerate(places, 1)}
    chosen = set(last.values())
    for number, place in enumerate(places, 1):
        counts[place] += 1
        if counts[place] <= occurrences:
            chosen.add(number)
    return sorted(chosen)
