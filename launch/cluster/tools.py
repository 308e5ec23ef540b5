"""The programs that make namespaces and links, and what to do where they cannot."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterable

from hierring.errors import HierringError

__all__ = [
    "NAMESPACES",
    "namespace_options",
    "refusal",
    "require_tools",
    "search_path",
    "why_impossible",
]

# Options of unshare and nsenter alike.
NAMESPACES = ("--mount", "--uts", "--ipc", "--net", "--pid")
_PACKAGES = {
    "unshare": "util-linux",
    "nsenter": "util-linux",
    "setpriv": "util-linux",
    "ip": "iproute2",
    "tc": "iproute2",
}


def search_path() -> str:
    """PATH with the places of administrators' programs, which plain users often lack."""
    given = os.environ.get("PATH", os.defpath)
    return os.pathsep.join([given, "/usr/sbin", "/sbin"])


def require_tools(names: Iterable[str] = _PACKAGES) -> None:
    """Raise HierringError naming the programs that are missing, and the packages that have them."""
    missing = [name for name in names if shutil.which(name, path=search_path()) is None]
    if missing:
        packages = dict.fromkeys(_PACKAGES[name] for name in missing)
        raise HierringError(
            f"a virtual cluster needs {' and '.join(missing)}: install {' and '.join(packages)}"
        )


def namespace_options() -> list[str]:
    """What `unshare` needs beside the namespaces: a plain user becomes root of a user namespace."""
    return [] if os.geteuid() == 0 else ["--user", "--map-root-user"]


def refusal(complaint: str) -> HierringError:
    """Explain why the namespaces could not be made, from what the failing program said."""
    if not any(word in complaint for word in ("permitted", "denied", "No space")):
        return HierringError(f"a virtual cluster cannot be made here: {complaint.strip()}")
    if os.geteuid() == 0:
        remedy = (
            "this root lacks the rights: in a container, start it with --privileged "
            "(or --cap-add SYS_ADMIN --cap-add NET_ADMIN)"
        )
    else:
        remedy = (
            "run it as root, or let users make namespaces (sysctl user.max_user_namespaces, "
            "kernel.unprivileged_userns_clone, kernel.apparmor_restrict_unprivileged_userns)"
        )
    return HierringError(f"a virtual cluster cannot be made here: {complaint.strip()}; {remedy}")


def why_impossible() -> str | None:
    """Say why this user cannot make a virtual cluster here, or None; takes milliseconds."""
    try:
        require_tools()
    except HierringError as error:
        return str(error)
    done = subprocess.run(
        [
            *("unshare", *namespace_options(), *NAMESPACES, "--fork"),
            *("ip", "link", "add", "br0", "type", "bridge"),
        ],
        capture_output=True,
        text=True,
        timeout=20,
        env={**os.environ, "PATH": search_path()},
    )
    return None if done.returncode == 0 else str(refusal(done.stderr))
