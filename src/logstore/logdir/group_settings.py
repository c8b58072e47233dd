"""The settings that clients have given groups, and the file that keeps them.

Kafka keeps them in its cluster metadata, which a log directory by itself does not have. Ours are one small
JSON file, ``groups.json``. It is replaced whole, so a crash leaves the old settings or the new ones, and it
exists only once a group was given one. Kafka ignores it.

Knows which settings there are, by Kafka's names, and what they may be; not what they do.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from logstore.arguments import did_you_mean, plain_text, shown
from logstore.errors import CorruptionError, InvalidConfigError, UsageError
from logstore.files import Files
from logstore.format.names import check_topic_name
from logstore.logdir.quotas import check_client_name
from logstore.logdir.small_json import decode_json, encode_json, read_json_file, write_json_file
from logstore.partition.state.home import GROUPS_NAME

AUTO_OFFSET_RESET: Final = "share.auto.offset.reset"
DELIVERY_COUNT_LIMIT: Final = "share.delivery.count.limit"
ISOLATION_LEVEL: Final = "share.isolation.level"
MAX_RECORD_LOCKS: Final = "share.partition.max.record.locks"
RECORD_LOCK_DURATION_MS: Final = "share.record.lock.duration.ms"
DEAD_LETTER_TOPIC: Final = "errors.deadletterqueue.topic.name"
"""KIP-1191. Empty: there is none."""
COPIES_DEAD_LETTERS: Final = "errors.deadletterqueue.copy.record.enable"
"""KIP-1191: whether a failed record goes there itself, or headers alone, which say where it is."""

SESSION_TIMEOUT_MS: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL_MS: Final = "consumer.heartbeat.interval.ms"
"""Of groups of the newer protocol (KIP-848)."""
SHARE_SESSION_TIMEOUT_MS: Final = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL_MS: Final = "share.heartbeat.interval.ms"

CHOICES: Final[Mapping[str, tuple[str, ...]]] = {
    AUTO_OFFSET_RESET: ("earliest", "latest"),
    ISOLATION_LEVEL: ("read_uncommitted", "read_committed"),
    COPIES_DEAD_LETTERS: ("true", "false"),
}
RANGES: Final[Mapping[str, tuple[int, int]]] = {
    DELIVERY_COUNT_LIMIT: (1, 32_767),
    MAX_RECORD_LOCKS: (1, 20_000),
    RECORD_LOCK_DURATION_MS: (1, 2**31 - 1),
    SESSION_TIMEOUT_MS: (2, 2**31 - 1),
    HEARTBEAT_INTERVAL_MS: (1, 2**31 - 2),
    SHARE_SESSION_TIMEOUT_MS: (2, 2**31 - 1),
    SHARE_HEARTBEAT_INTERVAL_MS: (1, 2**31 - 2),
}
NAMES: Final = tuple(sorted([*CHOICES, *RANGES, DEAD_LETTER_TOPIC]))

VERSION: Final = 1
MAX_GROUPS_BYTES: Final = 64 * 1024 * 1024
MOST_GROUPS: Final = 100_000
"""A client may name as many as it likes, and each stays until its settings are deleted."""
_WHAT_TO_DO: Final = "Restore the file, or move it away: groups then have their defaults"

GroupSettings = Mapping[str, Mapping[str, str]]
"""Group -> name -> value, as text. A group without any is left out."""


def check_setting_name(name: Any) -> str:
    """
    Raises:
        InvalidConfigError: there is no such setting.
    """
    name = plain_text(name)
    if type(name) is not str or name not in NAMES:
        raise InvalidConfigError(f"groups have no setting {shown(name)} here{did_you_mean(name, NAMES)}")
    return name


def check_setting(name: Any, value: Any) -> str:
    """The value of a setting.

    Raises:
        InvalidConfigError: there is no such setting, or this is no value for it.
    """
    name, value = check_setting_name(name), plain_text(value)
    if type(value) is str:
        if name in CHOICES and value.lower() in CHOICES[name]:
            return value.lower()
        if name in RANGES and len(value) <= 20 and value.isascii() and value.isdigit():
            low, high = RANGES[name]
            if low <= int(value) <= high:
                return str(int(value))
        if name == DEAD_LETTER_TOPIC and _can_take_letters(value):
            return value
    if name == DEAD_LETTER_TOPIC:
        wanted = "the name of a topic that is not an internal one, or empty"
    elif name in CHOICES:
        wanted = " or ".join(CHOICES[name])
    else:
        wanted = "a whole number from {} to {}".format(*RANGES[name])
    raise InvalidConfigError(f"{name} is {shown(value)}; it must be {wanted}")


def _can_take_letters(name: str) -> bool:
    if not name:
        return True  # there is none
    try:
        check_topic_name(name)
    except UsageError:
        return False
    return not name.startswith("__")


def changed(
    settings: GroupSettings, group: str, changes: Mapping[str, str | None]
) -> dict[str, Mapping[str, str]]:
    """The settings of all groups after some of one were changed; None gives one its default again.

    Raises:
        InvalidConfigError: a name or a value is wrong, or there are too many groups.
        UsageError: this is no name for a group.
    """
    group = check_client_name("the group", group, least=1)
    own = dict(settings.get(group, {}))
    for name, value in changes.items():
        if value is None:
            own.pop(check_setting_name(name), None)
        else:
            own[name] = check_setting(name, value)
    found = {name: values for name, values in settings.items() if name != group}
    if own:
        found[group] = own
    if len(found) > MOST_GROUPS:
        raise InvalidConfigError(f"{MOST_GROUPS} groups have settings already; delete those of others")
    return found


# The file


def read_group_settings(files: Files, directory: str) -> GroupSettings:
    """The settings of a directory's groups; none if it has no such file.

    Raises:
        CorruptionError: the file is damaged; says what to do.
        UnsupportedVersionError: a newer logstore wrote it.
    """
    path = f"{directory}/{GROUPS_NAME}"
    return read_json_file(files, path, MAX_GROUPS_BYTES, decode_group_settings, _WHAT_TO_DO) or {}


def write_group_settings(files: Files, directory: str, settings: GroupSettings) -> None:
    """Replace the file, durably and atomically.

    Raises:
        UsageError: they are too many. The file is as it was.
    """
    write_json_file(files, f"{directory}/{GROUPS_NAME}", encode_group_settings(settings), MAX_GROUPS_BYTES)


def encode_group_settings(settings: GroupSettings) -> bytes:
    described = {name: dict(sorted(settings[name].items())) for name in sorted(settings)}
    return encode_json(VERSION, groups=described)


def decode_group_settings(data: bytes) -> dict[str, Mapping[str, str]]:
    """
    Raises:
        CorruptionError: not of the form that :func:`encode_group_settings` writes.
        UnsupportedVersionError: a newer logstore wrote it.
    """
    content = decode_json(data, GROUPS_NAME, VERSION, "groups", dict, "groups")
    found: dict[str, Mapping[str, str]] = {}
    for name, values in content["groups"].items():
        try:
            if not isinstance(values, dict) or not values:
                raise UsageError("has no settings")
            group = check_client_name("the group", name, least=1)
            found[group] = {key: check_setting(key, value) for key, value in values.items()}
        except UsageError as error:
            raise CorruptionError(f"group {shown(name)}: {error}") from None
    return found
