"""A store whose files are changed at will: its topics are opened and read, or somebody says what is wrong."""

from __future__ import annotations

from functools import cache

from tests.fuzz.engines import HERE
from tests.fuzz.mutations import TEXT_PIECES

PATH = "/store"


def open_store(files, **options):
    config = HERE.config
    options = {"clock": HERE.modules["logstore.testing"].ManualClock()} | options
    topic = config.TopicConfig(segment_bytes=900, index_interval_bytes=100, retention_ms=-1)
    settings = config.StoreConfig(linger_ms=0, topic=topic, num_recovery_threads_per_data_dir=1)
    return HERE.modules["logstore.store"].open_store(PATH, files=files, config=settings, **options)


@cache
def original(is_clean):
    """The disk, and the values of each partition."""
    files = HERE.modules["logstore.testing"].MemoryFiles()
    store = open_store(files)
    for name, partitions in (("a", 2), ("b.c", 1)):
        topic = store.create_topic(name, partitions=partitions)
        for number in range(partitions):
            topic[number].extend([b"%s %d %d" % (name.encode(), number, n) for n in range(12)])
    store.flush()
    values = values_of(store)
    if is_clean:
        store.close()
        return files.now(), values
    image = files.now()
    store.close()
    return image, values


def values_of(store):
    """The values of each partition, as far as they can be read."""
    found = {}
    for name in store:
        topic = HERE.outcome(lambda name=name: store[name])
        for number in range(len(topic)) if hasattr(topic, "partition_for") else ():
            values = []

            def read(topic=topic, number=number, values=values):
                values.extend(record.value for record in topic[number].read())

            HERE.outcome(read)
            found[name, number] = values
    return found


def changed(rng):
    """A disk with one or two files that are not as they were, and what the partitions held."""
    image, values = original(rng.random() < 0.5)
    files = HERE.modules["logstore.testing"].MemoryFiles(image)
    for _ in range(rng.choice((1, 1, 2))):
        paths = sorted(image.paths())
        top = [path for path in paths if path.count("/") == 2]
        path = rng.choice(top if rng.random() < 0.7 else paths)
        if not files.is_file(path):
            continue
        file = files.open(path, write=True)
        contents = bytearray(file.read_at(0, file.size_bytes()))
        how, at = rng.randrange(6), rng.randrange(len(contents) + 1)
        if how == 0 and at < len(contents):
            contents[at] ^= 1 << rng.randrange(8)
        elif how == 1:
            piece = rng.choice(TEXT_PIECES)
            contents[at : at + rng.choice((0, len(piece)))] = piece
        elif how == 2:
            del contents[at:]
        elif how == 3:
            del contents[at : at + rng.randrange(20)]
        elif how == 4:
            files.remove(path)
            continue
        else:
            contents[at : at + 8] = bytes(min(8, len(contents) - at))
        file.truncate(0)
        file.write_at(0, [bytes(contents)])
    return files, values


def check_store(rng):
    """What came of opening it: None if it was refused, else how many partitions are as they were."""
    files, written = changed(rng)
    store = HERE.outcome(open_store, files)
    if not hasattr(store, "create_topic"):
        reader = HERE.outcome(open_store, files, read_only=True)
        if hasattr(reader, "close"):
            reader.close()
        return None
    found = values_of(store)
    whole = 0
    for partition, values in found.items():
        known = set(written.get(partition, ()))
        assert set(values) <= known, (partition, values)
        whole += values == written.get(partition)
    HERE.outcome(store.verify)
    HERE.outcome(store.close)
    again = HERE.outcome(open_store, HERE.modules["logstore.testing"].MemoryFiles(files.now()))
    assert hasattr(again, "create_topic"), f"a second open refuses: {again}"
    assert values_of(again) == found
    HERE.outcome(again.close)
    return whole
