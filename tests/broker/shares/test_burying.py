"""Failed records on their way to the dead-letter topic. Costs 0.3 s."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from logstore.broker.share.partition import Span, without
from logstore.broker.share.states import RecordState


@st.composite
def apart(draw):
    """Spans in the order of their offsets, without overlaps."""
    spans, at = [], 0
    for gap, length in draw(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 4)), max_size=8)):
        spans.append(Span(at + gap, at + gap + length - 1, RecordState.FAILED))
        at += gap + length
    return spans


def offsets(spans):
    return [offset for span in spans for offset in range(span.first, span.last + 1)]


@given(apart(), apart())
def test_what_was_set_aside_is_left_out(spans, others):
    left = list(without(spans, others))
    assert offsets(left) == sorted(set(offsets(spans)) - set(offsets(others)))
    assert all(span.first <= span.last for span in left)
