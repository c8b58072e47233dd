"""Of a topic held in part, ``read`` and ``follow`` from a mapping left out the partitions that another
directory holds, without a word: a program that went on from its saved offsets missed their records.
"""

import pytest

import logstore
from logstore.errors import UnknownTopicError


@pytest.mark.parametrize("read_only", [False, True])
def test_a_mapping_that_names_one_is_refused(tmp_path, read_only):
    with logstore.open(tmp_path) as writer:
        topic = writer.create_topic("t", partitions=3, held=[0])
        topic[0].extend([b"1", b"2"])
        store = logstore.open(tmp_path, read_only=True) if read_only else writer
        serialized = store["t"].serialized(value="text")
        for number in (1, 2):
            for use in (
                lambda place: store["t"].read(place),
                lambda place: store["t"].read(stop=place),
                lambda place: store["t"].follow(place, timeout=0),
                lambda place: serialized.read(place),
                lambda place: serialized.follow(place, timeout=0),
            ):
                with pytest.raises(UnknownTopicError, match=f"does not hold partition {number} of topic 't'"):
                    use({0: 0, number: 5})
        assert [record.value for record in store["t"].read({0: 1})] == [b"2"]
        assert [record.value for record in store["t"].follow({0: 1}, timeout=0)] == [b"2"]
        store.close()
