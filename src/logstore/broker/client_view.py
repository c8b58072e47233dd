"""A broker as one client sees it: what it asks is measured, and answers say how long it has to wait.

Nothing waits here. The answer is there as soon as without quotas, and carries the delay in
:attr:`.Pending.throttle_time_ms` (KIP-219): a client in this process asks for nothing meanwhile, and a
network listener does not read from the connection.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter_ns
from typing import Concatenate, Final, Generic, ParamSpec, TypeVar

from logstore.broker.broker import Broker
from logstore.broker.counting import RequestCounts
from logstore.broker.pending import Pending, Wake
from logstore.broker.quotas.limits import Limits
from logstore.broker.quotas.precedence import Client
from logstore.broker.requests import FetchRequest, FetchResult, ProduceRequest, ProduceResult
from logstore.broker.share.requests import ShareFetchRequest, ShareFetchResult
from logstore.broker.transactions.requests import TransactionMarker, WriteMarkersResult
from logstore.logdir.quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE

P = ParamSpec("P")
R = TypeVar("R")

_PERCENT_OF_NANOSECOND: Final = 100 / 1_000_000_000


def _measured(
    method: Callable[Concatenate[Broker, P], Pending[R]],
) -> Callable[Concatenate[ClientView, P], Pending[R]]:
    """A request of which only the time is measured."""
    name = method.__name__

    def take(self: ClientView, /, *args: P.args, **kwargs: P.kwargs) -> Pending[R]:
        ask: Callable[P, Pending[R]] = getattr(self.broker, name)
        if not self.limits.are_set:
            return ask(*args, **kwargs)
        return Measured(self, name, lambda: ask(*args, **kwargs))

    take.__name__, take.__doc__ = name, method.__doc__
    return take


class ClientView:
    """See :class:`~logstore.broker.broker.Broker`. Cost: 0.05 µs for a request while no quota is set."""

    __slots__ = ("broker", "client", "counts", "limits")

    def __init__(self, broker: Broker, client: Client, limits: Limits, counts: RequestCounts) -> None:
        self.broker = broker
        self.client = client
        self.limits = limits
        self.counts = counts

    def produce(self, request: ProduceRequest) -> Pending[ProduceResult]:
        """Append batches. Their bytes count, also of those that are refused."""
        if not self.limits.are_set:
            return self.broker.produce(request)
        size_bytes = sum([len(each.data) for each in request.partitions])
        ask = self.broker.produce
        return Measured(self, "produce", lambda: ask(request), PRODUCER_BYTE_RATE, lambda _: size_bytes)

    def fetch(self, request: FetchRequest) -> Pending[FetchResult]:
        """Read batches: no more at once than the windows let through, but at least one. A follower is no
        client: records are acknowledged when it has them."""
        if not self.limits.are_set or request.replica is not None:
            return self.broker.fetch(request)
        most = self.limits.most(self.client, CONSUMER_BYTE_RATE)
        if most is not None and most < request.max_bytes:
            request = request._replace(max_bytes=most, min_bytes=min(request.min_bytes, most))
        ask = self.broker.fetch
        return Measured(self, "fetch", lambda: ask(request), CONSUMER_BYTE_RATE, _fetched_bytes)

    list_offsets = _measured(Broker.list_offsets)
    offsets_for_leader_epoch = _measured(Broker.offsets_for_leader_epoch)
    delete_records = _measured(Broker.delete_records)
    init_producer_id = _measured(Broker.init_producer_id)

    metadata = _measured(Broker.metadata)
    create_topics = _measured(Broker.create_topics)
    delete_topics = _measured(Broker.delete_topics)
    create_partitions = _measured(Broker.create_partitions)
    describe_configs = _measured(Broker.describe_configs)
    alter_configs = _measured(Broker.alter_configs)
    describe_log_dirs = _measured(Broker.describe_log_dirs)

    describe_client_quotas = _measured(Broker.describe_client_quotas)
    alter_client_quotas = _measured(Broker.alter_client_quotas)

    add_partitions_to_transaction = _measured(Broker.add_partitions_to_transaction)
    add_offsets_to_transaction = _measured(Broker.add_offsets_to_transaction)
    end_transaction = _measured(Broker.end_transaction)
    list_transactions = _measured(Broker.list_transactions)
    describe_transactions = _measured(Broker.describe_transactions)
    describe_producers = _measured(Broker.describe_producers)

    def write_transaction_markers(
        self, markers: tuple[TransactionMarker, ...]
    ) -> Pending[WriteMarkersResult]:
        """Mostly of other nodes, which end transactions. Not measured, as in Kafka."""
        return self.broker.write_transaction_markers(markers)

    offset_commit = _measured(Broker.offset_commit)
    offset_fetch = _measured(Broker.offset_fetch)
    join_group = _measured(Broker.join_group)
    sync_group = _measured(Broker.sync_group)
    heartbeat = _measured(Broker.heartbeat)
    leave_group = _measured(Broker.leave_group)
    consumer_group_heartbeat = _measured(Broker.consumer_group_heartbeat)
    list_groups = _measured(Broker.list_groups)
    describe_groups = _measured(Broker.describe_groups)
    describe_consumer_groups = _measured(Broker.describe_consumer_groups)
    delete_groups = _measured(Broker.delete_groups)
    offset_delete = _measured(Broker.offset_delete)

    def share_fetch(self, request: ShareFetchRequest) -> Pending[ShareFetchResult]:
        """Take records: as :meth:`fetch`."""
        if not self.limits.are_set:
            return self.broker.share_fetch(request)
        most = self.limits.most(self.client, CONSUMER_BYTE_RATE)
        if most is not None and most < request.max_bytes:
            request = request._replace(max_bytes=most)
        ask = self.broker.share_fetch
        return Measured(self, "share_fetch", lambda: ask(request), CONSUMER_BYTE_RATE, _fetched_bytes)

    share_group_heartbeat = _measured(Broker.share_group_heartbeat)
    share_acknowledge = _measured(Broker.share_acknowledge)
    list_share_groups = _measured(Broker.list_share_groups)
    describe_share_groups = _measured(Broker.describe_share_groups)
    delete_share_groups = _measured(Broker.delete_share_groups)
    share_group_offsets = _measured(Broker.share_group_offsets)
    alter_share_group_offsets = _measured(Broker.alter_share_group_offsets)
    delete_share_group_offsets = _measured(Broker.delete_share_group_offsets)


def _fetched_bytes(result: FetchResult | ShareFetchResult) -> int:
    return sum([len(each.data) for each in result.partitions])


class Measured(Generic[R]):
    """A request of a client that quotas may hold for. What it has used counts once, when its result is taken:
    the delay begins then. Time counts while a thread works on it, not while it waits."""

    __slots__ = ("_api", "_bytes_of", "_key", "_pending", "_result", "_used_ns", "_view", "throttle_time_ms")

    def __init__(
        self,
        view: ClientView,
        api: str,
        ask: Callable[[], Pending[R]],
        key: str | None = None,
        bytes_of: Callable[[R], int] | None = None,
    ) -> None:
        self._view = view
        self._api = api
        self._key = key
        self._bytes_of = bytes_of
        self._result: R | None = None
        self.throttle_time_ms = 0
        started_ns = perf_counter_ns()
        self._pending = ask()
        self._used_ns = perf_counter_ns() - started_ns
        self.poll()

    def poll(self) -> R | None:
        if self._result is None:
            started_ns = perf_counter_ns()
            result = self._pending.poll()
            self._used_ns += perf_counter_ns() - started_ns
            if result is not None:
                self._charge(result)
                self._result = result
        return self._result

    def _charge(self, result: R) -> None:
        view = self._view
        delay_ms = view.limits.charge(view.client, REQUEST_PERCENTAGE, self._used_ns * _PERCENT_OF_NANOSECOND)
        if self._key is not None and self._bytes_of is not None:
            delay_ms = max(delay_ms, view.limits.charge(view.client, self._key, self._bytes_of(result)))
        self.throttle_time_ms = delay_ms
        if delay_ms:
            view.counts.note_throttle(self._api, delay_ms / 1000)

    def on_wake(self, wake: Wake) -> None:
        self._pending.on_wake(wake)

    def cancel(self) -> None:
        self._pending.cancel()
