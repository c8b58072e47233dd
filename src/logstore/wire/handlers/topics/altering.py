"""What the two requests that change settings have in common: whose settings may be changed, and by whom."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from typing import Protocol, TypeVar

from logstore.broker.codes import ErrorCode
from logstore.broker.failures import code_of
from logstore.broker.pending import Pending
from logstore.broker.requests import AlterConfigsRequest, ConfigChange, TopicsResult
from logstore.errors import LogstoreError
from logstore.logdir.acls import Operation
from logstore.logdir.group_settings import NAMES as GROUP_NAMES
from logstore.wire.handlers.call import Call, ClusterNodes, told
from logstore.wire.handlers.then import then
from logstore.wire.handlers.topics.idle import without_idle
from logstore.wire.handlers.topics.resources import ConfigResource, Refusal, denied, invalid


class Named(Protocol):
    """A setting to change."""

    @property
    def name(self) -> str: ...


class Resource(Protocol):
    """What settings are of, in either request."""

    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str: ...
    @property
    def configs(self) -> Sequence[Named]: ...


R = TypeVar("R", bound=Resource)


def alter(
    call: Call,
    resources: Sequence[R],
    change_of: Callable[[R], ConfigChange | Refusal],
    *,
    validate_only: bool,
) -> Pending[list[Refusal]]:
    """Change the settings of topics and share groups. For each resource, what became of it: code NONE if it
    was changed."""
    counts = Counter((each.resource_type, each.resource_name) for each in resources)
    plans = [
        _refusal(call, each, is_twice=counts[each.resource_type, each.resource_name] > 1) or change_of(each)
        for each in resources
    ]
    plans = [
        _alter_at_once(call, each, plan, validate_only=validate_only)
        for each, plan in zip(resources, plans, strict=True)
    ]
    changes = tuple(each for each in plans if isinstance(each, ConfigChange))
    return then(
        call.broker.alter_configs(AlterConfigsRequest(changes, validate_only)),
        lambda done: _outcomes(plans, done),
    )


def _refusal(call: Call, resource: Resource, *, is_twice: bool) -> Refusal | None:
    kind, name = resource.resource_type, resource.resource_name
    refusal = denied(call, Operation.ALTER_CONFIGS, kind, name)
    if refusal is not None:
        return refusal
    if is_twice:
        return invalid(f"the request changes {ConfigResource(kind).name} {name!r} twice")
    if kind not in (ConfigResource.TOPIC, ConfigResource.GROUP, ConfigResource.BROKER):
        return invalid(f"{ConfigResource(kind).name} {name!r} has no settings here; topics and groups have")
    twice = [key for key, count in Counter(each.name for each in resource.configs).items() if count > 1]
    return invalid(f"the request changes {twice[0]} twice") if twice else None


def _alter_at_once(
    call: Call, resource: Resource, plan: ConfigChange | Refusal, *, validate_only: bool
) -> ConfigChange | Refusal:
    """All but what is of topics."""
    if not isinstance(plan, ConfigChange):
        return plan
    if resource.resource_type == ConfigResource.TOPIC:
        return plan._replace(settings=without_idle(plan.settings))
    if resource.resource_type == ConfigResource.GROUP:
        return _alter_group(call, plan, validate_only=validate_only)
    if call.node.cluster is not None:
        return _throttle(call, call.node.cluster, plan, validate_only=validate_only)
    return _alter_broker(plan)


def _throttle(call: Call, cluster: ClusterNodes, change: ConfigChange, *, validate_only: bool) -> Refusal:
    """How fast this node of a cluster catches up is all that can be changed."""
    if change.name != str(call.node.node_id):
        if not change.name:
            return invalid("the settings of all brokers are given when they are started; name one broker")
        return invalid(f"this is broker {call.node.node_id}; ask broker {change.name!r} itself")
    if change.appended or change.subtracted:
        return invalid(f"settings of broker {change.name} are no lists")
    before: Iterable[str] = cluster.throttles() if change.replaces else ()
    try:
        cluster.throttle({**dict.fromkeys(before), **change.settings}, validate_only=validate_only)
    except LogstoreError as error:
        return Refusal(code_of(error), str(error))
    return Refusal(ErrorCode.NONE)


def _alter_broker(change: ConfigChange) -> Refusal:
    """Nothing can be changed. What was not changed may be given its default again: Kafka's tool for moving
    partitions ends throttles in this way, whether there were any or not."""
    is_given = any(value is not None for value in change.settings.values())
    if is_given or change.replaces or change.appended or change.subtracted:
        return invalid("the settings of a broker are given when it is started; change those of topics")
    return Refusal(ErrorCode.NONE)


def _alter_group(call: Call, change: ConfigChange, *, validate_only: bool) -> Refusal:
    if change.replaces or change.appended or change.subtracted:
        return invalid(f"settings of group {change.name!r} are set and deleted one by one, and are no lists")
    try:
        settings = {
            name: value for name, value in change.settings.items() if value is not None or name in GROUP_NAMES
        }
        call.node.group_settings.alter(change.name, settings, validate_only=validate_only)
    except LogstoreError as error:
        return Refusal(code_of(error), str(error))
    return Refusal(ErrorCode.NONE)


def _outcomes(plans: list[ConfigChange | Refusal], done: TopicsResult) -> list[Refusal]:
    found = iter(done.topics)
    outcomes = []
    for each in plans:
        if isinstance(each, ConfigChange):
            outcome = next(found)
            each = Refusal(outcome.error, told(outcome.name, outcome.error, outcome.message))
        outcomes.append(each)
    return outcomes
