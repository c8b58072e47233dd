"""ListGroups."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.broker.groups.requests import ListGroupsResult as Listed
from logstore.broker.pending import Answered, Pending
from logstore.broker.share.kept import STORED, Names
from logstore.broker.share.requests import DescribedShareGroup
from logstore.broker.share.requests import ListShareGroupsResult as ListedShareGroups
from logstore.logdir.acls import Operation, ResourceType
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.group_kinds import GroupType
from logstore.wire.handlers.share_coordinator import ask
from logstore.wire.handlers.then import then, then_ask
from logstore.wire.messages.groups.list_groups import Group, ListGroupsRequest, ListGroupsResponse


def answer(call: Call, request: ListGroupsRequest, version: int) -> Pending[ListGroupsResponse]:
    """The groups that the client may see: consumers' and share groups."""
    if STORED in request.states_filter:
        return then(ask(call, lambda states: states.names(), Names), _of_states)
    return then_ask(call.broker.list_groups(), lambda listed: _and_share_groups(call, request, listed))


def _of_states(found: Names) -> ListGroupsResponse:
    """Another node asks for the groups of which this one has states."""
    return ListGroupsResponse(
        error_code=found.error,
        groups=tuple(Group(each, GroupType.SHARE, STORED, GroupType.SHARE) for each in found.names),
    )


def _and_share_groups(call: Call, request: ListGroupsRequest, listed: Listed) -> Pending[ListGroupsResponse]:
    if listed.error is not ErrorCode.NONE:
        return Answered(ListGroupsResponse(error_code=listed.error))
    found = [Group(*each) for each in listed.groups]

    def describe(shares: ListedShareGroups) -> Pending[ListGroupsResponse]:
        if shares.error is not ErrorCode.NONE:
            return Answered(ListGroupsResponse(error_code=shares.error))
        return then(call.broker.describe_share_groups(shares.groups), with_states)

    def with_states(described: tuple[DescribedShareGroup, ...]) -> ListGroupsResponse:
        found.extend(Group(each.group, GroupType.SHARE, each.state, GroupType.SHARE) for each in described)
        return _response(call, request, found)

    return then_ask(call.broker.list_share_groups(), describe)


def _response(call: Call, request: ListGroupsRequest, found: list[Group]) -> ListGroupsResponse:
    states = {each.lower() for each in request.states_filter}
    types = {each.lower() for each in request.types_filter}
    sees_all = call.allows_cluster(Operation.DESCRIBE, is_noted=False)
    return ListGroupsResponse(
        groups=tuple(
            each
            for each in found
            if (not states or each.group_state.lower() in states)
            and (not types or each.group_type in types)
            and (
                sees_all or call.allows(Operation.DESCRIBE, ResourceType.GROUP, each.group_id, is_noted=False)
            )
        )
    )


def refuse(request: ListGroupsRequest, code: ErrorCode, version: int) -> ListGroupsResponse:
    """The error."""
    return ListGroupsResponse(error_code=code)
