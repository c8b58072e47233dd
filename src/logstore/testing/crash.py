"""The states that a power cut may leave a disk in, computed from the trace of its operations.

The rules are those of a POSIX file system with the freedoms that ext4 and similar ones take:

* The contents of a file are certain up to its last flush. Later changes may be on the disk in part: up to any
  operation, the last one torn (at 512 bytes, 4 KiB or anywhere), a later one without an earlier one, any
  sectors of it. If the file has grown, missing parts read as zeros, or as what the blocks held before:
  garbage, or an older piece of the same file. If its bytes have reached the disk but its new size has not,
  they lie after its end, in its last block, and the next growth takes them in, unless the file is truncated
  and flushed before.
* A failed flush leaves a file in one of these states for good; later flushes make only later changes durable.
  Not always on the same pages: a file system may treat blocks whose write has failed as written. What is
  written into them again is then reported as durable but is not on the disk. New blocks are good: those of
  another file, or of this one after a truncation.
* The names of a directory are certain up to its last flush. Later changes may have happened up to any
  operation, or with any of them left out: a flushed file may have no name, a removed one may be back.

Everything that varies is a :class:`Domain`: one file or one directory, with the variants that it may have. A
state is a choice in each domain; the numbers of these choices make the same state again.
"""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from logstore.testing.memory import Image
from logstore.testing.operations import (
    Create,
    Exchange,
    FileOperation,
    FlushDirectory,
    FlushFile,
    Link,
    LoseUnflushed,
    MakeDirectory,
    NameOperation,
    Operation,
    Rename,
    Truncate,
    Write,
)

SECTOR_BYTES: Final = 512
PAGE_BYTES: Final = 4096
_MAX_PREFIXES = 8
_MAX_SUBSETS = 3

Choices = tuple[int, ...]
"""The number of the chosen variant in each domain."""


class Domain(NamedTuple):
    """A file or a directory with its possible variants, each with a label. In the first, nothing since the
    last flush has reached the disk; in the last, everything has."""

    number: int
    labels: tuple[str, ...]
    variants: tuple[bytes, ...] | tuple[dict[str, int], ...]


# Files ------------------------------------------------------------------------------------------------------


def apply_to_file(contents: bytes, operation: FileOperation) -> bytes:
    """The contents after an operation."""
    if isinstance(operation, Truncate):
        return contents[: operation.size_bytes].ljust(operation.size_bytes, b"\0")
    return _overwrite(contents, operation.position, operation.data)


def _overwrite(contents: bytes, position: int, data: bytes) -> bytes:
    if not data:
        return contents
    return contents[:position].ljust(position, b"\0") + data + contents[position + len(data) :]


def file_variants(
    durable: bytes, pending: Sequence[FileOperation], rng: random.Random, behind: bytes = b""
) -> dict[bytes, str]:
    """The possible contents of a file, each with its label; the first is ``durable``, the last has all of
    ``pending``. ``behind`` is what lay after the end of ``durable``."""
    found = {durable: "nothing"}
    contents = [durable]
    for operation in pending:
        contents.append(apply_to_file(contents[-1], operation))
    for count in _spread(1, len(pending)):
        found.setdefault(contents[count], f"first {count}")
    whole = contents[-1]
    before, last = contents[-2], pending[-1]
    for label, variant in itertools.chain(
        _torn(before, last, rng),
        _holes(durable, pending, rng),
        _sectors(durable, whole, rng),
        _grown(durable, whole, rng),
        _grown_into(durable, whole, behind),
    ):
        found.setdefault(variant, label)
    found.pop(whole, None)
    if whole == durable:
        found[durable] = "nothing"
    else:
        found[whole] = "all"
    return found


def _spread(first: int, last: int) -> list[int]:
    """All numbers of a short range; some, from end to end, of a long one."""
    if last - first < _MAX_PREFIXES:
        return list(range(first, last + 1))
    step = (last - first) / (_MAX_PREFIXES - 1)
    return sorted({first + round(number * step) for number in range(_MAX_PREFIXES)})


def _torn(before: bytes, last: FileOperation, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """The last write, torn at a border of sectors or pages, or at any byte."""
    if isinstance(last, Truncate) or len(last.data) < 2:
        return
    for unit in (SECTOR_BYTES, PAGE_BYTES):
        borders = range(unit - last.position % unit, len(last.data), unit)
        if borders:
            cut = rng.choice(borders)
            yield f"last torn at {cut}", _overwrite(before, last.position, last.data[:cut])
    cut = rng.randrange(1, len(last.data))
    yield f"last torn at {cut}", _overwrite(before, last.position, last.data[:cut])


def _holes(
    durable: bytes, pending: Sequence[FileOperation], rng: random.Random
) -> Iterator[tuple[str, bytes]]:
    """Some operations without earlier ones."""
    if len(pending) < 2:
        return
    yield "only the last", apply_to_file(durable, pending[-1])
    for _ in range(_MAX_SUBSETS):
        kept = [operation for operation in pending if rng.random() < 0.5]
        contents = durable
        for operation in kept:
            contents = apply_to_file(contents, operation)
        yield f"{len(kept)} of {len(pending)}", contents


def _sectors(durable: bytes, whole: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Some of the changed sectors; the others as they were, or never written."""
    count = -(-len(whole) // SECTOR_BYTES)
    pieces = [slice(number * SECTOR_BYTES, (number + 1) * SECTOR_BYTES) for number in range(count)]
    changed = [piece for piece in pieces if whole[piece] != durable[piece]]
    if len(changed) < 2:
        return
    for fill in ("zeros", "garbage"):
        made = bytearray(whole)
        kept = 0
        for piece in changed:
            if rng.random() < 0.5:
                kept += 1
                continue
            size = len(whole[piece])
            missing = rng.randbytes(size) if fill == "garbage" else bytes(size)
            made[piece] = durable[piece] + missing[len(durable[piece]) :]
        yield f"{kept} of {len(changed)} sectors, else {fill}", bytes(made)


def _grown(durable: bytes, whole: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """The new size without the new data."""
    growth = len(whole) - len(durable)
    if growth <= 0:
        return
    yield "grown by zeros", durable + bytes(growth)
    yield "grown by garbage", durable + rng.randbytes(growth)
    if durable:
        start = rng.randrange(len(durable))
        yield "grown by its own past", (durable + durable[start:] + bytes(growth))[: len(whole)]
        yield "grown by its beginning", (durable + durable + bytes(growth))[: len(whole)]
    yield "all, and garbage behind", whole + rng.randbytes(rng.randrange(1, SECTOR_BYTES))


def _grown_into(durable: bytes, whole: bytes, behind: bytes) -> Iterator[tuple[str, bytes]]:
    """The new size, which takes in what lay after the end."""
    growth = len(whole) - len(durable)
    if growth > 0 and behind:
        yield "grown into what lay behind", durable + behind[:growth].ljust(growth, b"\0")


def without_pages(contents: bytes, durable: bytes, pages: Collection[int]) -> bytes:
    """The contents with these pages unchanged: as in ``durable``, and zeros after its end."""
    made = bytearray(contents)
    for page in pages:
        piece = slice(page * PAGE_BYTES, min((page + 1) * PAGE_BYTES, len(contents)))
        size = max(piece.stop - piece.start, 0)
        made[piece] = durable[piece].ljust(size, b"\0")[:size]
    return bytes(made)


def _pages_of(pending: Iterable[FileOperation]) -> set[int]:
    """The pages that were written and still exist."""
    pages: set[int] = set()
    for operation in pending:
        if isinstance(operation, Truncate):
            pages = _kept_pages(pages, operation.size_bytes)
        else:
            end = operation.position + len(operation.data)
            pages.update(range(operation.position // PAGE_BYTES, -(-end // PAGE_BYTES)))
    return pages


def _kept_pages(pages: Collection[int], size_bytes: int) -> set[int]:
    """The pages that remain when a file is cut to a size: the page that it ends in keeps its block."""
    return {page for page in pages if page * PAGE_BYTES < size_bytes}


def behind_end(contents: bytes, whole: bytes) -> bytes:
    """What may lie after the end of a file if its bytes reached the disk but its size did not."""
    end = len(contents)
    return whole[end : -(-end // PAGE_BYTES) * PAGE_BYTES] if whole.startswith(contents) else b""


# Directories ------------------------------------------------------------------------------------------------


def apply_to_names(names: dict[str, int], operation: NameOperation) -> None:
    """Apply an operation to the names. It changes nothing if an earlier operation that it needs was lost."""
    if isinstance(operation, Create | Link):
        names[operation.name] = operation.file
    elif isinstance(operation, MakeDirectory):
        names[operation.name] = operation.made
    elif isinstance(operation, Rename):
        if operation.name in names:
            names[operation.new_name] = names.pop(operation.name)
    elif isinstance(operation, Exchange):
        if operation.name in names and operation.other_name in names:
            one, other = names[operation.name], names[operation.other_name]
            names[operation.name], names[operation.other_name] = other, one
    else:
        names.pop(operation.name, None)


def name_variants(
    durable: dict[str, int], pending: Sequence[NameOperation], rng: random.Random
) -> list[tuple[str, dict[str, int]]]:
    """The possible names in a directory; the first is ``durable``, the last has all of ``pending``."""
    found: list[tuple[str, dict[str, int]]] = []

    def add(label: str, operations: Sequence[NameOperation]) -> None:
        names = dict(durable)
        for operation in operations:
            apply_to_names(names, operation)
        if all(names != known for _, known in found):
            found.append((label, names))

    count = len(pending)
    add("nothing", ())
    for prefix in _spread(1, count - 1) if count > 1 else ():
        add(f"first {prefix}", pending[:prefix])
    for dropped in _spread(0, count - 1) if count > 1 else ():
        add(f"all but number {dropped}", [*pending[:dropped], *pending[dropped + 1 :]])
    for _ in range(_MAX_SUBSETS if count > 2 else 0):
        kept = [operation for operation in pending if rng.random() < 0.5]
        add(f"{len(kept)} of {count}", kept)
    whole = dict(durable)
    for operation in pending:
        apply_to_names(whole, operation)
    found = [(label, names) for label, names in found if names != whole]
    return [*found, ("all", whole)]


# States -----------------------------------------------------------------------------------------------------


class CrashStates:
    """Follows a trace, and computes the states of a power cut at each point of it.

    The variants of a file depend only on the seed and the operations so far, so that a rule makes the same
    state in every run.
    """

    def __init__(self, image: Image, seed: int) -> None:
        self._seed = seed
        self._durable_names = {number: dict(names) for number, names in image.directories.items()}
        self._durable_files = dict(image.files)
        self._behind = dict(image.behind)
        self._pending_names: dict[int, list[NameOperation]] = {}
        self._pending_files: dict[int, list[FileOperation]] = {}
        self._known: dict[int, Domain] = {}
        self._lost_pages: dict[int, set[int]] = {}
        """Pages of files whose flush has failed: what is written into these does not reach the disk."""

    def follow(self, operation: Operation) -> None:
        """Move past an operation."""
        if isinstance(operation, Write | Truncate):
            if isinstance(operation, Truncate) and operation.file in self._lost_pages:
                kept = _kept_pages(self._lost_pages[operation.file], operation.size_bytes)
                self._lost_pages[operation.file] = kept
            self._pending_files.setdefault(operation.file, []).append(operation)
            self._known.pop(operation.file, None)
        elif isinstance(operation, FlushFile):
            self._flush(operation.file)
        elif isinstance(operation, LoseUnflushed):
            self._lose(operation.file)
        elif isinstance(operation, FlushDirectory):
            for pending_name in self._pending_names.pop(operation.directory, ()):
                apply_to_names(self._durable_names[operation.directory], pending_name)
        else:
            self._follow_name(operation)

    def _flush(self, file: int) -> None:
        contents = self._durable_files[file]
        pending = self._pending_files.pop(file, ())
        for operation in pending:
            contents = apply_to_file(contents, operation)
        contents = without_pages(contents, self._durable_files[file], self._lost_pages.get(file, ()))
        growth = len(contents) - len(self._durable_files[file])
        if growth < 0 or any(isinstance(operation, Truncate) for operation in pending):
            self._behind.pop(file, None)
        elif file in self._behind:
            self._behind[file] = self._behind[file][growth:]
        self._durable_files[file] = contents

    def _lose(self, file: int) -> None:
        """One of the variants is what stays on the disk, by chance; no later flush adds what it lacks. None
        that is longer: the system knows how long the file is."""
        pending = self._pending_files.pop(file, None)
        if pending:
            durable = self._durable_files[file]
            rng = random.Random(f"{self._seed}/{file}/{len(pending)}/lost")
            whole = durable
            for operation in pending:
                whole = apply_to_file(whole, operation)
            variants = [
                v for v in file_variants(durable, pending, rng) if len(v) <= max(len(whole), len(durable))
            ]
            self._durable_files[file] = durable if rng.random() < 0.5 else rng.choice(variants)
            if rng.random() < 0.5:
                self._lost_pages.setdefault(file, set()).update(_pages_of(pending))

    def _follow_name(self, operation: NameOperation) -> None:
        if isinstance(operation, Create):
            self._durable_files[operation.file] = b""
        elif isinstance(operation, MakeDirectory):
            self._durable_names[operation.made] = {}
        self._pending_names.setdefault(operation.directory, []).append(operation)
        self._known.pop(operation.directory, None)

    def domains(self) -> list[Domain]:
        """What may vary at this point, in the order that choices have."""
        varying = sorted(self._pending_names) + sorted(self._pending_files)
        return [self._domain(number) for number in varying]

    def _domain(self, number: int) -> Domain:
        known = self._known.get(number)
        if known is None:
            known = self._known[number] = self._make_domain(number)
        return known

    def _make_domain(self, number: int) -> Domain:
        if number in self._pending_names:
            names = self._pending_names[number]
            rng = random.Random(f"{self._seed}/{number}/{len(names)}")
            labels, variants = zip(*name_variants(self._durable_names[number], names, rng), strict=True)
            return Domain(number, labels, variants)
        pending = self._pending_files[number]
        rng = random.Random(f"{self._seed}/{number}/{len(pending)}")
        behind = self._behind.get(number, b"")
        durable = self._durable_files[number]
        found = file_variants(durable, pending, rng, behind)
        lost = self._lost_pages.get(number)
        if lost:
            reached: dict[bytes, str] = {}
            for variant, label in found.items():
                variant = without_pages(variant, durable, lost)
                reached.pop(variant, None)  # keeps the last one: everything that can be there
                reached[variant] = label
            reached.pop(durable, None)
            found = {durable: "nothing", **reached}
        return Domain(number, tuple(found.values()), tuple(found))

    def image(self, choices: Sequence[int]) -> Image:
        """The state for a choice in each domain."""
        directories, files = dict(self._durable_names), dict(self._durable_files)
        behind = dict(self._behind)
        for domain, choice in zip(self.domains(), choices, strict=True):
            variant = domain.variants[choice]
            if isinstance(variant, bytes):
                files[domain.number] = variant
                behind[domain.number] = self._left_behind(domain, variant)
            else:
                directories[domain.number] = variant
        for number in directories:
            directories[number] = dict(directories[number])
        return Image(directories, files, behind).reachable()

    def _left_behind(self, domain: Domain, variant: bytes) -> bytes:
        """The worst that can lie after the end: everything written there, else what lay there before."""
        whole = domain.variants[-1]
        assert isinstance(whole, bytes)
        written = behind_end(variant, whole)
        is_old = variant == self._durable_files[domain.number]
        return written or (self._behind.get(domain.number, b"") if is_old else b"")

    def describe(self, choices: Sequence[int]) -> str:
        """The choices in words."""
        pairs = zip(self.domains(), choices, strict=True)
        told = [f"of {domain.number} {domain.labels[choice]}" for domain, choice in pairs]
        return ", ".join(told) or "everything, as all of it was flushed"

    def choices(self, limit: int, rng: random.Random) -> Iterator[Choices]:
        """All states if there are at most ``limit``; else ``limit`` of them: first the plain ones, then
        random others."""
        sizes = [len(domain.variants) for domain in self.domains()]
        if math.prod(sizes) <= limit:
            yield from itertools.product(*map(range, sizes))
            return
        given: set[Choices] = set()
        for choices in itertools.chain(_plain_choices(sizes), _random_choices(sizes, rng)):
            if choices not in given:
                given.add(choices)
                yield choices
                if len(given) >= limit:
                    return


def _plain_choices(sizes: list[int]) -> Iterator[Choices]:
    """Nothing lost; everything lost; and each variant of each domain, with all others complete or lost."""
    first, last = (0,) * len(sizes), tuple(size - 1 for size in sizes)
    yield last
    yield first
    variants = [(number, choice) for number, size in enumerate(sizes) for choice in range(size)]
    for number, choice in variants:
        for others in (last, first):
            yield (*others[:number], choice, *others[number + 1 :])


def _random_choices(sizes: list[int], rng: random.Random) -> Iterator[Choices]:
    """A random variant of each domain; more often the one with everything, or with nothing."""
    while True:
        yield tuple(_weighted(size, rng) for size in sizes)


def _weighted(size: int, rng: random.Random) -> int:
    draw = rng.random()
    return 0 if draw < 0.2 else size - 1 if draw < 0.5 else rng.randrange(size)
