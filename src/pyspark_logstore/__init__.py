"""Where Spark finds the data source ``logstore``: it imports every top-level module whose name begins with
``pyspark_`` and takes its ``DefaultSource``. One such module that fails to import takes all others with it,
so this one never does: where something is missing it has no ``DefaultSource``. ``logstore.spark`` says what.
"""

try:
    from logstore.spark.source import LogstoreSource as DefaultSource
except ImportError:  # no pyspark, or one that is too old
    __all__: list[str] = []
else:
    __all__ = ["DefaultSource"]
