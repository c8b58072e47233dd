"""Settings: every range, every choice, and Kafka's spelling of them (section 5 of the storage rules)."""

from dataclasses import fields, replace

import pytest

from logstore.config import _STORE_RANGES, _TOPIC_RANGES, UNLIMITED, StoreConfig, TopicConfig
from logstore.errors import InvalidConfigError

TOPIC_RANGES = [row for row in _TOPIC_RANGES if row[0] != "compression_gzip_level"]
CHOICES = {
    "cleanup_policy": ["", "delete", "compact", "compact,delete", "delete,compact"],
    "compression_type": ["producer", "uncompressed", "gzip", "snappy", "lz4", "zstd"],
    "message_timestamp_type": ["CreateTime", "LogAppendTime"],
}
FLAGS = [
    "acks_all_durable",
    "errors_deadletterqueue_group_enable",
    "message_timestamp_unit_check",
    "preallocate",
    "unclean_leader_election_enable",
]


BESIDE = {
    "min_compaction_lag_ms": {"max_compaction_lag_ms": UNLIMITED},
    "group_share_session_timeout_ms": {"group_share_heartbeat_interval_ms": 1},
    "group_share_heartbeat_interval_ms": {"group_share_session_timeout_ms": 2**31 - 1},
    "group_consumer_session_timeout_ms": {"group_consumer_heartbeat_interval_ms": 1},
    "group_consumer_heartbeat_interval_ms": {"group_consumer_session_timeout_ms": 2**31 - 1},
}
"""What the other of two settings has to be."""


def with_other(name, value):
    return {name: value, **BESIDE.get(name, {})}


def ranges():
    for kind, rows in ((TopicConfig, TOPIC_RANGES), (StoreConfig, _STORE_RANGES)):
        for name, low, high in rows:
            yield pytest.param(kind, name, low, high, id=name)


@pytest.mark.parametrize(("kind", "name", "low", "high"), list(ranges()))
def test_the_ends_of_a_range_are_accepted_and_what_is_past_them_is_not(kind, name, low, high):
    for value in (low, high):
        assert getattr(kind(**with_other(name, value)), name) == value
    for value in (low - 1, high + 1):
        with pytest.raises(InvalidConfigError, match=f"{name} is .* from {low} to {high}"):
            kind(**with_other(name, value))


@pytest.mark.parametrize(("kind", "name", "low", "high"), list(ranges()))
@pytest.mark.parametrize("value", ["5", None, True, [5]])
def test_a_number_must_be_one(kind, name, low, high, value):
    with pytest.raises(InvalidConfigError, match=name):
        kind(**{name: value})


@pytest.mark.parametrize("value", [1.5, float("nan"), float("inf")])
def test_only_the_ratio_may_be_a_fraction(value):
    with pytest.raises(InvalidConfigError, match="segment_ms"):
        TopicConfig(segment_ms=value)
    with pytest.raises(InvalidConfigError, match="min_cleanable_dirty_ratio"):
        TopicConfig(min_cleanable_dirty_ratio=value)
    assert TopicConfig(min_cleanable_dirty_ratio=0.25).min_cleanable_dirty_ratio == 0.25


def test_sessions_are_longer_than_the_interval_of_heartbeats():
    with pytest.raises(InvalidConfigError, match="45000, not above group_consumer_heartbeat_interval_ms"):
        StoreConfig(group_consumer_heartbeat_interval_ms=45_000)


@pytest.mark.parametrize("level", [-1, 1, 9])
def test_gzip_levels(level):
    assert TopicConfig(compression_gzip_level=level).compression_gzip_level == level


@pytest.mark.parametrize("level", [-2, 0, 10])
def test_gzip_levels_that_zlib_does_not_have(level):
    with pytest.raises(InvalidConfigError, match="compression_gzip_level"):
        TopicConfig(compression_gzip_level=level)


@pytest.mark.parametrize(
    ("name", "value"), [(name, value) for name, values in CHOICES.items() for value in values]
)
def test_each_choice(name, value):
    assert getattr(TopicConfig(**{name: value}), name) == value


@pytest.mark.parametrize("name", CHOICES)
@pytest.mark.parametrize("value", [" ", "none", 5, None, ["delete"]])
def test_another_choice_is_refused(name, value):
    with pytest.raises(InvalidConfigError, match=name):
        TopicConfig(**{name: value})


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("value", [0, "true", None])
def test_a_flag_is_true_or_false(name, value):
    with pytest.raises(InvalidConfigError, match=name):
        TopicConfig(**{name: value})


def test_every_setting_has_a_range_or_a_choice_or_is_a_flag():
    checked = {row[0] for row in _TOPIC_RANGES} | CHOICES.keys() | set(FLAGS)
    assert {field.name for field in fields(TopicConfig)} == checked
    checked = {row[0] for row in _STORE_RANGES} | {"topic", "log_cleaner_enable"}
    checked.add("group_consumer_migration_policy")
    assert {field.name for field in fields(StoreConfig)} == checked


@pytest.mark.parametrize("value", ["", "both", None])
def test_another_migration_policy_is_refused(value):
    with pytest.raises(InvalidConfigError, match="group_consumer_migration_policy"):
        StoreConfig(group_consumer_migration_policy=value)


def test_lags_that_contradict_each_other_are_refused():
    TopicConfig(min_compaction_lag_ms=5, max_compaction_lag_ms=5)
    with pytest.raises(
        InvalidConfigError, match=r"min_compaction_lag_ms \(6\) .*max_compaction_lag_ms \(5\)"
    ):
        TopicConfig(min_compaction_lag_ms=6, max_compaction_lag_ms=5)


def test_a_changed_copy_is_checked_too():
    with pytest.raises(InvalidConfigError):
        replace(TopicConfig(), retention_ms=-2)


def test_the_topic_of_a_store_must_be_a_topic_config():
    with pytest.raises(InvalidConfigError, match="topic is a dict"):
        StoreConfig(topic={})


@pytest.mark.parametrize(
    ("policy", "compacts", "deletes"),
    [
        ("delete", False, True),
        ("compact", True, False),
        ("compact,delete", True, True),
        ("", False, False),
    ],
)
def test_what_a_policy_means(policy, compacts, deletes):
    config = TopicConfig(cleanup_policy=policy)
    assert (config.compacts, config.deletes) == (compacts, deletes)
    assert config.may_lose_its_front == (policy != "compact")
    assert TopicConfig.from_properties(config.to_properties()) == config


@pytest.mark.parametrize("policies", ["compact,delete", "delete,compact"])
def test_policies_are_shown_in_the_order_in_which_they_were_set(policies):
    first, second = policies.split(",")
    for config in (
        TopicConfig(cleanup_policy=policies),
        TopicConfig.from_properties({"cleanup.policy": f"{first}, {second}"}),
        replace(TopicConfig(), cleanup_policy=policies),
        TopicConfig(cleanup_policy=f"{policies},{first}"),
        TopicConfig.from_properties({"cleanup.policy": f"{first}, {second}, {first}"}),
    ):
        assert config.cleanup_policy == policies
        assert (config.compacts, config.deletes) == (True, True)
        assert config.to_properties() == {"cleanup.policy": policies}


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_policy_that_is_named_twice_counts_once(policy):
    assert TopicConfig(cleanup_policy=f"{policy},{policy}") == TopicConfig(cleanup_policy=policy)


@pytest.mark.parametrize(
    "policy", ["delete,", ",", ",,", "delete,,compact", "delete,burn", "delete,delete,burn"]
)
def test_a_policy_that_there_is_not(policy):
    with pytest.raises(InvalidConfigError, match=f"cleanup_policy is '{policy}'"):
        TopicConfig(cleanup_policy=policy)


# Kafka's spelling


def other_values():
    for name, low, high in TOPIC_RANGES:
        yield with_other(name, high if getattr(TopicConfig(), name) != high else low)
    for name, values in CHOICES.items():
        yield {name: values[-1]}
    for name in FLAGS:
        yield {name: True}


@pytest.mark.parametrize("settings", list(other_values()), ids=lambda settings: next(iter(settings)))
def test_properties_and_back(settings):
    config = TopicConfig(**settings)
    properties = config.to_properties()
    assert TopicConfig.from_properties(properties) == config
    assert all(isinstance(text, str) and "_" not in key for key, text in properties.items())


def test_defaults_are_left_out():
    assert TopicConfig().to_properties() == {}
    assert TopicConfig(retention_ms=5, preallocate=True).to_properties() == {
        "retention.ms": "5",
        "preallocate": "true",
    }


@pytest.mark.parametrize(
    ("properties", "settings"),
    [
        ({"retention.ms": " 5 "}, {"retention_ms": 5}),
        ({"cleanup.policy": "compact, delete"}, {"cleanup_policy": "compact,delete"}),
        ({"preallocate": "TRUE"}, {"preallocate": True}),
        ({"min.cleanable.dirty.ratio": "0.2"}, {"min_cleanable_dirty_ratio": 0.2}),
    ],
)
def test_properties_as_people_write_them(properties, settings):
    assert TopicConfig.from_properties(properties) == TopicConfig(**settings)


@pytest.mark.parametrize("properties", ["", "retention.ms=5", None, [("retention.ms", "5")]])
def test_what_is_no_mapping_is_refused(properties):
    with pytest.raises(InvalidConfigError, match=r"the settings are .*; they must be a dict"):
        TopicConfig.from_properties(properties)


def test_a_setting_that_only_kafka_has_is_not_taken_for_another():
    """``retention.ms`` in place of this would delete the records themselves."""
    with pytest.raises(
        InvalidConfigError, match=r"'local.retention.ms' is a setting of Kafka's .*; leave it"
    ):
        TopicConfig.from_properties({"local.retention.ms": "5000"})


@pytest.mark.parametrize("key", ["retention", "retention_ms", "retention.ms.", "RETENTION.MS", ""])
def test_an_unknown_key_is_named(key):
    with pytest.raises(InvalidConfigError, match="unknown setting"):
        TopicConfig.from_properties({key: "5"})


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("retention.ms", "five"),
        ("retention.ms", "5.0"),
        ("retention.ms", "1_000"),
        ("retention.ms", ""),
        ("retention.ms", 5),
        ("preallocate", "yes"),
        ("preallocate", True),
        ("min.cleanable.dirty.ratio", "half"),
        ("cleanup.policy", None),
    ],
)
def test_a_value_that_does_not_parse_names_its_key(key, text):
    with pytest.raises(InvalidConfigError, match=key):
        TopicConfig.from_properties({key: text})
