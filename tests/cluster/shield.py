"""Runs a rank as a child and outlives it, so that MPICH's launcher does not see the rank die.

The child inherits the connection to the launcher, which therefore stays open when the child is
killed. Without this the launcher ends the survivors, sooner than they can tell what they were told.
"""

from __future__ import annotations

import subprocess
import sys
import time

OUTLIVE_S = 8.0  # longer than any survivor of a test waits

if __name__ == "__main__":
    code = subprocess.call([sys.executable, "-P", *sys.argv[1:]], close_fds=False)
    if code < 0:
        time.sleep(OUTLIVE_S)
    sys.exit(128 - code if code < 0 else code)
