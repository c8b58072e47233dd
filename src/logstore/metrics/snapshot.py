"""The values of all metrics at one moment, and how they are shown. Knows no store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

from logstore.arguments import did_you_mean, plain_text, shown
from logstore.counting import HistogramValue
from logstore.errors import UsageError
from logstore.metrics.declared import BY_NAME, TABLE, Kind, Metric

Labels = tuple[str | int, ...]
"""The values of a metric's labels, in their order: ``("orders", 0)``. Partitions are numbers."""

Value = int | float | HistogramValue
"""The value of one series: a number, or a histogram."""

Series = Mapping[Labels, Value]
"""The values of one metric, by labels. A metric without labels has one, at ``()``."""

_MOST_SHOWN: Final = 50
"""How many series of one metric are printed."""
_NONE: Final[Series] = MappingProxyType({})


class Metrics(Mapping[str, Series]):
    """What a store has counted: a mapping from the name of a metric to its values by labels. Made by
    :meth:`.Store.metrics`; it does not change afterwards.

    ::

        metrics = store.metrics()
        metrics["logstore_log_end_offset"]["orders", 0]
        metrics.total("logstore_group_lag", group="billing")
        print(metrics)

    ``docs/metrics.md`` has the table of all metrics. Each of them is in the mapping, without values if there
    is nothing to count.
    """

    def __init__(
        self,
        path: str,
        taken_ms: int,
        series: Mapping[str, Mapping[Labels, Value]],
        incomplete: tuple[str, ...],
    ) -> None:
        self._path = path
        self._taken_ms = taken_ms
        self._series = {
            metric.name: MappingProxyType(dict(series.get(metric.name, _NONE))) for metric in TABLE
        }
        self._incomplete = incomplete

    @property
    def path(self) -> str:
        """The store's absolute path."""
        return self._path

    @property
    def taken_ms(self) -> int:
        """When it was taken: milliseconds since the epoch."""
        return self._taken_ms

    @property
    def incomplete(self) -> tuple[str, ...]:
        """What is missing, and why: logs and groups that could not be looked at because of damage, for one.
        Empty if everything is there."""
        return self._incomplete

    def __reduce__(self) -> tuple[type[Metrics], tuple[Any, ...]]:
        series = {name: dict(each) for name, each in self._series.items()}
        return Metrics, (self._path, self._taken_ms, series, self._incomplete)

    # Looking

    def __getitem__(self, name: str) -> Series:
        return self._series[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)

    def total(self, name: str, **labels: str | int) -> int | float:
        """The sum of a counter or gauge over all series with these labels; 0 if there are none. With all
        labels given, it is that one's value.

        Raises:
            UsageError: there is no such metric or label, it is a histogram, or a label's value is of another
                type: partitions are numbers, everything else is text.
        """
        metric = _metric_of(name)
        if metric.kind is Kind.HISTOGRAM:
            raise UsageError(f"{name} is a histogram; histogram({name!r}) adds it up")
        found: int | float = sum(self._chosen(metric, labels))
        return found

    def histogram(self, name: str, **labels: str | int) -> HistogramValue:
        """The sum of a histogram over all series with these labels.

        Raises:
            UsageError: there is no such metric or label, it is no histogram, or a label's value is of another
                type.
        """
        metric = _metric_of(name)
        if metric.kind is not Kind.HISTOGRAM:
            raise UsageError(f"{name} is a {metric.kind.value}; total({name!r}) adds it up")
        empty = (0,) * (len(metric.bounds) + 1)
        found: HistogramValue = sum(
            self._chosen(metric, labels), HistogramValue(metric.bounds, empty, tuple(map(float, empty)))
        )
        return found

    def _chosen(self, metric: Metric, labels: Mapping[str, Any]) -> Iterator[Any]:
        for label, value in labels.items():
            if label not in metric.labels:
                have = ", ".join(metric.labels) or "none"
                raise UsageError(f"{metric.name} has no label {shown(label)}; it has {have}")
            kind, what = (int, "a number") if label == "partition" else (str, "text")
            if not isinstance(value, kind):
                raise UsageError(f"label {label} is {shown(value)}; it must be {what}")
        wanted = [(metric.labels.index(label), value) for label, value in labels.items()]
        for key, value in self._series[metric.name].items():
            if all(key[number] == one for number, one in wanted):
                yield value

    # Showing

    def as_dict(self) -> dict[str, Any]:
        """Everything, in types that JSON knows: for each metric its kind, unit, and series with labels and
        value. A histogram is its count, its sum, the bounds of its buckets and the count of each."""
        return {
            "path": self._path,
            "taken_ms": self._taken_ms,
            "incomplete": list(self._incomplete),
            "metrics": {
                metric.name: {
                    "kind": metric.kind.value,
                    "unit": metric.unit,
                    "series": [
                        {"labels": dict(zip(metric.labels, key, strict=True)), "value": _plain(value)}
                        for key, value in self._series[metric.name].items()
                    ],
                }
                for metric in TABLE
            },
        }

    def __str__(self) -> str:
        """A line for each series that is not 0, aligned; of a metric at most 50."""
        lines = [row for row in self._rows() if row[1] != ""]
        width = max((len(name) for name, _ in lines), default=0)
        return "\n".join([f"{name:{width}}  {value}" for name, value in lines] + list(self._incomplete))

    def _rows(self) -> Iterator[tuple[str, str]]:
        for metric in TABLE:
            found = [(key, value) for key, value in self._series[metric.name].items() if _is_any(value)]
            for key, value in found[:_MOST_SHOWN]:
                yield f"{metric.name}{_labels_text(metric, key)}", _text_of(metric, value)
            if len(found) > _MOST_SHOWN:
                yield metric.name, f"and {len(found) - _MOST_SHOWN:,} more"

    def __repr__(self) -> str:
        count = sum(map(len, self._series.values()))
        return f"<Metrics of {self._path!r}: {count} values>"

    def _repr_html_(self) -> str:
        """What a notebook shows: what is not 0."""
        from logstore.showing import MOST_ROWS, Table, show  # few programs get here

        rows = list(self._rows())
        pages = range(0, len(rows), MOST_ROWS)
        tables = [Table(("metric", "value"), rows[at : at + MOST_ROWS]) for at in pages]
        return show(f"Metrics of {self._path}", [*tables, *self._incomplete])


def _metric_of(name: object) -> Metric:
    name = plain_text(name)
    metric = BY_NAME.get(name) if type(name) is str else None
    if metric is None:
        raise UsageError(f"there is no metric {shown(name)}{did_you_mean(name, list(BY_NAME))}")
    return metric


def _plain(value: Value) -> object:
    if not isinstance(value, HistogramValue):
        return value
    return {
        "count": value.count,
        "sum": value.sum,
        "bounds": list(value.bounds),
        "counts": list(value.counts),
    }


def _is_any(value: Value) -> bool:
    return bool(value.count if isinstance(value, HistogramValue) else value)


def _labels_text(metric: Metric, key: Labels) -> str:
    pairs = [f"{label}={value}" for label, value in zip(metric.labels, key, strict=True)]
    return f"{{{', '.join(pairs)}}}" if pairs else ""


def _text_of(metric: Metric, value: Value) -> str:
    if not isinstance(value, HistogramValue):
        return f"{value:,}"
    in_unit = _seconds_text if metric.unit == "s" else _bytes_text
    mean, most = value.sum / value.count, value.quantile(0.99)
    return f"{value.count:,}, on average {in_unit(mean)}, 99 % up to {in_unit(most)}"


def _seconds_text(seconds: float) -> str:
    if seconds < 0.001:
        return f"{seconds * 1e6:.3g} µs"
    return f"{seconds * 1000:.3g} ms" if seconds < 1 else f"{seconds:.3g} s"


def _bytes_text(size_bytes: float) -> str:
    return f"{size_bytes:,.0f} bytes"
