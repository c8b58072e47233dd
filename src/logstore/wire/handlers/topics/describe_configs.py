"""DescribeConfigs."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from logstore.broker.codes import ErrorCode
from logstore.broker.pending import Pending
from logstore.broker.requests import ConfigSource, Setting, SettingKind
from logstore.broker.requests import DescribeConfigsRequest as Asked
from logstore.broker.requests import DescribeConfigsResult as Found
from logstore.broker.settings import BROKER_NAMES, settings_of
from logstore.errors import InvalidTopicError
from logstore.format.names import check_topic_name
from logstore.logdir.acls import Operation
from logstore.logdir.group_settings import COPIES_DEAD_LETTERS, RANGES
from logstore.wire.handlers.call import Call, told
from logstore.wire.handlers.then import then
from logstore.wire.handlers.topics.resources import (
    ConfigResource,
    Refusal,
    denied,
    invalid,
    not_this_node,
)
from logstore.wire.messages.topics.describe_configs import (
    Config,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    Resource,
    ResourceResult,
    Synonym,
)

_OWN: Final = {
    ConfigResource.TOPIC: ConfigSource.TOPIC,
    ConfigResource.BROKER: ConfigSource.STATIC_BROKER,
    ConfigResource.GROUP: ConfigSource.GROUP,
}
"""Where a value comes from that is not the default."""


def answer(call: Call, request: DescribeConfigsRequest, version: int) -> Pending[DescribeConfigsResponse]:
    """The settings of topics, and those that the node was started with."""
    once: dict[tuple[int, str], Resource] = {}
    for each in request.resources:  # an answer is a hundred times as long as a name
        once.setdefault((each.resource_type, each.resource_name), each)
    request = request._replace(resources=tuple(once.values()))
    refusals = [_refusal(call, each) for each in request.resources]
    answered = [each for each, refusal in zip(request.resources, refusals, strict=True) if refusal is None]
    asked = Asked(
        tuple(each.resource_name for each in answered if each.resource_type == ConfigResource.TOPIC),
        with_store=any(_is_node(each) for each in answered),
        with_documentation=request.include_documentation,
    )
    return then(call.broker.describe_configs(asked), lambda found: _response(call, request, refusals, found))


def _is_node(resource: Resource) -> bool:
    """Whether one broker is meant. Without a name it is what can be changed for all: nothing can."""
    return resource.resource_type == ConfigResource.BROKER and bool(resource.resource_name)


def _refusal(call: Call, resource: Resource) -> Refusal | None:
    kind, name = resource.resource_type, resource.resource_name
    refusal = denied(call, Operation.DESCRIBE_CONFIGS, kind, name)
    if refusal is not None:
        return refusal
    if kind == ConfigResource.BROKER:
        return not_this_node(call, name)
    if kind == ConfigResource.GROUP:
        return None if name else invalid("no group is named")
    if kind != ConfigResource.TOPIC:
        return invalid(
            f"{ConfigResource(kind).name} {name!r} has no settings here; topics, groups and the broker have"
        )
    try:
        check_topic_name(name)
    except InvalidTopicError as error:
        return Refusal(ErrorCode.INVALID_TOPIC_EXCEPTION, str(error))
    return None


def _response(
    call: Call, request: DescribeConfigsRequest, refusals: list[Refusal | None], found: Found
) -> DescribeConfigsResponse:
    topics = iter(found.topics)
    resources = []
    for each, refusal in zip(request.resources, refusals, strict=True):
        configs: tuple[Config, ...] = ()
        if refusal is None and each.resource_type == ConfigResource.TOPIC:
            topic = next(topics)
            refusal = Refusal(topic.error, told(topic.name, topic.error, topic.message))
            configs = _configs(request, each, topic.settings)
        elif refusal is None and _is_node(each):
            configs = _configs(request, each, _of_node(call, request, found.store))
        elif refusal is None and each.resource_type == ConfigResource.GROUP:
            configs = _configs(request, each, _of_group(call, each.resource_name))
        code, message = refusal or Refusal(ErrorCode.NONE)
        resources.append(ResourceResult(code, message, each.resource_type, each.resource_name, configs))
    return DescribeConfigsResponse(resources=tuple(resources))


def _of_node(call: Call, request: DescribeConfigsRequest, store: tuple[Setting, ...]) -> Iterable[Setting]:
    node = call.node
    node_id = str(node.node_id)
    yield Setting("broker.id", node_id, False, SettingKind.INT)
    yield Setting("node.id", node_id, False, SettingKind.INT)
    where = f"{node.endpoint.host}:{node.endpoint.port}"
    yield Setting("advertised.listeners", where, False, SettingKind.LIST)
    rack = next((each.rack for each in node.brokers() if each.node_id == node.node_id), None)
    if rack is not None:
        yield Setting("broker.rack", rack, False, SettingKind.STRING)
    if node.cluster is not None:
        for name, value in node.cluster.throttles().items():
            yield Setting(name, value, False, SettingKind.LONG, source=ConfigSource.BROKER)
    yield from settings_of(node.config, with_documentation=request.include_documentation)
    yield from store


_KINDS: Final = {**dict.fromkeys(RANGES, SettingKind.INT), COPIES_DEAD_LETTERS: SettingKind.BOOLEAN}
"""Of the settings of groups, those that are no text."""


def _of_group(call: Call, name: str) -> Iterable[Setting]:
    settings = call.node.group_settings
    own = settings.own(name)
    for key, default in settings.defaults().items():
        kind = _KINDS.get(key, SettingKind.STRING)
        yield Setting(key, own.get(key, default), key not in own, kind, default)


def _configs(
    request: DescribeConfigsRequest, resource: Resource, settings: Iterable[Setting]
) -> tuple[Config, ...]:
    """Those that are asked for; no names are all."""
    wanted = frozenset(resource.keys or ())
    own = _OWN[ConfigResource(resource.resource_type)]
    return tuple(
        [
            _config(each, own, with_synonyms=request.include_synonyms)
            for each in settings
            if not wanted or each.name in wanted
        ]
    )


def _config(setting: Setting, own: ConfigSource, *, with_synonyms: bool) -> Config:
    source = setting.source or own
    return Config(
        setting.name,
        setting.value,
        read_only=own is source is ConfigSource.STATIC_BROKER,
        config_source=ConfigSource.DEFAULT if setting.is_default else source,
        synonyms=_synonyms(setting, source) if with_synonyms else (),
        config_type=setting.kind,
        documentation=setting.documentation,
    )


def _synonyms(setting: Setting, source: ConfigSource) -> tuple[Synonym, ...]:
    """The values that it has from each source, the first of which counts (KIP-226)."""
    found = []
    brokers = BROKER_NAMES.get(setting.name, setting.name)
    if not setting.is_default:
        name = brokers if source is ConfigSource.STATIC_BROKER else setting.name
        found.append(Synonym(name, setting.value, source))
    if setting.for_new_topics is not None and source is not ConfigSource.STATIC_BROKER:
        found.append(Synonym(brokers, setting.for_new_topics, ConfigSource.STATIC_BROKER))
    if setting.default is not None:
        found.append(Synonym(brokers, setting.default, ConfigSource.DEFAULT))
    return tuple(found)


def refuse(request: DescribeConfigsRequest, code: ErrorCode, version: int) -> DescribeConfigsResponse:
    """The same error for every resource."""
    return DescribeConfigsResponse(
        resources=tuple(
            ResourceResult(code, None, each.resource_type, each.resource_name) for each in request.resources
        )
    )
