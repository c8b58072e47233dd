"""Damaged files are what is read here: nobody wants to hear of each."""

import logging

import pytest


@pytest.fixture(autouse=True)
def without_warnings():
    logger = logging.getLogger("logstore")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(level)
