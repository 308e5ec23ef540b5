"""A wheel of the hierring that runs, to be installed beside other MPI libraries.

From a checkout it is built, which needs a C++ compiler. An installed hierring is packed together
again from its own files: what is measured is then what is installed here, to the byte.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import zipfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import hierring
from hierring.errors import HierringError

__all__ = ["Source", "repack", "running_source"]

_DIRECTORIES = ("csrc", "cmake", "hierring", "topology", "launch", "benchmarks")
_FILES = ("CMakeLists.txt", "pyproject.toml", "LICENSE", "README.md")
#: Written by the installer, not part of the wheel; RECORD is written anew.
_OF_INSTALLER = {"INSTALLER", "REQUESTED", "direct_url.json", "RECORD"}

Run = Callable[[Sequence[str]], None]


class Source:
    """Where the running hierring comes from: a checkout, or an installed distribution.

    Attributes:
        checkout: the directory; None if it is installed.
        digest: of all its files; another one means another hierring.
    """

    def __init__(
        self, checkout: Path | None, distribution: importlib.metadata.Distribution | None
    ) -> None:
        self.checkout, self._distribution = checkout, distribution
        digest = hashlib.sha256()
        for name, file in self._files():
            digest.update(f"{name}\n".encode() + file.read_bytes())
        self.digest = digest.hexdigest()[:16]

    def _files(self) -> Iterator[tuple[str, Path]]:
        if self.checkout is None:
            assert self._distribution is not None
            yield from _installed_files(self._distribution)
            return
        found = [self.checkout / name for name in _FILES]
        for directory in _DIRECTORIES:
            found += sorted((self.checkout / directory).rglob("*"))
        for file in found:
            if file.is_file() and "__pycache__" not in file.parts:
                yield str(file.relative_to(self.checkout)), file

    def wheel(self, folder: Path, pip: Sequence[str], run: Run) -> Path:
        """Make the wheel, or find the one that was made from the same files.

        Args:
            folder: of wheels, one directory for each digest.
            pip: a command.
            run: runs a command to its good end, or raises.
        """
        place = folder / self.digest
        made = sorted(place.glob("*.whl"))
        if made:
            return made[0]
        place.mkdir(parents=True, exist_ok=True)
        if self.checkout is None:
            assert self._distribution is not None
            return repack(self._distribution, place)
        run([*pip, "wheel", "--quiet", "--no-deps", "-w", str(place), str(self.checkout)])
        return next(place.glob("*.whl"))


def running_source() -> Source:
    """Find out what this process runs.

    Raises:
        HierringError: neither a checkout nor an installed distribution, so nothing to install.
    """
    package = Path(hierring.__file__).resolve().parent
    if (package.parent / "pyproject.toml").is_file() and (package.parent / "csrc").is_dir():
        return Source(package.parent, None)
    try:
        distribution = importlib.metadata.distribution("hierring")
    except importlib.metadata.PackageNotFoundError:
        distribution = None
    if distribution is None or not any(
        file.resolve() == package / "__init__.py" for _, file in _installed_files(distribution)
    ):
        raise HierringError(
            f"{package} is neither in a checkout nor installed by pip, so it can't be installed "
            "beside other MPI libraries: give environments that have it, with --python"
        )
    return Source(None, distribution)


def _installed_files(distribution: importlib.metadata.Distribution) -> Iterator[tuple[str, Path]]:
    """Names and places of the files that came with the wheel."""
    for file in sorted(distribution.files or ()):
        by_installer = file.parent.suffix == ".dist-info" and file.name in _OF_INSTALLER
        # Scripts lie outside; pip makes them anew.
        if not by_installer and ".." not in file.parts and file.suffix != ".pyc":
            yield str(file), Path(str(distribution.locate_file(file)))


def repack(distribution: importlib.metadata.Distribution, folder: Path) -> Path:
    """Pack the files of an installed distribution as a wheel.

    Raises:
        HierringError: it does not say what kind of wheel it came from, or has lost files.
    """
    lines = (distribution.read_text("WHEEL") or "").splitlines()
    tags = [line.partition(":")[2].strip() for line in lines if line.startswith("Tag:")]
    if not tags:
        raise HierringError(
            "the installed hierring did not come from a wheel: install it with pip, or give "
            "environments that have it, with --python"
        )
    name, version = distribution.metadata["Name"], distribution.version
    target = folder / f"{name}-{version}-{tags[0]}.whl"
    part = target.with_suffix(".part")
    record = f"{name}-{version}.dist-info/RECORD"
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as archive:
        listed = []
        for inside, file in _installed_files(distribution):
            try:
                content = file.read_bytes()
            except OSError as error:
                raise HierringError(f"the installed hierring is not whole: {error}") from error
            code = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
            archive.writestr(inside, content)
            listed.append(f"{inside},sha256={code},{len(content)}")
        archive.writestr(record, "\n".join([*listed, f"{record},,", ""]))
    return part.rename(target)
