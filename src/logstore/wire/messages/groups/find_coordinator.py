"""Which broker coordinates a group, a transactional id or a share-partition."""

from __future__ import annotations

from typing import Annotated, NamedTuple

from logstore.format.messages.fields import Int8, Int16, Int32, String, needs, since, until


class FindCoordinatorRequest(NamedTuple):
    """Ask for the coordinators of keys; before version 4 of one key."""

    key: Annotated[String, needs(0, 3)] = ""
    key_type: Annotated[Int8, needs(1)] = 0
    """0: group. 1: transactional id. 2: share-partition."""
    keys: Annotated[tuple[String, ...], needs(4)] = ()


class Coordinator(NamedTuple):
    """The broker that coordinates a key."""

    key: String = ""
    node_id: Int32 = 0
    host: String = ""
    port: Int32 = 0
    error_code: Int16 = 0
    error_message: String | None = None


class FindCoordinatorResponse(NamedTuple):
    """The coordinators; before version 4 one, in fields of its own."""

    throttle_time_ms: Annotated[Int32, since(1)] = 0
    error_code: Annotated[Int16, until(3)] = 0
    error_message: Annotated[String | None, since(1), until(3)] = None
    node_id: Annotated[Int32, until(3)] = 0
    host: Annotated[String, until(3)] = ""
    port: Annotated[Int32, until(3)] = 0
    coordinators: Annotated[tuple[Coordinator, ...], needs(4)] = ()
