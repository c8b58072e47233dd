"""Hypothesis strategies for what a batch may hold."""

from hypothesis import strategies as st

from logstore.model import Record

MAX_TIMESTAMP_MS = 2**63 - 1

payloads = (
    st.none() | st.binary(max_size=40) | st.binary(min_size=60, max_size=70).map(lambda data: data * 130)
)
timestamps = st.just(-1) | st.integers(0, 10**13) | st.integers(0, MAX_TIMESTAMP_MS)
headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=3).map(tuple)


@st.composite
def records(draw, *, gaps=False, min_size=1):
    """Records from a drawn base offset on; with ``gaps``, their offsets only rise."""
    steps = st.integers(1, 300) if gaps else st.just(1)
    offset = draw(st.integers(0, 2**62))
    rows = []
    for _ in range(draw(st.integers(min_size, 6))):
        rows.append(Record(offset, draw(timestamps), draw(payloads), draw(payloads), draw(headers)))
        offset += draw(steps)
    return rows
