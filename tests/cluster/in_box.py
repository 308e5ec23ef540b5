"""Runs a rank in a container of its own or of several ranks: `in_box.py FOLDER LETTERS NAMES ...`.

LETTERS has a letter for each rank, FOLDER a filesystem for each letter, which becomes /dev/shm, and
NAMES the hostnames of A, B and so on. What follows is the program.
"""

from __future__ import annotations

import os
import sys

RANK_VARIABLES = ("PMI_RANK", "OMPI_COMM_WORLD_RANK")

if __name__ == "__main__":
    folder, letters, names, *program = sys.argv[1:]
    rank = int(next(os.environ[name] for name in RANK_VARIABLES if name in os.environ))
    letter = letters[rank]
    name = names.split(",")[ord(letter) - ord("A")]
    script = f'mount --bind {folder}/{letter} /dev/shm && hostname {name} && exec "$@"'
    os.execvp("unshare", ["unshare", "--mount", "--uts", "sh", "-c", script, "sh", *program])
