"""docs/clients.md says of each client and each feature what is found.

Cost: one client a turn, from 8 s (aiokafka) to 20 s (Kafka's own) and 40 s (Spark), on two busy cores.
"""

from __future__ import annotations

import gc
import logging

import pytest

from tests.rotation import rotating
from tests.wire.clients import page
from tests.wire.clients.columns import column
from tests.wire.clients.features import FEATURES
from tests.wire.clients.table import CLIENTS

# Some leave the sockets open of connections that were refused.
pytestmark = [
    pytest.mark.filterwarnings("ignore::ResourceWarning"),
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


@pytest.fixture(autouse=True)
def silence():
    """They complain of what refuses them, and of listeners that are gone."""
    loggers = [logging.getLogger(name) for name in ("kafka", "aiokafka")]
    before = [each.level for each in loggers]
    for each in loggers:
        each.setLevel(logging.CRITICAL)
    yield
    for each, level in zip(loggers, before, strict=True):
        each.setLevel(level)
    gc.collect()  # what they have left is not to be found in another test


def case(client, marks):
    java = [pytest.mark.interop] if client.needs_java else []
    return pytest.param(client, marks=[*marks, *java], id=client.name)


@pytest.mark.parametrize("client", [case(*each.values, each.marks) for each in rotating(CLIENTS, 8)])
def test_the_page_says_what_is_found(client):
    reason = client.missing()
    if reason is not None:
        pytest.skip(reason)
    found, said = column(client), page.column_of(client)
    assert list(said) == [each.title for each in FEATURES]
    wrong = {
        each.title: f"the page says {said[each.title]}\n{found[each.name].problem}"
        for each in FEATURES
        if said[each.title] != page.MARKS[found[each.name].works]
    }
    assert not wrong, "\n".join(f"{title}: {problem}" for title, problem in wrong.items())
