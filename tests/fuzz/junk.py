"""Arguments that no caller inside logstore passes."""

from array import array

SIZES = (
    -(1 << 63),
    -(1 << 31),
    -61,
    -1,
    0,
    1,
    2,
    7,
    61,
    100,
    1000,
    1 << 62,
    (1 << 63) - 1,
    1 << 63,
    1 << 200,
)
"""Nothing in between, which would be memory that can be had."""


class Bytes(bytes):
    pass


class Text(str):
    pass


class Number(int):
    pass


class Row(tuple):
    pass


class Column(list):
    pass


class NoIndex:
    def __index__(self):
        raise RuntimeError("no index")

    __int__ = __len__ = __iter__ = __bool__ = __index__


class Unlike:
    """Nothing equals it, and it has whatever attribute is asked for."""

    def __eq__(self, other):
        raise RuntimeError("no comparison")

    __hash__ = None

    def __getattr__(self, name):
        return None


def argument(chance, depth=0):
    """One value of any type."""
    kind = chance.randrange(24 if depth < 2 else 18)
    if kind < 5:
        return chance.choice(SIZES)
    if kind >= 18:
        items = [argument(chance, depth + 1) for _ in range(chance.randrange(8))]
        return chance.choice((list, tuple, Row, Column))(items)
    return (
        lambda: None,
        lambda: chance.happens(0.5),
        lambda: 1.5,
        lambda: "text",
        lambda: "\udc80",
        lambda: Text("é"),
        lambda: Number(chance.choice(SIZES)),
        lambda: chance.randbytes(chance.randrange(100)),
        lambda: Bytes(b"k"),
        lambda: array("B", chance.randbytes(chance.randrange(100))),
        lambda: array("i", range(20)),
        lambda: memoryview(bytearray(40))[::2],
        lambda: chance.choice((NoIndex, Unlike))(),
    )[kind - 5]()
