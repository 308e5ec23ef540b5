"""The proof that ranks share memory: each leaves a nonce in /dev/shm and its peers really map it.

Hostnames, boot ids, MPI's own split and the launcher's variables have each been wrong about this,
so they only say whom to try. The rounds, with the exchanges that the caller makes between them:

1. every rank gathers `local_facts` and makes a `Probe`; all-gather (facts, token);
2. every rank calls `readable`; all-gather the answers, which make the table;
3. where `needs_named_round` says so (it sees the same table on all ranks), every rank calls
   `Probe.name_file`; all-gather the new tokens, `readable` again, all-gather, `join_tables`;
4. `partition` on the table; `Probe.close`.

An unnamed file, opened by peers through /proc/PID/fd, leaves nothing behind whenever a rank dies.
It is out of reach for ranks in another pid or user namespace, as in containers that share the
host's /dev/shm; those need a file with a name. The segment of a node wants what its probe wanted:
see `needs_name`.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import mmap
import os
import secrets
import stat
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import final

from hierring.topology.facts import Facts

__all__ = [
    "Probe",
    "ProbeToken",
    "candidates",
    "join_tables",
    "needs_name",
    "needs_named_round",
    "readable",
]

_NONCE_NBYTES = 32
_NAME_ATTEMPTS = 16  # a clash of 64 random bits is an attack or a broken generator, not bad luck


@dataclass(frozen=True)
class ProbeToken:
    """What a peer needs to find and recognise a rank's nonce.

    Attributes:
        path: where to open the file, "" if the rank could not make one.
        nonce: its content.
        named: whether the file has a name in /dev/shm, or only a descriptor.
        error: why there is no file, "" if there is one.
    """

    path: str
    nonce: bytes
    named: bool
    error: str = ""


@final
class Probe:
    """One rank's nonce file; `token` is for the peers, `close` (or leaving the context) removes it.

    Making one never raises for a /dev/shm that is missing, full or forbidden, because the other
    ranks are already waiting for the token: such a rank shares memory with nobody, and the token
    says why.
    """

    def __init__(self, directory: str = "/dev/shm", *, named: bool = False) -> None:
        self._directory = directory
        self._nonce = secrets.token_bytes(_NONCE_NBYTES)
        self._descriptor = -1
        self._name = ""
        self.token = self._make(named)

    def __enter__(self) -> Probe:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def name_file(self) -> ProbeToken:
        """Replaces the unnamed file by a named one, for the second round; returns the new token."""
        if self._descriptor >= 0 and not self.token.named:
            self.close()
            self.token = self._make(named=True)
        return self.token

    def can_read(self, token: ProbeToken) -> bool:
        """Whether this rank can map the peer's file, in the very /dev/shm it uses itself.

        With one pid namespace for all, /proc/PID/fd opens files of mounts this rank does not have:
        two "hosts" made of mount namespaces would seem one. So the file must lie on the same
        device as this rank's own.
        """
        if not token.path or self._descriptor < 0:
            return False
        if token == self.token:  # opening and closing it would drop the lock of a named file
            return True
        try:
            # Looked at before it is opened: in another pid namespace the path may name a stranger's
            # device or FIFO, and opening those has effects.
            found = Path(token.path).stat()
            if not stat.S_ISREG(found.st_mode) or found.st_size != _NONCE_NBYTES:
                return False
            if found.st_dev != os.fstat(self._descriptor).st_dev:
                return False
            # For writing too: the segment will be.
            flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOCTTY | os.O_NONBLOCK
            descriptor = os.open(token.path, flags)
        except OSError:
            return False
        try:
            with mmap.mmap(descriptor, _NONCE_NBYTES) as mapped:
                return mapped[:] == token.nonce
        except (OSError, ValueError):  # ValueError: the file is shorter than it was
            return False
        finally:
            os.close(descriptor)

    def close(self) -> None:
        """Remove the file, once all ranks have tried: after the last all-gather. Idempotent."""
        if self._name:
            with contextlib.suppress(FileNotFoundError):  # somebody swept the directory
                Path(self._name).unlink()
            self._name = ""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def _make(self, named: bool) -> ProbeToken:
        """Creates the file, unnamed if that works; a token with the reason if nothing does."""
        try:
            path = "" if named else self._open_unnamed()
            if not path:
                named = True
                path = self._open_named()
            # A whole write or ENOSPC: /dev/shm may have no page left.
            os.write(self._descriptor, self._nonce)
        except OSError as error:
            self.close()
            return ProbeToken("", b"", named, f"{self._directory}: {error.strerror}")
        return ProbeToken(path, self._nonce, named)

    def _open_unnamed(self) -> str:
        """The path of an O_TMPFILE for the peers; "" where the filesystem or /proc refuses."""
        try:
            flags = os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC
            self._descriptor = os.open(self._directory, flags, 0o600)
        except OSError:  # by filesystem EOPNOTSUPP, EISDIR, EINVAL; a shortage shows again below
            return ""
        path = f"/proc/{os.getpid()}/fd/{self._descriptor}"
        try:
            same = os.path.samestat(Path(path).stat(), os.fstat(self._descriptor))
        except OSError:
            same = False
        if not same:  # no /proc here, or one of another pid namespace
            os.close(self._descriptor)
            self._descriptor = -1
            return ""
        return path

    def _open_named(self) -> str:
        """Create a random name exclusively, named and locked like a segment's file.

        So whatever a killed rank leaves behind is swept with the segments, and nothing of a rank
        that lives: a sweep that comes between creation and lock either refuses the lock or unlinks
        the file, and another name is tried.
        """
        flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
        for _ in range(_NAME_ATTEMPTS):
            name = Path(self._directory, f"hierring-{secrets.token_hex(8)}")
            try:
                self._descriptor = os.open(name, flags, 0o600)
            except FileExistsError:
                continue
            self._name = str(name)
            with contextlib.suppress(BlockingIOError, PermissionError, FileNotFoundError):
                fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if os.path.samestat(name.lstat(), os.fstat(self._descriptor)):
                    return self._name
            self.close()
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._directory)


def candidates(facts: Sequence[Facts], rank: int) -> tuple[int, ...]:
    """The peers of `rank` worth a try: under the same kernel, or where the kernel hides its id."""
    mine = facts[rank]
    return tuple(
        peer
        for peer, other in enumerate(facts)
        if peer != rank and (other.boot_id == mine.boot_id or not other.boot_id or not mine.boot_id)
    )


def readable(
    probe: Probe, facts: Sequence[Facts], tokens: Sequence[ProbeToken], rank: int
) -> frozenset[int]:
    """The ranks whose nonce the caller, `rank`, could map; itself always among them."""
    tried = candidates(facts, rank)
    return frozenset((rank, *(peer for peer in tried if probe.can_read(tokens[peer]))))


def needs_named_round(facts: Sequence[Facts], table: Sequence[Collection[int]]) -> bool:
    """Whether ranks that see the same /dev/shm could not read each other; equal on all ranks.

    Args:
        facts: of all ranks.
        table: for each rank the ranks it could read.
    """
    together: dict[tuple[str, int], list[int]] = {}
    for rank, fact in enumerate(facts):
        if fact.shm_device >= 0:
            together.setdefault((fact.boot_id, fact.shm_device), []).append(rank)
    return any(not set(ranks) <= set(table[rank]) for ranks in together.values() for rank in ranks)


def needs_name(
    ranks: Collection[int], tokens: Sequence[ProbeToken], table: Sequence[Collection[int]]
) -> bool:
    """Whether a node's segment must have a name, by tokens and table of the first round."""
    return any(tokens[rank].named or not set(ranks) <= set(table[rank]) for rank in ranks)


def join_tables(
    first: Sequence[Collection[int]], second: Sequence[Collection[int]]
) -> list[frozenset[int]]:
    """The table of what either round could read."""
    return [frozenset(a) | frozenset(b) for a, b in zip(first, second, strict=True)]
