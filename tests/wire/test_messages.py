"""Every message in every version comes back as it was, whatever it holds."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from logstore.wire.apis import APIS
from tests.rotation import seed_of_turn
from tests.wire.drawn import CASES, Chance, differs_at, messages


def comes_back(case, message):
    encoded = case.message.encode(message, case.version)
    decoded, end = case.message.decode(b"xyz" + encoded + b"after", case.version, 3)
    assert differs_at(decoded, message) is None, case
    assert end == 3 + len(encoded)
    assert type(decoded) is case.message.kind


def test_every_version_of_every_message_comes_back():
    """2 s: most of it compiles the 936 functions."""
    chance = Chance(random.Random(seed_of_turn()))
    for case in CASES:
        comes_back(case, case.message.kind())
        for _ in range(3):
            comes_back(case, chance.message(case))


@settings(max_examples=150)
@given(st.data())
def test_hypothesis_finds_no_message_that_does_not(data):
    """3 s."""
    case = data.draw(st.sampled_from(CASES), label="case")
    comes_back(case, data.draw(messages(case), label="message"))


@pytest.mark.parametrize("api", APIS.values(), ids=lambda api: api.name)
def test_request_and_response_have_the_same_versions(api):
    assert (api.first, api.last) == (api.response.first, api.response.last)
    assert api.request.flexible == api.response.flexible
    assert api.name == api.response.name.removesuffix("Response")
    assert api.name.upper() == api.key.name.replace("_", "")
    assert api.first_advertised <= api.first
