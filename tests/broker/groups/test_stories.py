"""What happens in a group, told in text files; see :mod:`tests.broker.groups.script`."""

from __future__ import annotations

import pytest

from tests.broker.groups.script import STORIES, tell


@pytest.mark.parametrize("path", STORIES, ids=lambda path: path.stem)
def test_the_story_goes_as_it_is_told(path):
    story = path.read_text(encoding="utf-8")
    assert tell(story) == story


def test_there_are_stories():
    assert len(STORIES) >= 13
