"""Topics copied between a store and a cluster: :func:`pull` follows a cluster's topics with the same offsets
and bytes, :func:`push` brings a store's topics into a cluster exactly once. ``docs/bridge.md`` shows how.
"""

from logstore.bridge.progress import PartitionProgress, PullProgress, PushProgress
from logstore.bridge.pull_topics import PullBridge, pull
from logstore.bridge.push_topics import PushBridge, push

__all__ = ["PartitionProgress", "PullBridge", "PullProgress", "PushBridge", "PushProgress", "pull", "push"]
