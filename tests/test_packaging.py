"""What is published: a wheel and an sdist that hold what they should, and work where nothing else is installed."""

from __future__ import annotations

import re
import shutil
import signal
import tomllib
import zipfile
from email.message import Message
from email.parser import Parser
from pathlib import Path

import pytest
from tests.packages import ROOT, Artefacts, Installed, clean_copy, files_of, needs_of, repack, run, succeed

import perdure

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
EXTRAS = {"postgres", "redis", "crypto", "agents", "yaml", "server", "client", "otel", "all"}
BASE = {"msgspec", "click", "rich"}

LITTER = {"src/perdure/left.db", "src/perdure/__pycache__/old.pyc", "docs/left.db-wal", ".venv/thing.py", "uv.lock"}
"""What work leaves behind, and .gitignore names."""


@pytest.fixture(scope="module")
def artefacts(tmp_path_factory: pytest.TempPathFactory) -> Artefacts:
    folder = tmp_path_factory.mktemp("built")
    source = clean_copy(folder / "source")
    for name in LITTER:
        (source / name).parent.mkdir(parents=True, exist_ok=True)
        (source / name).write_text("left behind")
    return Artefacts.build(source, folder)


@pytest.fixture(scope="module")
def metadata(artefacts: Artefacts) -> Message:
    with zipfile.ZipFile(artefacts.wheel) as packed:
        [name] = [name for name in packed.namelist() if name.endswith("METADATA")]
        return Parser().parsestr(packed.read(name).decode())


# ---------------------------------------------------------------- what is in the root


def test_repository_root_holds_only_the_listed_files() -> None:
    assert tracked_entries() == {
        *(".ci", ".gitignore", "Makefile", "pyproject.toml", "requirements.lock"),
        *("ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "GLOSSARY.md", "LICENSE", "README.md"),
        *("benchmarks", "docs", "examples", "src", "tests"),
    }


def tracked_entries() -> set[str]:
    """Of the repository; where this is none, such as an unpacked sdist, all that is not hidden away."""
    if (ROOT / ".git").exists() and shutil.which("git") is not None:
        listed = succeed("git", "-c", "safe.directory=*", "ls-files", "-z", folder=ROOT)
        return {name.partition("/")[0] for name in listed.split("\0") if name}
    return {path.name for path in ROOT.iterdir() if not path.name.startswith(".")} | {".ci", ".gitignore"}


def test_make_demo_installs_exactly_what_perdure_needs_and_what_builds_it() -> None:
    named = re.search(r"^NEEDED := ((?:.*\\\n)*.*)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE)
    assert named is not None
    builders = [re.split(r"[<>=!~ \[;]", need)[0] for need in PROJECT["build-system"]["requires"]]
    needed = {package.name.lower() for package in needs_of([*BASE, *builders])}
    assert set(named[1].replace("\\", " ").split()) == needed | {"colorama"}, "colorama: for Windows"


def test_make_help_lists_every_command() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    commands = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)[0].split()
    assert set(commands) == set(re.findall(r"^([a-z-]+):.*## ", makefile, re.MULTILINE))


# ---------------------------------------------------------------- what is in them


def test_wheel_holds_exactly_the_modules_the_types_and_the_licence(artefacts: Artefacts) -> None:
    modules = {name.removeprefix("src/") for name in files_of(artefacts.source) if re.match(r"src/.+\.py$", name)}
    dist_info = f"perdure-{perdure.__version__}.dist-info"
    about = {f"{dist_info}/{name}" for name in ("METADATA", "WHEEL", "entry_points.txt", "licenses/LICENSE", "RECORD")}
    data = {"perdure/py.typed", "perdure/agent_workflow/documents/agent-workflow.schema.json"}
    assert artefacts.files_of_the_wheel() == modules | data | about


def test_the_sdist_holds_all_that_the_project_is_made_of(artefacts: Artefacts) -> None:
    """The sdist can be built, read, tested and measured; what work leaves behind is not in it."""
    project = {
        name
        for name in files_of(artefacts.source) - LITTER
        if re.match(r"(src|tests|docs|examples|benchmarks|\.ci)/|[A-Z]\w*\.md$", name)
    }
    more = {"LICENSE", "Makefile", "pyproject.toml", "requirements.lock", ".gitignore", "PKG-INFO"}
    assert artefacts.files_of_the_sdist() == project | more


def test_wheel_metadata_names_version_python_and_licence(metadata: Message) -> None:
    assert (metadata["Name"], metadata["Version"]) == ("perdure", perdure.__version__)
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["License-Expression"] == "MIT"
    assert "## Two commands" in str(metadata.get_payload()), "the README is what a registry shows"


def test_base_install_needs_three_packages_and_extras_are_as_promised(metadata: Message) -> None:
    needs = metadata.get_all("Requires-Dist") or []
    base = {re.split(r"[<>=!~ \[;]", need)[0] for need in needs if "extra ==" not in need}
    assert base == BASE
    assert set(metadata.get_all("Provides-Extra") or []) == EXTRAS


def test_the_extra_called_all_holds_all_others() -> None:
    [everything] = PROJECT["project"]["optional-dependencies"]["all"]
    assert set(re.findall(r"\w+", everything)) == EXTRAS - {"all"} | {"perdure"}


# ---------------------------------------------------------------- installed, without extras, outside this folder


@pytest.fixture(scope="module")
def from_wheel(artefacts: Artefacts, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("from_wheel")
    for package in needs_of(BASE):
        repack(package, folder)
    return Installed.make(artefacts.wheel, folder, folder / "made")


@pytest.fixture(scope="module")
def from_sdist(artefacts: Artefacts, tmp_path_factory: pytest.TempPathFactory) -> Installed:
    folder = tmp_path_factory.mktemp("from_sdist")
    builders = [re.split(r"[<>=!~ \[;]", need)[0] for need in PROJECT["build-system"]["requires"]]
    for package in needs_of([*BASE, *builders]):
        repack(package, folder)
    return Installed.make(artefacts.sdist, folder, folder / "made")


def test_install_without_extras_brings_exactly_the_needed_packages(from_wheel: Installed) -> None:
    assert from_wheel.distributions().keys() == {package.name for package in needs_of(BASE)} | {"perdure"}


def test_the_sdist_builds_what_the_wheel_holds(from_wheel: Installed, from_sdist: Installed) -> None:
    """In an environment that has only what pyproject.toml asks for, byte for byte."""
    about = re.compile(r"\.dist-info/(INSTALLER|REQUESTED|RECORD|direct_url\.json|uv_\w+\.json)$|^\.\.")
    ours, theirs = (
        {name: digest for name, digest in made.files().items() if not about.search(name)}
        for made in (from_wheel, from_sdist)
    )
    assert ours == theirs
    assert "perdure/py.typed" in ours
    assert from_sdist.distributions().keys() == from_wheel.distributions().keys()


EVERY_NAME = """
import pkgutil, sys
import perdure, perdure.agents, perdure.exceptions, perdure.orchestrations, perdure.testing

for public in (perdure, perdure.agents, perdure.exceptions, perdure.orchestrations, perdure.testing):
    for name in public.__all__:
        try:
            getattr(public, name)
        except perdure.MissingExtra as error:
            assert (name, error.extra) == ("Agent", "agents"), error
for module in pkgutil.walk_packages(perdure.__path__, "perdure."):
    if ".adapters." in module.name:  # imported only where the framework is
        continue
    if not module.name.endswith(("__main__", "testing.plugin")):  # a program; what pytest alone loads
        try:
            __import__(module.name)
        except perdure.MissingExtra as error:  # of an extra that is not installed here
            room = {"postgres": "postgres", "agents": "pydantic", "server": "server", "client": "client"}
            assert room[error.extra] in module.name, error
print(perdure.__file__)
"""


def test_every_name_and_every_module_can_be_imported(from_wheel: Installed, tmp_path: Path) -> None:
    printed = succeed(from_wheel.python, "-W", "error", "-c", EVERY_NAME, folder=tmp_path)
    assert Path(printed.strip()).is_relative_to(from_wheel.folder)


def test_the_command_is_there_under_both_names(from_wheel: Installed, tmp_path: Path) -> None:
    for command in ([from_wheel.command], [from_wheel.python, "-W", "error", "-m", "perdure"]):
        assert perdure.__version__ in succeed(*command, "--version", folder=tmp_path)
        assert "Durable agent workflows" in succeed(*command, "--help", folder=tmp_path)


def test_the_demo_runs_to_its_end(from_wheel: Installed, tmp_path: Path) -> None:
    printed = succeed(from_wheel.command, "demo", folder=tmp_path, TMPDIR=str(tmp_path))
    assert printed.splitlines()[-1] == "lost: 0   finished work repeated: 0"


PROGRAM = """
import os, signal, sys
from perdure import open_store, run_sync, step, workflow

@step
async def fetch(url: str) -> str:
    print("fetching", url, flush=True)
    return f"the text of {url}"

@step
async def summarise(text: str) -> str:
    if sys.argv[2:]:
        os.kill(os.getpid(), signal.SIGKILL)
    return f"a summary of {text}"

@workflow
async def digest(url: str) -> str:
    return await summarise(await fetch(url))

flow = digest.build(open_store(sys.argv[1]))
print(*run_sync(flow.run(*sys.argv[2:], thread_id="monday")).get_outputs())
"""


@pytest.mark.parametrize("url", ["sqlite:///threads.db", "file:threads"])
def test_a_workflow_that_is_killed_is_resumed_by_another_process(
    url: str, from_wheel: Installed, tmp_path: Path
) -> None:
    program = tmp_path / "digest.py"
    program.write_text(PROGRAM)
    killed = run(from_wheel.python, "-W", "error", program, url, "example.org", folder=tmp_path)
    assert (killed.returncode, killed.stdout) == (-signal.SIGKILL, "fetching example.org\n"), killed.stderr
    resumed = succeed(from_wheel.python, "-W", "error", program, url, folder=tmp_path)
    assert resumed == "a summary of the text of example.org\n"
    assert "monday" in succeed(from_wheel.command, "threads", "--store", url, folder=tmp_path)


def test_install_fails_without_the_wheel_of_a_needed_package(artefacts: Artefacts, tmp_path: Path) -> None:
    """What the fixtures promise: nothing is to be had but the wheels that they were given."""
    for package in needs_of(BASE - {"rich"}):
        repack(package, tmp_path)
    with pytest.raises(AssertionError, match="rich"):
        Installed.make(artefacts.wheel, tmp_path, tmp_path / "made")


# ---------------------------------------------------------------- what development needs


def test_every_package_of_the_lock_has_hashes_and_no_addresses() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    assert "://" not in lock
    packages = re.split(r"\n(?=[a-z])", lock.strip())
    assert all("==" in package and "--hash=sha256:" in package for package in packages)


def test_the_lock_covers_everything_the_project_asks_for() -> None:
    lock = (ROOT / "requirements.lock").read_text(encoding="utf-8")
    pinned = set(re.findall(r"^([a-z0-9-]+)==", lock, flags=re.MULTILINE))
    asked = (
        PROJECT["project"]["dependencies"] + PROJECT["dependency-groups"]["dev"] + PROJECT["build-system"]["requires"]
    )
    missing = {re.split(r"[<>=!~ \[;]", need)[0].lower() for need in asked} - pinned
    assert not missing, f"run `make lock`: {missing}"


def test_ci_runs_make_test() -> None:
    assert "make test" in (ROOT / ".ci" / "run").read_text(encoding="utf-8")
