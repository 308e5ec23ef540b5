"""Composes the phases inside and between nodes into collectives, and owns their life cycle."""

from hierring.communicator.communicator import Communicator
from hierring.communicator.link_probe import probe_links
from hierring.communicator.statistics import PhaseTimes, Statistics

__all__ = ["Communicator", "PhaseTimes", "Statistics", "probe_links"]
