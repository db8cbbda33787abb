"""What is published, built and installed as a stranger would have it, without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")


def environment(**more: str) -> dict[str, str]:
    """Nothing of the caller's shell that could help or hinder."""
    unwanted = ("PYTHON", "PYTEST", "PERDURE", "UV_", "PIP_", "VIRTUAL_ENV", "COLUMNS")
    return {name: value for name, value in os.environ.items() if not name.startswith(unwanted)} | more


def run(*arguments: str | Path, folder: Path, **more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(argument) for argument in arguments],
        cwd=folder,
        env=environment(**more),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=18,
        check=False,
    )


def succeed(*arguments: str | Path, folder: Path, **more: str) -> str:
    """What the command printed. One that fails says why."""
    done = run(*arguments, folder=folder, **more)
    assert done.returncode == 0, f"{arguments} ended with {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


# ---------------------------------------------------------------- building


def clean_copy(to: Path) -> Path:
    """The project as a fresh clone has it: without caches, environments and whatever else is hidden, but for CI."""

    def unwanted(folder: str, names: list[str]) -> set[str]:
        hidden = {name for name in names if name.startswith(".")} - {".ci", ".gitignore"}
        return hidden | {name for name in names if name in {"__pycache__", "build", "dist"}}

    return Path(shutil.copytree(ROOT, to, ignore=unwanted))


def files_of(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@dataclass(frozen=True)
class Artefacts:
    """A wheel and an sdist, built from one clean copy."""

    source: Path
    wheel: Path
    sdist: Path

    @classmethod
    def build(cls, source: Path, to: Path) -> Artefacts:
        """By the backend that pyproject.toml names, as the environment of the tests has it."""
        code = (
            "import sys, hatchling.build as backend; backend.build_sdist(sys.argv[1]); backend.build_wheel(sys.argv[1])"
        )
        succeed(sys.executable, "-c", code, to, folder=source)
        [wheel], [sdist] = to.glob("*.whl"), to.glob("*.tar.gz")
        return cls(source, wheel, sdist)

    def files_of_the_wheel(self) -> set[str]:
        with zipfile.ZipFile(self.wheel) as packed:
            return set(packed.namelist())

    def files_of_the_sdist(self) -> set[str]:
        """Without the folder that holds them all."""
        with tarfile.open(self.sdist) as packed:
            return {member.name.partition("/")[2] for member in packed.getmembers() if member.isfile()}


# ---------------------------------------------------------------- installing


def needs_of(names: Iterable[str]) -> Iterator[metadata.Distribution]:
    """These packages and all that they need, without extras, as they are installed here."""
    seen: set[str] = set()
    waiting = list(names)
    while waiting:
        package = metadata.distribution(waiting.pop())
        if package.name in seen:
            continue
        seen.add(package.name)
        yield package
        needs = map(Requirement, package.requires or [])
        waiting += [need.name for need in needs if need.marker is None or need.marker.evaluate({"extra": ""})]


def repack(package: metadata.Distribution, to: Path) -> None:
    """An installed package as the wheel that it came from, whose hash the lock has: nothing has to be loaded again."""
    tags = [line.removeprefix("Tag: ") for line in (package.read_text("WHEEL") or "").splitlines() if "Tag: " in line]
    written_by_installer = ("INSTALLER", "REQUESTED", "direct_url.json")
    name = package.name.replace("-", "_").replace(".", "_")
    with zipfile.ZipFile(to / f"{name}-{package.version}-{tags[0]}.whl", "w") as packed:
        for file in package.files or []:
            if ".." not in file.parts and file.suffix != ".pyc" and file.name not in written_by_installer:
                packed.write(str(file.locate()), file.as_posix())


@dataclass(frozen=True)
class Installed:
    """A virtual environment in which perdure was just installed, and nothing else."""

    folder: Path

    @classmethod
    def make(cls, artefact: Path, wheels: Path, folder: Path) -> Installed:
        """As `uv pip install` does it, with the project's own requirements; only the wheels given can be had.

        An sdist is built on the way, in an environment of its own that holds what pyproject.toml asks for.
        """
        offline = {"UV_OFFLINE": "1", "UV_NO_CONFIG": "1", "UV_CACHE_DIR": str(folder / "cache")}
        folder.mkdir()
        succeed(UV, "venv", "--quiet", "--python", sys.executable, folder / "venv", folder=folder, **offline)
        made = cls(folder)
        options = ["--quiet", "--no-index", "--python", str(made.python), "--find-links", str(wheels)]
        succeed(UV, "pip", "install", *options, artefact, folder=folder, **offline)
        return made

    @property
    def python(self) -> Path:
        return self.folder / "venv" / "bin" / "python"

    @property
    def command(self) -> Path:
        return self.folder / "venv" / "bin" / "perdure"

    def distributions(self) -> dict[str, metadata.Distribution]:
        [packages] = self.folder.glob("venv/lib/python*/site-packages")
        return {package.name: package for package in metadata.distributions(path=[str(packages)])}

    def files(self) -> dict[str, str]:
        """What perdure put there, with its digests."""
        mine = self.distributions()["perdure"].files or []
        return {file.as_posix(): file.hash.value for file in mine if file.hash}
