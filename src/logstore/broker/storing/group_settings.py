"""The settings of a directory's groups: kept in its ``groups.json``, and given to share groups by their first
members.

Lock: ``_lock`` is held while settings change, also while the file is written. Joining a group does not take
it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Mapping
from typing import Final, NamedTuple

from logstore.broker.consumer_groups.config import ConsumerGroupConfig
from logstore.broker.share.dead_letters import check_takes_letters
from logstore.broker.share.requests import ShareGroupConfig
from logstore.config import StoreConfig
from logstore.errors import InvalidConfigError, LogstoreError, UnknownTopicError
from logstore.logdir.directory import LogDirectory
from logstore.logdir.group_settings import (
    AUTO_OFFSET_RESET,
    COPIES_DEAD_LETTERS,
    DEAD_LETTER_TOPIC,
    DELIVERY_COUNT_LIMIT,
    HEARTBEAT_INTERVAL_MS,
    ISOLATION_LEVEL,
    MAX_RECORD_LOCKS,
    RECORD_LOCK_DURATION_MS,
    SESSION_TIMEOUT_MS,
    SHARE_HEARTBEAT_INTERVAL_MS,
    SHARE_SESSION_TIMEOUT_MS,
    GroupSettings,
    changed,
    read_group_settings,
    write_group_settings,
)
from logstore.model import Isolation
from logstore.warning import warn

DEFAULTS: Final = ShareGroupConfig(auto_offset_reset="latest")
"""Kafka's."""
_ISOLATIONS: Final = {"read_uncommitted": Isolation.HIGH_WATERMARK, "read_committed": Isolation.COMMITTED}


class Times(NamedTuple):
    """Of the members of a group."""

    session_ms: int
    """One that was not heard of for so long is gone."""
    interval_ms: int
    """How often it is told to send heartbeats."""

    def possible(self) -> Times:
        """The same; or with three heartbeats in each session, should the settings of the store have become
        such that they contradict each other."""
        session_ms, interval_ms = self
        return self if interval_ms < session_ms else Times(session_ms, max(session_ms // 3, 1))


class StoredGroupSettings:
    """Of one broker. A damaged file does not keep groups from being used: then they have their defaults, a
    warning says so, and changes are refused with what is wrong. Each of them looks again."""

    def __init__(
        self,
        directory: LogDirectory,
        on_change: Callable[[str, ShareGroupConfig, ShareGroupConfig], object] = lambda *_: None,
    ) -> None:
        """``on_change``: called with a group, what it gave a share group before, and what it does now; after
        each change, and before the next."""
        self._directory = directory
        self._on_change = on_change
        self._lock = threading.Lock()
        self._settings: GroupSettings = {}
        self._must_read = True
        try:
            self._read_locked()
        except LogstoreError as error:
            warn("no group has settings of its own: %s", error)

    def _read_locked(self) -> None:
        self._settings = read_group_settings(self._directory.context.files, self._directory.path)
        self._must_read = False

    def names(self) -> tuple[str, ...]:
        """The groups that have settings of their own."""
        return tuple(sorted(self._settings))

    def own(self, group: str) -> Mapping[str, str]:
        """The settings that a group was given, by Kafka's names."""
        return self._settings.get(group, {})

    def defaults(self) -> Mapping[str, str]:
        """What they are without."""
        return defaults_of(self._directory.config)

    def config_of(self, group: str) -> ShareGroupConfig:
        """What a first member gives a share group."""
        return config_from(self._settings.get(group))

    def share_times_of(self, group: str) -> Times:
        """How long a member of a share group has, and how often it is to be heard of."""
        return share_times(self._settings.get(group, {}), self._directory.config)

    def alter(self, group: str, changes: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """Change settings of a group; None gives one its default again. Returns when that is durable.

        Raises:
            InvalidConfigError: a name is unknown, or a value is out of range; names it. Nothing is changed.
            LogstoreError: the file cannot be read or written. Nothing is changed.
        """
        with self._lock:
            if self._must_read:
                self._read_locked()
            settings = changed(self._settings, group, changes)
            check_times(settings.get(group, {}), self._directory.config, changes)
            self._check_dead_letter_topic(changes.get(DEAD_LETTER_TOPIC))
            if validate_only or settings == self._settings:
                return
            self._directory.check_open()
            context = self._directory.context
            context.home.check_held()
            write_group_settings(context.files, self._directory.path, settings)
            before, self._settings = self.config_of(group), settings
            self._on_change(group, before, self.config_of(group))

    def _check_dead_letter_topic(self, name: str | None) -> None:
        """
        Raises:
            InvalidConfigError: it takes none.
        """
        if name:
            try:
                config = self._directory.topic(name).config
            except UnknownTopicError:
                config = None
            check_takes_letters(name, config)


def defaults_of(config: StoreConfig) -> dict[str, str]:
    """The settings of a group that has none of its own, by Kafka's names."""
    return {
        **texts_of(DEFAULTS),
        SESSION_TIMEOUT_MS: str(config.group_consumer_session_timeout_ms),
        HEARTBEAT_INTERVAL_MS: str(config.group_consumer_heartbeat_interval_ms),
        SHARE_SESSION_TIMEOUT_MS: str(config.group_share_session_timeout_ms),
        SHARE_HEARTBEAT_INTERVAL_MS: str(config.group_share_heartbeat_interval_ms),
    }


def consumer_config(own: Mapping[str, str], config: StoreConfig) -> ConsumerGroupConfig:
    """The settings of a group of the newer protocol that has these of its own. Asked for in each
    heartbeat."""
    session_ms, interval_ms = _consumer_times(own, config).possible()
    return ConsumerGroupConfig(
        group_consumer_session_timeout_ms=session_ms,
        group_consumer_heartbeat_interval_ms=interval_ms,
        group_consumer_max_size=config.group_consumer_max_size,
    )


def share_times(own: Mapping[str, str], config: StoreConfig) -> Times:
    """Those of a share group that has these settings of its own. Asked for in each heartbeat."""
    return _share_times(own, config).possible()


def check_times(own: Mapping[str, str], config: StoreConfig, changes: Container[str]) -> None:
    """
    Args:
        changes: the names of what is changed: other times may contradict each other since the store was
            opened with other settings.

    Raises:
        InvalidConfigError: with these, members would be removed before their next heartbeat.
    """
    for session, interval, times in (
        (SESSION_TIMEOUT_MS, HEARTBEAT_INTERVAL_MS, _consumer_times(own, config)),
        (SHARE_SESSION_TIMEOUT_MS, SHARE_HEARTBEAT_INTERVAL_MS, _share_times(own, config)),
    ):
        is_changed = session in changes or interval in changes
        if is_changed and times.session_ms <= times.interval_ms:
            raise InvalidConfigError(
                f"{session} would be {times.session_ms}, not above {interval}, which would be "
                f"{times.interval_ms}: members would be removed before their next heartbeat"
            )


def _consumer_times(own: Mapping[str, str], config: StoreConfig) -> Times:
    return Times(
        int(own.get(SESSION_TIMEOUT_MS, config.group_consumer_session_timeout_ms)),
        int(own.get(HEARTBEAT_INTERVAL_MS, config.group_consumer_heartbeat_interval_ms)),
    )


def _share_times(own: Mapping[str, str], config: StoreConfig) -> Times:
    return Times(
        int(own.get(SHARE_SESSION_TIMEOUT_MS, config.group_share_session_timeout_ms)),
        int(own.get(SHARE_HEARTBEAT_INTERVAL_MS, config.group_share_heartbeat_interval_ms)),
    )


def texts_of(config: ShareGroupConfig) -> dict[str, str]:
    """The settings by Kafka's names."""
    isolation = "read_committed" if config.isolation is Isolation.COMMITTED else "read_uncommitted"
    return {
        AUTO_OFFSET_RESET: config.auto_offset_reset,
        COPIES_DEAD_LETTERS: "true" if config.copies_dead_letters else "false",
        DEAD_LETTER_TOPIC: config.dead_letter_topic or "",
        DELIVERY_COUNT_LIMIT: str(config.delivery_count_limit),
        ISOLATION_LEVEL: isolation,
        MAX_RECORD_LOCKS: str(config.partition_max_record_locks),
        RECORD_LOCK_DURATION_MS: str(config.record_lock_duration_ms),
    }


def config_from(own: Mapping[str, str] | None) -> ShareGroupConfig:
    """The settings of a group that has these of its own."""
    if own is None:
        return DEFAULTS
    texts = {**texts_of(DEFAULTS), **own}
    return DEFAULTS._replace(
        auto_offset_reset=texts[AUTO_OFFSET_RESET],
        copies_dead_letters=texts[COPIES_DEAD_LETTERS] == "true",
        dead_letter_topic=texts[DEAD_LETTER_TOPIC] or None,
        delivery_count_limit=int(texts[DELIVERY_COUNT_LIMIT]),
        isolation=_ISOLATIONS[texts[ISOLATION_LEVEL]],
        partition_max_record_locks=int(texts[MAX_RECORD_LOCKS]),
        record_lock_duration_ms=int(texts[RECORD_LOCK_DURATION_MS]),
    )
