"""An interrupt between the end of a topic's creation and the entry of its logs left a topic that was listed
and could not be used until the store was opened again; with more partitions it was the same."""

import pytest

import logstore


@pytest.fixture
def store(tmp_path):
    with logstore.open(tmp_path / "store") as store:
        yield store


def interrupt_behind(topics, monkeypatch):
    finish = topics.finish

    def interrupted(entry):
        finish(entry)
        raise KeyboardInterrupt

    monkeypatch.setattr(topics, "finish", interrupted)


def test_a_creation_that_was_interrupted_at_its_end_has_made_the_topic(store, monkeypatch):
    with monkeypatch.context() as patch:
        interrupt_behind(store._directory._topics, patch)
        with pytest.raises(KeyboardInterrupt):
            store.create_topic("b", partitions=2)
    assert [log.append(b"x") for log in store["b"]] == [0, 0]


def test_a_growth_that_was_interrupted_at_its_end_has_made_the_partitions(store, monkeypatch):
    store.create_topic("b")
    with monkeypatch.context() as patch:
        interrupt_behind(store._directory._topics, patch)
        with pytest.raises(KeyboardInterrupt):
            store["b"].add_partitions(3)
    assert [log.append(b"x") for log in store["b"]] == [0, 0, 0]


def test_one_that_was_interrupted_before_has_not(store, monkeypatch):
    def interrupted(entry):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store._directory._topics, "finish", interrupted)
        with pytest.raises(KeyboardInterrupt):
            store.create_topic("b")
    assert "b" not in store
    assert store.create_topic("b").append(b"x") == (0, 0)
