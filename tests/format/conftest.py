"""The hot loops of the format layer, plain and compiled, each in turn behind the one door."""

import pytest

from logstore import build
from logstore.format import loops, plain

IMPLEMENTATIONS = {"plain": plain}
if build.compiled is not None:
    from logstore.format import compiled

    IMPLEMENTATIONS["compiled"] = compiled

NAMES = ("decode_batch", "decode_records", "encode_batch", "encode_records")


@pytest.fixture(scope="module", params=list(IMPLEMENTATIONS))
def each_implementation(request):
    """A module's tests run once per implementation; they call the loops as ``loops.NAME``."""
    with pytest.MonkeyPatch.context() as patch:
        for name in NAMES:
            patch.setattr(loops, name, getattr(IMPLEMENTATIONS[request.param], name))
        yield request.param
