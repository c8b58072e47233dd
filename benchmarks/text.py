"""Numbers and tables as text."""

from __future__ import annotations

from collections.abc import Sequence

from benchmarks.results import Spread

_UNITS = ((1e6, "M"), (1e3, "k"))
_KIB, _MIB, _GIB = 2**10, 2**20, 2**30


def format_significant(number: float) -> str:
    """Three digits, without an exponent."""
    if number >= 100:
        return f"{number:,.0f}"
    return f"{number:.1f}" if number >= 10 else f"{number:.2f}"


def format_rate(rate: float) -> str:
    """Per second, with k for thousands and M for millions."""
    for size, unit in _UNITS:
        if rate >= size:
            return f"{format_significant(rate / size)} {unit}"
    return format_significant(rate)


def format_rates(rates: Spread) -> str:
    if rates.low == rates.high:
        return format_rate(rates.median)
    return f"{format_rate(rates.median)} ({format_rate(rates.low)} to {format_rate(rates.high)})"


def format_ratio(ratio: float) -> str:
    return f"{format_significant(ratio)} x"


def format_ratios(ratios: Spread) -> str:
    if ratios.low == ratios.high:
        return format_ratio(ratios.median)
    low, high = format_significant(ratios.low), format_significant(ratios.high)
    return f"{format_ratio(ratios.median)} ({low} to {high})"


def format_seconds(seconds: float) -> str:
    if seconds < 0:  # a difference, in noise
        return f"-{format_seconds(-seconds)}"
    if seconds >= 1:
        return f"{format_significant(seconds)} s"
    if seconds >= 1e-3:
        return f"{format_significant(seconds * 1e3)} ms"
    return f"{format_significant(seconds * 1e6)} µs"


def format_times(rates: Spread) -> str:
    """Rates as the time that one takes."""
    if rates.low == rates.high:
        return format_seconds(1 / rates.median)
    low, high = format_seconds(1 / rates.high), format_seconds(1 / rates.low)
    return f"{format_seconds(1 / rates.median)} ({low} to {high})"


def format_bytes(size: float) -> str:
    for unit_bytes, unit in ((_GIB, "GiB"), (_MIB, "MiB"), (_KIB, "KiB")):
        if size >= unit_bytes:
            return f"{format_significant(size / unit_bytes)} {unit}"
    return f"{size:.0f} B"


def format_table(titles: Sequence[str], rows: Sequence[Sequence[str]], *, text_columns: int = 2) -> str:
    """A Markdown table; all columns but the first ones to the right."""
    rule = ["---" if number < text_columns else "---:" for number in range(len(titles))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (titles, rule, *rows)) + "\n"
