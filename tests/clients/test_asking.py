"""Answers that do not come."""

from __future__ import annotations

import pytest

from logstore.broker.pending import Promise
from logstore.clients.asking import ask
from logstore.clients.settings import ConsumerConfig
from logstore.errors import RetriableError


def test_an_answer_that_does_not_come_says_how_long_it_was_waited_for_and_what_to_do():
    """It said that the broker did not answer within request_timeout_ms, and no more."""
    with pytest.raises(RetriableError) as caught:
        ask(Promise[int](), "tell of the topics", ConsumerConfig(request_timeout_ms=1))
    assert str(caught.value) == (
        "the broker did not tell of the topics within request_timeout_ms (1): its process may be stopped or "
        "overloaded, or the network slow; try again, or give it longer"
    )
