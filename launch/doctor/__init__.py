"""`hierring doctor`: what stands in the way of a job here, and what to do about it.

command     the arguments, and the process that the user sees; it never starts MPI
supervise   runs the process below, and outlives whatever MPI does to it
meet        the rank: starts MPI, meets the others, asks them what they see
look, processes, leftovers, launchers   what one rank sees
view        what was seen, as plain data
check_*     judgements: pure functions of what was seen
findings    what they come to, and how it prints
"""

from __future__ import annotations

__all__: list[str] = []
