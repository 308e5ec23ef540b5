"""Process 1 of a virtual cluster: makes the nodes, then holds everything until its input ends.

Run by path, with the standard library alone, inside namespaces that `unshare` has just made. Its
input is a pipe from the supervisor: one line of JSON, the plan, and then nothing until the
supervisor closes it or dies, however it dies. With process 1 gone the kernel ends every process of
the PID namespace, those of the nodes below it too, and frees mounts and networks with the last of
them. So nothing is ever cleaned up, because nothing outlives the pipe.

It answers with one line of JSON: the process ids as seen from outside, or what went wrong.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
from typing import Any, NoReturn

# linux/sched.h and sys/mount.h; `os` has them from Python 3.12 on, without mount.
NEWNS, NEWUTS, NEWIPC, NEWPID, NEWNET = 0x20000, 0x4000000, 0x8000000, 0x20000000, 0x40000000
NOSUID, NODEV, NOEXEC, BIND, REC = 2, 4, 8, 0x1000, 0x4000

libc = ctypes.CDLL(None, use_errno=True)
Plan = dict[str, Any]


def check(result: int, what: str) -> None:
    """Raise the C library's error, naming what failed."""
    if result != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"{what}: {os.strerror(number)}")


def mount(source: str, target: str, kind: str = "", flags: int = 0, data: str = "") -> None:
    """mount(2): unlike the program, it takes a file descriptor's path as it is."""
    arguments = (source, target, kind or None, flags, data or None)
    raw = [a.encode() if isinstance(a, str) else a for a in arguments]
    check(libc.mount(*raw), f"mount {kind or source} at {target}")


def renew(targets: list[tuple[str, str, int, str]], keep: list[str]) -> None:
    """Mount fresh filesystems, and bring back what `keep` names of the covered ones.

    The descriptors hold the old places while they are covered. Recursive binds, because in a user
    namespace the kernel refuses to uncover what is mounted below.
    """
    kept = [(path, os.open(path, os.O_PATH), os.path.isdir(path)) for path in keep]
    for target, kind, flags, data in targets:
        mount(kind, target, kind, flags, data)
    for path, descriptor, is_directory in kept:
        os.makedirs(path if is_directory else os.path.dirname(path), exist_ok=True)
        if not is_directory:
            os.close(os.open(path, os.O_CREAT | os.O_WRONLY))
        mount(f"/proc/self/fd/{descriptor}", path, flags=BIND | REC)
        os.close(descriptor)


def furnish(host: Plan, share: list[str]) -> None:
    """Give the head or a node its hostname, /etc/hosts, /tmp, /dev/shm and /sys."""
    size = "" if host["shm_nbytes"] is None else f"size={host['shm_nbytes']}"
    cgroups = [path for path in ("/sys/fs/cgroup",) if os.path.isdir(path)]
    renew(
        [
            ("/tmp", "tmpfs", NOSUID | NODEV, "mode=1777"),
            ("/dev/shm", "tmpfs", NOSUID | NODEV, ",".join(filter(None, ["mode=1777", size]))),
            # A sysfs shows the network devices of the namespace it was mounted in.
            ("/sys", "sysfs", NOSUID | NODEV | NOEXEC, ""),
        ],
        [*share, *cgroups],
    )
    socket.sethostname(host["hostname"])
    with open("/tmp/.hosts", "w", encoding="ascii") as file:
        file.write(host["hosts"])
    mount("/tmp/.hosts", "/etc/hosts", flags=BIND)


def own_proc() -> None:
    """Show the processes of the own PID namespace, and no others."""
    mount("proc", "/proc", "proc", NOSUID | NODEV | NOEXEC)


def run_tool(arguments: list[str], text: str = "") -> None:
    """Run a program and raise what it complained about."""
    done = subprocess.run(arguments, input=text, capture_output=True, text=True, timeout=20)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(arguments)}: {done.stderr.strip() or done.returncode}")


def batch(lines: list[str]) -> None:
    """Run commands of `ip` in one process."""
    run_tool(["ip", "-batch", "-"], "\n".join(lines) + "\n")


class Node:
    """A node as the keeper sees it while making it: a process and two pipes."""

    def __init__(self, host: Plan, share: list[str]) -> None:
        answer, self._answering = os.pipe()
        self._waiting, self._go = os.pipe()
        self._answers = os.fdopen(answer)
        middle = os.fork()
        if middle == 0:
            self._move_in(host, share)
        os.waitpid(middle, 0)
        os.close(self._answering)
        os.close(self._waiting)
        self.pid = int(self.answer())

    def answer(self) -> str:
        """Wait for the node's next line; an error ends the cluster."""
        line = self._answers.readline().strip()
        if not line or line.startswith("error"):
            raise RuntimeError(line.removeprefix("error ") or "a node ended while it was made")
        return line

    def connect(self) -> None:
        """Tell the node that its link is there."""
        os.close(self._go)

    def _tell(self, line: str) -> None:
        os.write(self._answering, " ".join(line.split()).encode() + b"\n")

    def _move_in(self, host: Plan, share: list[str]) -> NoReturn:
        """Make the namespaces. Only a child is inside the new PID namespace: it is the node."""
        try:
            check(libc.unshare(NEWNS | NEWUTS | NEWIPC | NEWPID | NEWNET), "unshare")
            child = os.fork()
            if child == 0:
                self._live(host, share)
            self._tell(str(child))
        except BaseException as error:
            self._tell(f"error {error}")
        os._exit(0)

    def _live(self, host: Plan, share: list[str]) -> NoReturn:
        """Furnish the node, take up its link, and wait as its process 1."""
        try:
            outer = os.readlink("/proc/self")  # this /proc still counts from outside
            os.close(self._go)
            furnish(host, share)
            os.unlink(
                "/tmp/.hosts"
            )  # the mount keeps it; the head's is mounted upon, so has to stay
            os.read(self._waiting, 1)
            address = f"{host['address']}/24"
            batch([f"addr add {address} dev eth0", "link set eth0 up", "link set lo up"])
            own_proc()
            self._tell(outer)
        except BaseException as error:
            self._tell(f"error {error}")
            os._exit(1)
        null = os.open(os.devnull, os.O_RDWR)
        for descriptor in range(3):
            os.dup2(null, descriptor)
        # An ignored SIGCHLD survives exec, and makes the kernel reap all that this process adopts.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        os.setsid()
        os.execvp("sleep", ["sleep", "infinity"])


def make(plan: Plan) -> Plan:
    """Make the cluster; returns the outer process ids."""
    outer = int(os.readlink("/proc/self"))
    share: list[str] = plan["share"]
    furnish(plan["head"], share)
    batch(
        [
            "link add br0 type bridge",
            f"addr add {plan['head']['address']}/24 dev br0",
            "link set br0 up",
            "link set lo up",
        ]
    )
    # Open MPI's daemons look for the remote shell on their own node, too.
    write_executable(plan["shell"], "")
    nodes = [Node(host, [*share, plan["shell"]]) for host in plan["nodes"]]
    links = []
    for index, node in enumerate(nodes):
        links += [
            f"link add v{index} type veth peer name eth0 netns {node.pid}",
            f"link set v{index} master br0 up",
        ]
    batch(links)
    for node in nodes:
        node.connect()
    pids = [int(node.answer()) for node in nodes]
    own_proc()
    write_executable(plan["shell"], shell_text(plan, [node.pid for node in nodes]))
    return {"pid": outer, "pids": pids}


def write_executable(path: str, text: str) -> None:
    """Write a program; an existing file keeps its identity, and so the places it is mounted at."""
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    os.chmod(path, 0o755)


def shell_text(plan: Plan, pids: list[int]) -> str:
    """The program that launchers take for a remote shell: `enter HOST COMMAND...`.

    It lies in /tmp of the head, so it goes with the cluster.
    """
    cases = "".join(
        f"    {host['name']}|{host['address']}) pid={pid} ;;\n"
        for host, pid in zip(plan["nodes"], pids, strict=True)
    )
    return SHELL.replace("CASES\n", cases)


SHELL = """#!/bin/sh
# Run a command in a node, as ssh would: enter [-OPTION]... HOST COMMAND...
while [ "${1#-}" != "$1" ]; do shift; done
host=$1
shift
case $host in
CASES
    *) echo "enter: no node $host in this virtual cluster" >&2; exit 255 ;;
esac
exec nsenter -t "$pid" -m -u -i -n -p -- \\
    sh -c 'cd "$0" 2>/dev/null || cd /; exec sh -c "$1"' "$PWD" "$*"
"""


def main() -> None:
    """Read the plan, make the cluster, say so, and wait for the end of the input."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # which process 1 does not feel
    plan = json.loads(sys.stdin.readline())
    try:
        answer = make(plan)
    except (OSError, RuntimeError, ValueError, subprocess.SubprocessError) as error:
        answer = {"error": str(error)}
    print(json.dumps(answer), flush=True)
    if "error" in answer:
        return
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # orphans of the whole cluster end up here
    sys.stdin.read()


if __name__ == "__main__":
    main()
