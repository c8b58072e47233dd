"""Kafka's log as a Python library: topics and partitions of ordinary Kafka segment files, no server."""

from logstore import _version

__version__ = _version.VERSION

__all__ = ["__version__"]
