"""Histograms: every value is in the bucket that its bounds say, and merging loses none."""

import math
import random

from logstore.counting import BYTES, SECONDS, Histogram


def histogram_of(values, bounds=SECONDS):
    found = Histogram(bounds)
    for value in values:
        found.observe(value)
    return found.value


def test_a_value_is_in_the_first_bucket_that_it_does_not_exceed():
    chance = random.Random(1)
    values = [math.exp(chance.uniform(-14, 4)) for _ in range(2_000)] + list(SECONDS) + [0.0]
    found = histogram_of(values)
    lower = -math.inf
    for bound, count, total in zip((*SECONDS, math.inf), found.counts, found.sums, strict=True):
        inside = [value for value in values if lower < value <= bound]
        assert count == len(inside)
        assert math.isclose(total, math.fsum(inside), abs_tol=1e-12)
        lower = bound
    assert found.count == len(values)
    assert math.isclose(found.sum, math.fsum(values))


def test_merged_histograms_have_the_values_of_both():
    a, b = [0.5, 0.001, 20.0], [0.002, 0.5]
    both = histogram_of(a + b)
    assert histogram_of(a) + histogram_of(b) == both
    merged = Histogram(SECONDS)
    merged.add(histogram_of(a))
    merged.add(histogram_of(b))
    assert merged.value == both


def test_a_quantile_is_the_bound_of_its_bucket():
    found = histogram_of([0.001] * 98 + [0.2, 30.0])
    assert [found.quantile(share) for share in (0.5, 0.98, 0.99, 1.0)] == [0.001, 0.001, 0.25, math.inf]
    assert histogram_of([]).quantile(0.99) == 0.0


def test_the_bounds_ascend():
    for bounds in (SECONDS, BYTES):
        assert list(bounds) == sorted(set(bounds))
