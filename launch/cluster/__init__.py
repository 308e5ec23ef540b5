"""A cluster of several nodes on this one machine, made of Linux namespaces.

Each node has its own hostname, network address, processes, /dev/shm and /tmp, so a job on it meets
what a job on real nodes meets; only the cores and the kernel are shared.
"""

from hierring.launch.cluster.entrance import Node
from hierring.launch.cluster.spec import NodeSpec
from hierring.launch.cluster.virtual import VirtualCluster

__all__ = ["Node", "NodeSpec", "VirtualCluster"]
