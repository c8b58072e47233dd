"""A line in the program's log for each call that is refused and each login that fails: logger
``logstore.audit``, level INFO, as Kafka's authorizer logs it.

Set the level of that logger, and give it a handler, to see them. What a client chose itself is quoted, so
that it cannot fake a line.
"""

from __future__ import annotations

import sys
from typing import Final

from logstore.arguments import shown
from logstore.logdir.acls import Operation, ResourceType

LOGGER: Final = "logstore.audit"


def note_refused(
    principal: str, host: str, operation: Operation, resource_type: ResourceType, name: str
) -> None:
    """A client asked for what it may not do."""
    _inform(
        "refused: %s from %s may not %s the %s %s",
        shown(principal),
        host,
        operation.name,
        resource_type.name,
        shown(name),
    )


def note_failed_login(claimed: str | None, host: str, mechanism: str | None, reason: str) -> None:
    """A client did not prove to be who it claims to be; None if it has not even come to that."""
    _inform("login failed: %s from %s by %s: %s", shown(claimed), host, shown(mechanism), reason)


def _inform(message: str, *values: str) -> None:
    """Costs nothing if the program has not imported ``logging``: then no handler takes that level."""
    logging = sys.modules.get("logging")
    if logging is None:
        return
    logger = logging.getLogger(LOGGER)
    if logger.isEnabledFor(logging.INFO):
        try:
            logger.info(message, *values)
        except Exception:  # a handler of the program failed; the client is refused all the same
            return
