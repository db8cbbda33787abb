"""The fixtures come with perdure, cost nothing until they are asked for, and need nothing else."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from importlib.metadata import entry_points
from pathlib import Path

import pytest

import perdure.testing
from perdure import InMemoryCheckpointStorage
from perdure.testing import EventRecorder, FakeClock, Faults

ROOT = Path(__file__).parents[3]

TEST_OF_A_STRANGER = """
import asyncio

from perdure import WorkflowBuilder, executor


def test_all_four_fixtures_work_together(fake_clock, memory_storage, faults, event_recorder):
    @executor(id="hello", input=str, workflow_output=str)
    async def hello(name, ctx):
        await ctx.yield_output("hello " + name)

    storage = faults.wrap(memory_storage)
    workflow = WorkflowBuilder(start_executor=hello, checkpoint_storage=storage, clock=fake_clock).build()
    asyncio.run(event_recorder.collect(workflow.run("you", stream=True)))
    assert event_recorder.outputs == ["hello you"]
    assert faults.counts["commit"] == 2
"""


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYTEST", "PERDURE"))}
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_user_who_installed_perdure_has_the_fixtures(tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(TEST_OF_A_STRANGER, encoding="utf-8")
    others = {entry_point.name for entry_point in entry_points(group="pytest11")} - {
        "perdure"
    }  # which take seconds to load
    left_out = [word for name in ("cacheprovider", *others) for word in ("-p", f"no:{name}")]
    done = run("-m", "pytest", "-q", "-W", "error", *left_out, folder=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 passed" in done.stdout


def test_the_entry_point_names_the_plugin() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    assert project["entry-points"]["pytest11"] == {"perdure": "perdure.testing.plugin"}
    [installed] = entry_points(group="pytest11", name="perdure")
    assert installed.value == "perdure.testing.plugin"


def test_pytest_loads_only_the_plugin_when_its_fixtures_are_unused(tmp_path: Path) -> None:
    code = "import sys, perdure.testing.plugin; print(*[m for m in sys.modules if m.startswith('perdure')])"
    done = run("-c", code, folder=tmp_path)
    assert done.stdout.split() == ["perdure", "perdure.testing", "perdure.testing.plugin"]


def test_the_helpers_need_no_pytest(tmp_path: Path) -> None:
    code = (
        "import sys; sys.modules['pytest'] = None\n"
        f"from perdure.testing import {', '.join(perdure.testing.__all__)}\n"
        "import perdure.testing.kill"
    )
    done = run("-c", code, folder=tmp_path)
    assert done.returncode == 0, done.stderr


def test_every_fixture_is_new_for_each_test(
    fake_clock: FakeClock,
    memory_storage: InMemoryCheckpointStorage,
    faults: Faults,
    event_recorder: EventRecorder,
) -> None:
    assert fake_clock.monotonic() == 0 and faults.counts == {} and event_recorder.events == []
    assert isinstance(memory_storage, InMemoryCheckpointStorage)


# ---------------------------------------------------------------- the names


@pytest.mark.parametrize("name", perdure.testing.__all__)
def test_a_name_resolves_and_is_documented(name: str) -> None:
    assert getattr(perdure.testing, name).__doc__
    assert name in (ROOT / "docs" / "how-to" / "workflows" / "test-a-workflow.md").read_text(encoding="utf-8")


def test_a_misspelt_name_is_an_error_that_helps() -> None:
    with pytest.raises(AttributeError, match=r"no attribute 'FakeClok' \(did you mean 'FakeClock'\?\)"):
        perdure.testing.FakeClok  # type: ignore[attr-defined] # noqa: B018
    assert set(perdure.testing.__all__) <= set(dir(perdure.testing))
