"""What a process that serves says when it is ready, and what it tells Prometheus (``--metrics``)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from logstore.cli import streams
from logstore.cli.escaping import escaped, json_text
from logstore.errors import UsageError
from logstore.store import Store
from logstore.wire.addresses import parse_address


@contextmanager
def metrics_at(store: Store, address: str | None) -> Iterator[str | None]:
    """Serve the metrics of a store at an address such as ``127.0.0.1:9100``. Gives where they are; None if
    no address was given.

    Raises:
        UsageError: this is no address, or ``prometheus_client`` is not installed.
        StorageError: the system refuses it.
    """
    if address is None:
        yield None
        return
    wanted = parse_address(address, to_listen=True)
    if wanted.path:
        raise UsageError(f"{address} is a path; metrics are served at an address such as 127.0.0.1:9100")
    try:
        from logstore.metrics.prometheus import serve_metrics  # few processes are asked for them
    except ImportError as error:
        raise UsageError(str(error)) from None
    with serve_metrics(store, wanted.host or "0.0.0.0", wanted.port) as url:  # noqa: S104 - as was asked for
        yield url


def tell_ready(what: str, address: str, path: str, metrics: str | None, *, is_json: bool) -> None:
    """Say where clients can connect now, and where the metrics are, if anywhere."""
    if is_json:
        found = {"address": address, "path": path, "metrics": metrics}
        streams.write(f"{json_text(found)}\n", "utf-8")
    else:
        also = "" if metrics is None else f", its metrics at {metrics}"
        streams.write(f"{escaped(f'{what} at {address}{also}')}\n")
    streams.flush()
