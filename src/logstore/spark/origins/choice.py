"""Which origin the options of a read name: a directory, or brokers."""

from __future__ import annotations

from logstore.spark.options import BROKER_OPTIONS, SERVERS, Options, skips_corrupt_batches, wrong_option
from logstore.spark.origins.origin import Origin

_NOT_WITH_BROKERS = {
    "latestByKey": "a table is made from the files; read the topic and take the last record of each key",
    "onCorruptBatch": "what cannot be read is only known where the files are",
}


def origin_of(options: Options) -> Origin:
    """The origin for the options of a read.

    Raises:
        InvalidConfigError: they name none, or two, or have options that are for the other kind.
    """
    if SERVERS not in options:
        for name in BROKER_OPTIONS:
            if name in options:
                options.refuse(name, f"it is for reads from brokers, which option {SERVERS} names")
        from logstore.spark.origins.directory import DirectoryOrigin  # each needs half of the package

        return DirectoryOrigin(options.directory(), passes_damage=skips_corrupt_batches(options))
    if "path" in options:
        raise wrong_option(f"give one of the options path and {SERVERS}: a read has one place")
    for name, reason in _NOT_WITH_BROKERS.items():
        if name in options:
            options.refuse(name, f"it cannot be used with {SERVERS}: {reason}")
    from logstore.spark.origins.broker import BrokerOrigin
    from logstore.spark.origins.connection import connection_of

    return BrokerOrigin(connection_of(options))
