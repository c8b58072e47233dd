"""Fixtures of the tests about one partition."""

import pytest

from tests.partition import helpers_rules


@pytest.fixture
def log(tmp_path):
    """An empty log with a clock that stands still."""
    return helpers_rules.open_log(tmp_path / "topic-0")


@pytest.fixture(autouse=True)
def _let_go():
    yield
    helpers_rules.let_go_of_all()
