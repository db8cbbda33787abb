"""`perdure init`: exactly three files that work as they are; and `perdure doctor` of a project."""

from __future__ import annotations

import json
import random
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.chance import draw_seed
from tests.e2e.conftest import Call, Told
from tests.e2e.test_cli import refusal
from tests.e2e.test_doctor import as_it_is, found

FILES = {"perdure.json", "graph/react.py", "graph/dependencies.py"}
PASSWORD = "hunter2-hunter2"


@pytest.fixture(autouse=True)
def nothing_else_is_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("DATABASE_URL", "REDIS_URL", "MODEL", "PERDURE_REDIS_URL"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def demo(call: Call, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A project that `init` wrote, on a port that is free, with us in it."""
    assert call("init", "demo").returncode == 0
    monkeypatch.chdir(folder / "demo")
    monkeypatch.setenv("PERDURE_PORT", "0")
    return folder / "demo"


def changed(project: Path, **keys: Any) -> None:
    file = project / "perdure.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | keys))


def test_it_writes_exactly_three_files_and_says_what_comes_next(call: Call, folder: Path) -> None:
    done = call("init", "demo")
    assert (done.returncode, done.stderr) == (0, "")
    assert set(as_it_is(folder / "demo")) == FILES
    assert json.loads((folder / "demo" / "perdure.json").read_text()) == {
        "agent": "graph.react:app",
        "checkpointer": "graph.dependencies:my_checkpointer",
    }
    assert "  cd demo\n  perdure serve\n" in done.stdout
    assert "curl -X POST http://127.0.0.1:8000/v1/graph/invoke" in done.stdout


def test_it_writes_into_this_folder_if_none_is_named_and_for_agentflow_if_told(told: Told, folder: Path) -> None:
    (folder / "office.py").unlink()
    assert set(told("init", "--agentflow")["files"]) == FILES - {"perdure.json"} | {"agentflow.json"}
    assert set(as_it_is(folder)) == FILES - {"perdure.json"} | {"agentflow.json"}


def test_it_writes_over_nothing_unless_it_is_told_to(call: Call, folder: Path) -> None:
    call("init", "demo")
    (folder / "demo" / "graph" / "react.py").write_text("mine")
    (folder / "demo" / "perdure.json").unlink()
    before = as_it_is(folder)
    said = refusal(call("init", "demo"), 1)
    assert said.startswith("graph/react.py and graph/dependencies.py are there already. Nothing was written.")
    assert as_it_is(folder) == before
    assert call("init", "demo", "--force").returncode == 0
    assert "mine" not in (folder / "demo" / "graph" / "react.py").read_text()


def test_it_makes_no_second_configuration_and_no_folder_in_place_of_a_file(call: Call, folder: Path) -> None:
    (folder / "perdure.toml").write_text('agent = "a:b"')
    assert "perdure.toml is there already" in refusal(call("init", "--force"), 1)
    assert "office.py' is a file" in refusal(call("init", "office.py"), 1)
    assert set(as_it_is(folder)) == {"office.py", "perdure.toml"}


def test_the_agent_remembers_a_name_by_the_thread_alone(demo: Path) -> None:
    name = "".join(random.Random(draw_seed()).choices("abcdefghij", k=10)).capitalize()
    said = [_said_by_a_process(demo, text) for text in (f"Remember my name is {name}", "What is my name?")]
    assert said[1] == f"Your name is {name}."
    assert _said_by_a_process(demo, "What is my name?", thread="other") == "You have not told me your name yet."


def _said_by_a_process(demo: Path, text: str, thread: str = "demo-thread") -> str:
    script = (
        "import asyncio\n"
        "from perdure.server.config.files import load_config\n"
        "from perdure.server.app.project import Project\n"
        "from perdure.server.app.registry import Registry\n"
        "from perdure.server.app.factory import make_storage\n"
        "async def main():\n"
        "    config = load_config()\n"
        "    project = Project(config.folder)\n"
        "    registry = Registry.of(config, project)\n"
        "    async with make_storage(config, project, registry) as storage:\n"
        f"        options = dict(thread_id={thread!r}, checkpoint_storage=storage)\n"
        f"        done = await registry.default.workflow.run({text!r}, **options)\n"
        "        print(done.get_outputs()[-1].text)\n"
        "asyncio.run(main())\n"
    )
    done = subprocess.run([sys.executable, "-c", script], cwd=demo, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.strip()


# ---------------------------------------------------------------- doctor


def test_a_new_project_is_well_and_looking_makes_nothing(told: Told, demo: Path) -> None:
    before = {name for name in as_it_is(demo) if "__pycache__" not in name}
    tree = told("doctor", store=None)
    assert (tree["kind"], tree["is_well"]) == ("project", True)
    assert {one["mark"] for one in tree["findings"]} == {"ok"}
    assert found(tree, "workflow")["found"] == "react: graph.react:app, the default"
    assert "is not there yet: the first run makes it" in found(tree, "storage")["found"]
    assert {name for name in as_it_is(demo) if "__pycache__" not in name} == before


def test_a_project_elsewhere_can_be_named_and_a_store_stays_a_store(
    call: Call, told: Told, ids: list[str], demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told("doctor", store=None)["kind"] == "project"
    assert told("doctor", f"sqlite:///{demo.parent / 'threads.db'}", store=None)["kind"] == "sqlite"
    monkeypatch.chdir(demo.parent)
    assert told("doctor")["kind"] == "sqlite"
    assert told("doctor", "--config", "demo")["store"] == str(demo)
    assert "--config names a project" in refusal(call("doctor", "threads.db", "--config", "demo", store=None), 2)


@pytest.mark.parametrize(
    ("keys", "check", "said"),
    [
        ({"agnet": "x"}, "configuration", "perdure.json: agnet: unknown key (did you mean 'agent'?)"),
        ({"agent": "graph.reac:app"}, "project", "(did you mean 'graph.react'?)"),
        ({"agent": "graph.react:re"}, "project", "is a module. A server runs"),
        ({"checkpointer": "graph.react:app"}, "project", "is a RuleFollower, not a storage"),
        ({"host": "0.0.0.0"}, "auth", "without auth"),
        ({"auth": "jwt"}, "auth", "JWT_SECRET_KEY"),
        ({"auth": {"method": "custom", "path": "no:one"}}, "auth", "no module 'no' exists"),
    ],
)
def test_what_is_wrong_with_a_project_fails(call: Call, demo: Path, keys: Any, check: str, said: str) -> None:
    changed(demo, **keys)
    done = call("doctor", "--json", store=None)
    assert (done.returncode, done.stderr) == (1, "")
    failed = [one for one in json.loads(done.stdout)["findings"] if one["mark"] == "fail"]
    assert [one["check"] for one in failed] == [check]
    assert said in failed[0]["found"]


def test_a_port_that_is_taken_and_a_storage_in_memory_are_warned_of(
    told: Told, demo: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        monkeypatch.setenv("PERDURE_PORT", str(taken.getsockname()[1]))
        monkeypatch.setenv("PERDURE_CHECKPOINTER", "memory:")
        tree = told("doctor", store=None)
    assert tree["is_well"]
    assert {one["check"] for one in tree["findings"] if one["mark"] == "warn"} == {"port", "storage"}


def test_a_server_that_does_not_answer_is_told_of_without_its_password(call: Call, demo: Path) -> None:
    changed(demo, checkpointer=f"postgresql://me:{PASSWORD}@127.0.0.1:1/x", redis=f"redis://:{PASSWORD}@127.0.0.1:1/0")
    done = call("doctor", "--json", store=None)
    tree = json.loads(done.stdout)
    assert (found(tree, "connection")["mark"], found(tree, "valkey")["mark"]) == ("fail", "warn")
    assert PASSWORD not in done.stdout + done.stderr + call("doctor", store=None).stdout


def test_a_real_postgresql_and_valkey_are_looked_at(told: Told, demo: Path, postgres_dsn: str, valkey_url: str) -> None:
    changed(demo, checkpointer=postgres_dsn, redis=valkey_url)
    tree = told("doctor", store=None)
    assert tree["storage"]["kind"] == "postgresql"
    assert found(tree, "valkey")["mark"] == "ok"
    assert "is not made yet: the first use makes it" in found(tree, "schema")["found"]
