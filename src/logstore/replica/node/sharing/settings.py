"""The settings of groups in a cluster: kept by the coordinator of the nodes, so that all of them know."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Final

from logstore.broker.share.dead_letters import check_takes_letters
from logstore.broker.share.requests import ShareGroupConfig
from logstore.broker.storing.group_settings import Times, check_times, config_from, defaults_of, share_times
from logstore.config import StoreConfig, TopicConfig
from logstore.errors import ClosedError, FencedError, InvalidConfigError, RetriableError
from logstore.logdir.group_settings import DEAD_LETTER_TOPIC, MOST_GROUPS, changed, check_setting
from logstore.replica.coordination.interface import Session, View

_VIEW_SECONDS: Final = 2.0
_LOOK_SECONDS: Final = 0.002


class ClusterGroupSettings:
    """See :class:`~logstore.wire.handlers.call.GroupSettings`. A change is known here when it returns, or a
    little later, as elsewhere, if the coordinator is slow to tell of it."""

    def __init__(
        self,
        view: Callable[[], View],
        session: Callable[[], Session | None],
        topic_config: Callable[[str], TopicConfig | None],
        config: StoreConfig,
    ) -> None:
        """``topic_config``: the settings of a topic of the cluster; None if there is none. ``config``: those
        of the node."""
        self._view = view
        self._session = session
        self._topic_config = topic_config
        self._config = config

    def names(self) -> tuple[str, ...]:
        return tuple(sorted(self._view().groups))

    def own(self, group: str) -> Mapping[str, str]:
        return self._view().groups.get(group, {})

    def defaults(self) -> Mapping[str, str]:
        return defaults_of(self._config)

    def config_of(self, group: str) -> ShareGroupConfig:
        return config_from(self._view().groups.get(group))

    def newest_config_of(self, group: str) -> ShareGroupConfig:
        """As the coordinator has it, which this node may not have heard of yet. Cost: asks the coordinator.

        Raises:
            RetriableError: the node is not one of the cluster now, or the coordinator does not answer.
        """
        return config_from(self._configure(group, lambda own: own))

    def share_times_of(self, group: str) -> Times:
        return share_times(self.own(group), self._config)

    def alter(self, group: str, changes: Mapping[str, str | None], *, validate_only: bool = False) -> None:
        """
        Raises:
            InvalidConfigError: a name is unknown, or a value is out of range; names it. Nothing is changed.
            RetriableError: the node is not one of the cluster now.
        """
        settings = changed({group: self.own(group)}, group, changes)
        check_times(settings.get(group, {}), self._config, changes)
        name = changes.get(DEAD_LETTER_TOPIC)
        if name:
            check_takes_letters(name, self._topic_config(name))
        groups = self._view().groups
        if settings.get(group) and group not in groups and len(groups) >= MOST_GROUPS:
            raise InvalidConfigError(f"{MOST_GROUPS} groups have settings already; delete those of others")
        if validate_only:
            return
        self._configure(group, lambda own: changed({group: own}, group, changes).get(group, {}))
        deadline = time.monotonic() + _VIEW_SECONDS
        while not self._has(group, changes) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)

    def _configure(
        self, group: str, change: Callable[[Mapping[str, str]], Mapping[str, str]]
    ) -> Mapping[str, str]:
        """What the errors say, clients are told: not where the coordinator is."""
        session = self._session()
        if session is None:
            raise RetriableError("the node is not one of the cluster now; try again")
        try:
            return session.configure_group(group, change)
        except (ClosedError, FencedError) as error:
            raise RetriableError("the node is not one of the cluster any more; try again") from error
        except RetriableError as error:
            raise RetriableError(
                f"the coordinator of the nodes does not answer; group {group!r} may have been changed"
            ) from error

    def _has(self, group: str, changes: Mapping[str, str | None]) -> bool:
        own = self.own(group)
        return all(
            own.get(name) == (None if value is None else check_setting(name, value))
            for name, value in changes.items()
        )
