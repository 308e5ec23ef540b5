"""Composes the phases inside and between nodes into collectives, and owns their life cycle."""

from hierring.communicator.communicator import Communicator
from hierring.communicator.statistics import PhaseTimes, Statistics

__all__ = ["Communicator", "PhaseTimes", "Statistics"]
