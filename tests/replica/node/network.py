"""Nodes in network namespaces of their own, joined by a bridge in this process's: the links between them can
be cut, in one direction, too, or made slow. The process needs a namespace of its own: ``unshare -n -m``."""

from __future__ import annotations

import subprocess

HUB = "10.77.0.254"
_BRIDGE = "hub"


def ip(*arguments, check=True):
    subprocess.run(["ip", *map(str, arguments)], check=check, capture_output=True)


def address_of(node_id):
    return f"10.77.0.{node_id}"


class Network:
    """The bridge, and what hangs on it."""

    def __init__(self, node_ids):
        self.node_ids = tuple(node_ids)
        subprocess.run("mkdir -p /run/netns && mount -t tmpfs none /run/netns", shell=True, check=True)
        # Nodes have mount namespaces of their own: a disk that is unmounted here goes there, too.
        subprocess.run(["mount", "--make-rshared", "/"], check=True)
        ip("link", "set", "lo", "up")
        ip("link", "add", _BRIDGE, "type", "bridge")
        ip("addr", "add", f"{HUB}/24", "dev", _BRIDGE)
        ip("link", "set", _BRIDGE, "up")
        for node_id in self.node_ids:
            name = self.namespace(node_id)
            ip("netns", "add", name)
            ip("link", "add", f"v{node_id}", "type", "veth", "peer", "name", "eth0", "netns", name)
            ip("link", "set", f"v{node_id}", "master", _BRIDGE, "up")
            ip("-n", name, "addr", "add", f"{address_of(node_id)}/24", "dev", "eth0")
            for device in ("lo", "eth0"):
                ip("-n", name, "link", "set", device, "up")

    @staticmethod
    def namespace(node_id):
        return f"node-{node_id}"

    def within(self, node_id):
        """What is in front of a command that runs at the node."""
        return ("ip", "netns", "exec", self.namespace(node_id))

    # Faults

    def isolate(self, node_id):
        """Nobody reaches it, and it nobody: not the coordinator, either, if that is in the network."""
        ip("link", "set", f"v{node_id}", "down")

    def cut(self, source, target):
        """Nothing comes from one node to the other; what the other sends arrives."""
        ip("-n", self.namespace(source), "route", "add", "blackhole", f"{address_of(target)}/32", check=False)

    def cut_from_hub(self, node_id):
        """The node's answers reach neither clients nor the coordinator; other nodes hear it."""
        ip("-n", self.namespace(node_id), "route", "add", "blackhole", f"{HUB}/32", check=False)

    def slow(self, node_id):
        """What it sends goes through a narrow line."""
        rate = ("rate", "2mbit", "burst", "16kb", "latency", "50ms")
        command = ["tc", "-n", self.namespace(node_id), "qdisc", "add", "dev", "eth0", "root", "tbf", *rate]
        subprocess.run(command, check=False, capture_output=True)

    def heal(self):
        """All is as in the beginning."""
        for node_id in self.node_ids:
            name = self.namespace(node_id)
            ip("link", "set", f"v{node_id}", "up")
            for target in (HUB, *map(address_of, self.node_ids)):
                ip("-n", name, "route", "del", "blackhole", f"{target}/32", check=False)
            command = ["tc", "-n", name, "qdisc", "del", "dev", "eth0", "root"]
            subprocess.run(command, check=False, capture_output=True)
