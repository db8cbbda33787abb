"""What is published: a wheel that holds the package, its types and its licence, and says what it needs."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest

import holdfast

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = {"postgres", "redis", "crypto", "agents", "server", "otel", "all"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    folder = tmp_path_factory.mktemp("wheel")
    build = "import sys, hatchling.build as backend; backend.build_wheel(sys.argv[1])"
    subprocess.run([sys.executable, "-c", build, str(folder)], cwd=ROOT, check=True, capture_output=True, timeout=20)
    [file] = folder.glob("*.whl")
    return zipfile.ZipFile(file)


@pytest.fixture(scope="module")
def metadata(wheel: zipfile.ZipFile) -> Message:
    [name] = [name for name in wheel.namelist() if name.endswith("METADATA")]
    return Parser().parsestr(wheel.read(name).decode())


def test_the_wheel_holds_every_module_the_types_and_the_licence(wheel: zipfile.ZipFile) -> None:
    packed = set(wheel.namelist())
    source = {path.relative_to(ROOT / "src").as_posix() for path in (ROOT / "src").rglob("*.py")}
    assert source | {"holdfast/py.typed"} <= packed
    assert any(name.endswith("licenses/LICENSE") for name in packed)
    assert not [name for name in packed if "__pycache__" in name or name.startswith("tests")]


def test_the_wheel_says_what_it_is(metadata: Message) -> None:
    assert (metadata["Name"], metadata["Version"]) == ("holdfast", holdfast.__version__)
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "MIT"


def test_the_base_install_needs_three_packages_and_the_extras_are_those_promised(metadata: Message) -> None:
    needs = metadata.get_all("Requires-Dist") or []
    base = {re.split(r"[<>=!~ \[;]", need)[0] for need in needs if "extra ==" not in need}
    assert base == {"msgspec", "click", "rich"}
    assert set(metadata.get_all("Provides-Extra") or []) == EXTRAS


def test_the_command_is_installed(wheel: zipfile.ZipFile) -> None:
    [name] = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert "holdfast = holdfast.cli.main:main" in wheel.read(name).decode()


def test_the_extra_called_all_holds_all_others() -> None:
    [everything] = PROJECT["project"]["optional-dependencies"]["all"]
    assert set(re.findall(r"\w+", everything)) == EXTRAS - {"all"} | {"holdfast"}


def test_every_package_of_the_lock_is_pinned_with_hashes_and_without_addresses() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in lock
    packages = re.split(r"\n(?=[a-z])", lock.strip())
    assert all("==" in package and "--hash=sha256:" in package for package in packages)


def test_the_lock_covers_everything_the_project_asks_for() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pinned = set(re.findall(r"^([a-z0-9-]+)==", lock, flags=re.MULTILINE))
    asked = PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["dev"]
    missing = {re.split(r"[<>=!~ \[;]", need)[0].lower() for need in asked} - pinned
    assert not missing, f"run `make lock`: {missing}"


def test_what_ci_runs_is_what_anybody_runs() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
