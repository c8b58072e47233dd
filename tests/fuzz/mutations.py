"""Files of the corpus with something changed: quick, and the same again for the same seed."""

from __future__ import annotations

import random
from functools import cache

from tests.fuzz.chance import PIECES
from tests.fuzz.make_corpus import CORPUS

TEXT_PIECES = (
    b"\n",
    b" ",
    b"-1",
    b"0",
    b"9" * 20,
    b"=",
    b"\\u0041",
    b"\\",
    b'"',
    b"{",
    b"}",
    b"[",
    b":",
    b",",
    b"\xff",
)
NUMBERS = (
    b"\0\0\0\0",
    b"\xff\xff\xff\xff",
    b"\x7f\xff\xff\xff",
    b"\x80\0\0\0",
    b"\0\0\0\1",
    b"\x7f" + b"\xff" * 7,
)
MOST_BYTES = 1500
"""Of a seed: what is longer is in the corpus for its length."""


@cache
def _seeds(name):
    contents = (path.read_bytes() for path in sorted((CORPUS / name).iterdir()))
    return [data for data in contents if len(data) <= MOST_BYTES]


class Mutator:
    """Mutated files of one reader's corpus."""

    def __init__(self, name, seed):
        self._rng = random.Random(f"{name}/{seed}")
        self._seeds = _seeds(name)
        self._pieces = (*PIECES, *NUMBERS, *TEXT_PIECES)

    def next(self):
        """The next one."""
        draw = self._rng.random
        seeds, pieces = self._seeds, self._pieces
        data = bytearray(seeds[int(draw() * len(seeds))])
        for _ in range((1, 1, 1, 2, 3, 6)[int(draw() * 6)]):
            at = int(draw() * (len(data) + 1))
            how = draw()
            if how < 0.3:
                if at < len(data):
                    data[at] ^= 1 << int(draw() * 8)
            elif how < 0.6:
                piece = pieces[int(draw() * len(pieces))]
                data[at : at + len(piece)] = piece
            elif how < 0.75:
                data[at:at] = pieces[int(draw() * len(pieces))]
            elif how < 0.85:
                del data[at : at + 1 + int(draw() * draw() * 40)]
            elif how < 0.9:
                del data[at:]
            else:
                other = seeds[int(draw() * len(seeds))]
                start = int(draw() * len(other))
                data[at : at + 30] = other[start : start + 1 + int(draw() * 60)]
        return bytes(data)
