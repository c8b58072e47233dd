"""ListTransactions."""

from __future__ import annotations

from logstore.broker.codes import ErrorCode
from logstore.broker.patterns import Pattern
from logstore.broker.pending import Answered, Pending
from logstore.broker.transactions.requests import ListTransactions, ListTransactionsResult
from logstore.broker.transactions.states import TransactionState
from logstore.errors import UsageError
from logstore.logdir.acls import Operation, ResourceType
from logstore.wire.handlers.call import Call
from logstore.wire.handlers.then import then
from logstore.wire.messages.transactions.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    Transaction,
)

_STATES = {each.value: each for each in TransactionState}
_OF_KAFKA_ONLY = {"PrepareEpochFence"}
"""A state that no transaction has here, and that clients may ask for."""


def answer(call: Call, request: ListTransactionsRequest, version: int) -> Pending[ListTransactionsResponse]:
    """The transactional ids that pass the filters, and that the client may see."""
    unknown = tuple(each for each in request.state_filters if each not in _STATES.keys() | _OF_KAFKA_ONLY)
    states = frozenset(_STATES[each] for each in request.state_filters if each in _STATES)
    wanted = request.transactional_id_pattern
    try:
        pattern = Pattern(wanted) if wanted else None
    except UsageError:
        return Answered(refuse(request, ErrorCode.INVALID_REGULAR_EXPRESSION, version))
    if request.state_filters and not states:  # no state that there is
        return Answered(ListTransactionsResponse(unknown_state_filters=unknown))

    def convert(found: ListTransactionsResult) -> ListTransactionsResponse:
        if found.error is not ErrorCode.NONE:
            return refuse(request, found.error, version)
        return ListTransactionsResponse(
            unknown_state_filters=unknown,
            transactions=tuple(
                Transaction(each.transactional_id, each.producer_id, each.state.value)
                for each in found.transactions
                if _may_see(call, each.transactional_id)
                and (pattern is None or pattern.matches(each.transactional_id))
            ),
        )

    asked = ListTransactions(states, frozenset(request.producer_id_filters), request.duration_ms)
    return then(call.broker.list_transactions(asked), convert)


def _may_see(call: Call, name: str) -> bool:
    return call.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name, is_noted=False)


def refuse(request: ListTransactionsRequest, code: ErrorCode, version: int) -> ListTransactionsResponse:
    """The error."""
    return ListTransactionsResponse(error_code=code)
